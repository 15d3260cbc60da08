# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Node 1 of two goes away in the middle of traffic, and comes back. After
# lib/perftest.sh.

# busy PROGRAM OPTION...: endless traffic to node 1; $server and $client.
busy() {
	local ready="listening_tcp 18515"

	[[ " $* " != *' -R '* ]] || ready="listening_cm ucma_get_event"
	"${server_side[@]}" "$@" -d "$PEER" -x "$peer_gid" -F -D 600 \
		>"$SCRATCH/server" 2>&1 &
	server=$!
	# shellcheck disable=SC2086 # A command with arguments.
	wait_until 30 $ready || return
	"$@" -d "$DEVICE" -x "$device_gid" -F -D 600 "$SERVER_ADDRESS" \
		>"$SCRATCH/client" 2>&1 &
	client=$!
	wait_until 30 moving || {
		echo "there is no traffic"
		end_traffic
		return 1
	}
}

# moving: segments are being sent.
moving() {
	local before

	before=$(counter requests_sent)
	sleep 0.3
	[ "$(counter requests_sent)" -gt "$((before + 10))" ]
}

# end_traffic: kill what busy has started.
end_traffic() {
	kill "$client" "$server"
	wait "$client" "$server"
	return 0
}

# client_fails: it ends in time, with an error.
client_fails() {
	ends "$client" 60 || {
		echo "the client hangs"
		kill -KILL "$client" "$server"
		wait "$client" "$server"
		return 1
	}
	wait "$server"
	[ "$ended" -ne 0 ] || {
		echo "the client noticed nothing"
		return 1
	}
}

node_is_back() {
	./run on 1 --start || return
	meet || {
		echo "node 1 does not come back"
		return 1
	}
	peer_gid=$("${server_side[@]}" bash -c \
		"$(declare -f gid_index); gid_index $PEER")
}

# killed PROGRAM OPTION...: the survivor gets an error, in time; node 1 comes
# back and is used again.
killed() {
	local status=0

	busy "$@" || return
	./run on 1 --kill || return
	client_fails || status=1
	node_is_back || return
	return "$status"
}

works() {
	perftest 1 ib_send_bw -s 4096 -n 200 &&
		run_pair listening_cm rping -s -a "$SERVER_ADDRESS" -V -C 10 -- \
			rping -c -a "$SERVER_ADDRESS" -V -C 10
}
