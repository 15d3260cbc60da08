# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The kernel's target and initiator of iSCSI over RDMA (iSER), with open-iscsi, which
# logs in. After lib/tap.sh.

# shellcheck source=tests/lib/lio.sh
. "${BASH_SOURCE[0]%/*}/lio.sh"
# shellcheck source=tests/lib/disk.sh
. "${BASH_SOURCE[0]%/*}/disk.sh"

ISER_PORT=3260
ISER_TARGET=iqn.2003-01.org.linux-iscsi.mic:disk
ISER_INITIATOR=iqn.2003-01.org.linux-iscsi.mic:initiator
PORTAL_GROUP=$TARGETS/iscsi/$ISER_TARGET/tpgt_1

target() {
	"$@"
}

# make_target ADDRESS: there, by RDMA, for everybody.
make_target() {
	modprobe -a iscsi_target_mod ib_isert && make_store || return
	mkdir -p "$TARGETS/iscsi" && mkdir -p "$PORTAL_GROUP" &&
		put 0 "$PORTAL_GROUP/attrib/authentication" &&
		put 1 "$PORTAL_GROUP/attrib/generate_node_acls" &&
		put 0 "$PORTAL_GROUP/attrib/demo_mode_write_protect" &&
		mkdir "$PORTAL_GROUP/lun/lun_0" &&
		ln -s "$STORE" "$PORTAL_GROUP/lun/lun_0/mic" &&
		offer_target "$1" && put 1 "$PORTAL_GROUP/enable"
}

# offer_target ADDRESS: its listener.
offer_target() {
	mkdir "$PORTAL_GROUP/np/$1:$ISER_PORT" &&
		put 1 "$PORTAL_GROUP/np/$1:$ISER_PORT/iser"
}

# withdraw_target ADDRESS: who is connected stays so.
withdraw_target() {
	put 0 "$PORTAL_GROUP/np/$1:$ISER_PORT/iser" &&
		rmdir "$PORTAL_GROUP/np/$1:$ISER_PORT"
}

# disable_target, enable_target: who is connected is thrown out.
disable_target() {
	put 0 "$PORTAL_GROUP/enable"
}

enable_target() {
	put 1 "$PORTAL_GROUP/enable"
}

# remove_target ADDRESS
remove_target() {
	[ ! -d "$PORTAL_GROUP" ] || {
		disable_target
		withdraw_target "$1" && rm "$PORTAL_GROUP/lun/lun_0/mic" &&
			rmdir "$PORTAL_GROUP/lun/lun_0" "$PORTAL_GROUP" \
				"${PORTAL_GROUP%/*}" || return
	}
	rmdir "$TARGETS/iscsi" && remove_store &&
		rmmod ib_isert iscsi_target_mod
}

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

# connect ADDRESS: sets $disk.
connect() {
	node "$1" -I iser -o new &&
		node "$1" -o update -n node.session.timeo.replacement_timeout \
			-v 60 &&
		node "$1" -o update -n node.conn[0].timeo.noop_out_interval \
			-v 1 &&
		node "$1" -o update -n node.conn[0].timeo.noop_out_timeout \
			-v 2 &&
		timeout $((60 * SLOW)) iscsiadm -m node -T "$ISER_TARGET" \
			-p "$1:$ISER_PORT" --login &&
		wait_until 20 find_disk
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
