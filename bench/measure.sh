#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# usage: measure.sh full|quick|demo DEVICE...
#
# In the VM: measure memcpy, TCP and, with perftest, the DEVICEs (mic,
# mic-engine, mic-poll, rxe).
# The results go to $MIC_OUT/results.json, a JSON object a line:
#   test    the perftest program; ib_write_rate and such are the message rates
#           of ib_write_bw and such; what mpi.sh and nvme.sh measure; raw;
#           memcpy_bw; tcp_bw; tcp_lat;
#           write_qps and write_mrs: an 8-byte write among many of them;
#           raw_pages: a load among many pages;
#           fair_*: one beside large ones; busy_*: many at once;
#           inbox_send: the ring of Documentation/send-bypass.md
#   device  mic; mic-engine, the same with all requests executed by the kernel;
#           mic-poll, with a thread that polls send queues; rxe, tcp, memcpy,
#           raw; of MPI also mic-ud, shm
#   size    of a message in bytes; write_qps, write_mrs, raw_pages: the number of
#           them
#   value   null if the measurement failed
#   unit    MiB/s, Mmsg/s, kIOPS, us
#   busy    true if the machine was busy with something else, see below
# What failed, and why, goes to $MIC_OUT/failed. Progress goes to the output.
#
# What is measured together is a group. Before and after each group two
# processes bounce a cache line; if that takes much longer than it does mostly, the
# machine was busy with something else, and the group is measured again. The results of
# groups that stay so say it, and $MIC_OUT/busy lists the groups, with what raw was.
set -u

# shellcheck source=buildlib/guest.sh
. "$MIC_TREE/buildlib/guest.sh"
# shellcheck source=bench/perftest.sh
. "$MIC_TREE/bench/perftest.sh"

bin=$MIC_TREE/build/user/bin
results=$MIC_OUT/results.json
group_results=$(mktemp)
raws=()
attempts=3
failures=$MIC_OUT/failed
busy=$MIC_OUT/busy

plan_full() {
	bw_programs=(ib_write_bw ib_read_bw ib_send_bw)
	lat_programs=(ib_write_lat ib_send_lat ib_read_lat ib_atomic_lat)
	bw_sizes=(8 64 256 1024 4096 16384 65536 262144 1048576 4194304)
	lat_sizes=(8 64 512 4096 65536)
	qps=(1 10 100 1000)
	mrs=(1 100 10000 100000)
	mpi_rounds=200
	nvme_seconds=3
}

plan_quick() {
	plan_full
	bw_sizes=(8 4096 65536 1048576)
	lat_sizes=(8 4096)
	qps=(1 1000)
	mrs=(1 1000)
	mpi_rounds=50
	nvme_seconds=1
	attempts=2
}

plan_demo() {
	plan_full
	bw_sizes=(65536)
	lat_sizes=(8)
	qps=()
	mrs=()
	mpi_rounds=0
	nvme_seconds=0
	attempts=2
}

# result TEST DEVICE SIZE VALUE UNIT: as the tools of bench/ print it.
result() {
	printf '{"test": "%s", "device": "%s", "size": %s, "value": %s, "unit": "%s"}\n' \
		"$@" >>"$group_results"
}

# failed WHAT REASON
failed() {
	echo "$1 failed: $2"
	echo "$1: $2" >>"$failures"
}

# is_less A B: of decimal numbers
is_less() {
	awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'
}

# record_raw LINE: the result that bench-raw printed; its value is in $raw then. If
# there is none the machine counts as busy.
record_raw() {
	if [ -z "$1" ]; then
		failed raw "no figure"
		raw=inf
		return
	fi
	echo "$1" >>"$results"
	raw=${1#*'"value": '}
	printf -v raw %.3g "${raw%%,*}"
	raws+=("$raw")
}

# usual_raw: the median of this boot. Not the best: for moments the host may have two
# processors share a cache.
usual_raw() {
	printf '%s\n' "${raws[@]}" | sort -g |
		awk '{ raw[NR] = $1 } END { print raw[int((NR + 1) / 2)] }'
}

# measure_raw: half a round trip in microseconds, in $raw
measure_raw() {
	record_raw "$("$bin/bench-raw" 100)"
}

# is_quiet RAW...: none is more than twice what is usual
is_quiet() {
	local value limit

	limit=$(usual_raw | awk '{ print $1 * 2 }')
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
		"$@" || failed "$label" "status $?"
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
		echo "again: raw was $before us before and $raw us after," \
			"the machine is busy"
	done
	if ! is_quiet "$best_worst"; then
		echo "$label: $best_worst us" >>"$busy"
		sed -i 's/}$/, "busy": true}/' "$group_results.best"
	fi
	cat "$group_results.best" >>"$results"
}

# tool NAME ARGUMENT...: one of bench/'s own
tool() {
	echo "$*"
	timeout -k 5 120 "$bin/bench-$1" "${@:2}" >>"$group_results" ||
		failed "bench-$*" "status $?"
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
	local program=$1 device=$2 size arguments row why

	shift 2
	for size; do
		read -r -a arguments <<<"$(bw_arguments "$size")"
		if perftest_row 3 "$program" "$device" "${arguments[@]}"; then
			result "$program" "$device" "$size" "${row[3]}" MiB/s
			result "${program/_bw/_rate}" "$device" "$size" \
				"${row[4]}" Mmsg/s
			echo "$program $device $size: ${row[3]} MiB/s"
		else
			result "$program" "$device" "$size" null MiB/s
			failed "$program $device $size" "$why"
		fi
	done
}

# lat PROGRAM DEVICE SIZE...: the median
lat() {
	local program=$1 device=$2 size arguments row why

	shift 2
	for size; do
		arguments=(-n 1000)
		[ "$size" -lt 65536 ] || arguments=(-n 200)
		[ "$program" = ib_atomic_lat ] || arguments+=(-s "$size")
		if perftest_row 4 "$program" "$device" "${arguments[@]}"; then
			result "$program" "$device" "$size" "${row[4]}" us
			echo "$program $device $size: ${row[4]} us"
		else
			result "$program" "$device" "$size" null us
			failed "$program $device $size" "$why"
		fi
	done
}

# mpi ROUNDS
mpi() {
	echo "mpi"
	timeout -k 5 400 "$MIC_TREE/bench/mpi.sh" "$1" >>"$group_results" ||
		failed mpi "status $?"
}

# nvme SECONDS
nvme() {
	timeout -k 5 400 "$MIC_TREE/bench/nvme.sh" "$1" >>"$group_results" ||
		failed nvme "status $?"
}

# scale WHAT DEVICE COUNT...
scale() {
	local what=$1 device=$2 direct=1 ends gid0 gid1

	shift 2
	[[ $device != *-engine ]] || direct=0
	ends=${device%-*}
	gid0=$(gid_index "${ends}0") && gid1=$(gid_index "${ends}1") || return
	MIC_DIRECT=$direct tool scale "$what" "$device" "${ends}0" "$gid0" \
		"${ends}1" "$gid1" "$@"
}

# beside WHAT DEVICE ARGUMENT...: fair or busy
beside() {
	local what=$1 device=$2 gid0 gid1

	shift 2
	gid0=$(gid_index "${device}0") && gid1=$(gid_index "${device}1") ||
		return
	# about the engine, which the direct path would pass by
	MIC_DIRECT=0 tool "$what" "$device" "${device}0" "$gid0" "${device}1" \
		"$gid1" "$@"
}

# is_new PROGRAM DEVICE: a SEND is always the kernel's, and the latency of SENDs
# is what polling is for
is_new() {
	case $1/$2 in
	ib_send_*/*-engine) return 1 ;;
	ib_send_lat/*-poll) return 0 ;;
	*-poll) return 1 ;;
	esac
}

# The devices take turns, so that what is compared was measured together.
measure_devices() {
	local program device sizes

	for program in "${bw_programs[@]}"; do
		for device; do
			is_new "$program" "$device" || continue
			group "$program $device" \
				bw "$program" "$device" "${bw_sizes[@]}"
		done
	done
	for program in "${lat_programs[@]}"; do
		for device; do
			is_new "$program" "$device" || continue
			sizes=("${lat_sizes[@]}")
			# polling may take long: more threads than CPUs
			if [[ $program = ib_atomic_lat || $device = *-poll ]]; then
				sizes=(8)
			fi
			group "$program $device" \
				lat "$program" "$device" "${sizes[@]}"
		done
	done
}

# measure_many DEVICE...: many objects, and many queue pairs beside each other.
measure_many() {
	local device

	for device; do
		[[ $device = mic || $device = mic-engine ]] || continue
		[ ${#qps[@]} -eq 0 ] ||
			group "qps $device" scale qps "$device" "${qps[@]}"
		[ ${#mrs[@]} -eq 0 ] ||
			group "mrs $device" scale mrs "$device" "${mrs[@]}"
	done
	[ ${#mrs[@]} -eq 0 ] ||
		group pages tool scale pages raw "${mrs[@]}"
	[ ${#qps[@]} -eq 0 ] || group "fair mic" beside fair mic
	[ ${#qps[@]} -eq 0 ] || group "busy mic" beside busy mic 64 2000
}

main() {
	local plan=$1 i

	shift
	"plan_$plan"
	: >"$results"
	rm -f "$failures" "$busy"
	# Only one device is looked for in vain on a machine without rxe.
	[ "${*/rxe/}" = "$*" ] || make_rxe || return
	for i in 1 2 3 4 5; do
		measure_raw
	done
	# what all else is compared with, and judged by
	[ ${#raws[@]} -gt 0 ] || return
	echo "raw ping-pong: $(usual_raw) us one way"
	group memcpy tool memcpy "${bw_sizes[@]}"
	group "tcp bw" tool tcp bw "${bw_sizes[@]}"
	group "tcp lat" tool tcp lat "${lat_sizes[@]}"
	group inbox tool inbox 8 64 512
	measure_devices "$@"
	measure_many "$@"
	[ "$nvme_seconds" -eq 0 ] || group nvme nvme "$nvme_seconds"
	# once: most of it is the time that mpirun takes to start
	[ "$mpi_rounds" -eq 0 ] || attempts=1 group mpi mpi "$mpi_rounds"
	[ ! -e "$failures" ]
}

# bench/nodes.sh sources this.
[ "${BASH_SOURCE[0]}" != "$0" ] || main "$@"
