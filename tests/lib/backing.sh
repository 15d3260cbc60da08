# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The file that a kernel's target offers as a disk.

DISK_SIZE=$((8 << 20))
BACKING=/dev/shm/backing # in memory

# put VALUE FILE
put() {
	echo "$1" >"$2"
}

# prepare_backing: and what targets are configured with.
prepare_backing() {
	truncate -s "$DISK_SIZE" "$BACKING" || return
	mountpoint -q /sys/kernel/config ||
		mount -t configfs none /sys/kernel/config
}

target_sum() {
	sha256sum <"$BACKING"
}
