# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Regions of other sizes than most tests have. After lib/perftest.sh and
# lib/selftest.sh.

MODULE=build/kmod-$MIC_KERNEL/mic_ivshmem.ko

# formatted_for NODES: the region is, and has as many bytes in use as it has.
formatted_for() {
	local nodes size

	nodes=$($REGION peek 12 4) size=$($REGION peek 16 8)
	echo "$nodes nodes, $size bytes"
	[ "$nodes" -eq "$1" ] && [ "$size" -eq "$(stat -c %s "$($REGION path)")" ]
}

# sized_cases NODES: both nodes work on a region for so many.
sized_cases() {
	expect "the region has room for $1 nodes" formatted_for "$1"
	expect "the self-test" passes_on 0
	expect "the self-test of node 1" passes_on 1
	expect "one WRITE" perftest 1 ib_write_lat -s 1048576 -n 5
	expect "one SEND" perftest 1 ib_send_lat -s 1048576 -n 5
}
