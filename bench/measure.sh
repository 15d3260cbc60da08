#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# usage: measure.sh full|quick|demo DEVICE...
#
# In the VM: measure memcpy, TCP and, with perftest, the DEVICEs (mic, rxe).
# The results go to $MIC_OUT/results.json, a JSON object a line:
#   test    the perftest program; ib_write_rate and such are the message rates
#           of ib_write_bw and such; raw; memcpy_bw; tcp_bw; tcp_lat
#   device  mic, rxe, tcp, memcpy, raw
#   size    of a message in bytes
#   value   null if the measurement failed
#   unit    MiB/s, Mmsg/s, us
# and remarks on them to $MIC_OUT/remarks. Progress goes to the output.
#
# What is measured together is a group. Before and after each group two
# processes bounce a cache line; if that takes much longer than it can, the
# machine was busy with something else, and the group is measured again.
set -u

# shellcheck source=buildlib/guest.sh
. "$MIC_TREE/buildlib/guest.sh"
# shellcheck source=bench/perftest.sh
. "$MIC_TREE/bench/perftest.sh"

bin=$MIC_TREE/build/user/bin
results=$MIC_OUT/results.json
remarks=$MIC_OUT/remarks
group_results=$(mktemp)
best_raw=''
attempts=3
failed=0

plan_full() {
	bw_programs=(ib_write_bw ib_read_bw ib_send_bw)
	lat_programs=(ib_write_lat ib_send_lat ib_read_lat ib_atomic_lat)
	bw_sizes=(8 64 256 1024 4096 16384 65536 262144 1048576 4194304)
	lat_sizes=(8 64 512 4096 65536)
}

plan_quick() {
	plan_full
	bw_sizes=(8 4096 65536 1048576)
	lat_sizes=(8 4096)
	attempts=2
}

plan_demo() {
	plan_full
	bw_sizes=(65536)
	lat_sizes=(8)
	attempts=2
}

# result TEST DEVICE SIZE VALUE UNIT: as the tools of bench/ print it.
result() {
	printf '{"test": "%s", "device": "%s", "size": %s, "value": %s, "unit": "%s"}\n' \
		"$@" >>"$group_results"
}

remark() {
	echo "$*"
	echo "$*" >>"$remarks"
}

# not_measured TEST DEVICE SIZE UNIT: $perftest_log/why says why
not_measured() {
	failed=1
	result "$1" "$2" "$3" null "$4"
	remark "$(<"$perftest_log/why")"
}

# is_less A B: of decimal numbers
is_less() {
	awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'
}

# raw: one measurement of half a round trip in microseconds, in $raw
measure_raw() {
	local line

	line=$("$bin/bench-raw" 100)
	echo "$line" >>"$results"
	raw=${line#*'"value": '}
	raw=${raw%%,*}
	if [ -z "$best_raw" ] || is_less "$raw" "$best_raw"; then
		best_raw=$raw
	fi
}

# is_quiet RAW...: none is more than 1.5 times the best of this boot
is_quiet() {
	local value limit

	limit=$(awk -v best="$best_raw" 'BEGIN { print best * 1.5 }')
	for value; do
		! is_less "$limit" "$value" || return 1
	done
}

# group LABEL COMMAND...: COMMAND measures and calls result. Again, if the
# machine was busy with something else meanwhile; the best attempt counts.
group() {
	local label=$1 try before worst best_worst=''

	shift
	for ((try = 1; ; try++)); do
		: >"$group_results"
		measure_raw
		before=$raw
		"$@"
		measure_raw
		worst=$raw
		! is_less "$raw" "$before" || worst=$before
		if [ -z "$best_worst" ] || is_less "$worst" "$best_worst"; then
			best_worst=$worst
			cp "$group_results" "$group_results.best"
		fi
		if is_quiet "$before" "$raw" || [ "$try" -eq "$attempts" ]; then
			break
		fi
		remark "$label: repeated, a cache line took $before us before" \
			"and $raw us after it, $best_raw us at best"
	done
	is_quiet "$best_worst" ||
		remark "$label: kept, though a cache line took" \
			"up to $best_worst us, $best_raw us at best"
	cat "$group_results.best" >>"$results"
}

# tool NAME ARGUMENT...: one of bench/'s own
tool() {
	echo "$*"
	timeout -k 5 120 "$bin/bench-$1" "${@:2}" >>"$group_results" || {
		failed=1
		remark "$*: failed"
	}
}

# Few large requests under way: so many bytes take a slow device seconds.
bw_arguments() {
	if [ "$1" -ge 262144 ]; then
		echo "-s $1 -D 1 -t 16"
	else
		echo "-s $1 -D 1"
	fi
}

# bw PROGRAM DEVICE SIZE...: throughput, and the rate of messages
bw() {
	local program=$1 device=$2 size row arguments

	shift 2
	for size; do
		read -r -a arguments <<<"$(bw_arguments "$size")"
		if perftest_row "$program" "$device" "${arguments[@]}" \
			2>"$perftest_log/why"; then
			result "$program" "$device" "$size" "${row[3]}" MiB/s
			result "${program/_bw/_rate}" "$device" "$size" \
				"${row[4]}" Mmsg/s
			echo "$program $device $size: ${row[3]} MiB/s"
		else
			not_measured "$program" "$device" "$size" MiB/s
		fi
	done
}

# lat PROGRAM DEVICE SIZE...: the median
lat() {
	local program=$1 device=$2 size row arguments

	shift 2
	for size; do
		arguments=(-n 1000)
		[ "$size" -lt 65536 ] || arguments=(-n 200)
		[ "$program" = ib_atomic_lat ] || arguments+=(-s "$size")
		if perftest_row "$program" "$device" "${arguments[@]}" \
			2>"$perftest_log/why"; then
			result "$program" "$device" "$size" "${row[4]}" us
			echo "$program $device $size: ${row[4]} us"
		else
			not_measured "$program" "$device" "$size" us
		fi
	done
}

# The devices take turns, so that what is compared was measured together.
measure_devices() {
	local program device sizes

	for program in "${bw_programs[@]}"; do
		for device; do
			group "$program $device" \
				bw "$program" "$device" "${bw_sizes[@]}"
		done
	done
	for program in "${lat_programs[@]}"; do
		sizes=("${lat_sizes[@]}")
		[ "$program" != ib_atomic_lat ] || sizes=(8)
		for device; do
			group "$program $device" \
				lat "$program" "$device" "${sizes[@]}"
		done
	done
}

main() {
	local plan=$1 i

	shift
	"plan_$plan"
	: >"$results"
	: >"$remarks"
	# Only one device is looked for in vain on a machine without rxe.
	[ "${*/rxe/}" = "$*" ] || make_rxe || return
	for i in 1 2 3 4 5; do
		measure_raw
	done
	echo "raw ping-pong: $best_raw us one way"
	group memcpy tool memcpy "${bw_sizes[@]}"
	group "tcp bw" tool tcp bw "${bw_sizes[@]}"
	group "tcp lat" tool tcp lat "${lat_sizes[@]}"
	measure_devices "$@"
	return "$failed"
}

main "$@"
