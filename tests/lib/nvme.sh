# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The kernel's initiator of NVMe over Fabrics, here, and the target of
# lib/nvmet.sh, here or, with lib/machines.sh, on node 1. After lib/tap.sh.

# shellcheck source=tests/lib/nvmet.sh
. "${BASH_SOURCE[0]%/*}/nvmet.sh"

# target COMMAND...: of lib/nvmet.sh, where the target is.
target() {
	if [ "${MIC_NODES:-1}" -eq 1 ]; then
		"$@"
	else
		./run on 1 bash -c '. tests/lib/nvmet.sh; "$@"' target "$@"
	fi
}

load_initiator() {
	modprobe nvme-rdma || {
		echo "Bail out! no module nvme-rdma"
		exit 1
	}
}

unload_initiator() {
	rmmod nvme-rdma nvme-fabrics
}

# connect TARGET INITIATOR [OPTION]: sets $controller and $disk.
connect() {
	local answer fd

	exec {fd}<>/dev/nvme-fabrics || return
	printf 'transport=rdma,traddr=%s,trsvcid=4420,nqn=%s,host_traddr=%s,nr_io_queues=2,queue_size=64,reconnect_delay=1,%s' \
		"$1" "$NVME_NQN" "$2" "${3:-ctrl_loss_tmo=5}" >&"$fd" || {
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

# copy FROM TO BLOCK: past the page cache of the disk.
copy_to_disk() {
	dd if="$1" of="$disk" bs="$2" oflag=direct conv=fsync status=none
}

copy_from_disk() {
	dd if="$disk" of="$1" bs="$2" iflag=direct status=none
}

new_data() {
	head -c "$NVME_SIZE" /dev/urandom >"$SCRATCH/data"
}

# stored BLOCK: the data is in the target's file, and is read back.
stored() {
	[ "$(target target_sum)" = "$(sha256sum <"$SCRATCH/data")" ] || {
		echo "the target's file has something else"
		return 1
	}
	copy_from_disk "$SCRATCH/back" "$1" &&
		cmp "$SCRATCH/data" "$SCRATCH/back"
}

# write_and_read BLOCK
write_and_read() {
	new_data
	copy_to_disk "$SCRATCH/data" "$1" && stored "$1"
}

# Four at once, each its own part.
parallel() {
	local i pids=()

	new_data
	for i in 0 1 2 3; do
		dd if="$SCRATCH/data" of="$disk" bs=64K count=32 \
			skip=$((i * 32)) seek=$((i * 32)) oflag=direct \
			status=none &
		pids+=($!)
	done
	for i in "${pids[@]}"; do
		wait "$i" || return
	done
	stored 1M
}

# registers_fast DEVICE: the initiator's.
registers_fast() {
	local qps

	# an admin queue and at least one for data
	qps=$(rdma resource show qp link "$1/1" | grep -c 'type RC')
	[ "$qps" -ge 2 ] || {
		rdma resource show qp
		return 1
	}
	rdma resource show mr dev "$1" -dd | grep 'drv_kind fast ' |
		grep -q 'comm \[nvme_rdma\]' || {
		rdma resource show mr -dd
		return 1
	}
	[ "$(cat "/sys/class/infiniband/$1/ports/1/hw_counters/local_operations")" -gt 100 ]
}
