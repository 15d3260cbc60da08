#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# ---
# usage: ./run bench [--quick] [--nodes 2] [--kernel 6.1|6.12|debug] [--json FILE]
#
# Measures in one virtual machine: mic and rxe with perftest, mic also with all
# requests executed by the kernel (mic-engine) and with a thread that polls send
# queues (mic-poll), TCP over the loopback device, memcpy, NVMe over Fabrics by mic, rxe
# and TCP, MPI over mic, TCP and shared memory, and a cache line bounced between two
# processes (raw). Prints tables, with the aims beside what was measured, and draws
# build/bench/throughput.svg and build/bench/latency.svg.
#
#   --quick         few sizes
#   --nodes 2       between two machines that share a PCI region: mic, rxe over a
#                   network of the two, TCP over the region, memcpy into it, and a
#                   cache line in it; a table, no drawing. Then, in another boot, where
#                   each has the other's memory in an aperture: RDMA WRITE through
#                   that beside memcpy into the region
#   --kernel NAME   which kernel to boot (6.1)
#   --json FILE     the results, one JSON object a line, with the keys
#                   test, device, size, value, unit, and busy (true) where the
#                   machine was busy with something else
#
# The two sides of each measurement are pinned to a processor each, so the
# machine needs two that have nothing else to do. Where it was busy, as
# raw tells, a measurement is repeated; what still is not to be trusted has a * in the
# tables. A figure that misses its aim is no failure; a measurement that did not happen
# is one.
# ---
set -eu

# shellcheck source=buildlib/common.sh
. "$(dirname "$(readlink -f "$0")")/common.sh"

plan=full json='' kernel=6.1 nodes=1
while [ $# -gt 0 ]; do
	case $1 in
	--quick) plan=quick ;;
	--json | --kernel | --nodes)
		need_value "$@"
		declare "${1#--}=$2"
		shift
		;;
	-h | --help)
		show_help
		exit 0
		;;
	*) die "unknown argument $1" "see ./run bench --help" ;;
	esac
	shift
done
case $nodes in
1 | 2) ;;
*) die "--nodes $nodes: only two nodes are measured" "give 2" ;;
esac
if [ -n "$json" ]; then
	: >"$json" || die "cannot write $json" "give another file after --json"
fi

out=$BUILD/bench
command=(bench/measure.sh "$plan" mic mic-engine mic-poll rxe) options=()
if [ "$nodes" -eq 2 ]; then
	need_packages qperf iproute2
	out=$BUILD/bench-nodes
	command=(bench/nodes.sh "$plan")
	options=(--nodes 2 --network)
else
	need_packages openmpi-bin libopenmpi-dev mpich libmpich-dev \
		build-essential fio
fi
need_packages python3
mkdir -p "$out"
rm -f "$out"/{results.json,busy,failed,throughput.svg,latency.svg}
status=0

# measure DIRECTORY OPTION... -- COMMAND...: in a boot of its own.
measure() {
	local folder=$1

	shift
	"$TREE/buildlib/vm.sh" --kernel "$kernel" --timeout 3600 \
		--out "$folder" "$@" >&2 || status=$?
	[ -s "$folder/results.json" ] ||
		die "nothing was measured (status $status)" \
			"read the lines above, and try a command with ./run vm"
	[ -z "$json" ] || cat "$folder/results.json" >>"$json"
}

measure "$out" "${options[@]}" -- "${command[@]}"
if [ "$nodes" -eq 2 ]; then
	mkdir -p "$out/aperture"
	rm -f "$out"/aperture/{results.json,busy,failed}
	measure "$out/aperture" --no-build --nodes 2 --aperture --mem 1G -- \
		bench/nodes.sh "$plan" aperture
	python3 -B "$TREE/bench/nodes.py" "$out"
	exit "$status"
fi
python3 -B "$TREE/bench/report.py" "$out"
python3 -B "$TREE/bench/plot.py" "$out"
exit "$status"
