#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# usage: nodes.sh full|quick [aperture]
#
# In node 0 of two machines with a network between them: measure mic over the
# shared region, rxe over the network, TCP over micnet (tcp), and what the region
# can do at all: memcpy into it (region), and a cache line in it that a process of
# each machine bounces (raw); and writing into device memory of the other machine,
# which the client does itself (slice_write). Results and attempts are as in
# measure.sh. The devices of the results: mic, rxe, tcp, memcpy, region, raw.
#
# With "aperture", in machines whose memory is an aperture of the other: writing into
# ordinary memory there, which the client does itself (aperture_write), beside memcpy
# into the region in the same boot (the device aperture-region).
# shellcheck disable=SC2317 # What measure.sh calls is here.
set -u

# shellcheck source=bench/measure.sh
. "$MIC_TREE/bench/measure.sh"

REGION=$MIC_TREE/tests/fabric/region.py
raw_line=$(mktemp)
slice_results=$(mktemp)
declare -A address=([mic]=10.80.0.2 [rxe]=10.78.0.2)

plan_nodes() {
	"plan_$1"
	bw_sizes=(8 4096 65536 1048576)
	lat_sizes=(8 4096)
	attempts=2
}

# A part of the region that nobody uses: the slice of the last node there could be.
find_slice() {
	local where start nodes slices size

	where=$("$REGION" where) && nodes=$("$REGION" peek 12 4) &&
		slices=$("$REGION" peek 56 8) &&
		size=$("$REGION" peek 64 8) || return
	read -r region_file start <<<"$where"
	slice=$((slices + (nodes - 1) * size))
	# Node 1 may have the region elsewhere in its file.
	where=$("$MIC_TREE/run" on 1 "$REGION" where) || return
	read -r other_file other_slice <<<"$where"
	((other_slice += slice, slice_at = start + slice))
}

# measure_raw: with the other side on node 1. Each waits for the other without end.
measure_raw() {
	local pong

	"$bin/bench-raw" 1 clear "$region_file" "$slice_at"
	timeout -k 5 20 "$MIC_TREE/run" on 1 "$bin/bench-raw" 1 pong \
		"$other_file" "$other_slice" &
	pong=$!
	timeout -k 5 20 "$bin/bench-raw" 100 ping "$region_file" "$slice_at" \
		>"$raw_line" &
	wait_both "$pong" "$!" || : >"$raw_line"
	record_raw "$(<"$raw_line")"
}

listens() {
	"$MIC_TREE/run" on 1 ss -Hltn "sport = :$1" | grep -q .
}

# await PORT: somebody on node 1 listens there.
await() {
	local i

	for ((i = 0; i < 60; i++)); do
		! listens "$1" || return 0
		sleep 0.2
	done
	return 1
}

# perftest PROGRAM DEVICE ARGUMENT...: with the server on node 1.
perftest() {
	local program=$1 device=$2 server client gid

	shift 2
	perftest_port=$((perftest_port + 1))
	gid=$(gid_index "${device}0") || return
	"$MIC_TREE/run" on 1 timeout -k 5 90 "$program" -F -d "${device}0" \
		-x "$gid" -p "$perftest_port" "$@" \
		>"$perftest_log/server" 2>&1 </dev/null &
	server=$!
	if ! await "$perftest_port"; then
		kill "$server" 2>/dev/null
		wait "$server"
		echo "the server did not start to listen" >"$perftest_log/client"
		return 1
	fi
	timeout -k 5 60 "$program" -F -d "${device}0" -x "$gid" \
		-p "$perftest_port" "$@" "${address[$device]}" \
		>"$perftest_log/client" 2>&1 </dev/null &
	client=$!
	wait_both "$server" "$client"
}

# tcp TEST SIZE...: by qperf over micnet, in MiB/s or microseconds.
tcp() {
	local test=$1 size value unit=MiB/s key=bw

	shift
	[ "$test" = tcp_bw ] || unit=us key=latency
	for size; do
		value=$(timeout 60 qperf -uu -t 1 -m "$size" "${address[mic]}" \
			"$test" | awk -v key="$key" '$1 == key { print $3, $4 }')
		value=$(tcp_value "$value")
		result "$test" tcp "$size" "$value" "$unit"
		[ "$value" != null ] || failed "$test $size" "qperf: no figure"
	done
}

# tcp_value "NUMBER UNIT": as a result has it, or null.
tcp_value() {
	awk -v text="$1" 'BEGIN {
		gsub(",", "", text)
		if (split(text, part, " ") < 2) { print "null"; exit }
		scale["bytes/sec"] = 1 / 1048576
		scale["ns"] = 1e-3
		if (!(part[2] in scale)) { print "null"; exit }
		print part[1] * scale[part[2]]
	}'
}

# end_server PID: that it was killed is no failure.
end_server() {
	kill "$1" 2>/dev/null
	wait "$1" 2>/dev/null || :
}

measure_tcp() {
	local server

	"$MIC_TREE/run" on 1 timeout 300 qperf >/dev/null 2>&1 &
	server=$!
	if await 19765; then
		group "tcp bw" tcp tcp_bw "${bw_sizes[@]}"
		group "tcp lat" tcp tcp_lat "${lat_sizes[@]}"
	else
		failed tcp "qperf does not listen"
	fi
	end_server "$server"
}

# writes NAME: how many there were, of mic0's queue pairs, by that counter.
writes() {
	cat "/sys/class/infiniband/mic0/ports/1/hw_counters/$1"
}

# slices slice|aperture WHAT SIZE...: writing into memory of node 1, device memory
# or ordinary memory.
slices() {
	local kind=$1 what=$2 gid size

	shift 2
	gid=$(gid_index mic0) || return
	for size; do
		slice "$kind" "$what" "$gid" "$size"
	done
}

# slice KIND WHAT GID SIZE: what the kernels do instead is no figure. Of large writes
# there are few beside those of 8 bytes, so each size is counted by itself.
slice() {
	local kind=$1 what=$2 gid=$3 size=$4 name="$1 $2 $4" unit=us
	local server status=0 direct kernel

	[ "$what" != bw ] || unit=MiB/s
	direct=$(writes direct_writes) kernel=$(writes rdma_writes)
	perftest_port=$((perftest_port + 1))
	"$MIC_TREE/run" on 1 timeout -k 5 120 "$bin/bench-slice" mic0 "$gid" \
		"$kind" server "$perftest_port" &
	server=$!
	if ! await "$perftest_port"; then
		end_server "$server"
		result "${kind}_write_$what" mic "$size" null "$unit"
		failed "$name" "the server does not listen"
		return
	fi
	: >"$slice_results"
	group_results=$slice_results tool slice mic0 "$gid" "$kind" client \
		"${address[mic]}" "$perftest_port" "$what" "$size"
	wait "$server" || status=$?
	[ "$status" -eq 0 ] || failed "$name" "the server: $status"
	direct=$(($(writes direct_writes) - direct))
	kernel=$(($(writes rdma_writes) - kernel))
	echo "$name: $direct writes by the client, $kernel by the kernels"
	if is_direct "$direct" "$kernel"; then
		cat "$slice_results" >>"$group_results"
	else
		result "${kind}_write_$what" mic "$size" null "$unit"
		failed "$name" "the kernels execute the requests"
	fi
}

# is_direct DIRECT KERNEL: of a hundred writes no more than one is the kernels'.
is_direct() {
	[ "$1" -gt 0 ] && [ $(($2 * 100)) -le "$1" ]
}

# On both nodes.
prepare() {
	local i

	for i in 0 1; do
		if [ "$i" -eq 0 ]; then
			make_rxe_node || return
		else
			"$MIC_TREE/run" on "$i" bash -c \
				'. buildlib/guest.sh && make_rxe_node' || return
		fi
	done
	for i in "${address[@]}"; do
		ping -q -c 1 -w 30 "$i" || return
	done
}

measure_nodes() {
	prepare || return
	group memcpy tool memcpy "${bw_sizes[@]}"
	group region tool memcpy --into region "$region_file" "$slice_at" \
		"${bw_sizes[@]}"
	group "slice bw" slices slice bw "${bw_sizes[@]}"
	group "slice lat" slices slice lat "${lat_sizes[@]}"
	measure_devices mic rxe
	measure_tcp
}

measure_aperture() {
	ping -q -c 1 -w 30 "${address[mic]}" || return
	group aperture-region tool memcpy --into aperture-region \
		"$region_file" "$slice_at" "${bw_sizes[@]}"
	group "aperture bw" slices aperture bw "${bw_sizes[@]}"
}

# nodes_main PLAN COMMAND
nodes_main() {
	local i

	plan_nodes "$1"
	: >"$results"
	rm -f "$failures" "$busy"
	find_slice || return
	for i in 1 2 3; do
		measure_raw
	done
	# what all else is compared with, and judged by
	[ ${#raws[@]} -gt 0 ] || return
	echo "raw ping-pong through the region: $(usual_raw) us one way"
	"$2" || return
	[ ! -e "$failures" ]
}

[ "${BASH_SOURCE[0]}" != "$0" ] || nodes_main "$1" "measure_${2:-nodes}"
