// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Posting by kernel consumers. They use the same rings as user space does; the
 * engine does not tell the two apart.
 */
#include <linux/build_bug.h>
#include <linux/string.h>

#include "../engine/engine.h"
#include "../engine/trace.h"
#include "ah.h"
#include "dev.h"
#include "post.h"
#include "qp.h"

static_assert(sizeof(struct mic_sge) == sizeof(struct ib_sge));
static_assert(offsetof(struct mic_sge, length) ==
	      offsetof(struct ib_sge, length));
static_assert(offsetof(struct mic_sge, lkey) == offsetof(struct ib_sge, lkey));

/* Kernel and user opcodes differ for what only one of them has. */
static u8 mic_wr_opcode(enum ib_wr_opcode opcode)
{
	switch (opcode) {
	case IB_WR_SEND_WITH_INV:
		return MIC_WR_SEND_WITH_INV;
	case IB_WR_LOCAL_INV:
		return MIC_WR_LOCAL_INV;
	case IB_WR_REG_MR:
		return MIC_WR_REG_MR;
	default:
		return opcode;
	}
}

/* Opcode and the union of a work request; returns -EINVAL for others. */
static int mic_post_fill(struct mic_send_wqe *wqe, const struct ib_send_wr *wr)
{
	switch (wr->opcode) {
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_READ:
		wqe->rdma.remote_addr = rdma_wr(wr)->remote_addr;
		wqe->rdma.rkey = rdma_wr(wr)->rkey;
		break;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		wqe->atomic.remote_addr = atomic_wr(wr)->remote_addr;
		wqe->atomic.rkey = atomic_wr(wr)->rkey;
		wqe->atomic.compare_add = atomic_wr(wr)->compare_add;
		wqe->atomic.swap = atomic_wr(wr)->swap;
		break;
	case IB_WR_REG_MR:
		wqe->reg.key = reg_wr(wr)->key;
		wqe->reg.access = reg_wr(wr)->access;
		break;
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_SEND_WITH_INV:
	case IB_WR_LOCAL_INV:
		break;
	default:
		return -EINVAL;
	}
	wqe->opcode = mic_wr_opcode(wr->opcode);
	wqe->ex = (__force u32)wr->ex.imm_data;
	return 0;
}

static u16 mic_post_flags(const struct ib_send_wr *wr)
{
	return (wr->send_flags & IB_SEND_FENCE ? MIC_WQE_FENCE : 0) |
	       (wr->send_flags & IB_SEND_SIGNALED ? MIC_WQE_SIGNALED : 0) |
	       (wr->send_flags & IB_SEND_SOLICITED ? MIC_WQE_SOLICITED : 0) |
	       (wr->send_flags & IB_SEND_INLINE ? MIC_WQE_INLINE : 0);
}

/* Inline data of a kernel consumer: its elements hold kernel addresses. */
static int mic_post_inline(struct mic_qp *qp, struct mic_send_wqe *wqe,
			   const struct ib_send_wr *wr)
{
	void *data = (void *)wqe + MIC_SEND_WQE_HDR;
	u32 len = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		const struct ib_sge *sge = &wr->sg_list[i];

		if (sge->length > qp->cap.max_inline_data - len)
			return -EINVAL;
		memcpy(data + len, (void *)(uintptr_t)sge->addr, sge->length);
		len += sge->length;
	}
	wqe->inline_len = len;
	return 0;
}

static bool mic_post_has_address(const struct ib_send_wr *wr)
{
	return wr->opcode == IB_WR_SEND || wr->opcode == IB_WR_SEND_WITH_IMM;
}

static int mic_post_one(struct mic_qp *qp, const struct ib_send_wr *wr)
{
	struct mic_ring *ring = &qp->req.ring;
	struct mic_send_wqe *wqe = mic_ring_slot(ring);
	int err;

	if (!wqe)
		return -ENOMEM;
	if (wr->num_sge > qp->cap.max_send_sge)
		return -EINVAL;
	memset(wqe, 0, MIC_SEND_WQE_HDR);
	err = mic_post_fill(wqe, wr);
	if (err)
		return err;
	wqe->wr_id = wr->wr_id;
	wqe->flags = mic_post_flags(wr);
	/* what else it is posted, as ib_drain_sq() does, has no address */
	if (mic_qp_is_ud(qp) && mic_post_has_address(wr)) {
		wqe->ud.ah = to_mic_ah(ud_wr(wr)->ah)->handle;
		wqe->ud.remote_qpn = ud_wr(wr)->remote_qpn;
		wqe->ud.remote_qkey = ud_wr(wr)->remote_qkey;
	}
	if (wqe->flags & MIC_WQE_INLINE) {
		err = mic_post_inline(qp, wqe, wr);
		if (err)
			return err;
	} else {
		wqe->num_sge = wr->num_sge;
		memcpy((void *)wqe + MIC_SEND_WQE_HDR, wr->sg_list,
		       wr->num_sge * sizeof(*wr->sg_list));
	}
	trace_mic_post_send(qp, wqe);
	mic_ring_produce(ring);
	return 0;
}

int mic_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		  const struct ib_send_wr **bad_wr)
{
	struct mic_qp *qp = to_mic_qp(ibqp);
	unsigned long flags;
	int err = 0;

	/* before RTS there is nothing to send to, IBA 10.8.3.3; XRC targets never do */
	if (READ_ONCE(qp->state) < IB_QPS_RTS || !qp->req.ring.ctl) {
		*bad_wr = wr;
		return -EINVAL;
	}
	spin_lock_irqsave(&qp->req.post_lock, flags);
	for (; wr; wr = wr->next) {
		err = mic_post_one(qp, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	spin_unlock_irqrestore(&qp->req.post_lock, flags);
	mic_qp_kick_deferred(qp);
	return err;
}

/**
 * mic_recv_put - post one receive to a kernel consumer's queue
 * @ring: queue; the caller serialises
 * @max_sge: scatter/gather elements a receive may have
 * @wr: work request
 *
 * Return: 0, -EINVAL (too many elements), -ENOMEM (queue full).
 */
int mic_recv_put(struct mic_ring *ring, u32 max_sge,
		 const struct ib_recv_wr *wr)
{
	struct mic_recv_wqe *wqe;

	if (wr->num_sge < 0 || wr->num_sge > max_sge)
		return -EINVAL;
	wqe = mic_ring_slot(ring);
	if (!wqe)
		return -ENOMEM;
	wqe->wr_id = wr->wr_id;
	wqe->num_sge = wr->num_sge;
	wqe->reserved = 0;
	memcpy(wqe + 1, wr->sg_list, wr->num_sge * sizeof(*wr->sg_list));
	mic_ring_produce(ring);
	return 0;
}

int mic_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		  const struct ib_recv_wr **bad_wr)
{
	struct mic_qp *qp = to_mic_qp(ibqp);
	unsigned long flags;
	int err = 0;

	/* nor has XRC a receive queue */
	if (READ_ONCE(qp->state) == IB_QPS_RESET || !qp->resp.ring.ctl) {
		*bad_wr = wr;
		return -EINVAL;
	}
	spin_lock_irqsave(&qp->resp.post_lock, flags);
	for (; wr; wr = wr->next) {
		trace_mic_post_recv(qp, wr->wr_id);
		err = mic_recv_put(&qp->resp.ring, qp->cap.max_recv_sge, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	spin_unlock_irqrestore(&qp->resp.post_lock, flags);
	smp_mb();	/* as user space: index, barrier, need_kick */
	if (READ_ONCE(qp->resp.ring.ctl->need_kick))
		mic_qp_kick_deferred(qp);
	return err;
}
