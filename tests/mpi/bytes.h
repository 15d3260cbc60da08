/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Bytes that tell where they come from, so that whatever arrives at the wrong place is
 * found. For programs of one file, that are compiled where they run.
 */
#ifndef BYTES_H
#define BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Who looks: main() finds out. */
static int rank;

static inline uint8_t byte_of(int source, int round, size_t i)
{
	return (uint8_t)(source * 31 + round * 7 + i * 13 + (i >> 8));
}

static inline void fill(uint8_t *data, size_t bytes, int source, int round)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		data[i] = byte_of(source, round, i);
}

static inline bool is_from(const uint8_t *data, size_t bytes, int source,
			   int round)
{
	size_t i;

	for (i = 0; i < bytes; i++) {
		if (data[i] == byte_of(source, round, i))
			continue;
		printf("# rank %d: byte %zu of %zu from rank %d, round %d: %u\n",
		       rank, i, bytes, source, round, data[i]);
		return false;
	}
	return true;
}

#endif /* BYTES_H */
