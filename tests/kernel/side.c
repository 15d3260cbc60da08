// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <net/ipv6.h>
#include <rdma/ib_cache.h>

#include "side.h"

#define TEST_PORT	1
#define TEST_PSN	0x123
#define TEST_PATIENCE	(60 * HZ)
#define TEST_WRS	16

/* RoCE v2 over IPv4, as the user-space tests use. */
static int find_gid(struct side *side)
{
	const struct ib_gid_attr *attr;
	bool found;
	int i;

	for (i = 0; i < side->dev->port_data[TEST_PORT].immutable.gid_tbl_len; i++) {
		attr = rdma_get_gid_attr(side->dev, TEST_PORT, i);
		if (IS_ERR(attr))
			continue;
		found = attr->gid_type == IB_GID_TYPE_ROCE_UDP_ENCAP &&
			ipv6_addr_v4mapped((const struct in6_addr *)&attr->gid);
		side->gid = attr->gid;
		side->gid_index = i;
		rdma_put_gid_attr(attr);
		if (found)
			return 0;
	}
	return -EADDRNOTAVAIL;
}

void side_destroy_qp(struct side *side)
{
	if (!IS_ERR_OR_NULL(side->qp))
		ib_destroy_qp(side->qp);
	side->qp = NULL;
}

void side_close(struct side *side)
{
	side_destroy_qp(side);
	if (!IS_ERR_OR_NULL(side->cq))
		ib_free_cq(side->cq);
	if (!IS_ERR_OR_NULL(side->pd) && !side->shared)
		ib_dealloc_pd(side->pd);
	if (side->dev)
		ib_device_put(side->dev);
}

static int open_cq(struct side *side)
{
	side->type = IB_QPT_RC;
	side->access = IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE;
	side->timeout = 18;
	side->rnr_retry = 7;
	side->cq = ib_alloc_cq(side->dev, NULL, 2 * TEST_WRS, 0, IB_POLL_DIRECT);
	return IS_ERR(side->cq) ? PTR_ERR(side->cq) : find_gid(side);
}

int side_open(struct side *side, const char *name)
{
	side->dev = ib_device_get_by_name(name, RDMA_DRIVER_UNKNOWN);
	if (!side->dev)
		return -ENODEV;
	side->pd = ib_alloc_pd(side->dev, 0);
	if (IS_ERR(side->pd))
		return PTR_ERR(side->pd);
	return open_cq(side);
}

int side_open_beside(struct side *side, const struct side *other)
{
	side->dev = ib_device_get_by_name(dev_name(&other->dev->dev),
					  RDMA_DRIVER_UNKNOWN);
	if (!side->dev)
		return -ENODEV;
	side->pd = other->pd;
	side->shared = true;
	return open_cq(side);
}

static void on_event(struct ib_event *event, void *context)
{
	struct side *side = context;

	if (event->event < ARRAY_SIZE(side->events))
		atomic_inc(&side->events[event->event]);
}

/* It has no queues, and no use for the PD that ib_create_qp() asks for. */
static int create_target(struct side *side)
{
	struct ib_qp_init_attr init = {
		.qp_type = side->type,
		.event_handler = on_event,
		.qp_context = side,
		.xrcd = side->xrcd,
	};

	side->qp = ib_create_qp(side->pd, &init);
	return PTR_ERR_OR_ZERO(side->qp);
}

int side_create_qp(struct side *side, struct ib_srq *srq)
{
	struct ib_qp_init_attr init = {
		.qp_type = side->type,
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.event_handler = on_event,
		.qp_context = side,
		.send_cq = side->cq,
		.recv_cq = side->cq,
		.srq = srq,
		.cap = { .max_send_wr = TEST_WRS, .max_send_sge = 1 },
	};

	if (side->type == IB_QPT_XRC_TGT)
		return create_target(side);
	if (!srq && side->type != IB_QPT_XRC_INI) {
		init.cap.max_recv_wr = TEST_WRS;
		init.cap.max_recv_sge = 1;
	}
	side->qp = ib_create_qp(side->pd, &init);
	return PTR_ERR_OR_ZERO(side->qp);
}

int side_connect(struct side *side, const struct side *other)
{
	struct ib_qp_attr init = {
		.qp_state = IB_QPS_INIT,
		.port_num = TEST_PORT,
		.qp_access_flags = side->access,
	};
	struct ib_qp_attr rtr = {
		.qp_state = IB_QPS_RTR,
		.path_mtu = IB_MTU_1024,
		.dest_qp_num = other->qp->qp_num,
		.rq_psn = TEST_PSN,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
	};
	struct ib_qp_attr rts = {
		.qp_state = IB_QPS_RTS,
		.sq_psn = TEST_PSN,
		.timeout = side->timeout,
		.retry_cnt = 7,
		.rnr_retry = side->rnr_retry,
		.max_rd_atomic = 16,
	};
	union ib_gid gid = other->gid;
	int to_rtr = 0, to_rts = 0;

	if (side->type == IB_QPT_RC || side->type == IB_QPT_XRC_TGT)
		to_rtr = IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
	if (side->type == IB_QPT_RC || side->type == IB_QPT_XRC_INI)
		to_rts = IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC;
	if (side->type != IB_QPT_UC)
		to_rts |= IB_QP_TIMEOUT;
	rtr.ah_attr.type = rdma_ah_find_type(side->dev, TEST_PORT);
	rdma_ah_set_port_num(&rtr.ah_attr, TEST_PORT);
	rdma_ah_set_grh(&rtr.ah_attr, &gid, 0, side->gid_index, 64, 0);
	return ib_modify_qp(side->qp, &init, IB_QP_STATE | IB_QP_PKEY_INDEX |
			    IB_QP_PORT | IB_QP_ACCESS_FLAGS) ?:
	       ib_modify_qp(side->qp, &rtr, IB_QP_STATE | IB_QP_AV |
			    IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN |
			    to_rtr) ?:
	       ib_modify_qp(side->qp, &rts, IB_QP_STATE | IB_QP_SQ_PSN | to_rts);
}

int side_set_state(struct side *side, enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };

	return ib_modify_qp(side->qp, &attr, IB_QP_STATE);
}

int side_state(struct side *side)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	return ib_query_qp(side->qp, &attr, IB_QP_STATE, &init) ?: (int)attr.qp_state;
}

int side_wait(struct side *side, struct ib_wc *wc)
{
	unsigned long end = jiffies + TEST_PATIENCE;
	int n;

	do {
		n = ib_poll_cq(side->cq, 1, wc);
		if (n)
			return n < 0 ? n : 0;
		usleep_range(100, 200);
	} while (time_before(jiffies, end));
	return -ETIMEDOUT;
}

int side_execute(struct side *side, const struct ib_send_wr *wr)
{
	struct ib_wc wc;
	int err;

	err = ib_post_send(side->qp, wr, NULL) ?: side_wait(side, &wc);
	return err ?: (int)wc.status;
}
