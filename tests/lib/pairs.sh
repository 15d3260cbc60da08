# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Pairs of more than two machines. After lib/perftest.sh.

# be_pair SERVER CLIENT: what follows is between these nodes.
be_pair() {
	SERVER_ADDRESS=10.80.0.$(($1 + 1))
	server_side=() client_side=()
	[ "$1" -eq 0 ] || server_side=(./run on "$1")
	[ "$2" -eq 0 ] || client_side=(./run on "$2")
	peer_gid=$(gid_of "$1") && device_gid=$(gid_of "$2")
}

gid_of() {
	on_machine "$1" bash -c "$(declare -f gid_index); gid_index mic0"
}

# checked SERVER CLIENT: by RC and UD, every byte.
checked() {
	be_pair "$@" || return
	run_pair "listening_tcp 18515" \
		ibv_rc_pingpong -d mic0 -g "$peer_gid" -c -e -n 50 -- \
		"${client_side[@]}" \
		ibv_rc_pingpong -d mic0 -g "$device_gid" -c -e -n 50 \
		"$SERVER_ADDRESS" &&
		run_pair "listening_tcp 18515" \
			ibv_ud_pingpong -d mic0 -g "$peer_gid" -c -e -s 1024 \
			-n 50 -- "${client_side[@]}" \
			ibv_ud_pingpong -d mic0 -g "$device_gid" -c -e -s 1024 \
			-n 50 "$SERVER_ADDRESS"
}
