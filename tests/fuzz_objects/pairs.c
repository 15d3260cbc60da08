// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Address handles, and queue pairs of each type in whatever states they get into.
 */
#include <stdlib.h>

#include "objects.h"
#include "work.h"

enum { DEPTH = 16 };

/* --- address handles ---------------------------------------------------------- */

static union ibv_gid group_gid(struct worker *worker)
{
	union ibv_gid gid = { .raw = { 0xff, 0x0e } };

	gid.raw[15] = below(worker, 3);
	return gid;
}

static void *new_ah(struct worker *worker)
{
	union ibv_gid group = group_gid(worker);

	return address_handle(&dev, one_of(worker, 2) ? &dev.gid : &group);
}

static int end_ah(void *ah)
{
	return ibv_destroy_ah(ah);
}

/* --- queue pairs -------------------------------------------------------------- */

static struct endpoint_options any_options(struct worker *worker)
{
	static const enum ibv_qp_type types[] = {
		IBV_QPT_RC, IBV_QPT_RC,	      IBV_QPT_UC,
		IBV_QPT_UD, IBV_QPT_XRC_SEND,
	};
	struct endpoint_options options =
		endpoint_options(types[below(worker, COUNT(types))]);

	options.depth = DEPTH;
	options.retry_count = 1;
	options.rnr_retry = 1;
	options.pd = any_domain(worker);
	options.channel = any(worker, KIND_CHANNEL);
	options.srq = any(worker, KIND_SRQ);
	/* an XRC queue pair has no receive queue, and so nothing to keep one */
	if (options.type == IBV_QPT_XRC_SEND)
		return options;
	/* of any size, so that they overflow */
	if (one_of(worker, 3))
		options.send_cq = any(worker, KIND_CQ);
	if (one_of(worker, 3))
		options.recv_cq = any(worker, KIND_CQ);
	return options;
}

static bool create_ends(struct worker *worker, struct endpoint *ends)
{
	struct endpoint_options options = any_options(worker);

	if (!endpoint_try_create(&ends[0], &dev, &options))
		return false;
	if (options.type == IBV_QPT_XRC_SEND) {
		options.type = IBV_QPT_XRC_RECV;
		options.xrcd = any(worker, KIND_XRCD);
	}
	if ((options.type != IBV_QPT_XRC_RECV || options.xrcd) &&
	    endpoint_try_create(&ends[1], &dev, &options))
		return true;
	endpoint_destroy(&ends[0]);
	return false;
}

static void *new_pair(struct worker *worker)
{
	struct pair *pair = zeroed(sizeof(*pair));

	if (!create_ends(worker, pair->ends)) {
		free(pair);
		return NULL;
	}
	if (!one_of(worker, 8))
		pair_connect(&pair->ends[0], &pair->ends[1]);
	return pair;
}

/* A member of a group is in use. */
static void leave_groups(struct endpoint *ep)
{
	union ibv_gid gid = { .raw = { 0xff, 0x0e } };

	if (ep->options.type != IBV_QPT_UD)
		return;
	for (; gid.raw[15] < 3; gid.raw[15]++)
		ibv_detach_mcast(ep->qp, &gid, 0);
}

static int end_pair(void *object)
{
	struct pair *pair = object;

	leave_groups(&pair->ends[0]);
	leave_groups(&pair->ends[1]);
	pair_destroy(&pair->ends[0], &pair->ends[1]);
	free(pair);
	return 0;
}

/* --- what they do ------------------------------------------------------------- */

static void poll_both(struct pair *pair)
{
	struct ibv_wc wc[8];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		ibv_poll_cq(pair->ends[i].send_cq, 8, wc);
		ibv_poll_cq(pair->ends[i].recv_cq, 8, wc);
	}
}

static void aim(struct worker *worker, struct pair *pair,
		struct ibv_send_wr *wr)
{
	struct ibv_srq *srq = any(worker, KIND_XRC_SRQ);
	struct place place = any_place(worker);
	struct ibv_ah *ah = any(worker, KIND_AH);

	if (opcode_is_atomic(wr->opcode)) {
		wr->wr.atomic.remote_addr = place.addr & ~7ULL;
		wr->wr.atomic.rkey = place.rkey;
	} else if (pair->ends[0].options.type == IBV_QPT_UD) {
		wr->wr.ud.ah = ah;
		wr->wr.ud.remote_qpn = one_of(worker, 2) ?
					       MULTICAST_QPN :
					       pair->ends[1].qp->qp_num;
		wr->wr.ud.remote_qkey = ENDPOINT_QKEY;
	} else {
		wr->wr.rdma.remote_addr = place.addr;
		wr->wr.rdma.rkey = place.rkey;
	}
	if (srq && pair->ends[0].options.type == IBV_QPT_XRC_SEND)
		ibv_get_srq_num(srq, &wr->qp_type.xrc.remote_srqn);
}

static void post_any_send(struct worker *worker, struct pair *pair)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
		IBV_WR_RDMA_READ,
		IBV_WR_SEND,
		IBV_WR_SEND,
		IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_SEND_WITH_INV,
		IBV_WR_LOCAL_INV,
		IBV_WR_ATOMIC_WRITE,
	};
	struct endpoint *ep = &pair->ends[below(worker, 2)];
	struct ibv_sge sge = any_sge(worker);
	struct ibv_send_wr wr;
	struct place place = any_place(worker);

	wr = send_wr(1, opcodes[below(worker, COUNT(opcodes))], &sge,
		     sge.length ? 1 : 0);
	if (opcode_is_atomic(wr.opcode) || wr.opcode == IBV_WR_ATOMIC_WRITE)
		sge.length = 8;
	aim(worker, pair, &wr);
	if (pair->ends[0].options.type == IBV_QPT_UD && !wr.wr.ud.ah)
		return;
	if (wr.opcode == IBV_WR_SEND_WITH_INV || wr.opcode == IBV_WR_LOCAL_INV)
		wr.invalidate_rkey = place.rkey;
	if (one_of(worker, 8))
		wr.send_flags |= IBV_SEND_FENCE | IBV_SEND_SOLICITED;
	if (ep->options.type != IBV_QPT_XRC_RECV)
		try_post_send(ep, &wr);
}

static void post_any_receive(struct worker *worker, struct pair *pair)
{
	struct endpoint *ep = &pair->ends[below(worker, 2)];
	struct ibv_sge sge = any_sge(worker);

	if (ep->qp->srq || ep->options.type == IBV_QPT_XRC_SEND ||
	    ep->options.type == IBV_QPT_XRC_RECV)
		return;
	try_post_recv(ep, 2, &sge, sge.length ? 1 : 0);
}

/* Some changes are refused, and some queue pairs go nowhere from there. */
static void change_state(struct worker *worker, struct pair *pair)
{
	struct endpoint *ep = &pair->ends[below(worker, 2)];
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	switch (below(worker, 4)) {
	case 0:
		/* what comes for a group may be its end before it is connected */
		leave_groups(&pair->ends[0]);
		leave_groups(&pair->ends[1]);
		endpoint_go(&pair->ends[0], IBV_QPS_RESET);
		endpoint_go(&pair->ends[1], IBV_QPS_RESET);
		pair_connect(&pair->ends[0], &pair->ends[1]);
		break;
	case 1:
		ibv_query_qp(ep->qp, &attr, IBV_QP_STATE, &init);
		break;
	default:
		endpoint_set_state(ep, below(worker, IBV_QPS_UNKNOWN));
		break;
	}
}

static void change_group(struct worker *worker, struct pair *pair)
{
	struct endpoint *ep = &pair->ends[below(worker, 2)];
	union ibv_gid gid = group_gid(worker);

	if (ep->options.type != IBV_QPT_UD)
		return;
	if (one_of(worker, 3))
		ibv_detach_mcast(ep->qp, &gid, 0);
	else
		ibv_attach_mcast(ep->qp, &gid, 0);
}

static void use_pair(struct worker *worker, void *pair)
{
	unsigned int n;

	switch (below(worker, 8)) {
	case 0:
		change_state(worker, pair);
		break;
	case 1:
		change_group(worker, pair);
		break;
	case 2:
		post_any_receive(worker, pair);
		break;
	default:
		poll_both(pair);
		for (n = below(worker, 4); n; n--)
			post_any_send(worker, pair);
		break;
	}
}

const struct kind_ops pair_kinds[] = {
	{ new_ah, end_ah, NULL },
	{ new_pair, end_pair, use_pair },
};
