# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The kernel's target of NVMe over Fabrics: one subsystem with one disk, a file.
# Needs nothing but lib/backing.sh, so that a node of several can source it.

# shellcheck source=tests/lib/backing.sh
. "${BASH_SOURCE[0]%/*}/backing.sh"

NVME_NQN=mic-test
NVME_TRANSPORT=${NVME_TRANSPORT:-rdma} # or tcp, to compare with
NVMET=/sys/kernel/config/nvmet
NVMET_SUBSYSTEM=$NVMET/subsystems/$NVME_NQN
NVMET_PORT=$NVMET/ports/1

# make_target ADDRESS
make_target() {
	modprobe -a nvmet "nvmet-$NVME_TRANSPORT" || return
	prepare_backing || return
	mkdir "$NVMET_SUBSYSTEM" "$NVMET_SUBSYSTEM/namespaces/1" \
		"$NVMET_PORT" || return
	put 1 "$NVMET_SUBSYSTEM/attr_allow_any_host" &&
		put "$BACKING" "$NVMET_SUBSYSTEM/namespaces/1/device_path" &&
		put 1 "$NVMET_SUBSYSTEM/namespaces/1/buffered_io" &&
		put 1 "$NVMET_SUBSYSTEM/namespaces/1/enable" &&
		put "$NVME_TRANSPORT" "$NVMET_PORT/addr_trtype" &&
		put ipv4 "$NVMET_PORT/addr_adrfam" &&
		put "$1" "$NVMET_PORT/addr_traddr" &&
		put 4420 "$NVMET_PORT/addr_trsvcid" &&
		offer_target
}

# offer_target, withdraw_target: who is connected is thrown out.
offer_target() {
	ln -s "$NVMET_SUBSYSTEM" "$NVMET_PORT/subsystems/$NVME_NQN"
}

withdraw_target() {
	rm "$NVMET_PORT/subsystems/$NVME_NQN"
}

remove_target() {
	local module

	rm -f "$NVMET_PORT/subsystems/$NVME_NQN"
	[ ! -d "$NVMET_PORT" ] || rmdir "$NVMET_PORT" || return
	[ ! -d "$NVMET_SUBSYSTEM/namespaces/1" ] ||
		put 0 "$NVMET_SUBSYSTEM/namespaces/1/enable" || return
	[ ! -d "$NVMET_SUBSYSTEM/namespaces/1" ] ||
		rmdir "$NVMET_SUBSYSTEM/namespaces/1" || return
	[ ! -d "$NVMET_SUBSYSTEM" ] || rmdir "$NVMET_SUBSYSTEM" || return
	rm -f "$BACKING"
	for module in "nvmet-$NVME_TRANSPORT" nvmet; do
		rmmod "$module" || return
	done
}
