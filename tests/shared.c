// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Shared receive queues: the limit, resizing, and those of XRC.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "event.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 16)

enum { SMALL = 16, LARGE = 256, RESIZES = 100 };

/* A shared receive queue on b, and two connections that use it. */
struct stage {
	struct setup *setup;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct endpoint a[2];
	struct endpoint b[2];
};

static struct ibv_srq *new_srq(struct setup *setup, uint32_t max_wr)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = max_wr, .max_sge = 2 },
	};
	struct ibv_srq *srq = ibv_create_srq(setup->b_dev.pd, &attr);

	if (!srq)
		bail("no shared receive queue: %s", strerror(errno));
	return srq;
}

static void stage_open(struct stage *stage, struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	unsigned int i;

	stage->setup = setup;
	stage->srq = new_srq(setup, SMALL);
	stage->cq = ibv_create_cq(setup->b_dev.ctx, 2 * LARGE, NULL, NULL, 0);
	if (!stage->cq)
		bail("no completion queue: %s", strerror(errno));
	for (i = 0; i < COUNT(stage->a); i++) {
		options.srq = NULL;
		options.recv_cq = NULL;
		endpoint_create(&stage->a[i], &setup->a_dev, &options);
		options.srq = stage->srq;
		options.recv_cq = stage->cq;
		endpoint_create(&stage->b[i], &setup->b_dev, &options);
		pair_connect(&stage->a[i], &stage->b[i]);
	}
}

static void stage_close(struct stage *stage)
{
	unsigned int i;

	for (i = 0; i < COUNT(stage->a); i++)
		pair_destroy(&stage->a[i], &stage->b[i]);
	check(!ibv_destroy_srq(stage->srq), "ibv_destroy_srq fails");
	check(!ibv_destroy_cq(stage->cq), "ibv_destroy_cq fails");
}

/* Receive @id: its data goes to a slot of its own. */
static int try_post_shared(struct ibv_srq *srq, const struct region *region,
			   uint64_t id)
{
	struct ibv_sge sge = region_sge(region, 8 * (id % 4096), 8);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static bool post_shared(struct stage *stage, uint64_t first, uint64_t count)
{
	uint64_t id;

	for (id = first; id < first + count; id++)
		if (!check(!try_post_shared(stage->srq, &stage->setup->b_mem,
					    id),
			   "receive %" PRIu64 " is refused", id))
			return false;
	return true;
}

/* Message @id arrives in the receive of the same number. */
static bool deliver_from(struct stage *stage, unsigned int who, uint64_t id)
{
	struct setup *setup = stage->setup;
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(id, IBV_WR_SEND, &sge, 1);
	struct endpoint *from = &stage->a[who];
	uint64_t value;

	memcpy(setup->a_mem.addr, &id, 8);
	post_send(from, &wr);
	if (!cq_expect(from->send_cq, id, IBV_WC_SUCCESS) ||
	    !cq_expect(stage->cq, id, IBV_WC_SUCCESS))
		return false;
	memcpy(&value, setup->b_mem.addr + 8 * (id % 4096), 8);
	return check(value == id, "receive %" PRIu64 " holds %" PRIu64, id,
		     value);
}

/* The messages from @first on, from one connection and the other. */
static bool deliver(struct stage *stage, uint64_t first, uint64_t count)
{
	uint64_t id;

	for (id = first; id < first + count; id++)
		if (!deliver_from(stage, id % COUNT(stage->a), id))
			return false;
	return true;
}

static int resize(struct ibv_srq *srq, uint32_t max_wr)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

static int set_limit(struct ibv_srq *srq, uint32_t limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
}

static bool has_size(struct ibv_srq *srq, uint32_t max_wr)
{
	struct ibv_srq_attr attr;

	return check(!ibv_query_srq(srq, &attr), "ibv_query_srq fails") &&
	       check(attr.max_wr >= max_wr && attr.max_wr < 2 * max_wr,
		     "max_wr is %u, not %u", attr.max_wr, max_wr);
}

/* --- resizing --------------------------------------------------------------- */

static bool grow(struct stage *stage)
{
	return post_shared(stage, 0, SMALL) &&
	       check(try_post_shared(stage->srq, &stage->setup->b_mem, 0) ==
			     ENOMEM,
		     "more receives than fit") &&
	       deliver(stage, 0, 5) &&
	       check(!resize(stage->srq, LARGE), "growing fails") &&
	       has_size(stage->srq, LARGE) &&
	       post_shared(stage, SMALL, LARGE - SMALL + 5) &&
	       check(try_post_shared(stage->srq, &stage->setup->b_mem, 0) ==
			     ENOMEM,
		     "more receives than fit after growing") &&
	       deliver(stage, 5, LARGE);
}

static bool shrink(struct stage *stage)
{
	return check(!resize(stage->srq, LARGE), "growing fails") &&
	       post_shared(stage, 0, SMALL + 1) &&
	       check(resize(stage->srq, SMALL) == EINVAL,
		     "shrinking below what waits") &&
	       has_size(stage->srq, LARGE) && deliver(stage, 0, 1) &&
	       check(!resize(stage->srq, SMALL), "shrinking fails") &&
	       has_size(stage->srq, SMALL) && deliver(stage, 1, SMALL) &&
	       post_shared(stage, 100, SMALL) && deliver(stage, 100, SMALL);
}

static bool refuse_sizes(struct stage *stage)
{
	uint32_t max = stage->setup->b_dev.attr.max_srq_wr;
	struct ibv_srq_attr attr = { .max_wr = SMALL, .srq_limit = SMALL + 1 };

	return check(resize(stage->srq, 0) == EINVAL, "a size of 0") &&
	       check(resize(stage->srq, max + 1) == EINVAL, "over the limit") &&
	       check(ibv_modify_srq(stage->srq, &attr,
				    IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) == EINVAL,
		     "a limit over the size") &&
	       check(!resize(stage->srq, max), "the largest size") &&
	       has_size(stage->srq, max) && post_shared(stage, 0, SMALL) &&
	       deliver(stage, 0, SMALL);
}

struct resizer {
	struct ibv_srq *srq;
	unsigned int failures;
};

static void *resize_often(void *argument)
{
	struct resizer *resizer = argument;
	unsigned int i;

	for (i = 0; i < RESIZES; i++)
		resizer->failures += !!resize(resizer->srq,
					      i % 2 ? SMALL : LARGE);
	return NULL;
}

static bool resize_under_traffic(struct stage *stage)
{
	struct resizer resizer = { .srq = stage->srq };
	pthread_t thread;
	uint64_t id = 0;
	bool ok = true;

	if (pthread_create(&thread, NULL, resize_often, &resizer))
		bail("no thread");
	while (ok && pthread_tryjoin_np(thread, NULL)) {
		ok = post_shared(stage, id, SMALL) && deliver(stage, id, SMALL);
		id += SMALL;
	}
	if (!ok)
		pthread_join(thread, NULL);
	return check(!resizer.failures, "%u of %u resizes fail",
		     resizer.failures, RESIZES) &&
	       ok;
}

/* --- the limit -------------------------------------------------------------- */

static bool limit_event(struct stage *stage)
{
	struct ibv_context *ctx = stage->setup->b_dev.ctx;

	return post_shared(stage, 0, 10) &&
	       check(set_limit(stage->srq, LARGE) == EINVAL,
		     "a limit over the size") &&
	       check(!set_limit(stage->srq, 5), "setting the limit fails") &&
	       deliver(stage, 0, 5) && events_none(ctx) &&
	       deliver(stage, 5, 1) &&
	       event_expect(ctx, IBV_EVENT_SRQ_LIMIT_REACHED, stage->srq) &&
	       deliver(stage, 6, 4) && events_none(ctx);
}

static bool limit_survives_resize(struct stage *stage)
{
	struct ibv_context *ctx = stage->setup->b_dev.ctx;

	return post_shared(stage, 0, 10) &&
	       check(!set_limit(stage->srq, 8), "setting the limit fails") &&
	       check(!resize(stage->srq, LARGE), "growing fails") &&
	       deliver(stage, 0, 2) && events_none(ctx) &&
	       deliver(stage, 2, 1) &&
	       event_expect(ctx, IBV_EVENT_SRQ_LIMIT_REACHED, stage->srq);
}

static bool last_receive_event(struct stage *stage)
{
	struct ibv_context *ctx = stage->setup->b_dev.ctx;

	return post_shared(stage, 0, 4) && deliver(stage, 0, 2) &&
	       check(!endpoint_set_state(&stage->b[0], IBV_QPS_ERR), "ERR") &&
	       event_expect(ctx, IBV_EVENT_QP_LAST_WQE_REACHED,
			    stage->b[0].qp) &&
	       cq_stays_empty(stage->cq, 20) &&
	       /* the receives are there for the other queue pair */
	       deliver_from(stage, 1, 2) && deliver_from(stage, 1, 3);
}

/* --- XRC -------------------------------------------------------------------- */

/* A domain on b with two shared receive queues on one completion queue. */
struct xrc {
	struct setup *setup;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	struct ibv_srq *srq[2];
	struct endpoint a;
	struct endpoint b;
};

static struct ibv_srq *new_xrc_srq(struct xrc *xrc)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = SMALL, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.xrcd = xrc->xrcd,
		.cq = xrc->cq,
		.pd = xrc->setup->b_dev.pd,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(xrc->setup->b_dev.ctx, &attr);

	if (!srq)
		bail("no XRC shared receive queue: %s", strerror(errno));
	return srq;
}

static void xrc_open(struct xrc *xrc, struct setup *setup)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct endpoint_options options = endpoint_options(IBV_QPT_XRC_SEND);

	xrc->setup = setup;
	xrc->xrcd = ibv_open_xrcd(setup->b_dev.ctx, &attr);
	xrc->cq = ibv_create_cq(setup->b_dev.ctx, 64, NULL, NULL, 0);
	if (!xrc->xrcd || !xrc->cq)
		bail("no XRC domain: %s", strerror(errno));
	xrc->srq[0] = new_xrc_srq(xrc);
	xrc->srq[1] = new_xrc_srq(xrc);
	endpoint_create(&xrc->a, &setup->a_dev, &options);
	options.type = IBV_QPT_XRC_RECV;
	options.xrcd = xrc->xrcd;
	endpoint_create(&xrc->b, &setup->b_dev, &options);
	pair_connect(&xrc->a, &xrc->b);
}

static void xrc_close(struct xrc *xrc)
{
	unsigned int i;

	pair_destroy(&xrc->a, &xrc->b);
	for (i = 0; i < COUNT(xrc->srq); i++)
		if (xrc->srq[i])
			check(!ibv_destroy_srq(xrc->srq[i]), "destroy_srq");
	check(!ibv_destroy_cq(xrc->cq), "ibv_destroy_cq fails");
	check(!ibv_close_xrcd(xrc->xrcd), "ibv_close_xrcd fails");
}

static bool xrc_send(struct xrc *xrc, uint64_t id, unsigned int which)
{
	struct ibv_send_wr wr = send_wr(id, IBV_WR_SEND, NULL, 0);
	struct ibv_srq *srq = xrc->srq[which];

	if (try_post_shared(srq, &xrc->setup->b_mem, id) ||
	    ibv_get_srq_num(srq, &wr.qp_type.xrc.remote_srqn))
		return check(false, "a receive is refused");
	post_send(&xrc->a, &wr);
	return cq_expect(xrc->a.send_cq, id, IBV_WC_SUCCESS);
}

static bool xrc_queues(struct xrc *xrc)
{
	uint64_t id;

	for (id = 0; id < 40; id++)
		if (!xrc_send(xrc, id, id % 2) ||
		    !cq_expect(xrc->cq, id, IBV_WC_SUCCESS))
			return false;
	return true;
}

static bool xrc_destroy_srq(struct xrc *xrc)
{
	bool ok;

	ok = xrc_send(xrc, 1, 0) && xrc_send(xrc, 2, 1) &&
	     xrc_send(xrc, 3, 0) && xrc_send(xrc, 4, 1) &&
	     check(!ibv_destroy_srq(xrc->srq[0]), "ibv_destroy_srq fails");
	if (!ok)
		return false;
	xrc->srq[0] = NULL;
	return cq_expect(xrc->cq, 2, IBV_WC_SUCCESS) &&
	       cq_expect(xrc->cq, 4, IBV_WC_SUCCESS) &&
	       cq_stays_empty(xrc->cq, 20);
}

/* What a target has received belongs to the owner of the receives. */
static bool xrc_destroy_target(struct xrc *xrc)
{
	bool ok = xrc_send(xrc, 1, 0) && xrc_send(xrc, 2, 1) &&
		  check(!ibv_destroy_qp(xrc->b.qp), "ibv_destroy_qp fails");

	xrc->b.qp = NULL;
	return ok && cq_expect(xrc->cq, 1, IBV_WC_SUCCESS) &&
	       cq_expect(xrc->cq, 2, IBV_WC_SUCCESS);
}

/* A target has no queues of its own, so nothing is allocated for any. */
static bool xrc_no_queues(struct xrc *xrc)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrc->xrcd,
		.cap = {
			.max_send_wr = UINT32_MAX,
			.max_recv_wr = UINT32_MAX,
			.max_send_sge = UINT32_MAX,
			.max_recv_sge = UINT32_MAX,
			.max_inline_data = UINT32_MAX,
		},
	};
	struct ibv_qp *qp = ibv_create_qp_ex(xrc->setup->b_dev.ctx, &attr);

	if (!check(qp, "ibv_create_qp_ex: %s", strerror(errno)))
		return false;
	return check(!ibv_destroy_qp(qp), "ibv_destroy_qp fails") &&
	       check(!attr.cap.max_send_wr && !attr.cap.max_recv_wr &&
			     !attr.cap.max_send_sge && !attr.cap.max_recv_sge,
		     "it says that it has queues");
}

static bool xrc_resize(struct xrc *xrc)
{
	return check(!try_post_shared(xrc->srq[0], &xrc->setup->b_mem, 7),
		     "a receive is refused") &&
	       check(!resize(xrc->srq[0], LARGE), "growing fails") &&
	       xrc_send(xrc, 8, 0) && cq_expect(xrc->cq, 7, IBV_WC_SUCCESS) &&
	       xrc_send(xrc, 9, 0) && cq_expect(xrc->cq, 8, IBV_WC_SUCCESS);
}

/* ---------------------------------------------------------------------------- */

static const struct {
	bool (*run)(struct stage *stage);
	const char *name;
} cases[] = {
	{ grow, "growing keeps what is posted" },
	{ shrink, "shrinking keeps what is posted, or is refused" },
	{ refuse_sizes, "sizes that are refused, and the largest" },
	{ resize_under_traffic, "resizing under traffic" },
	{ limit_event, "one event when the limit is passed" },
	{ limit_survives_resize, "resizing keeps the limit" },
	{ last_receive_event, "the event of the last receive" },
};

static const struct {
	bool (*run)(struct xrc *xrc);
	const char *name;
} xrc_cases[] = {
	{ xrc_queues, "XRC: two queues behind one queue pair" },
	{ xrc_destroy_srq, "XRC: a destroyed queue's completions are gone" },
	{ xrc_destroy_target, "XRC: a destroyed target's completions stay" },
	{ xrc_resize, "XRC: resizing" },
	{ xrc_no_queues, "XRC: a target of any size is made without queues" },
};

static void run_case(struct setup *setup, struct neighbours *neighbours,
		     unsigned int i)
{
	struct stage stage;
	bool ok;

	stage_open(&stage, setup);
	ok = cases[i].run(&stage);
	stage_close(&stage);
	tap_ok(neighbours_work(neighbours) && ok, "%s", cases[i].name);
}

static void run_xrc_case(struct setup *setup, struct neighbours *neighbours,
			 unsigned int i)
{
	struct xrc xrc;
	bool ok;

	xrc_open(&xrc, setup);
	ok = xrc_cases[i].run(&xrc);
	xrc_close(&xrc);
	tap_ok(neighbours_work(neighbours) && ok, "%s", xrc_cases[i].name);
}

int main(int argc, char **argv)
{
	struct neighbours neighbours;
	struct setup setup;
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	events_prepare(setup.b_dev.ctx);
	neighbours_open(&neighbours, &setup);
	for (i = 0; i < COUNT(cases); i++)
		run_case(&setup, &neighbours, i);
	for (i = 0; i < COUNT(xrc_cases); i++)
		run_xrc_case(&setup, &neighbours, i);
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
