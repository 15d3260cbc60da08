# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# For ./run test: a second one beside it, for half of the tests of one machine. Most
# of their time they wait, or one side works, so that two machines on two processors
# are done sooner than one after the other. Machines that are nodes of one region
# tell from their time who is dead: those run alone.

# From how many tests on a second machine is worth its start.
LANE_TESTS=${MIC_TEST_LANE:-20}

lane_pid='' lane_reader='' lane_output=''

# begin_lane NAME...: runs these tests beside what follows, until end_lane.
begin_lane() {
	local fd

	lane_output=$(mktemp "$LOGS/lane-XXXXXX")
	# Its last line is for the summary.
	exec {fd}> >(tee "$lane_output" |
		grep --line-buffered -v -E '^[0-9]+ passed, ')
	lane_reader=$!
	"$TREE/buildlib/test.sh" ${kernel:+--kernel "$kernel"} "$@" \
		>&"$fd" 2>&1 </dev/null &
	lane_pid=$!
	exec {fd}>&-
}

# end_lane: waits for them; their numbers are added to those here.
end_lane() {
	local line

	[ -n "$lane_pid" ] || return 0
	wait "$lane_pid" || true
	lane_pid=''
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
