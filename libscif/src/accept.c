// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Accepting. Requests wait in the listener's list, up to its backlog.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>

#include "rma.h"

/* How long who does not wait for a connection is kept by those that come to nothing. */
enum { BUSY_MS = 1000 };

/*
 * A peer says which node it is. Its kernel says the address, which has to be that
 * node's, if there is such a node.
 */
static bool is_honest(struct rdma_cm_id *id, const struct scif_hello *hello)
{
	const struct scif_node *node = scif_node(hello->node);

	return !node || scif_has_address(node, rdma_get_peer_addr(id));
}

bool scif_request_event(struct scif_endpoint *listener, struct rdma_cm_id *id,
			const struct scif_hello *hello)
{
	struct scif_pending *pending, **last;
	bool keep = false;

	pthread_mutex_lock(&listener->lock);
	if (scif_state(listener) != SCIF_LISTENING ||
	    listener->waiting >= listener->backlog ||
	    hello->magic != SCIF_MAGIC || hello->protocol != SCIF_PROTOCOL ||
	    !is_honest(id, hello))
		goto unlock;
	pending = calloc(1, sizeof(*pending));
	if (!pending)
		goto unlock;
	pending->id = id;
	pending->hello = *hello;
	for (last = &listener->pending; *last; last = &(*last)->next)
		;
	*last = pending;
	listener->waiting++;
	keep = true;
	scif_refresh(listener, -1);
unlock:
	pthread_mutex_unlock(&listener->lock);
	return keep;
}

/* Refuse all. */
void scif_pending_clear(struct scif_endpoint *listener)
{
	struct scif_pending *list, *next;

	pthread_mutex_lock(&listener->lock);
	list = listener->pending;
	listener->pending = NULL;
	listener->waiting = 0;
	pthread_mutex_unlock(&listener->lock);
	for (; list; list = next) {
		next = list->next;
		scif_end_id(list->id);
		free(list);
	}
}

static struct scif_pending *take(struct scif_endpoint *listener, scif_epd_t epd)
{
	struct scif_pending *pending;

	pthread_mutex_lock(&listener->lock);
	pending = listener->pending;
	if (pending) {
		listener->pending = pending->next;
		listener->waiting--;
	}
	scif_refresh(listener, epd);
	pthread_mutex_unlock(&listener->lock);
	return pending;
}

/* For the next accept, unless the listener was closed meanwhile. */
static void put_back(struct scif_endpoint *listener,
		     struct scif_pending *pending)
{
	pthread_mutex_lock(&listener->lock);
	if (scif_state(listener) != SCIF_LISTENING) {
		pthread_mutex_unlock(&listener->lock);
		scif_end_id(pending->id);
		free(pending);
		return;
	}
	pending->next = listener->pending;
	listener->pending = pending;
	listener->waiting++;
	scif_refresh(listener, -1);
	pthread_mutex_unlock(&listener->lock);
}

/*
 * What this side lacks, which the next one would not get either, and what failed because
 * the peer has gone.
 */
static int accept_error(int err)
{
	switch (err) {
	case ENOMEM:
	case EAGAIN:
	case EMFILE:
	case ENFILE:
	case ENOSPC:
		return ENOMEM;
	case EACCES: /* rdma_cm's, for who has other credentials than it knows */
		return EACCES;
	default:
		return ECONNABORTED;
	}
}

/*
 * What was taken is not lost by a signal, which counts if it comes to nothing; ticks bound
 * the wait. 0 or an errno.
 */
static int wait_for_peer(struct scif_endpoint *ep, scif_epd_t epd,
			 bool *interrupted)
{
	int err;

	while ((err = scif_connect_wait(ep, epd)) == EINTR) {
		*interrupted = true;
		sched_yield();
	}
	return err;
}

/* 0, ENOMEM, EACCES, or ECONNABORTED if the peer is not there any more. */
static int answer(struct scif_endpoint *ep, scif_epd_t epd,
		  const struct scif_hello *hello, bool *interrupted)
{
	int err;

	pthread_mutex_lock(&ep->lock);
	scif_connect_begin(ep, SCIF_ACCEPT_MS);
	err = scif_link_open(&ep->link, ep->link.id, ep);
	if (!err)
		err = scif_rma_open(ep);
	if (!err)
		err = scif_link_join(&ep->link, hello, ep->peer.node);
	scif_refresh(ep, epd);
	if (!err)
		err = scif_connect_answer(ep);
	pthread_mutex_unlock(&ep->lock);
	if (!err)
		err = wait_for_peer(ep, epd, interrupted);
	/* Or its descriptor was closed, which nobody knows yet. */
	if (!err && scif_state(ep) != SCIF_CONNECTED &&
	    scif_state(ep) != SCIF_DISCONNECTED)
		err = ECONNABORTED;
	return err ? accept_error(err) : 0;
}

/* Make the new endpoint from a request; -1 with errno. */
static scif_epd_t establish(struct scif_endpoint *listener,
			    struct scif_pending *pending, bool *interrupted)
{
	struct scif_endpoint *ep;
	scif_epd_t epd;
	int err;

	epd = scif_endpoint_new(&ep);
	if (epd < 0) {
		err = errno;
		put_back(listener, pending);
		errno = err;
		return -1;
	}
	ep->port = listener->port;
	ep->peer.node = pending->hello.node;
	ep->peer.port = pending->hello.port;
	ep->link.id = pending->id;
	/* Whom its events are for, from now on. */
	pthread_mutex_lock(&scif_process.cm_lock);
	pending->id->context = ep;
	pthread_mutex_unlock(&scif_process.cm_lock);
	err = answer(ep, epd, &pending->hello, interrupted);
	if (err) {
		scif_close_own(ep, epd);
		scif_endpoint_shutdown(ep);
		epd = -1;
	} else {
		ep->connect_untold = false;
		scif_refresh(ep, epd);
	}
	free(pending);
	scif_put(ep);
	return err ? scif_fail(err) : epd;
}

static int do_accept(struct scif_endpoint *listener, scif_epd_t epd,
		     struct scif_port_id *peer, scif_epd_t *newepd, int flags)
{
	struct scif_pending *pending;
	const uint64_t began = scif_now_ms();
	struct scif_port_id from;
	bool interrupted = false;
	scif_epd_t new;

	if (flags & SCIF_ACCEPT_SYNC)
		scif_signals_hold();
	for (;;) {
		pending = take(listener, epd);
		if (!pending && scif_state(listener) == SCIF_CLOSED)
			return EINTR;
		if (!pending && atomic_load(&listener->removed))
			return ENODEV;
		if (!pending && !(flags & SCIF_ACCEPT_SYNC))
			return EAGAIN;
		if (!pending) {
			if (scif_sleep(listener, epd, POLLIN))
				return EINTR;
			continue;
		}
		from.node = pending->hello.node;
		from.port = pending->hello.port;
		new = establish(listener, pending, &interrupted);
		if (new >= 0)
			break;
		/* That one went away; perhaps another one waits. */
		if (errno != ECONNABORTED)
			return errno;
		if (!(flags & SCIF_ACCEPT_SYNC) &&
		    scif_now_ms() >= began + BUSY_MS) {
			/* Others wait, perhaps, and who got EAGAIN waits for a change. */
			scif_show_again(listener, epd);
			return EAGAIN;
		}
		if (flags & SCIF_ACCEPT_SYNC && interrupted)
			return EINTR;
	}
	*peer = from;
	*newepd = new;
	return 0;
}

SCIF_EXPORT int scif_accept(scif_epd_t epd, struct scif_port_id *peer,
			    scif_epd_t *newepd, int flags)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *listener = scif_get(epd);
	int err = EINVAL;

	if (!listener)
		return -1;
	if (!(flags & ~SCIF_ACCEPT_SYNC) && peer && newepd &&
	    scif_state(listener) == SCIF_LISTENING)
		err = do_accept(listener, epd, peer, newepd, flags);
	scif_put(listener);
	return err ? scif_fail(err) : 0;
}
