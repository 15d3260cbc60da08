# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The self-test of micnet0, and what makes each part of it fail. After
# lib/machines.sh, lib/programs.sh and lib/loss.sh.

REGION=tests/fabric/region.py
FABRIC=/sys/class/net/micnet0/device/fabric
PARTS=(header memory interrupt heartbeat clock message verbs)

# What they say.
EIO=5 ENODEV=19 ERANGE=34 EOPNOTSUPP=95 ENETDOWN=100 ENOTCONN=107 ETIMEDOUT=110

# parts_are PART=RESULT...: so it was, and 0 with all others. RESULT: 5, or 5|0
parts_are() {
	local -A expected
	local word part result status=0

	for word; do
		expected[${word%%=*}]=${word#*=}
	done
	for part in "${PARTS[@]}"; do
		result=$(awk -v part="$part" '$1 == part { print $2 }' \
			"$SCRATCH/selftest")
		[[ $result =~ ^(${expected[$part]:-0})$ ]] || {
			echo "$part: ${result:-nothing}"
			status=1
		}
	done
	return "$status"
}

selftest() {
	local status=0

	timeout $((60 * SLOW)) ethtool -t micnet0 >"$SCRATCH/selftest" || status=$?
	cat "$SCRATCH/selftest"
	return "$status"
}

passes_once() {
	selftest && parts_are "$@"
}

fails_once() {
	! selftest && parts_are "$@"
}

# passes PART=RESULT..., fails PART=RESULT...: once of three times, as a machine that
# stands still for two seconds makes some part fail.
passes() {
	once_of 3 passes_once "$@"
}

fails() {
	once_of 3 fails_once "$@"
}

# passes_on K PART=RESULT...: on node K
passes_on() {
	once_of 3 passes_once_on "$@"
}

passes_once_on() {
	on_machine "$1" ethtool -t micnet0 >"$SCRATCH/selftest" &&
		parts_are "${@:2}" && return
	cat "$SCRATCH/selftest"
	return 1
}

# scribbled OFFSET COMMAND...: until COMMAND succeeds, while node 1 writes there.
scribbled() {
	local offset=$1 scribbler status=0

	shift
	./run on 1 "$REGION" scribble 300 "$offset" &
	scribbler=$!
	wait_until 60 "$@" || status=1
	kill "$scribbler"
	wait "$scribbler"
	cat "$SCRATCH/selftest" # the last one
	return "$status"
}

# Where the lanes of this node to itself begin.
own_lanes() {
	local node nodes

	node=$(<"$FABRIC/node")
	nodes=$($REGION peek 12 4)
	echo $(($($REGION peek 48 8) + (node * nodes + node) * 3 * $($REGION peek 24 4)))
}

# The region's id, which its nodes write again.
header_fails() {
	scribbled 28 fails header=$EIO "memory=0|-$ENODEV"
}

memory_fails() {
	scribbled "$(own_lanes)" fails memory=$EIO
}

interrupt_fails() {
	local device status=0

	device=$(readlink -f /sys/class/net/micnet0/device)
	tests/fabric/mask.py "$device" on || return
	fails interrupt=$ETIMEDOUT || status=1
	tests/fabric/mask.py "$device" off
	return "$status"
}

# The entry has another owner: nothing goes on, before it is this node's again.
heartbeat_fails() {
	local status=0

	$REGION poke "$(entry "$(<"$FABRIC/node")" 0)" 4 12345
	with_dead_ms 60000 fails "memory=0|-$ENODEV" heartbeat=$EIO clock=$ETIMEDOUT message=-$ENOTCONN \
		verbs=$ENETDOWN || status=1
	meet && [ "$status" -eq 0 ]
}

# Node 1's heart beats as it likes.
clock_fails() {
	scribbled "$(entry $((1 - $(<"$FABRIC/node"))) 64)" fails clock=$ERANGE
}

# Node 1 stands still. It is not waited for as long as for the answer to a request.
message_fails() {
	local status=0 start took

	./run on 1 --stop || return
	start=$SECONDS
	with_dead_ms 60000 fails_once clock=$ETIMEDOUT message=$ETIMEDOUT || status=1
	took=$((SECONDS - start))
	./run on 1 --cont || return
	[ "$took" -le $((10 * SLOW)) ] || {
		echo "it took $took seconds"
		status=1
	}
	[ "$status" -eq 0 ] && meet
}

# Of two devices one is on a macvlan, which is then not up.
verbs_fails() {
	local status=0

	ip link add link micnet0 name mac0 type macvlan mode bridge &&
		ip address add 10.87.0.1/24 dev mac0 && ip link set mac0 up &&
		rdma link add mic1 type mic netdev mac0 && wait_active mic1 &&
		passes && ip link set mac0 down && fails verbs=$ENETDOWN ||
		status=1
	ip link delete mac0
	return "$status"
}

# A VLAN has the Ethernet address of what it is on, so its device has that one's
# link-local GID, too.
with_vlan() {
	local status=0

	ip link add link micnet0 name micnet0.5 type vlan id 5 &&
		ip link set micnet0.5 up &&
		rdma link add mic1 type mic netdev micnet0.5 &&
		wait_until 10 grep ACTIVE \
			/sys/class/infiniband/mic1/ports/1/state &&
		passes || status=1
	ip link delete micnet0.5
	return "$status"
}

without_device() {
	local status=0

	rdma link delete mic0 || return
	passes verbs=-$ENODEV || status=1
	make_mic_node && [ "$status" -eq 0 ]
}

# The device is deleted and made while it is tested, or before, or after.
device_comes_and_goes() {
	local i changing status=0

	rm -f "$SCRATCH/enough"
	until [ -e "$SCRATCH/enough" ]; do
		rdma link delete mic0 && make_mic_node || exit
	done &
	changing=$!
	for ((i = 0; i < 6; i++)); do
		passes verbs="0|-$ENODEV" || status=1
	done
	touch "$SCRATCH/enough"
	wait "$changing" || status=1
	wait_active mic0 && [ "$status" -eq 0 ]
}

is_alone() {
	[ "$(<"$FABRIC/nodes")" = "$(<"$FABRIC/node")" ]
}

without_peer() {
	local status=0

	./run on 1 bash -c 'rdma link delete mic0 && rmmod mic_ivshmem' || return
	wait_until 10 is_alone && passes message=-$ENOTCONN || status=1
	./run on 1 bash -c "insmod build/kmod-$MIC_KERNEL/mic_ivshmem.ko &&
		. buildlib/guest.sh && make_mic" || return
	meet && [ "$status" -eq 0 ]
}

# Both at once: neither notices.
beside_traffic() {
	local status=0

	busy ib_write_bw -s 65536 || return
	passes || status=1
	wait_until 30 moving || status=1
	end_traffic
	return "$status"
}

# selftest_cases: what makes parts of it fail, one after the other.
selftest_cases() {
	expect "the self-test: the header overwritten" header_fails
	expect "the self-test: memory that changes" memory_fails
	expect "the self-test: the entry another's" heartbeat_fails
	expect "the self-test: a clock that runs wild" clock_fails
	expect "the self-test: a node that stands still" message_fails
	expect "the self-test: two devices, one of them down" verbs_fails
	expect "the self-test: a device on a VLAN" with_vlan
	expect "the self-test: no device" without_device
	expect "the self-test: a device that comes and goes" device_comes_and_goes
	expect "the self-test: no other node" without_peer
}
