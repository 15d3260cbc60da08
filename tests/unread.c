// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Asynchronous events that a process causes again and again and does not read: some are
 * kept, and when these have been read there are others. (Completion events: hostile.)
 */
#include <inttypes.h>

#include "event.h"
#include "setup.h"
#include "srq.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum {
	REGION_BYTES = 4096,
	EVENTS = 1000,
	UNREAD = 64, /* as many are kept for an object */
};

struct stage {
	struct setup *setup;
	struct ibv_srq *srq; /* of @b */
	struct endpoint a;
	struct endpoint b;
};

static void go(struct stage *stage, enum ibv_qp_state state, bool notify)
{
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.en_sqd_async_notify = notify,
	};
	int mask = IBV_QP_STATE | (notify ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0);

	if (ibv_modify_qp(stage->b.qp, &attr, mask))
		bail("cannot go to %s", state_name(state));
}

/* A send queue is drained. */
static bool drain(struct stage *stage, uint64_t id)
{
	(void)id;
	go(stage, IBV_QPS_SQD, true);
	go(stage, IBV_QPS_RTS, false);
	return true;
}

/* A shared receive queue has fewer receives than its limit. */
static bool run_short(struct stage *stage, uint64_t id)
{
	struct ibv_srq_attr attr = { .srq_limit = 1 };
	struct ibv_recv_wr wr = { .wr_id = id }, *bad;

	if (!check(!ibv_post_srq_recv(stage->srq, &wr, &bad) &&
			   !ibv_modify_srq(stage->srq, &attr, IBV_SRQ_LIMIT),
		   "no limit"))
		return false;
	post_empty_send(&stage->a, id, IBV_SEND_SIGNALED);
	return cq_expect(stage->b.recv_cq, id, IBV_WC_SUCCESS) &&
	       cq_expect(stage->a.send_cq, id, IBV_WC_SUCCESS);
}

static const struct {
	const char *name;
	bool (*raise)(struct stage *stage, uint64_t id);
	enum ibv_event_type type;
} cases[] = {
	{ "a send queue is drained", drain, IBV_EVENT_SQ_DRAINED },
	{ "a shared receive queue runs short", run_short,
	  IBV_EVENT_SRQ_LIMIT_REACHED },
};

/* How many there are, all of one type; -1, with a remark, if not. */
static int read_events(struct ibv_context *ctx, enum ibv_event_type type)
{
	struct ibv_async_event event;
	bool ok = true;
	int n = 0;

	while (!ibv_get_async_event(ctx, &event)) {
		ok = check(event.event_type == type, "the event is '%s'",
			   ibv_event_type_str(event.event_type)) &&
		     ok;
		ibv_ack_async_event(&event);
		n++;
	}
	return ok ? n : -1;
}

/* Of one event so many are told. */
static bool some_are_kept(struct stage *stage, unsigned int i, int told)
{
	struct ibv_context *ctx = stage->setup->b_dev.ctx;
	uint64_t id;
	int round, n;

	for (round = 0; round < 2; round++) {
		for (id = 0; id < EVENTS; id++)
			if (!cases[i].raise(stage, id))
				return false;
		n = read_events(ctx, cases[i].type);
		if (!check(n == UNREAD * told, "%d events", n))
			return false;
	}
	if (!cases[i].raise(stage, id))
		return false;
	n = read_events(ctx, cases[i].type);
	return check(n == told, "%d are told of one", n);
}

static bool run_case(struct setup *setup, unsigned int i)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct stage stage = { .setup = setup };
	bool ok;

	endpoint_create(&stage.a, &setup->a_dev, &options);
	stage.srq = srq_create(setup->b_dev.pd, 4, 1);
	options.srq = stage.srq;
	endpoint_create(&stage.b, &setup->b_dev, &options);
	pair_connect(&stage.a, &stage.b);
	ok = some_are_kept(&stage, i, 1);
	pair_destroy(&stage.a, &stage.b);
	tap_must(!ibv_destroy_srq(stage.srq), "ibv_destroy_srq fails");
	return ok;
}

/*
 * The first of the cases, on a target of XRC that may have been opened a second time.
 * Not each uverbs tells those who do so of events.
 */
static bool run_target(struct setup *setup, bool again)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_TYPE,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct stage stage = { .setup = setup };
	struct ibv_qp *other = NULL;
	struct xrc xrc;
	bool ok;
	int told;

	xrc_open_domain(&xrc, setup);
	xrc_connect(&xrc);
	stage.b = xrc.b;
	attr.qp_num = xrc.b.qp->qp_num;
	attr.xrcd = xrc.xrcd;
	if (again)
		other = ibv_open_qp(setup->b_dev.ctx, &attr);
	ok = check(!again || other, "ibv_open_qp fails") &&
	     cases[0].raise(&stage, 0);
	told = read_events(setup->b_dev.ctx, cases[0].type);
	ok = ok &&
	     check(told == 1 || (again && told == 2), "%d are told", told) &&
	     some_are_kept(&stage, 0, told);
	if (other)
		tap_must(!ibv_destroy_qp(other), "ibv_destroy_qp fails");
	ok = ok && some_are_kept(&stage, 0, 1);
	xrc_close(&xrc);
	return ok;
}

int main(int argc, char **argv)
{
	struct setup setup;
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	events_prepare(setup.b_dev.ctx);
	for (i = 0; i < COUNT(cases); i++)
		tap_ok(run_case(&setup, i), "%s, and nobody hears of it",
		       cases[i].name);
	tap_ok(run_target(&setup, false),
	       "a target of XRC is drained, and nobody hears of it");
	tap_ok(run_target(&setup, true),
	       "a target of XRC that two have opened, and nobody hears of it");
	setup_close(&setup);
	return tap_end();
}
