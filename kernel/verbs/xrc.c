// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * XRC: a target QP that serves the SRQs of many processes.
 *
 * A target QP has no queues, no CQ and no protection domain; for the duration
 * of each segment it borrows those of the SRQ that the segment names. So an
 * SRQ can be destroyed at any time: what was under way on it is dropped.
 */
#include "dev.h"
#include "qp.h"
#include "srq.h"
#include "xrc.h"

int mic_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	return 0;
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
	u32 srqn;
	int err;

	err = xa_alloc_cyclic(&dev->srqs, &srqn, NULL, XA_LIMIT(1, 0xffffff),
			      &dev->next_srqn, GFP_KERNEL);
	if (err < 0)
		return -ENOMEM;
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

	refcount_set(&srq->ref, 1);
	init_completion(&srq->gone);
	/* the number was reserved, nothing to allocate */
	xa_store(&dev->srqs, srq->ibsrq.ext.xrc.srq_num, srq, GFP_KERNEL);
}

/**
 * mic_xrc_srq_unnumber - give a number back
 * @srq: queue that was not published
 */
void mic_xrc_srq_unnumber(struct mic_srq *srq)
{
	xa_erase(&to_mic_dev(srq->ibsrq.device)->srqs,
		 srq->ibsrq.ext.xrc.srq_num);
}

static void mic_xrc_srq_put(struct mic_srq *srq)
{
	if (refcount_dec_and_test(&srq->ref))
		complete(&srq->gone);
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

	xa_erase(&dev->srqs, srq->ibsrq.ext.xrc.srq_num);
	mic_xrc_srq_put(srq);
	wait_for_completion(&srq->gone);
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
	struct mic_srq *srq;

	lockdep_assert_held(&qp->resp.lock);
	/* not RCU: ib_core frees it as soon as it is destroyed */
	xa_lock(&qp->dev->srqs);
	srq = xa_load(&qp->dev->srqs, srqn);
	if (srq && (srq->ibsrq.ext.xrc.xrcd != qp->xrcd ||
		    !refcount_inc_not_zero(&srq->ref)))
		srq = NULL;
	xa_unlock(&qp->dev->srqs);
	if (!srq)
		return false;
	qp->srq = srq;
	qp->recv_cq = to_mic_cq(srq->ibsrq.ext.cq);
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
	mic_xrc_srq_put(srq);
}
