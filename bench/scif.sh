#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
# usage: ./run vm --out FOLDER -- bench/scif.sh
#
# In the VM: measures libscif on mic and on rxe, and TCP, memcpy and a bouncing
# cache line beside it, in one boot, both sides pinned, in some two minutes. Leaves
# scif.txt, and the chart scif.svg, in FOLDER, and prints both, with what is aimed
# at. Then bench/scif_chart.py FOLDER/scif.txt Documentation brings them there.
# Ends with 1 if something could not be measured.
set -u -o pipefail

# shellcheck source=buildlib/guest.sh
. "$MIC_TREE/buildlib/guest.sh"

BIN=$MIC_TREE/build/user/bin
RESULT=${MIC_OUT:-/tmp}/scif.txt
SIZES=(64 256 1024 4096 16384 65536 262144 1048576 4194304)
PORT=3030
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
server=''
status=0

# failed WHAT WHY
failed() {
	status=1
	echo "failed $1: $2" | tee -a "$RESULT"
}

# results LABEL COMMAND...: what it prints, each line after LABEL. Of a command that
# fails there are none, but in $why what it said.
results() {
	local label=$1 code=0

	shift
	timeout -k 5 120 "$@" >"$work/out" 2>"$work/err" || code=$?
	if [ "$code" -ne 0 ]; then
		why="status $code, $(tail -n 1 "$work/err")"
		return 1
	fi
	sed "s/^/$label /" "$work/out" | tee -a "$RESULT"
}

# measure WHAT LABEL COMMAND...: results, or why there are none.
measure() {
	results "${@:2}" || failed "$1" "$why"
}

# pinned LABEL WHAT ARGUMENT...: by scif-perf, on the client's processor.
pinned() {
	measure "$1 ${*:2}" "$1" taskset -c 0 "$BIN/scif-perf" "${@:2}"
}

# serve NODES
serve() {
	export SCIF_NODES=$1 SCIF_NODE=0

	SCIF_NODE=1 taskset -c 1 "$BIN/scif-perf" server "$PORT" &
	server=$!
}

end_server() {
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
}

# latency LABEL: the first ones may come before the server listens.
latency() {
	local i

	for ((i = 0; i < 20; i++)); do
		results "$1" taskset -c 0 "$BIN/scif-perf" latency 1 "$PORT" &&
			return
		[[ $why = *scif_connect* ]] || break
		sleep 0.3
	done
	failed "$1 latency" "$why"
}

# about WHAT TEXT...: for who reads it later.
about() {
	echo "about $*" >>"$RESULT"
}

# raw pins its two sides itself. Once before and once after what is compared with it:
# if they differ, the machine was not quiet. The same goes for memcpy.
measure_mic() {
	local what

	measure raw local "$BIN/scif-perf" raw
	serve 0=10.77.0.1,1=10.77.0.2
	latency mic
	measure raw local "$BIN/scif-perf" raw
	for what in writeto readfrom; do
		pinned "before-$what" memcpy
		pinned mic bandwidth 1 "$PORT" "$what"
		pinned "after-$what" memcpy
	done
	for what in {vwriteto,vreadfrom}{,_cached}; do
		pinned mic bandwidth 1 "$PORT" "$what"
	done
	end_server
}

measure_rxe() {
	local what

	make_rxe || {
		failed rxe "it could not be made"
		return
	}
	serve 0=10.78.0.1,1=10.78.0.2
	latency rxe
	for what in writeto readfrom; do
		pinned rxe bandwidth 1 "$PORT" "$what"
	done
	end_server
}

: >"$RESULT"
about date "$(date -u +%F)"
about tree "$(git -C "$MIC_TREE" rev-parse --short HEAD 2>/dev/null)"
about kernel "$(uname -r)"
if grep -q 'QEMU TCG' /proc/cpuinfo; then
	about processor "all instructions emulated (TCG)"
else
	about processor "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sort -u)"
fi
measure_mic
measure "TCP throughput" tcp "$BIN/bench-tcp" bw "${SIZES[@]}"
measure "TCP latency" tcp "$BIN/bench-tcp" lat 8
measure_rxe
python3 "$MIC_TREE/bench/scif_chart.py" "$RESULT" || status=1
exit "$status"
