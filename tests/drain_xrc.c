// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Initiators and targets of XRC that are destroyed in every state with work
 * outstanding: what the other side hears of it, and that the receive queue goes on
 * with another connection. And the event of a target's first message.
 */
#include <inttypes.h>

#include "drain.h"
#include "event.h"
#include "srq.h"
#include "tap.h"
#include "work.h"

enum { WORK = 12, ROUNDS = 10, RECEIVE_ID = 100, AGAIN_ID = 200 };

static void open_domain(struct xrc *xrc, struct setup *setup)
{
	xrc_open_domain(xrc, setup);
	xrc->srq[0] = xrc_create_srq(xrc, 2 * WORK, 1);
}

static void create_both(struct xrc *xrc)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_XRC_SEND);

	/* a tenth of a second without an answer, and it is over */
	options.timeout = 12;
	endpoint_create(&xrc->a, &xrc->setup->a_dev, &options);
	options.type = IBV_QPT_XRC_RECV;
	options.xrcd = xrc->xrcd;
	endpoint_create(&xrc->b, &xrc->setup->b_dev, &options);
}

static void post_receive(struct xrc *xrc, uint64_t id)
{
	struct ibv_recv_wr wr = { .wr_id = id }, *bad;

	if (ibv_post_srq_recv(xrc->srq[0], &wr, &bad))
		bail("posting a receive fails");
}

/* How many requests the initiator has taken: none before it is connected. */
static uint64_t post_sends(struct xrc *xrc)
{
	struct ibv_send_wr wr = send_wr(0, IBV_WR_SEND, NULL, 0);

	xrc_aim(xrc, 0, &wr);
	for (; wr.wr_id < WORK; wr.wr_id++)
		if (try_post_send(&xrc->a, &wr))
			break;
	return wr.wr_id;
}

static void destroy_qp(struct endpoint *ep)
{
	tap_must(!ibv_destroy_qp(ep->qp), "ibv_destroy_qp fails");
	ep->qp = NULL;
}

/* The receive that was there all the time is the next connection's. */
static bool queue_goes_on(struct xrc *xrc)
{
	struct ibv_send_wr wr = send_wr(AGAIN_ID, IBV_WR_SEND, NULL, 0);

	endpoint_destroy(&xrc->a);
	endpoint_destroy(&xrc->b);
	create_both(xrc);
	pair_connect(&xrc->a, &xrc->b);
	xrc_aim(xrc, 0, &wr);
	post_send(&xrc->a, &wr);
	return cq_expect(xrc->a.send_cq, AGAIN_ID, IBV_WC_SUCCESS) &&
	       cq_expect(xrc->cq, RECEIVE_ID, IBV_WC_SUCCESS) &&
	       cq_stays_empty(xrc->cq, 0);
}

/*
 * The initiator ends in @state: its requests do, without a completion, and the target
 * does not hear of it.
 */
static bool initiator_ends(struct xrc *xrc, enum ibv_qp_state state)
{
	uint64_t count;

	to_state(&xrc->b, &xrc->a, IBV_QPS_RTS);
	to_state(&xrc->a, &xrc->b, state);
	count = post_sends(xrc);
	if (!check(count == (state < IBV_QPS_RTS ? 0 : WORK),
		   "%" PRIu64 " requests are posted in %s", count,
		   state_name(state)))
		return false;
	destroy_qp(&xrc->a);
	post_receive(xrc, RECEIVE_ID);
	return cq_stays_empty(xrc->a.send_cq, 2) &&
	       cq_stays_empty(xrc->cq, 0) &&
	       check(endpoint_state(&xrc->b) == IBV_QPS_RTS,
		     "the target is in %s",
		     state_name(endpoint_state(&xrc->b))) &&
	       queue_goes_on(xrc);
}

/*
 * The target ends in @state, and those who ask it get no answer any more. From RTR on
 * they have got one: that there is no receive.
 */
static bool target_ends(struct xrc *xrc, enum ibv_qp_state state)
{
	to_state(&xrc->b, &xrc->a, state);
	to_state(&xrc->a, &xrc->b, IBV_QPS_RTS);
	if (!check(post_sends(xrc) == WORK, "posting fails"))
		return false;
	if (state >= IBV_QPS_RTR && state != IBV_QPS_ERR &&
	    !cq_stays_empty(xrc->a.send_cq, 2))
		return false;
	destroy_qp(&xrc->b);
	post_receive(xrc, RECEIVE_ID);
	return cq_expect(xrc->a.send_cq, 0, IBV_WC_RETRY_EXC_ERR) &&
	       cq_expect_range(xrc->a.send_cq, 1, WORK, IBV_WC_WR_FLUSH_ERR) &&
	       cq_stays_empty(xrc->a.send_cq, 0) &&
	       check(endpoint_state(&xrc->a) == IBV_QPS_ERR,
		     "the initiator is in %s",
		     state_name(endpoint_state(&xrc->a))) &&
	       queue_goes_on(xrc);
}

static bool run_case(struct setup *setup,
		     bool (*run)(struct xrc *xrc, enum ibv_qp_state state),
		     enum ibv_qp_state state)
{
	struct xrc xrc;
	bool ok = true;
	int round;

	for (round = 0; ok && round < ROUNDS; round++) {
		open_domain(&xrc, setup);
		create_both(&xrc);
		ok = run(&xrc, state) && events_none(setup->a_dev.ctx) &&
		     events_none(setup->b_dev.ctx);
		xrc_close(&xrc);
	}
	return ok;
}

static bool send_arrives(struct xrc *xrc, uint64_t id)
{
	struct ibv_send_wr wr = send_wr(id, IBV_WR_SEND, NULL, 0);

	xrc_aim(xrc, 0, &wr);
	post_receive(xrc, id);
	post_send(&xrc->a, &wr);
	return cq_expect(xrc->a.send_cq, id, IBV_WC_SUCCESS) &&
	       cq_expect(xrc->cq, id, IBV_WC_SUCCESS);
}

/* By the first message to a target in RTR, and told once. */
static bool established(struct setup *setup)
{
	struct ibv_context *ctx = setup->b_dev.ctx;
	struct xrc xrc;
	bool ok;

	open_domain(&xrc, setup);
	create_both(&xrc);
	to_state(&xrc.b, &xrc.a, IBV_QPS_RTR);
	to_state(&xrc.a, &xrc.b, IBV_QPS_RTS);
	ok = send_arrives(&xrc, RECEIVE_ID) &&
	     event_is(ctx, IBV_EVENT_COMM_EST, xrc.b.qp) &&
	     send_arrives(&xrc, AGAIN_ID) && stays_without_event(ctx);
	xrc_close(&xrc);
	return ok;
}

void run_xrc(struct setup *setup, struct neighbours *neighbours)
{
	static const struct {
		const char *name;
		bool (*run)(struct xrc *xrc, enum ibv_qp_state state);
	} ends[] = {
		{ "XRC initiator", initiator_ends },
		{ "XRC target", target_ends },
	};
	unsigned int i, state;

	/* a reliable service has no SQE */
	for (i = 0; i < COUNT(ends); i++)
		for (state = IBV_QPS_RESET; state <= IBV_QPS_ERR; state++)
			if (state != IBV_QPS_SQE)
				tap_ok(run_case(setup, ends[i].run, state) &&
					       neighbours_work(neighbours),
				       "%s: destroyed in %s with work outstanding",
				       ends[i].name, state_name(state));
	tap_ok(established(setup), "XRC: communication established");
}
