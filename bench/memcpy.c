// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * How fast one processor copies memory, for each size: what no transfer
 * through memory can beat. As in perftest the same two buffers are used over
 * and over, so small sizes come from the cache here as well as there.
 *
 * usage: bench-memcpy [--into NAME FILE OFFSET] SIZE...
 *
 * With --into: from ordinary memory to what the file shows there; the results are
 * called NAME.
 */
#include <stdbool.h>
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

static void *buffer(size_t size)
{
	void *memory = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE);

	if (!memory)
		fail("aligned_alloc");
	return memory;
}

static void measure(const char *name, char *to, size_t size)
{
	char *from = buffer(size);
	double rate[BATCHES];
	size_t times;
	int i;

	memset(from, 1, size);
	memset(to, 2, size);
	times = copies_per_batch(to, from, size);
	for (i = 0; i < BATCHES; i++)
		rate[i] = (double)size * times / (1 << 20) /
			  seconds(to, from, size, times);
	report("memcpy_bw", name, size, median(rate, BATCHES), "MiB/s");
	free(from);
}

int main(int argc, char **argv)
{
	bool into = argc > 4 && !strcmp(argv[1], "--into");
	int i;

	pin(CLIENT_CPU);
	for (i = into ? 5 : 1; i < argc; i++) {
		size_t size = parse_size(argv[i]);

		if (into)
			measure(argv[2], file_memory(argv[3], argv[4], size),
				size);
		else
			measure("memcpy", buffer(size), size);
	}
	return 0;
}
