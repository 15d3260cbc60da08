// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The extended interface for posting (ibv_wr_*): requests are built in their
 * slots between ibv_wr_start() and ibv_wr_complete(), with the send queue's
 * lock held, and published together.
 *
 * The first error is remembered, the rest of the batch then does nothing, and
 * ibv_wr_complete() gives up all of it.
 */
#include "mic.h"
#include "wqe.h"

#define ATOMIC_WRITE_SIZE 8

static struct mic_qp *ex_qp(struct ibv_qp_ex *qp)
{
	return container_of(qp, struct mic_qp, vqp.qp_ex);
}

static void fail(struct mic_qp *qp, int err)
{
	if (!qp->batch.err)
		qp->batch.err = err;
}

/*
 * Begin the next request. On error the setters still get an element to write
 * to, in private memory.
 */
static struct mic_send_wqe *begin(struct ibv_qp_ex *ibqp,
				  enum mic_wr_opcode opcode, uint32_t ex)
{
	struct mic_qp *qp = ex_qp(ibqp);
	struct mic_send_wqe *wqe = &qp->batch.scratch;

	if (ibqp->wr_flags & ~MIC_WQE_FLAGS_ALL)
		fail(qp, EINVAL);
	else if (mic_wq_full(&qp->sq, qp->batch.next))
		fail(qp, ENOMEM);
	if (!qp->batch.err)
		wqe = mic_wq_slot(&qp->sq, qp->batch.next++);

	qp->batch.wqe = wqe;
	qp->batch.flags = (ibqp->wr_flags & ~MIC_WQE_INLINE) | qp->always_flags;
	wqe->wr_id = ibqp->wr_id;
	wqe->opcode = opcode;
	wqe->num_sge = 0;
	wqe->flags = qp->batch.flags;
	wqe->inline_len = 0;
	wqe->ex = ex;
	wqe->xrc_srqn = 0;
	return wqe;
}

static void wr_send(struct ibv_qp_ex *qp)
{
	begin(qp, MIC_WR_SEND, 0);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm_data)
{
	begin(qp, MIC_WR_SEND_WITH_IMM, (uint32_t)imm_data);
}

static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t invalidate_rkey)
{
	begin(qp, MIC_WR_SEND_WITH_INV, invalidate_rkey);
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey,
			  uint64_t remote_addr)
{
	mic_wqe_rdma(begin(qp, MIC_WR_RDMA_WRITE, 0), rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey,
			      uint64_t remote_addr, __be32 imm_data)
{
	mic_wqe_rdma(begin(qp, MIC_WR_RDMA_WRITE_WITH_IMM, (uint32_t)imm_data),
		     rkey, remote_addr);
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey,
			 uint64_t remote_addr)
{
	mic_wqe_rdma(begin(qp, MIC_WR_RDMA_READ, 0), rkey, remote_addr);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey,
			      uint64_t remote_addr, uint64_t compare,
			      uint64_t swap)
{
	mic_wqe_atomic(begin(qp, MIC_WR_ATOMIC_CMP_AND_SWP, 0), rkey,
		       remote_addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey,
				uint64_t remote_addr, uint64_t add)
{
	mic_wqe_atomic(begin(qp, MIC_WR_ATOMIC_FETCH_AND_ADD, 0), rkey,
		       remote_addr, add, 0);
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t invalidate_rkey)
{
	begin(qp, MIC_WR_LOCAL_INV, invalidate_rkey);
}

static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	mic_wqe_bind(begin(qp, MIC_WR_BIND_MW, 0), mw, rkey, info);
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah,
			   uint32_t remote_qpn, uint32_t remote_qkey)
{
	mic_wqe_ud(ex_qp(qp)->batch.wqe, ah, remote_qpn, remote_qkey);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qp, uint32_t remote_srqn)
{
	ex_qp(qp)->batch.wqe->xrc_srqn = remote_srqn;
}

static void wr_set_sge_list(struct ibv_qp_ex *ibqp, size_t num_sge,
			    const struct ibv_sge *sg_list)
{
	struct mic_qp *qp = ex_qp(ibqp);

	if (num_sge > qp->sq.max_sge)
		fail(qp, EINVAL);
	if (qp->batch.err)
		return;
	mic_wqe_sges(mic_wqe_data(qp->batch.wqe), sg_list, num_sge);
	qp->batch.wqe->num_sge = num_sge;
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr,
		       uint32_t length)
{
	const struct ibv_sge sge = {
		.addr = addr,
		.length = length,
		.lkey = lkey,
	};

	wr_set_sge_list(qp, 1, &sge);
}

static void set_inline(struct mic_qp *qp, size_t num_buf,
		       const struct ibv_data_buf *buf_list, size_t max)
{
	char *data = mic_wqe_data(qp->batch.wqe);
	size_t i, len = 0;

	for (i = 0; i < num_buf && !qp->batch.err; i++) {
		if (buf_list[i].length > max - len) {
			fail(qp, EINVAL);
			return;
		}
		if (!buf_list[i].length)
			continue;
		memcpy(data + len, buf_list[i].addr, buf_list[i].length);
		len += buf_list[i].length;
	}
	qp->batch.wqe->flags = qp->batch.flags | MIC_WQE_INLINE;
	qp->batch.wqe->inline_len = len;
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t num_buf,
				    const struct ibv_data_buf *buf_list)
{
	set_inline(ex_qp(qp), num_buf, buf_list, ex_qp(qp)->max_inline);
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length)
{
	const struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(qp, 1, &buf);
}

/* The value goes along, also where the queue pair has no room for inline data. */
static void wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey,
			    uint64_t remote_addr, const void *atomic_wr)
{
	const struct ibv_data_buf buf = {
		.addr = (void *)(uintptr_t)atomic_wr,
		.length = ATOMIC_WRITE_SIZE,
	};

	mic_wqe_rdma(begin(qp, MIC_WR_ATOMIC_WRITE, 0), rkey, remote_addr);
	set_inline(ex_qp(qp), 1, &buf, ATOMIC_WRITE_SIZE);
}

static void wr_start(struct ibv_qp_ex *ibqp)
{
	struct mic_qp *qp = ex_qp(ibqp);

	mic_lock(&qp->sq.lock);
	qp->batch.next = qp->sq.producer;
	qp->batch.err = mic_may_send(&ibqp->qp_base) ? 0 : EINVAL;
}

/*
 * Execute what this process may, from the first request on, and move the rest
 * to where the first one was.
 */
static void execute_batch(struct mic_qp *qp)
{
	struct mic_wq *sq = &qp->sq;
	uint32_t from = sq->producer, to = sq->producer;

	if (!mic_direct_next(qp))
		return;
	while (from != qp->batch.next &&
	       mic_direct_wqe(qp, mic_wq_slot(sq, from)))
		from++;
	if (from == to)
		return;
	while (from != qp->batch.next)
		memcpy(mic_wq_slot(sq, to++), mic_wq_slot(sq, from++),
		       sq->stride);
	qp->batch.next = to;
}

static int wr_complete(struct ibv_qp_ex *ibqp)
{
	struct mic_qp *qp = ex_qp(ibqp);
	bool kick = false;
	int err = qp->batch.err;

	if (!err)
		execute_batch(qp);
	if (!err && qp->batch.next != qp->sq.producer) {
		qp->direct.engine += qp->batch.next - qp->sq.producer;
		mic_wq_publish(&qp->sq, qp->batch.next);
		kick = mic_wq_needs_kick(&qp->sq);
	}
	mic_unlock(&qp->sq.lock);
	if (kick)
		mic_ring_doorbell(qp);
	return err;
}

static void wr_abort(struct ibv_qp_ex *qp)
{
	mic_unlock(&ex_qp(qp)->sq.lock);
}

/* Which operations the library may ask for, in terms of what is posted. */
static const struct {
	uint64_t flag;
	enum ibv_wr_opcode opcode;
} ex_ops[] = {
	{ IBV_QP_EX_WITH_RDMA_WRITE, IBV_WR_RDMA_WRITE },
	{ IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM },
	{ IBV_QP_EX_WITH_SEND, IBV_WR_SEND },
	{ IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM },
	{ IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ },
	{ IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP },
	{ IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD },
	{ IBV_QP_EX_WITH_LOCAL_INV, IBV_WR_LOCAL_INV },
	{ IBV_QP_EX_WITH_BIND_MW, IBV_WR_BIND_MW },
	{ IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_SEND_WITH_INV },
	{ IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_WR_ATOMIC_WRITE },
};

/* Does a queue pair that takes @send_ops have all of @flags? */
bool mic_qp_ex_supported(uint32_t send_ops, uint64_t flags)
{
	size_t i;

	for (i = 0; i < sizeof(ex_ops) / sizeof(ex_ops[0]); i++)
		if (send_ops >> ex_ops[i].opcode & 1)
			flags &= ~ex_ops[i].flag;
	return !flags;
}

static void set_operations(struct ibv_qp_ex *qp, uint64_t flags)
{
	if (flags & IBV_QP_EX_WITH_RDMA_WRITE)
		qp->wr_rdma_write = wr_rdma_write;
	if (flags & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
		qp->wr_rdma_write_imm = wr_rdma_write_imm;
	if (flags & IBV_QP_EX_WITH_SEND)
		qp->wr_send = wr_send;
	if (flags & IBV_QP_EX_WITH_SEND_WITH_IMM)
		qp->wr_send_imm = wr_send_imm;
	if (flags & IBV_QP_EX_WITH_RDMA_READ)
		qp->wr_rdma_read = wr_rdma_read;
	if (flags & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)
		qp->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	if (flags & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
		qp->wr_atomic_fetch_add = wr_atomic_fetch_add;
	if (flags & IBV_QP_EX_WITH_LOCAL_INV)
		qp->wr_local_inv = wr_local_inv;
	if (flags & IBV_QP_EX_WITH_BIND_MW)
		qp->wr_bind_mw = wr_bind_mw;
	if (flags & IBV_QP_EX_WITH_SEND_WITH_INV)
		qp->wr_send_inv = wr_send_inv;
	if (flags & IBV_QP_EX_WITH_ATOMIC_WRITE)
		qp->wr_atomic_write = wr_atomic_write;
}

/* Give @qp the extended interface with the operations in @flags. */
void mic_qp_set_ex_ops(struct mic_qp *qp, uint64_t flags)
{
	struct ibv_qp_ex *ex = &qp->vqp.qp_ex;

	set_operations(ex, flags);
	if (qp->vqp.qp.qp_type == IBV_QPT_UD)
		ex->wr_set_ud_addr = wr_set_ud_addr;
	if (qp->vqp.qp.qp_type == IBV_QPT_XRC_SEND)
		ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	qp->vqp.comp_mask |= VERBS_QP_EX;
}
