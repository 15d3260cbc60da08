// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * What is mapped of peers' windows.
 *
 * A part lives as long as the queue pair for copies on both sides, and the
 * region. So the owner is told of each and keeps them, also when the window is
 * unregistered and when the connection ends. It is told of the ends, too, some at a
 * time: it may be stopped, and then the others wait, and who unmaps does not. When
 * the connection has ended, a side that maps
 * nothing any more writes so to the other from time to time. If that fails, the
 * other's queue pair has gone, and its mappings with it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "map.h"

/* No two overlap. An address is in one of them before it is mapped, or as it is unmapped. */
static pthread_mutex_t spans_lock = PTHREAD_MUTEX_INITIALIZER;
static struct scif_span *spans;

/*
 * The lists of parts that peers have not been told of. Apart, for the progress thread: it
 * does not wait while a program unmaps much, or what takes long.
 */
static pthread_mutex_t ended_lock = PTHREAD_MUTEX_INITIALIZER;

void scif_map_abandon(void)
{
	pthread_mutex_init(&spans_lock, NULL);
	pthread_mutex_init(&ended_lock, NULL);
	spans = NULL;
}

/* Has it spans, or, as others change them, perhaps? */
static bool may_have_spans(const struct scif_endpoint *ep)
{
	const struct scif_span *span;

	if (pthread_mutex_trylock(&spans_lock))
		return true;
	for (span = spans; span && span->ep != ep; span = span->next)
		;
	pthread_mutex_unlock(&spans_lock);
	return span;
}

/* --- how many there are, of one's own and the peer's -------------------------- */

static void count_more(struct scif_endpoint *ep)
{
	if (!atomic_fetch_add(&ep->maps, 1))
		atomic_fetch_add(&scif_process.mapped, 1);
}

/* The last one takes along what is left of an endpoint that has ended. */
static void count_less(struct scif_endpoint *ep, int count)
{
	if (atomic_fetch_sub(&ep->maps, count) != count)
		return;
	atomic_fetch_sub(&scif_process.mapped, 1);
	if (scif_state(ep) < SCIF_DISCONNECTED)
		return;
	scif_link_break(&ep->link, true);
	if (scif_state(ep) == SCIF_CLOSED) {
		scif_table_remove(ep);
		return;
	}
	/* There are no more ticks for the windows that went. */
	scif_queue_poll(ep);
	scif_windows_settle(ep);
}

void scif_map_peer_more(struct scif_endpoint *ep)
{
	atomic_fetch_add(&ep->peer_maps, 1);
	count_more(ep);
}

void scif_map_peer_less(struct scif_endpoint *ep, int count)
{
	atomic_fetch_sub(&ep->peer_maps, count);
	count_less(ep, count);
}

void scif_part_count(struct scif_part *part)
{
	atomic_fetch_add(&part->ep->refs, 1);
	count_more(part->ep);
}

/* Tell the peer that this side maps nothing; false if it is not there. */
static bool tell_unmapped(struct scif_endpoint *ep)
{
	const uint32_t unmapped = 1;
	struct ibv_sge sge = { .length = sizeof(unmapped) };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = ep->link.peer_addr +
					    offsetof(struct scif_shared,
						     unmapped),
			     .rkey = ep->link.peer_rkey },
	};
	bool idle;

	if (!scif_queue_poll(ep))
		return false;
	scif_queue_lock(ep->rma);
	idle = ep->rma->posted == ep->rma->completed;
	pthread_mutex_unlock(&ep->rma->op_lock);
	return !idle || !scif_queue_post_value(ep, &wr, &unmapped);
}

/*
 * After the connection. The two sides do not wait for each other: one says that it has
 * unmapped all while the other's mappings, and with them the queue pairs, are there.
 */
void scif_map_tick(struct scif_endpoint *ep)
{
	int maps = atomic_load(&ep->peer_maps);

	if (!maps || scif_state(ep) < SCIF_DISCONNECTED)
		return;
	if (atomic_load(&ep->link.shared->unmapped) ||
	    (!may_have_spans(ep) && !tell_unmapped(ep))) {
		scif_windows_unmapped(ep->rma);
		scif_map_peer_less(ep, maps);
	}
}

/* --- the ends of parts ------------------------------------------------------- */

/*
 * With the lock: which parts the peer is told of next. The last to end is the
 * first: the peer hears of several at once, and had to agree to each one.
 */
static void take_ended(struct scif_rma *rma, struct scif_message *message)
{
	struct scif_part *part;

	while (message->flags < SCIF_MESSAGE_ARGS && (part = rma->unmapped)) {
		message->args[message->flags++] = part->id;
		rma->unmapped = part->next;
		free(part);
	}
}

/* One message at a time: the peer may be stopped, and has room for few. */
static void tell_ended(struct scif_endpoint *ep)
{
	struct scif_message message = { .type = SCIF_UNMAPPED };
	struct scif_rma *rma = ep->rma;

	if (scif_state(ep) != SCIF_CONNECTED)
		return;
	pthread_mutex_lock(&ended_lock);
	if (!rma->unmapping)
		take_ended(rma, &message);
	if (message.flags)
		rma->unmapping = true;
	pthread_mutex_unlock(&ended_lock);
	if (message.flags && scif_link_send(&ep->link, &message))
		scif_lost(ep);
}

void scif_map_heard(struct scif_endpoint *ep)
{
	pthread_mutex_lock(&ended_lock);
	ep->rma->unmapping = false;
	pthread_mutex_unlock(&ended_lock);
	tell_ended(ep);
}

void scif_map_close(struct scif_rma *rma)
{
	struct scif_part *part;

	while ((part = rma->unmapped)) {
		rma->unmapped = part->next;
		free(part);
	}
}

void scif_part_end(struct scif_part *list)
{
	struct scif_endpoint *ep;
	struct scif_part *part;

	while ((part = list)) {
		list = part->next;
		ep = part->ep;
		if (part->window)
			ep->link.dev->direct->release(part->window);
		count_less(ep, 1);
		pthread_mutex_lock(&ended_lock);
		part->next = ep->rma->unmapped;
		ep->rma->unmapped = part;
		pthread_mutex_unlock(&ended_lock);
		if (!list || list->ep != ep)
			tell_ended(ep);
		scif_put(ep);
	}
}

/* --- addresses ----------------------------------------------------------------- */

static bool overlaps(const struct scif_span *span, const uint8_t *start,
		     const uint8_t *end)
{
	return span->start < end && start < span->end;
}

static bool is_being_made(const uint8_t *start, const uint8_t *end)
{
	const struct scif_span *span;

	for (span = spans; span; span = span->next)
		if (!span->part && overlaps(span, start, end))
			return true;
	return false;
}

/* The middle goes: @rest is what is behind it. */
static void split(struct scif_span *span, struct scif_span *rest,
		  uint8_t *start, uint8_t *end)
{
	*rest = *span;
	rest->start = end;
	span->end = start;
	span->next = rest;
	span->part->spans++;
}

/*
 * A change of what is mapped, with the spans' lock. No two spans overlap, so at most one
 * is split.
 */
struct change {
	struct scif_span *spare; /* for that; NULL: it was */
	struct scif_part *ended; /* parts that have nothing left */
};

static bool begin_change(struct change *change)
{
	change->ended = NULL;
	change->spare = malloc(sizeof(*change->spare));
	if (!change->spare)
		return false;
	pthread_mutex_lock(&spans_lock);
	return true;
}

static void end_change(struct change *change)
{
	pthread_mutex_unlock(&spans_lock);
	free(change->spare);
	scif_part_end(change->ended);
}

/* Nothing is mapped there any more. */
static void cut(struct change *change, uint8_t *start, uint8_t *end)
{
	struct scif_span **link = &spans, *span;

	while ((span = *link)) {
		if (!span->part || !overlaps(span, start, end)) {
			link = &span->next;
		} else if (span->start < start && end < span->end) {
			split(span, change->spare, start, end);
			change->spare = NULL;
			return;
		} else if (span->start < start) {
			span->end = start;
		} else if (end < span->end) {
			span->start = end;
		} else {
			*link = span->next;
			if (!--span->part->spans) {
				span->part->next = change->ended;
				change->ended = span->part;
			}
			free(span);
		}
	}
}

/*
 * What the library does not know of was unmapped by munmap(), where the system gives the
 * place away again.
 */
static int reserve(struct change *change, struct scif_span *span, void *addr,
		   size_t len, bool fixed)
{
	void *place;

	if (fixed && is_being_made(addr, (uint8_t *)addr + len))
		return EINVAL;
	place = mmap(addr, len, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
			     (fixed ? MAP_FIXED : 0),
		     -1, 0);
	if (place == MAP_FAILED)
		return errno;
	span->start = place;
	span->end = span->start + len;
	cut(change, span->start, span->end);
	span->next = spans;
	spans = span;
	return 0;
}

int scif_span_reserve(struct scif_span *span, void *addr, size_t len,
		      bool fixed)
{
	struct change change;
	int err;

	if (!begin_change(&change))
		return ENOMEM;
	err = reserve(&change, span, addr, len, fixed);
	end_change(&change);
	return err;
}

void scif_span_replace(struct scif_span *span, struct scif_span *list)
{
	struct scif_span **link;

	pthread_mutex_lock(&spans_lock);
	for (link = &spans; *link && *link != span; link = &(*link)->next)
		;
	if (*link)
		*link = span->next;
	if (!list)
		munmap(span->start, span->end - span->start);
	for (link = &list; *link; link = &(*link)->next)
		;
	*link = spans;
	spans = list;
	pthread_mutex_unlock(&spans_lock);
	free(span);
}

static int unmap(struct change *change, uint8_t *addr, size_t len)
{
	if (is_being_made(addr, addr + len))
		return EINVAL;
	if (munmap(addr, len))
		return errno;
	cut(change, addr, addr + len);
	return 0;
}

int scif_span_unmap(void *addr, size_t len)
{
	struct change change;
	int err;

	if (!begin_change(&change))
		return ENOMEM;
	err = unmap(&change, addr, len);
	end_change(&change);
	return err;
}
