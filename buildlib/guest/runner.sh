#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# In the VM: run tests one after the other. To the host go the lines
#   @ready N
#   @end NAME STATUS SECONDS
# and after the first, the host puts a line "NAME TIMEOUT FILE" into $MIC_OUT/next-N,
# or an empty one: that was all. In $MIC_OUT stay NAME.log, and NAME.kmsg if the
# kernel reported something during the test. Between tests the devices are restored.
# When that fails, or a process of a test can't be killed, this ends with status
# 3 and the host goes on in a new VM.

# shellcheck source=buildlib/guest.sh
. "$MIC_TREE/buildlib/guest.sh"

group=/sys/fs/cgroup/job/test

# clock_cases: passes on what a test writes, and after a case that took long, how long.
clock_cases() {
	local line since=$SECONDS

	while IFS= read -r line || [ -n "$line" ]; do
		printf '%s\n' "$line"
		[[ $line =~ ^(not )?ok\ ([0-9]+) ]] || continue
		[ $((SECONDS - since)) -lt 5 ] ||
			echo "# case ${BASH_REMATCH[2]}: $((SECONDS - since)) s"
		since=$SECONDS
	done
}

# run_one NAME TIMEOUT FILE: its log, and what became of it in $status. 1: some of its
# processes stay.
run_one() {
	local name=$1 limit=$(($2 * MIC_SLOW)) file=$3
	local log=$MIC_OUT/$name.log fd clock stays=0

	cd "$MIC_TREE" || return
	: >"$log"
	exec {fd}> >(clock_cases >>"$log")
	clock=$!
	(
		enter_group "$group"
		exec {fd}>&-
		TEST_NAME=$name exec timeout --kill-after=5 "$limit" "$file"
	) >&"$fd" 2>&1 </dev/null
	status=$?
	exec {fd}>&-
	end_group "$group" >/run/mic-ended 2>&1 || stays=1
	# its input ends when nobody has the pipe any more
	timeout 10 tail --pid="$clock" -f /dev/null || kill "$clock"
	[ "$status" -ne 124 ] && [ "$status" -ne 137 ] ||
		echo "not done after $limit s" >>"$log"
	cat /run/mic-ended >>"$log"
	return "$stays"
}

# log_since NAME COMMAND: what that says of the log since the test began.
log_since() {
	"$2" | sed "1,/mic-test: begin $1\$/d"
}

# The kernel's reports since the test began, into NAME.kmsg.
scan_since() {
	local name=$1

	log_since "$name" dmesg >/run/mic-kmsg
	log_since "$name" told_to_all | unexpected_messages >>/run/mic-kmsg
	scan_log /run/mic-kmsg >/run/mic-reports || return 0
	cp /run/mic-kmsg "$MIC_OUT/$name.kmsg"
}

# next_test N: asks for it; into name, limit and file.
next_test() {
	local next=$MIC_OUT/next-$1

	echo "@ready $1"
	while [ ! -e "$next" ]; do
		sleep 0.1
	done
	read -r name limit file <"$next"
	[ -n "$name" ]
}

main() {
	local state name limit file start status stuck count=1

	mkdir -p "$(dirname "$group")"
	state=$(devices_state)
	while next_test "$count"; do
		count=$((count + 1))
		echo "mic-test: begin $name" >/dev/kmsg
		start=$SECONDS
		stuck=''
		run_one "$name" "$limit" "$file" || stuck=1
		restore_devices "$state" >>"$MIC_OUT/$name.log" 2>&1 || {
			echo "the devices cannot be restored" \
				>>"$MIC_OUT/$name.log"
			stuck=1
		}
		scan_since "$name"
		[ -z "$stuck" ] || status=stuck
		echo "@end $name $status $((SECONDS - start))"
		[ -z "$stuck" ] || exit 3
	done
}

main
