// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Several segments on their way to another machine at once.
 *
 * SENDs and WRITEs need nothing here once they have left, so the next one can
 * follow before the answer is there. Answers are acted upon in the order of
 * sending. The responder takes nothing out of sequence: when it refuses one, it
 * refuses all that were sent after it, and they are sent again. Everything else
 * waits until nothing is on its way.
 */
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "../verbs/counters.h"
#include "../verbs/dev.h"
#include "engine.h"
#include "trace.h"

static struct mic_flight *mic_flight_at(const struct mic_req *req, u32 i)
{
	return &req->flight[(req->first_flight + i) % MIC_FLIGHTS];
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
	/* the answer before the flag */
	smp_store_release(&flight->answered, true);
	wake_up_var(&flight->answered);
	mic_qp_kick_deferred(qp);
	mic_qp_put(qp);
}

/**
 * mic_window_takes - whether a request may be on its way with others
 * @wr_opcode: enum mic_wr_opcode, unchecked
 *
 * Return: true for what brings nothing back and changes nothing here.
 */
bool mic_window_takes(u8 wr_opcode)
{
	switch (wr_opcode) {
	case MIC_WR_SEND:
	case MIC_WR_SEND_WITH_IMM:
	case MIC_WR_SEND_WITH_INV:
	case MIC_WR_RDMA_WRITE:
	case MIC_WR_RDMA_WRITE_WITH_IMM:
		return true;
	default:
		return false;
	}
}

/**
 * mic_window_is_open - whether one more segment may be sent
 * @qp: queue pair; the caller holds &mic_req.lock
 *
 * Return: false if answers have to come first.
 */
bool mic_window_is_open(const struct mic_qp *qp)
{
	const struct mic_req *req = &qp->req;

	if (!req->nflight)
		return true;
	/* those on their way to a node that left are answered first */
	return !req->held && req->nflight < MIC_FLIGHTS &&
	       mic_node_is_live(req->node);
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
	struct mic_flight *flight;
	enum mic_ack ack;

	if (!req->flight)
		req->flight = kcalloc(MIC_FLIGHTS, sizeof(*flight), GFP_KERNEL);
	if (!req->flight)
		return false;

	flight = mic_flight_at(req, req->nflight++);
	flight->qp = qp;
	flight->op = req->op;
	flight->op.done = mic_flight_done;
	flight->wqe = req->wqe;
	flight->length = req->length;
	flight->answered = false;
	refcount_inc(&qp->ref);
	ack = mic_node_submit(node, &flight->op);
	req->held = ack != MIC_ACK_PENDING;
	if (ack != MIC_ACK_PENDING && ack != MIC_ACK_AGAIN) {
		flight->ack = ack;
		flight->answered = true;
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

static void mic_window_acked(struct mic_qp *qp, const struct mic_flight *flight,
			     struct mic_budget *budget)
{
	const struct mic_opcode *oc = mic_opcode(qp, flight->wqe.opcode);
	struct mic_req *req = &qp->req;

	req->retry_left = qp->attr.retry_cnt;
	req->rnr_left = qp->attr.rnr_retry;
	req->rnr_waits = 0;
	req->repeat = false;
	budget->bytes -= flight->op.seg_len;
	mic_count_add(qp->dev, mic_bytes_counter(flight->op.code),
		      flight->op.seg_len);
	if (!(flight->op.flags & MIC_OP_LAST))
		return;
	budget->wqes--;
	req->ahead--;
	mic_count(qp->dev, oc->counter);
	mic_req_tell(qp, &flight->wqe, flight->length, IB_WC_SUCCESS);
}

/*
 * Back to the request at the ring's head: it is read anew, since what is known
 * of it is not all that it takes to send it.
 */
static void mic_window_refused(struct mic_qp *qp,
			       const struct mic_flight *flight,
			       struct mic_budget *budget)
{
	struct mic_req *req = &qp->req;

	mic_window_cancel(qp);
	req->wqe = flight->wqe;
	req->length = flight->length;
	req->op.rnr_timer = flight->op.rnr_timer;
	req->psn = flight->op.psn;
	req->repeat = true;
	mic_req_answer(qp, flight->ack, budget);
}

/*
 * The newest found no room, and nothing was sent after it: now it is sent again,
 * while others before it are still on their way.
 */
static bool mic_window_again(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;
	const struct mic_flight *flight = mic_flight_at(req, req->nflight - 1);

	if (!req->held || !mic_flight_has_answer(flight) ||
	    flight->ack != MIC_ACK_AGAIN)
		return false;
	req->nflight--;
	req->held = false;
	req->done = flight->op.seg_off;
	if (flight->op.flags & MIC_OP_LAST) {
		req->psn = flight->op.psn;
		req->active = true;
		req->ahead--;
	}
	return true;
}

/**
 * mic_window_reap - act on the oldest answer
 * @qp: queue pair; the caller holds &mic_req.lock
 * @budget: what may be done
 *
 * Return: false if it is not there yet.
 */
bool mic_window_reap(struct mic_qp *qp, struct mic_budget *budget)
{
	struct mic_req *req = &qp->req;
	struct mic_flight *flight;

	if (!req->nflight)
		return false;
	if (mic_window_again(qp))
		return true;
	flight = mic_flight_at(req, 0);
	if (!mic_flight_has_answer(flight))
		return false;
	req->first_flight = (req->first_flight + 1) % MIC_FLIGHTS;
	req->nflight--;
	if (flight->ack)
		mic_window_refused(qp, flight, budget);
	else
		mic_window_acked(qp, flight, budget);
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
		flight = mic_flight_at(req, --req->nflight);
		if (mic_flight_has_answer(flight))
			continue;
		if (mic_node_cancel(req->node, &flight->op))
			mic_qp_put(qp);
		else
			wait_var_event(&flight->answered,
				       mic_flight_has_answer(flight));
	}
	req->ahead = 0;
	req->held = false;
}
