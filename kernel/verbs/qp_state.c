// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue pairs: states and attributes, IBA 10.3.1 and 11.2.5.2.
 */
#include <rdma/ib_cache.h>

#include "../engine/engine.h"
#include "../engine/reply.h"
#include "ah.h"
#include "dev.h"
#include "qp.h"
#include "resolve.h"
#include "uctx.h"
#include "windows.h"

static int mic_qp_check_attr(struct mic_qp *qp, const struct ib_qp_attr *attr,
			     int mask)
{
	if (mask & (IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE | IB_QP_RATE_LIMIT))
		return -EOPNOTSUPP;
	if (mask & IB_QP_CAP)
		return -EOPNOTSUPP;
	if (mask & IB_QP_PORT && attr->port_num != 1)
		return -EINVAL;
	if (mask & IB_QP_PKEY_INDEX && attr->pkey_index >= MIC_MAX_PKEY)
		return -EINVAL;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC &&
	    attr->max_rd_atomic > MIC_MAX_RD_ATOM)
		return -EINVAL;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC &&
	    attr->max_dest_rd_atomic > MIC_MAX_RD_ATOM)
		return -EINVAL;
	if (mask & IB_QP_PATH_MTU &&
	    (attr->path_mtu < IB_MTU_256 ||
	     ib_mtu_enum_to_int(attr->path_mtu) > mic_port_mtu(qp->dev)))
		return -EINVAL;
	if (mask & IB_QP_TIMEOUT && attr->timeout > 31)
		return -EINVAL;
	if (mask & IB_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31)
		return -EINVAL;
	if (mask & IB_QP_RETRY_CNT && attr->retry_cnt > 7)
		return -EINVAL;
	if (mask & IB_QP_RNR_RETRY && attr->rnr_retry > 7)
		return -EINVAL;
	if (mask & IB_QP_AV &&
	    !(rdma_ah_get_ah_flags(&attr->ah_attr) & IB_AH_GRH))
		return -EINVAL;
	/* what is on its way cannot be called back (IBA 10.3.1.5) */
	if (mask & IB_QP_AV && qp->state == IB_QPS_SQD && qp->req.nflight)
		return -EINVAL;
	return 0;
}

/* Back to what create_qp made: empty queues, nothing under way. */
static void mic_qp_reset(struct mic_qp *qp)
{
	mic_req_cancel(qp);
	mic_window_destroy(qp);
	qp->req.active = false;
	qp->req.deadline = 0;
	qp->req.broken = false;
	qp->req.repeat = false;
	mic_dup_forget(qp);
	mic_reply_forget(qp);
	qp->resp.offset = 0;
	qp->resp.active = false;
	qp->resp.broken = false;
	qp->comm_est = false;
	qp->last_wqe = false;
	qp->guesses = 0;
	if (qp->req.ring.ctl) {
		mic_ring_reset(&qp->req.ring);
		WRITE_ONCE(qp->req.ring.ctl->need_kick, MIC_KICK_ASLEEP);
	}
	if (qp->resp.ring.ctl) {
		mic_ring_reset(&qp->resp.ring);
		WRITE_ONCE(qp->resp.ring.ctl->need_kick, 0);
	}
	mic_req_forget_node(qp);
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->attr.path_mtu = IB_MTU_4096;
}

static void mic_qp_set_path(struct mic_qp *qp, const struct ib_qp_attr *attr)
{
	mic_addr_from_attr(&qp->addr, &attr->ah_attr);
	qp->attr.ah_attr = attr->ah_attr;
	qp->resp.peer_id = 0;
	qp->attr.ah_attr.grh.sgid_attr = NULL;	/* not ours to keep */
	mic_req_cancel(qp);
	mic_req_forget_node(qp);
	/* of a request that has begun, the other side has nothing */
	qp->req.done = 0;
	qp->req.from = 0;
	qp->req.repeat_off = 0;
}

static void mic_qp_set_attr(struct mic_qp *qp, const struct ib_qp_attr *attr,
			    int mask)
{
	struct ib_qp_attr *to = &qp->attr;

	if (mask & IB_QP_ACCESS_FLAGS)
		to->qp_access_flags = attr->qp_access_flags;
	if (mask & IB_QP_PKEY_INDEX)
		to->pkey_index = attr->pkey_index;
	if (mask & IB_QP_PORT)
		to->port_num = attr->port_num;
	if (mask & IB_QP_QKEY)
		to->qkey = attr->qkey;
	if (mask & IB_QP_AV)
		mic_qp_set_path(qp, attr);
	if (mask & IB_QP_PATH_MTU)
		to->path_mtu = attr->path_mtu;
	if (mask & IB_QP_TIMEOUT)
		to->timeout = attr->timeout;
	if (mask & IB_QP_RETRY_CNT)
		to->retry_cnt = attr->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		to->rnr_retry = attr->rnr_retry;
	if (mask & IB_QP_RQ_PSN) {
		qp->resp.epsn = attr->rq_psn & 0xffffff;
		qp->resp.refused = false;
	}
	if (mask & IB_QP_SQ_PSN)
		qp->req.psn = attr->sq_psn & 0xffffff;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IB_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IB_QP_DEST_QPN)
		to->dest_qp_num = attr->dest_qp_num & 0xffffff;
}

static void mic_qp_set_state(struct mic_qp *qp, const struct ib_qp_attr *attr,
			     int mask)
{
	if (!(mask & IB_QP_STATE))
		return;
	switch (attr->qp_state) {
	case IB_QPS_RESET:
		WRITE_ONCE(qp->state, IB_QPS_RESET);
		mic_qp_reset(qp);
		break;
	case IB_QPS_ERR:
		mic_qp_enter_error(qp);
		break;
	case IB_QPS_SQD:
		/* other attributes change, and it is told as it was asked for */
		if (qp->state == IB_QPS_SQD)
			break;
		qp->attr.sq_draining = 1;
		qp->attr.en_sqd_async_notify =
			mask & IB_QP_EN_SQD_ASYNC_NOTIFY &&
			attr->en_sqd_async_notify;
		WRITE_ONCE(qp->state, IB_QPS_SQD);
		break;
	default:
		WRITE_ONCE(qp->state, attr->qp_state);
		break;
	}
}

/*
 * Is there anything for the engine to do that has waited for another state or
 * path? Most changes are made before the first request.
 */
static bool mic_qp_has_work(const struct mic_qp *qp)
{
	if (qp->state == IB_QPS_SQD || qp->state == IB_QPS_ERR ||
	    qp->req.active)
		return true;
	return qp->req.ring.ctl && mic_ring_pending(&qp->req.ring);
}

/*
 * Uverbs adds the port to each path, but UC has a path in SQD and no port: there is
 * one port, and mic_qp_check_attr() looks at it.
 */
static bool mic_qp_may_go(const struct mic_qp *qp, enum ib_qp_state cur,
			  enum ib_qp_state next, int mask)
{
	if (qp->type == IB_QPT_UC && cur == IB_QPS_SQD && next == cur &&
	    mask & IB_QP_AV)
		mask &= ~IB_QP_PORT;
	return ib_modify_qp_is_ok(cur, next, qp->type, mask);
}

/*
 * What was posted when the send queue stopped is flushed before it goes on, though the
 * program may know of the first one only: the worker may still be at it. It may be
 * much, and who sends to the queue pair does not wait for that.
 */
static void mic_qp_flush_sqe(struct mic_qp *qp, const struct ib_qp_attr *attr,
			     int mask)
{
	struct mic_budget all = {
		.wqes = qp->req.ring.info.entries,
		.bytes = 1,
	};

	if (!(mask & IB_QP_STATE) || attr->qp_state != IB_QPS_RTS)
		return;
	mutex_lock(&qp->req.lock);
	if (READ_ONCE(qp->state) == IB_QPS_SQE)
		mic_req_flush(qp, &all);
	mutex_unlock(&qp->req.lock);
}

static int mic_modify_locked(struct mic_qp *qp, struct ib_qp_attr *attr,
			     int mask)
{
	enum ib_qp_state cur = mask & IB_QP_CUR_STATE ? attr->cur_qp_state :
							qp->state;
	enum ib_qp_state next = mask & IB_QP_STATE ? attr->qp_state : cur;
	bool was_polled;
	int err;

	/* the state may have become an error since the caller looked */
	if (mask & IB_QP_CUR_STATE && cur != qp->state)
		return -EINVAL;
	if (!mic_qp_may_go(qp, cur, next, mask))
		return -EINVAL;
	err = mic_qp_check_attr(qp, attr, mask);
	if (err)
		return err;
	mic_qp_set_attr(qp, attr, mask);
	mic_qp_set_state(qp, attr, mask);
	/* until its doorbell rings again, which it does when the engine has run */
	was_polled = mic_poll_del(qp);
	/* what was granted with the old attributes is asked for again, but not yet */
	WRITE_ONCE(qp->changing, true);
	mic_imports_mark_qp(qp);
	if (was_polled || mic_qp_has_work(qp))
		mic_qp_news(qp);
	return 0;
}

int mic_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		  struct ib_udata *udata)
{
	struct mic_qp *qp = to_mic_qp(ibqp);
	int err;

	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	err = mic_udata_check(udata, 0);
	if (err)
		return err;

	if (!qp->user && mask & IB_QP_AV)
		mic_resolve_dmac(qp->dev, &attr->ah_attr);
	mutex_lock(&qp->modify_lock);
	mic_qp_flush_sqe(qp, attr, mask);
	mic_qp_lock(qp);
	err = mic_modify_locked(qp, attr, mask);
	if (err)
		ibdev_dbg(ibqp->device,
			  "modify_qp: qpn %u from state %d to %d mask %#x: %pe\n",
			  qp->qpn, qp->state,
			  mask & IB_QP_STATE ? attr->qp_state : qp->state, mask,
			  ERR_PTR(err));
	/* a handler of the kernel may want a lock that the caller holds */
	mic_qp_unlock(qp, qp->user);
	if (!err) {
		mic_imports_revoke_qp(qp);
		WRITE_ONCE(qp->changing, false);
	}
	if (!err && !qp->user && mask & IB_QP_STATE &&
	    attr->qp_state == IB_QPS_RESET)
		mic_qp_forget(qp);
	/* what another node has by the new attributes may stay */
	if (!err && READ_ONCE(qp->mapped))
		mic_exports_wait(&qp->nrecalled);
	mutex_unlock(&qp->modify_lock);
	return err;
}

/* Who lists objects asks, too, and passes over those that answer EAGAIN. */
int mic_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		 struct ib_qp_init_attr *init)
{
	struct mic_qp *qp = mic_qp_get_listed(ibqp);

	if (!qp)
		return -EAGAIN;
	mutex_lock(&qp->modify_lock);
	mic_qp_lock(qp);
	*attr = qp->attr;
	attr->qp_state = qp->state;
	attr->cur_qp_state = qp->state;
	attr->rq_psn = qp->resp.epsn;
	attr->sq_psn = qp->req.psn;
	attr->sq_draining = qp->state == IB_QPS_SQD && qp->attr.sq_draining;
	attr->cap = qp->cap;
	mic_qp_unlock(qp, false);
	mutex_unlock(&qp->modify_lock);

	init->qp_context = ibqp->qp_context;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->cap = attr->cap;
	init->sq_sig_type = qp->sig_all ? IB_SIGNAL_ALL_WR : IB_SIGNAL_REQ_WR;
	init->qp_type = ibqp->qp_type;
	init->port_num = 1;
	mic_qp_put(qp);
	return 0;
}
