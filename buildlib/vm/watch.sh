# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# ./run vm: wait for the virtual machine, and end it.

# Seconds without a heartbeat, multiplied by $slow, after which it hangs.
SILENCE=150

# boot_vm: until it has run the first of this tree's code. An emulator that
# hangs before (guest/init tells why) says nothing about that code.
boot_vm() {
	local attempt

	for attempt in 1 2 3; do
		start_vm
		while kill -0 "$vm_pid" 2>/dev/null; do
			[ ! -e "$run_dir/heartbeat" ] || return 0
			[ $((SECONDS - started)) -le $((SILENCE * slow)) ] || break
			sleep 0.1
		done
		if ! kill -0 "$vm_pid" 2>/dev/null; then
			return 0
		fi
		end_vm
		say "the VM did not boot (attempt $attempt of 3)"
	done
	: >"$run_dir/not-booted"
}

# wait_vm: until it powers off or its time is over.
wait_vm() {
	local limit=$timeout ended=''

	while kill -0 "$vm_pid" 2>/dev/null; do
		sleep 0.1
		if [ -e "$run_dir/status" ] && [ -z "$ended" ]; then
			# The command is done: what is left must not hang.
			limit=$((SECONDS - started + 300 * slow))
			ended=1
		fi
		if [ "$limit" -gt 0 ] && [ $((SECONDS - started)) -gt "$limit" ]; then
			: >"$run_dir/timed-out"
		elif is_silent; then
			: >"$run_dir/silent"
		else
			continue
		fi
		look_at_hang
		break
	done
	end_vm
}

# The heartbeat's age, looked at every five seconds.
last_look=0
is_silent() {
	local age

	[ $((SECONDS - last_look)) -ge 5 ] || return 1
	last_look=$SECONDS
	age=$(($(date +%s) - $(stat -c %Y "$run_dir/heartbeat")))
	[ "$age" -gt $((SILENCE * slow)) ]
}

# What it does, onto its console: by the serial line's magic SysRq the
# blocked tasks and all CPUs' stacks, or if nothing comes of it the same by
# an NMI, which makes the kernel panic.
look_at_hang() {
	local key

	for key in w l; do
		echo "chardev-send-break con" >"$run_dir/mon.in"
		sleep 0.5
		printf '%s' "$key" >"$run_dir/con.in"
		sleep 2
	done
	if ! grep -a -q 'sysrq: ' "$run_dir/console"; then
		echo nmi >"$run_dir/mon.in"
		sleep 5
	fi
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
	# The output's reader ends with the VM, unless that never opened it;
	# the console's reader has no end, so give it a moment.
	sleep 0.2
	if [ -n "$output_pid" ]; then
		: 3<>"$run_dir/output"
		wait "$output_pid" 2>/dev/null || true
	fi
	kill "$console_pid" 2>/dev/null || true
	[ "$interactive" = 0 ] || stty "$saved_tty"
	rm -f "$run_dir"/{con,mon}.{in,out} "$run_dir/output"
}
