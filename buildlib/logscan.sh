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
	'not to be told:'
)

# Said at boot about the kernel's own configuration or the virtual CPU.
harmless_reports=(
	'KernelAddressSanitizer initialized'
	'ODEBUG: selftest passed'
)

# In the backtrace of what kmemleak finds. Sockets that smc of Linux 6.1 keeps for nobody
# when a device or a peer goes; it stays loaded then: Documentation/suites.md.
harmless_leaks=(
	' smc_sock_alloc[+].* [[]smc[]]$'
)

# What ib_mic and mic_fabric may say. All else is a mistake of theirs, or tells everybody
# of a user's: Documentation/observability.md. Of a PSN ib_core tells, of any device.
expected_messages=(
	'[rs]q_psn overflow, masking to 24 bits'
	'events that are not read are not counted on this kernel'
	'loading out-of-tree module taints kernel'
	'module verification failed'
)

# told_to_all: the kernel's log without what is for debugging.
told_to_all() {
	dmesg --level emerg,alert,crit,err,warn,notice,info
}

# unexpected_messages: of that, what the two say beside those, as a report.
unexpected_messages() {
	local expected

	expected=$(IFS='|' && echo "${expected_messages[*]}")
	grep -E '^(\[[^]]*\] )?(ib_mic|mic_fabric|([^ ]+ ([^ ]+ )?)?mic[0-9]+): ' |
		grep -v -E "$expected" | sed 's/^/not to be told: /'
}

# scan_log FILE: print the lines of a kernel log that report a failure.
# Returns 0 when there are any, as grep does.
scan_log() {
	local reports harmless

	reports=$(IFS='|' && echo "${kernel_reports[*]}")
	harmless=$(IFS='|' && echo "${harmless_reports[*]}")
	grep -E "$reports" "$1" | grep -v -E "$harmless"
}

# harmful_leaks: of those that kmemleak shows, the input, each with its backtrace.
harmful_leaks() {
	local harmless

	harmless=$(IFS='|' && echo "${harmless_leaks[*]}")
	awk -v harmless="$harmless" '
		function show() { if (!known) printf "%s", text }
		/^unreferenced object/ { show(); text = ""; known = 0 }
		$0 ~ harmless { known = 1 }
		{ text = text $0 "\n" }
		END { show() }'
}
