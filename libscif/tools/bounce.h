/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * What "raw" is in all figures: two sides write a word each, in lines of their own,
 * and wait for the other's. There is no pause in the loop that waits, so nobody
 * learns sooner what the other has written. bench-raw uses it too.
 */
#ifndef SCIF_TOOLS_BOUNCE_H
#define SCIF_TOOLS_BOUNCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Round trips @from + 1 to @from + @rounds: write the number to @out, and wait until
 * @in is as high. The side that is not @first waits before it writes.
 */
static inline void bounce(_Atomic uint64_t *out, _Atomic uint64_t *in,
			  uint64_t from, unsigned int rounds, bool first)
{
	uint64_t i;

	for (i = from + 1; i <= from + rounds; i++) {
		if (first)
			atomic_store_explicit(out, i, memory_order_release);
		while (atomic_load_explicit(in, memory_order_acquire) < i)
			;
		if (!first)
			atomic_store_explicit(out, i, memory_order_release);
	}
}

#endif /* SCIF_TOOLS_BOUNCE_H */
