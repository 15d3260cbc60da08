# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Two regions between two machines, each a wire of its own. After lib/perftest.sh.

# use_region R: what follows goes over micnetR.
use_region() {
	DEVICE=mic$1 PEER=mic$1
	SERVER_ADDRESS=10.8$1.0.2 CLIENT_ADDRESS=10.8$1.0.1
	device_gid=$(gid_index "$DEVICE")
	peer_gid=$("${server_side[@]}" bash -c \
		"$(declare -f gid_index); gid_index $PEER")
}

# Run on a node, after buildlib/guest.sh.
# shellcheck disable=SC2154 # MIC_NODE is a variable of the rig.
make_second() {
	ip address replace "10.81.0.$((MIC_NODE + 1))/24" dev micnet1 || return
	ip link set micnet1 up
	rdma link add mic1 type mic netdev micnet1 || return
	wait_active mic1
}

second_devices() {
	local i

	for i in 0 1; do
		on_machine "$i" bash -c "$(declare -f make_second)
			. buildlib/guest.sh && make_second" || return
	done
	use_region 1 && meet
}

# sent R: segments that have gone over micnetR, with frames or without.
sent() {
	ethtool -S "micnet$1" | awk '$1 == "requests_sent:" { print $2 }'
}

# only_over R COMMAND...: it succeeds, and all that it asks for goes that way.
only_over() {
	local other=$((1 - $1)) this=$1 before here

	before=$(sent "$other") here=$(sent "$this")
	shift
	"$@" || return
	[ "$(sent "$this")" -gt "$here" ] || {
		echo "nothing went over micnet$this"
		return 1
	}
	[ "$(sent "$other")" -eq "$before" ] || {
		echo "$(($(sent "$other") - before)) requests over micnet$other"
		return 1
	}
}

# As the rig has made it.
as_before() {
	rdma link delete mic1 && ip address flush dev micnet1 &&
		ip link set micnet1 down
}
