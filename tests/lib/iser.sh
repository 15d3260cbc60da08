# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The kernel's initiator of iSCSI over RDMA (iSER), here, with open-iscsi, which logs
# in, and the target of lib/isert.sh, here or, with lib/machines.sh, on node 1. After
# lib/tap.sh.

# shellcheck source=tests/lib/isert.sh
. "${BASH_SOURCE[0]%/*}/isert.sh"
# shellcheck source=tests/lib/disk.sh
. "${BASH_SOURCE[0]%/*}/disk.sh"

TARGET_LIBRARY=isert.sh

initiator_answers() {
	iscsiadm -m session 2>&1 | grep -q 'No active sessions'
}

# start_initiator: iscsid's pid is in $iscsid.
start_initiator() {
	modprobe -a ib_iser sd_mod && mkdir -p /etc/iscsi /run/lock/iscsi || return
	echo "InitiatorName=$ISER_INITIATOR" >/etc/iscsi/initiatorname.iscsi
	# it ends with its whole process group
	setsid iscsid -f >"$SCRATCH/iscsid" 2>&1 &
	iscsid=$!
	wait_until 20 initiator_answers
}

stop_initiator() {
	kill "$iscsid" && wait_until 10 process_gone "$iscsid" &&
		rmmod ib_iser
}

# node ADDRESS OPTION...: what is known of the target there.
node() {
	local address=$1

	shift
	iscsiadm -m node -T "$ISER_TARGET" -p "$address:$ISER_PORT" "$@"
}

# connect ADDRESS: sets $disk. A target that is away is waited for $patience seconds.
connect() {
	node "$1" -I iser -o new &&
		node "$1" -o update -n node.session.timeo.replacement_timeout \
			-v "${patience:-60}" &&
		node "$1" -o update -n node.conn[0].timeo.noop_out_interval \
			-v 1 &&
		node "$1" -o update -n node.conn[0].timeo.noop_out_timeout \
			-v 2 &&
		timeout $((60 * SLOW)) iscsiadm -m node -T "$ISER_TARGET" \
			-p "$1:$ISER_PORT" --login &&
		wait_until 20 find_disk
}

# give_up_after ADDRESS SECONDS: of a target that is away; what is to be written fails
# then. What is known of the target is for the next connection.
give_up_after() {
	disconnect "$1" && patience=$2 connect "$1"
}

disconnected() {
	! find_disk && initiator_answers
}

# disconnect ADDRESS
disconnect() {
	node "$1" --logout && node "$1" -o delete && wait_until 30 disconnected
}

# session_is STATE: of the connection: LOGGED_IN, FAILED or FREE.
session_is() {
	[ "$(cat /sys/class/iscsi_session/session*/state)" = "$1" ]
}
