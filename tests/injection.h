/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Verbs whose allocations and copies fail, one after the other.
 */
#ifndef TESTS_INJECTION_H
#define TESTS_INJECTION_H

#include "setup.h"
#include "verb.h"

/* What verbs need that are tried here. */
struct bench {
	struct setup *setup;
	const char *netdev;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_pd *other_pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_dm *dm;
	struct ibv_xrcd *xrcd;
	struct endpoint ud;
	struct endpoint a;
	struct endpoint b;
};

extern struct bench bench;

/* Those that several parts need. @fd: as in struct ibv_xrcd_init_attr. */
void *open_xrcd_of(int fd);
int close_xrcd(void *xrcd);
void *create_xrc_recv(void);
int destroy_qp(void *qp);

/* Those of injection_{qps,memory,counters,link}.c; the last has no name. */
extern const struct verb qp_verbs[], memory_verbs[], counter_verbs[],
	link_verbs[];

/* What they need, before anything fails, and afterwards. */
void qp_verbs_open(void);
void qp_verbs_close(void);
void memory_verbs_open(void);
void memory_verbs_close(void);
void counter_verbs_open(void);
void counter_verbs_close(void);
void link_verbs_open(void);
void link_verbs_close(void);

#endif /* TESTS_INJECTION_H */
