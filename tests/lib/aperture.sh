# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Node 1's memory, in an aperture of node 0. After lib/machines.sh.

APERTURE=0000:00:11.0
DRIVER=/sys/bus/pci/drivers/mic_ivshmem

# cases PORT KIND: those of device memory, with memory of that kind
cases() {
	./run on 1 "$BIN/slice" server "$1" "$2" &
	expect "a server with $2" wait_until 60 listens 1 "$1"
	cases_of "$BIN/slice" client "$SERVER_ADDRESS" "$1" aperture
	expect "the server with $2 ends well" ends_well "$!" 30
}

found() {
	dmesg | grep -c 'mic_ivshmem.*is in an aperture'
}

# bind: the device comes; whether a beacon is found in it now
bind() {
	local before

	before=$(found)
	echo "$APERTURE" >"$DRIVER/bind" || return
	wait_until 10 found_more_than "$before"
}

found_more_than() {
	[ "$(found)" -gt "$1" ]
}

unbind() {
	echo "$APERTURE" >"$DRIVER/unbind"
}
