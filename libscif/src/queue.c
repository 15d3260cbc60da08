// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * The queue pair for copies. Requests complete in the order they were posted,
 * so counting them tells which are done.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "direct.h"
#include "rma.h"

enum {
	BATCH = 16,
	CACHE_LINE = 64,
	LATER_BYTES = 32 << 10,
	NOW_BYTES = 4 << 20,
	LET_ROUNDS = 4000,
	LOOK_MS = 1000,
	LOOKS = 10 /* by the process's own ticks: if the machine was not stopped */
};

void scif_queue_lock(struct scif_rma *rma)
{
	if (!pthread_mutex_trylock(&rma->op_lock))
		return;
	atomic_fetch_add(&rma->wanting, 1);
	pthread_mutex_lock(&rma->op_lock);
	atomic_fetch_sub(&rma->wanting, 1);
}

/*
 * Between requests that take long to post: who gives the lock back and takes it again
 * is faster than who sleeps for it, as the progress thread may.
 */
static void let_others(struct scif_rma *rma)
{
	unsigned int round;

	for (round = 0; round < LET_ROUNDS && atomic_load(&rma->wanting);
	     round++)
		scif_relax(round);
}

void scif_operation_begin(struct scif_rma *rma, struct scif_operation *op)
{
	struct scif_operation **last;

	op->next = NULL;
	scif_queue_lock(rma);
	op->ticket = ++rma->last_ticket;
	for (last = &rma->operations; *last; last = &(*last)->next)
		;
	*last = op;
	pthread_mutex_unlock(&rma->op_lock);
}

void scif_operation_uses_own(struct scif_rma *rma, struct scif_operation *op)
{
	scif_queue_lock(rma);
	op->own = true;
	pthread_mutex_unlock(&rma->op_lock);
}

void scif_operation_end(struct scif_endpoint *ep, struct scif_operation *op)
{
	struct scif_rma *rma = ep->rma;
	struct scif_operation **link;
	bool somebody_waits;

	scif_queue_lock(rma);
	for (link = &rma->operations; *link != op; link = &(*link)->next)
		;
	*link = op->next;
	somebody_waits = rma->releasing || rma->closing;
	pthread_mutex_unlock(&rma->op_lock);
	if (somebody_waits)
		scif_rma_event(ep);
}

/* With the operations' lock: one that began when the ticket @last was given, or before. */
static bool uses_own(const struct scif_rma *rma, uint64_t last)
{
	const struct scif_operation *op = rma->operations;

	while (op && !op->own)
		op = op->next;
	return op && op->ticket <= last;
}

void scif_operations_wait(struct scif_rma *rma)
{
	unsigned int round = 0;
	uint64_t last;

	scif_queue_lock(rma);
	last = rma->last_ticket;
	while (uses_own(rma, last)) {
		pthread_mutex_unlock(&rma->op_lock);
		scif_relax(round++);
		scif_queue_lock(rma);
	}
	pthread_mutex_unlock(&rma->op_lock);
}

/* With the operations' lock. */
static struct scif_leftover *take_leftovers(struct scif_rma *rma)
{
	struct scif_leftover **link = &rma->leftovers, *taken = NULL, *one;

	while (*link) {
		one = *link;
		if (one->posted > rma->completed) {
			link = &one->next;
			continue;
		}
		*link = one->next;
		one->next = taken;
		taken = one;
	}
	return taken;
}

static void free_leftovers(struct scif_rma *rma, struct scif_leftover *list)
{
	struct scif_leftover *next;

	for (; list; list = next) {
		next = list->next;
		scif_region_put(list->region);
		free(list);
	}
	atomic_fetch_sub(&rma->ending, 1);
}

/* With the operations' lock. */
static void poll_queue(struct scif_endpoint *ep)
{
	struct scif_rma *rma = ep->rma;
	struct ibv_wc wcs[BATCH];
	int i, count;

	do {
		count = ibv_poll_cq(ep->link.rma_cq, BATCH, wcs);
		if (count < 0 || atomic_load(&ep->link.gone))
			rma->failed = true;
		for (i = 0; i < count; i++) {
			if (wcs[i].status != IBV_WC_SUCCESS)
				rma->failed = true;
			if (wcs[i].wr_id != SCIF_PROBE)
				rma->completed++;
		}
	} while (count == BATCH);
}

bool scif_queue_poll(struct scif_endpoint *ep)
{
	struct scif_rma *rma = ep->rma;
	struct scif_leftover *done;
	bool failed;

	scif_queue_lock(rma);
	poll_queue(ep);
	done = rma->leftovers ? take_leftovers(rma) : NULL;
	if (done)
		atomic_fetch_add(&rma->ending, 1);
	failed = rma->failed;
	pthread_mutex_unlock(&rma->op_lock);
	if (done)
		free_leftovers(rma, done);
	if (failed)
		scif_lost(ep);
	return !failed;
}

uint64_t scif_queue_posted(struct scif_rma *rma)
{
	uint64_t posted;

	scif_queue_lock(rma);
	posted = rma->posted;
	pthread_mutex_unlock(&rma->op_lock);
	return posted;
}

int scif_queue_wait(struct scif_endpoint *ep, uint64_t posted)
{
	struct scif_rma *rma = ep->rma;
	unsigned int round = 0;
	bool failed, done;

	for (;;) {
		scif_queue_poll(ep);
		scif_queue_lock(rma);
		/* What has failed counts as completed: both by one look. */
		failed = rma->failed;
		done = rma->completed >= posted;
		pthread_mutex_unlock(&rma->op_lock);
		if (failed || done)
			return failed ? ECONNRESET : 0;
		scif_relax(round++);
	}
}

/* With the operations' lock: for how many looks nothing under way completes. */
static unsigned int stands_still(struct scif_rma *rma)
{
	uint64_t now = scif_now_ms();

	if (rma->seen != rma->completed || rma->completed == rma->posted) {
		rma->seen = rma->completed;
		rma->seen_ms = now;
		rma->still = 0;
	} else if (now >= rma->seen_ms + LOOK_MS) {
		rma->still++;
		rma->seen_ms = now;
	}
	return rma->still;
}

/*
 * What the peer does not answer ends, also on a device without timeouts. Before, it
 * is asked what it has got. By the progress thread, also while it waits itself.
 */
void scif_queue_tick(struct scif_endpoint *ep)
{
	unsigned int before, still;
	struct scif_rma *rma;

	/* Only then is there anything. */
	if (scif_state(ep) != SCIF_CONNECTED || ep->link.dev->ack_timeout ||
	    !scif_queue_poll(ep))
		return;
	rma = ep->rma;
	scif_queue_lock(rma);
	before = rma->still;
	still = stands_still(rma);
	if (still > before)
		scif_link_probe(ep->link.rma_qp);
	pthread_mutex_unlock(&rma->op_lock);
	if (still > LOOKS)
		scif_lost(ep);
}

/*
 * On a mic device: who executes this one request. The direct path copies from
 * and to the addresses of one's own memory, as a part of posting. Where they are
 * not what was registered any more, the kernel has to copy, from and to the
 * pages; and what nobody waits for, its worker.
 */
static int post_by(struct scif_endpoint *ep, struct ibv_send_wr *wr,
		   const struct scif_direct *direct, enum micdv_path path)
{
	struct micdv_qp_attr attr = { .path = MICDV_PATH_ENGINE };
	struct ibv_qp *qp = ep->link.rma_qp;
	struct ibv_send_wr *bad;
	int err;

	direct->query_qp(qp, &attr);
	direct->set_path(qp, path);
	err = ibv_post_send(qp, wr, &bad);
	direct->set_path(qp, attr.path);
	return err;
}

/* A place that the last request to use it has left: the queue is no longer. */
static void place_value(struct scif_endpoint *ep, struct ibv_send_wr *wr,
			const void *value)
{
	uint64_t *place =
		&ep->link.local->values[ep->rma->posted % SCIF_RMA_DEPTH];

	memcpy(place, value, wr->sg_list->length);
	wr->sg_list->addr = (uintptr_t)place;
	wr->sg_list->lkey = ep->link.local_mr->lkey;
}

/* What is behind requests under way is not to do them, either. */
static bool is_later(struct scif_endpoint *ep, enum scif_when when)
{
	if (when == SCIF_BEHIND)
		poll_queue(ep);
	return when == SCIF_LATER ||
	       (when == SCIF_BEHIND && ep->rma->posted != ep->rma->completed);
}

/* With the operations' lock, and room for it. */
static bool post(struct scif_endpoint *ep, struct ibv_send_wr *wr,
		 struct scif_region *own, const void *value,
		 enum scif_when when)
{
	const struct scif_direct *direct = ep->link.dev->direct;
	struct ibv_send_wr *bad;

	if (value)
		place_value(ep, wr, value);
	if (direct && is_later(ep, when))
		return !post_by(ep, wr, direct, MICDV_PATH_WORKER);
	if (direct && own && !scif_region_is_there(own))
		return !post_by(ep, wr, direct, MICDV_PATH_ENGINE);
	return !ibv_post_send(ep->link.rma_qp, wr, &bad);
}

/* Of what was posted; 0 if that is complete and leaves nothing to do. */
static uint64_t number_of_last(struct scif_endpoint *ep)
{
	struct scif_rma *rma = ep->rma;

	poll_queue(ep);
	return rma->completed == rma->posted && !rma->failed &&
			       !rma->leftovers ?
		       0 :
		       rma->posted;
}

/*
 * @last: if not NULL, the request's number, which scif_queue_wait() takes; 0 if
 * it, and what was posted before, is complete already.
 */
static int post_or_wait(struct scif_endpoint *ep, struct ibv_send_wr *wr,
			struct scif_region *own, const void *value,
			enum scif_when when, uint64_t *last)
{
	const uint32_t depth = ep->link.dev->depth;
	struct scif_rma *rma = ep->rma;
	struct scif_wait wait = { 0 };
	bool posted = false, failed = false;

	wr->send_flags |= IBV_SEND_SIGNALED;
	while (!posted && !failed) {
		scif_queue_lock(rma);
		if (rma->posted - rma->completed >= depth)
			poll_queue(ep);
		failed = rma->failed;
		if (!failed && rma->posted - rma->completed < depth) {
			posted = post(ep, wr, own, value, when);
			failed = !posted;
			rma->posted += posted;
			if (posted && last)
				*last = number_of_last(ep);
		}
		pthread_mutex_unlock(&rma->op_lock);
		if (!posted && !failed)
			scif_link_wait(&ep->link, &wait);
	}
	scif_link_waited(&ep->link, &wait);
	if (failed)
		scif_lost(ep);
	return failed ? ECONNRESET : 0;
}

int scif_queue_post(struct scif_endpoint *ep, struct ibv_send_wr *wr,
		    struct scif_region *own, enum scif_when when)
{
	return post_or_wait(ep, wr, own, NULL, when, NULL);
}

int scif_queue_post_value(struct scif_endpoint *ep, struct ibv_send_wr *wr,
			  const void *value)
{
	return post_or_wait(ep, wr, NULL, value, SCIF_BEHIND, NULL);
}

/* @length bytes at these places of the pieces. */
static int post_copy(struct scif_endpoint *ep, enum ibv_wr_opcode opcode,
		     const struct scif_piece *own, uint64_t own_at,
		     const struct scif_piece *peer, uint64_t peer_at,
		     uint32_t length, int flags, enum scif_when when,
		     uint64_t *last)
{
	struct ibv_sge sge = {
		.addr = own->addr + own_at,
		.length = length,
		.lkey = own->key,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = flags,
		.wr.rdma = { .remote_addr = peer->addr + peer_at,
			     .rkey = peer->key },
	};

	return post_or_wait(ep, &wr, own->region, NULL, when, last);
}

/* With SCIF_RMA_USECPU the caller has the time. */
static bool is_for_caller(int rma_flags)
{
	return rma_flags & (SCIF_RMA_SYNC | SCIF_RMA_USECPU);
}

/* To hand a copy over takes longer than a short one does. */
static enum scif_when when_to(int rma_flags, uint32_t length)
{
	return is_for_caller(rma_flags) || length < LATER_BYTES ? SCIF_NOW :
								  SCIF_LATER;
}

/*
 * What one request may copy. On a mic device the caller copies while it posts, with
 * the lock, for which the progress thread may wait meanwhile.
 */
static uint32_t most_at_once(const struct scif_device *dev, int rma_flags)
{
	return dev->direct && is_for_caller(rma_flags) &&
			       dev->max_request > NOW_BYTES ?
		       NOW_BYTES :
		       dev->max_request;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* How much the next request copies: the last line goes alone if in order. */
static uint32_t request_length(uint64_t left, uint64_t own, uint64_t peer,
			       uint64_t max, bool ordered)
{
	uint64_t length = least(least(own, peer), max);

	if (ordered && left > CACHE_LINE)
		length = least(length, left - CACHE_LINE);
	return length;
}

int scif_queue_copy(struct scif_endpoint *ep, enum ibv_wr_opcode opcode,
		    const struct scif_pieces *own,
		    const struct scif_pieces *peer, int rma_flags,
		    uint64_t *number)
{
	uint64_t own_at = 0, peer_at = 0, left = 0;
	const struct scif_piece *o = own->list, *p = peer->list;
	uint64_t max = most_at_once(ep->link.dev, rma_flags);
	bool ordered = rma_flags & SCIF_RMA_ORDERED, last;
	bool sync = rma_flags & SCIF_RMA_SYNC;
	uint32_t length;
	unsigned int i;
	int err = 0;

	*number = 0;
	for (i = 0; i < peer->count; i++)
		left += peer->list[i].length;
	while (left && !err) {
		last = ordered && left <= CACHE_LINE;
		length = request_length(left, o->length - own_at,
					p->length - peer_at, max, ordered);
		err = post_copy(ep, opcode, o, own_at, p, peer_at, length,
				last ? IBV_SEND_FENCE : 0,
				last ? SCIF_BEHIND : when_to(rma_flags, length),
				sync && length == left ? number : NULL);
		left -= length;
		own_at += length;
		peer_at += length;
		if (own_at == o->length) {
			o++;
			own_at = 0;
		}
		if (peer_at == p->length) {
			p++;
			peer_at = 0;
		}
		if (left)
			let_others(ep->rma);
	}
	return err;
}

/* With the operations' lock: is it within the windows of the last one? */
static bool is_alike(struct scif_endpoint *ep, bool reads, uint64_t loffset,
		     size_t length, uint64_t roffset)
{
	struct scif_again *again = &ep->rma->again;
	uint64_t own = loffset - again->own.offset;
	uint64_t peer = roffset - again->peer.offset;
	int own_prot = reads ? SCIF_PROT_WRITE : SCIF_PROT_READ;
	int peer_prot = reads ? SCIF_PROT_READ : SCIF_PROT_WRITE;

	return again->valid && again->changes == ep->rma->changes &&
	       again->gen == atomic_load(&ep->link.shared->dir_gen) &&
	       length <= again->own.length &&
	       own <= again->own.length - length &&
	       length <= again->peer.length &&
	       peer <= again->peer.length - length &&
	       again->own.prot & own_prot &&
	       again->peer.prot & (uint32_t)peer_prot;
}

/*
 * Posted while the windows can't go: who takes one out, or has closed the endpoint, takes
 * the lock, and waits then for what was posted before.
 */
bool scif_queue_copy_again(struct scif_endpoint *ep, enum ibv_wr_opcode opcode,
			   uint64_t loffset, size_t length, uint64_t roffset,
			   uint64_t *number)
{
	struct scif_rma *rma = ep->rma;
	struct scif_again *again = &rma->again;
	struct ibv_sge sge = { .length = length };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED };
	bool done = false;

	if (length > most_at_once(ep->link.dev, SCIF_RMA_SYNC))
		return false;
	scif_queue_lock(rma);
	if (rma->posted == rma->completed && !rma->failed &&
	    scif_state(ep) == SCIF_CONNECTED &&
	    is_alike(ep, opcode == IBV_WR_RDMA_READ, loffset, length,
		     roffset)) {
		sge.addr = again->own.region->start +
			   (loffset - again->own.offset);
		sge.lkey = again->own.region->mr->lkey;
		wr.wr.rdma.remote_addr = again->peer.addr +
					 (roffset - again->peer.offset);
		wr.wr.rdma.rkey = again->peer.rkey;
		done = post(ep, &wr, again->own.region, NULL, SCIF_NOW);
		rma->posted += done;
		if (done)
			*number = number_of_last(ep);
	}
	pthread_mutex_unlock(&rma->op_lock);
	return done;
}

void scif_queue_note(struct scif_endpoint *ep, uint64_t loffset,
		     uint64_t roffset)
{
	struct scif_rma *rma = ep->rma;
	struct scif_again again;

	again.valid = scif_own_window(rma, loffset, &again.own,
				      &again.changes) &&
		      scif_peer_window(ep, roffset, &again.peer, &again.gen);
	if (!again.valid)
		return;
	scif_queue_lock(rma);
	rma->again = again;
	pthread_mutex_unlock(&rma->op_lock);
}

void scif_barrier_set(struct scif_rma *rma, struct scif_barrier *barrier,
		      bool own)
{
	scif_queue_lock(rma);
	barrier->ticket = rma->last_ticket;
	barrier->own = own;
	barrier->posted = 0;
	barrier->over = false;
	pthread_mutex_unlock(&rma->op_lock);
}

/* With the operations' lock: one that began before, and may post something still. */
static bool is_awaited(const struct scif_rma *rma,
		       const struct scif_barrier *barrier)
{
	if (barrier->own)
		return uses_own(rma, barrier->ticket);
	return rma->operations && rma->operations->ticket <= barrier->ticket;
}

bool scif_barrier_over(struct scif_rma *rma, struct scif_barrier *barrier)
{
	scif_queue_lock(rma);
	if (!barrier->posted && !is_awaited(rma, barrier))
		barrier->posted = rma->posted + 1;
	if (barrier->posted && rma->completed + 1 >= barrier->posted)
		barrier->over = true;
	pthread_mutex_unlock(&rma->op_lock);
	return barrier->over;
}

static bool is_idle(struct scif_rma *rma)
{
	bool idle;

	scif_queue_lock(rma);
	idle = rma->completed == rma->posted;
	pthread_mutex_unlock(&rma->op_lock);
	return idle;
}

void scif_queue_leave(struct scif_rma *rma, struct scif_region *region)
{
	struct scif_leftover *leftover;

	if (is_idle(rma)) {
		scif_region_put(region);
		return;
	}
	leftover = malloc(sizeof(*leftover));
	if (!leftover)
		return; /* The process's end takes it. */
	leftover->region = region;
	scif_queue_lock(rma);
	leftover->posted = rma->posted;
	leftover->next = rma->leftovers;
	rma->leftovers = leftover;
	pthread_mutex_unlock(&rma->op_lock);
}
