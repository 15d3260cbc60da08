// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completions of what is destroyed or reset, which are not returned any more. They are
 * taken out of those that wait, and the others move together behind them, so that their
 * places are free at once: before the next poll there may come as many as the queue then
 * has room for. What waits is this process's, whatever the kernel writes behind it.
 */
#include <stdlib.h>

#include "mic.h"

/* Elements of a ring, looked at from the last one that waits to the first. */
struct sweep {
	uint32_t from; /* those from here on were looked at */
	uint32_t to;   /* those that stay are here and behind */
};

/* Of the kernel's ring the one before @from. A place keeps its mark of who has it. */
static void sweep_ring(struct mic_cq_ring *ring, struct sweep *sweep,
		       uint32_t number, mic_matches *matches)
{
	const uint32_t mask = ring->entries - 1;
	struct mic_cqe cqe = ring->elements[--sweep->from & mask];
	struct mic_cqe *place;

	if (matches(&cqe, number) || --sweep->to == sweep->from)
		return;
	place = &ring->elements[sweep->to & mask];
	cqe.owner = place->owner;
	*place = cqe;
}

/* Of our own. Those of the kernel's ring behind it have moved. */
static void sweep_own(struct mic_own *own, struct sweep *sweep,
		      const struct sweep *ring, uint32_t number,
		      mic_matches *matches)
{
	struct mic_cqe cqe = own->slots[--sweep->from & own->mask];

	if (matches(&cqe, number))
		return;
	cqe.owner += ring->to - ring->from;
	own->slots[--sweep->to & own->mask] = cqe;
}

static uint32_t end_of_ring(const struct mic_cq_ring *ring)
{
	uint32_t index = ring->consumer;

	while (index - ring->consumer < ring->entries &&
	       mic_cq_peek(ring, index))
		index++;
	return index;
}

/* Both locks are held, so nobody else looks at what waits, or adds to our own. */
static void take_out(struct mic_cq *cq, uint32_t number, mic_matches *matches)
{
	struct sweep ring = { .from = end_of_ring(&cq->ring) };
	struct mic_own *own = &cq->own;
	struct sweep mine = { .from = atomic_load(&own->producer) };
	const struct mic_cqe *cqe;

	ring.to = ring.from;
	for (mine.to = mine.from; mine.from != own->consumer;
	     sweep_own(own, &mine, &ring, number, matches)) {
		cqe = &own->slots[(mine.from - 1) & own->mask];
		while (ring.from != cq->ring.consumer &&
		       (int32_t)(ring.from - cqe->owner) > 0)
			sweep_ring(&cq->ring, &ring, number, matches);
	}
	while (ring.from != cq->ring.consumer)
		sweep_ring(&cq->ring, &ring, number, matches);
	cq->ring.consumer = ring.to;
	mic_cq_publish(&cq->ring);
	own->consumer = mine.to;
	mic_own_publish(own);
	/* What was known may be behind that. */
	mic_own_look(own);
}

/* For when the ring can be mapped. Who destroys has made room for so little before. */
static void remember(struct mic_cq *cq, uint32_t number, mic_matches *matches)
{
	struct mic_forgotten *forgotten = malloc(sizeof(*forgotten));

	if (!forgotten)
		return;
	forgotten->number = number;
	forgotten->matches = matches;
	forgotten->next = cq->forgotten;
	cq->forgotten = forgotten;
}

static void forget(struct ibv_cq *ibcq, uint32_t number, mic_matches *matches)
{
	struct mic_cq *cq = to_mcq(ibcq);

	if (!mic_map_is_own(&cq->ring.map))
		return;
	mic_lock(&cq->lock);
	mic_lock(&cq->own.lock);
	mic_cq_catch_up(cq);
	if (atomic_load(&cq->behind))
		remember(cq, number, matches);
	take_out(cq, number, matches);
	mic_unlock(&cq->own.lock);
	mic_unlock(&cq->lock);
}

void mic_cq_forget_no_more(struct mic_cq *cq)
{
	struct mic_forgotten *forgotten;

	while ((forgotten = cq->forgotten)) {
		cq->forgotten = forgotten->next;
		free(forgotten);
	}
}

/* The ring is here in which they are. Both locks are held. */
void mic_cq_forget_late(struct mic_cq *cq)
{
	const struct mic_forgotten *forgotten;

	for (forgotten = cq->forgotten; forgotten; forgotten = forgotten->next)
		take_out(cq, forgotten->number, forgotten->matches);
	mic_cq_forget_no_more(cq);
}

static bool is_of_qp(const struct mic_cqe *cqe, uint32_t qp_num)
{
	return cqe->qp_num == qp_num;
}

/* The queue pair is destroyed or reset and adds no more elements. */
void mic_cq_forget_qp(struct ibv_cq *cq, uint32_t qp_num)
{
	forget(cq, qp_num, is_of_qp);
}

static bool is_of_srq(const struct mic_cqe *cqe, uint32_t srqn)
{
	return cqe->srqn == srqn;
}

/*
 * The same for an XRC shared receive queue. Its completions are its own, not
 * those of the queue pairs that used it, which are anybody's.
 */
void mic_cq_forget_srq(struct ibv_cq *cq, uint32_t srqn)
{
	forget(cq, srqn, is_of_srq);
}
