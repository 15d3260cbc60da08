// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Receives, as the responder uses them up.
 */
#include <linux/minmax.h>

#include "../verbs/dev.h"
#include "../verbs/srq.h"
#include "engine.h"

/**
 * mic_recv_copy - copy the head of a receive queue out of shared memory, once
 * @ring: ring that is not empty
 * @sges: out: scatter list
 * @wr_id: out
 */
void mic_recv_copy(const struct mic_ring *ring, struct mic_sges *sges,
		   u64 *wr_id)
{
	const u32 room = (ring->info.stride - sizeof(struct mic_recv_wqe)) /
			 sizeof(struct mic_sge);
	const void *slot = mic_ring_head(ring);
	struct mic_recv_wqe wqe;

	memcpy(&wqe, slot, sizeof(wqe));
	barrier();
	*wr_id = wqe.wr_id;
	/*
	 * The provider checked it; more is cut off and found too small. An XRC
	 * target has room for more than the element of an SRQ may have.
	 */
	sges->nsge = min3(wqe.num_sge, sges->max, room);
	memcpy(sges->sge, slot + sizeof(wqe),
	       sges->nsge * sizeof(*sges->sge));
}

static enum mic_ack mic_recv_take_ring(struct mic_qp *qp)
{
	struct mic_resp *resp = &qp->resp;
	int n = resp->broken ? 0 : mic_ring_pending(&resp->ring);

	if (n < 0) {
		resp->broken = true;
		ibdev_dbg(&qp->dev->ibdev,
			  "qpn %u: an index of the receive queue makes no sense\n",
			  qp->qpn);
		mic_qp_event(qp, IB_EVENT_QP_FATAL);
		mic_qp_error(qp);
		return MIC_ACK_NONE;
	}
	if (!n)
		return MIC_ACK_RNR;
	mic_recv_copy(&resp->ring, &resp->sges, &resp->wr_id);
	mic_ring_advance(&resp->ring);
	return MIC_ACK_OK;
}

/**
 * mic_recv_take - take a receive for the message that begins
 * @qp: queue pair; the caller holds &mic_resp.lock
 *
 * A receive left from a message that was broken off is used again.
 *
 * Return: MIC_ACK_OK, MIC_ACK_RNR if there is none, or MIC_ACK_NONE if the
 * queue is unusable.
 */
enum mic_ack mic_recv_take(struct mic_qp *qp)
{
	struct mic_resp *resp = &qp->resp;
	enum mic_ack ack;

	lockdep_assert_held(&resp->lock);
	if (resp->active)
		return MIC_ACK_OK;
	if (qp->srq)
		ack = mic_srq_take(qp->srq, &resp->sges, &resp->wr_id);
	else
		ack = mic_recv_take_ring(qp);
	resp->active = ack == MIC_ACK_OK;
	return ack;
}

/**
 * mic_recv_complete - complete the receive under way
 * @qp: queue pair; the caller holds &mic_resp.lock
 * @cqe: what happened; the identity of receive and QP is filled in
 * @solicited: the sender asked for an event, or it is an error
 */
void mic_recv_complete(struct mic_qp *qp, struct mic_cqe *cqe, bool solicited)
{
	struct mic_resp *resp = &qp->resp;

	lockdep_assert_held(&resp->lock);
	if (!cqe->opcode)
		cqe->opcode = MIC_WC_RECV;
	cqe->wr_id = resp->wr_id;
	cqe->qp_num = qp->qpn;
	cqe->srqn = qp->type == IB_QPT_XRC_TGT ? resp->xrc_srqn : 0;
	resp->active = false;
	if (!cqe->status)
		mic_qp_count(qp, MIC_CNT_RECV);
	mic_cq_post(qp->recv_cq, cqe, solicited);
}
