// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queues in error: everything posted completes as flushed, IBA 10.3.1.
 */
#include "../verbs/dev.h"
#include "../verbs/windows.h"
#include "../verbs/xrc.h"
#include "engine.h"
#include "trace.h"

/**
 * mic_qp_enter_error - a QP enters the error state, and somebody flushes it
 * @qp: queue pair; the caller holds one of its two locks, and sees to it that
 *	the engine runs
 *
 * Windows that hang on the queue pair are marked; whoever flushes takes them away
 * first. From now on the receive queue asks for a doorbell too, so that what is
 * posted later is flushed as well.
 */
void mic_qp_enter_error(struct mic_qp *qp)
{
	trace_mic_qp_error(qp, qp->state, IB_QPS_ERR);
	WRITE_ONCE(qp->state, IB_QPS_ERR);
	if (qp->resp.ring.ctl)
		WRITE_ONCE(qp->resp.ring.ctl->need_kick, MIC_KICK_ASLEEP);
	mic_imports_mark_qp(qp);
}

/**
 * mic_qp_error - a QP enters the error state, and the worker flushes it
 * @qp: queue pair; the caller holds one of its two locks
 */
void mic_qp_error(struct mic_qp *qp)
{
	mic_qp_enter_error(qp);
	mic_qp_kick_deferred(qp);
}

/*
 * Take the head of a send queue just to flush it: only what the completion
 * says is needed.
 */
static void mic_req_flush_one(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;

	if (!req->active) {
		memcpy(&req->wqe, mic_ring_head(&req->ring),
		       sizeof(req->wqe));
		barrier();
	}
	mic_qp_count(qp, MIC_CNT_FLUSHED);
	mic_req_complete(qp, IB_WC_WR_FLUSH_ERR);
}

/**
 * mic_req_flush - flush a send queue
 * @qp: queue pair in error; the caller holds &mic_req.lock
 * @budget: what may be done
 *
 * Return: MIC_RUN_IDLE or MIC_RUN_MORE.
 */
enum mic_run mic_req_flush(struct mic_qp *qp, struct mic_budget *budget)
{
	struct mic_req *req = &qp->req;

	/* no request behind may be executed by what is mapped */
	mic_imports_revoke_qp(qp);
	if (!req->ring.ctl)
		return MIC_RUN_IDLE;
	mic_req_cancel(qp);
	WRITE_ONCE(req->ring.ctl->need_kick, MIC_KICK_ASLEEP);
	smp_mb();	/* as in mic_req_sleep() */
	while (mic_budget_left(budget)) {
		if (req->broken ||
		    (!req->active && mic_ring_pending(&req->ring) <= 0))
			return MIC_RUN_IDLE;
		mic_req_flush_one(qp);
		budget->wqes--;
	}
	return MIC_RUN_MORE;
}

/* The last receive of a QP with an SRQ is done, IBA 11.6.3.2. */
static void mic_resp_last_wqe(struct mic_qp *qp)
{
	if (!qp->srq || qp->last_wqe || qp->type == IB_QPT_XRC_TGT)
		return;
	qp->last_wqe = true;
	mic_qp_event(qp, IB_EVENT_QP_LAST_WQE_REACHED);
}

static enum mic_run mic_resp_flush_locked(struct mic_qp *qp,
					  struct mic_budget *budget)
{
	while (mic_budget_left(budget)) {
		struct mic_cqe cqe = { .status = IB_WC_WR_FLUSH_ERR };

		if (!qp->resp.active &&
		    (qp->srq || mic_recv_take(qp) != MIC_ACK_OK)) {
			mic_resp_last_wqe(qp);
			return MIC_RUN_IDLE;
		}
		mic_qp_count(qp, MIC_CNT_FLUSHED);
		mic_recv_complete(qp, &cqe, true);
		budget->wqes--;
	}
	return MIC_RUN_MORE;
}

/* The receive under way, if its SRQ still exists to hear of it. */
static enum mic_run mic_resp_flush_xrc(struct mic_qp *qp,
				       struct mic_budget *budget)
{
	if (!qp->resp.active)
		return MIC_RUN_IDLE;
	if (!mic_budget_left(budget))
		return MIC_RUN_MORE;
	if (mic_xrc_enter(qp, qp->resp.xrc_srqn)) {
		mic_resp_flush_locked(qp, budget);
		mic_xrc_leave(qp);
	}
	qp->resp.active = false;
	return MIC_RUN_IDLE;
}

/**
 * mic_resp_flush - flush a receive queue
 * @qp: queue pair in error; the caller holds &mic_req.lock
 * @budget: what may be done
 *
 * Return: MIC_RUN_IDLE or MIC_RUN_MORE.
 */
enum mic_run mic_resp_flush(struct mic_qp *qp, struct mic_budget *budget)
{
	enum mic_run run = MIC_RUN_IDLE;

	mutex_lock(&qp->resp.lock);
	if (qp->type == IB_QPT_XRC_TGT)
		run = mic_resp_flush_xrc(qp, budget);
	else if (qp->type != IB_QPT_XRC_INI)
		run = mic_resp_flush_locked(qp, budget);
	mutex_unlock(&qp->resp.lock);
	return run;
}
