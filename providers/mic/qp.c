// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue pairs: creation, state and destruction. Posting is in post.c.
 */
#include <stdalign.h>
#include <stdlib.h>

#include "mic.h"

struct create_qp_resp {
	struct ib_uverbs_ex_create_qp_resp base;
	struct mic_create_qp_resp mic;
};
static_assert(sizeof(struct create_qp_resp) ==
		      sizeof(struct ib_uverbs_ex_create_qp_resp) +
			      sizeof(struct mic_create_qp_resp),
	      "the driver's part follows directly");

#define OP(name) (1u << IBV_WR_##name)

/* Work requests a queue pair of @type takes, a bit per opcode. */
static uint32_t send_ops(enum ibv_qp_type type)
{
	const uint32_t ud = OP(SEND) | OP(SEND_WITH_IMM);
	const uint32_t uc = ud | OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM) |
			    OP(SEND_WITH_INV) | OP(LOCAL_INV) | OP(BIND_MW);
	const uint32_t rc = uc | OP(RDMA_READ) | OP(ATOMIC_CMP_AND_SWP) |
			    OP(ATOMIC_FETCH_AND_ADD) | OP(ATOMIC_WRITE);

	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return rc;
	case IBV_QPT_UC:
		return uc;
	case IBV_QPT_UD:
		return ud;
	default:
		return 0;
	}
}

/*
 * The library copies all fields of @attr; those that do not apply to the type
 * may hold anything.
 */
static void drop_unused(struct ibv_qp *qp,
			const struct ibv_qp_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD))
		qp->pd = NULL;
	if (qp->qp_type == IBV_QPT_XRC_RECV)
		qp->send_cq = NULL;
	if (qp->qp_type == IBV_QPT_XRC_RECV ||
	    qp->qp_type == IBV_QPT_XRC_SEND) {
		qp->recv_cq = NULL;
		qp->srq = NULL;
	}
}

/* Map what the kernel has created. On failure the kernel's part goes too. */
static int init_qp(struct mic_qp *qp, const struct ibv_qp_init_attr_ex *attr,
		   const struct mic_create_qp_resp *resp)
{
	struct ibv_pd *pd;
	int ret;

	drop_unused(&qp->vqp.qp, attr);
	pd = qp->vqp.qp.pd;
	qp->doorbell_fd = to_mctx(qp->vqp.qp.context)->doorbell_fd;
	ret = mic_map_queue(&qp->map, qp->doorbell_fd, &resp->map);
	if (ret) {
		ibv_cmd_destroy_qp(&qp->vqp.qp);
		return ret;
	}
	mic_wq_init(&qp->sq, &qp->map, &resp->sq, attr->cap.max_send_sge,
		    mic_pd_one_thread(pd));
	mic_wq_init(&qp->rq, &qp->map, &resp->rq, attr->cap.max_recv_sge,
		    mic_pd_one_thread(pd));
	qp->max_inline = resp->max_inline_data;
	qp->send_ops = send_ops(attr->qp_type);
	qp->always_flags = attr->sq_sig_all ? MIC_WQE_SIGNALED : 0;
	qp->parent = mic_parent_get(pd);
	mic_direct_init(qp, to_mctx(qp->vqp.qp.context)->path);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		mic_qp_set_ex_ops(qp, attr->send_ops_flags);
	return 0;
}

static bool attr_supported(const struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
			       IBV_QP_INIT_ATTR_CREATE_FLAGS |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

	if (attr->comp_mask & ~known)
		return false;
	/* the kernel says EINVAL to some */
	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
	    attr->create_flags &&
	    (attr->qp_type != IBV_QPT_UD ||
	     attr->create_flags != IBV_QP_CREATE_BLOCK_SELF_MCAST_LB))
		return false;
	return !(attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) ||
	       mic_qp_ex_supported(send_ops(attr->qp_type),
				   attr->send_ops_flags);
}

static struct mic_qp *alloc_qp(void)
{
	struct mic_qp *qp = aligned_alloc(alignof(struct mic_qp), sizeof(*qp));

	if (qp)
		memset(qp, 0, sizeof(*qp));
	return qp;
}

struct ibv_qp *mic_create_qp_ex(struct ibv_context *context,
				struct ibv_qp_init_attr_ex *attr)
{
	struct create_qp_resp resp = {};
	struct ibv_create_qp_ex cmd = {};
	struct mic_qp *qp;
	int ret;

	if (!attr_supported(attr)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	qp = alloc_qp();
	if (!qp)
		return NULL;
	ret = mic_cmd_create_qp_ex2(context, &qp->vqp, attr, &cmd, sizeof(cmd),
				    &resp.base, sizeof(resp));
	if (!ret)
		ret = init_qp(qp, attr, &resp.mic);
	if (ret) {
		free(qp);
		errno = ret;
		return NULL;
	}
	return &qp->vqp.qp;
}

struct ibv_qp *mic_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp;

	qp = mic_create_qp_ex(pd->context, &ex);
	if (qp)
		attr->cap = ex.cap;
	return qp;
}

struct ibv_qp *mic_open_qp(struct ibv_context *context,
			   struct ibv_qp_open_attr *attr)
{
	struct ib_uverbs_create_qp_resp resp = {};
	struct ibv_open_qp cmd = {};
	struct mic_qp *qp;
	int ret;

	qp = alloc_qp();
	if (!qp)
		return NULL;
	ret = ibv_cmd_open_qp(context, &qp->vqp, sizeof(qp->vqp), attr, &cmd,
			      sizeof(cmd), &resp, sizeof(resp));
	if (ret) {
		free(qp);
		errno = ret;
		return NULL;
	}
	return &qp->vqp.qp;
}

int mic_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init_attr)
{
	struct ibv_query_qp cmd;

	return ibv_cmd_query_qp(qp, attr, mask, init_attr, &cmd, sizeof(cmd));
}

/*
 * No completion of a queue pair may be returned any more. No other one has its
 * number yet: the kernel gives out all the others before it starts again.
 */
static void forget_completions(struct ibv_cq *send_cq, struct ibv_cq *recv_cq,
			       uint32_t qp_num)
{
	if (send_cq)
		mic_cq_forget_qp(send_cq, qp_num);
	if (recv_cq && recv_cq != send_cq)
		mic_cq_forget_qp(recv_cq, qp_num);
}

/*
 * Those of a queue pair that goes on must be told from those that come later, so they
 * have to be here.
 */
static bool may_reset(const struct ibv_qp *qp)
{
	return (!qp->send_cq || mic_cq_is_here(qp->send_cq)) &&
	       (!qp->recv_cq || mic_cq_is_here(qp->recv_cq));
}

static void reset_queues(struct mic_qp *qp)
{
	if (!mic_map_is_own(&qp->map))
		return;
	mic_lock(&qp->sq.lock);
	mic_wq_reset(&qp->sq);
	mic_direct_reset(qp);
	mic_unlock(&qp->sq.lock);
	mic_lock(&qp->rq.lock);
	mic_wq_reset(&qp->rq);
	mic_unlock(&qp->rq.lock);
}

int mic_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	/* memory has one path and no rate; the kernel says EINVAL to some */
	const int unsupported = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
				IBV_QP_RATE_LIMIT | IBV_QP_CAP;
	const bool reset = mask & IBV_QP_STATE &&
			   attr->qp_state == IBV_QPS_RESET;
	struct mic_qp *qp = to_mqp(ibqp);
	struct ibv_modify_qp cmd = {};
	int ret;

	if (mask & unsupported)
		return EOPNOTSUPP;
	if (reset && !may_reset(ibqp))
		return ENOMEM;
	ret = ibv_cmd_modify_qp(ibqp, attr, mask, &cmd, sizeof(cmd));
	if (ret || !reset)
		return ret;
	reset_queues(qp);
	forget_completions(ibqp->send_cq, ibqp->recv_cq, ibqp->qp_num);
	return 0;
}

int mic_destroy_qp(struct ibv_qp *ibqp)
{
	struct ibv_cq *send_cq = ibqp->send_cq, *recv_cq = ibqp->recv_cq;
	const uint32_t qp_num = ibqp->qp_num;
	struct mic_qp *qp = to_mqp(ibqp);
	int ret;

	ret = ibv_cmd_destroy_qp(ibqp);
	if (ret)
		return ret;
	mic_direct_destroy(qp);
	mic_unmap_queue(&qp->map);
	mic_parent_put(qp->parent);
	free(qp);
	/* last: a queue that could not be mapped has room for that now, perhaps */
	forget_completions(send_cq, recv_cq, qp_num);
	return 0;
}
