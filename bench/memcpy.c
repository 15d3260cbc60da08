// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * How fast one processor copies memory, for each size: what no transfer
 * through memory can beat. As in perftest the same two buffers are used over
 * and over, so small sizes come from the cache here as well as there.
 *
 * usage: bench-memcpy SIZE...
 */
#include <stdlib.h>
#include <string.h>

#include "common.h"

enum {
	BATCHES = 21,
	PAGE = 4096,
};

/* Called through this, so that the compiler does not know what it copies. */
static void *(*volatile copy)(void *, const void *, size_t) = memcpy;

static double seconds(char *to, const char *from, size_t size, size_t times)
{
	uint64_t start = now_ns();
	size_t i;

	for (i = 0; i < times; i++)
		copy(to, from, size);
	return (double)(now_ns() - start) / NSEC_PER_SEC;
}

/* So many copies that a batch takes at least five milliseconds. */
static size_t copies_per_batch(char *to, const char *from, size_t size)
{
	size_t times = 1;

	while (seconds(to, from, size, times) < 0.005)
		times *= 2;
	return times;
}

static void measure(size_t size)
{
	char *from = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE);
	char *to = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE);
	double rate[BATCHES];
	size_t times;
	int i;

	if (!from || !to)
		fail("aligned_alloc");
	memset(from, 1, size);
	memset(to, 2, size);
	times = copies_per_batch(to, from, size);
	for (i = 0; i < BATCHES; i++)
		rate[i] = (double)size * times / (1 << 20) /
			  seconds(to, from, size, times);
	report("memcpy_bw", "memcpy", size, median(rate, BATCHES), "MiB/s");
	free(from);
	free(to);
}

int main(int argc, char **argv)
{
	int i;

	pin(CLIENT_CPU);
	for (i = 1; i < argc; i++)
		measure(parse_size(argv[i]));
	return 0;
}
