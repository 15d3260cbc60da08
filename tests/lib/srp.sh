# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The kernel's initiator of SRP (SCSI), by rdma_cm, here, and the target of lib/srpt.sh,
# here or, with lib/machines.sh, on node 1. After lib/tap.sh.

# shellcheck source=tests/lib/srpt.sh
. "${BASH_SOURCE[0]%/*}/srpt.sh"
# shellcheck source=tests/lib/disk.sh
. "${BASH_SOURCE[0]%/*}/disk.sh"

TARGET_LIBRARY=srpt.sh

# connect DEVICE TARGET INITIATOR: sets $disk. The one before is known to ib_srp for
# longer than it is in sysfs.
connect() {
	local id

	id=$(target target_id) || return
	wait_until 10 put \
		"id_ext=$id,ioc_guid=$id,dest=$2:$SRP_PORT,src=$3" \
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

# give_up_after SECONDS: of a target that is away: then what is to be written fails; the
# disk stays for ten minutes. Nothing is tried meanwhile: whoever fails what is written
# waits for that to end, and if the machine's address is still known, the connection
# manager asks it for a hundred seconds.
give_up_after() {
	local port

	port=$(remote_port)
	put off "$port/reconnect_delay" && put 600 "$port/dev_loss_tmo" &&
		put "$1" "$port/fast_io_fail_tmo"
}
