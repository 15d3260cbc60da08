// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completions of what is destroyed or reset, which are not returned any more.
 */
#include <stdlib.h>

#include "mic.h"

/*
 * The places of those that come first are free at once: until the next poll there
 * may come more than the queue has room for beside them.
 */
static void drop_forgotten(struct mic_cq *cq)
{
	struct mic_cqe *cqe, *ring;

	for (;;) {
		ring = mic_cq_peek(&cq->ring, cq->ring.consumer);
		cqe = mic_own_peek(&cq->own, cq->ring.consumer);
		if (!cqe)
			cqe = ring;
		if (!cqe || cqe->opcode != MIC_WC_FORGOTTEN)
			break;
		if (cqe == ring)
			cq->ring.consumer++;
		else
			cq->own.consumer++;
	}
	mic_cq_publish(&cq->ring);
	mic_own_publish(&cq->own);
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

static void mark(struct mic_cq *cq, uint32_t number, mic_matches *matches)
{
	struct mic_cqe *cqe;
	uint32_t index;

	for (index = cq->ring.consumer;
	     index - cq->ring.consumer < cq->ring.entries; index++) {
		cqe = mic_cq_peek(&cq->ring, index);
		if (!cqe)
			break;
		if (matches(cqe, number))
			cqe->opcode = MIC_WC_FORGOTTEN;
	}
}

/*
 * Elements that must not be returned stay where they are, marked, so that
 * nothing the kernel may write at the same time is touched.
 */
static void forget(struct ibv_cq *ibcq, uint32_t number, mic_matches *matches)
{
	struct mic_cq *cq = to_mcq(ibcq);

	if (!mic_map_is_own(&cq->ring.map))
		return;
	mic_lock(&cq->lock);
	mic_lock(&cq->own.lock);
	mic_cq_catch_up(cq);
	mic_own_forget(&cq->own, number, matches);
	if (atomic_load(&cq->behind))
		remember(cq, number, matches);
	mic_unlock(&cq->own.lock);
	mark(cq, number, matches);
	drop_forgotten(cq);
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
		mark(cq, forgotten->number, forgotten->matches);
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
