// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ends.h"

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int i;

	for (i = 0; list && list[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	if (!context)
		fail(name);
	ibv_free_device_list(list);
	return context;
}

void open_end(struct end *end, const char *name, const char *gid_index,
	      size_t bytes, int depth)
{
	struct ibv_port_attr port;

	end->context = open_device(name);
	end->gid_index = atoi(gid_index);
	if (ibv_query_gid(end->context, 1, end->gid_index, &end->gid) ||
	    ibv_query_port(end->context, 1, &port))
		fail("query");
	end->mtu = port.active_mtu;
	end->pd = ibv_alloc_pd(end->context);
	end->cq = ibv_create_cq(end->context, depth, NULL, NULL, 0);
	end->buffer = aligned_alloc(PAGE, bytes);
	if (!end->pd || !end->cq || !end->buffer)
		fail("open");
	memset(end->buffer, 0, bytes);
	end->mr = ibv_reg_mr(end->pd, end->buffer, bytes,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!end->mr)
		fail("ibv_reg_mr");
}

struct ibv_qp *create_qp(struct end *end, int depth)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = {
			.max_send_wr = depth,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(end->pd, &init);

	if (!qp)
		fail("ibv_create_qp");
	return qp;
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	errno = ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
	if (errno)
		fail("ibv_modify_qp");
}

void connect_qp(struct ibv_qp *qp, const struct end *end, uint32_t peer,
		const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ,
	};

	modify(qp, &attr,
	       IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = end->mtu,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = {
				.dgid = *gid,
				.sgid_index = end->gid_index,
				.hop_limit = 64,
			},
		},
	};
	modify(qp, &attr,
	       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	modify(qp, &attr,
	       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void create_pair(struct end *a, struct end *b, int depth, struct ibv_qp **qp,
		 struct ibv_qp **peer)
{
	*qp = create_qp(a, depth);
	*peer = create_qp(b, depth);
	connect_qp(*qp, a, (*peer)->qp_num, &b->gid);
	connect_qp(*peer, b, (*qp)->qp_num, &a->gid);
}

void post_write(struct ibv_qp *qp, const struct end *from, const struct end *to,
		uint32_t bytes, uint64_t id)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)from->buffer,
		.length = bytes,
		.lkey = from->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = (uintptr_t)to->buffer,
			.rkey = to->mr->rkey,
		},
	};
	struct ibv_send_wr *bad;

	errno = ibv_post_send(qp, &wr, &bad);
	if (errno)
		fail("ibv_post_send");
}

int poll_writes(const struct end *end, struct ibv_wc *wc, int count)
{
	int i, n = ibv_poll_cq(end->cq, count, wc);

	errno = EIO;
	if (n < 0)
		fail("ibv_poll_cq");
	for (i = 0; i < n; i++)
		if (wc[i].status)
			fail(ibv_wc_status_str(wc[i].status));
	return n;
}
