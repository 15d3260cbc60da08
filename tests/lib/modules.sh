# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Cases in modules that only tests load (tests/kernel). After lib/tap.sh.

# test_module NAME: its file
test_module() {
	echo "${MIC_TEST_MODULES:-build/kmod-tests-$MIC_KERNEL}/$1.ko"
}

# run_module NAME CASE [PARAMETER=VALUE...]: loading the module runs it.
run_module() {
	local status=0

	insmod "$(test_module "$1")" device="$DEVICE" peer="$PEER" test="$2" \
		"${@:3}" || status=$?
	[ "$status" -ne 0 ] || rmmod "$1" || return
	dmesg | grep "$1" | tail -n 5
	return "$status"
}

# refuses_module NAME: what its cases can rely on, that it says no by itself.
refuses_module() {
	! run_module "$1" nonsense
}
