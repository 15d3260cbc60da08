// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Posting work requests. A list of requests becomes visible to the kernel at
 * once and costs at most one system call; a receive costs none. Nor do requests
 * at the head of the list that this process may execute by itself (direct.c). A
 * simple one that is posted alone is not even a list (simple.c).
 */
#include <sys/ioctl.h>

#include "mic.h"
#include "wqe.h"

/* Requests whose data may be in the element itself. */
#define INLINE_OPS                                                             \
	(1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM |          \
	 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM |                      \
	 1u << IBV_WR_SEND_WITH_INV | 1u << IBV_WR_ATOMIC_WRITE)

static int ring(const struct mic_qp *qp, unsigned long request)
{
	int ret;

	do
		ret = ioctl(qp->doorbell_fd, request,
			    (unsigned long)qp->vqp.qp.qp_num);
	while (ret < 0 && errno == EINTR);
	return ret;
}

/*
 * What was posted stays posted when this fails: a device that is gone says so
 * by an asynchronous event.
 */
void mic_ring_doorbell(const struct mic_qp *qp)
{
	/* A kernel that has no other call does the work at once. */
	if (qp->direct.path != MICDV_PATH_WORKER ||
	    (ring(qp, MIC_IOC_DOORBELL_LATER) < 0 && errno == ENOTTY))
		ring(qp, MIC_IOC_DOORBELL);
}

static int put_inline(const struct mic_qp *qp, struct mic_send_wqe *wqe,
		      const struct ibv_send_wr *wr)
{
	char *data = mic_wqe_data(wqe);
	size_t len = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		if (sge->length > qp->max_inline - len)
			return EINVAL;
		memcpy(data + len, (const void *)(uintptr_t)sge->addr,
		       sge->length);
		len += sge->length;
	}
	wqe->num_sge = 0;
	wqe->inline_len = len;
	return 0;
}

static int put_data(const struct mic_qp *qp, struct mic_send_wqe *wqe,
		    const struct ibv_send_wr *wr)
{
	if (wr->send_flags & IBV_SEND_INLINE) {
		if (!(INLINE_OPS >> wr->opcode & 1))
			return EINVAL;
		return put_inline(qp, wqe, wr);
	}
	if ((uint32_t)wr->num_sge > qp->sq.max_sge)
		return EINVAL;
	mic_wqe_sges(mic_wqe_data(wqe), wr->sg_list, wr->num_sge);
	wqe->num_sge = wr->num_sge;
	wqe->inline_len = 0;
	return 0;
}

/* What depends on the opcode, but for the address of a datagram. */
static int put_operation(const struct mic_qp *qp, struct mic_send_wqe *wqe,
			 const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_BIND_MW:
		mic_wqe_bind(wqe, wr->bind_mw.mw, wr->bind_mw.rkey,
			     &wr->bind_mw.bind_info);
		/* fall through */
	case IBV_WR_LOCAL_INV:
		wqe->flags &= ~MIC_WQE_INLINE;
		wqe->num_sge = 0;
		wqe->inline_len = 0;
		return 0;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_WRITE:
		mic_wqe_rdma(wqe, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		mic_wqe_atomic(wqe, wr->wr.atomic.rkey,
			       wr->wr.atomic.remote_addr,
			       wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	default:
		break;
	}
	return put_data(qp, wqe, wr);
}

static int put_send(const struct mic_qp *qp, struct mic_send_wqe *wqe,
		    const struct ibv_send_wr *wr)
{
	const enum ibv_qp_type type = qp->vqp.qp.qp_type;

	if ((unsigned int)wr->opcode > IBV_WR_ATOMIC_WRITE ||
	    !(qp->send_ops >> wr->opcode & 1) ||
	    (wr->send_flags & ~MIC_WQE_FLAGS_ALL))
		return EINVAL;

	wqe->wr_id = wr->wr_id;
	wqe->opcode = wr->opcode;
	wqe->flags = wr->send_flags | qp->always_flags;
	wqe->ex = wr->invalidate_rkey;
	wqe->xrc_srqn = 0;
	if (type == IBV_QPT_XRC_SEND) {
		wqe->xrc_srqn = wr->qp_type.xrc.remote_srqn;
	} else if (type == IBV_QPT_UD) {
		if (!wr->wr.ud.ah)
			return EINVAL;
		mic_wqe_ud(wqe, wr->wr.ud.ah, wr->wr.ud.remote_qpn,
			   wr->wr.ud.remote_qkey);
	}
	return put_operation(qp, wqe, wr);
}

/* A target of XRC has no send queue at all. */
static int no_room(const struct mic_wq *sq)
{
	return sq->entries ? ENOMEM : EINVAL;
}

/* As many as there are, of any kind. */
int mic_post_list(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		  struct ibv_send_wr **bad_wr)
{
	struct mic_qp *qp = to_mqp(ibqp);
	struct mic_wq *sq = &qp->sq;
	bool kick = false;
	uint32_t index;
	int ret = 0;

	if (!mic_may_send(ibqp)) {
		*bad_wr = wr;
		return EINVAL;
	}
	mic_lock(&sq->lock);
	for (index = sq->producer; wr; wr = wr->next) {
		if (index == sq->producer && mic_direct_next(qp) &&
		    (mic_simple_execute(qp, wr) || mic_direct_post(qp, wr)))
			continue;
		ret = mic_wq_full(sq, index) ?
			      no_room(sq) :
			      put_send(qp, mic_wq_slot(sq, index), wr);
		if (ret) {
			*bad_wr = wr;
			break;
		}
		index++;
	}
	if (index != sq->producer) {
		qp->direct.engine += index - sq->producer;
		mic_wq_publish(sq, index);
		kick = mic_wq_needs_kick(sq);
	}
	mic_unlock(&sq->lock);
	if (kick)
		mic_ring_doorbell(qp);
	return ret;
}

static int put_recv(const struct mic_wq *wq, struct mic_recv_wqe *wqe,
		    const struct ibv_recv_wr *wr)
{
	if ((uint32_t)wr->num_sge > wq->max_sge)
		return EINVAL;
	wqe->wr_id = wr->wr_id;
	wqe->num_sge = wr->num_sge;
	mic_wqe_sges(wqe + 1, wr->sg_list, wr->num_sge);
	return 0;
}

/* Post a list of receives with the queue's lock held. */
static int post_recvs(struct mic_wq *wq, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad_wr)
{
	uint32_t index;
	int ret = 0;

	for (index = wq->producer; wr; wr = wr->next, index++) {
		ret = mic_wq_full(wq, index) ?
			      ENOMEM :
			      put_recv(wq, mic_wq_slot(wq, index), wr);
		if (ret) {
			*bad_wr = wr;
			break;
		}
	}
	if (index != wq->producer)
		mic_wq_publish(wq, index);
	return ret;
}

/*
 * The kernel looks for receives when it needs one. Only a queue pair in error
 * must be told, to flush them; its receive queue then says need_kick.
 */
int mic_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
		  struct ibv_recv_wr **bad_wr)
{
	struct mic_qp *qp = to_mqp(ibqp);
	bool kick = false;
	int ret;

	if (ibqp->state == IBV_QPS_RESET || !qp->rq.entries) {
		*bad_wr = wr;
		return EINVAL;
	}
	mic_lock(&qp->rq.lock);
	ret = post_recvs(&qp->rq, wr, bad_wr);
	kick = mic_wq_needs_kick(&qp->rq);
	mic_unlock(&qp->rq.lock);
	if (kick)
		mic_ring_doorbell(qp);
	return ret;
}

int mic_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad_wr)
{
	struct mic_srq *srq = to_msrq(ibsrq);
	int ret;

	mic_lock(&srq->wq.lock);
	if (!srq->wq.entries)
		mic_srq_catch_up(srq);
	ret = post_recvs(&srq->wq, wr, bad_wr);
	mic_unlock(&srq->wq.lock);
	return ret;
}
