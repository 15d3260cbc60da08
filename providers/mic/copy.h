/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Copying between processes: who looks at the last byte and finds it written
 * must find all the others written.
 *
 * libc's memcpy is the fastest there is for the CPU and the size, but writes
 * in any order. So it does all but the end, and the end is written after it,
 * ascending, each store behind a fence: on x86 that is no instruction, as stores
 * are seen in their order there.
 */
#ifndef MIC_COPY_H
#define MIC_COPY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "inline.h"

/* Copies up to this size are written in order as a whole. */
#define MIC_COPY_ORDERED 64

/* Words at any address. */
typedef uint64_t mic_u64 __attribute__((aligned(1), may_alias));
typedef uint32_t mic_u32 __attribute__((aligned(1), may_alias));

/* Each is one store. */
static MIC_ALWAYS_INLINE void mic_copy_u64(char *to, const char *from)
{
	*(volatile mic_u64 *)to = *(const mic_u64 *)from;
}

static MIC_ALWAYS_INLINE void mic_copy_u32(char *to, const char *from)
{
	*(volatile mic_u32 *)to = *(const mic_u32 *)from;
}

static MIC_ALWAYS_INLINE void mic_copy_u8(char *to, const char *from)
{
	*(volatile char *)to = *from;
}

/* What was stored is seen before what will be. */
static inline void mic_copy_in_order(void)
{
	atomic_thread_fence(memory_order_release);
}

/* At most 16 bytes, ascending; the last word may overlap the one before. */
static MIC_ALWAYS_INLINE void mic_copy_small(char *to, const char *from,
					     size_t len)
{
	if (len >= 8) {
		mic_copy_u64(to, from);
		if (len > 8) {
			mic_copy_in_order();
			mic_copy_u64(to + len - 8, from + len - 8);
		}
	} else if (len >= 4) {
		mic_copy_u32(to, from);
		if (len > 4) {
			mic_copy_in_order();
			mic_copy_u32(to + len - 4, from + len - 4);
		}
	} else if (len) {
		mic_copy_u8(to, from);
		if (len > 1) {
			mic_copy_in_order();
			mic_copy_u8(to + 1, from + 1);
		}
		if (len > 2) {
			mic_copy_in_order();
			mic_copy_u8(to + 2, from + 2);
		}
	}
}

static MIC_ALWAYS_INLINE void mic_copy_ordered(char *to, const char *from,
					       size_t len)
{
	size_t off = 0;

	for (; len - off > 16; off += 8) {
		mic_copy_u64(to + off, from + off);
		mic_copy_in_order();
	}
	mic_copy_small(to + off, from + off, len - off);
}

/* Its registers are of no concern to who copies little. */
static __attribute__((noinline, unused)) void mic_copy_large(char *to,
							     const char *from,
							     size_t len)
{
	size_t bulk = len - MIC_COPY_ORDERED / 2;

	memcpy(to, from, bulk);
	mic_copy_in_order();
	mic_copy_ordered(to + bulk, from + bulk, len - bulk);
}

/* The two do not overlap. */
static MIC_ALWAYS_INLINE void mic_copy(char *to, const char *from, size_t len)
{
	if (len == 8)
		mic_copy_u64(to, from);
	else if (len <= MIC_COPY_ORDERED)
		mic_copy_ordered(to, from, len);
	else
		mic_copy_large(to, from, len);
}

#endif /* MIC_COPY_H */
