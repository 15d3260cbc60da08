// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Several segments on their way to another machine at once.
 *
 * Nobody waits for an answer before the next segment goes, but for a fence and
 * for what changes a key here. Answers are acted upon in the order of sending.
 * The responder takes nothing out of sequence: when it refuses one, it refuses
 * all that were sent after it, and they are sent again.
 *
 * What brings something back keeps no key meanwhile: where the data goes is
 * looked up anew when it is there. So a region can be deregistered however long
 * the other machine takes. The exception is one on demand: its pages are in
 * place for this access, and its key is held with them until the answer.
 */
#include <linux/hrtimer.h>
#include <linux/jiffies.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "../verbs/counters.h"
#include "../verbs/dev.h"
#include "busy.h"
#include "engine.h"
#include "reply.h"
#include "trace.h"

/* How long room for flights is kept that may not be needed again. */
#define MIC_SPARE_JIFFIES	HZ

/* It is on its way no more; whoever takes it from the spare ones is yet to come. */
static void mic_flight_end(struct mic_req *req, struct mic_flight *flight)
{
	req->nflight--;
	req->flying -= flight->op.seg_len;
	list_move(&flight->entry, &req->spare);
}

static bool mic_flight_has_answer(const struct mic_flight *flight)
{
	/* the flag before the answer */
	return smp_load_acquire(&flight->answered);
}

static void mic_flight_done(struct mic_op *op, enum mic_ack ack)
{
	struct mic_flight *flight = container_of(op, struct mic_flight, op);
	struct mic_qp *qp = flight->qp;

	flight->ack = ack;
	atomic_dec(&qp->req.unanswered);
	mic_answer(&flight->answered);
	mic_qp_answered(qp);
	mic_qp_put(qp);
}

/* Nor is there going to be an answer. */
static void mic_flight_cancelled(struct mic_qp *qp)
{
	atomic_dec(&qp->req.unanswered);
	mic_qp_put(qp);
}

/* READs and atomics need a place for what comes back. */
static bool mic_brings_back(const struct mic_op *op)
{
	return op->code == MIC_OP_READ || op->code == MIC_OP_CMP_SWAP ||
	       op->code == MIC_OP_FETCH_ADD;
}

/* A piece of what was asked for is there, with the operation still pending. */
static void mic_flight_land(struct mic_op *op, u32 off, const void *from,
			    u32 len)
{
	struct mic_flight *flight = container_of(op, struct mic_flight, op);
	const struct mic_seg seg = mic_linear_seg(from, len);
	const struct mic_sgl src = { .seg = &seg, .nseg = 1 };
	struct mic_sges *sges = &flight->sges;
	struct mic_qp *qp = flight->qp;
	bool resolved = sges->nseg;
	struct mic_sgl dst;

	if (!resolved && !flight->status)
		flight->status = mic_sges_resolve(sges, qp->dev, qp->ibqp->pd,
						  IB_ACCESS_LOCAL_WRITE,
						  flight->length, off,
						  off + len);
	if (flight->status)
		return;
	dst.seg = sges->seg;
	dst.nseg = sges->nseg;
	mic_sgl_copy(&dst, off, &src, 0, len);
	if (!resolved)
		mic_sges_release(sges);
}

/**
 * mic_window_admits - whether the next request may follow those on their way
 * @qp: queue pair; the caller holds &mic_req.lock
 *
 * Return: false if it has to wait for answers.
 */
bool mic_window_admits(const struct mic_qp *qp)
{
	const struct mic_req *req = &qp->req;
	const struct mic_opcode *oc = mic_opcode(qp, req->wqe.opcode);

	if (!req->nflight)
		return true;
	if (!oc || oc->kind == MIC_KIND_LOCAL)
		return false;
	if (req->nreads && req->wqe.flags & MIC_WQE_FENCE)
		return false;
	/* one at least, whatever was set: the responder refuses it */
	if (mic_brings_back(&req->op))
		return !req->nreads || req->nreads < qp->attr.max_rd_atomic;
	return req->nflight < MIC_FLIGHTS;
}

/**
 * mic_window_is_open - whether one more segment may be sent
 * @qp: queue pair with segments on their way; the caller holds &mic_req.lock
 *
 * Return: false if answers have to come first.
 */
bool mic_window_is_open(const struct mic_qp *qp)
{
	const struct mic_req *req = &qp->req;

	if (req->flying >= MIC_FLIGHTS * MIC_SEGMENT)
		return false;
	/* after READs there may be more of them */
	if (req->nflight >= MIC_FLIGHTS && !req->nreads)
		return false;
	/* those on their way to a node that left are answered first */
	return !req->held && mic_node_is_live(req->node);
}

/* Memory for flights; those that bring something back need a list each. */
static bool mic_window_alloc(struct mic_qp *qp, struct mic_flight *flight)
{
	struct mic_req *req = &qp->req;
	struct mem_cgroup *before;
	int err;

	if (!mic_brings_back(&req->op) || flight->sges.sge)
		return true;
	before = set_active_memcg(qp->memcg);
	err = mic_sges_init(&flight->sges, req->sges.max, mic_qp_gfp(qp));
	set_active_memcg(before);
	return !err;
}

/*
 * A READ or an atomic counts from its first segment on its way to its last. That is
 * the message's own first one, or where it goes on after a refusal.
 */
static bool mic_flight_counts(const struct mic_req *req, const struct mic_op *op)
{
	return mic_brings_back(op) && op->seg_off == req->from;
}

/* The list goes with the segment; what is still to be sent needs it, too. */
static void mic_flight_take_sges(struct mic_req *req,
				 struct mic_flight *flight)
{
	struct mic_sges *sges = &flight->sges;

	swap(req->sges, flight->sges);
	if (!sges->pins)
		mic_sges_release(sges);
	req->sges.nsge = sges->nsge;
	memcpy(req->sges.sge, sges->sge, sges->nsge * sizeof(*sges->sge));
}

/* One that is not on its way, or NULL. */
static struct mic_flight *mic_flight_spare(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;
	struct mic_flight *flight;

	if (list_empty(&req->spare)) {
		flight = mic_qp_zalloc(qp, sizeof(*flight));
		if (!flight)
			return NULL;
		list_add(&flight->entry, &req->spare);
	}
	return list_first_entry(&req->spare, struct mic_flight, entry);
}

static struct mic_flight *mic_flight_begin(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;
	struct mic_flight *flight = mic_flight_spare(qp);

	if (!flight || !mic_window_alloc(qp, flight))
		return NULL;
	list_move_tail(&flight->entry, &req->flights);
	req->nflight++;
	req->flying += req->op.seg_len;
	flight->qp = qp;
	flight->op = req->op;
	flight->op.done = mic_flight_done;
	flight->op.land = mic_flight_land;
	flight->wqe = req->wqe;
	flight->length = req->length;
	flight->answered = false;
	flight->status = IB_WC_SUCCESS;
	req->nreads += mic_flight_counts(req, &flight->op);
	if (mic_brings_back(&req->op))
		mic_flight_take_sges(req, flight);
	return flight;
}

/**
 * mic_window_submit - send the current segment and go on
 * @qp: queue pair; the caller holds &mic_req.lock
 * @node: remote node
 *
 * Return: false if there is no memory for it.
 */
bool mic_window_submit(struct mic_qp *qp, struct mic_node *node)
{
	struct mic_req *req = &qp->req;
	struct mic_flight *flight = mic_flight_begin(qp);
	enum mic_ack ack;

	if (!flight) {
		/* those before it come first, then it is tried again */
		req->held = req->nflight;
		return req->nflight;
	}
	mic_cq_set_remote(qp->send_cq);
	refcount_inc(&qp->ref);
	mic_reply_note(qp);
	atomic_inc(&req->unanswered);
	ack = mic_node_submit(node, &flight->op);
	req->held = ack != MIC_ACK_PENDING;
	if (ack != MIC_ACK_PENDING && ack != MIC_ACK_AGAIN) {
		flight->ack = ack;
		flight->answered = true;
		atomic_dec(&req->unanswered);
		mic_qp_put(qp);
	}

	req->done += req->op.seg_len;
	if (req->op.flags & MIC_OP_LAST) {
		req->psn = (req->psn + req->op.npsn) & 0xffffff;
		req->active = false;
		req->ahead++;
	}
	return true;
}

/*
 * Only what the peer has not acknowledged before is progress, which sets the retries
 * back. A request that has changed in its slot begins anew, and makes none before it is
 * where it was refused, or at its end.
 */
static void mic_window_progress(struct mic_qp *qp, const struct mic_op *op)
{
	struct mic_req *req = &qp->req;

	if (req->repeat && op->seg_off < req->repeat_off &&
	    !(op->flags & MIC_OP_LAST))
		return;
	req->retry_left = qp->attr.retry_cnt;
	req->rnr_left = qp->attr.rnr_retry;
	req->rnr_waits = 0;
	req->repeat = false;
}

static void mic_window_acked(struct mic_qp *qp, const struct mic_flight *flight,
			     struct mic_budget *budget)
{
	const struct mic_opcode *oc = mic_opcode(qp, flight->wqe.opcode);
	struct mic_req *req = &qp->req;

	mic_window_progress(qp, &flight->op);
	budget->bytes -= flight->op.seg_len;
	mic_qp_count_add(qp, mic_bytes_counter(flight->op.code),
			 flight->op.seg_len);
	if (!(flight->op.flags & MIC_OP_LAST))
		return;
	budget->wqes--;
	req->ahead--;
	req->nreads -= mic_brings_back(&flight->op);
	mic_qp_count(qp, oc->counter);
	mic_req_tell(qp, &flight->wqe, flight->length, IB_WC_SUCCESS);
}

/*
 * Back to the request at the ring's head: it is read anew, since what is known
 * of it is not all that it takes to send it. It goes on with the segment that was
 * refused, as those before it have been acknowledged: a message that begins anew each
 * time would pass for one that makes progress, and take the longer the more of its
 * pages are not at hand.
 */
static void mic_window_back(struct mic_qp *qp, const struct mic_flight *flight)
{
	struct mic_req *req = &qp->req;

	mic_window_cancel(qp);
	/* also if this was the only one on its way, with more to come */
	req->active = false;
	req->wqe = flight->wqe;
	req->length = flight->length;
	req->op.rnr_timer = flight->op.rnr_timer;
	req->psn = flight->op.psn;
	req->repeat_opcode = flight->wqe.opcode;
	req->repeat_length = flight->length;
	req->repeat_off = flight->op.seg_off;
	req->repeat = true;
}

/* What became of the oldest. */
static void mic_window_answered(struct mic_qp *qp, struct mic_flight *flight,
				struct mic_budget *budget)
{
	const struct mic_opcode *oc = mic_opcode(qp, flight->wqe.opcode);

	trace_mic_ack(qp, &flight->op, flight->wqe.wr_id, flight->ack);
	if (!flight->ack && oc->kind == MIC_KIND_ATOMIC)
		mic_flight_land(&flight->op, 0, &flight->op.result,
				sizeof(flight->op.result));
	mic_sges_release(&flight->sges);
	if (flight->ack) {
		mic_window_back(qp, flight);
		mic_req_answer(qp, flight->ack, budget);
	} else if (flight->status) {
		mic_window_back(qp, flight);
		mic_req_fail(qp, flight->status);
	} else {
		mic_window_acked(qp, flight, budget);
	}
}

/*
 * The newest found no room, and nothing was sent after it: now it is sent again,
 * while others before it are still on their way.
 */
static bool mic_window_again(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;
	struct mic_flight *flight = list_last_entry(&req->flights, struct mic_flight,
						    entry);

	if (!req->held || !mic_flight_has_answer(flight) ||
	    flight->ack != MIC_ACK_AGAIN)
		return false;
	mic_sges_release(&flight->sges);
	mic_flight_end(req, flight);
	req->held = false;
	req->done = flight->op.seg_off;
	req->nreads -= mic_flight_counts(req, &flight->op);
	if (flight->op.flags & MIC_OP_LAST) {
		req->psn = flight->op.psn;
		req->active = true;
		req->ahead--;
	}
	return true;
}

/**
 * mic_window_reap - act on the oldest answer
 * @qp: queue pair with segments on their way; the caller holds &mic_req.lock
 * @budget: what may be done
 *
 * Return: false if it is not there yet.
 */
bool mic_window_reap(struct mic_qp *qp, struct mic_budget *budget)
{
	struct mic_req *req = &qp->req;
	struct mic_flight *flight;

	if (mic_window_again(qp))
		return true;
	flight = list_first_entry(&req->flights, struct mic_flight, entry);
	if (!mic_flight_has_answer(flight))
		return false;
	mic_flight_end(req, flight);
	mic_window_answered(qp, flight, budget);
	return true;
}

/**
 * mic_window_cancel - give up waiting for answers
 * @qp: queue pair; the caller holds &mic_req.lock
 *
 * The next request is the one at the ring's head.
 *
 * Context: process context, may sleep.
 */
void mic_window_cancel(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;
	struct mic_flight *flight;

	if (req->nflight || req->ahead)
		req->active = false;
	while (req->nflight) {
		flight = list_last_entry(&req->flights, struct mic_flight, entry);
		if (mic_flight_has_answer(flight))
			;
		else if (mic_node_cancel(req->node, &flight->op))
			mic_flight_cancelled(qp);
		else
			wait_var_event(&flight->answered,
				       mic_flight_has_answer(flight));
		mic_sges_release(&flight->sges);
		mic_flight_end(req, flight);
	}
	req->nreads = 0;
	req->from = req->done;	/* what is under way still counts anew */
	req->ahead = 0;
	req->held = false;
}

static void mic_flight_free(struct mic_flight *flight)
{
	list_del(&flight->entry);
	mic_sges_destroy(&flight->sges);
	kfree(flight);
}

/* Room for one WRITE at a time costs little. */
static bool mic_window_is_small(const struct mic_req *req)
{
	return list_empty(&req->spare) ||
	       (list_is_singular(&req->spare) &&
		!list_first_entry(&req->spare, struct mic_flight,
				  entry)->sges.sge);
}

static void mic_window_shrink(struct mic_req *req)
{
	struct mic_flight *flight = list_first_entry(&req->spare,
						     struct mic_flight, entry);

	while (!list_is_singular(&req->spare))
		mic_flight_free(list_last_entry(&req->spare, struct mic_flight,
						entry));
	mic_sges_destroy(&flight->sges);
}

/**
 * mic_window_idle - nothing is on its way, and nothing left to be sent
 * @qp: queue pair; the caller holds &mic_req.lock
 *
 * What has been allocated for many requests at once is given back, but not each time
 * the queue is empty: that is after every burst. Once a second is seldom enough, and
 * if nobody runs the queue by then, the timer has the worker do it.
 */
void mic_window_idle(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;
	unsigned long now = jiffies;

	if (mic_window_is_small(req)) {
		req->shrink = false;
		return;
	}
	if (!req->shrink) {
		req->shrink = true;
		req->shrink_at = now + MIC_SPARE_JIFFIES;
	}
	if (time_after_eq(now, req->shrink_at)) {
		req->shrink = false;
		mic_window_shrink(req);
	} else if (!hrtimer_active(&req->timer)) {
		hrtimer_start(&req->timer,
			      ns_to_ktime(jiffies_to_nsecs(req->shrink_at - now)),
			      HRTIMER_MODE_REL);
	}
}

/**
 * mic_window_destroy - free what the flights of a queue pair have
 * @qp: queue pair without flights; the caller holds &mic_req.lock
 */
void mic_window_destroy(struct mic_qp *qp)
{
	struct mic_flight *flight, *next;

	list_for_each_entry_safe(flight, next, &qp->req.spare, entry)
		mic_flight_free(flight);
}
