# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The kernel's target of SRP (SCSI), by rdma_cm: one disk, a file. Needs nothing but
# lib/lio.sh, so that a node of several can source it.

# shellcheck source=tests/lib/lio.sh
. "${BASH_SOURCE[0]%/*}/lio.sh"

SRP_PORT=5555

# target_group: where it is configured.
target_group() {
	compgen -G "$TARGETS/srpt/*:*/*:*"
}

# target_id: what initiators have to know of it.
target_id() {
	local id

	id=$(</sys/module/ib_srpt/parameters/srpt_service_guid)
	echo "${id#0x}"
}

# make_target DEVICE ADDRESS: of that device's port. The kernel has initiators by the
# address that they connect to, not their own.
make_target() {
	local guid group acl

	modprobe ib_srpt && make_store || return
	guid=$(<"/sys/class/infiniband/$1/node_guid")
	group=$TARGETS/srpt/$guid/$guid
	acl=$group/acls/$2
	mkdir -p "$TARGETS/srpt" &&
		put "$SRP_PORT" "$TARGETS/srpt/discovery_auth/rdma_cm_port" &&
		mkdir -p "$group" && mkdir "$group/lun/lun_0" &&
		ln -s "$STORE" "$group/lun/lun_0/mic" &&
		mkdir "$acl" "$acl/lun_0" &&
		ln -s "$group/lun/lun_0" "$acl/lun_0/mic" && offer_target
}

# offer_target, withdraw_target: who is connected is thrown out.
offer_target() {
	put 1 "$(target_group)/enable"
}

withdraw_target() {
	put 0 "$(target_group)/enable"
}

remove_target() {
	local group acl

	! group=$(target_group) || {
		withdraw_target
		for acl in "$group"/acls/*/; do
			rm "$acl/lun_0/mic" && rmdir "$acl/lun_0" "$acl" || return
		done
		rm "$group/lun/lun_0/mic" &&
			rmdir "$group/lun/lun_0" "$group" "${group%/*}" || return
	}
	rmdir "$TARGETS/srpt" && remove_store && rmmod ib_srpt
}
