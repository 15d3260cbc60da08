// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Two processes bounce a cache line: what it costs, at least, that one side
 * learns what the other has written. Every latency is compared with it, and
 * it shows whether the machine was busy with something else.
 *
 * usage: bench-raw [MILLISECONDS]
 *        bench-raw MILLISECONDS ping|pong FILE OFFSET
 *
 * In the second form the other side is a process of its own, perhaps of another
 * machine that shares the file's memory. There are zeros at OFFSET when they
 * begin; ping measures, pong ends with it.
 */
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

#define STOP UINT32_MAX

enum {
	LINE = 64,
	BATCH = 1000, /* round trips between two looks at the clock */
	MAX_BATCHES = 100000,
};

struct line {
	alignas(LINE) _Atomic(uint32_t) turn;
};

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static uint32_t await_change(struct line *line, uint32_t old)
{
	uint32_t turn;

	while (1) {
		turn = atomic_load_explicit(&line->turn, memory_order_acquire);
		if (turn != old)
			return turn;
		relax();
	}
}

static void pass(struct line *line, uint32_t turn)
{
	atomic_store_explicit(&line->turn, turn, memory_order_release);
}

/* The server answers each odd number with the next even one. */
static void answer(void *argument)
{
	struct line *line = argument;
	uint32_t turn = 0;

	pin(SERVER_CPU);
	while (1) {
		turn = await_change(line, turn);
		if (turn == STOP)
			return;
		pass(line, ++turn);
	}
}

static void bounce(struct line *line, uint32_t *turn)
{
	int i;

	for (i = 0; i < BATCH; i++) {
		pass(line, *turn + 1);
		*turn = await_change(line, *turn + 1);
		if (*turn >= STOP - 2)
			abort();
	}
}

/* Measure, with the other side there or on its way. */
static void measure(struct line *line, uint64_t limit)
{
	double *batches = calloc(MAX_BATCHES, sizeof(*batches));
	uint64_t begin, start, end;
	uint32_t turn = 0;
	size_t n = 0;

	if (!batches)
		fail("calloc");
	bounce(line, &turn);
	begin = now_ns();
	start = begin;
	do {
		bounce(line, &turn);
		end = now_ns();
		batches[n++] = (double)(end - start) / BATCH / 2;
		start = end;
	} while (end - begin < limit && n < MAX_BATCHES);
	pass(line, STOP);
	report("raw", "raw", LINE, median(batches, n) / 1000, "us");
	free(batches);
}

int main(int argc, char **argv)
{
	uint64_t limit = (argc > 1 ? parse_size(argv[1]) : 200) * NSEC_PER_MSEC;
	struct line *line;
	pid_t peer;

	if (argc == 5) {
		line = file_memory(argv[3], argv[4], sizeof(*line));
		if (strcmp(argv[2], "pong"))
			measure(line, limit);
		else
			answer(line);
		return 0;
	}
	line = shared_memory(sizeof(*line));
	peer = start_side(answer, line);
	pin(CLIENT_CPU);
	measure(line, limit);
	join_side(peer);
	return 0;
}
