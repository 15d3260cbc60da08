// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Shared receive queues.
 */
#include <linux/sched.h>
#include <linux/uaccess.h>
#include <rdma/uverbs_ioctl.h>

#include "../engine/engine.h"
#include "dev.h"
#include "post.h"
#include "srq.h"
#include "uctx.h"
#include "xrc.h"

static int mic_srq_buf_create(struct mic_srq *srq, struct mic_uctx *uctx)
{
	size_t size = 0;

	mic_ring_layout(&srq->ring, srq->max_wr,
			mic_recv_stride(srq->max_sge), &size);
	srq->buf = mic_queue_buf_create(uctx, size);
	if (IS_ERR(srq->buf))
		return PTR_ERR(srq->buf);
	mic_ring_attach(&srq->ring, srq->buf);
	return 0;
}

static int mic_srq_check_init(const struct ib_srq_init_attr *init)
{
	if (init->srq_type != IB_SRQT_BASIC && init->srq_type != IB_SRQT_XRC)
		return -EOPNOTSUPP;
	if (!init->attr.max_wr || init->attr.max_wr > MIC_MAX_WR ||
	    init->attr.max_sge > MIC_MAX_SGE)
		return -EINVAL;
	return 0;
}

int mic_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
		   struct ib_udata *udata)
{
	struct mic_dev *dev = to_mic_dev(ibsrq->device);
	struct mic_uctx *uctx = mic_udata_uctx(udata);
	struct mic_srq *srq = to_mic_srq(ibsrq);
	struct mic_create_srq_resp resp = {};
	int err;

	err = mic_srq_check_init(init);
	if (err) {
		ibdev_dbg(ibsrq->device,
			  "create_srq: type %d, %u receives of %u: %pe\n",
			  init->srq_type, init->attr.max_wr, init->attr.max_sge,
			  ERR_PTR(err));
		return err;
	}
	err = mic_udata_check(udata, 0);
	if (err)
		return err;
	if (uctx && udata->outlen < sizeof(resp))
		return -EINVAL;
	err = mic_limit_get(&dev->nsrq, MIC_MAX_SRQ);
	if (err)
		return err;

	mutex_init(&srq->modify_lock);
	spin_lock_init(&srq->lock);
	mic_unread_init(&srq->unread, ibsrq->uobject);
	srq->max_wr = roundup_pow_of_two(init->attr.max_wr);
	srq->max_sge = init->attr.max_sge;
	err = mic_srq_buf_create(srq, uctx);
	if (err)
		goto err_count;
	init->attr.max_wr = srq->max_wr;
	if (init->srq_type == IB_SRQT_XRC) {
		err = mic_xrc_srq_number(srq);
		if (err)
			goto err_buf;
		resp.srqn = ibsrq->ext.xrc.srq_num;
	}
	if (uctx) {
		mic_buf_info(srq->buf, &resp.map);
		resp.ring = srq->ring.info;
		err = ib_copy_to_udata(udata, &resp, sizeof(resp));
		if (err)
			goto err_xrc;
	}
	if (init->srq_type == IB_SRQT_XRC)
		mic_xrc_srq_publish(srq);
	return 0;

err_xrc:
	if (init->srq_type == IB_SRQT_XRC)
		mic_xrc_srq_unnumber(srq);
err_buf:
	mic_buf_destroy(srq->buf);
err_count:
	atomic_dec(&dev->nsrq);
	return err;
}

/* No target uses it any more; libmic drops the completions of a program's own. */
static void mic_srq_leave_cq(struct ib_srq *ibsrq)
{
	struct mic_cq *cq = to_mic_cq(ibsrq->ext.cq);

	mic_xrc_srq_hide(to_mic_srq(ibsrq));
	if (ibsrq->uobject)
		return;
	mic_cq_forget_srq(cq, ibsrq->ext.xrc.srq_num);
	mic_cq_settle(cq);
}

int mic_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct mic_srq *srq = to_mic_srq(ibsrq);

	if (ibsrq->srq_type == IB_SRQT_XRC)
		mic_srq_leave_cq(ibsrq);
	/* who lists objects may still look */
	spin_lock_irq(&srq->lock);
	srq->ring.ctl = NULL;
	spin_unlock_irq(&srq->lock);
	mic_buf_destroy(srq->buf);
	atomic_dec(&to_mic_dev(ibsrq->device)->nsrq);
	return 0;
}

/* What waits in an SRQ, or -EINVAL if its indices make no sense. */
static int mic_srq_pending(struct mic_srq *srq, u32 *from)
{
	unsigned long flags;
	int n;

	spin_lock_irqsave(&srq->lock, flags);
	*from = srq->ring.consumer;
	n = srq->broken ? -EINVAL : mic_ring_pending(&srq->ring);
	spin_unlock_irqrestore(&srq->lock, flags);
	return n;
}

/*
 * Go on with the @n elements in @to. What was taken while they were copied is
 * skipped; user space does not post meanwhile, or only harms itself.
 */
static int mic_srq_switch(struct mic_srq *srq, struct mic_ring *to,
			  struct mic_buf **buf, u32 from, u32 n)
{
	unsigned long flags;
	u32 taken;

	spin_lock_irqsave(&srq->lock, flags);
	taken = srq->ring.consumer - from;
	if (taken > n || srq->broken) {
		spin_unlock_irqrestore(&srq->lock, flags);
		return -EINVAL;
	}
	to->consumer = taken;
	WRITE_ONCE(to->ctl->consumer, taken);
	WRITE_ONCE(to->ctl->producer, n);
	srq->ring = *to;
	srq->max_wr = to->info.entries;
	swap(srq->buf, *buf);
	spin_unlock_irqrestore(&srq->lock, flags);
	return 0;
}

/*
 * Move the elements that wait to the start of @to, which is in *@buf; the
 * memory to free is then there. The engine changes no element, so they are
 * copied while it works.
 */
static int mic_srq_move(struct mic_srq *srq, struct mic_ring *to,
			struct mic_buf **buf)
{
	u32 mask = srq->ring.info.entries - 1, stride = to->info.stride;
	u32 from, i;
	int n = mic_srq_pending(srq, &from);

	if (n < 0 || n > to->info.entries)
		return -EINVAL;
	for (i = 0; i < n; i++) {
		memcpy(to->base + (size_t)i * stride,
		       srq->ring.base + (size_t)((from + i) & mask) * stride,
		       stride);
		if (!(i % 1024))
			cond_resched();
	}
	return mic_srq_switch(srq, to, buf, from, n);
}

static int mic_srq_tell(struct mic_modify_srq_cmd *cmd,
			const struct mic_buf *buf, const struct mic_ring *ring)
{
	struct mic_modify_srq_resp resp = { .ring = ring->info };

	mic_buf_info(buf, &resp.map);
	if (copy_to_user(u64_to_user_ptr(cmd->resp_addr), &resp, sizeof(resp)))
		return -EFAULT;
	return 0;
}

static int mic_srq_resize(struct mic_srq *srq, u32 max_wr,
			  struct ib_udata *udata)
{
	struct mic_uctx *uctx = mic_udata_uctx(udata);
	struct mic_modify_srq_cmd cmd;
	struct mic_ring ring = {};
	struct mic_buf *buf;
	size_t size = 0;
	int err;

	if (!uctx)
		return -EOPNOTSUPP;	/* a kernel consumer posts meanwhile */
	if (udata->inlen < sizeof(cmd))
		return -EINVAL;
	err = mic_udata_check(udata, sizeof(cmd));
	if (err)
		return err;
	err = ib_copy_from_udata(&cmd, udata, sizeof(cmd));
	if (err)
		return err;

	mic_ring_layout(&ring, max_wr, srq->ring.info.stride, &size);
	buf = mic_queue_buf_create(uctx, size);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	mic_ring_attach(&ring, buf);
	err = mic_srq_tell(&cmd, buf, &ring);
	if (!err)
		err = mic_srq_move(srq, &ring, &buf);
	mic_buf_destroy(buf);
	return err;
}

static int mic_modify_srq_locked(struct mic_srq *srq,
				 const struct ib_srq_attr *attr, int mask,
				 struct ib_udata *udata)
{
	u32 max_wr = mask & IB_SRQ_MAX_WR ? attr->max_wr : srq->max_wr;
	u32 limit = mask & IB_SRQ_LIMIT ? attr->srq_limit :
					  READ_ONCE(srq->limit);
	unsigned long flags;
	int err;

	if (!max_wr || max_wr > MIC_MAX_WR || limit > max_wr)
		return -EINVAL;
	if (mask & IB_SRQ_MAX_WR) {
		err = mic_srq_resize(srq, max_wr, udata);
		if (err)
			return err;
	}
	if (mask & IB_SRQ_LIMIT) {
		spin_lock_irqsave(&srq->lock, flags);
		srq->limit = limit;
		spin_unlock_irqrestore(&srq->lock, flags);
	}
	return 0;
}

int mic_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		   enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct mic_srq *srq = to_mic_srq(ibsrq);
	int err;

	if (mask & ~(IB_SRQ_MAX_WR | IB_SRQ_LIMIT))
		return -EINVAL;
	err = mask & IB_SRQ_MAX_WR ? 0 : mic_udata_check(udata, 0);
	if (err)
		return err;
	mutex_lock(&srq->modify_lock);
	err = mic_modify_srq_locked(srq, attr, mask, udata);
	mutex_unlock(&srq->modify_lock);
	return err;
}

int mic_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct mic_srq *srq = to_mic_srq(ibsrq);

	attr->max_wr = READ_ONCE(srq->max_wr);
	attr->max_sge = srq->max_sge;
	attr->srq_limit = READ_ONCE(srq->limit);
	return 0;
}

/* Under the lock, for modify_srq exchanges the ring, and destroy_srq frees it. */
static bool mic_srq_look_locked(const struct mic_srq *srq,
				struct mic_srq_view *view)
{
	const struct mic_ring *ring = &srq->ring;

	if (!ring->ctl)
		return false;
	view->entries = ring->info.entries;
	view->producer = READ_ONCE(ring->ctl->producer);
	view->consumer = ring->consumer;
	view->limit = srq->limit;
	view->broken = srq->broken;
	return true;
}

/**
 * mic_srq_look - what is in a shared receive queue
 * @srq: queue
 * @view: out
 *
 * Return: false if it has been destroyed.
 */
bool mic_srq_look(struct mic_srq *srq, struct mic_srq_view *view)
{
	unsigned long flags;
	bool there;

	spin_lock_irqsave(&srq->lock, flags);
	there = mic_srq_look_locked(srq, view);
	spin_unlock_irqrestore(&srq->lock, flags);
	return there;
}

/**
 * mic_srq_try_look - the same, without waiting for who works on it
 * @srq: queue
 * @view: out
 *
 * Return: false if its lock is held, or if it has been destroyed.
 */
bool mic_srq_try_look(struct mic_srq *srq, struct mic_srq_view *view)
{
	unsigned long flags;
	bool there;

	if (!spin_trylock_irqsave(&srq->lock, flags))
		return false;
	there = mic_srq_look_locked(srq, view);
	spin_unlock_irqrestore(&srq->lock, flags);
	return there;
}

static void mic_srq_event(struct mic_srq *srq, enum ib_event_type type)
{
	struct ib_event event = {
		.device = srq->ibsrq.device,
		.element.srq = &srq->ibsrq,
		.event = type,
	};

	mic_count(to_mic_dev(srq->ibsrq.device), MIC_CNT_ASYNC_EVENT);
	if (srq->ibsrq.event_handler)
		srq->ibsrq.event_handler(&event, srq->ibsrq.srq_context);
}

/* Take one receive; @event is set to what is to be told, or left alone. */
static enum mic_ack mic_srq_take_locked(struct mic_srq *srq,
					struct mic_sges *sges, u64 *wr_id,
					int *event)
{
	int n;

	/* no use in waiting for receives */
	if (srq->broken)
		return MIC_ACK_NONE;
	n = mic_ring_pending(&srq->ring);
	if (n < 0) {
		srq->broken = true;
		*event = IB_EVENT_SRQ_ERR;
		return MIC_ACK_NONE;
	}
	if (!n)
		return MIC_ACK_RNR;
	mic_recv_copy(&srq->ring, sges, wr_id);
	mic_ring_advance(&srq->ring);
	/* a process that has many to read is told with a later one */
	if (srq->limit && n - 1 < srq->limit &&
	    mic_unread_may_raise(&srq->unread, IB_EVENT_SRQ_LIMIT_REACHED)) {
		srq->limit = 0;
		*event = IB_EVENT_SRQ_LIMIT_REACHED;
	}
	return MIC_ACK_OK;
}

/**
 * mic_srq_take - take a receive out of a shared queue
 * @srq: queue
 * @sges: out: its scatter list
 * @wr_id: out
 *
 * Return: MIC_ACK_OK, MIC_ACK_RNR if it is empty, MIC_ACK_NONE if unusable.
 */
enum mic_ack mic_srq_take(struct mic_srq *srq, struct mic_sges *sges,
			  u64 *wr_id)
{
	unsigned long flags;
	enum mic_ack ack;
	int event = -1;

	spin_lock_irqsave(&srq->lock, flags);
	ack = mic_srq_take_locked(srq, sges, wr_id, &event);
	spin_unlock_irqrestore(&srq->lock, flags);
	if (event >= 0)
		mic_srq_event(srq, event);
	return ack;
}

int mic_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad_wr)
{
	struct mic_srq *srq = to_mic_srq(ibsrq);
	unsigned long flags;
	int err = 0;

	spin_lock_irqsave(&srq->lock, flags);
	for (; wr && !err; wr = err ? wr : wr->next)
		err = mic_recv_put(&srq->ring, srq->max_sge, wr);
	spin_unlock_irqrestore(&srq->lock, flags);
	if (err)
		*bad_wr = wr;
	return err;
}
