#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The VM's process 1, on the host's root file system: set up, run the
# command, look at the kernel log, unload the modules, power off. What the
# host wants to know goes to files in the run folder:
#   setup    "ok", or what failed
#   status   the command's exit status
#   dmesg    the whole kernel log
#   reports  its lines that count as failures
#   unload   "ok", or what failed

run_dir=$1
job_group=/sys/fs/cgroup/job
# shellcheck source=/dev/null
. "$run_dir/config"
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C USER=root
export MIC_TREE=$TREE MIC_OUT=$OUT_DIR MIC_KERNEL=$KERNEL
export MIC_MODULES=$MODULES MIC_SLOW=$SLOW MIC_NODE=$NODE MIC_NODES=$NODES
export MIC_APERTURES=$APERTURES
export RDMAV_DRIVERS=$TREE/build/user/lib/libmic
# shellcheck source=buildlib/guest.sh
. "$TREE/buildlib/guest.sh"

mount_all() {
	mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts -m
	mount -t tmpfs -o mode=1777 tmpfs /dev/shm -m
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	mount -t debugfs debugfs /sys/kernel/debug
	mount -t tracefs tracefs /sys/kernel/tracing
	[ -d "/lib/modules/$KREL" ] || mkdir -p "/lib/modules/$KREL"
	[ "$KROOT" = / ] ||
		mount --bind "$KROOT/lib/modules/$KREL" "/lib/modules/$KREL"
	ln -sf /proc/self/fd /dev/fd
	ln -sf /proc/self/fd/0 /dev/stdin
	ln -sf /proc/self/fd/1 /dev/stdout
	ln -sf /proc/self/fd/2 /dev/stderr
}

# Thresholds that tell a hang from a host that is busy with other things.
set_limits() {
	sysctl -q -w kernel.hung_task_timeout_secs="$((60 * SLOW))"
	sysctl -q -w kernel.hung_task_warnings=20
	sysctl -q -w kernel.watchdog_thresh=60
	ulimit -l unlimited
	ulimit -n 65536
	ulimit -c 0
}

set_up() {
	mount_all
	set_limits
	hostname mic-vm
	[ "$NODES" -eq 1 ] || hostname "node$NODE"
	ip link set lo up
	demote_local_table
	if [ -n "$MODULES" ]; then
		insmod_mic && make_mic
	fi
}

# port NAME: the device of a virtio port. "output" carries the command's output,
# "rig" joins several nodes.
port() {
	local name

	for name in /sys/class/virtio-ports/*/name; do
		if [ "$(cat "$name")" = "$1" ]; then
			echo "/dev/$(basename "$(dirname "$name")")"
		fi
	done
}

run_command() {
	cd "$TREE" || return
	enter_group "$job_group"
	if [ "$INTERACTIVE" = 1 ]; then
		say_ready >/dev/hvc0
		stty -F /dev/hvc0 rows "$ROWS" cols "$COLUMNS"
		TERM=$TERMINAL setsid -c -w bash -i </dev/hvc0 >/dev/hvc0 2>&1
	else
		setsid -w bash "$run_dir/command" </dev/null \
			>"$(port output)" 2>&1
	fi
}

# agent [OPTION]: carries out ./run on, here and for others.
agent() {
	python3 "$TREE/buildlib/nodes/agent.py" "$(port rig)" "$job_group" "$@" \
		>"$run_dir/agent" 2>&1
}

# The command may use it at once.
start_agent() {
	agent &
	until [ -S /run/mic-rig ] || ! kill -0 "$!" 2>/dev/null; do
		sleep 0.1
	done
}

# What this node is for.
run_node() {
	mkdir -p "$job_group"
	if [ "$NODE" -gt 0 ]; then
		cd "$TREE" && agent --until-quit
		return
	fi
	[ "$NODES" -eq 1 ] || start_agent
	run_command
}

# Symbols of our modules, to read a leak's backtrace when they are gone.
keep_symbols() {
	awk '$4 ~ /mic/ { print $1, $3, $4 }' /proc/kallsyms | sort \
		>"$run_dir/symbols"
}

# name_addresses: what kmemleak shows as bare numbers, by those symbols.
name_addresses() {
	awk 'NR == FNR { at[n] = $1; name[n++] = $2 " " $3; next }
		/ 0xffffffff[0-9a-f]+$/ {
			address = substr($NF, 3)
			best = ""
			for (i = 0; i < n && at[i] "" <= address ""; i++)
				best = name[i]
			sub(/ 0xffffffff[0-9a-f]+$/, " in or after " best)
		}
		{ print }' "$run_dir/symbols" -
}

unload() {
	end_group "$job_group" || return
	delete_links '*'
	delete_nics
	delete_veth_pair rxe 78
	delete_veth_pair mic 77
	[ -z "$MODULES" ] || rmmod_mic
}

scan_leaks() {
	local kmemleak=/sys/kernel/debug/kmemleak

	[ -n "$MODULES" ] && [ -e "$kmemleak" ] || return 0
	# An object counts as leaked after five seconds without a reference.
	echo scan >"$kmemleak"
	sleep 6
	echo scan >"$kmemleak"
	name_addresses <"$kmemleak" | harmful_leaks >"$run_dir/kmemleak"
}

# A file that the host watches, to tell a long test from a VM that hangs.
heartbeat() {
	while echo "$SECONDS" >"$run_dir/heartbeat"; do
		sleep 10
	done
}

say_ready() {
	echo "The tree is $TREE, its changes stay in here except in $OUT_DIR."
	if [ "$NODES" -gt 1 ]; then
		echo "./run on K COMMAND runs it on node K, 0 to $((NODES - 1)); this is node 0."
		[ -z "$MODULES" ] ||
			echo "mic0 of node K is on micnet0 10.80.0.(K + 1)."
	elif [ -n "$MODULES" ]; then
		echo "mic0 is on mic-eth0 10.77.0.1, mic1 on mic-eth1 10.77.0.2."
	fi
	echo "To end the VM: exit"
}

main() {
	local message

	heartbeat &
	if message=$(set_up 2>&1); then
		echo ok >"$run_dir/setup"
		(run_node)
		echo "$?" >"$run_dir/status.tmp"
		mv "$run_dir/status.tmp" "$run_dir/status"
	else
		echo "$message" >"$run_dir/setup"
	fi
	[ ! -e /sys/kernel/debug/kmemleak ] || keep_symbols
	if message=$(unload 2>&1); then
		echo ok >"$run_dir/unload"
	else
		echo "$message" >"$run_dir/unload"
	fi
	scan_leaks
	dmesg >"$run_dir/dmesg"
	# of node 0 each test has been asked; the others have nobody else
	[ "${MIC_NODE:-0}" -eq 0 ] || told_to_all | unexpected_messages \
		>>"$run_dir/dmesg"
	scan_log "$run_dir/dmesg" >"$run_dir/reports"
}

main
echo 1 >/proc/sys/kernel/sysrq
# The disk goes before the power does: nothing can be started then.
sleep 100 &
echo o >/proc/sysrq-trigger
wait
