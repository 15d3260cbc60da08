// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Who needs the ticks of the progress thread.
 */
#include "internal.h"

void scif_process_tick(void)
{
	if (!atomic_fetch_add(&scif_process.hot, 1))
		scif_process_kick();
}

void scif_process_untick(void)
{
	atomic_fetch_sub(&scif_process.hot, 1);
}

void scif_process_await(_Atomic uint64_t *since)
{
	if (!atomic_exchange(since, scif_now_ms()) &&
	    !atomic_fetch_add(&scif_process.awaited, 1))
		scif_process_kick();
}

void scif_process_had(_Atomic uint64_t *since)
{
	if (atomic_exchange(since, 0))
		atomic_fetch_sub(&scif_process.awaited, 1);
}

void scif_process_still(_Atomic uint64_t *since)
{
	uint64_t now = scif_now_ms(), before = atomic_load(since);

	while (before && !atomic_compare_exchange_weak(since, &before, now))
		;
}
