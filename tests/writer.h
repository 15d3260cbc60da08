/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A connected pair of queue pairs of which one writes to the other.
 */
#ifndef TESTS_WRITER_H
#define TESTS_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "setup.h"

enum { DEPTH = 16, INLINE_BYTES = 64, NSEC = 1000000000 };

/* What extended completion queues of the tests can tell. */
#define WC_EX_FLAGS                                                            \
	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |         \
	 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

/* @a's completions of sends go to @cq. */
struct pair {
	struct setup *setup;
	struct ibv_cq *cq;
	struct endpoint a;
	struct endpoint b;
};

struct endpoint_options pair_options(struct ibv_cq *cq);
struct ibv_cq *new_cq(struct setup *setup, int entries);
/* 64 entries; the rest of @attr is the caller's. */
struct ibv_cq_ex *new_cq_ex(struct setup *setup,
			    struct ibv_cq_init_attr_ex *attr);

void pair_open_on(struct pair *pair, struct setup *setup, struct ibv_cq *cq);
void pair_open(struct pair *pair, struct setup *setup, int entries);
/* Destroys @cq too. */
void pair_close(struct pair *pair);

struct ibv_send_wr write_wr(struct pair *pair, uint64_t id,
			    struct ibv_sge *sge);
/* Signalled WRITEs with ids from @first, which are left to complete. */
void post_writes(struct pair *pair, uint64_t first, unsigned int count);
/* Signalled SENDs, which the kernel executes; returns when they have arrived. */
void post_sends(struct pair *pair, uint64_t first, unsigned int count);
/* When the peer has got a SEND, all WRITEs before it are complete. */
bool settle(struct pair *pair);
bool expect_ids(struct ibv_cq *cq, uint64_t first, unsigned int count);

#endif /* TESTS_WRITER_H */
