# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The disk $disk, which a target that is reached by RDMA offers; what is in it is what
# the target's file has. Who uses it says in TARGET_LIBRARY which of the files here has
# the target's side.

# target COMMAND...: of that file, where the target is: here or, with lib/machines.sh,
# on node 1.
target() {
	if [ "${MIC_NODES:-1}" -eq 1 ]; then
		"$@"
	else
		./run on 1 bash -c '. "tests/lib/$0"; "$@"' \
			"$TARGET_LIBRARY" "$@"
	fi
}

copy_to_disk() {
	dd if="$1" of="$disk" bs="$2" oflag=direct conv=fsync status=none
}

copy_from_disk() {
	dd if="$disk" of="$1" bs="$2" iflag=direct status=none
}

new_data() {
	head -c "$DISK_SIZE" /dev/urandom >"$SCRATCH/data"
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

# write_and_read BLOCK: past the page cache of the disk.
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

# disturbed COMMAND...: while there is data to write; whoever writes notices nothing.
disturbed() {
	local writer

	new_data
	copy_to_disk "$SCRATCH/data" 1K &
	writer=$!
	sleep 0.2
	"$@" || return
	! process_gone "$writer" || {
		echo "everything had been written"
		return 1
	}
	ends_well "$writer" 90 && stored 64K
}

# in_vain COMMAND...: while there is data to write, which is not to be waited for ever:
# whoever writes is told.
in_vain() {
	local writer

	while copy_to_disk "$SCRATCH/data" 64K; do :; done &
	writer=$!
	sleep 0.5
	! process_gone "$writer" && "$@" || return
	wait_until 120 process_gone "$writer" || {
		echo "the writer hangs"
		return 1
	}
}

# registers_fast DEVICE MODULE: the initiator's, on queue pairs of the kernel.
registers_fast() {
	local qps

	qps=$(rdma resource show qp link "$1/1" | grep -c 'type RC')
	[ "$qps" -ge 1 ] || {
		rdma resource show qp
		return 1
	}
	rdma resource show mr dev "$1" -dd | grep 'drv_kind fast ' |
		grep -q "comm \[$2\]" || {
		rdma resource show mr -dd
		return 1
	}
	[ "$(cat "/sys/class/infiniband/$1/ports/1/hw_counters/local_operations")" -gt 100 ]
}
