# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# For ./run test: a second one beside it. It runs the host's tests and those that count
# instructions, and then both take the tests of one machine from one queue, longest
# first: most of their time they wait, or one side works, so that two machines on two
# processors are done sooner than one after the other. Machines that are nodes of one
# region tell from their time who is dead: those run alone.

# From how many tests on a second machine is worth its start.
LANE_TESTS=${MIC_TEST_LANE:-20}

lane_pid='' lane_reader='' lane_output=''

# make_queue NAME...: a folder with a file for each, in this order; prints where it is.
make_queue() {
	local name folder number=10000

	folder=$(mktemp -d "$LOGS/queue-XXXXXX")
	for name in "$@"; do
		touch "$folder/$number-$name"
		number=$((number + 1))
	done
	echo "$folder"
}

# longest_first NAME...: by their time limits.
longest_first() {
	local name

	for name in "$@"; do
		echo "${limit_of[$name]} $name"
	done | sort -s -n -r -k 1,1 | cut -d ' ' -f 2
}

queue_has_some() {
	[ -n "$(queue_names)" ]
}

# queue_names: of what is in it, a line for each.
queue_names() {
	find "$queue" -type f -printf '%f\n' 2>/dev/null | sort | cut -d - -f 2-
}

# take_test: the queue's next into $current, as no other does, or fails: it is empty.
take_test() {
	local file

	for file in "$queue"/*; do
		if mv "$file" "$work/" 2>/dev/null; then
			taken=${file##*/}
			current=${taken#*-}
			return 0
		fi
	done
	return 1
}

# return_test: for somebody to take it again.
return_test() {
	mkdir -p "$queue"
	mv "$work/$taken" "$queue/"
}

# has_memory: for two machines of 4 GB, what QEMU has itself, and what the host does.
has_memory() {
	awk '$1 == "MemAvailable:" { exit $2 < 10 * 1024 * 1024 }' /proc/meminfo
}

# wants_lane NAME...: a second machine for these tests of one is worth it.
wants_lane() {
	[ $# -ge "$LANE_TESTS" ] && [ -z "${MIC_VM_SLOTS:-}" ] && has_memory
}

# goes_beside OPTIONS: tests that are for the lane alone.
goes_beside() {
	[ "$1" = none ] || [[ " $1 " == *" --icount "* ]]
}

# begin_lane COUNT NAME...: runs the tests after the first COUNT, and takes from the
# queue of those, beside what follows, until end_lane.
begin_lane() {
	local count=$1 fd
	local plain=("${@:2:count}") beside=("${@:2+count}")

	mapfile -t plain < <(longest_first "${plain[@]}")
	shared=$(make_queue "${plain[@]}")
	export MIC_VM_SLOTS=2
	lane_output=$(mktemp "$LOGS/lane-XXXXXX")
	# Its last line is for the summary.
	exec {fd}> >(tee "$lane_output" |
		grep --line-buffered -v -E '^[0-9]+ passed, ')
	lane_reader=$!
	MIC_TEST_QUEUE=$shared "$TREE/buildlib/test.sh" \
		${kernel:+--kernel "$kernel"} "${beside[@]}" "${plain[@]}" \
		>&"$fd" 2>&1 </dev/null &
	lane_pid=$!
	exec {fd}>&-
}

# end_lane: waits for them; their numbers are added to those here.
end_lane() {
	local line

	wait "$lane_pid" || true
	lane_pid='' shared=''
	unset MIC_VM_SLOTS
	wait "$lane_reader" || true
	line=$(tail -n 1 "$lane_output")
	rm -f "$lane_output"
	if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
		passed=$((passed + BASH_REMATCH[1]))
		failed=$((failed + BASH_REMATCH[2]))
		skipped=$((skipped + BASH_REMATCH[3]))
	else
		judge_rig "the tests beside" "they end without a summary"
	fi
}

# kill_lane: for who is ended before that.
kill_lane() {
	[ -z "$lane_pid" ] || kill "$lane_pid" 2>/dev/null || true
	[ -z "$lane_pid" ] || wait "$lane_pid" 2>/dev/null || true
	[ -z "$lane_output" ] || rm -f "$lane_output"
}
