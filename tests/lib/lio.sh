# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# What the kernel's targets of SCSI have in common: the file that they offer, and the
# disk that it becomes. After lib/tap.sh.

# shellcheck source=tests/lib/backing.sh
. "${BASH_SOURCE[0]%/*}/backing.sh"

TARGETS=/sys/kernel/config/target
STORE=$TARGETS/core/fileio_0/mic

make_store() {
	modprobe -a target_core_mod target_core_file && prepare_backing &&
		mkdir -p "$STORE" || return
	put "fd_dev_name=$BACKING,fd_dev_size=$DISK_SIZE,fd_buffered_io=1" \
		"$STORE/control" && put 1 "$STORE/enable"
}

remove_store() {
	rmdir "$STORE" "${STORE%/*}" && rm -f "$BACKING"
}

# find_disk: sets $disk.
find_disk() {
	local path

	for path in /sys/block/sd*; do
		grep -q LIO "$path/device/vendor" || continue
		disk=/dev/${path##*/}
		[ -b "$disk" ]
		return
	done
	return 1
}
