/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Shared receive queues, and what there is behind an XRC connection.
 */
#ifndef TESTS_SRQ_H
#define TESTS_SRQ_H

#include <infiniband/verbs.h>

#include "endpoint.h"
#include "setup.h"

/* A shared receive queue, or the end of the test. */
struct ibv_srq *srq_create(struct ibv_pd *pd, uint32_t max_wr,
			   uint32_t max_sge);

/* A connection from a to a target on b, whose domain has queues that share a CQ. */
struct xrc {
	struct setup *setup;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	struct ibv_srq *srq[2]; /* the second one may be NULL */
	struct endpoint a;
	struct endpoint b;
};

/* The steps to such a connection; each ends the test if it fails. */
void xrc_open_domain(struct xrc *xrc, struct setup *setup);
/* The domain of a file. */
void xrc_open_domain_of(struct xrc *xrc, struct setup *setup, int fd,
			int oflags);
struct ibv_srq *xrc_try_create_srq(struct xrc *xrc, uint32_t max_wr,
				   uint32_t max_sge); /* or NULL with errno */
struct ibv_srq *xrc_create_srq(struct xrc *xrc, uint32_t max_wr,
			       uint32_t max_sge);
void xrc_connect(struct xrc *xrc);

void xrc_close(struct xrc *xrc);

/* @wr goes to the queue @which when it is posted to a. */
void xrc_aim(const struct xrc *xrc, unsigned int which, struct ibv_send_wr *wr);

#endif /* TESTS_SRQ_H */
