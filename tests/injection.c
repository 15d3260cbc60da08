// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Each allocation and each copy from and to user space that a verb makes fails
 * once: the kernel's fault injection lets the first, then the second and so on
 * fail, until the verb makes no more of them. The verb then fails, or does
 * without; afterwards nothing of it is left, and it works.
 *
 * usage: injection [--device NAME] [--peer NAME] NETDEV, one without a device
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "injection.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 16)

/*
 * A device has thousands of allocations, nearly all of them of ib_core: of those
 * behind the first ones only some fail in one run, and others in the next.
 */
enum { LINK_EACH = 60, LINK_STEP = 37 };

struct bench bench;

/* --- verbs: each returns an object or NULL, and there is one to undo it ------- */

static void *open_device(void)
{
	return device_open_context(bench.setup->a_dev.name);
}

static int close_device(void *ctx)
{
	return ibv_close_device(ctx);
}

static void *import_device(void)
{
	int fd = dup(bench.ctx->cmd_fd);
	void *ctx = ibv_import_device(fd);

	if (!ctx)
		close(fd);
	return ctx;
}

static void *alloc_pd(void)
{
	return ibv_alloc_pd(bench.ctx);
}

static int dealloc_pd(void *pd)
{
	return ibv_dealloc_pd(pd);
}

static void *reg_mr(void)
{
	struct region *memory = &bench.setup->a_mem;

	return ibv_reg_mr(bench.pd, memory->addr, memory->length, ACCESS_ALL);
}

static int dereg_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

static void *null_mr(void)
{
	return ibv_alloc_null_mr(bench.pd);
}

static void *dm_mr(void)
{
	return ibv_reg_dm_mr(bench.pd, bench.dm, 0, 4096,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
}

static void *alloc_dm(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 10000 };

	return ibv_alloc_dm(bench.ctx, &attr);
}

static int free_dm(void *dm)
{
	return ibv_free_dm(dm);
}

static void *alloc_mw(void)
{
	return ibv_alloc_mw(bench.pd, IBV_MW_TYPE_2);
}

static int dealloc_mw(void *mw)
{
	return ibv_dealloc_mw(mw);
}

static void *create_channel(void)
{
	return ibv_create_comp_channel(bench.ctx);
}

static int destroy_channel(void *channel)
{
	return ibv_destroy_comp_channel(channel);
}

static void *create_cq(void)
{
	return ibv_create_cq(bench.ctx, 1000, NULL, NULL, 0);
}

static int destroy_cq(void *cq)
{
	return ibv_destroy_cq(cq);
}

static void *create_srq(void)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = 100, .max_sge = 4 },
	};

	return ibv_create_srq(bench.pd, &attr);
}

static int destroy_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

void *open_xrcd_of(int fd)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = O_CREAT,
	};

	return ibv_open_xrcd(bench.ctx, &attr);
}

static void *open_xrcd(void)
{
	return open_xrcd_of(-1);
}

int close_xrcd(void *xrcd)
{
	return ibv_close_xrcd(xrcd);
}

static void *create_xrc_srq(void)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 100, .max_sge = 4 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.xrcd = bench.xrcd,
		.cq = bench.cq,
		.pd = bench.pd,
	};

	return ibv_create_srq_ex(bench.ctx, &attr);
}

static void *create_qp_of(enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = bench.cq,
		.recv_cq = bench.cq,
		.srq = srq,
		.qp_type = type,
		.cap = { .max_send_wr = 100,
			 .max_recv_wr = 100,
			 .max_send_sge = 8,
			 .max_recv_sge = 8 },
	};

	return ibv_create_qp(bench.pd, &init);
}

static void *create_rc(void)
{
	return create_qp_of(IBV_QPT_RC, NULL);
}

static void *create_rc_srq(void)
{
	return create_qp_of(IBV_QPT_RC, bench.srq);
}

static void *create_ud(void)
{
	return create_qp_of(IBV_QPT_UD, NULL);
}

void *create_xrc_recv(void)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = bench.xrcd,
	};

	return ibv_create_qp_ex(bench.ctx, &init);
}

int destroy_qp(void *qp)
{
	return ibv_destroy_qp(qp);
}

static void *create_ah(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = bench.setup->b_dev.gid,
			 .sgid_index = bench.setup->a_dev.gid_index },
	};

	return ibv_create_ah(bench.pd, &attr);
}

static int destroy_ah(void *ah)
{
	return ibv_destroy_ah(ah);
}

static const union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 7 } };

static void *attach(void)
{
	return done(ibv_attach_mcast(bench.ud.qp, &group, 0));
}

static int detach(void *object)
{
	(void)object;
	return ibv_detach_mcast(bench.ud.qp, &group, 0);
}

static void *resize_cq(void)
{
	return done(ibv_resize_cq(bench.cq, 5000));
}

static int shrink_cq(void *object)
{
	(void)object;
	return ibv_resize_cq(bench.cq, 1000);
}

static void *resize_srq(void)
{
	struct ibv_srq_attr attr = { .max_wr = 5000 };

	return done(ibv_modify_srq(bench.srq, &attr, IBV_SRQ_MAX_WR));
}

static int shrink_srq(void *object)
{
	struct ibv_srq_attr attr = { .max_wr = 100 };

	(void)object;
	return ibv_modify_srq(bench.srq, &attr, IBV_SRQ_MAX_WR);
}

/* If it fails, the region may have lost its memory, and may only be deregistered. */
static void *rereg(int flags)
{
	struct region *memory = &bench.setup->a_mem;
	struct ibv_mr *mr = reg_mr();
	int access = 0, error;

	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		access = IBV_ACCESS_LOCAL_WRITE;
	if (!mr || !ibv_rereg_mr(mr, flags, bench.other_pd, memory->addr + 1,
				 memory->length - 1, access))
		return mr;
	error = errno;
	if (ibv_dereg_mr(mr))
		bail("a region can't be deregistered");
	errno = error;
	return NULL;
}

static void *rereg_translation(void)
{
	return rereg(IBV_REREG_MR_CHANGE_TRANSLATION);
}

static void *rereg_access(void)
{
	return rereg(IBV_REREG_MR_CHANGE_ACCESS);
}

static void *rereg_pd(void)
{
	return rereg(IBV_REREG_MR_CHANGE_PD);
}

static void *rereg_all(void)
{
	return rereg(IBV_REREG_MR_CHANGE_TRANSLATION |
		     IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_PD);
}

static void *reset_qp(void)
{
	return done(endpoint_set_state(&bench.a, IBV_QPS_RESET));
}

static void *modify_srq_limit(void)
{
	struct ibv_srq_attr attr = { .srq_limit = 5 };

	return done(ibv_modify_srq(bench.srq, &attr, IBV_SRQ_LIMIT));
}

static void *query_qp(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return done(ibv_query_qp(bench.b.qp, &attr, IBV_QP_STATE, &init));
}

static const struct verb verbs[] = {
	{ "ibv_open_device", open_device, close_device },
	{ "ibv_import_device", import_device, close_device },
	{ "ibv_alloc_pd", alloc_pd, dealloc_pd },
	{ "ibv_reg_mr", reg_mr, dereg_mr },
	{ "ibv_rereg_mr, memory", rereg_translation, dereg_mr },
	{ "ibv_rereg_mr, rights", rereg_access, dereg_mr },
	{ "ibv_rereg_mr, domain", rereg_pd, dereg_mr },
	{ "ibv_rereg_mr, all of it", rereg_all, dereg_mr },
	{ "ibv_alloc_null_mr", null_mr, dereg_mr },
	{ "ibv_alloc_dm", alloc_dm, free_dm },
	{ "ibv_reg_dm_mr", dm_mr, dereg_mr },
	{ "ibv_alloc_mw", alloc_mw, dealloc_mw },
	{ "ibv_create_comp_channel", create_channel, destroy_channel },
	{ "ibv_create_cq", create_cq, destroy_cq },
	{ "ibv_resize_cq", resize_cq, shrink_cq },
	{ "ibv_create_srq", create_srq, destroy_srq },
	{ "ibv_modify_srq, size", resize_srq, shrink_srq },
	{ "ibv_modify_srq, limit", modify_srq_limit, nothing },
	{ "ibv_open_xrcd", open_xrcd, close_xrcd },
	{ "ibv_create_srq_ex, XRC", create_xrc_srq, destroy_srq },
	{ "ibv_create_qp, RC", create_rc, destroy_qp },
	{ "ibv_create_qp, RC with SRQ", create_rc_srq, destroy_qp },
	{ "ibv_create_qp, UD", create_ud, destroy_qp },
	{ "ibv_create_qp_ex, XRC target", create_xrc_recv, destroy_qp },
	{ "ibv_create_ah", create_ah, destroy_ah },
	{ "ibv_attach_mcast", attach, detach },
	{ "ibv_modify_qp", reset_qp, nothing },
	{ "ibv_query_qp", query_qp, nothing },
	{ NULL, NULL, NULL },
};

/* --- the cases ---------------------------------------------------------------- */

/* The library finds words of its own for a device that can't be opened. */
static bool is_expected(const struct verb *verb, int error)
{
	return verb->destroy == close_device || verb_is_short(verb, error);
}

static void bench_open(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);

	bench.setup = setup;
	bench.ctx = setup->a_dev.ctx;
	bench.pd = setup->a_dev.pd;
	bench.other_pd = alloc_pd();
	bench.cq = create_cq();
	bench.srq = create_srq();
	bench.dm = alloc_dm();
	bench.xrcd = open_xrcd();
	if (!bench.other_pd || !bench.cq || !bench.srq || !bench.dm ||
	    !bench.xrcd)
		bail("objects to try with: %s", strerror(errno));
	endpoint_create(&bench.ud, &setup->a_dev, &options);
	options.type = IBV_QPT_RC;
	pair_create(&bench.a, &setup->a_dev, &bench.b, &setup->b_dev, &options);
	qp_verbs_open();
	memory_verbs_open();
	counter_verbs_open();
	link_verbs_open();
}

static void bench_close(void)
{
	link_verbs_close();
	counter_verbs_close();
	memory_verbs_close();
	qp_verbs_close();
	endpoint_destroy(&bench.ud);
	pair_destroy(&bench.a, &bench.b);
	tap_must(!ibv_close_xrcd(bench.xrcd), "ibv_close_xrcd");
	tap_must(!ibv_free_dm(bench.dm), "ibv_free_dm");
	tap_must(!ibv_destroy_srq(bench.srq), "ibv_destroy_srq");
	tap_must(!ibv_destroy_cq(bench.cq), "ibv_destroy_cq");
	tap_must(!ibv_dealloc_pd(bench.other_pd), "ibv_dealloc_pd");
}

int main(int argc, char **argv)
{
	static const struct {
		const struct verb *verbs;
		struct failures failures;
	} tables[] = {
		{ verbs, { VERB_MOST, 1, is_expected } },
		{ qp_verbs, { VERB_MOST, 1, is_expected } },
		{ memory_verbs, { VERB_MOST, 1, is_expected } },
		{ counter_verbs, { VERB_MOST, 1, is_expected } },
		{ link_verbs, { LINK_EACH, LINK_STEP, is_expected } },
	};
	struct neighbours neighbours;
	const struct verb *verb;
	struct setup setup;
	unsigned int i;

	if (!fail_open()) {
		tap_skip("this kernel has no fault injection", "all verbs");
		return tap_end();
	}
	setup_open(&setup, &argc, argv, REGION_BYTES);
	if (argc < 2)
		bail("no netdev to make a device on");
	bench.netdev = argv[1];
	neighbours_open(&neighbours, &setup);
	bench_open(&setup);
	for (i = 0; i < COUNT(tables); i++)
		for (verb = tables[i].verbs; verb->name; verb++)
			tap_ok(verb_survives(verb, &tables[i].failures) &&
				       neighbours_work(&neighbours),
			       "%s", verb->name);
	bench_close();
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
