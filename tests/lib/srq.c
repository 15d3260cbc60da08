// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "srq.h"
#include "tap.h"

enum { XRC_ENTRIES = 64 };

struct ibv_srq *srq_create(struct ibv_pd *pd, uint32_t max_wr, uint32_t max_sge)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = max_wr, .max_sge = max_sge },
	};
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);

	if (!srq)
		bail("no shared receive queue: %s", strerror(errno));
	return srq;
}

void xrc_open_domain_of(struct xrc *xrc, struct setup *setup, int fd,
			int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = oflags,
	};

	memset(xrc, 0, sizeof(*xrc));
	xrc->setup = setup;
	xrc->xrcd = ibv_open_xrcd(setup->b_dev.ctx, &attr);
	xrc->cq = ibv_create_cq(setup->b_dev.ctx, XRC_ENTRIES, NULL, NULL, 0);
	if (!xrc->xrcd || !xrc->cq)
		bail("no XRC domain: %s", strerror(errno));
}

void xrc_open_domain(struct xrc *xrc, struct setup *setup)
{
	xrc_open_domain_of(xrc, setup, -1, O_CREAT);
}

struct ibv_srq *xrc_try_create_srq(struct xrc *xrc, uint32_t max_wr,
				   uint32_t max_sge)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = max_wr, .max_sge = max_sge },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.xrcd = xrc->xrcd,
		.cq = xrc->cq,
		.pd = xrc->setup->b_dev.pd,
	};

	return ibv_create_srq_ex(xrc->setup->b_dev.ctx, &attr);
}

struct ibv_srq *xrc_create_srq(struct xrc *xrc, uint32_t max_wr,
			       uint32_t max_sge)
{
	struct ibv_srq *srq = xrc_try_create_srq(xrc, max_wr, max_sge);

	if (!srq)
		bail("no XRC shared receive queue: %s", strerror(errno));
	return srq;
}

void xrc_connect(struct xrc *xrc)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_XRC_SEND);

	endpoint_create(&xrc->a, &xrc->setup->a_dev, &options);
	options.type = IBV_QPT_XRC_RECV;
	options.xrcd = xrc->xrcd;
	endpoint_create(&xrc->b, &xrc->setup->b_dev, &options);
	pair_connect(&xrc->a, &xrc->b);
}

void xrc_close(struct xrc *xrc)
{
	unsigned int i;

	pair_destroy(&xrc->a, &xrc->b);
	for (i = 0; i < 2; i++)
		if (xrc->srq[i])
			tap_must(!ibv_destroy_srq(xrc->srq[i]),
				 "ibv_destroy_srq fails");
	tap_must(!ibv_destroy_cq(xrc->cq), "ibv_destroy_cq fails");
	tap_must(!ibv_close_xrcd(xrc->xrcd), "ibv_close_xrcd fails");
}

void xrc_aim(const struct xrc *xrc, unsigned int which, struct ibv_send_wr *wr)
{
	if (ibv_get_srq_num(xrc->srq[which], &wr->qp_type.xrc.remote_srqn))
		bail("ibv_get_srq_num fails");
}
