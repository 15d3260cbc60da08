/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the parts of the test of shared receive queues need of each other.
 */
#ifndef TESTS_SHARED_H
#define TESTS_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "setup.h"
#include "srq.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { SMALL = 16, LARGE = 256 };

/* Receive @id: its data goes to a slot of its own. */
int try_post_shared(struct ibv_srq *srq, const struct region *region,
		    uint64_t id);
/* Each returns what the verb returns. */
int resize(struct ibv_srq *srq, uint32_t max_wr);
int set_limit(struct ibv_srq *srq, uint32_t limit);

/* @wr, a SEND that gets its data here, arrives in memory that is not there yet. */
bool demand_arrives(struct setup *setup, struct endpoint *a,
		    struct ibv_srq *srq, struct ibv_cq *cq,
		    struct ibv_send_wr wr);
/* The same on a connection of its own. */
bool demand_of(struct setup *setup, enum ibv_qp_type type);

/* Queues of XRC. */
void run_xrc_cases(struct setup *setup, struct neighbours *neighbours);

#endif /* TESTS_SHARED_H */
