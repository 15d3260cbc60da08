# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The kernel's target and initiator of SRP (SCSI), by rdma_cm, both here. After
# lib/tap.sh.

# shellcheck source=tests/lib/lio.sh
. "${BASH_SOURCE[0]%/*}/lio.sh"
# shellcheck source=tests/lib/disk.sh
. "${BASH_SOURCE[0]%/*}/disk.sh"

SRP_PORT=5555

target() {
	"$@"
}

# make_target DEVICE ADDRESS: of that device's port. What initiators have to know is in
# $target_id. The kernel has them by the address that they connect to, not their own.
make_target() {
	local guid acl

	modprobe ib_srpt && make_store || return
	guid=$(<"/sys/class/infiniband/$1/node_guid")
	SRPT=$TARGETS/srpt/$guid/$guid
	acl=$SRPT/acls/$2
	mkdir -p "$TARGETS/srpt" &&
		put "$SRP_PORT" "$TARGETS/srpt/discovery_auth/rdma_cm_port" &&
		mkdir -p "$SRPT" && mkdir "$SRPT/lun/lun_0" &&
		ln -s "$STORE" "$SRPT/lun/lun_0/mic" &&
		mkdir "$acl" "$acl/lun_0" &&
		ln -s "$SRPT/lun/lun_0" "$acl/lun_0/mic" || return
	target_id=$(</sys/module/ib_srpt/parameters/srpt_service_guid)
	target_id=${target_id#0x}
	offer_target
}

# offer_target, withdraw_target: who is connected is thrown out.
offer_target() {
	put 1 "$SRPT/enable"
}

withdraw_target() {
	put 0 "$SRPT/enable"
}

remove_target() {
	local acl

	[ ! -d "$SRPT" ] || {
		withdraw_target
		for acl in "$SRPT"/acls/*/; do
			rm "$acl/lun_0/mic" && rmdir "$acl/lun_0" "$acl" || return
		done
		rm "$SRPT/lun/lun_0/mic" &&
			rmdir "$SRPT/lun/lun_0" "$SRPT" "${SRPT%/*}" || return
	}
	rmdir "$TARGETS/srpt" && remove_store && rmmod ib_srpt
}

# connect DEVICE TARGET INITIATOR: sets $disk. The one before is known to ib_srp for
# longer than it is in sysfs.
connect() {
	wait_until 10 put \
		"id_ext=$target_id,ioc_guid=$target_id,dest=$2:$SRP_PORT,src=$3" \
		"/sys/class/infiniband_srp/srp-$1-1/add_target" &&
		wait_until 20 find_disk
}

remote_port() {
	ls -d /sys/class/srp_remote_ports/port-*
}

disconnected() {
	! find_disk && ! remote_port
}

disconnect() {
	put 1 "$(remote_port)/delete" && wait_until 30 disconnected
}
