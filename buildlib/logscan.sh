# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# What in a kernel log is a failure. Sourced by host and guest.

kernel_reports=(
	'WARNING:'
	'BUG:'
	'kernel BUG at'
	'Oops'
	'Kernel panic'
	'general protection fault'
	'unable to handle'
	'Call Trace'
	'possible circular locking'
	'possible recursive locking'
	'possible irq lock inversion'
	'inconsistent lock state'
	'suspicious RCU usage'
	'held lock freed'
	'INFO: task .* blocked for more than'
	'rcu: INFO:'
	'detected .*stalls on'
	'soft lockup'
	'hard LOCKUP'
	'refcount_t:'
	'scheduling while atomic'
	'sleeping function called from invalid'
	'KASAN'
	'UBSAN'
	'KFENCE'
	'KCSAN'
	'kmemleak: [0-9]+ new suspected'
	'list_(add|del) corruption'
	'ODEBUG'
	'Bad page state'
	'Object already free'
	'Objects remaining in'
	'slab .* start .* size'
	'unregister_netdevice: waiting for'
	'DMA-API:'
	'page allocation failure'
	'Out of memory:'
	'segfault at'
)

# Said at boot about the kernel's own configuration or the virtual CPU.
harmless_reports=(
	'KernelAddressSanitizer initialized'
	'ODEBUG: selftest passed'
)

# scan_log FILE: print the lines of a kernel log that report a failure.
# Returns 0 when there are any, as grep does.
scan_log() {
	local reports harmless

	reports=$(IFS='|' && echo "${kernel_reports[*]}")
	harmless=$(IFS='|' && echo "${harmless_reports[*]}")
	grep -E "$reports" "$1" | grep -v -E "$harmless"
}
