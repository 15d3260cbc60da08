// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Domains; channels, completion queues and shared receive queues.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "objects.h"

enum { ENTRIES = 300 };

/* --- domains ------------------------------------------------------------------ */

static void *new_pd(struct worker *worker)
{
	(void)worker;
	return ibv_alloc_pd(dev.ctx);
}

static int end_pd(void *pd)
{
	return ibv_dealloc_pd(pd);
}

static void *new_td(struct worker *worker)
{
	struct ibv_td_init_attr attr = { .comp_mask = 0 };

	(void)worker;
	return ibv_alloc_td(dev.ctx, &attr);
}

static int end_td(void *td)
{
	return ibv_dealloc_td(td);
}

static void *new_parent(struct worker *worker)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = any_pd(worker),
		.td = any(worker, KIND_TD),
	};

	return ibv_alloc_parent_domain(dev.ctx, &attr);
}

/* Of nobody, or of a file that all threads and processes know. */
static void *new_xrcd(struct worker *worker)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd;

	if (one_of(worker, 2))
		attr.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	xrcd = ibv_open_xrcd(dev.ctx, &attr);
	if (attr.fd >= 0)
		close(attr.fd);
	return xrcd;
}

static int end_xrcd(void *xrcd)
{
	return ibv_close_xrcd(xrcd);
}

const struct kind_ops domain_kinds[] = {
	{ new_pd, end_pd, NULL },
	{ new_td, end_td, NULL },
	{ new_parent, end_pd, NULL },
	{ new_xrcd, end_xrcd, NULL },
};

/* --- channels ----------------------------------------------------------------- */

static void *new_channel(struct worker *worker)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(dev.ctx);

	(void)worker;
	if (channel)
		fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	return channel;
}

static int end_channel(void *channel)
{
	return ibv_destroy_comp_channel(channel);
}

static void use_channel(struct worker *worker, void *channel)
{
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		if (one_of(worker, 2))
			ibv_req_notify_cq(cq, below(worker, 2));
	}
}

/* --- completion queues -------------------------------------------------------- */

static void *new_cq(struct worker *worker)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 1 + below(worker, ENTRIES),
		.channel = any(worker, KIND_CHANNEL),
		.wc_flags = below(worker, 2) ? IBV_WC_STANDARD_FLAGS : 0,
	};
	struct ibv_cq_ex *cq;

	if (one_of(worker, 2))
		return ibv_create_cq(dev.ctx, attr.cqe, NULL, attr.channel, 0);
	attr.parent_domain = any(worker, KIND_PARENT);
	if (attr.parent_domain)
		attr.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
	if (one_of(worker, 2)) {
		attr.comp_mask |= IBV_CQ_INIT_ATTR_MASK_FLAGS;
		attr.flags = below(worker, 4);
	}
	cq = ibv_create_cq_ex(dev.ctx, &attr);
	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static int end_cq(void *cq)
{
	return ibv_destroy_cq(cq);
}

static void use_cq(struct worker *worker, void *cq)
{
	struct ibv_modify_cq_attr attr = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { .cq_count = below(worker, 10),
			      .cq_period = below(worker, 1000) },
	};
	struct ibv_wc wc[8];

	switch (below(worker, 4)) {
	case 0:
		ibv_resize_cq(cq, 1 + below(worker, ENTRIES));
		break;
	case 1:
		ibv_modify_cq(cq, &attr);
		break;
	case 2:
		ibv_req_notify_cq(cq, below(worker, 2));
		break;
	default:
		ibv_poll_cq(cq, 8, wc);
		break;
	}
}

/* --- shared receive queues ---------------------------------------------------- */

static void *new_srq(struct worker *worker)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = 64, .max_sge = 2 },
	};

	return ibv_create_srq(any_domain(worker), &attr);
}

static void *new_xrc_srq(struct worker *worker)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 64, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.xrcd = any(worker, KIND_XRCD),
		.cq = any(worker, KIND_CQ),
		.pd = any_pd(worker),
	};

	return attr.xrcd && attr.cq ? ibv_create_srq_ex(dev.ctx, &attr) : NULL;
}

static int end_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

static void fill_srq(struct worker *worker, struct ibv_srq *srq)
{
	struct ibv_sge sge = any_sge(worker);
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge }, *bad;
	unsigned int n = below(worker, 20);

	wr.num_sge = sge.length ? 1 : 0;
	while (n--)
		ibv_post_srq_recv(srq, &wr, &bad);
}

static void use_srq(struct worker *worker, void *srq)
{
	struct ibv_srq_attr attr = {
		.max_wr = 1 + below(worker, ENTRIES),
		.srq_limit = below(worker, 20),
	};

	if (one_of(worker, 3))
		ibv_modify_srq(srq, &attr, 1 + below(worker, 3));
	else if (one_of(worker, 4))
		ibv_query_srq(srq, &attr);
	else
		fill_srq(worker, srq);
}

const struct kind_ops queue_kinds[] = {
	{ new_channel, end_channel, use_channel },
	{ new_cq, end_cq, use_cq },
	{ new_srq, end_srq, use_srq },
	{ new_xrc_srq, end_srq, use_srq },
};
