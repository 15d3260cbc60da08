# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Two network namespaces that are as good as two machines: node0 and node1,
# joined by a veth pair, each with an address, a device of its own and a host
# name. After lib/tap.sh and buildlib/guest.sh.

# node_address I, node_device I
node_address() {
	echo "10.80.0.$(($1 + 1))"
}

node_device() {
	echo "node$1"
}

# make_nodes TYPE MODE: devices of TYPE (mic, rxe), seen as MODE (shared,
# exclusive) says. To be undone by delete_nodes.
make_nodes() {
	local type=$1 mode=$2 i

	rdma system set netns "$mode" || return
	for i in 0 1; do
		ip netns add "node$i"
		ip -n "node$i" link set lo up
	done
	ip link add node-eth0 netns node0 type veth \
		peer name node-eth1 netns node1
	for i in 0 1; do
		ip -n "node$i" address add "$(node_address "$i")/24" \
			dev "node-eth$i"
		ip -n "node$i" link set "node-eth$i" mtu 9000 up
	done
	for i in 0 1; do
		add_node_device "$type" "$mode" "$i" || return
	done
	name_nodes
}

# A device is born in the first namespace, wherever its netdev is.
add_node_device() {
	local type=$1 mode=$2 i=$3

	ip netns exec "node$i" rdma link add "$(node_device "$i")" \
		type "$type" netdev "node-eth$i" || return
	[ "$mode" = shared ] ||
		rdma dev set "$(node_device "$i")" netns "node$i" || return
	wait_until 20 node_is_active "$i"
}

node_is_active() {
	on_node "$1" bash -c '
		port=/sys/class/infiniband/$0/ports/1
		grep -q ACTIVE $port/state && grep -q -h ffff: $port/gids/*' \
		"$(node_device "$1")"
}

# For those who look hosts up by name.
name_nodes() {
	local i

	for i in 0 1; do
		sed -i "/ node$i\$/d" /etc/hosts
		echo "$(node_address "$i") node$i" >>/etc/hosts
	done
}

# on_node I COMMAND...: there, under its host name.
on_node() {
	(become_on_node "$@")
}

# become_on_node I COMMAND...: the same, instead of this shell: a process in the
# background is COMMAND's then, and ends with it.
become_on_node() {
	local node=node$1

	shift
	exec ip netns exec "$node" unshare --uts \
		sh -c 'hostname "$0" && exec "$@"' "$node" "$@"
}

delete_nodes() {
	local i

	for i in 0 1; do
		[ ! -e "/run/netns/node$i" ] || ip netns delete "node$i"
	done
	wait_until 20 no_node_devices
	share_devices
}

no_node_devices() {
	! rdma dev show | grep -q ' node[01]:'
}

# What starts a process on another node, as rsh would.
make_agent() {
	cat >"$SCRATCH/agent" <<-'END'
		#!/bin/bash
		while [[ $1 == -* ]]; do
			shift
		done
		node=$1
		shift
		exec ip netns exec "$node" unshare --uts sh -c \
			'hostname "$0" && eval "$1"' "$node" "$*"
	END
	chmod +x "$SCRATCH/agent"
}

# named_on I NAME: the pid of a process of that name there.
named_on() {
	local pid

	for pid in $(ip netns pids "node$1"); do
		if grep -s -q -x -- "${2:0:15}" "/proc/$pid/comm"; then
			echo "$pid"
			return 0
		fi
	done
	return 1
}

# nothing_on I: no process runs there.
nothing_on() {
	! ip netns pids "node$1" | grep -q .
}

# give_to_nodes FILE: it is on both under the same name, as any file.
give_to_nodes() {
	[ -e "$1" ]
}

# gid_on_node I: the index of its address's RoCE v2 GID.
gid_on_node() {
	on_node "$1" bash -c "$(declare -f gid_index); gid_index $(node_device "$1")"
}

# between_nodes WAIT SERVER... -- CLIENT...: the server on node1, the client
# on node0; both must end well and in time.
between_nodes() {
	local wait=$1 command=() server status=0

	shift
	while [ "$1" != -- ]; do
		command+=("$1")
		shift
	done
	shift
	become_on_node 1 timeout --kill-after=5 $((60 * SLOW)) "${command[@]}" \
		>"$SCRATCH/server" 2>&1 &
	server=$!
	# shellcheck disable=SC2086 # A command with arguments.
	wait_until 20 on_node 1 $wait || note "the server does not listen"
	on_node 0 timeout --kill-after=5 $((60 * SLOW)) "$@" \
		>"$SCRATCH/client" 2>&1 || {
		echo "the client ends with $?: $*"
		status=1
		kill "$server" 2>/dev/null
	}
	wait "$server" || {
		echo "the server ends with $?: ${command[*]}"
		status=1
	}
	[ "$status" -eq 0 ] || {
		note_file "$SCRATCH/client"
		note_file "$SCRATCH/server"
	}
	return "$status"
}
