// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * XRC: a target QP that serves the SRQs of many processes.
 *
 * A target QP has no queues, no CQ and no protection domain; for the duration
 * of each segment it borrows those of the SRQ that the segment names. So an
 * SRQ can be destroyed at any time: what was under way on it is dropped.
 */
#include <linux/completion.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "dev.h"
#include "qp.h"
#include "srq.h"
#include "uctx.h"
#include "xrc.h"

/**
 * struct mic_xrc_entry - what target QPs find by an SRQ's number
 * @srq: queue; there while @ref is not 0
 * @xrcd: its domain
 * @ref: one for the owner, one for each target QP that uses the queue now
 * @gone: the last reference was dropped
 * @rcu: ib_core frees a queue as soon as it is destroyed, so who looks for one
 *	looks at this
 */
struct mic_xrc_entry {
	struct mic_srq *srq;
	struct ib_xrcd *xrcd;
	refcount_t ref;
	struct completion gone;
	struct rcu_head rcu;
};

int mic_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	return mic_udata_check(udata, 0);
}

int mic_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	return 0;
}

/**
 * mic_xrc_srq_number - give an XRC SRQ its number
 * @srq: queue, which nobody finds by the number yet
 *
 * Return: 0 or -ENOMEM.
 */
int mic_xrc_srq_number(struct mic_srq *srq)
{
	struct mic_dev *dev = to_mic_dev(srq->ibsrq.device);
	struct mic_xrc_entry *entry;
	u32 srqn;
	int err;

	entry = kzalloc(sizeof(*entry), GFP_KERNEL_ACCOUNT);
	if (!entry)
		return -ENOMEM;
	err = xa_alloc_cyclic(&dev->srqs, &srqn, NULL, XA_LIMIT(1, 0xffffff),
			      &dev->next_srqn, GFP_KERNEL);
	if (err < 0) {
		kfree(entry);
		return -ENOMEM;
	}
	entry->srq = srq;
	entry->xrcd = srq->ibsrq.ext.xrc.xrcd;
	refcount_set(&entry->ref, 1);
	init_completion(&entry->gone);
	srq->xrc = entry;
	srq->ibsrq.ext.xrc.srq_num = srqn;
	return 0;
}

/**
 * mic_xrc_srq_publish - target QPs can find an XRC SRQ
 * @srq: queue with a number, whose creation can't fail any more: there may be
 *	events of it at once, and ib_core keeps none for a queue that isn't made
 */
void mic_xrc_srq_publish(struct mic_srq *srq)
{
	struct mic_dev *dev = to_mic_dev(srq->ibsrq.device);

	/* the number was reserved, nothing to allocate */
	xa_store(&dev->srqs, srq->ibsrq.ext.xrc.srq_num, srq->xrc, GFP_KERNEL);
}

/**
 * mic_xrc_srq_unnumber - give a number back
 * @srq: queue that was not published
 */
void mic_xrc_srq_unnumber(struct mic_srq *srq)
{
	xa_erase(&to_mic_dev(srq->ibsrq.device)->srqs,
		 srq->ibsrq.ext.xrc.srq_num);
	kfree(srq->xrc);
}

static void mic_xrc_entry_put(struct mic_xrc_entry *entry)
{
	if (refcount_dec_and_test(&entry->ref))
		complete(&entry->gone);
}

/**
 * mic_xrc_srq_hide - an XRC SRQ can't be found any more
 * @srq: queue
 *
 * On return no target QP uses it.
 *
 * Context: process context; waits for segments under way.
 */
void mic_xrc_srq_hide(struct mic_srq *srq)
{
	struct mic_dev *dev = to_mic_dev(srq->ibsrq.device);
	struct mic_xrc_entry *entry = srq->xrc;

	xa_erase(&dev->srqs, srq->ibsrq.ext.xrc.srq_num);
	mic_xrc_entry_put(entry);
	wait_for_completion(&entry->gone);
	kfree_rcu(entry, rcu);
}

/* The caller owes a mic_xrc_entry_put(). */
static struct mic_xrc_entry *mic_xrc_lookup(struct mic_dev *dev, u32 srqn,
					    const struct ib_xrcd *xrcd)
{
	struct mic_xrc_entry *entry;

	rcu_read_lock();
	entry = xa_load(&dev->srqs, srqn);
	if (entry && (entry->xrcd != xrcd ||
		      !refcount_inc_not_zero(&entry->ref)))
		entry = NULL;
	rcu_read_unlock();
	return entry;
}

/**
 * mic_xrc_enter - a target QP borrows an SRQ
 * @qp: target QP; the caller holds &mic_resp.lock
 * @srqn: number, unchecked
 *
 * Which SRQ the receive under way is of, &mic_resp.xrc_srqn, the caller knows.
 *
 * Return: true if the caller owes a mic_xrc_leave(); false if there is no such
 * SRQ in the QP's XRC domain.
 */
bool mic_xrc_enter(struct mic_qp *qp, u32 srqn)
{
	struct mic_xrc_entry *entry;

	lockdep_assert_held(&qp->resp.lock);
	entry = mic_xrc_lookup(qp->dev, srqn, qp->xrcd);
	if (!entry)
		return false;
	qp->srq = entry->srq;
	qp->recv_cq = to_mic_cq(entry->srq->ibsrq.ext.cq);
	return true;
}

/**
 * mic_xrc_leave - a target QP gives the SRQ back
 * @qp: target QP
 */
void mic_xrc_leave(struct mic_qp *qp)
{
	struct mic_srq *srq = qp->srq;

	qp->srq = NULL;
	qp->recv_cq = NULL;
	mic_xrc_entry_put(srq->xrc);
}
