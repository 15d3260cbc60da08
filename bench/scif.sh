#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
# usage: ./run vm --out FOLDER -- bench/scif.sh
#
# In the VM: measures libscif on mic and on rxe, and TCP, memcpy and a bouncing
# cache line beside it, in one boot, both sides pinned, in some two minutes. Leaves
# scif.txt, and the chart scif.svg, in FOLDER, and prints both, with what is aimed
# at. Then bench/scif_chart.py FOLDER/scif.txt Documentation brings them there.
set -u

# shellcheck source=buildlib/guest.sh
. "$MIC_TREE/buildlib/guest.sh"

BIN=$MIC_TREE/build/user/bin
RESULT=${MIC_OUT:-/tmp}/scif.txt
SIZES=(64 256 1024 4096 16384 65536 262144 1048576 4194304)

# results LABEL COMMAND...: what it prints, each line after LABEL.
results() {
	local label=$1

	shift
	"$@" | sed "s/^/$label /" | tee -a "$RESULT"
}

# scif LABEL NODES
scif() {
	local label=$1 server i

	export SCIF_NODES=$2
	SCIF_NODE=1 taskset -c 1 "$BIN/scif-perf" server &
	server=$!
	# the first ones may come before the server listens
	for ((i = 0; i < 20; i++)); do
		SCIF_NODE=0 results "$label" taskset -c 0 "$BIN/scif-perf" latency 1 2>/dev/null && break
		sleep 0.3
	done
	SCIF_NODE=0 results "$label" taskset -c 0 "$BIN/scif-perf" bandwidth 1
	kill "$server"
	wait "$server" 2>/dev/null
}

# about WHAT TEXT...: for who reads it later.
about() {
	echo "about $*" >>"$RESULT"
}

set -o pipefail
: >"$RESULT"
about date "$(date -u +%F)"
about tree "$(git -C "$MIC_TREE" rev-parse --short HEAD 2>/dev/null)"
about kernel "$(uname -r)"
if grep -q 'QEMU TCG' /proc/cpuinfo; then
	about processor "all instructions emulated (TCG)"
else
	about processor "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sort -u)"
fi
# It pins its two sides itself. Once before and once after: if they differ, the
# machine was not quiet.
results local "$BIN/scif-perf" raw
results local taskset -c 0 "$BIN/scif-perf" memcpy
scif mic 0=10.77.0.1,1=10.77.0.2
results local "$BIN/scif-perf" raw
"$BIN/bench-tcp" bw "${SIZES[@]}" | sed 's/^/tcp /' | tee -a "$RESULT"
"$BIN/bench-tcp" lat 8 | sed 's/^/tcp /' | tee -a "$RESULT"
make_rxe
scif rxe 0=10.78.0.1,1=10.78.0.2
python3 "$MIC_TREE/bench/scif_chart.py" "$RESULT"
