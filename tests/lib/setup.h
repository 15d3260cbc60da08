/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What most tests start from: two devices with memory, and neighbours, whom
 * nothing of a case may disturb.
 */
#ifndef TESTS_SETUP_H
#define TESTS_SETUP_H

#include <stdbool.h>
#include <stddef.h>

#include "device.h"
#include "endpoint.h"
#include "memory.h"

struct setup {
	struct device a_dev;
	struct device b_dev;
	struct region a_mem;
	struct region b_mem;
};

/* Open the devices that device_names() finds; memory of @bytes on each. */
void setup_open(struct setup *setup, int *argc, char **argv, size_t bytes);
void setup_close(struct setup *setup);

/* Is one of the devices another machine's (proxy.h)? */
bool setup_is_remote(const struct setup *setup);
/* @count, or a tenth of it if so: then each takes several messages. */
unsigned int repetitions(const struct setup *setup, unsigned int count);

/* A connection of its own between the same devices, in the same PDs. */
struct neighbours {
	struct endpoint a;
	struct endpoint b;
	struct region a_mem;
	struct region b_mem;
	uint32_t rounds;
};

void neighbours_open(struct neighbours *neighbours, struct setup *setup);
void neighbours_close(struct neighbours *neighbours);

/* Does the connection still work? */
bool neighbours_work(struct neighbours *neighbours);

#endif /* TESTS_SETUP_H */
