// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue pairs: creation, look-up, destruction.
 */
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <rdma/uverbs_ioctl.h>

#include <mic/gfp.h>

#include "../engine/engine.h"
#include "dev.h"
#include "post.h"
#include "qp.h"
#include "srq.h"
#include "uctx.h"
#include "windows.h"

#define MIC_QPN_GSI	1
#define MIC_QPN_MIN	16		/* below: the well-known ones */
#define MIC_QPN_MAX	0xfffffe	/* 0xffffff is multicast */

/**
 * mic_qp_get - look a QP up
 * @dev: device
 * @qpn: number, unchecked
 *
 * Context: any.
 * Return: the QP with a reference, or NULL.
 */
struct mic_qp *mic_qp_get(struct mic_dev *dev, u32 qpn)
{
	struct mic_qp *qp;

	rcu_read_lock();
	qp = mic_xa_load(&dev->qps, qpn);
	if (qp && !refcount_inc_not_zero(&qp->ref))
		qp = NULL;
	rcu_read_unlock();
	return qp;
}

/**
 * mic_qp_get_listed - the queue pair of one that ib_core has listed
 * @ibqp: may be being destroyed; the caller keeps the structure
 *
 * Return: the queue pair with a reference, or NULL if it is gone.
 */
struct mic_qp *mic_qp_get_listed(struct ib_qp *ibqp)
{
	struct mic_qp *qp;

	rcu_read_lock();
	qp = rcu_dereference(container_of(ibqp, struct mic_ibqp, ibqp)->qp);
	if (qp && !refcount_inc_not_zero(&qp->ref))
		qp = NULL;
	rcu_read_unlock();
	return qp;
}

/**
 * mic_qp_put - drop a reference
 * @qp: queue pair
 */
void mic_qp_put(struct mic_qp *qp)
{
	if (refcount_dec_and_test(&qp->ref))
		complete(&qp->gone);
}

/**
 * mic_qp_gfp - how to allocate what a QP keeps, while it is used
 * @qp: queue pair
 *
 * Of a user's queue pair that is charged to who made it, by set_active_memcg(): the
 * worker may be at it, or another program that polls. Threads that work for all do not
 * wait for memory of one, whose control group may be made to wait for itself. A kernel
 * consumer has none, and the storage behind it may be what the memory is in use for.
 *
 * Return: flags.
 */
gfp_t mic_qp_gfp(const struct mic_qp *qp)
{
	return qp->user ? mic_gfp() | __GFP_ACCOUNT : GFP_NOIO | __GFP_NOWARN;
}

/**
 * mic_qp_zalloc - memory that a QP keeps, allocated while it is used
 * @qp: queue pair
 * @size: bytes
 *
 * Context: process context, may sleep.
 * Return: zeroed memory, or NULL.
 */
void *mic_qp_zalloc(const struct mic_qp *qp, size_t size)
{
	struct mem_cgroup *before = set_active_memcg(qp->memcg);
	void *memory;

	memory = kzalloc(size, mic_qp_gfp(qp));
	set_active_memcg(before);
	return memory;
}

/**
 * mic_qp_event - tell the owner of a QP what happened to it
 * @qp: queue pair; the caller holds a reference
 * @type: affiliated asynchronous event
 *
 * A process that has many to read is not told once more.
 *
 * Context: process context.
 */
void mic_qp_event(struct mic_qp *qp, enum ib_event_type type)
{
	struct ib_event event = {
		.device = qp->ibqp->device,
		.element.qp = qp->ibqp,
		.event = type,
	};

	if (!mic_unread_may_raise(&qp->unread, type))
		return;
	mic_count(qp->dev, MIC_CNT_ASYNC_EVENT);
	if (qp->ibqp->event_handler)
		qp->ibqp->event_handler(&event, qp->ibqp->qp_context);
}

static int mic_qp_check_init(const struct ib_qp_init_attr *init)
{
	const struct ib_qp_cap *cap = &init->cap;

	switch (init->qp_type) {
	case IB_QPT_RC:
	case IB_QPT_UC:
	case IB_QPT_XRC_INI:
	case IB_QPT_XRC_TGT:
	case IB_QPT_UD:
	case IB_QPT_GSI:
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (init->create_flags && (init->qp_type != IB_QPT_UD || init->create_flags !=
				   IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK))
		return -EOPNOTSUPP;
	if (init->qp_type == IB_QPT_XRC_TGT)
		return init->xrcd ? 0 : -EINVAL;
	if (!init->send_cq ||
	    (!init->recv_cq && init->qp_type != IB_QPT_XRC_INI))
		return -EINVAL;
	if (cap->max_send_wr > MIC_MAX_WR || cap->max_send_sge > MIC_MAX_SGE ||
	    cap->max_inline_data > MIC_MAX_INLINE)
		return -EINVAL;
	if (!init->srq && (cap->max_recv_wr > MIC_MAX_WR ||
			   cap->max_recv_sge > MIC_MAX_SGE))
		return -EINVAL;
	return 0;
}

/*
 * A send element has room for its scatter/gather list or its inline data,
 * whichever is more, and at least for the 8 bytes of an atomic write; what that
 * leaves over is given to the user.
 */
static u32 mic_send_stride(struct ib_qp_cap *cap)
{
	u32 room = max_t(u32, cap->max_send_sge * sizeof(struct mic_sge),
			 cap->max_inline_data);

	room = ALIGN(max_t(u32, room, sizeof(u64)), 64);
	cap->max_inline_data = room;
	return MIC_SEND_WQE_HDR + room;
}

static bool mic_qp_has_rq(const struct mic_qp *qp)
{
	return !qp->srq && qp->type != IB_QPT_XRC_INI &&
	       qp->type != IB_QPT_XRC_TGT;
}

static int mic_qp_buf_create(struct mic_qp *qp)
{
	struct ib_qp_cap *cap = &qp->cap;
	struct mic_buf *buf;
	size_t size = 0;

	if (qp->type == IB_QPT_XRC_TGT)
		return 0;
	mic_ring_layout(&qp->req.ring, max(cap->max_send_wr, 1U),
			mic_send_stride(cap), &size);
	cap->max_send_wr = qp->req.ring.info.entries;
	if (mic_qp_has_rq(qp)) {
		mic_ring_layout(&qp->resp.ring, max(cap->max_recv_wr, 1U),
				mic_recv_stride(cap->max_recv_sge), &size);
		cap->max_recv_wr = qp->resp.ring.info.entries;
	} else {
		cap->max_recv_wr = 0;
		cap->max_recv_sge = 0;
	}

	buf = mic_queue_buf_create(qp->uctx, size);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	qp->buf = buf;
	mic_ring_attach(&qp->req.ring, qp->buf);
	WRITE_ONCE(qp->req.ring.ctl->need_kick, MIC_KICK_ASLEEP);
	if (mic_qp_has_rq(qp))
		mic_ring_attach(&qp->resp.ring, qp->buf);
	return 0;
}

static void mic_qp_init(struct mic_qp *qp, struct ib_qp *ibqp,
			const struct ib_qp_init_attr *init)
{
	refcount_set(&qp->ref, 1);
	init_completion(&qp->gone);
	mutex_init(&qp->modify_lock);
	mutex_init(&qp->req.lock);
	mutex_init(&qp->resp.lock);
	spin_lock_init(&qp->req.post_lock);
	spin_lock_init(&qp->resp.post_lock);
	hrtimer_init(&qp->req.timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	qp->req.timer.function = mic_req_timeout;
	INIT_WORK(&qp->work, mic_qp_work);
	INIT_LIST_HEAD(&qp->imports);
	INIT_LIST_HEAD(&qp->exports);
	INIT_LIST_HEAD(&qp->grants);
	INIT_LIST_HEAD(&qp->req.flights);
	INIT_LIST_HEAD(&qp->req.spare);
	INIT_LIST_HEAD(&qp->req.answered_entry);
	INIT_LIST_HEAD(&qp->req.poll_entry);
	INIT_LIST_HEAD(&qp->counter_entry);

	qp->ibqp = ibqp;
	qp->dev = to_mic_dev(ibqp->device);
	qp->counters = qp->dev->counters;
	qp->type = init->qp_type;
	qp->sig_all = init->sq_sig_type == IB_SIGNAL_ALL_WR;
	qp->no_loopback = init->create_flags & IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK;
	qp->send_cq = init->send_cq ? to_mic_cq(init->send_cq) : NULL;
	qp->recv_cq = init->recv_cq ? to_mic_cq(init->recv_cq) : NULL;
	qp->xrcd = init->qp_type == IB_QPT_XRC_TGT ? init->xrcd : NULL;
	qp->state = IB_QPS_RESET;
	qp->attr.path_mtu = IB_MTU_4096;
	/* An XRC target has no queues, whatever was asked for. */
	if (qp->type == IB_QPT_XRC_TGT) {
		mic_unread_init_target(&qp->unread, ibqp);
		return;
	}
	qp->srq = init->srq ? to_mic_srq(init->srq) : NULL;
	qp->cap = init->cap;
	mic_unread_init(&qp->unread, ibqp->uobject);
}

static int mic_qp_alloc_number(struct mic_qp *qp)
{
	struct mic_dev *dev = qp->dev;
	int err;

	if (qp->type == IB_QPT_GSI) {
		qp->qpn = MIC_QPN_GSI;
		return xa_insert(&dev->qps, qp->qpn, NULL, GFP_KERNEL);
	}
	err = xa_alloc_cyclic(&dev->qps, &qp->qpn, NULL,
			      XA_LIMIT(MIC_QPN_MIN, MIC_QPN_MAX),
			      &dev->next_qpn, GFP_KERNEL);
	return err < 0 ? err : 0;
}

static int mic_qp_respond(struct mic_qp *qp, struct ib_udata *udata)
{
	struct mic_create_qp_resp resp = {
		.sq = qp->req.ring.info,
		.rq = qp->resp.ring.info,
		.max_inline_data = qp->cap.max_inline_data,
	};

	if (!udata)
		return 0;
	if (qp->buf)
		mic_buf_info(qp->buf, &resp.map);
	return ib_copy_to_udata(udata, &resp, sizeof(resp));
}

static void mic_qp_free(struct mic_qp *qp)
{
	mic_dup_forget(qp);
	mic_sges_destroy(&qp->resp.sges);
	mic_sges_destroy(&qp->req.sges);
	mem_cgroup_put(qp->memcg);
	kfree_rcu(qp, rcu);
}

/* Scatter/gather elements a receive may have. */
static u32 mic_qp_recv_sge(const struct mic_qp *qp)
{
	if (qp->type == IB_QPT_XRC_TGT)
		return MIC_MAX_SGE;	/* any SRQ of the domain */
	return qp->srq ? qp->srq->max_sge : qp->cap.max_recv_sge;
}

int mic_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
		  struct ib_udata *udata)
{
	struct mic_dev *dev = to_mic_dev(ibqp->device);
	struct mic_qp *qp;
	int err;

	err = mic_qp_check_init(init);
	if (err) {
		ibdev_dbg(ibqp->device,
			  "create_qp: type %d flags %#x send %u of %u receive %u of %u inline %u: %pe\n",
			  init->qp_type, init->create_flags,
			  init->cap.max_send_wr, init->cap.max_send_sge,
			  init->cap.max_recv_wr, init->cap.max_recv_sge,
			  init->cap.max_inline_data, ERR_PTR(err));
		return err;
	}
	err = mic_udata_check(udata, 0);
	if (err)
		return err;
	if (udata && udata->outlen < sizeof(struct mic_create_qp_resp))
		return -EINVAL;
	err = mic_limit_get(&dev->nqp, MIC_MAX_QP);
	if (err)
		return err;
	qp = kzalloc(sizeof(*qp), GFP_KERNEL_ACCOUNT);
	if (!qp) {
		err = -ENOMEM;
		goto err_count;
	}
	mic_qp_init(qp, ibqp, init);
	/* ib_core makes the targets of user space without udata */
	qp->user = udata || qp->type == IB_QPT_XRC_TGT;
	if (qp->user)
		qp->memcg = get_mem_cgroup_from_mm(current->mm);
	if (qp->type != IB_QPT_XRC_TGT)
		qp->uctx = mic_udata_uctx(udata);

	err = mic_sges_init(&qp->req.sges, qp->cap.max_send_sge,
			    GFP_KERNEL_ACCOUNT);
	if (!err)
		err = mic_sges_init(&qp->resp.sges, mic_qp_recv_sge(qp),
				    GFP_KERNEL_ACCOUNT);
	if (err)
		goto err_free;
	err = mic_qp_buf_create(qp);
	if (err)
		goto err_free;
	err = mic_qp_alloc_number(qp);
	if (err)
		goto err_buf;
	err = mic_qp_respond(qp, udata);
	if (err)
		goto err_number;

	init->cap = qp->cap;
	ibqp->qp_num = qp->qpn;
	rcu_assign_pointer(container_of(ibqp, struct mic_ibqp, ibqp)->qp, qp);
	/* from here on the QP can be found */
	xa_store(&dev->qps, qp->qpn, qp, GFP_KERNEL);
	return 0;

err_number:
	xa_erase(&dev->qps, qp->qpn);
err_buf:
	if (qp->buf)
		mic_buf_destroy(qp->buf);
err_free:
	mic_qp_free(qp);
err_count:
	atomic_dec(&dev->nqp);
	return err;
}

/*
 * On return nothing of the QP is in use: no look-up finds it, nobody runs it,
 * neither its timer nor its worker will, and no windows hang on it.
 */
static void mic_qp_stop(struct mic_qp *qp)
{
	mic_count_unlink_qp(qp);
	mutex_lock(&qp->req.lock);
	mutex_lock(&qp->resp.lock);
	WRITE_ONCE(qp->state, IB_QPS_RESET);
	mic_req_cancel(qp);
	/* without spare room the worker does not start the timer anew */
	mic_window_destroy(qp);
	mutex_unlock(&qp->resp.lock);
	mutex_unlock(&qp->req.lock);
	mic_poll_del(qp);
	mic_qp_put(qp);
	wait_for_completion(&qp->gone);
	mic_imports_revoke_qp(qp);
	if (READ_ONCE(qp->mapped))
		mic_exports_wait(&qp->ngrants);
	hrtimer_cancel(&qp->req.timer);
	cancel_work_sync(&qp->work);
	mic_counter_forget_qp(qp);
}

/**
 * mic_qp_forget - a queue pair has no completions any more
 * @qp: queue pair of a kernel consumer that is destroyed or reset; libmic does the
 *	same for programs
 */
void mic_qp_forget(struct mic_qp *qp)
{
	mic_cq_forget(qp->send_cq, qp->ibqp);
	/* an XRC initiator may have none */
	if (qp->recv_cq)
		mic_cq_forget(qp->recv_cq, qp->ibqp);
}

/* Of a kernel consumer: it posts no more. */
static void mic_qp_leave_cqs(struct mic_qp *qp)
{
	mic_qp_forget(qp);
	mic_cq_settle(qp->send_cq);
	if (qp->recv_cq)
		mic_cq_settle(qp->recv_cq);
}

int mic_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct mic_qp *qp = to_mic_qp(ibqp);
	struct mic_dev *dev = qp->dev;

	mic_qp_stop(qp);
	RCU_INIT_POINTER(container_of(ibqp, struct mic_ibqp, ibqp)->qp, NULL);
	if (!qp->user)
		mic_qp_leave_cqs(qp);
	if (qp->req.node)
		mic_node_put(qp->req.node);
	if (qp->buf)
		mic_buf_destroy(qp->buf);
	mic_qp_free(qp);
	atomic_dec(&dev->nqp);
	return 0;
}
