// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Windows that were unregistered, or whose endpoint was closed: what may still use them,
 * and when their memory goes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "rma.h"

/* With the windows' lock: the peer shall say when it is done with them. */
static void ask_release(struct scif_endpoint *ep)
{
	struct scif_message message = { .type = SCIF_RELEASE };
	struct scif_rma *rma = ep->rma;

	if (rma->asking || rma->asked_release == rma->last_release ||
	    scif_state(ep) != SCIF_CONNECTED)
		return;
	rma->asking = true;
	scif_process_await(&rma->heard);
	rma->asked_release = rma->last_release;
	message.args[0] = rma->asked_release;
	if (scif_link_send(&ep->link, &message))
		scif_lost(ep);
}

void scif_released(struct scif_endpoint *ep, uint64_t number)
{
	struct scif_rma *rma = ep->rma;
	struct scif_closing *closing;

	pthread_mutex_lock(&rma->lock);
	if (rma->asking && !number) {
		scif_process_still(&rma->heard);
	} else if (rma->asking && number == rma->asked_release) {
		rma->asking = false;
		scif_process_had(&rma->heard);
		for (closing = rma->closing; closing; closing = closing->next)
			if (closing->release <= number)
				closing->released = true;
		ask_release(ep);
	}
	pthread_mutex_unlock(&rma->lock);
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/*
 * When the peer is taken to use it no more, if it does not say so (ms). One that is
 * connected tells each second that its copies are under way. When the connection has
 * ended it can use nothing, except where the queue pair for copies stays for mappings:
 * there it begins no copy, and those under way have time to end. To refuse them would
 * break the pair.
 */
static uint64_t peer_ends(struct scif_endpoint *ep,
			  const struct scif_closing *closing)
{
	uint64_t broken = atomic_load(&ep->link.broken);

	if (scif_state(ep) == SCIF_CONNECTED)
		return later(closing->since, atomic_load(&ep->rma->heard)) +
		       SCIF_GRACE_MS;
	if (!atomic_load(&ep->maps))
		return 0;
	return broken ? broken + SCIF_GRACE_MS : UINT64_MAX;
}

static bool is_over(struct scif_endpoint *ep, struct scif_closing *closing)
{
	return !closing->maps &&
	       (closing->released || scif_now_ms() >= peer_ends(ep, closing)) &&
	       scif_barrier_over(ep->rma, &closing->own);
}

/* With the windows' lock, which is let go. */
static void settle(struct scif_endpoint *ep)
{
	struct scif_closing **link = &ep->rma->closing, *over = NULL, *one;

	atomic_fetch_add(&ep->rma->ending, 1);
	while (*link) {
		one = *link;
		if (!is_over(ep, one)) {
			link = &one->next;
			continue;
		}
		*link = one->next;
		one->next = over;
		over = one;
	}
	pthread_mutex_unlock(&ep->rma->lock);
	while ((one = over)) {
		over = one->next;
		scif_window_put_region(ep->rma, one->window.region);
		free(one);
	}
	atomic_fetch_sub(&ep->rma->ending, 1);
}

void scif_windows_settle(struct scif_endpoint *ep)
{
	pthread_mutex_lock(&ep->rma->lock);
	settle(ep);
}

void scif_windows_try_settle(struct scif_endpoint *ep)
{
	if (!pthread_mutex_trylock(&ep->rma->lock))
		settle(ep);
}

/* All of them, or NULL. */
static struct scif_closing *make_closings(unsigned int count)
{
	struct scif_closing *list = NULL, *one;

	while (count--) {
		one = calloc(1, sizeof(*one));
		if (!one)
			goto free_list;
		one->next = list;
		list = one;
	}
	return list;
free_list:
	while ((one = list)) {
		list = one->next;
		free(one);
	}
	return NULL;
}

int scif_windows_end(struct scif_endpoint *ep, unsigned int first,
		     unsigned int count)
{
	struct scif_closing *one, *list = make_closings(count);
	struct scif_rma *rma = ep->rma;
	uint64_t now = scif_now_ms();
	unsigned int i;

	if (!list)
		return ENOMEM;
	rma->last_release++;
	for (i = 0; i < count; i++) {
		one = list;
		list = one->next;
		one->window = rma->windows[first + i];
		one->maps = one->window.maps;
		one->release = rma->last_release;
		one->since = now;
		one->next = rma->closing;
		rma->closing = one;
	}
	scif_windows_take_out(rma, first, i);
	if (scif_state(ep) == SCIF_CONNECTED)
		scif_directory_publish(ep);
	for (one = rma->closing; one; one = one->next)
		if (one->release == rma->last_release)
			scif_barrier_set(rma, &one->own, true);
	ask_release(ep);
	return 0;
}

void scif_windows_unmapped(struct scif_rma *rma)
{
	struct scif_closing *closing;
	unsigned int i;

	pthread_mutex_lock(&rma->lock);
	for (i = 0; i < rma->count; i++)
		rma->windows[i].maps = 0;
	for (closing = rma->closing; closing; closing = closing->next)
		closing->maps = 0;
	pthread_mutex_unlock(&rma->lock);
}

/*
 * When the endpoint is closed, what is not mapped does not stay for what is. Without
 * memory, or when somebody has the lock, who may wait for the peer: at the next tick.
 */
void scif_windows_tick(struct scif_endpoint *ep)
{
	struct scif_rma *rma;
	bool ends;

	if (scif_state(ep) < SCIF_CONNECTED || !ep->rma)
		return;
	rma = ep->rma;
	if (!atomic_load(&ep->maps) && !atomic_load(&rma->heard))
		return;
	if (pthread_mutex_trylock(&rma->lock))
		return;
	if (scif_state(ep) == SCIF_CLOSED && rma->count)
		scif_windows_end(ep, 0, rma->count);
	ends = rma->closing;
	pthread_mutex_unlock(&rma->lock);
	if (!ends)
		return;
	scif_queue_poll(ep);
	scif_windows_try_settle(ep);
}
