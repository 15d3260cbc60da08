// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Shared receive queues.
 */
#include <stdlib.h>

#include "mic.h"

struct create_srq_resp {
	struct ib_uverbs_create_srq_resp base;
	struct mic_create_srq_resp mic;
};
static_assert(sizeof(struct create_srq_resp) ==
		      sizeof(struct ib_uverbs_create_srq_resp) +
			      sizeof(struct mic_create_srq_resp),
	      "the driver's part follows directly");

struct modify_srq_cmd {
	struct ibv_modify_srq base;
	struct mic_modify_srq_cmd mic;
};
static_assert(sizeof(struct modify_srq_cmd) ==
		      sizeof(struct ibv_modify_srq) +
			      sizeof(struct mic_modify_srq_cmd),
	      "the driver's part follows directly");

/* Map what the kernel has created. On failure the kernel's part goes too. */
static int init_srq(struct mic_srq *srq, struct ibv_pd *pd, uint32_t max_sge,
		    const struct mic_create_srq_resp *resp)
{
	int ret;

	ret = mic_map_queue(&srq->map, to_mctx(pd->context)->doorbell_fd,
			    &resp->map);
	if (ret) {
		ibv_cmd_destroy_srq(&srq->vsrq.srq);
		return ret;
	}
	mic_wq_init(&srq->wq, &srq->map, &resp->ring, max_sge,
		    mic_pd_one_thread(pd));
	srq->srqn = resp->srqn;
	srq->parent = mic_parent_get(pd);
	return 0;
}

static struct ibv_srq *finish_srq(struct mic_srq *srq, int err)
{
	if (!err)
		return &srq->vsrq.srq;
	free(srq);
	errno = err;
	return NULL;
}

struct ibv_srq *mic_create_srq(struct ibv_pd *pd,
			       struct ibv_srq_init_attr *attr)
{
	struct create_srq_resp resp = {};
	struct ibv_create_srq cmd = {};
	struct mic_srq *srq;
	int ret;

	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	ret = ibv_cmd_create_srq(pd, &srq->vsrq.srq, attr, &cmd, sizeof(cmd),
				 &resp.base, sizeof(resp));
	if (!ret)
		ret = init_srq(srq, pd, attr->attr.max_sge, &resp.mic);
	return finish_srq(srq, ret);
}

struct ibv_srq *mic_create_srq_ex(struct ibv_context *context,
				  struct ibv_srq_init_attr_ex *attr)
{
	struct create_srq_resp resp = {};
	struct ibv_create_xsrq cmd = {};
	struct mic_srq *srq;
	int ret;

	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) &&
	    attr->srq_type == IBV_SRQT_TM) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	srq->vsrq.srq.srq_context = attr->srq_context;
	srq->vsrq.srq.pd = attr->pd;
	ret = ibv_cmd_create_srq_ex(context, &srq->vsrq, attr, &cmd,
				    sizeof(cmd), &resp.base, sizeof(resp));
	if (!ret)
		ret = init_srq(srq, attr->pd, attr->attr.max_sge, &resp.mic);
	return finish_srq(srq, ret);
}

static int doorbell_fd(const struct mic_srq *srq)
{
	return to_mctx(srq->vsrq.srq.context)->doorbell_fd;
}

static void enter_queue(struct mic_srq *srq, const struct mic_map *map,
			const struct mic_ring_info *info)
{
	mic_unmap_queue(&srq->map);
	srq->map = *map;
	mic_wq_attach(&srq->wq, map, info);
}

/*
 * The kernel has moved what was posted to a new queue. If that can't be mapped there is
 * no room for more until it can.
 */
static int replace_queue(struct mic_srq *srq, struct mic_map *room,
			 const struct mic_modify_srq_resp *resp)
{
	struct mic_map map;
	int ret;

	ret = mic_map_reserved(&map, room, doorbell_fd(srq), &resp->map);
	if (!ret) {
		enter_queue(srq, &map, &resp->ring);
		return 0;
	}
	srq->moved = *resp;
	srq->wq.entries = 0;
	return ret;
}

/* The queue's lock is held, and it has no entries. */
void mic_srq_catch_up(struct mic_srq *srq)
{
	struct mic_map map;

	if (!mic_map_queue(&map, doorbell_fd(srq), &srq->moved.map))
		enter_queue(srq, &map, &srq->moved.ring);
}

/* With the queue's lock. */
static int resize_srq(struct mic_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct mic_modify_srq_resp resp = {};
	struct modify_srq_cmd cmd = {
		.mic.resp_addr = (uintptr_t)&resp,
	};
	struct mic_map room;
	int ret;

	ret = mic_reserve_queue(&room, &srq->map, srq->wq.entries, attr->max_wr,
				srq->wq.stride);
	if (ret)
		return ret;
	ret = ibv_cmd_modify_srq(&srq->vsrq.srq, attr, mask, &cmd.base,
				 sizeof(cmd));
	if (!ret)
		return replace_queue(srq, &room, &resp);
	mic_unmap_queue(&room);
	return ret;
}

int mic_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct mic_lock *lock = &to_msrq(srq)->wq.lock;
	struct ibv_modify_srq cmd = {};
	int ret;

	if (mask & IBV_SRQ_MAX_WR) {
		mic_lock(lock);
		ret = resize_srq(to_msrq(srq), attr, mask);
		mic_unlock(lock);
		return ret;
	}
	return ibv_cmd_modify_srq(srq, attr, mask, &cmd, sizeof(cmd));
}

int mic_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq cmd;

	return ibv_cmd_query_srq(srq, attr, &cmd, sizeof(cmd));
}

int mic_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num)
{
	if (to_msrq(srq)->vsrq.srq_type != IBV_SRQT_XRC)
		return EOPNOTSUPP;
	*srq_num = to_msrq(srq)->srqn;
	return 0;
}

int mic_destroy_srq(struct ibv_srq *ibsrq)
{
	struct mic_srq *srq = to_msrq(ibsrq);
	const uint32_t srqn = srq->srqn;
	struct ibv_cq *cq = NULL;
	int ret;

	ret = ibv_cmd_destroy_srq(ibsrq);
	if (ret)
		return ret;
	if (srq->vsrq.srq_type == IBV_SRQT_XRC)
		cq = srq->vsrq.cq;
	mic_unmap_queue(&srq->map);
	mic_parent_put(srq->parent);
	free(srq);
	if (cq)
		mic_cq_forget_srq(cq, srqn);
	return 0;
}
