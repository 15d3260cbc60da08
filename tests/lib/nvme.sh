# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The kernel's initiator of NVMe over Fabrics, here, and the target of
# lib/nvmet.sh, here or, with lib/machines.sh, on node 1. After lib/tap.sh.

# shellcheck source=tests/lib/nvmet.sh
. "${BASH_SOURCE[0]%/*}/nvmet.sh"
# shellcheck source=tests/lib/disk.sh
. "${BASH_SOURCE[0]%/*}/disk.sh"

TARGET_LIBRARY=nvmet.sh

load_initiator() {
	modprobe "nvme-$NVME_TRANSPORT" || {
		echo "Bail out! no module nvme-$NVME_TRANSPORT"
		exit 1
	}
}

unload_initiator() {
	rmmod "nvme-$NVME_TRANSPORT" nvme-fabrics
}

# connect TARGET INITIATOR [OPTION]: sets $controller and $disk.
connect() {
	local answer fd

	exec {fd}<>/dev/nvme-fabrics || return
	printf 'transport=%s,traddr=%s,trsvcid=4420,nqn=%s,host_traddr=%s,nr_io_queues=2,queue_size=64,reconnect_delay=1,%s' \
		"$NVME_TRANSPORT" "$1" "$NVME_NQN" "$2" "${3:-ctrl_loss_tmo=5}" >&"$fd" || {
		exec {fd}>&-
		return 1
	}
	read -r answer <&"$fd"
	exec {fd}>&-
	controller=nvme${answer#instance=}
	controller=${controller%%,*}
	wait_until 20 find_disk
}

find_disk() {
	local path

	for path in /dev/nvme*n1; do
		[ -b "$path" ] || continue
		disk=$path
		return
	done
	return 1
}

no_controller() {
	[ ! -e "/sys/class/nvme/$controller" ]
}

# controller_is STATE
controller_is() {
	[ "$(<"/sys/class/nvme/$controller/state")" = "$1" ]
}

disconnect() {
	put 1 "/sys/class/nvme/$controller/delete_controller" &&
		wait_until 30 no_controller
}
