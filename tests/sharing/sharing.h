/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Two processes that have nothing in common but a socket, which run the same cases
 * step by step.
 */
#ifndef TESTS_SHARING_H
#define TESTS_SHARING_H

#include <stdbool.h>
#include <stddef.h>

#include "setup.h"

#define REGION_BYTES (1UL << 16)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct side {
	struct setup setup;
	int socket;
	bool second;
};

/* Wait for the other; false for both if @ok is for one. */
bool meet(struct side *side, bool ok);
/* Give @mine to the other, and take what it gives, or end the test. */
void exchange(struct side *side, const void *mine, void *theirs, size_t length);
/* A file descriptor from the first to the second, which gets one of its own. */
int pass_fd(struct side *side, int fd);

/* XRC domains of a file; contexts that were opened elsewhere. */
void run_domains(struct side *side);
void run_contexts(struct side *side);
/* The second one ends in it. */
void run_death(struct side *side);

/* Report a case that both have run. */
void report(struct side *side, bool ok, const char *name);

#endif /* TESTS_SHARING_H */
