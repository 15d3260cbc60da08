# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# ./run vm: what was wrong with a run.

STATUS_TIMEOUT=124
STATUS_REPORT=125

console_tail() {
	echo "--- the end of its console ($run_dir/console):"
	tail -n 200 "$run_dir/console" | tr -d '\r'
	echo "---"
}

# judge_run: say what was wrong, and exit with the status to give.
judge_run() {
	local status faults=() i

	judge_end
	judge_log
	for ((i = 1; i < nodes; i++)); do
		judge_node "$i"
	done
	[ -z "$verdict" ] || echo "${faults[*]}" >"$verdict"
	status=$(cat "$run_dir/status" 2>/dev/null || echo 0)
	case " ${faults[*]} " in
	*" timeout "* | *" hang "*) status=$STATUS_TIMEOUT ;;
	"  ") ;;
	*) [ "$status" -ne 0 ] || status=$STATUS_REPORT ;;
	esac
	exit "$status"
}

# Did it come up, and did it power off by itself?
judge_end() {
	local setup

	setup=$(cat "$run_dir/setup" 2>/dev/null || echo ok)
	if [ -e "$run_dir/not-booted" ]; then
		say "the VM did not boot, see its console"
		console_tail >&2
		faults+=(timeout)
	elif [ -e "$run_dir/timed-out" ]; then
		say "the VM was ended by its time limit ($timeout s)"
		console_tail >&2
		faults+=(timeout)
	elif [ -e "$run_dir/silent" ]; then
		say "the VM was ended: it hung"
		console_tail >&2
		judge_hang
	elif [ ! -e "$run_dir/reports" ]; then
		say "the VM died before it was done"
		cat "$run_dir/qemu" >&2
		console_tail >&2
		faults+=(died)
	fi
	if [ "$setup" != ok ]; then
		say "the VM could not be set up: $setup"
		tail -n 20 "$run_dir/dmesg" >&2 || true
		faults+=(setup)
	fi
}

# QEMU before 8.1 can hang a guest by itself: see guest/init.
judge_hang() {
	if grep -a -q 'asm_exc_int3' "$run_dir/console"; then
		say "a bug of QEMU's: not the fault of what ran; repeat it"
		faults+=(emulator)
	else
		faults+=(hang)
	fi
}

# judge_node K: the same for another node. Of one that a test has ended, also
# what it said before, which only its console has.
judge_node() {
	local run_dir=$run_dir/node-$1 before=${#faults[@]}

	if [ -e "$run_dir/killed" ]; then
		cat "$run_dir/console" >>"$run_dir/dmesg"
		scan_log "$run_dir/console" >>"$run_dir/reports" || true
	fi
	judge_end
	judge_log
	[ ${#faults[@]} -eq "$before" ] || say "that was node $1"
}

# What the kernel and the modules left behind.
judge_log() {
	local unload

	unload=$(cat "$run_dir/unload" 2>/dev/null || echo ok)
	if [ -s "$run_dir/reports" ]; then
		say "the kernel log has reports ($run_dir/dmesg):"
		grep -n -B 3 -A 12 -F -f "$run_dir/reports" "$run_dir/dmesg" |
			head -n 80 >&2
		faults+=(reports)
	fi
	if [ -s "$run_dir/kmemleak" ]; then
		say "memory leaks ($run_dir/kmemleak):"
		head -n 60 "$run_dir/kmemleak" >&2
		faults+=(leak)
	fi
	if [ "$unload" != ok ]; then
		say "the modules cannot be unloaded: $unload"
		faults+=(unload)
	fi
}
