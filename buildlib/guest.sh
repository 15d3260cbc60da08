# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# What a script in the VM can use: . "$MIC_TREE/buildlib/guest.sh"
#
#   mic0 is on mic-eth0 10.77.0.1/24 fd77::1/64
#   mic1 is on mic-eth1 10.77.0.2/24 fd77::2/64
#   in a node of several: mic0 is on micnet0 10.80.0.1/24 fd80::1/64, and so on
#   make_rxe makes rxe0 and rxe1 likewise: rxe-eth0 10.78.0.1, rxe-eth1 10.78.0.2
#   make_nics makes nic-eth0 10.79.0.1 and nic-eth1 10.79.0.2: network cards of
#   the machine, with a bus and a driver, which a veth device does not have
#
# Each two netdevs are the ends of a veth pair in one network namespace (the
# cards: of a cable). Policy routing sends what goes from one address to the
# other over the pair instead of lo, so ARP, neighbour discovery and rdma_cm
# see two hosts.

# shellcheck source=buildlib/logscan.sh
. "$MIC_TREE/buildlib/logscan.sh"

# veth_pair NAME NET: NAME-eth0 and NAME-eth1, with 10.NET.0.1 and .2
veth_pair() {
	local name=$1 net=$2

	ip link add "$name-eth0" address "02:00:00:00:$net:01" type veth \
		peer name "$name-eth1" address "02:00:00:00:$net:02"
	give_addresses "$name" "$net"
}

# give_addresses NAME NET: to NAME-eth0 and NAME-eth1.
give_addresses() {
	local name=$1 net=$2 i

	for i in 0 1; do
		prepare_netdev "$name-eth$i"
		ip address add "10.$net.0.$((i + 1))/24" dev "$name-eth$i"
		ip address add "fd$net::$((i + 1))/64" dev "$name-eth$i" nodad
		route_over_pair "$name-eth$i" "10.$net.0" "fd$net:" "$i" "$net"
	done
}

prepare_netdev() {
	sysctl -q -w "net.ipv4.conf.$1.accept_local=1" \
		"net.ipv4.conf.$1.rp_filter=0" \
		"net.ipv4.conf.$1.arp_ignore=1" \
		"net.ipv6.conf.$1.accept_dad=0"
	ip link set "$1" mtu 9000 up
}

# What this machine sends to the peer's address leaves through DEV. What an
# address sends to itself stays local.
route_over_pair() {
	local dev=$1 v4=$2 v6=$3 own=$(($4 + 1)) peer=$((2 - $4)) table
	table=$(($5 * 10 + $4))

	ip route add "$v4.$peer" dev "$dev" src "$v4.$own" table "$table"
	ip rule add pref 10 from "$v4.$peer" to "$v4.$peer" lookup local
	ip rule add pref 20 iif lo to "$v4.$peer" lookup "$table"
	ip -6 route add "$v6:$peer" dev "$dev" src "$v6:$own" table "$table"
	ip -6 rule add pref 10 from "$v6:$peer" to "$v6:$peer" lookup local
	ip -6 rule add pref 20 iif lo to "$v6:$peer" lookup "$table"
	# rdma_cm asks for the way back by the outgoing interface alone.
	ip -6 rule add pref 21 oif "$dev" to "$v6:$peer" lookup "$table"
}

# The local table comes first by default and would win over the rules above.
demote_local_table() {
	ip rule add pref 100 lookup local
	ip rule delete pref 0
	ip -6 rule add pref 100 lookup local
	ip -6 rule delete pref 0
}

delete_veth_pair() {
	[ ! -e "/sys/class/net/$1-eth0" ] || ip link delete "$1-eth0"
	[ ! -e "/sys/class/net/$1-eth1" ] || ip link delete "$1-eth1"
	delete_rules "$2"
}

# delete_rules NET: those of give_addresses.
delete_rules() {
	local family pref rest

	for family in -4 -6; do
		ip "$family" rule list |
			grep -E "(to|from) (10\\.$1\\.0|fd$1:)" |
			while IFS=: read -r pref rest; do
				rest=${rest//'[detached]'/}
				# shellcheck disable=SC2086 # A list of words.
				ip "$family" rule delete pref "$pref" $rest
			done
	done
}

# make_rxe: rxe0 and rxe1, to compare with.
make_rxe() {
	local i

	modprobe rdma_rxe
	veth_pair rxe 78
	for i in 0 1; do
		rdma link add "rxe$i" type rxe netdev "rxe-eth$i"
		wait_active "rxe$i"
	done
}

# make_rxe_node: in a node of two with --network: rxe0 on its network card,
# 10.78.0.1 on node 0 and so on.
make_rxe_node() {
	local own=$((MIC_NODE + 1)) path dev

	modprobe -a virtio_net rdma_rxe || return
	path=$(grep -l "^02:00:00:00:78:0$own$" /sys/class/net/*/address) ||
		return
	dev=$(basename "$(dirname "$path")")
	ip address add "10.78.0.$own/24" dev "$dev" || return
	ip link set "$dev" mtu 9000 up
	rdma link add rxe0 type rxe netdev "$dev" || return
	wait_active rxe0
}

delete_rxe() {
	delete_links 'rxe*'
	delete_veth_pair rxe 78
}

# make_nics: the machine's two network cards, called after their addresses.
make_nics() {
	local i path

	modprobe virtio_net
	for i in 0 1; do
		path=$(grep -l "^02:00:00:00:79:0$((i + 1))$" \
			/sys/class/net/*/address) || return
		ip link set "$(basename "$(dirname "$path")")" name "nic-eth$i"
	done
	give_addresses nic 79
}

delete_nics() {
	[ ! -d /sys/module/virtio_net ] || modprobe -r virtio_net
	delete_rules 79
}

# make_mic: mic0 and mic1 on their netdevs; the modules are loaded. A node of
# several has mic0 alone, on the interface that leads to the others.
make_mic() {
	local i

	if [ "${MIC_NODES:-1}" -gt 1 ]; then
		make_mic_node
		return
	fi
	veth_pair mic 77
	for i in 0 1; do
		rdma link add "mic$i" type mic netdev "mic-eth$i" || return
		wait_active "mic$i" || return
	done
}

# make_mic_node: mic0 on micnet0, 10.80.0.1 for node 0 and so on.
make_mic_node() {
	local own=$((MIC_NODE + 1))

	ip address replace "10.80.0.$own/24" dev micnet0 || return
	ip address replace "fd80::$own/64" dev micnet0 nodad || return
	ip link set micnet0 up
	rdma link add mic0 type mic netdev micnet0 || return
	wait_active mic0
}

delete_mic() {
	delete_links 'mic*'
	delete_veth_pair mic 77
}

# delete_links PATTERN: every RDMA device of such a name.
delete_links() {
	local path

	for path in /sys/class/infiniband/$1; do
		[ ! -e "$path" ] || rdma link delete "$(basename "$path")"
	done
}

# share_devices: all RDMA devices in all network namespaces, the default. A
# namespace that was deleted may take its time to be gone.
share_devices() {
	local i

	for ((i = 0; i < 100; i++)); do
		! rdma system show | grep -q 'netns shared' || return 0
		rdma system set netns shared 2>/dev/null || sleep 0.1
	done
	return 1
}

# wait_active DEVICE: its port is up and its address's GID is in the table.
wait_active() {
	local port=/sys/class/infiniband/$1/ports/1 i

	for ((i = 0; i < 100; i++)); do
		if grep -q ACTIVE "$port/state" 2>/dev/null &&
			grep -q -h ffff: "$port"/gids/* 2>/dev/null; then
			return 0
		fi
		sleep 0.1
	done
	echo "$1 has no active port or no IPv4 GID after 10 s" >&2
	return 1
}

# gid_index DEVICE: of its first RoCE v2 GID that is an IPv4 address.
gid_index() {
	local port=/sys/class/infiniband/$1/ports/1 file index

	# Only GIDs that exist have a type; asking for others takes long.
	while read -r file; do
		index=${file##*/}
		if grep -q 'RoCE v2' "$port/gid_attrs/types/$index"; then
			echo "$index"
			return 0
		fi
	done < <(grep -l -E '^(0000:){5}ffff:' "$port"/gids/* | sort -V)
	echo "$1 has no RoCE v2 GID of an IPv4 address" >&2
	return 1
}

# insmod_mic: the modules, as built by this tree for this kernel.
insmod_mic() {
	local dir=$MIC_TREE/build/kmod-$MIC_KERNEL

	modprobe -a ib_core ib_uverbs rdma_cm rdma_ucm ib_umad || return
	insmod "$dir/mic_fabric.ko" || return
	insmod "$dir/ib_mic.ko" || return
	[ "${MIC_NODES:-1}" -eq 1 ] || insmod "$dir/mic_ivshmem.ko" \
		${MIC_APERTURES:+"apertures=$MIC_APERTURES"}
}

# rmmod_mic: unload them; a module that stays is an error.
rmmod_mic() {
	local module

	for module in ib_mic mic_ivshmem mic_fabric; do
		[ ! -d "/sys/module/$module" ] || rmmod "$module" || return
	done
}

# devices_state: what the tests may rely on, as text to compare. The link-local
# address of micnet0 is another in a region that was made anew.
devices_state() {
	rdma system show | head -n 1
	rdma link show
	ip -o address show | sed 's/^[0-9]*: //; s/ valid_lft.*//
		/^micnet0 .* scope link/d' | sort
	ip rule list
	ip -6 rule list
	lsmod | awk '$1 ~ /^(mic_fabric|mic_ivshmem|ib_mic)$/ { print $1 }' | sort
}

# restore_devices STATE: make it STATE again. Returns 1 if that failed.
restore_devices() {
	[ "$(devices_state)" != "$1" ] || return 0
	ip -all netns delete
	share_devices
	delete_links '*'
	delete_nics
	delete_veth_pair rxe 78
	delete_veth_pair mic 77
	[ -z "$MIC_MODULES" ] || [ -d /sys/module/ib_mic ] || {
		rmmod_mic
		insmod_mic || return
	}
	[ -z "$MIC_MODULES" ] || make_mic
	[ "$(devices_state)" = "$1" ] ||
		diff <(echo "$1") <(devices_state)
}

# enter_group CGROUP: this process and all its children from now on.
enter_group() {
	mkdir -p "$1"
	echo "$BASHPID" >"$1/cgroup.procs"
}

# end_group CGROUP: kill what is left in it. Returns 1 if something stays.
end_group() {
	local i

	[ -d "$1" ] || return 0
	echo 1 >"$1/cgroup.kill"
	for ((i = 0; i < 200; i++)); do
		if grep -q 'populated 0' "$1/cgroup.events"; then
			find "$1" -depth -type d -exec rmdir {} +
			return 0
		fi
		sleep 0.1
	done
	echo "processes that cannot be killed:"
	# shellcheck disable=SC2038 # What goes through the pipe are pids.
	find "$1" -name cgroup.procs -exec cat {} \; |
		xargs -r ps -o pid,stat,wchan:32,args -p
	return 1
}
