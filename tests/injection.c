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
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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
enum { MOST = 20000, LINK_EACH = 60, LINK_STEP = 37 };

struct bench bench;

static unsigned int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	if (!dir)
		bail("/proc/self/fd: %s", strerror(errno));
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

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

void *done(int error)
{
	static char success;

	errno = error;
	return error ? NULL : &success;
}

int nothing(void *object)
{
	(void)object;
	return 0;
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

/* If it fails, the region has lost its memory and may only be deregistered. */
static void *rereg_mr(void)
{
	struct region *memory = &bench.setup->a_mem;
	struct ibv_mr *mr = reg_mr();
	int error;

	if (!mr || !ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
				 memory->addr + 1, memory->length - 1, 0))
		return mr;
	error = errno;
	if (ibv_dereg_mr(mr))
		bail("a region can't be deregistered");
	errno = error;
	return NULL;
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

/*
 * Not ibv_reg_dmabuf_mr(): dma_buf_vmap() itself warns when the exporter has no
 * memory left.
 */
static const struct verb verbs[] = {
	{ "ibv_open_device", open_device, close_device },
	{ "ibv_import_device", import_device, close_device },
	{ "ibv_alloc_pd", alloc_pd, dealloc_pd },
	{ "ibv_reg_mr", reg_mr, dereg_mr },
	{ "ibv_rereg_mr", rereg_mr, dereg_mr },
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

/* What @verb may say when memory is short, or user memory is not there. */
static bool is_expected(const struct verb *verb, int error)
{
	/* The library finds words of its own for a device that can't be opened. */
	if (verb->destroy == close_device)
		return true;
	return error == ENOMEM || error == EFAULT || error == EAGAIN ||
	       /* the way to a peer, which the network looks for */
	       error == ENOBUFS ||
	       /* libibverbs knows no better when a query fails */
	       error == EIO || error == ENOSYS;
}

/* Verbs, and how far apart failures are after the first @each. */
struct table {
	const struct verb *verbs;
	unsigned int each;
	unsigned int step;
};

static unsigned int after(const struct table *table, unsigned int n)
{
	if (n < table->each)
		return n + 1;
	/* the first step ends anywhere */
	return n +
	       (n == table->each ? 1 + time(NULL) % table->step : table->step);
}

/* Returns how many failures the verb went through, or -1. */
static int fail_each(const struct table *table, const struct verb *verb)
{
	unsigned int n, last = 0, tried = 0, refused = 0;
	bool failed = true, ok = true;
	void *object;
	int error;

	for (n = 1; failed && n < MOST; n = after(table, n)) {
		fail_nth(n);
		errno = 0;
		object = verb->create();
		error = errno;
		failed = has_failed();
		fail_nth(0);
		if (object)
			ok &= check(!verb->destroy(object),
				    "failure %u: it can't be undone", n);
		else
			ok &= check(failed && is_expected(verb, error),
				    "failure %u: %s", n, strerror(error));
		refused += !object;
		tried += failed;
		last = failed ? n : last;
	}
	tap_note("%s: %u failures, %u of them passed on; the last was the %u.",
		 verb->name, tried, refused, last);
	return check(n < MOST, "it does not end") && ok ? (int)tried : -1;
}

static bool run_verb(const struct table *table, const struct verb *verb)
{
	unsigned int files = open_files();
	void *object;
	int failures;

	object = verb->create();
	if (!check(object, "it fails without help: %s", strerror(errno)) ||
	    !check(!verb->destroy(object), "it can't be undone"))
		return false;
	failures = fail_each(table, verb);
	object = verb->create();
	return check(object, "it fails afterwards: %s", strerror(errno)) &&
	       check(!verb->destroy(object), "it can't be undone") &&
	       check(open_files() == files, "files were left open: %u, not %u",
		     open_files(), files) &&
	       check(failures > 0, "nothing has failed");
}

static void bench_open(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);

	bench.setup = setup;
	bench.ctx = setup->a_dev.ctx;
	bench.pd = setup->a_dev.pd;
	bench.cq = create_cq();
	bench.srq = create_srq();
	bench.dm = alloc_dm();
	bench.xrcd = open_xrcd();
	if (!bench.cq || !bench.srq || !bench.dm || !bench.xrcd)
		bail("objects to try with: %s", strerror(errno));
	endpoint_create(&bench.ud, &setup->a_dev, &options);
	options.type = IBV_QPT_RC;
	pair_create(&bench.a, &setup->a_dev, &bench.b, &setup->b_dev, &options);
	qp_verbs_open();
	memory_verbs_open();
	link_verbs_open();
}

static void bench_close(void)
{
	link_verbs_close();
	memory_verbs_close();
	qp_verbs_close();
	endpoint_destroy(&bench.ud);
	pair_destroy(&bench.a, &bench.b);
	tap_must(!ibv_close_xrcd(bench.xrcd), "ibv_close_xrcd");
	tap_must(!ibv_free_dm(bench.dm), "ibv_free_dm");
	tap_must(!ibv_destroy_srq(bench.srq), "ibv_destroy_srq");
	tap_must(!ibv_destroy_cq(bench.cq), "ibv_destroy_cq");
}

int main(int argc, char **argv)
{
	static const struct table tables[] = {
		{ verbs, MOST, 1 },
		{ qp_verbs, MOST, 1 },
		{ memory_verbs, MOST, 1 },
		{ link_verbs, LINK_EACH, LINK_STEP },
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
			tap_ok(run_verb(&tables[i], verb) &&
				       neighbours_work(&neighbours),
			       "%s", verb->name);
	bench_close();
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
