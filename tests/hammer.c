// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A thread that accesses a window of a peer's memory without an end.
 */
#include <infiniband/micdv.h>

#include "clock.h"
#include "hammer.h"
#include "tap.h"

enum { BEFORE = 1, LATER = 2, STEP = 64 };

static void *run(void *argument)
{
	struct hammer *hammer = argument;
	size_t i;

	while (!atomic_load(&hammer->stop)) {
		for (i = 0; i + 1 < hammer->words; i += STEP) {
			hammer->addr[i] = BEFORE;
			if (hammer->addr[i + 1] == LATER)
				atomic_store(&hammer->saw_later, true);
		}
		atomic_fetch_add(&hammer->rounds, 1);
	}
	return NULL;
}

static bool wait_rounds(struct hammer *hammer, unsigned long n)
{
	unsigned long end = atomic_load(&hammer->rounds) + n;
	uint64_t limit = deadline();
	unsigned int round = 0;

	while (atomic_load(&hammer->rounds) < end && now_ms() < limit)
		relax(round++);
	return check(atomic_load(&hammer->rounds) >= end,
		     "the window is not accessed any more");
}

void hammer_start(struct hammer *hammer, const struct micdv_window *window)
{
	hammer->addr = window->addr;
	hammer->words = window->length / sizeof(uint64_t);
	atomic_init(&hammer->stop, false);
	atomic_init(&hammer->rounds, 0);
	atomic_init(&hammer->saw_later, false);
	if (pthread_create(&hammer->thread, NULL, run, hammer))
		bail("pthread_create fails");
	wait_rounds(hammer, 2);
}

void hammer_stop(struct hammer *hammer)
{
	atomic_store(&hammer->stop, true);
	pthread_join(hammer->thread, NULL);
}

bool hammer_misses(struct hammer *hammer, void *memory)
{
	volatile uint64_t *words = memory;
	size_t i;

	for (i = 0; i < hammer->words; i++)
		words[i] = LATER;
	if (!wait_rounds(hammer, 20))
		return false;
	for (i = 0; i < hammer->words; i++)
		if (!check(words[i] == LATER, "word %zu was written", i))
			return false;
	return check(!atomic_load(&hammer->saw_later),
		     "what was written later was read");
}
