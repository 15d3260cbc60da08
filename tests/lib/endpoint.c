// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <string.h>

#include "endpoint.h"
#include "memory.h"
#include "tap.h"

enum { PORT = 1, HOPS = 64 };

struct endpoint_options endpoint_options(enum ibv_qp_type type)
{
	return (struct endpoint_options){
		.type = type,
		.depth = 64,
		.sges = 4,
		.access = ACCESS_ALL,
		.timeout = 14,
		.retry_count = 7,
		.rnr_retry = 7,
		.rnr_timer = 1,
		.reads = 4,
		/* Close to the wrap of the 24-bit sequence numbers. */
		.psn = 0xfffff0,
	};
}

/* The given queue, or a new one; NULL with errno if there is none. */
static struct ibv_cq *find_cq(struct endpoint *ep, struct ibv_cq *given,
			      bool *owned)
{
	struct ibv_cq *cq = given;

	if (!given)
		cq = ibv_create_cq(ep->dev->ctx, ep->options.depth, NULL,
				   ep->options.channel, 0);
	*owned = !given && cq;
	return cq;
}

static void destroy_cqs(struct endpoint *ep)
{
	if (ep->owns_send_cq)
		tap_must(!ibv_destroy_cq(ep->send_cq), "ibv_destroy_cq fails");
	if (ep->owns_recv_cq)
		tap_must(!ibv_destroy_cq(ep->recv_cq), "ibv_destroy_cq fails");
}

static bool is_xrc(const struct endpoint *ep)
{
	return ep->options.type == IBV_QPT_XRC_SEND ||
	       ep->options.type == IBV_QPT_XRC_RECV;
}

/* One half of a connection: the other half is on the other side. */
static bool create_xrc_qp(struct endpoint *ep)
{
	const struct endpoint_options *options = &ep->options;
	struct ibv_qp_init_attr_ex init = {
		.qp_type = options->type,
	};

	if (options->type == IBV_QPT_XRC_RECV) {
		init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
		init.xrcd = options->xrcd;
	} else {
		init.comp_mask = IBV_QP_INIT_ATTR_PD;
		init.pd = options->pd ? options->pd : ep->dev->pd;
		init.send_cq = ep->send_cq;
		init.cap.max_send_wr = options->depth;
		init.cap.max_send_sge = options->sges;
		init.cap.max_inline_data = options->inline_bytes;
	}
	ep->qp = ibv_create_qp_ex(ep->dev->ctx, &init);
	ep->max_inline = init.cap.max_inline_data;
	return ep->qp;
}

static bool create_qp(struct endpoint *ep)
{
	const struct endpoint_options *options = &ep->options;
	struct ibv_qp_init_attr init = {
		.send_cq = ep->send_cq,
		.recv_cq = ep->recv_cq,
		.srq = options->srq,
		.qp_type = options->type,
		.sq_sig_all = options->signal_all,
		.cap = {
			.max_send_wr = options->depth,
			.max_recv_wr = options->depth,
			.max_send_sge = options->sges,
			.max_recv_sge = options->sges,
			.max_inline_data = options->inline_bytes,
		},
	};

	if (is_xrc(ep))
		return create_xrc_qp(ep);
	ep->qp = ibv_create_qp(options->pd ? options->pd : ep->dev->pd, &init);
	ep->max_inline = init.cap.max_inline_data;
	return ep->qp;
}

bool endpoint_try_create(struct endpoint *ep, struct device *dev,
			 const struct endpoint_options *options)
{
	int error;

	memset(ep, 0, sizeof(*ep));
	ep->dev = dev;
	ep->options = *options;
	ep->send_cq = find_cq(ep, options->send_cq, &ep->owns_send_cq);
	ep->recv_cq = find_cq(ep, options->recv_cq, &ep->owns_recv_cq);
	if (ep->send_cq && ep->recv_cq && create_qp(ep))
		return true;
	error = errno;
	destroy_cqs(ep);
	errno = error;
	return false;
}

void endpoint_create(struct endpoint *ep, struct device *dev,
		     const struct endpoint_options *options)
{
	if (!endpoint_try_create(ep, dev, options))
		bail("%s: cannot create a QP of type %d with %u requests, %u SGEs, %u bytes inline: %s",
		     dev->name, options->type, options->depth, options->sges,
		     options->inline_bytes, strerror(errno));
}

void endpoint_extend(struct endpoint *ep, uint32_t create_flags,
		     uint64_t send_ops)
{
	const struct endpoint_options *options = &ep->options;
	struct ibv_qp_init_attr_ex init = {
		.send_cq = ep->send_cq,
		.recv_cq = ep->recv_cq,
		.cap = {
			.max_send_wr = options->depth,
			.max_recv_wr = options->depth,
			.max_send_sge = options->sges,
			.max_recv_sge = options->sges,
			.max_inline_data = options->inline_bytes,
		},
		.qp_type = options->type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = options->pd ? options->pd : ep->dev->pd,
		.create_flags = create_flags,
		.send_ops_flags = send_ops,
	};

	if (create_flags)
		init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	if (send_ops)
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	tap_must(!ibv_destroy_qp(ep->qp), "ibv_destroy_qp fails");
	ep->qp = ibv_create_qp_ex(ep->dev->ctx, &init);
	if (!ep->qp)
		bail("ibv_create_qp_ex: %s", strerror(errno));
}

void endpoint_destroy(struct endpoint *ep)
{
	if (ep->qp)
		tap_must(!ibv_destroy_qp(ep->qp), "ibv_destroy_qp fails");
	destroy_cqs(ep);
	memset(ep, 0, sizeof(*ep));
}

struct endpoint_address endpoint_address(const struct endpoint *ep)
{
	return (struct endpoint_address){
		.gid = ep->dev->gid,
		.qp_num = ep->qp->qp_num,
		.psn = ep->options.psn,
		.mtu = ep->dev->port.active_mtu,
	};
}

static bool is_connected_type(const struct endpoint *ep)
{
	return ep->options.type != IBV_QPT_UD;
}

static void modify(struct endpoint *ep, struct ibv_qp_attr *attr, int mask)
{
	int error = ibv_modify_qp(ep->qp, attr, mask);

	if (error)
		bail("%s: QP %u cannot go to %s: %s", ep->dev->name,
		     ep->qp->qp_num, state_name(attr->qp_state),
		     strerror(error));
}

void endpoint_to_init(struct endpoint *ep)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qkey = ENDPOINT_QKEY,
		.qp_access_flags = ep->options.access,
	};

	if (ep->options.type == IBV_QPT_UC)
		attr.qp_access_flags &= IBV_ACCESS_REMOTE_WRITE;
	modify(ep, &attr,
	       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (is_connected_type(ep) ? IBV_QP_ACCESS_FLAGS :
						IBV_QP_QKEY));
}

static struct ibv_ah_attr path_to(const struct device *dev,
				  const union ibv_gid *gid)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = PORT,
		.grh = {
			.dgid = *gid,
			.sgid_index = dev->gid_index,
			.hop_limit = HOPS,
		},
	};
}

static enum ibv_mtu common_mtu(const struct endpoint *ep,
			       const struct endpoint_address *peer)
{
	return ep->dev->port.active_mtu < peer->mtu ? ep->dev->port.active_mtu :
						      peer->mtu;
}

void endpoint_to_rtr(struct endpoint *ep, const struct endpoint_address *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.max_dest_rd_atomic = ep->options.reads,
		.min_rnr_timer = ep->options.rnr_timer,
	};
	int mask = IBV_QP_STATE;

	if (is_connected_type(ep)) {
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN;
		attr.path_mtu = common_mtu(ep, peer);
		attr.dest_qp_num = peer->qp_num;
		attr.rq_psn = peer->psn;
		attr.ah_attr = path_to(ep->dev, &peer->gid);
	}
	if (ep->options.type == IBV_QPT_RC ||
	    ep->options.type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	modify(ep, &attr, mask);
}

void endpoint_to_rts(struct endpoint *ep)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = ep->options.psn,
		.timeout = ep->options.timeout,
		.retry_cnt = ep->options.retry_count,
		.rnr_retry = ep->options.rnr_retry,
		.max_rd_atomic = ep->options.reads,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (ep->options.type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_TIMEOUT;
	if (ep->options.type == IBV_QPT_RC ||
	    ep->options.type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	modify(ep, &attr, mask);
}

void endpoint_connect(struct endpoint *ep, const struct endpoint_address *peer)
{
	endpoint_to_init(ep);
	endpoint_to_rtr(ep, peer);
	endpoint_to_rts(ep);
}

int endpoint_set_state(struct endpoint *ep, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE);
}

void endpoint_go(struct endpoint *ep, enum ibv_qp_state state)
{
	int error = endpoint_set_state(ep, state);

	if (error)
		bail("cannot go to %s: %s", state_name(state), strerror(error));
}

enum ibv_qp_state endpoint_state(const struct endpoint *ep)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(ep->qp, &attr, IBV_QP_STATE, &init))
		bail("%s: ibv_query_qp fails", ep->dev->name);
	return attr.qp_state;
}

const char *state_name(enum ibv_qp_state state)
{
	static const char *const names[] = {
		[IBV_QPS_RESET] = "RESET", [IBV_QPS_INIT] = "INIT",
		[IBV_QPS_RTR] = "RTR",	   [IBV_QPS_RTS] = "RTS",
		[IBV_QPS_SQD] = "SQD",	   [IBV_QPS_SQE] = "SQE",
		[IBV_QPS_ERR] = "ERR",
	};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

void pair_connect(struct endpoint *a, struct endpoint *b)
{
	struct endpoint_address address_a = endpoint_address(a);
	struct endpoint_address address_b = endpoint_address(b);

	endpoint_connect(b, &address_a);
	endpoint_connect(a, &address_b);
}

void pair_create(struct endpoint *a, struct device *dev_a, struct endpoint *b,
		 struct device *dev_b, const struct endpoint_options *options)
{
	endpoint_create(a, dev_a, options);
	endpoint_create(b, dev_b, options);
	pair_connect(a, b);
}

void pair_destroy(struct endpoint *a, struct endpoint *b)
{
	endpoint_destroy(a);
	endpoint_destroy(b);
}

struct ibv_ah *address_handle(struct device *dev, const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = path_to(dev, gid);
	struct ibv_ah *ah = ibv_create_ah(dev->pd, &attr);

	if (!ah)
		bail("%s: ibv_create_ah: %s", dev->name, strerror(errno));
	return ah;
}
