# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# A TCP stream of random bytes through micnet0. After lib/machines.sh.

STREAM_BYTES=20000000

# Who sends and who receives: what runs a command there.
stream_from=()
stream_to=(./run on 1)

stream_listens() {
	"${stream_to[@]}" ss -Hltn 'sport = :7000' | grep -q .
}

# stream_digests ADDRESS: sends bytes to there; their digests, as they were sent and as
# they were received, are in $SCRATCH/sent and $SCRATCH/got.
stream_digests() {
	local server status=0

	"${stream_to[@]}" timeout $((60 * SLOW)) python3 -c "
import hashlib, socket
with socket.create_server(('', 7000), family=socket.AF_INET6,
                          dualstack_ipv6=True) as listener:
    stream = listener.accept()[0].makefile('rb')
print(hashlib.file_digest(stream, 'sha256').hexdigest())
" >"$SCRATCH/got" &
	server=$!
	wait_until 20 stream_listens || status=1
	"${stream_from[@]}" timeout $((60 * SLOW)) python3 -c "
import hashlib, os, socket
data = os.urandom($STREAM_BYTES)
with socket.create_connection(('$1', 7000)) as stream:
    stream.sendall(data)
print(hashlib.sha256(data).hexdigest())
" >"$SCRATCH/sent" || status=1
	wait "$server" || status=1
	return "$status"
}

# stream ADDRESS COUNTER: all bytes arrive; by how much micnet0's COUNTER has grown is
# in $frames.
stream() {
	local before

	before=$(counter "$2")
	stream_digests "$1" || return
	frames=$(($(counter "$2") - before))
	echo "$frames frames"
	[ -s "$SCRATCH/sent" ] && cmp "$SCRATCH/sent" "$SCRATCH/got"
}

# stream_mtu MTU: of micnet0, of both machines.
stream_mtu() {
	on_nodes "0 1" ip link set micnet0 mtu "$1"
}

# in_large ADDRESS COUNTER: with the MTU of Ethernet most is left to the offloads: a
# frame is more than the MTU.
in_large() {
	stream "$@" && [ "$frames" -lt $((STREAM_BYTES / 1500 / 2)) ]
}

# in_small ADDRESS COUNTER: each frame is no more than the MTU.
in_small() {
	stream "$@" && [ "$frames" -ge $((STREAM_BYTES / 1500)) ]
}
