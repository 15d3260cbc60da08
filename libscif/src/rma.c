// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * What an endpoint has for windows and copies; requests and replies.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "rma.h"

enum { LOOK_MS = 20, SAY_MS = 1000 };

int scif_rma_open(struct scif_endpoint *ep)
{
	pthread_condattr_t attr;
	struct scif_rma *rma;

	if (ep->rma)
		return 0;
	rma = calloc(1, sizeof(*rma));
	if (!rma)
		return ENOMEM;
	pthread_mutex_init(&rma->lock, NULL);
	pthread_mutex_init(&rma->peer_lock, NULL);
	pthread_mutex_init(&rma->op_lock, NULL);
	pthread_mutex_init(&rma->signal_lock, NULL);
	pthread_mutex_init(&rma->bounce_lock, NULL);
	pthread_mutex_init(&rma->calls[0].lock, NULL);
	pthread_mutex_init(&rma->calls[1].lock, NULL);
	pthread_mutex_init(&rma->settle_lock, NULL);
	pthread_mutex_init(&rma->reply_lock, NULL);
	/* What is waited for has nothing to do with the time of day. */
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&rma->replied, &attr);
	pthread_condattr_destroy(&attr);
	ep->rma = rma;
	return 0;
}

void scif_rma_close(struct scif_endpoint *ep)
{
	struct scif_rma *rma = ep->rma;
	struct scif_leftover *leftover;

	if (!rma)
		return;
	scif_process_had(&rma->heard);
	scif_process_had(&rma->said);
	scif_map_close(rma);
	scif_windows_close(rma);
	scif_directory_close(rma);
	while ((leftover = rma->leftovers)) {
		rma->leftovers = leftover->next;
		scif_region_put(leftover->region);
		free(leftover);
	}
	if (rma->bounce_mr)
		ibv_dereg_mr(rma->bounce_mr);
	free(rma->bounce);
	pthread_mutex_destroy(&rma->lock);
	pthread_mutex_destroy(&rma->peer_lock);
	pthread_mutex_destroy(&rma->op_lock);
	pthread_mutex_destroy(&rma->signal_lock);
	pthread_mutex_destroy(&rma->bounce_lock);
	pthread_mutex_destroy(&rma->calls[0].lock);
	pthread_mutex_destroy(&rma->calls[1].lock);
	pthread_mutex_destroy(&rma->settle_lock);
	pthread_mutex_destroy(&rma->reply_lock);
	pthread_cond_destroy(&rma->replied);
	free(rma);
	ep->rma = NULL;
}

/* With the reply's lock: until it is there, or the connection isn't. */
static int wait_reply(struct scif_endpoint *ep, const struct scif_call *call)
{
	struct scif_rma *rma = ep->rma;
	struct timespec until;

	while (!call->has_reply) {
		if (scif_state(ep) != SCIF_CONNECTED)
			return ECONNRESET;
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += LOOK_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		pthread_cond_timedwait(&rma->replied, &rma->reply_lock, &until);
	}
	return 0;
}

int scif_call(struct scif_endpoint *ep, struct scif_message *message,
	      struct scif_message *reply)
{
	struct scif_rma *rma = ep->rma;
	struct scif_call *call = &rma->calls[message->type == SCIF_WAIT];
	int err;

	pthread_mutex_lock(&call->lock);
	pthread_mutex_lock(&rma->reply_lock);
	/* Tag 0 is that of SCIF_RELEASE. */
	rma->tag += 1 + (rma->tag == UINT32_MAX);
	call->tag = rma->tag;
	call->has_reply = false;
	message->tag = call->tag;
	pthread_mutex_unlock(&rma->reply_lock);
	err = scif_link_send(&ep->link, message);
	if (err)
		scif_lost(ep);
	pthread_mutex_lock(&rma->reply_lock);
	if (!err)
		err = wait_reply(ep, call);
	if (!err)
		*reply = call->reply;
	call->tag = 0;
	pthread_mutex_unlock(&rma->reply_lock);
	pthread_mutex_unlock(&call->lock);
	return err ? err : reply->status;
}

void scif_reply(struct scif_endpoint *ep, uint32_t tag, int status,
		uint64_t value)
{
	struct scif_message reply = { .type = SCIF_REPLY,
				      .tag = tag,
				      .status = status };

	reply.args[0] = value;
	if (scif_link_send(&ep->link, &reply))
		scif_lost(ep);
}

/* With the reply's lock. */
static void take_answer(struct scif_call *call,
			const struct scif_message *message)
{
	call->reply = *message;
	/* An errno that the peer may choose, but only a plain one. */
	if (call->reply.status < 0 || call->reply.status > 133)
		call->reply.status = ECONNRESET;
	call->has_reply = true;
}

static void take_reply(struct scif_endpoint *ep,
		       const struct scif_message *message)
{
	struct scif_rma *rma = ep->rma;
	unsigned int i;

	if (!message->tag) {
		scif_released(ep, message->args[0]);
		return;
	}
	pthread_mutex_lock(&rma->reply_lock);
	for (i = 0; i < 2; i++)
		if (message->tag == rma->calls[i].tag)
			take_answer(&rma->calls[i], message);
	pthread_cond_broadcast(&rma->replied);
	pthread_mutex_unlock(&rma->reply_lock);
}

/* A peer asks for one thing of a kind at a time. */
static void take_wait(struct scif_endpoint *ep,
		      const struct scif_message *message)
{
	struct scif_rma *rma = ep->rma;

	if (rma->waiting || message->args[0] > scif_queue_posted(rma)) {
		scif_lost(ep);
		return;
	}
	pthread_mutex_lock(&rma->settle_lock);
	rma->waiting = true;
	rma->wait_posted = message->args[0];
	rma->wait_tag = message->tag;
	pthread_mutex_unlock(&rma->settle_lock);
}

static void take_release(struct scif_endpoint *ep,
			 const struct scif_message *message)
{
	struct scif_rma *rma = ep->rma;

	if (rma->releasing) {
		scif_lost(ep);
		return;
	}
	pthread_mutex_lock(&rma->settle_lock);
	scif_barrier_set(rma, &rma->release, false);
	rma->release_number = message->args[0];
	rma->releasing = true;
	pthread_mutex_unlock(&rma->settle_lock);
}

/*
 * It counts before anything else: an endpoint that is closed now stays. A peer
 * that cannot have mapped anything does not count at all.
 */
static void take_mapped(struct scif_endpoint *ep,
			const struct scif_message *message)
{
	int err;

	if (!ep->link.dev->direct) {
		scif_reply(ep, message->tag, EOPNOTSUPP, 0);
		return;
	}
	scif_map_peer_more(ep);
	err = scif_check_connected(ep) ?
		      ECONNRESET :
		      scif_window_mapped(ep, message->args[0], true);
	if (err)
		scif_map_peer_less(ep, 1);
	scif_reply(ep, message->tag, err, 0);
}

static void take_unmapped(struct scif_endpoint *ep,
			  const struct scif_message *message)
{
	const struct scif_message heard = { .type = SCIF_HEARD };
	uint32_t i;

	if (message->flags > SCIF_MESSAGE_ARGS) {
		scif_lost(ep);
		return;
	}
	for (i = 0; i < message->flags; i++)
		if (!scif_window_mapped(ep, message->args[i], false))
			scif_map_peer_less(ep, 1);
	if (scif_link_send(&ep->link, &heard))
		scif_lost(ep);
}

/* That this endpoint is closed is no error of the peer's descriptor. */
static void take_signal(struct scif_endpoint *ep,
			const struct scif_message *message)
{
	int err = scif_signal(ep, message);

	scif_reply(ep, message->tag, err == EBADF ? ECONNRESET : err, 0);
}

void scif_rma_message(struct scif_endpoint *ep,
		      const struct scif_message *message)
{
	if (!ep->rma) {
		scif_lost(ep);
		return;
	}
	switch (message->type) {
	case SCIF_REPLY:
		take_reply(ep, message);
		break;
	case SCIF_QUERY:
		scif_reply(ep, message->tag, 0, scif_queue_posted(ep->rma));
		break;
	case SCIF_WAIT:
		take_wait(ep, message);
		break;
	case SCIF_SIGNAL:
		take_signal(ep, message);
		break;
	case SCIF_RELEASE:
		take_release(ep, message);
		break;
	case SCIF_MAPPED:
		take_mapped(ep, message);
		break;
	case SCIF_UNMAPPED:
		take_unmapped(ep, message);
		break;
	case SCIF_HEARD:
		scif_map_heard(ep);
		break;
	case SCIF_END:
		scif_lost(ep);
		break;
	default:
		scif_lost(ep);
	}
}

static bool is_complete(struct scif_rma *rma, uint64_t posted)
{
	bool complete;

	scif_queue_lock(rma);
	complete = rma->completed >= posted && !rma->failed;
	pthread_mutex_unlock(&rma->op_lock);
	return complete;
}

/* With the settle lock. A peer that hears nothing for long does not wait: closing.c. */
static void settle_release(struct scif_endpoint *ep)
{
	struct scif_rma *rma = ep->rma;

	if (scif_barrier_over(rma, &rma->release)) {
		scif_process_had(&rma->said);
		rma->releasing = false;
		scif_reply(ep, 0, 0, rma->release_number);
	} else if (!atomic_load(&rma->said)) {
		scif_process_await(&rma->said);
	} else if (scif_now_ms() >= atomic_load(&rma->said) + SAY_MS) {
		scif_process_still(&rma->said);
		scif_reply(ep, 0, 0, 0);
	}
}

/*
 * With the settle lock: what can be answered now, and freed, also when there is nobody
 * to answer? True if something remains to wait for.
 */
static bool settle(struct scif_endpoint *ep)
{
	struct scif_rma *rma = ep->rma;
	bool answers = scif_queue_poll(ep), remains;

	if (answers && rma->waiting && is_complete(rma, rma->wait_posted)) {
		rma->waiting = false;
		scif_reply(ep, rma->wait_tag, 0, 0);
	}
	if (answers && rma->releasing)
		settle_release(ep);
	scif_windows_settle(ep);
	scif_queue_lock(rma);
	remains = rma->waiting || rma->releasing || rma->closing;
	remains = remains && rma->posted != rma->completed;
	pthread_mutex_unlock(&rma->op_lock);
	return remains;
}

void scif_rma_event(struct scif_endpoint *ep)
{
	/* Before that it may be about to be there. */
	if (scif_state(ep) < SCIF_CONNECTED || !ep->rma)
		return;
	pthread_mutex_lock(&ep->rma->settle_lock);
	if (settle(ep) && !ibv_req_notify_cq(ep->link.rma_cq, 0))
		settle(ep);
	pthread_mutex_unlock(&ep->rma->settle_lock);
}

void scif_rma_tick(struct scif_endpoint *ep)
{
	int state = scif_state(ep);
	struct scif_rma *rma;

	if (state < SCIF_CONNECTED || !ep->rma)
		return;
	rma = ep->rma;
	if (state == SCIF_CONNECTED && atomic_load(&rma->said))
		scif_rma_event(ep);
	if (state == SCIF_CONNECTED)
		return;
	scif_process_had(&rma->said);
	scif_process_had(&rma->heard);
}
