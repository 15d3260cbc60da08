# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The kernel's fault injection, which only the debug kernel has.

# has_injection: whether this kernel has it.
has_injection() {
	[ -e /proc/self/fail-nth ]
}

# prepare_injection: allocations that may sleep fail as well, quietly, and single pages
# too.
prepare_injection() {
	local kind

	for kind in failslab fail_page_alloc; do
		[ -d "/sys/kernel/debug/$kind" ] || return 0
		echo N >"/sys/kernel/debug/$kind/ignore-gfp-wait"
	done
	echo 0 >/sys/kernel/debug/fail_page_alloc/min-order
	for kind in failslab fail_page_alloc fail_usercopy; do
		echo 0 >"/sys/kernel/debug/$kind/verbose"
	done
}
