// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The responder: carries out what others ask of a QP.
 *
 * It knows nothing of the requester but the operation; the same code serves a
 * QP of this kernel and one behind a wire.
 */
#include <linux/atomic.h>
#include <rdma/ib_mad.h>

#include "../verbs/dev.h"
#include "../verbs/mcast.h"
#include "../verbs/mr.h"
#include "../verbs/odp.h"
#include "../verbs/srq.h"
#include "../verbs/windows.h"
#include "../verbs/xrc.h"
#include "engine.h"
#include "grh.h"
#include "reply.h"
#include "responder.h"
#include "trace.h"

/* The responder's answer to its own user, and the queue's end if reliable. */
static enum mic_ack mic_resp_fail(struct mic_qp *qp, enum ib_wc_status status,
				  enum mic_ack ack)
{
	struct mic_cqe cqe = { .status = status };
	bool told = qp->resp.active;

	trace_mic_nak(qp, status, ack);
	/* before anybody is told; it is flushed by who gets the lock that is held here */
	mic_qp_error(qp);
	if (told)
		mic_recv_complete(qp, &cqe, true);

	switch (ack) {
	case MIC_ACK_NAK_ACCESS:
		mic_qp_count(qp, MIC_CNT_REMOTE_ACCESS_ERR);
		mic_qp_event(qp, IB_EVENT_QP_ACCESS_ERR);
		break;
	case MIC_ACK_NAK_INV_REQ:
		mic_qp_count(qp, MIC_CNT_REMOTE_INV_REQ_ERR);
		if (!told)
			mic_qp_event(qp, IB_EVENT_QP_REQ_ERR);
		break;
	default:
		mic_qp_count(qp, MIC_CNT_REMOTE_OP_ERR);
		break;
	}
	return ack;
}

/* Errors of one-sided requests; unreliable services drop them, IBA 9.9.3. */
enum mic_ack mic_resp_nak(struct mic_qp *qp, enum mic_ack ack)
{
	if (!mic_qp_is_reliable(qp))
		return MIC_ACK_NONE;
	return mic_resp_fail(qp, IB_WC_LOC_QP_OP_ERR, ack);
}

/* Take a receive; without one the sender waits, or its datagram is lost. */
enum mic_ack mic_resp_take(struct mic_qp *qp, struct mic_op *op)
{
	enum mic_ack ack = mic_recv_take(qp);

	if (ack == MIC_ACK_RNR && mic_qp_is_reliable(qp)) {
		mic_qp_count(qp, MIC_CNT_RNR_SENT);
		op->rnr_timer = qp->attr.min_rnr_timer;
	}
	return ack;
}

/* Memory that is not at hand: the sender comes again, or its message is lost. */
enum mic_ack mic_resp_again(struct mic_qp *qp, struct mic_op *op)
{
	if (mic_qp_is_reliable(qp))
		mic_qp_count(qp, MIC_CNT_RNR_SENT);
	op->rnr_timer = MIC_ODP_RNR_TIMER;
	return MIC_ACK_RNR;
}

/* Complete the receive of a message that arrived whole. */
void mic_resp_receive_done(struct mic_qp *qp, const struct mic_op *op,
			   u8 opcode)
{
	struct mic_cqe cqe = {
		.opcode = opcode,
		.byte_len = op->length,
		.src_qp = op->src_qpn,
	};

	if (op->flags & MIC_OP_IMM) {
		cqe.wc_flags |= MIC_WC_WITH_IMM;
		cqe.ex = op->ex;
	} else if (op->flags & MIC_OP_INV) {
		cqe.wc_flags |= MIC_WC_WITH_INV;
		cqe.ex = op->ex;
	}
	if (mic_qp_is_ud(qp))
		mic_grh_cqe(&cqe, op);
	if (opcode == MIC_WC_RECV)
		mic_qp_count_add(qp, MIC_CNT_RECV_BYTES, op->length);
	if (mic_node_is_remote(op->src))
		mic_cq_set_remote(qp->recv_cq);
	mic_recv_complete(qp, &cqe, op->flags & MIC_OP_SOLICITED);
}

/* Copy a segment into the receive under way. */
static enum ib_wc_status mic_resp_scatter(struct mic_qp *qp,
					  const struct mic_op *op, u32 hdr)
{
	struct mic_sges *sges = &qp->resp.sges;
	enum ib_wc_status status;
	struct mic_sgl dst;

	status = mic_sges_resolve(sges, qp->dev, mic_qp_recv_pd(qp),
				  IB_ACCESS_LOCAL_WRITE,
				  (u64)op->length + hdr, op->seg_off,
				  (u64)op->seg_off + op->seg_len + hdr);
	if (status)
		return status;
	dst.seg = sges->seg;
	dst.nseg = sges->nseg;
	if (hdr)
		mic_grh_write(&dst, op);
	mic_sgl_copy(&dst, (u64)hdr + op->seg_off, op->data, op->seg_off,
		     op->seg_len);
	mic_sges_release(sges);
	return IB_WC_SUCCESS;
}

/*
 * Whether what has arrived is a datagram of management: one of another version ib_mad
 * reports each time. Looked at is what was copied, for at its sender's it may change.
 */
static bool mic_resp_is_mad(struct mic_qp *qp, const struct mic_op *op)
{
	struct mic_sges *sges = &qp->resp.sges;
	u8 version = 0;
	const struct mic_seg seg = mic_linear_seg(&version, sizeof(version));
	const struct mic_sgl to = { .seg = &seg, .nseg = 1 };
	struct mic_sgl from;

	if (mic_sges_resolve(sges, qp->dev, mic_qp_recv_pd(qp),
			     IB_ACCESS_LOCAL_WRITE, op->length + MIC_GRH_BYTES, 0,
			     MIC_GRH_BYTES + sizeof(version)))
		return false;
	from.seg = sges->seg;
	from.nseg = sges->nseg;
	mic_sgl_copy(&to, 0, &from, MIC_GRH_BYTES, sizeof(version));
	mic_sges_release(sges);
	return version == IB_MGMT_BASE_VERSION;
}

static enum mic_ack mic_resp_send(struct mic_qp *qp, struct mic_op *op)
{
	u32 hdr = mic_qp_is_ud(qp) ? MIC_GRH_BYTES : 0;
	enum ib_wc_status status;
	enum mic_ack ack;

	if (op->flags & MIC_OP_FIRST) {
		ack = mic_resp_take(qp, op);
		if (ack)
			return ack;
	} else if (!qp->resp.active) {
		return MIC_ACK_NONE;
	}
	/* for every segment: that of a remote node may say something else */
	if ((u64)op->length + hdr > mic_sges_bytes(&qp->resp.sges))
		return mic_resp_fail(qp, IB_WC_LOC_LEN_ERR,
				     MIC_ACK_NAK_INV_REQ);
	status = mic_resp_scatter(qp, op, hdr);
	if (status && qp->resp.sges.again)
		return mic_resp_again(qp, op);
	if (status)
		return mic_resp_fail(qp, status, MIC_ACK_NAK_OP);
	if (!(op->flags & MIC_OP_LAST))
		return MIC_ACK_OK;
	if (op->flags & MIC_OP_INV && !mic_invalidate(qp, op->ex))
		return mic_resp_fail(qp, IB_WC_LOC_ACCESS_ERR,
				     MIC_ACK_NAK_ACCESS);
	if (qp->type == IB_QPT_GSI && !mic_resp_is_mad(qp, op))
		return MIC_ACK_NONE;	/* the next one gets the receive */
	mic_resp_receive_done(qp, op, MIC_WC_RECV);
	return MIC_ACK_OK;
}

static bool mic_resp_accepts_ud(const struct mic_qp *qp, const struct mic_op *op)
{
	if (op->service != IB_QPT_UD && op->service != IB_QPT_GSI)
		return false;
	/*
	 * No datagram of management, which all have one length: ib_mad would lose QP1
	 * to a longer one for good, and would take old data for the rest of a shorter.
	 */
	if (qp->type == IB_QPT_GSI && op->length != IB_MGMT_MAD_SIZE)
		return false;
	/* the sender's port may take longer ones than this one */
	if (op->length > mic_port_mtu(qp->dev))
		return false;
	return op->qkey == qp->attr.qkey;
}

/*
 * Is it of the message that has begun? What is under way of a SEND has a receive, and
 * only its own segments fill that: whoever says that more of it has arrived would show
 * what was in the receive's memory before.
 */
static bool mic_resp_continues(const struct mic_resp *resp,
			       const struct mic_op *op)
{
	return op->flags & MIC_OP_FIRST || op->code == resp->code;
}

/*
 * UC takes each message that begins (IBA 9.8.2.2). One of which a piece got
 * lost is over: its receive waits for the next.
 */
static bool mic_resp_goes_on(struct mic_qp *qp, const struct mic_op *op)
{
	struct mic_resp *resp = &qp->resp;

	if (op->flags & MIC_OP_FIRST) {
		resp->epsn = op->psn;
		resp->offset = 0;
	}
	return op->psn == resp->epsn && op->seg_off == resp->offset &&
	       mic_resp_continues(resp, op);
}

/*
 * Behind one that was refused: the rest of that message, of which not all may come,
 * or the next one. Several requests of a remote node are on their way at once, and
 * the PSN of the first may be one that this side is past, with the others as
 * expected. The sender has them fail together, or begins again with the first.
 */
static bool mic_resp_is_behind(const struct mic_resp *resp,
			       const struct mic_op *op)
{
	if (!resp->refused || !mic_node_is_remote(op->src))
		return false;
	return op->psn == resp->refused_next ||
	       (op->psn == resp->refused_psn && !(op->flags & MIC_OP_FIRST));
}

/* Is it the next one? Remembers what it refuses. */
static bool mic_resp_in_sequence(struct mic_qp *qp, const struct mic_op *op)
{
	struct mic_resp *resp = &qp->resp;

	if (op->psn == resp->epsn && !mic_resp_is_behind(resp, op)) {
		resp->refused = false;
		return op->seg_off <= resp->offset &&
		       mic_resp_continues(resp, op);
	}
	resp->refused = true;
	resp->refused_psn = op->psn;
	resp->refused_next = (op->psn + op->npsn) & 0xffffff;
	return false;
}

/* Only the QP at the other end of the connection is listened to. */
static bool mic_resp_accepts_connected(const struct mic_qp *qp,
				       const struct mic_op *op)
{
	u8 service = qp->type == IB_QPT_XRC_TGT ? IB_QPT_XRC_INI : qp->type;

	return op->service == service && op->src_qpn == qp->attr.dest_qp_num &&
	       !memcmp(&op->addr->sgid, &qp->addr.dgid, sizeof(union ib_gid));
}

/**
 * mic_resp_is_peer - whether a node is the one that a connected QP's path leads to
 * @qp: queue pair; the caller holds &mic_resp.lock
 * @node: node of this kernel
 *
 * Two of them may have the same GID, in network namespaces of their own.
 *
 * Return: true if it is.
 */
bool mic_resp_is_peer(struct mic_qp *qp, const struct mic_node *node)
{
	struct mic_node *peer;

	lockdep_assert_held(&qp->resp.lock);
	if (qp->resp.peer_id == node->id)
		return true;
	peer = mic_fabric_find(&qp->addr, qp->dev->node, qp->dev->ndev);
	if (!peer)
		return false;
	if (peer == node)
		qp->resp.peer_id = node->id;
	mic_node_put(peer);
	return peer == node;
}

/* Who speaks for a remote node was looked at where its operations are received. */
static bool mic_resp_is_from_peer(struct mic_qp *qp, const struct mic_op *op)
{
	return mic_node_is_remote(op->src) || mic_resp_is_peer(qp, op->src);
}

/* Without the lock: what is not for the QP does not wait for it, nor make others wait. */
static bool mic_resp_accepts(const struct mic_qp *qp, const struct mic_op *op)
{
	/* an XRC initiator has a requester only, IBA A14.2 */
	if (qp->type == IB_QPT_XRC_INI)
		return false;
	switch (READ_ONCE(qp->state)) {
	case IB_QPS_RTR:
	case IB_QPS_RTS:
	case IB_QPS_SQD:
	case IB_QPS_SQE:
		break;
	default:
		return false;
	}
	return mic_qp_is_ud(qp) ? mic_resp_accepts_ud(qp, op) :
				  mic_resp_accepts_connected(qp, op);
}

static enum mic_ack mic_resp_execute(struct mic_qp *qp, struct mic_op *op)
{
	switch (op->code) {
	case MIC_OP_SEND:
		return mic_resp_send(qp, op);
	case MIC_OP_WRITE:
		return mic_resp_write(qp, op);
	case MIC_OP_READ:
		return mic_resp_read(qp, op);
	case MIC_OP_CMP_SWAP:
	case MIC_OP_FETCH_ADD:
	case MIC_OP_ATOMIC_WRITE:
		return mic_resp_atomic(qp, op);
	default:
		return mic_resp_nak(qp, MIC_ACK_NAK_INV_REQ);
	}
}

/*
 * An XRC target borrows the SRQ the request names. While a message has a receive of
 * another one, that hears of it.
 */
static enum mic_ack mic_resp_execute_xrc(struct mic_qp *qp, struct mic_op *op)
{
	bool other = qp->resp.active && qp->resp.xrc_srqn != op->xrc_srqn;
	enum mic_ack ack;

	if (!other)
		qp->resp.xrc_srqn = op->xrc_srqn;
	if (!mic_xrc_enter(qp, qp->resp.xrc_srqn)) {
		qp->resp.active = false;
		return mic_resp_nak(qp, MIC_ACK_NAK_INV_REQ);
	}
	ack = other ? mic_resp_nak(qp, MIC_ACK_NAK_INV_REQ) :
		      mic_resp_execute(qp, op);
	mic_xrc_leave(qp);
	return ack;
}

/* A READ that was carried out before, with the protection domain it needs. */
static enum mic_ack mic_resp_repeat_read(struct mic_qp *qp, struct mic_op *op)
{
	enum mic_ack ack;

	if (qp->type != IB_QPT_XRC_TGT)
		return mic_resp_read_again(qp, op);
	if (!mic_xrc_enter(qp, op->xrc_srqn))
		return MIC_ACK_NONE;
	ack = mic_resp_read_again(qp, op);
	mic_xrc_leave(qp);
	return ack;
}

/* What was carried out before, but for READs, is not again. */
static enum mic_ack mic_resp_repeat(struct mic_qp *qp, struct mic_op *op)
{
	if (op->flags & MIC_OP_LAST)
		mic_qp_count(qp, MIC_CNT_DUPLICATE);
	switch (op->code) {
	case MIC_OP_READ:
		return mic_resp_repeat_read(qp, op);
	case MIC_OP_CMP_SWAP:
	case MIC_OP_FETCH_ADD:
		return mic_dup_result(qp, op);
	default:
		return MIC_ACK_OK;
	}
}

static enum mic_ack mic_resp_locked(struct mic_qp *qp, struct mic_op *op)
{
	enum mic_ack ack;

	/* it may have changed */
	if (!mic_resp_accepts(qp, op))
		return MIC_ACK_NONE;
	if (!mic_qp_is_ud(qp) && !mic_resp_is_from_peer(qp, op))
		return MIC_ACK_NONE;
	if (qp->type == IB_QPT_UC && !mic_resp_goes_on(qp, op))
		return MIC_ACK_NONE;
	if (mic_qp_is_reliable(qp)) {
		if (mic_dup_is_one(qp, op))
			return mic_resp_repeat(qp, op);
		/* the sides disagree on the PSN, or something is missing */
		if (!mic_resp_in_sequence(qp, op))
			return MIC_ACK_NONE;
	}
	/* of a connection, IBA 11.6.3.1 */
	if (!qp->comm_est && !mic_qp_is_ud(qp) &&
	    READ_ONCE(qp->state) == IB_QPS_RTR) {
		qp->comm_est = true;
		mic_qp_event(qp, IB_EVENT_COMM_EST);
	}
	ack = qp->type == IB_QPT_XRC_TGT ? mic_resp_execute_xrc(qp, op) :
					   mic_resp_execute(qp, op);
	if (ack)
		return ack;
	qp->resp.code = op->code;
	qp->resp.offset = op->seg_off + op->seg_len;
	if (op->flags & MIC_OP_LAST) {
		mic_dup_note(qp, op);
		qp->resp.epsn = (op->psn + op->npsn) & 0xffffff;
		qp->resp.offset = 0;
		if (mic_node_is_remote(op->src))
			mic_reply_expect(qp, op);
	}
	return ack;
}

/* What an unreliable service can't deliver is lost; count a message once. */
static void mic_resp_count_drop(struct mic_dev *dev, const struct mic_op *op)
{
	if (op->flags & MIC_OP_LAST && op->service != IB_QPT_RC &&
	    op->service != IB_QPT_XRC_INI)
		mic_count(dev, MIC_CNT_DROPPED);
}

static enum mic_ack mic_resp_deliver(struct mic_qp *qp, struct mic_op *op)
{
	enum mic_ack ack = MIC_ACK_NONE;

	if (op->code == MIC_OP_MAP)
		return mic_export(qp, op);
	if (mic_resp_accepts(qp, op)) {
		if (op->flags & MIC_OP_INV)
			mic_invalidate_ahead(qp, op);
		mutex_lock(&qp->resp.lock);
		ack = mic_resp_locked(qp, op);
		mutex_unlock(&qp->resp.lock);
	}
	if (ack == MIC_ACK_NONE || ack == MIC_ACK_RNR)
		mic_resp_count_drop(qp->dev, op);
	return ack;
}

/**
 * mic_resp_submit - carry out a segment at a device of this kernel
 * @node: the device's node
 * @op: segment
 *
 * Context: process context, may sleep.
 * Return: the answer.
 */
enum mic_ack mic_resp_submit(struct mic_node *node, struct mic_op *op)
{
	struct mic_qp *qp;
	enum mic_ack ack;

	if (mic_op_is_mcast(op)) {
		mic_mcast_deliver(node->priv, op, mic_resp_deliver);
		return MIC_ACK_OK;
	}
	qp = mic_qp_get(node->priv, op->dst_qpn);
	if (!qp) {
		mic_resp_count_drop(node->priv, op);
		return MIC_ACK_NONE;
	}
	ack = mic_resp_deliver(qp, op);
	mic_qp_put(qp);
	return ack;
}
