// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The requester: works a send queue off, one request after the other.
 *
 * A request stays in its slot until it is complete, so a request that has to
 * wait (no receive posted, no answer) is simply tried again. Long messages go
 * in segments, between which keys are looked up anew and others get their
 * turn.
 */
#include <linux/hrtimer.h>

#include "../verbs/counters.h"
#include "../verbs/dev.h"
#include "../verbs/mcast.h"
#include "../verbs/odp.h"
#include "../verbs/windows.h"
#include "engine.h"
#include "trace.h"

/* Until there may be memory again. */
#define MIC_MEMORY_REST_NS	(5 * NSEC_PER_MSEC)

/* IBA table 45: RNR NAK timer field, in units of 10 microseconds. */
static const u32 mic_rnr_timer[32] = {
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288,
	16384, 24576, 32768, 49152,
};

/* Copy the next element out of shared memory, once. */
static void mic_req_fetch(struct mic_req *req)
{
	const void *slot = mic_ring_ahead(&req->ring, req->ahead);
	u32 n;

	memcpy(&req->wqe, slot, sizeof(req->wqe));
	barrier();
	n = req->wqe.flags & MIC_WQE_INLINE ? 0 : req->wqe.num_sge;
	req->sges.nsge = n;
	if (n <= req->sges.max)
		memcpy(req->sges.sge, slot + MIC_SEND_WQE_HDR,
		       n * sizeof(*req->sges.sge));
	req->active = true;
}

/* The request at the ring's head is over: free its slot, then tell. */
void mic_req_tell(struct mic_qp *qp, const struct mic_send_wqe *wqe,
		  u32 length, enum ib_wc_status status)
{
	const struct mic_opcode *oc = mic_opcode(qp, wqe->opcode);
	struct mic_cqe cqe = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = oc ? oc->wc : MIC_WC_SEND,
		.byte_len = status ? 0 : length,
		.qp_num = qp->qpn,
		.wc_flags = 0,
	};

	mic_ring_advance(&qp->req.ring);
	if (status || qp->sig_all || wqe->flags & MIC_WQE_SIGNALED)
		mic_cq_post(qp->send_cq, &cqe, status);
}

/* The current request is over. */
void mic_req_complete(struct mic_qp *qp, enum ib_wc_status status)
{
	struct mic_req *req = &qp->req;

	req->active = false;
	req->repeat = false;
	req->deadline = 0;
	mic_req_tell(qp, &req->wqe, req->length, status);
}

/*
 * Unreliable services: the send queue stops, the rest goes on. Also one that is
 * being drained: what waits behind the request must not be executed after it.
 */
static void mic_req_sq_error(struct mic_qp *qp)
{
	int old = READ_ONCE(qp->state);

	if (old != IB_QPS_RTS && old != IB_QPS_SQD)
		return;
	/* only the responder may have changed it since, to an error */
	if (cmpxchg(&qp->state, old, IB_QPS_SQE) != old)
		return;
	trace_mic_qp_error(qp, old, IB_QPS_SQE);
}

/* The request failed; what that means for the queue is IBA 10.3.1. */
void mic_req_fail(struct mic_qp *qp, enum ib_wc_status status)
{
	trace_mic_req_error(qp, status);
	mic_count_req_error(qp, status);
	if (mic_qp_is_reliable(qp))
		mic_qp_error(qp);
	else
		mic_req_sq_error(qp);
	/* before anybody is told */
	mic_imports_revoke_qp(qp);
	mic_req_complete(qp, status);
}

static void mic_req_succeed(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;
	const struct mic_opcode *oc = mic_opcode(qp, req->wqe.opcode);

	mic_qp_count(qp, oc->counter);
	req->psn = (req->psn + req->op.npsn) & 0xffffff;
	mic_req_complete(qp, IB_WC_SUCCESS);
}

static void mic_req_rest(struct mic_req *req, u64 ns)
{
	req->deadline = ktime_add_ns(ktime_get(), ns);
	hrtimer_start(&req->timer, req->deadline, HRTIMER_MODE_ABS);
}

/*
 * The responder's timer is a minimum, IBA 9.7.5.2.8. Each time in a row the
 * request rests twice as long, up to a millisecond, so that a peer that takes
 * its time is not asked a hundred thousand times a second.
 */
static u64 mic_req_rnr_interval(struct mic_req *req)
{
	u64 ns = 10000ULL * mic_rnr_timer[req->op.rnr_timer & 31];
	u64 longer = min_t(u64, ns << req->rnr_waits, NSEC_PER_MSEC);

	if (req->rnr_waits < 7)
		req->rnr_waits++;
	return max(ns, longer);
}

static void mic_req_rnr(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;
	u64 ns;

	if (!req->rnr_left) {
		mic_req_fail(qp, IB_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	if (req->rnr_left != 7)		/* 7: for ever */
		req->rnr_left--;
	ns = mic_req_rnr_interval(req);
	mic_qp_count(qp, MIC_CNT_RNR_RETRY);
	trace_mic_rnr_retry(qp, req->rnr_left, ns);
	mic_req_rest(req, ns);
}

/*
 * No answer. IBA 9.7.6.1.3: the timer is 4.096 us * 2^timeout; 0 disables it,
 * which would mean to wait for an answer that can't come, so then the request
 * is repeated, without end, ten times a second.
 */
static void mic_req_no_answer(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;
	u8 timeout = qp->attr.timeout & 31;
	u64 ns = timeout ? 4096ULL << timeout : 100 * NSEC_PER_MSEC;

	if (timeout) {
		if (!req->retry_left) {
			mic_req_fail(qp, IB_WC_RETRY_EXC_ERR);
			return;
		}
		req->retry_left--;
	}
	mic_qp_count(qp, MIC_CNT_RETRY);
	trace_mic_retry(qp, req->retry_left, ns);
	mic_req_rest(req, ns);
}

static void mic_req_store_result(struct mic_req *req,
				 const struct mic_sgl *data)
{
	const struct mic_seg seg = mic_linear_seg(&req->op.result,
						  sizeof(req->op.result));
	const struct mic_sgl result = { .seg = &seg, .nseg = 1 };

	mic_sgl_copy(data, 0, &result, 0, seg.len);
}

static void mic_req_acked(struct mic_qp *qp, struct mic_budget *budget)
{
	struct mic_req *req = &qp->req;
	u32 copies = max(req->op.copies, 1U);

	req->retry_left = qp->attr.retry_cnt;
	req->rnr_left = qp->attr.rnr_retry;
	req->rnr_waits = 0;
	req->repeat = false;
	req->done += req->op.seg_len;
	budget->bytes -= (s64)req->op.seg_len * copies;
	mic_qp_count_add(qp, mic_bytes_counter(req->op.code),
			 req->op.seg_len);
	if (req->op.flags & MIC_OP_LAST) {
		budget->wqes -= copies;
		mic_req_succeed(qp);
	}
}

/* Act on the answer to a segment. */
void mic_req_answer(struct mic_qp *qp, enum mic_ack ack,
		    struct mic_budget *budget)
{
	/* nobody answers a datagram, it left and that is all one knows */
	if (ack && ack != MIC_ACK_AGAIN && !mic_qp_is_reliable(qp))
		ack = MIC_ACK_OK;

	switch (ack) {
	case MIC_ACK_OK:
		mic_req_acked(qp, budget);
		break;
	case MIC_ACK_RNR:
		mic_req_rnr(qp);
		break;
	case MIC_ACK_NAK_INV_REQ:
		mic_req_fail(qp, IB_WC_REM_INV_REQ_ERR);
		break;
	case MIC_ACK_NAK_ACCESS:
		mic_req_fail(qp, IB_WC_REM_ACCESS_ERR);
		break;
	case MIC_ACK_NAK_OP:
		mic_req_fail(qp, IB_WC_REM_OP_ERR);
		break;
	case MIC_ACK_NONE:
		mic_req_no_answer(qp);
		break;
	case MIC_ACK_AGAIN:
	case MIC_ACK_PENDING:
		break;
	}
}

/*
 * The peer's node, which RC remembers; if it left, until it has answered what is on
 * its way.
 */
static struct mic_node *mic_req_node(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;

	if (req->node && !req->nflight && !mic_node_is_live(req->node)) {
		mic_node_put(req->node);
		req->node = NULL;
	}
	if (!req->node)
		req->node = mic_fabric_find(req->op.addr, req->op.src,
					    qp->dev->ndev);
	return req->node;
}

static bool mic_req_is_mcast(const struct mic_qp *qp)
{
	return mic_qp_is_ud(qp) && qp->req.op.dst_qpn == MIC_MCAST_QPN;
}

static enum mic_ack mic_req_submit(struct mic_qp *qp)
{
	struct mic_node *node;
	enum mic_ack ack;

	if (qp->req.sgid_gone)
		return MIC_ACK_NONE;
	if (mic_req_is_mcast(qp)) {
		mic_mcast_submit(&qp->req.op, qp->dev->ndev);
		return MIC_ACK_OK;
	}
	node = mic_req_node(qp);
	if (!node)
		return MIC_ACK_NONE;
	if (mic_node_is_remote(node) && mic_qp_is_reliable(qp)) {
		if (mic_window_submit(qp, node))
			return MIC_ACK_PENDING;
		/* nothing was asked, so there is no answer that is missing */
		mic_req_rest(&qp->req, MIC_MEMORY_REST_NS);
		return MIC_ACK_AGAIN;
	}
	ack = mic_req_submit_to(qp, node);
	if (mic_qp_is_ud(qp) && ack != MIC_ACK_PENDING)
		mic_req_forget_node(qp);
	return ack;
}

/* Find the request's data; inline data is read where it lies. */
static enum ib_wc_status mic_req_resolve(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;
	struct mic_sges *sges = &req->sges;

	if (req->wqe.flags & MIC_WQE_INLINE) {
		sges->seg[0] =
			mic_linear_seg(mic_ring_ahead(&req->ring, req->ahead) +
				       MIC_SEND_WQE_HDR, req->length);
		sges->mkey[0] = NULL;
		sges->nseg = 1;
		return IB_WC_SUCCESS;
	}
	return mic_sges_resolve(sges, qp->dev, qp->ibqp->pd,
				mic_opcode(qp, req->wqe.opcode)->local_access,
				req->length, req->done,
				(u64)req->done + MIC_SEGMENT);
}

/* The answer to a segment is there. */
static void mic_req_segment_done(struct mic_qp *qp, enum mic_ack ack,
				 struct mic_budget *budget)
{
	struct mic_req *req = &qp->req;

	if (trace_mic_data_enabled() && !ack && req->op.code == MIC_OP_READ)
		trace_mic_data(qp, &req->op);
	trace_mic_ack(qp, &req->op, req->wqe.wr_id, ack);
	if (!ack && mic_opcode(qp, req->wqe.opcode)->kind == MIC_KIND_ATOMIC)
		mic_req_store_result(req, &req->data);
	mic_sges_release(&req->sges);
	mic_req_answer(qp, ack, budget);
}

/* The answer that was waited for is there. */
static void mic_req_answered(struct mic_qp *qp, struct mic_budget *budget)
{
	struct mic_req *req = &qp->req;

	req->pending = false;
	if (mic_qp_is_ud(qp))
		mic_req_forget_node(qp);
	mic_req_segment_done(qp, req->ack, budget);
}

static bool mic_req_carries_data(const struct mic_op *op)
{
	return op->code == MIC_OP_SEND || op->code == MIC_OP_WRITE ||
	       op->code == MIC_OP_ATOMIC_WRITE;
}

/* Ask for the next segment of the current request and act on the answer. */
static void mic_req_segment(struct mic_qp *qp, struct mic_budget *budget)
{
	struct mic_req *req = &qp->req;
	const struct mic_opcode *oc = mic_opcode(qp, req->wqe.opcode);
	struct mic_op *op = &req->op;
	enum ib_wc_status status;
	enum mic_ack ack;

	status = mic_req_resolve(qp);
	if (status && req->sges.again) {
		mic_req_rest(req, MIC_ODP_REST_NS);
		return;
	}
	if (status && req->nflight) {
		req->held = true;	/* those before it come first */
		return;
	}
	if (status) {
		mic_req_fail(qp, status);
		return;
	}
	req->data.seg = req->sges.seg;
	req->data.nseg = req->sges.nseg;

	op->data = &req->data;
	op->copies = 0;
	op->seg_off = req->done;
	op->seg_len = min_t(u32, req->length - req->done, MIC_SEGMENT);
	op->flags = op->seg_off ? 0 : MIC_OP_FIRST;
	if (op->seg_off + op->seg_len == req->length) {
		op->flags |= MIC_OP_LAST | oc->op_flags;
		if (req->wqe.flags & MIC_WQE_SOLICITED)
			op->flags |= MIC_OP_SOLICITED;
	}

	trace_mic_submit(qp);
	if (trace_mic_data_enabled() && mic_req_carries_data(op))
		trace_mic_data(qp, op);
	ack = mic_req_submit(qp);
	if (ack != MIC_ACK_PENDING)
		mic_req_segment_done(qp, ack, budget);
	else
		mic_sges_release(&req->sges);	/* it has left */
}

/* Local requests are over at once; they are no messages and have no PSN. */
static void mic_req_start_local(struct mic_qp *qp, struct mic_budget *budget)
{
	enum ib_wc_status status = mic_req_local(qp);

	budget->wqes--;
	if (status) {
		mic_req_fail(qp, status);
		return;
	}
	qp->req.op.npsn = 0;
	mic_req_succeed(qp);
}

/* Take the next request, if there is one. */
static bool mic_req_next(struct mic_qp *qp, struct mic_budget *budget)
{
	struct mic_req *req = &qp->req;
	enum ib_wc_status status;
	int n;

	n = req->broken ? 0 : mic_ring_pending(&req->ring);
	if (n < 0) {
		req->broken = true;
		ibdev_dbg(&qp->dev->ibdev,
			  "qpn %u: an index of the send queue makes no sense\n",
			  qp->qpn);
		mic_qp_event(qp, IB_EVENT_QP_FATAL);
		mic_qp_error(qp);
		return false;
	}
	req->posted = n;
	if (n <= req->ahead)
		return false;
	mic_req_fetch(req);
	status = mic_req_start(qp);
	if (req->nflight && (status || !mic_window_admits(qp))) {
		req->active = false;	/* not before its time */
		return false;
	}
	if (status)
		mic_req_fail(qp, status);
	else if (mic_opcode(qp, req->wqe.opcode)->kind == MIC_KIND_LOCAL)
		mic_req_start_local(qp, budget);
	return true;
}

/* Sleep, unless work arrived while we made up our mind. */
static bool mic_req_sleep(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;

	/* release: completions before it, for who completes by itself next */
	smp_store_release(&req->ring.ctl->need_kick,
			  READ_ONCE(req->polled) ? MIC_KICK_POLLED :
						   MIC_KICK_ASLEEP);
	smp_mb();	/* pairs with the poster's: index, barrier, need_kick */
	if (READ_ONCE(qp->state) != IB_QPS_RTS || req->broken ||
	    !mic_ring_pending(&req->ring))
		return true;
	WRITE_ONCE(req->ring.ctl->need_kick, 0);
	return false;
}

/*
 * Answers are awaited. If all that was posted is on its way, and that is little, who
 * posts more is asked to ring; later it goes with the answers, many at a time. So does
 * what is not let behind those on their way.
 */
static bool mic_req_wait(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;

	if (READ_ONCE(req->polled) || req->nflight >= MIC_FLIGHTS_RING ||
	    READ_ONCE(qp->state) != IB_QPS_RTS || req->broken ||
	    req->posted > req->ahead)
		return true;
	WRITE_ONCE(req->ring.ctl->need_kick, MIC_KICK_MORE);
	smp_mb();	/* as above */
	if (mic_ring_pending(&req->ring) <= (int)req->ahead)
		return true;
	WRITE_ONCE(req->ring.ctl->need_kick, 0);
	return false;
}

static void mic_req_drained(struct mic_qp *qp)
{
	if (READ_ONCE(qp->state) != IB_QPS_SQD || qp->attr.sq_draining != 1)
		return;
	qp->attr.sq_draining = 0;
	if (qp->attr.en_sqd_async_notify)
		mic_qp_event(qp, IB_EVENT_SQ_DRAINED);
}

/**
 * mic_req_run - work a send queue off
 * @qp: queue pair; the caller holds &mic_req.lock
 * @budget: what may be done, reduced by what was
 *
 * Context: process context, may sleep.
 * Return: why it stopped.
 */
enum mic_run mic_req_run(struct mic_qp *qp, struct mic_budget *budget)
{
	struct mic_req *req = &qp->req;

	lockdep_assert_held(&req->lock);
	if (!req->ring.ctl) {
		mic_req_drained(qp);
		return MIC_RUN_IDLE;
	}
	WRITE_ONCE(req->ring.ctl->need_kick, 0);
	while (mic_budget_left(budget)) {
		int state = READ_ONCE(qp->state);

		if (state == IB_QPS_ERR || state == IB_QPS_SQE)
			return mic_req_flush(qp, budget);
		if (req->pending) {
			if (!mic_req_has_answer(req))
				return MIC_RUN_WAIT;
			mic_req_answered(qp, budget);
			continue;
		}
		if (req->nflight && mic_window_reap(qp, budget))
			continue;
		if (req->deadline && ktime_before(ktime_get(), req->deadline))
			return MIC_RUN_WAIT;
		req->deadline = 0;
		if (req->nflight && !mic_window_is_open(qp))
			return MIC_RUN_WAIT;
		if (req->active && (state == IB_QPS_RTS ||
				    state == IB_QPS_SQD)) {
			mic_req_segment(qp, budget);
			/* over already or not: the timer wakes the worker */
			if (req->deadline)
				return MIC_RUN_WAIT;
			continue;
		}
		/* what comes again has begun, and ends in SQD, too */
		if ((state == IB_QPS_RTS ||
		     (state == IB_QPS_SQD && req->repeat && !req->nflight)) &&
		    mic_req_next(qp, budget))
			continue;
		if (READ_ONCE(qp->state) != state)
			continue;
		if (req->nflight) {
			if (mic_req_wait(qp))
				return MIC_RUN_WAIT;
		} else {
			mic_req_drained(qp);
			if (mic_req_sleep(qp))
				return MIC_RUN_IDLE;
		}
		budget->wqes--;	/* looking again is work, too */
	}
	return MIC_RUN_MORE;
}
