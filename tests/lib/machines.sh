# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# For tests with "# vm: --nodes 2", from lib/perftest.sh: which devices and
# addresses there are, and where its servers run.

DEVICE=mic0
PEER=mic0
SERVER_ADDRESS=10.80.0.2
CLIENT_ADDRESS=10.80.0.1
SERVER_ADDRESS6=fd80::2
server_side=(./run on 1)
DEAD_MS=/sys/module/mic_ivshmem/parameters/dead_ms

# meet: until the two nodes see each other.
meet() {
	wait_until 60 ping -c 1 -W 1 "$SERVER_ADDRESS"
}

# device_anew: this machine's, deleted and made again, by buildlib/guest.sh. ib_core
# keeps completion queues for the next one that wants some, as long as the device lives.
device_anew() {
	timeout $((60 * SLOW)) rdma link delete "$DEVICE" && make_mic
}

# counter NAME: of micnet0, as ethtool -S shows it.
counter() {
	ethtool -S micnet0 | awk -v name="$1:" '$1 == name { print $2 }'
}

# counted K NAME: the same, of node K.
counted() {
	on_machine "$1" bash -c "$(declare -f counter); counter $2"
}

# entry NODE FIELD: its offset in the region, in the node table.
entry() {
	echo $((4096 + $1 * 2048 + $2))
}

# slot_on K: node K's entry of the node table.
slot_on() {
	on_machine "$1" cat /sys/class/net/micnet0/device/fabric/node
}

# with_dead_ms MS COMMAND...: this node gives up no other one before that, meanwhile.
with_dead_ms() {
	local before status=0

	before=$(<"$DEAD_MS")
	echo "$1" >"$DEAD_MS"
	"${@:2}" || status=$?
	echo "$before" >"$DEAD_MS"
	return "$status"
}

# listens K PORT: on node K, something does.
listens() {
	on_machine "$1" ss -Hltn "sport = :$2" | grep -q .
}

# serves PORT COMMAND...: COMMAND listens there, on node 1; its pid here is in $server.
serves() {
	local port=$1

	shift
	./run on 1 "$@" &
	server=$!
	wait_until 30 listens 1 "$port"
}

# serves_proxy PORT: proxy_server does. What is at an address here is free there: an
# emulated machine places the memory of all processes alike.
serves_proxy() {
	./run on 1 sysctl -q -w kernel.randomize_va_space=2 &&
		serves "$1" "$BIN/proxy_server" "$1"
}

# on_machine K COMMAND...: on node K, which may be this one.
on_machine() {
	local node=$1

	shift
	if [ "$node" = "$MIC_NODE" ]; then
		"$@"
	else
		./run on "$node" "$@"
	fi
}

# on_nodes "NODE..." COMMAND...: on all of them at once; all must succeed.
on_nodes() {
	local nodes=$1 i pids=() status=0

	shift
	for i in $nodes; do
		on_machine "$i" "$@" &
		pids+=("$!")
	done
	for i in "${pids[@]}"; do
		wait "$i" || status=1
	done
	return "$status"
}
