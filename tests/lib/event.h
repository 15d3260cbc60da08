/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Asynchronous events of a context.
 */
#ifndef TESTS_EVENT_H
#define TESTS_EVENT_H

#include <stdbool.h>
#include <infiniband/verbs.h>

/* Let reading events of @ctx return at once when there is none. */
void events_prepare(struct ibv_context *ctx);

/*
 * Wait for an event of @type about @object (a queue pair, completion queue
 * or receive queue, by type), with a remark if another one or none comes.
 * Communication-established events don't count.
 */
bool event_expect(struct ibv_context *ctx, enum ibv_event_type type,
		  const void *object);

/* Is there no event? Takes what there is, with a remark. */
bool events_none(struct ibv_context *ctx);

/* Take what events there are. */
void events_drop(struct ibv_context *ctx);

#endif /* TESTS_EVENT_H */
