/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Reproducible pseudo-random numbers and bytes.
 */
#ifndef TESTS_PATTERN_H
#define TESTS_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* What memory that must not be written holds. */
#define GUARD_BYTE 0xa5

struct random_state {
	uint64_t state;
};

void random_seed(struct random_state *random, uint64_t seed);
uint64_t random_next(struct random_state *random);
/* 0 <= result < @limit */
uint32_t random_below(struct random_state *random, uint32_t limit);

/*
 * A stream of @length bytes that depends on @seed; two seeds give different
 * bytes at most places. Valid until the process ends.
 */
const uint8_t *pattern_bytes(uint32_t seed, size_t length);

#endif /* TESTS_PATTERN_H */
