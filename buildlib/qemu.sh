# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The virtual machine of ./run vm: start it, watch it, judge it. The options
# kernel, mem, cpus, timeout, out, verdict and modules are variables of vm.sh.
# shellcheck disable=SC2154

STATUS_TIMEOUT=124
STATUS_REPORT=125

vm_pid='' reader_pids='' run_dir=''

# prepare_run [COMMAND...]: the run folder, which the VM can write to.
prepare_run() {
	mkdir -p "$BUILD/vm"
	find "$BUILD/vm" -mindepth 1 -maxdepth 1 -name 'run-*' -mmin +600 \
		-exec rm -rf {} +
	run_dir=$(mktemp -d "$BUILD/vm/run-XXXXXX")
	out=${out:-$run_dir/out}
	mkdir -p "$out"
	out=$(readlink -f "$out")
	interactive=0
	if [ $# -gt 0 ]; then
		printf '%q ' exec "$@" >"$run_dir/command"
		timeout=${timeout:-600}
	else
		interactive=1
		timeout=${timeout:-0}
	fi
	write_config >"$run_dir/config"
	mkfifo "$run_dir"/{con.in,con.out,mon.in,mon.out,output}
	make_initramfs "$run_dir/initramfs"
}

# Read by busybox sh and by bash in the VM.
write_config() {
	local slow=1 rows=24 columns=80

	[ "$kernel" != debug ] || slow=4
	if [ "$interactive" = 1 ]; then
		read -r rows columns < <(stty size)
	fi
	cat <<-END
		TREE='$TREE'
		RUN_DIR='$run_dir'
		OUT_DIR='$out'
		KERNEL='$kernel'
		KREL='$KREL'
		KROOT='$KROOT'
		MODULES='$modules'
		SLOW='$slow'
		INTERACTIVE='$interactive'
		ROWS='$rows'
		COLUMNS='$columns'
		TERMINAL='${TERM:-linux}'
		TMPFS_DIR='$(tmpfs_dir)'
	END
}

# The VM's /run is empty, unless something needed is in there.
tmpfs_dir() {
	local needed

	for needed in "$TREE" "$out" "$KROOT"; do
		case $needed in
		/run/*) return 0 ;;
		esac
	done
	echo /run
}

# /dev/kvm alone proves nothing: there are machines where it exists and
# every guest hangs.
accelerator() {
	if grep -q -w -E 'vmx|svm' /proc/cpuinfo && [ -w /dev/kvm ]; then
		echo "-accel kvm -cpu host"
	else
		# With erms and fsrm the guest copies memory with rep movsb,
		# which TCG does a byte at a time.
		echo "-accel tcg,thread=multi -cpu max,erms=off,fsrm=off"
	fi
}

kernel_arguments() {
	echo "console=ttyS0 loglevel=5 log_buf_len=16M panic=-1 oops=panic" \
		"sysrq_always_enabled rcupdate.rcu_cpu_stall_timeout=120" \
		"tsc=reliable mitigations=off net.ifnames=0 nokaslr"
}

start_vm() {
	local shares terminal

	shares=security_model=none,multidevs=remap
	if [ "$interactive" = 1 ]; then
		saved_tty=$(stty -g)
		terminal=(-chardev "stdio,id=tty,signal=off"
			-device "virtconsole,chardev=tty")
	else
		terminal=(-chardev "file,id=output,path=$run_dir/output"
			-device "virtserialport,chardev=output,name=output")
		cat "$run_dir/output" &
		reader_pids=$!
	fi
	cat "$run_dir/con.out" >"$run_dir/console" &
	console_pid=$!
	exec 3<&0
	# setpriv: the VM ends when this script does, whatever ends it.
	# shellcheck disable=SC2046 # The accelerator is several words.
	setpriv --pdeathsig KILL qemu-system-x86_64 \
		-nodefaults -no-user-config -display none -no-reboot \
		-machine q35 $(accelerator) -smp "$cpus" -m "$mem" \
		-kernel "$KIMAGE" -initrd "$run_dir/initramfs" \
		-append "$(kernel_arguments)" \
		-chardev "pipe,id=con,path=$run_dir/con" -serial chardev:con \
		-chardev "pipe,id=mon,path=$run_dir/mon" -mon chardev=mon \
		-virtfs "local,path=/,mount_tag=host,readonly=on,$shares" \
		-virtfs "local,path=$run_dir,mount_tag=ctl,$shares" \
		-virtfs "local,path=$out,mount_tag=out,$shares" \
		-device virtio-serial-pci "${terminal[@]}" \
		<&3 2>"$run_dir/qemu" &
	vm_pid=$!
}

# wait_vm: until it powers off or its time is over.
wait_vm() {
	local start=$SECONDS limit=$timeout

	while kill -0 "$vm_pid" 2>/dev/null; do
		sleep 0.1
		if [ -e "$run_dir/status" ] && [ ! -e "$run_dir/ended" ]; then
			# The command is done: what is left must not hang.
			limit=$((SECONDS - start + 300))
			: >"$run_dir/ended"
		fi
		if [ "$limit" -gt 0 ] && [ $((SECONDS - start)) -gt "$limit" ]; then
			: >"$run_dir/timed-out"
			ask_what_hangs
			break
		fi
	done
	end_vm
}

# By the serial console's magic SysRq: the blocked tasks, all CPUs' stacks.
ask_what_hangs() {
	local key

	for key in w l; do
		echo "chardev-send-break con" >"$run_dir/mon.in"
		sleep 0.5
		printf '%s' "$key" >"$run_dir/con.in"
		sleep 2
	done
}

end_vm() {
	local pid=$vm_pid

	[ -n "$pid" ] || return 0
	vm_pid=''
	kill -TERM "$pid" 2>/dev/null || true
	for _ in {1..30}; do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	# The output's reader ends with the VM; the console's pipe is kept
	# open by nobody else, so give it a moment to be read.
	[ -z "$reader_pids" ] || wait "$reader_pids" 2>/dev/null || true
	sleep 0.1
	kill "$console_pid" 2>/dev/null || true
	[ "$interactive" = 0 ] || stty "$saved_tty"
	rm -f "$run_dir/initramfs" "$run_dir"/{con,mon}.{in,out} "$run_dir/output"
}

console_tail() {
	echo "--- the end of its console ($run_dir/console):"
	tail -n 100 "$run_dir/console" | tr -d '\r'
	echo "---"
}

# judge_run: say what was wrong, and exit with the status to give.
judge_run() {
	local status faults=()

	judge_end
	judge_log
	[ -z "$verdict" ] || echo "${faults[*]}" >"$verdict"
	status=$(cat "$run_dir/status" 2>/dev/null || echo 0)
	case " ${faults[*]} " in
	*" timeout "*) status=$STATUS_TIMEOUT ;;
	"  ") ;;
	*) [ "$status" -ne 0 ] || status=$STATUS_REPORT ;;
	esac
	exit "$status"
}

# Did it come up, and did it power off by itself?
judge_end() {
	local setup

	setup=$(cat "$run_dir/setup" 2>/dev/null || echo ok)
	if [ -e "$run_dir/timed-out" ]; then
		say "the VM was ended by its time limit ($timeout s)"
		console_tail >&2
		faults+=(timeout)
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
