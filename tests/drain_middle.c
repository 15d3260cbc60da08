// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Send queues that are drained while a request is half done: it waits for a page of
 * its data, which comes when the test lets it.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "drain.h"
#include "event.h"
#include "srq.h"
#include "tap.h"
#include "withhold.h"
#include "work.h"

/* What moves at a time, and a message of several of these. */
#define SEGMENT_BYTES (256UL << 10)
#define LONG_BYTES (3 * SEGMENT_BYTES)
/* A datagram, and what follows the data that waits, in another region. */
#define SHORT_BYTES 64U
#define FILL_BYTE 0x5c

enum { FIRST_ID = 1, SECOND_ID, LATE_ID, QUIET_MS = 20 };

static const struct service {
	enum ibv_qp_type type;
	const char *name;
	bool reliable;
} services[] = {
	{ IBV_QPT_RC, "RC", true },
	{ IBV_QPT_XRC_SEND, "XRC", true },
	{ IBV_QPT_UC, "UC", false },
	{ IBV_QPT_UD, "UD", false },
};

struct stage {
	struct setup *setup;
	const struct service *service;
	struct endpoint *a;
	struct endpoint *b;
	struct ibv_cq *recv_cq;
	struct endpoint own_a; /* unless it is XRC */
	struct endpoint own_b;
	struct xrc xrc;
	struct ibv_ah *ah;
	/* a's data that is on demand, of which a page is withheld, and the rest */
	uint8_t *data;
	struct ibv_mr *mr;
	int withheld;
	struct region rest;
	struct region to;
};

/* --- the stage --------------------------------------------------------------- */

static bool is_datagram(const struct stage *stage)
{
	return stage->service->type == IBV_QPT_UD;
}

static uint32_t data_bytes(const struct stage *stage)
{
	return is_datagram(stage) ? SHORT_BYTES : LONG_BYTES;
}

static void open_queues(struct stage *stage)
{
	struct endpoint_options options =
		endpoint_options(stage->service->type);
	struct setup *setup = stage->setup;

	if (stage->service->type == IBV_QPT_XRC_SEND) {
		xrc_open_domain(&stage->xrc, setup);
		stage->xrc.srq[0] = xrc_create_srq(&stage->xrc, 8, 1);
		xrc_connect(&stage->xrc);
		stage->a = &stage->xrc.a;
		stage->b = &stage->xrc.b;
		stage->recv_cq = stage->xrc.cq;
		return;
	}
	stage->a = &stage->own_a;
	stage->b = &stage->own_b;
	pair_create(stage->a, &setup->a_dev, stage->b, &setup->b_dev, &options);
	stage->recv_cq = stage->b->recv_cq;
	stage->ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
}

/* All of it is there but one page, of the second segment if there are several. */
static void open_data(struct stage *stage)
{
	size_t hole = is_datagram(stage) ? 0 : SEGMENT_BYTES + PAGE_BYTES;
	int access = ACCESS_ALL | IBV_ACCESS_ON_DEMAND;

	stage->data = mmap(NULL, LONG_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stage->data == MAP_FAILED)
		bail("no memory: %s", strerror(errno));
	memset(stage->data, FILL_BYTE, hole);
	memset(stage->data + hole + PAGE_BYTES, FILL_BYTE,
	       LONG_BYTES - hole - PAGE_BYTES);
	stage->withheld = withhold(stage->data + hole, PAGE_BYTES);
	stage->mr = ibv_reg_mr(stage->setup->a_dev.pd, stage->data, LONG_BYTES,
			       access);
	if (!stage->mr || stage->withheld < 0)
		bail("no region on demand: %s", strerror(errno));
	region_create(&stage->rest, stage->setup->a_dev.pd, SHORT_BYTES);
	region_create(&stage->to, stage->setup->b_dev.pd,
		      LONG_BYTES + PAGE_BYTES);
}

static void let_go(struct stage *stage)
{
	if (stage->withheld >= 0)
		close(stage->withheld);
	stage->withheld = -1;
}

static void stage_close(struct stage *stage)
{
	let_go(stage);
	if (stage->xrc.xrcd)
		xrc_close(&stage->xrc);
	else
		pair_destroy(stage->a, stage->b);
	if (stage->ah)
		tap_must(!ibv_destroy_ah(stage->ah), "ibv_destroy_ah fails");
	tap_must(!ibv_dereg_mr(stage->mr), "ibv_dereg_mr fails");
	munmap(stage->data, LONG_BYTES);
	region_destroy(&stage->rest);
	region_destroy(&stage->to);
}

/* --- work -------------------------------------------------------------------- */

static void post_receive(struct stage *stage, uint64_t id)
{
	struct ibv_sge sge = region_sge(&stage->to, 0, LONG_BYTES + PAGE_BYTES);
	struct ibv_recv_wr *bad, wr = {
		.wr_id = id,
		.sg_list = &sge,
		.num_sge = 1,
	};

	if (!stage->xrc.xrcd)
		post_recv(stage->b, id, &sge, 1);
	else if (ibv_post_srq_recv(stage->xrc.srq[0], &wr, &bad))
		bail("posting a receive fails");
}

static void post(struct stage *stage, struct ibv_send_wr wr)
{
	if (is_datagram(stage)) {
		wr.wr.ud.ah = stage->ah;
		wr.wr.ud.remote_qpn = stage->b->qp->qp_num;
		wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	}
	if (stage->xrc.xrcd)
		xrc_aim(&stage->xrc, 0, &wr);
	post_send(stage->a, &wr);
}

static void post_empty(struct stage *stage, uint64_t id)
{
	post(stage, send_wr(id, IBV_WR_SEND, NULL, 0));
}

/* Of a message of several segments the first one is there. */
static bool has_begun(struct stage *stage)
{
	uint64_t end = deadline();

	if (is_datagram(stage))
		return true;
	while (*(volatile uint8_t *)stage->to.addr != FILL_BYTE)
		if (now_ms() > end || !cq_stays_empty(stage->recv_cq, 1))
			return check(false, "the message does not begin");
	return true;
}

/* A request that waits for its data, one behind it, and the queue is drained. */
static bool begin(struct stage *stage)
{
	struct ibv_sge sges[] = {
		{ (uintptr_t)stage->data, data_bytes(stage), stage->mr->lkey },
		region_sge(&stage->rest, 0, SHORT_BYTES),
	};
	struct ibv_context *ctx = stage->setup->a_dev.ctx;

	post_receive(stage, FIRST_ID);
	post_receive(stage, SECOND_ID);
	post(stage, send_wr(FIRST_ID, IBV_WR_SEND, sges, 2));
	post_empty(stage, SECOND_ID);
	if (!has_begun(stage))
		return false;
	to_sqd(stage->a, true);
	return cq_stays_empty(stage->a->send_cq, QUIET_MS) &&
	       cq_stays_empty(stage->recv_cq, 0) && events_none(ctx) &&
	       check(draining(stage->a) == 1, "it is not draining");
}

/* --- cases ------------------------------------------------------------------- */

/* The request is finished, and not before that is the queue drained. */
static bool finishes(struct stage *stage)
{
	let_go(stage);
	if (!cq_expect(stage->a->send_cq, FIRST_ID, IBV_WC_SUCCESS) ||
	    !cq_expect(stage->recv_cq, FIRST_ID, IBV_WC_SUCCESS) ||
	    !event_expect(stage->setup->a_dev.ctx, IBV_EVENT_SQ_DRAINED,
			  stage->a->qp) ||
	    !check(draining(stage->a) == 0, "it is still draining") ||
	    !cq_stays_empty(stage->a->send_cq, QUIET_MS) ||
	    !cq_stays_empty(stage->recv_cq, 0))
		return false;
	endpoint_go(stage->a, IBV_QPS_RTS);
	return cq_expect(stage->a->send_cq, SECOND_ID, IBV_WC_SUCCESS) &&
	       cq_expect(stage->recv_cq, SECOND_ID, IBV_WC_SUCCESS);
}

static bool finished(struct stage *stage)
{
	return begin(stage) && finishes(stage);
}

/* The path that it has, said once more. */
static bool set_path(struct stage *stage)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int mask = IBV_QP_AV;

	if (stage->service->reliable)
		mask |= IBV_QP_PORT;
	tap_must(!ibv_query_qp(stage->a->qp, &attr, mask, &init),
		 "ibv_query_qp fails");
	return check(!ibv_modify_qp(stage->a->qp, &attr, mask),
		     "the path can't be set");
}

/* Who the path leads to now has nothing of it: all of it is sent. */
static bool begun_anew(struct stage *stage)
{
	if (is_datagram(stage))
		return finished(stage);
	if (!begin(stage))
		return false;
	memset(stage->to.addr, 0, SEGMENT_BYTES);
	/* where that is another machine's memory, it is cleared with the next call there */
	return cq_stays_empty(stage->recv_cq, 0) && set_path(stage) &&
	       finishes(stage) &&
	       all_are(stage->to.addr, SEGMENT_BYTES, FILL_BYTE);
}

/* From SQE it goes on, and the receive of what was broken off is the next one's. */
static bool goes_on(struct stage *stage)
{
	endpoint_go(stage->a, IBV_QPS_RTS);
	post_empty(stage, LATE_ID);
	return cq_expect(stage->a->send_cq, LATE_ID, IBV_WC_SUCCESS) &&
	       cq_expect(stage->recv_cq, FIRST_ID, IBV_WC_SUCCESS);
}

/* The rest of its data is gone: it fails, and so does what waits behind it. */
static bool failed(struct stage *stage)
{
	enum ibv_qp_state state = stage->service->reliable ? IBV_QPS_ERR :
							     IBV_QPS_SQE;

	if (!begin(stage))
		return false;
	tap_must(!ibv_dereg_mr(stage->rest.mr), "ibv_dereg_mr fails");
	stage->rest.mr = NULL;
	let_go(stage);
	if (!cq_expect(stage->a->send_cq, FIRST_ID, IBV_WC_LOC_PROT_ERR) ||
	    !cq_expect(stage->a->send_cq, SECOND_ID, IBV_WC_WR_FLUSH_ERR) ||
	    !check(endpoint_state(stage->a) == state, "the state is %s",
		   state_name(endpoint_state(stage->a))) ||
	    !cq_stays_empty(stage->recv_cq, QUIET_MS) ||
	    !events_none(stage->setup->a_dev.ctx))
		return false;
	return stage->service->reliable || goes_on(stage);
}

/* ----------------------------------------------------------------------------- */

static const struct {
	bool (*run)(struct stage *stage);
	const char *name;
} cases[] = {
	{ finished, "drained in the middle of a request" },
	{ begun_anew, "a path in the middle of a request" },
	{ failed, "a request fails while it is drained" },
};

static bool run_case(struct setup *setup, unsigned int i,
		     const struct service *service)
{
	struct stage stage = { .setup = setup, .service = service };
	bool ok;

	open_queues(&stage);
	open_data(&stage);
	ok = cases[i].run(&stage);
	stage_close(&stage);
	return events_none(setup->a_dev.ctx) && events_none(setup->b_dev.ctx) &&
	       ok;
}

void run_middles(struct setup *setup, struct neighbours *neighbours)
{
	unsigned int i, k;

	for (i = 0; i < COUNT(cases); i++)
		for (k = 0; k < COUNT(services); k++)
			tap_ok(run_case(setup, i, &services[k]) &&
				       neighbours_work(neighbours),
			       "%s: %s", services[k].name, cases[i].name);
}
