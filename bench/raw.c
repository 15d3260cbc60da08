// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Two processes bounce a cache line (libscif/tools/bounce.h): what it costs, at
 * least, that one side learns what the other has written. Every latency is compared
 * with it, and it shows whether the machine was busy with something else.
 *
 * usage: bench-raw [MILLISECONDS]
 *        bench-raw MILLISECONDS clear|ping|pong FILE OFFSET
 *
 * In the second form the other side is a process of its own, perhaps of another
 * machine that shares the file's memory. clear comes first, and ends at once; ping
 * measures, pong ends with it.
 */
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bounce.h"
#include "common.h"

/* Higher than any number of a round trip, so whoever waits for one goes on. */
#define STOP UINT64_MAX

enum {
	LINE = 64,
	PAGE = 4096,
	BATCH = 1000, /* round trips between two looks at the clock */
	MAX_BATCHES = 100000,
};

struct words {
	alignas(PAGE) _Atomic uint64_t ping;
	alignas(PAGE) _Atomic uint64_t pong;
};

static void answer(void *argument)
{
	struct words *words = argument;
	uint64_t from = 0;

	pin(SERVER_CPU);
	do {
		bounce(&words->pong, &words->ping, from, BATCH, false);
		from += BATCH;
	} while (atomic_load(&words->ping) != STOP);
}

/* Measure, with the other side there or on its way. */
static void measure(struct words *words, uint64_t limit)
{
	double *batches = calloc(MAX_BATCHES, sizeof(*batches));
	uint64_t begin, start, end, from = BATCH;
	size_t n = 0;

	if (!batches)
		fail("calloc");
	bounce(&words->ping, &words->pong, 0, BATCH, true);
	begin = now_ns();
	start = begin;
	do {
		bounce(&words->ping, &words->pong, from, BATCH, true);
		end = now_ns();
		from += BATCH;
		batches[n++] = (double)(end - start) / BATCH / 2;
		start = end;
	} while (end - begin < limit && n < MAX_BATCHES);
	atomic_store(&words->ping, STOP);
	report("raw", "raw", LINE, median(batches, n) / 1000, "us");
	free(batches);
}

static void measure_file(const char *side, struct words *words, uint64_t limit)
{
	if (!strcmp(side, "clear"))
		memset(words, 0, sizeof(*words));
	else if (!strcmp(side, "pong"))
		answer(words);
	else
		measure(words, limit);
}

int main(int argc, char **argv)
{
	uint64_t limit = (argc > 1 ? parse_size(argv[1]) : 200) * NSEC_PER_MSEC;
	struct words *words;
	pid_t peer;

	if (argc == 5) {
		measure_file(argv[2],
			     file_memory(argv[3], argv[4], sizeof(*words)),
			     limit);
		return 0;
	}
	words = shared_memory(sizeof(*words));
	peer = start_side(answer, words);
	pin(CLIENT_CPU);
	measure(words, limit);
	join_side(peer);
	return 0;
}
