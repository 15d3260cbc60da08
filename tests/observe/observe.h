/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the parts of the test share: two devices with memory, and traffic
 * between them.
 */
#ifndef TESTS_OBSERVE_H
#define TESTS_OBSERVE_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/micdv.h>

#include "device.h"
#include "endpoint.h"
#include "memory.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (4UL << 20)
#define RECEIVE_OFFSET (2UL << 20)
#define RECEIVE_BYTES 4096U

/* From @a to @b: endpoints of @options, made for each case. */
struct setup {
	struct device a_dev;
	struct device b_dev;
	struct region a_mem;
	struct region b_mem;
	struct endpoint a;
	struct endpoint b;
};

/* Post one request of @bytes from @a to @b's memory; @id is its wr_id. */
void request(struct setup *setup, uint64_t id, enum ibv_wr_opcode opcode,
	     uint32_t bytes);

/* The same, and wait until it completed with @status. */
bool request_ends(struct setup *setup, enum ibv_wr_opcode opcode,
		  uint32_t bytes, enum ibv_wc_status status);

/* Post a receive at @b. */
void receive(struct setup *setup, uint64_t id);

/* @count of these with success; receives that they need are there. */
bool exchange(struct setup *setup, enum ibv_wr_opcode opcode, uint32_t bytes,
	      int count);

/* Map @bytes of @b's memory for @a, from its start on. */
struct micdv_window *map_window(struct setup *setup, size_t bytes);

/* Options for faults that are found without much waiting. */
struct endpoint_options impatient_options(void);

enum { LINE_BYTES = 1024, FILTERS = 3 };

/* Words that a line of rdma resource has to have, each after its name. */
struct filter {
	const char *name;
	const char *word;
};

/*
 * Are as many objects of @kind at @dev this process's and pass? The last one goes to
 * @found, which may be NULL.
 */
bool list_is(const struct device *dev, const char *kind,
	     const struct filter *filters, char *found, int expected);

/* operations.c: some operations of each kind; false, with a remark, if they fail. */
bool count_atomic_writes(struct setup *setup);
bool count_answers(struct setup *setup);
bool count_local_invalidation(struct setup *setup);
bool count_remote_invalidation(struct setup *setup);
bool count_xrc(struct setup *setup);

/* The parts. */
void test_counters(struct setup *setup);
void test_port(struct setup *setup);
void test_resources(struct setup *setup);
/* Of test_resources(): connections of rdma_cm, and regions of each kind. */
void test_links(struct setup *setup);
void test_kinds(struct setup *setup);
void test_debugfs(struct setup *setup);
void test_timers(struct setup *setup);
void test_trace(struct setup *setup);

#endif /* TESTS_OBSERVE_H */
