#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# usage: nvme.sh SECONDS
#
# In the VM, with rxe0 and rxe1: NVMe over Fabrics, both sides of it the kernel's, with a
# disk that is in memory, by mic, by rxe and, if the kernel has that, by TCP; what a
# kernel consumer of a device sees. fio reads and writes past the page cache, for so
# many seconds each. Prints JSON as measure.sh describes it, with the tests
# nvme_read_lat and nvme_write_lat (4 KiB, one at a time, the median), nvme_read_rate
# (4 KiB, 32 under way) and nvme_read_bw (128 KiB, four under way).
set -u

cd "$MIC_TREE" || exit 1
# shellcheck source=tests/lib/tap.sh
. tests/lib/tap.sh
# shellcheck source=tests/lib/nvme.sh
. tests/lib/nvme.sh

seconds=$1
status=0
trap 'rm -rf "$SCRATCH"' EXIT

# figures: of what fio says on standard input: median us, thousands a second, MiB/s
figures() {
	python3 -B -c '
import json, sys
job = json.load(sys.stdin)["jobs"][0]
way = max(job["read"], job["write"], key=lambda way: way["total_ios"])
print(way["lat_ns"]["percentile"]["50.000000"] / 1e3, way["iops"] / 1e3,
      way["bw_bytes"] / 2**20)'
}

# measure TEST DEVICE READ-OR-WRITE SIZE DEPTH COLUMN UNIT
measure() {
	local row

	timeout -k 5 $((seconds + 60)) fio --name="$1" --filename="$disk" \
		--direct=1 --ioengine=libaio --rw="rand$3" --bs="$4" \
		--iodepth="$5" --time_based --runtime="$seconds" \
		--lat_percentiles=1 --output-format=json >"$SCRATCH/fio" &&
		read -r -a row < <(figures <"$SCRATCH/fio") ||
		return
	printf '{"test": "%s", "device": "%s", "size": %d, "value": %s, "unit": "%s"}\n' \
		"$1" "$2" "$4" "${row[$6]}" "$7"
}

measure_disk() {
	measure nvme_read_lat "$1" read 4096 1 0 us &&
		measure nvme_write_lat "$1" write 4096 1 0 us &&
		measure nvme_read_rate "$1" read 4096 32 1 kIOPS &&
		measure nvme_read_bw "$1" read 131072 4 2 MiB/s
}

# by DEVICE TRANSPORT TARGET INITIATOR
by() {
	local ok=0

	NVME_TRANSPORT=$2
	echo "nvme $1" >&2
	load_initiator >&2
	make_target "$3" >&2 && connect "$3" "$4" >&2 &&
		measure_disk "$1" && disconnect >&2 || ok=1
	remove_target >&2 && unload_initiator >&2 || ok=1
	[ "$ok" -eq 0 ] || {
		status=1
		echo "NVMe by $1 failed" >&2
	}
}

by mic rdma 10.77.0.1 10.77.0.2
by rxe rdma 10.78.0.1 10.78.0.2
! modprobe -n -q nvmet-tcp || by tcp tcp 10.78.0.1 10.78.0.2
exit "$status"
