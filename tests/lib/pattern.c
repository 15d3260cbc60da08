// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <stdlib.h>
#include <string.h>

#include "pattern.h"
#include "tap.h"

/* Streams start at this many places of the pool. */
#define STARTS 65521U

void random_seed(struct random_state *random, uint64_t seed)
{
	random->state = seed * 0x9e3779b97f4a7c15ULL + 0x6d6963;
}

/* Splitmix64: a counter and a bijection that mixes all its bits. */
uint64_t random_next(struct random_state *random)
{
	uint64_t z = random->state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

uint32_t random_below(struct random_state *random, uint32_t limit)
{
	return (random_next(random) >> 32) * limit >> 32;
}

/* The pools before it stay: streams of them are still in use. */
struct pool {
	struct pool *before;
	uint8_t bytes[];
};

const uint8_t *pattern_bytes(uint32_t seed, size_t length)
{
	static size_t pool_length;
	static struct pool *pool;
	struct random_state random;
	struct pool *before = pool;
	uint64_t word;
	size_t i;

	if (pool_length < length + STARTS) {
		pool_length = (length + STARTS + 7) / 8 * 8;
		pool = malloc(sizeof(*pool) + pool_length);
		if (!pool)
			bail("out of memory");
		pool->before = before;
		random_seed(&random, 1);
		for (i = 0; i < pool_length; i += 8) {
			word = random_next(&random);
			memcpy(pool->bytes + i, &word, 8);
		}
	}
	return pool->bytes + (seed * 2654435761ULL) % STARTS;
}
