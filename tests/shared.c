// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Shared receive queues: the limit and resizing. (shared_xrc.c: those of XRC;
 * shared_demand.c: memory that is brought in when a message comes.)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "event.h"
#include "shared.h"
#include "tap.h"
#include "work.h"

#define REGION_BYTES (1UL << 16)

enum { RESIZES = 100 };

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

int try_post_shared(struct ibv_srq *srq, const struct region *region,
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

int resize(struct ibv_srq *srq, uint32_t max_wr)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

int set_limit(struct ibv_srq *srq, uint32_t limit)
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

/* --- memory on demand ------------------------------------------------------- */

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
	run_xrc_cases(&setup, &neighbours);
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
