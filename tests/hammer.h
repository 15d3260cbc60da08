/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A thread that accesses a window of a peer's memory without an end, while
 * something happens to the window.
 */
#ifndef TESTS_HAMMER_H
#define TESTS_HAMMER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct micdv_window;

struct hammer {
	volatile uint64_t *addr;
	size_t words;
	atomic_bool stop;
	atomic_ulong rounds;
	atomic_bool saw_later;
	pthread_t thread;
};

/* Returns when the window was accessed. */
void hammer_start(struct hammer *hammer, const struct micdv_window *window);
void hammer_stop(struct hammer *hammer);

/*
 * Is @memory, which the window showed, out of its reach? Neither is it written
 * nor is what is written there now read.
 */
bool hammer_misses(struct hammer *hammer, void *memory);

#endif /* TESTS_HAMMER_H */
