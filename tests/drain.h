/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the parts of drain share.
 */
#ifndef TESTS_DRAIN_H
#define TESTS_DRAIN_H

#include <stdbool.h>

#include "setup.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* To SQD, or the end of the test. */
void to_sqd(struct endpoint *ep, bool notify);
/* From RESET to @state, connected to @peer from RTR on. */
void to_state(struct endpoint *ep, const struct endpoint *peer,
	      enum ibv_qp_state state);
/* sq_draining of a queue pair in SQD, or -1, with a remark, if it is not. */
int draining(struct endpoint *ep);
/* Is the next event one of @type about @qp, COMM_EST among them? */
bool event_is(struct ibv_context *ctx, enum ibv_event_type type,
	      const struct ibv_qp *qp);
/* Comes no event for a while? */
bool stays_without_event(struct ibv_context *ctx);

/* drain_middle.c: with a request half done */
void run_middles(struct setup *setup, struct neighbours *neighbours);

/* drain_changes.c: what may be changed meanwhile, and again and again */
void run_changes(struct setup *setup, struct neighbours *neighbours);

/* drain_xrc.c: initiators and targets destroyed in every state, and established */
void run_xrc(struct setup *setup, struct neighbours *neighbours);

#endif /* TESTS_DRAIN_H */
