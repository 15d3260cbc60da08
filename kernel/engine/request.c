// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A request, from its element in the send queue to an operation.
 */
#include <linux/kernel.h>

#include "../verbs/ah.h"
#include "../verbs/dev.h"
#include "../verbs/mr.h"
#include "engine.h"

#define MIC_T_RC	BIT(IB_QPT_RC)
#define MIC_T_UC	BIT(IB_QPT_UC)
#define MIC_T_XRC	BIT(IB_QPT_XRC_INI)
#define MIC_T_REL	(MIC_T_RC | MIC_T_XRC)
#define MIC_T_CONN	(MIC_T_REL | MIC_T_UC)
#define MIC_T_UD	(BIT(IB_QPT_UD) | BIT(IB_QPT_GSI))

const struct mic_opcode mic_opcodes[] = {
	[MIC_WR_RDMA_WRITE] = {
		.types = MIC_T_CONN,
		.kind = MIC_KIND_RDMA,
		.op = MIC_OP_WRITE,
		.wc = MIC_WC_RDMA_WRITE,
		.counter = MIC_CNT_WRITE,
	},
	[MIC_WR_RDMA_WRITE_WITH_IMM] = {
		.types = MIC_T_CONN,
		.kind = MIC_KIND_RDMA,
		.op = MIC_OP_WRITE,
		.op_flags = MIC_OP_IMM,
		.wc = MIC_WC_RDMA_WRITE,
		.counter = MIC_CNT_WRITE,
	},
	[MIC_WR_SEND] = {
		.types = MIC_T_CONN | MIC_T_UD,
		.kind = MIC_KIND_SEND,
		.op = MIC_OP_SEND,
		.wc = MIC_WC_SEND,
		.counter = MIC_CNT_SEND,
	},
	[MIC_WR_SEND_WITH_IMM] = {
		.types = MIC_T_CONN | MIC_T_UD,
		.kind = MIC_KIND_SEND,
		.op = MIC_OP_SEND,
		.op_flags = MIC_OP_IMM,
		.wc = MIC_WC_SEND,
		.counter = MIC_CNT_SEND,
	},
	[MIC_WR_RDMA_READ] = {
		.types = MIC_T_REL,
		.kind = MIC_KIND_RDMA,
		.op = MIC_OP_READ,
		.wc = MIC_WC_RDMA_READ,
		.local_access = IB_ACCESS_LOCAL_WRITE,
		.counter = MIC_CNT_READ,
	},
	[MIC_WR_ATOMIC_CMP_AND_SWP] = {
		.types = MIC_T_REL,
		.kind = MIC_KIND_ATOMIC,
		.op = MIC_OP_CMP_SWAP,
		.wc = MIC_WC_COMP_SWAP,
		.local_access = IB_ACCESS_LOCAL_WRITE,
		.length = sizeof(u64),
		.counter = MIC_CNT_ATOMIC,
	},
	[MIC_WR_ATOMIC_FETCH_AND_ADD] = {
		.types = MIC_T_REL,
		.kind = MIC_KIND_ATOMIC,
		.op = MIC_OP_FETCH_ADD,
		.wc = MIC_WC_FETCH_ADD,
		.local_access = IB_ACCESS_LOCAL_WRITE,
		.length = sizeof(u64),
		.counter = MIC_CNT_ATOMIC,
	},
	[MIC_WR_SEND_WITH_INV] = {
		.types = MIC_T_CONN,
		.kind = MIC_KIND_SEND,
		.op = MIC_OP_SEND,
		.op_flags = MIC_OP_INV,
		.wc = MIC_WC_SEND,
		.counter = MIC_CNT_SEND,
	},
	[MIC_WR_ATOMIC_WRITE] = {
		.types = MIC_T_REL,
		.kind = MIC_KIND_RDMA,
		.op = MIC_OP_ATOMIC_WRITE,
		.wc = MIC_WC_ATOMIC_WRITE,
		.length = sizeof(u64),
		.counter = MIC_CNT_ATOMIC,
	},
	[MIC_WR_LOCAL_INV] = {
		.types = MIC_T_CONN,
		.kind = MIC_KIND_LOCAL,
		.wc = MIC_WC_LOCAL_INV,
		.counter = MIC_CNT_LOCAL_OP,
	},
	[MIC_WR_BIND_MW] = {
		.types = MIC_T_CONN,
		.kind = MIC_KIND_LOCAL,
		.wc = MIC_WC_BIND_MW,
		.counter = MIC_CNT_LOCAL_OP,
	},
	[MIC_WR_REG_MR] = {
		.types = MIC_T_CONN,
		.kind = MIC_KIND_LOCAL,
		.wc = MIC_WC_REG_MR,
		.counter = MIC_CNT_LOCAL_OP,
	},
};

/* The bytes a request moves, U64_MAX if its inline length is too large. */
static u64 mic_req_bytes(const struct mic_qp *qp)
{
	const struct mic_req *req = &qp->req;

	if (!(req->wqe.flags & MIC_WQE_INLINE))
		return mic_sges_bytes(&req->sges);
	if (req->wqe.inline_len > qp->cap.max_inline_data)
		return U64_MAX;
	return req->wqe.inline_len;
}

/* Where a datagram goes. */
static enum ib_wc_status mic_req_start_ud(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;
	u32 qkey = req->wqe.ud.remote_qkey;
	int err;

	if (req->length > mic_port_mtu(qp->dev))
		return IB_WC_LOC_LEN_ERR;
	err = mic_av_get(qp->dev, req->wqe.ud.ah,
			 qp->user ? qp->ibqp->pd : NULL, &req->addr);
	if (err == -ENOENT)
		return IB_WC_LOC_QP_OP_ERR;
	req->sgid_gone = err;
	req->op.dst_qpn = req->wqe.ud.remote_qpn & 0xffffff;
	/* IBA 10.2.5: a key with the top bit set stands for the QP's own */
	req->op.qkey = qkey & BIT(31) ? qp->attr.qkey : qkey;
	req->op.npsn = 1;
	return IB_WC_SUCCESS;
}

static void mic_req_start_connected(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;
	u32 mtu = ib_mtu_enum_to_int(qp->attr.path_mtu);

	req->op.dst_qpn = qp->attr.dest_qp_num;
	req->op.xrc_srqn = req->wqe.xrc_srqn;
	req->op.npsn = max_t(u32, 1, DIV_ROUND_UP(req->length, mtu));
}

static void mic_req_start_kind(struct mic_qp *qp, const struct mic_opcode *oc)
{
	struct mic_req *req = &qp->req;

	switch (oc->kind) {
	case MIC_KIND_RDMA:
		req->op.raddr = req->wqe.rdma.remote_addr;
		req->op.rkey = req->wqe.rdma.rkey;
		break;
	case MIC_KIND_ATOMIC:
		req->op.raddr = req->wqe.atomic.remote_addr;
		req->op.rkey = req->wqe.atomic.rkey;
		req->op.compare_add = req->wqe.atomic.compare_add;
		req->op.swap = req->wqe.atomic.swap;
		break;
	case MIC_KIND_SEND:
	case MIC_KIND_LOCAL:
		break;
	}
}

/*
 * How much of a request need not be sent again. It was read a second time from memory
 * that is shared with the program: where it is another one by now, all of it is sent.
 */
static u32 mic_req_resume(const struct mic_req *req)
{
	/* it is the one at the ring's head that was refused */
	if (!req->repeat || req->ahead ||
	    req->wqe.opcode != req->repeat_opcode ||
	    req->length != req->repeat_length)
		return 0;
	return req->repeat_off;
}

static bool mic_req_flags_ok(const struct mic_req *req,
			     const struct mic_opcode *oc)
{
	if (req->wqe.flags & ~MIC_WQE_FLAGS_ALL)
		return false;
	/* data that comes back has to have a place to go */
	return !(req->wqe.flags & MIC_WQE_INLINE) || !oc->local_access;
}

/**
 * mic_req_start - check the request in &mic_req.wqe and prepare its operation
 * @qp: queue pair; the caller holds &mic_req.lock
 *
 * Return: IB_WC_SUCCESS, or the error the request completes with.
 */
enum ib_wc_status mic_req_start(struct mic_qp *qp)
{
	struct mic_req *req = &qp->req;
	const struct mic_opcode *oc = mic_opcode(qp, req->wqe.opcode);
	u64 bytes;

	if (!oc || !mic_req_flags_ok(req, oc) ||
	    req->sges.nsge > req->sges.max)
		return IB_WC_LOC_QP_OP_ERR;
	bytes = mic_req_bytes(qp);
	if (bytes > MIC_MAX_MSG || (oc->length && bytes != oc->length))
		return IB_WC_LOC_LEN_ERR;

	req->length = bytes;
	req->done = mic_req_resume(req);
	req->from = req->done;
	if (!req->nflight && !req->repeat) {
		req->retry_left = qp->attr.retry_cnt;
		req->rnr_left = qp->attr.rnr_retry;
		req->rnr_waits = 0;
	}
	req->op = (struct mic_op) {
		.src = qp->dev->node,
		.code = oc->op,
		.service = qp->type,
		.src_qpn = qp->qpn,
		.psn = req->psn,
		.length = bytes,
		.ex = req->wqe.ex,
		.addr = &req->addr,
	};
	mic_req_start_kind(qp, oc);
	if (mic_qp_is_ud(qp))
		return mic_req_start_ud(qp);
	req->op.addr = &qp->addr;
	mic_req_start_connected(qp);
	return IB_WC_SUCCESS;
}
