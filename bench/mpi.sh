#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# usage: mpi.sh [ROUNDS]
#
# In the VM: half a round trip and throughput of Open MPI and MPICH between two
# nodes, which are network namespaces: over mic by RC (device mic) and by UD
# (mic-ud), over TCP (tcp); and between two processes of one node over shared
# memory (shm). Prints JSON as measure.sh describes it, with the tests
# openmpi_latency, openmpi_bandwidth, mpich_latency and mpich_bandwidth.
set -u

cd "$MIC_TREE" || exit 1
# shellcheck source=tests/lib/tap.sh
. tests/lib/tap.sh
# shellcheck source=buildlib/guest.sh
. buildlib/guest.sh
# shellcheck source=tests/lib/nodes.sh
. tests/lib/nodes.sh
# shellcheck source=tests/lib/mpi.sh
. tests/lib/mpi.sh

rounds=${1:-200}
# What tests/mpi/pingpong.c measures: two figures of four sizes.
rows=8
declare -A devices=([rc_v]=mic [ud_v]=mic-ud [tcp]=tcp [shm]=shm)
status=0
trap 'end_children; delete_nodes >&2; rm -rf "$SCRATCH"' EXIT

# failed WHAT: with what it printed.
failed() {
	status=1
	echo "$1 failed" >&2
	tail -n 5 "$SCRATCH/rows" >&2
}

# measure KIND WAY
measure() {
	mpi_run "$1" "$2" 2 "$SCRATCH/pingpong.$1" "$rounds" \
		>"$SCRATCH/rows" 2>&1 || return
	[ "$(grep -c -E '^(latency|bandwidth) [0-9]+ [0-9.]+$' \
		"$SCRATCH/rows")" -eq "$rows" ] || return
	awk -v kind="$1" -v device="${devices[$2]}" '
		$1 == "latency" || $1 == "bandwidth" {
			printf "{\"test\": \"%s_%s\", \"device\": \"%s\", ",
				kind, $1, device
			printf "\"size\": %d, \"value\": %s, \"unit\": \"%s\"}\n",
				$2, $3, $1 == "latency" ? "us" : "MiB/s"
		}' "$SCRATCH/rows"
}

make_nodes mic exclusive >&2 || exit 1
for kind in openmpi mpich; do
	mpi_compile "$kind" pingpong >"$SCRATCH/rows" 2>&1 || {
		failed "compiling for $kind"
		continue
	}
	for way in rc_v ud_v tcp shm; do
		echo "$kind over $way" >&2
		measure "$kind" "$way" || failed "$kind over $way"
	done
done
exit "$status"
