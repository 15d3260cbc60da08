// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Shared receive queues of XRC.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "event.h"
#include "shared.h"
#include "tap.h"
#include "work.h"

enum { SEGMENT_BYTES = 256 << 10 };

static bool xrc_send(struct xrc *xrc, uint64_t id, unsigned int which)
{
	struct ibv_send_wr wr = send_wr(id, IBV_WR_SEND, NULL, 0);

	if (try_post_shared(xrc->srq[which], &xrc->setup->b_mem, id))
		return check(false, "a receive is refused");
	xrc_aim(xrc, which, &wr);
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

/*
 * The second half of a message can't be read, so that it is broken off when it has a
 * receive. What its sender begins with then, by the same number, is for another queue.
 */
static bool xrc_broken_off(struct xrc *xrc)
{
	const struct endpoint_address b = endpoint_address(&xrc->b);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);
	struct ibv_recv_wr recv = { .wr_id = 2, .num_sge = 1 }, *bad;
	struct ibv_sge from, to;
	struct region out, in;
	uintptr_t hole;
	bool ok;

	if (!region_map(&out, MEMORY_ANON, 2 * SEGMENT_BYTES) ||
	    !region_map(&in, MEMORY_ANON, 2 * SEGMENT_BYTES))
		bail("cannot map memory");
	region_register(&out, xrc->setup->a_dev.pd, IBV_ACCESS_ON_DEMAND);
	region_register(&in, xrc->setup->b_dev.pd, IBV_ACCESS_LOCAL_WRITE);
	from = region_sge(&out, 0, 2 * SEGMENT_BYTES);
	to = region_sge(&in, 0, 2 * SEGMENT_BYTES);
	/* not at the beginning of a page */
	hole = ((uintptr_t)out.addr + SEGMENT_BYTES) | (PAGE_BYTES - 1);
	if (mprotect((void *)(hole + 1), PAGE_BYTES, PROT_NONE))
		bail("mprotect: %s", strerror(errno));
	recv.sg_list = &to;
	wr.sg_list = &from;
	wr.num_sge = 1;
	ok = check(!ibv_post_srq_recv(xrc->srq[0], &recv, &bad), "no receive");
	xrc_aim(xrc, 0, &wr);
	post_send(&xrc->a, &wr);
	ok = ok && cq_expect(xrc->a.send_cq, 1, IBV_WC_LOC_PROT_ERR) &&
	     cq_stays_empty(xrc->cq, 20);
	endpoint_go(&xrc->a, IBV_QPS_RESET);
	endpoint_connect(&xrc->a, &b);
	wr = send_wr(3, IBV_WR_SEND, NULL, 0);
	xrc_aim(xrc, 1, &wr);
	post_send(&xrc->a, &wr);
	ok = ok && cq_expect(xrc->a.send_cq, 3, IBV_WC_REM_INV_REQ_ERR) &&
	     cq_expect(xrc->cq, 2, IBV_WC_LOC_QP_OP_ERR);
	region_destroy(&out);
	region_destroy(&in);
	return ok;
}
/* --- the limit -------------------------------------------------------------- */

static bool xrc_post(struct xrc *xrc, uint64_t first, uint64_t count)
{
	uint64_t id;

	for (id = first; id < first + count; id++)
		if (!check(!try_post_shared(xrc->srq[0], &xrc->setup->b_mem,
					    id),
			   "a receive is refused"))
			return false;
	return true;
}

/* The messages from @first on arrive in the receives of these numbers. */
static bool xrc_deliver(struct xrc *xrc, uint64_t first, uint64_t count)
{
	struct ibv_send_wr wr = send_wr(0, IBV_WR_SEND, NULL, 0);

	xrc_aim(xrc, 0, &wr);
	for (wr.wr_id = first; wr.wr_id < first + count; wr.wr_id++) {
		post_send(&xrc->a, &wr);
		if (!cq_expect(xrc->a.send_cq, wr.wr_id, IBV_WC_SUCCESS) ||
		    !cq_expect(xrc->cq, wr.wr_id, IBV_WC_SUCCESS))
			return false;
	}
	return true;
}

static bool xrc_is_told(struct xrc *xrc)
{
	return event_expect(xrc->setup->b_dev.ctx, IBV_EVENT_SRQ_LIMIT_REACHED,
			    xrc->srq[0]);
}

/* What the domain's other queue, of the same target, has does not count. */
static bool xrc_limit(struct xrc *xrc)
{
	struct ibv_context *ctx = xrc->setup->b_dev.ctx;

	return xrc_post(xrc, 0, 10) &&
	       check(set_limit(xrc->srq[0], LARGE) == EINVAL,
		     "a limit over the size") &&
	       check(!set_limit(xrc->srq[0], 5), "setting the limit fails") &&
	       xrc_deliver(xrc, 0, 5) && events_none(ctx) &&
	       xrc_send(xrc, 40, 1) && cq_expect(xrc->cq, 40, IBV_WC_SUCCESS) &&
	       events_none(ctx) && xrc_deliver(xrc, 5, 1) && xrc_is_told(xrc) &&
	       xrc_deliver(xrc, 6, 4) && events_none(ctx);
}

/* Three are posted: the next message is the one that finds too few. */
static bool xrc_limit_over_posted(struct xrc *xrc)
{
	struct ibv_context *ctx = xrc->setup->b_dev.ctx;

	return xrc_post(xrc, 0, 3) &&
	       check(!set_limit(xrc->srq[0], 5), "setting the limit fails") &&
	       events_none(ctx) && xrc_deliver(xrc, 0, 1) && xrc_is_told(xrc) &&
	       xrc_deliver(xrc, 1, 2) && events_none(ctx);
}

static bool xrc_limit_survives_resize(struct xrc *xrc)
{
	struct ibv_context *ctx = xrc->setup->b_dev.ctx;

	return xrc_post(xrc, 0, 10) &&
	       check(!set_limit(xrc->srq[0], 8), "setting the limit fails") &&
	       check(!resize(xrc->srq[0], LARGE), "growing fails") &&
	       xrc_deliver(xrc, 0, 2) && events_none(ctx) &&
	       xrc_deliver(xrc, 2, 1) && xrc_is_told(xrc);
}

/* --- memory on demand ------------------------------------------------------- */

static bool demand_xrc(struct xrc *xrc)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);

	xrc_aim(xrc, 0, &wr);
	return demand_arrives(xrc->setup, &xrc->a, xrc->srq[0], xrc->cq, wr);
}

/* ---------------------------------------------------------------------------- */

static const struct {
	bool (*run)(struct xrc *xrc);
	const char *name;
} cases[] = {
	{ xrc_queues, "XRC: two queues behind one queue pair" },
	{ xrc_destroy_srq, "XRC: a destroyed queue's completions are gone" },
	{ xrc_destroy_target, "XRC: a destroyed target's completions stay" },
	{ xrc_resize, "XRC: resizing" },
	{ xrc_limit, "XRC: one event when the limit is passed" },
	{ xrc_limit_over_posted, "XRC: a limit over what is posted" },
	{ xrc_limit_survives_resize, "XRC: resizing keeps the limit" },
	{ xrc_broken_off, "XRC: a receive that was taken is told of" },
	{ xrc_no_queues, "XRC: a target of any size is made without queues" },
	{ demand_xrc, "memory on demand: XRC" },
};

static void run_case(struct setup *setup, struct neighbours *neighbours,
		     unsigned int i)
{
	struct xrc xrc;
	bool ok;

	xrc_open_domain(&xrc, setup);
	xrc.srq[0] = xrc_create_srq(&xrc, SMALL, 1);
	xrc.srq[1] = xrc_create_srq(&xrc, SMALL, 1);
	xrc_connect(&xrc);
	ok = cases[i].run(&xrc);
	xrc_close(&xrc);
	tap_ok(neighbours_work(neighbours) && ok, "%s", cases[i].name);
}

void run_xrc_cases(struct setup *setup, struct neighbours *neighbours)
{
	unsigned int i;

	for (i = 0; i < COUNT(cases); i++)
		run_case(setup, neighbours, i);
}
