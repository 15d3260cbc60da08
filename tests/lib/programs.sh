# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# rdma-core's own programs between two machines, which check their data. After
# lib/perftest.sh.

# pingpong PROGRAM OPTION...: of libibverbs.
pingpong() {
	local program=$1

	shift
	run_pair "listening_tcp 18515" "$program" -d "$PEER" -g "$peer_gid" -c \
		"$@" -- "$program" -d "$DEVICE" -g "$device_gid" -c "$@" \
		"$SERVER_ADDRESS"
}

# verified ADDRESS BYTES: rping's data comes by READ and goes by WRITE.
verified() {
	run_pair listening_cm rping -s -a "$1" -V -C 30 -S "$2" -- \
		rping -c -a "$1" -V -C 30 -S "$2"
}
