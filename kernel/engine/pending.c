// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Answers that come later, to unreliable services: that there is room again on
 * the way to a node behind a wire. The answers to reliable ones are in window.c.
 *
 * While an answer is pending the queue waits, and holds what the answer needs:
 * a reference to itself, and its node. Whoever brings the answer leaves it in
 * &mic_req.ack and has somebody look at it, the worker or a program that polls.
 */
#include <linux/wait_bit.h>

#include "../verbs/dev.h"
#include "busy.h"
#include "engine.h"

/* The answer is there. In atomic context; the backend has let go of the op. */
static void mic_req_done(struct mic_op *op, enum mic_ack ack)
{
	struct mic_req *req = container_of(op, struct mic_req, op);
	struct mic_qp *qp = container_of(req, struct mic_qp, req);

	req->ack = ack;
	mic_answer(&req->answered);
	mic_qp_answered(qp);
	mic_qp_put(qp);
}

/**
 * mic_req_submit_to - submit the current segment
 * @qp: queue pair; the caller holds &mic_req.lock
 * @node: destination; the caller holds a reference
 *
 * Return: the answer, or MIC_ACK_PENDING: then &mic_req.pending is set.
 */
enum mic_ack mic_req_submit_to(struct mic_qp *qp, struct mic_node *node)
{
	struct mic_req *req = &qp->req;
	enum mic_ack ack;

	if (!mic_node_is_remote(node))
		return mic_node_submit(node, &req->op);

	/* the answer may be quicker than submit's return */
	refcount_inc(&qp->ref);
	req->answered = false;
	req->op.done = mic_req_done;
	ack = mic_node_submit(node, &req->op);
	if (ack == MIC_ACK_PENDING || ack == MIC_ACK_AGAIN) {
		mic_cq_set_remote(qp->send_cq);
		req->pending = true;
		return MIC_ACK_PENDING;
	}
	mic_qp_put(qp);
	return ack;
}

/**
 * mic_req_forget_node - let go of the peer's node
 * @qp: queue pair; the caller holds &mic_req.lock, and no answer is pending
 */
void mic_req_forget_node(struct mic_qp *qp)
{
	if (qp->req.node) {
		mic_node_put(qp->req.node);
		qp->req.node = NULL;
	}
}

/**
 * mic_req_cancel - give up waiting for an answer
 * @qp: queue pair; the caller holds &mic_req.lock
 *
 * On return the memory of the current request is not touched any more. What the
 * peer has done or still does of it is not known.
 *
 * Context: process context, may sleep.
 */
void mic_req_cancel(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;

	lockdep_assert_held(&req->lock);
	mic_window_cancel(qp);
	if (!req->pending)
		return;
	if (mic_node_cancel(req->node, &req->op))
		mic_qp_put(qp);
	else
		wait_var_event(&req->answered, mic_req_has_answer(req));
	req->pending = false;
	mic_sges_release(&req->sges);
	if (mic_qp_is_ud(qp))
		mic_req_forget_node(qp);
}
