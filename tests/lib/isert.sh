# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The kernel's target of iSCSI over RDMA (iSER): one disk, a file. Needs nothing but
# lib/lio.sh, so that a node of several can source it.

# shellcheck source=tests/lib/lio.sh
. "${BASH_SOURCE[0]%/*}/lio.sh"

ISER_PORT=3260
ISER_TARGET=iqn.2003-01.org.linux-iscsi.mic:disk
ISER_INITIATOR=iqn.2003-01.org.linux-iscsi.mic:initiator
PORTAL_GROUP=$TARGETS/iscsi/$ISER_TARGET/tpgt_1
ACL=$PORTAL_GROUP/acls/$ISER_INITIATOR

# admit_initiator: who is called $ISER_INITIATOR. It is not asked whether it is still
# there: that NOP-IN, 15 seconds after a login, is still in the connection's list when
# ib_isert frees it, and the kernel warns of it.
admit_initiator() {
	mkdir "$ACL" && put 0 "$ACL/attrib/nopin_timeout" &&
		mkdir "$ACL/lun_0" &&
		ln -s "$PORTAL_GROUP/lun/lun_0" "$ACL/lun_0/mic"
}

# make_target ADDRESS: there, by RDMA.
make_target() {
	modprobe -a iscsi_target_mod ib_isert && make_store || return
	mkdir -p "$TARGETS/iscsi" && mkdir -p "$PORTAL_GROUP" &&
		put 0 "$PORTAL_GROUP/attrib/authentication" &&
		mkdir "$PORTAL_GROUP/lun/lun_0" &&
		ln -s "$STORE" "$PORTAL_GROUP/lun/lun_0/mic" &&
		admit_initiator && offer_target "$1" && put 1 "$PORTAL_GROUP/enable"
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
		withdraw_target "$1" && rm "$ACL/lun_0/mic" &&
			rmdir "$ACL/lun_0" "$ACL" &&
			rm "$PORTAL_GROUP/lun/lun_0/mic" &&
			rmdir "$PORTAL_GROUP/lun/lun_0" "$PORTAL_GROUP" \
				"${PORTAL_GROUP%/*}" || return
	}
	rmdir "$TARGETS/iscsi" && remove_store &&
		rmmod ib_isert iscsi_target_mod
}
