// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <stdlib.h>
#include <time.h>

#include "counting.h"
#include "tap.h"

enum { ROUNDS = 101 };

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

uint64_t median(uint64_t *values, unsigned int n)
{
	qsort(values, n, sizeof(*values), compare);
	return values[n / 2];
}

uint64_t clock_cost(void)
{
	uint64_t values[ROUNDS], start;
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		start = now_ns();
		values[i] = now_ns() - start;
	}
	return median(values, ROUNDS);
}

bool clock_counts(void)
{
	uint64_t values[ROUNDS], start;
	volatile unsigned int n;
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		start = now_ns();
		for (n = 0; n < 100; n++)
			;
		values[i] = now_ns() - start;
	}
	median(values, ROUNDS);
	return check(values[ROUNDS / 4] == values[ROUNDS * 3 / 4] &&
			     values[0] > 100,
		     "a loop takes %llu to %llu ns: it is to run with --icount",
		     (unsigned long long)values[ROUNDS / 4],
		     (unsigned long long)values[ROUNDS * 3 / 4]);
}
