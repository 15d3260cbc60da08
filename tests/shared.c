// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Shared receive queues: the limit, resizing, those of XRC, and memory that is
 * brought in when a message comes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "event.h"
#include "memory.h"
#include "setup.h"
#include "srq.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 16)

enum { SMALL = 16, LARGE = 256, RESIZES = 100, SEGMENT_BYTES = 256 << 10 };

/* A shared receive queue on b, and two connections that use it. */
struct stage {
	struct setup *setup;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct endpoint a[2];
	struct endpoint b[2];
};

static void stage_open(struct stage *stage, struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	unsigned int i;

	stage->setup = setup;
	stage->srq = srq_create(setup->b_dev.pd, SMALL, 2);
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
	tap_must(!ibv_destroy_srq(stage->srq), "ibv_destroy_srq fails");
	tap_must(!ibv_destroy_cq(stage->cq), "ibv_destroy_cq fails");
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

/* Three are posted: the next message is the one that finds too few. */
static bool limit_over_posted(struct stage *stage)
{
	struct ibv_context *ctx = stage->setup->b_dev.ctx;

	return post_shared(stage, 0, 3) &&
	       check(!set_limit(stage->srq, 5), "setting the limit fails") &&
	       events_none(ctx) && deliver(stage, 0, 1) &&
	       event_expect(ctx, IBV_EVENT_SRQ_LIMIT_REACHED, stage->srq) &&
	       deliver(stage, 1, 2) && events_none(ctx);
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

/* --- memory on demand ------------------------------------------------------- */

enum { DEMAND_ID = 5, GRH_BYTES = 40, WRITE_OFFSET = 2 * PAGE_BYTES };

/* No page of it is there before somebody wants it. */
static void demand_open(struct region *region, struct ibv_pd *pd)
{
	if (!region_map(region, MEMORY_ANON, 4 * PAGE_BYTES))
		bail("cannot map memory");
	region_register(region, pd,
			IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE |
				IBV_ACCESS_REMOTE_WRITE);
	if (madvise(region->map, region->map_length, MADV_DONTNEED))
		bail("madvise: %s", strerror(errno));
}

/* @wr, a SEND that gets its data here, arrives in memory that is not there yet. */
static bool demand_arrives(struct setup *setup, struct endpoint *a,
			   struct ibv_srq *srq, struct ibv_cq *cq,
			   struct ibv_send_wr wr)
{
	bool datagram = a->options.type == IBV_QPT_UD;
	struct ibv_recv_wr recv = { .wr_id = DEMAND_ID, .num_sge = 1 }, *bad;
	struct region from, to;
	struct ibv_sge send, receive;
	struct ibv_wc wc;
	bool ok;

	demand_open(&from, setup->a_dev.pd);
	demand_open(&to, setup->b_dev.pd);
	memset(from.addr, 0x5a, 8);
	send = region_sge(&from, 0, 8);
	wr.sg_list = &send;
	wr.num_sge = 1;
	receive = region_sge(&to, 0, 100);
	recv.sg_list = &receive;
	ok = check(!ibv_post_srq_recv(srq, &recv, &bad), "no receive");
	post_send(a, &wr);
	ok = ok && cq_expect(a->send_cq, wr.wr_id, IBV_WC_SUCCESS) &&
	     cq_success(cq, DEMAND_ID, &wc) &&
	     all_are(to.addr + (datagram ? GRH_BYTES : 0), 8, 0x5a);
	region_destroy(&from);
	region_destroy(&to);
	return ok;
}

/* On UC a WRITE, too, goes where nothing is; the SEND comes after it. */
static bool demand_write(struct setup *setup, struct endpoint *a,
			 struct endpoint *b, struct ibv_srq *srq)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, NULL, 0);
	struct ibv_send_wr after = send_wr(2, IBV_WR_SEND, NULL, 0);
	struct region to;
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 8);
	bool ok;

	demand_open(&to, setup->b_dev.pd);
	memset(setup->a_mem.addr, 0x66, 8);
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.wr.rdma.remote_addr = to.rdma_addr + WRITE_OFFSET;
	wr.wr.rdma.rkey = to.mr->rkey;
	post_send(a, &wr);
	ok = check(!try_post_shared(srq, &setup->b_mem, 2), "no receive");
	post_send(a, &after);
	ok = ok && cq_expect(a->send_cq, 1, IBV_WC_SUCCESS) &&
	     cq_expect(a->send_cq, 2, IBV_WC_SUCCESS) &&
	     cq_expect(b->recv_cq, 2, IBV_WC_SUCCESS) &&
	     all_are(to.addr + WRITE_OFFSET, 8, 0x66);
	region_destroy(&to);
	return ok;
}

static bool demand_of(struct setup *setup, enum ibv_qp_type type)
{
	struct endpoint_options options = endpoint_options(type);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);
	struct ibv_srq *srq = srq_create(setup->b_dev.pd, SMALL, 2);
	struct ibv_ah *ah = NULL;
	struct endpoint a, b;
	bool ok;

	endpoint_create(&a, &setup->a_dev, &options);
	options.srq = srq;
	endpoint_create(&b, &setup->b_dev, &options);
	pair_connect(&a, &b);
	if (type == IBV_QPT_UD) {
		ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = b.qp->qp_num;
		wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	}
	ok = demand_arrives(setup, &a, srq, b.recv_cq, wr) &&
	     (type != IBV_QPT_UC || demand_write(setup, &a, &b, srq));
	pair_destroy(&a, &b);
	tap_must(!ibv_destroy_srq(srq), "ibv_destroy_srq fails");
	if (ah)
		tap_must(!ibv_destroy_ah(ah), "ibv_destroy_ah fails");
	return ok;
}

static bool demand_rc(struct stage *stage)
{
	return demand_of(stage->setup, IBV_QPT_RC);
}

static bool demand_uc(struct stage *stage)
{
	return demand_of(stage->setup, IBV_QPT_UC);
}

static bool demand_ud(struct stage *stage)
{
	return demand_of(stage->setup, IBV_QPT_UD);
}

static bool demand_xrc(struct xrc *xrc)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);

	xrc_aim(xrc, 0, &wr);
	return demand_arrives(xrc->setup, &xrc->a, xrc->srq[0], xrc->cq, wr);
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
	{ limit_over_posted, "a limit over what is posted" },
	{ limit_survives_resize, "resizing keeps the limit" },
	{ last_receive_event, "the event of the last receive" },
	{ demand_rc, "memory on demand: RC" },
	{ demand_uc, "memory on demand: UC" },
	{ demand_ud, "memory on demand: UD" },
};

static const struct {
	bool (*run)(struct xrc *xrc);
	const char *name;
} xrc_cases[] = {
	{ xrc_queues, "XRC: two queues behind one queue pair" },
	{ xrc_destroy_srq, "XRC: a destroyed queue's completions are gone" },
	{ xrc_destroy_target, "XRC: a destroyed target's completions stay" },
	{ xrc_resize, "XRC: resizing" },
	{ xrc_broken_off, "XRC: a receive that was taken is told of" },
	{ xrc_no_queues, "XRC: a target of any size is made without queues" },
	{ demand_xrc, "memory on demand: XRC" },
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

	xrc_open_domain(&xrc, setup);
	xrc.srq[0] = xrc_create_srq(&xrc, SMALL, 1);
	xrc.srq[1] = xrc_create_srq(&xrc, SMALL, 1);
	xrc_connect(&xrc);
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
