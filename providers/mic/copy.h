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
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "inline.h"

/* Copies up to this size are written in order as a whole. */
#define MIC_COPY_ORDERED 64

/* A request has no more. */
#define MIC_COPY_PIECES 32

/* Words at any address. */
typedef uint64_t mic_u64 __attribute__((aligned(1), may_alias));
typedef uint32_t mic_u32 __attribute__((aligned(1), may_alias));

/* Each is one store. */
static MIC_ALWAYS_INLINE void mic_copy_u64(char *to, const char *from)
{
	*(volatile mic_u64 *)to = *(const mic_u64 *)from;
}

/* What was stored is seen before what will be. */
static inline void mic_copy_in_order(void)
{
	atomic_thread_fence(memory_order_release);
}

/*
 * What is copied may be where it came from, some bytes further, and be mapped twice, so
 * that addresses do not tell: all is loaded before the first store. The words are
 * stored ascending, and may overlap.
 */
static MIC_ALWAYS_INLINE uint64_t mic_load_u64(const char *from)
{
	return *(const volatile mic_u64 *)from;
}

static MIC_ALWAYS_INLINE void mic_store_u64(char *to, uint64_t word)
{
	*(volatile mic_u64 *)to = word;
}

/* 9 to 16 bytes. */
static MIC_ALWAYS_INLINE void mic_copy_2(char *to, const char *from, size_t len)
{
	const uint64_t first = mic_load_u64(from);
	const uint64_t last = mic_load_u64(from + len - 8);

	mic_store_u64(to, first);
	mic_copy_in_order();
	mic_store_u64(to + len - 8, last);
}

/* Up to 8 bytes, but not none. */
static MIC_ALWAYS_INLINE void mic_copy_small(char *to, const char *from,
					     size_t len)
{
	if (len == 8) {
		mic_copy_u64(to, from);
	} else if (len >= 4) {
		const uint32_t first = *(const volatile mic_u32 *)from;
		const uint32_t last =
			*(const volatile mic_u32 *)(from + len - 4);

		*(volatile mic_u32 *)to = first;
		mic_copy_in_order();
		*(volatile mic_u32 *)(to + len - 4) = last;
	} else {
		const char first = *(const volatile char *)from;
		const char middle = *(const volatile char *)(from + len / 2);
		const char last = *(const volatile char *)(from + len - 1);

		*(volatile char *)to = first;
		mic_copy_in_order();
		*(volatile char *)(to + len / 2) = middle;
		mic_copy_in_order();
		*(volatile char *)(to + len - 1) = last;
	}
}

/* 17 to 32 bytes. */
static MIC_ALWAYS_INLINE void mic_copy_4(char *to, const char *from, size_t len)
{
	const uint64_t first = mic_load_u64(from);
	const uint64_t second = mic_load_u64(from + 8);
	const uint64_t third = mic_load_u64(from + len - 16);
	const uint64_t last = mic_load_u64(from + len - 8);

	mic_store_u64(to, first);
	mic_copy_in_order();
	mic_store_u64(to + 8, second);
	mic_copy_in_order();
	mic_store_u64(to + len - 16, third);
	mic_copy_in_order();
	mic_store_u64(to + len - 8, last);
}

/* 33 to 64 bytes. */
static MIC_ALWAYS_INLINE void mic_copy_8(char *to, const char *from, size_t len)
{
	uint64_t word[8];
	unsigned int i;

#pragma GCC unroll 4
	for (i = 0; i < 4; i++)
		word[i] = mic_load_u64(from + 8 * i);
#pragma GCC unroll 4
	for (; i < 8; i++)
		word[i] = mic_load_u64(from + len - 64 + 8 * i);
#pragma GCC unroll 4
	for (i = 0; i < 4; i++) {
		mic_store_u64(to + 8 * i, word[i]);
		mic_copy_in_order();
	}
#pragma GCC unroll 4
	for (; i < 7; i++) {
		mic_store_u64(to + len - 64 + 8 * i, word[i]);
		mic_copy_in_order();
	}
	mic_store_u64(to + len - 8, word[7]);
}

/* At most MIC_COPY_ORDERED. */
static MIC_ALWAYS_INLINE void mic_copy_ordered(char *to, const char *from,
					       size_t len)
{
	if (len > 32)
		mic_copy_8(to, from, len);
	else if (len > 16)
		mic_copy_4(to, from, len);
	else if (len > 8)
		mic_copy_2(to, from, len);
	else if (len)
		mic_copy_small(to, from, len);
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

/* The two do not overlap, but for what is written in order as a whole. */
static MIC_ALWAYS_INLINE void mic_copy(char *to, const char *from, size_t len)
{
	if (len == 8)
		mic_copy_u64(to, from);
	else if (len <= MIC_COPY_ORDERED)
		mic_copy_ordered(to, from, len);
	else
		mic_copy_large(to, from, len);
}

/* Memory in several places, none of them empty. */
struct mic_pieces {
	char *addr[MIC_COPY_PIECES];
	uint32_t len[MIC_COPY_PIECES];
	uint32_t n;
	uint64_t bytes; /* of all */
};

/* Little is put together before any of it is stored, as above. */
static inline bool mic_pieces_are_little(const struct mic_pieces *pieces)
{
	return pieces->n > 1 && pieces->bytes <= MIC_COPY_ORDERED;
}

static inline void mic_scatter_from(const struct mic_pieces *to,
				    const char *from)
{
	uint32_t i;

	for (i = 0; i < to->n; i++) {
		if (i)
			mic_copy_in_order();
		mic_copy(to->addr[i], from, to->len[i]);
		from += to->len[i];
	}
}

static inline void mic_scatter(const struct mic_pieces *to, const char *from)
{
	char little[MIC_COPY_ORDERED];

	if (!mic_pieces_are_little(to)) {
		mic_scatter_from(to, from);
		return;
	}
	mic_copy(little, from, to->bytes);
	mic_scatter_from(to, little);
}

static inline void mic_gather_to(char *to, const struct mic_pieces *from)
{
	uint32_t i;

	for (i = 0; i < from->n; i++) {
		if (i)
			mic_copy_in_order();
		mic_copy(to, from->addr[i], from->len[i]);
		to += from->len[i];
	}
}

static inline void mic_gather(char *to, const struct mic_pieces *from)
{
	char little[MIC_COPY_ORDERED];

	if (!mic_pieces_are_little(from)) {
		mic_gather_to(to, from);
		return;
	}
	mic_gather_to(little, from);
	mic_copy(to, little, from->bytes);
}

#endif /* MIC_COPY_H */
