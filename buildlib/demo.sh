#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# ---
# usage: ./run demo [--kernel 6.1|6.12|debug]
#
# From a fresh clone to RDMA in one command: builds everything, boots a
# virtual machine, loads the modules, makes mic0 and mic1, shows them with
# ibv_devices and ibv_devinfo, runs seven perftest programs from mic0 to
# mic1 and on rxe, and prints them side by side, with memcpy and a cache line
# bounced between two processes (raw) of the same boot. Takes three minutes
# after the build, on a machine with two processors to spare.
#
#   --kernel NAME   which kernel to boot (6.1)
# ---
set -eu

# shellcheck source=buildlib/common.sh
. "$(dirname "$(readlink -f "$0")")/common.sh"

kernel=6.1
while [ $# -gt 0 ]; do
	case $1 in
	--kernel)
		need_value "$@"
		kernel=$2
		shift
		;;
	-h | --help)
		show_help
		exit 0
		;;
	*) die "unknown argument $1" "see ./run demo --help" ;;
	esac
	shift
done

out=$BUILD/demo
need_packages python3
mkdir -p "$out"
rm -f "$out"/{results.json,busy,failed}
say "building, then booting a virtual machine with Linux $kernel"
status=0
"$TREE/buildlib/vm.sh" --kernel "$kernel" --timeout 900 --out "$out" -- \
	bench/show.sh || status=$?
[ -s "$out/results.json" ] || die "nothing was measured (status $status)" \
	"read the lines above, and try a command with ./run vm"
python3 -B "$TREE/bench/report.py" --demo "$out"
exit "$status"
