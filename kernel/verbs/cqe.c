// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completions: written by the engine, polled by kernel consumers. (User space
 * polls the shared ring by itself.)
 */
#include <linux/ktime.h>

#include "../engine/trace.h"
#include "cq.h"
#include "dev.h"
#include "qp.h"

/* An element was lost. The queue is in error, IBA 11.6.3.1. */
static void mic_cq_overflow(struct mic_cq *cq)
{
	struct ib_event event = {
		.device = cq->ibcq.device,
		.element.cq = &cq->ibcq,
		.event = IB_EVENT_CQ_ERR,
	};

	mic_count(to_mic_dev(cq->ibcq.device), MIC_CNT_CQ_OVERFLOW);
	mic_count(to_mic_dev(cq->ibcq.device), MIC_CNT_ASYNC_EVENT);
	if (cq->ibcq.event_handler)
		cq->ibcq.event_handler(&event, cq->ibcq.cq_context);
}

/* No more are taken, nor does the process add its own. The queue's lock is held. */
static bool mic_cq_lose(struct mic_cq *cq)
{
	bool first = !cq->overflow;

	cq->overflow = true;
	WRITE_ONCE(cq->ctl->overrun, 1);
	return first;
}

/* Returns false if there is no room. */
static bool mic_cq_put(struct mic_cq *cq, struct mic_cqe *cqe)
{
	struct mic_cqe *slot = &cq->ring[cq->producer & (cq->entries - 1)];
	/* acquire: the consumer has read the slots it gives back */
	u32 used = cq->producer - smp_load_acquire(&cq->ctl->consumer);

	/* a consumer ahead of the producer is no better than a full ring */
	if (cq->overflow || used >= cq->entries)
		return false;
	cqe->owner = !(cq->producer & cq->entries);
	memcpy(slot, cqe, offsetof(struct mic_cqe, owner));
	/* the owner word makes the element valid, so it comes last */
	smp_store_release(&slot->owner, cqe->owner);
	cq->producer++;
	return true;
}

/**
 * mic_cq_post - add a completion to a queue
 * @cq: queue
 * @cqe: element; owner, and the timestamp if asked for, are filled in
 * @solicited: it counts as a solicited completion (errors do)
 *
 * Context: process context; may call the consumer's handlers.
 */
void mic_cq_post(struct mic_cq *cq, struct mic_cqe *cqe, bool solicited)
{
	bool put, fire = false, lost = false;
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	/* with the lock, for they come in the order of time */
	if (cq->timestamps)
		cqe->timestamp = ktime_get_raw_ns();
	put = mic_cq_put(cq, cqe);
	if (put)
		fire = mic_cq_fire(cq, solicited);
	else if (cq->ignore_overrun)
		mic_count(to_mic_dev(cq->ibcq.device), MIC_CNT_CQ_OVERFLOW);
	else
		lost = mic_cq_lose(cq);
	trace_mic_complete(cq, cqe, fire, !put);
	spin_unlock_irqrestore(&cq->lock, flags);

	if (fire)
		mic_cq_event(cq);
	if (lost)
		mic_cq_overflow(cq);
}

/**
 * mic_cq_set_remote - another machine brings about completions
 * @cq: queue; who polls it in vain is to look what other machines have sent
 *
 * Context: process context.
 */
void mic_cq_set_remote(struct mic_cq *cq)
{
	unsigned long flags;

	if (READ_ONCE(cq->remote))
		return;
	spin_lock_irqsave(&cq->lock, flags);
	WRITE_ONCE(cq->remote, true);
	WRITE_ONCE(cq->ctl->remote, 1);
	spin_unlock_irqrestore(&cq->lock, flags);
}

/**
 * mic_cq_notify - user space has added a completion of its own
 * @cq: queue
 *
 * Context: process context.
 */
void mic_cq_notify(struct mic_cq *cq)
{
	unsigned long flags;
	bool fire;

	spin_lock_irqsave(&cq->lock, flags);
	fire = mic_cq_fire(cq, false);
	spin_unlock_irqrestore(&cq->lock, flags);
	if (fire)
		mic_cq_event(cq);
}

/**
 * mic_cq_overrun - user space had no room for a completion of its own
 * @cq: queue
 *
 * Context: process context.
 */
void mic_cq_overrun(struct mic_cq *cq)
{
	unsigned long flags;
	bool first;

	if (cq->ignore_overrun) {
		mic_count(to_mic_dev(cq->ibcq.device), MIC_CNT_CQ_OVERFLOW);
		return;
	}
	spin_lock_irqsave(&cq->lock, flags);
	first = mic_cq_lose(cq);
	spin_unlock_irqrestore(&cq->lock, flags);
	if (first)
		mic_cq_overflow(cq);
}

static enum ib_wc_opcode mic_wc_opcode(u8 opcode)
{
	switch (opcode) {
	case MIC_WC_RDMA_WRITE:
		return IB_WC_RDMA_WRITE;
	case MIC_WC_RDMA_READ:
		return IB_WC_RDMA_READ;
	case MIC_WC_COMP_SWAP:
		return IB_WC_COMP_SWAP;
	case MIC_WC_FETCH_ADD:
		return IB_WC_FETCH_ADD;
	case MIC_WC_LOCAL_INV:
		return IB_WC_LOCAL_INV;
	case MIC_WC_REG_MR:
		return IB_WC_REG_MR;
	case MIC_WC_RECV:
		return IB_WC_RECV;
	case MIC_WC_RECV_RDMA_WITH_IMM:
		return IB_WC_RECV_RDMA_WITH_IMM;
	default:
		return IB_WC_SEND;
	}
}

/* NULL if it is gone, or going. */
static struct ib_qp *mic_cqe_qp(struct mic_dev *dev, const struct mic_cqe *cqe)
{
	struct ib_qp *ibqp = NULL;
	struct mic_qp *qp;

	rcu_read_lock();
	qp = xa_load(&dev->qps, cqe->qp_num);
	if (qp)
		ibqp = qp->ibqp;
	rcu_read_unlock();
	return ibqp;
}

/*
 * Returns false if the QP is being destroyed: it takes its completions with it, so
 * nobody wants to know. Those of an XRC receive queue stay when the target goes.
 */
static bool mic_wc_fill(struct mic_cq *cq, const struct mic_cqe *cqe,
			struct ib_wc *wc)
{
	struct mic_dev *dev = to_mic_dev(cq->ibcq.device);

	memset(wc, 0, sizeof(*wc));
	wc->wr_id = cqe->wr_id;
	wc->status = cqe->status;
	wc->opcode = mic_wc_opcode(cqe->opcode);
	wc->vendor_err = cqe->vendor_err;
	wc->byte_len = cqe->byte_len;
	wc->qp = mic_cqe_qp(dev, cqe);
	if (!wc->qp && !cqe->srqn)
		return false;
	wc->src_qp = cqe->src_qp;
	wc->pkey_index = cqe->pkey_index;
	wc->sl = cqe->sl;
	wc->port_num = 1;
	if (cqe->wc_flags & MIC_WC_WITH_IMM) {
		wc->wc_flags |= IB_WC_WITH_IMM;
		wc->ex.imm_data = (__force __be32)cqe->ex;
	}
	if (cqe->wc_flags & MIC_WC_WITH_INV) {
		wc->wc_flags |= IB_WC_WITH_INVALIDATE;
		wc->ex.invalidate_rkey = cqe->ex;
	}
	if (cqe->wc_flags & MIC_WC_GRH) {
		wc->wc_flags |= IB_WC_GRH | IB_WC_WITH_NETWORK_HDR_TYPE;
		wc->network_hdr_type = cqe->wc_flags & MIC_WC_IPV4 ?
					       RDMA_NETWORK_IPV4 :
					       RDMA_NETWORK_IPV6;
	}
	if (cqe->wc_flags & MIC_WC_WITH_SMAC) {
		wc->wc_flags |= IB_WC_WITH_SMAC;
		memcpy(wc->smac, cqe->smac, ETH_ALEN);
	}
	if (cqe->wc_flags & MIC_WC_WITH_VLAN) {
		wc->wc_flags |= IB_WC_WITH_VLAN;
		wc->vlan_id = cqe->vlan_id;
	}
	return true;
}

/* Those of a QP, or of an XRC receive queue; numbers that are 0 are those of none. */
static void mic_cq_drop(struct mic_cq *cq, u32 qpn, u32 srqn)
{
	u32 mask = cq->entries - 1, from, to;
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	to = cq->consumer;
	for (from = cq->consumer; from != cq->producer; from++) {
		const struct mic_cqe *cqe = &cq->ring[from & mask];

		if (qpn ? cqe->qp_num != qpn : cqe->srqn != srqn)
			cq->ring[to++ & mask] = *cqe;
	}
	cq->producer = to;
	spin_unlock_irqrestore(&cq->lock, flags);
}

/**
 * mic_cq_forget - drop the completions of a QP that is being destroyed
 * @cq: queue of a kernel consumer
 * @ibqp: queue pair that posts no more
 */
void mic_cq_forget(struct mic_cq *cq, const struct ib_qp *ibqp)
{
	mic_cq_drop(cq, ibqp->qp_num, 0);
}

/**
 * mic_cq_forget_srq - the same for an XRC receive queue
 * @cq: queue of a kernel consumer
 * @srqn: number of the receive queue, which is not used any more
 */
void mic_cq_forget_srq(struct mic_cq *cq, u32 srqn)
{
	mic_cq_drop(cq, 0, srqn);
}

int mic_poll_cq(struct ib_cq *ibcq, int n, struct ib_wc *wc)
{
	struct mic_cq *cq = to_mic_cq(ibcq);
	unsigned long flags;
	int i;

	spin_lock_irqsave(&cq->lock, flags);
	for (i = 0; i < n && cq->consumer != cq->producer; cq->consumer++) {
		u32 slot = cq->consumer & (cq->entries - 1);

		i += mic_wc_fill(cq, &cq->ring[slot], &wc[i]);
	}
	WRITE_ONCE(cq->ctl->consumer, cq->consumer);
	spin_unlock_irqrestore(&cq->lock, flags);
	return i;
}

int mic_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct mic_cq *cq = to_mic_cq(ibcq);
	unsigned long irq;
	u32 arm;
	int missed = 0;

	arm = (flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED ?
		      MIC_CQ_ARM_SOLICITED : MIC_CQ_ARM_NEXT;
	spin_lock_irqsave(&cq->lock, irq);
	if (READ_ONCE(cq->ctl->arm) != MIC_CQ_ARM_NEXT)
		WRITE_ONCE(cq->ctl->arm, arm);
	if (flags & IB_CQ_REPORT_MISSED_EVENTS)
		missed = cq->producer != cq->consumer;
	spin_unlock_irqrestore(&cq->lock, irq);
	return missed;
}
