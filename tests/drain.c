// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Send queues that are drained (in the middle of a request: drain_middle.c), queue
 * pairs destroyed in every state with work outstanding, and what tells of the rest of
 * a connection's life.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "clock.h"
#include "drain.h"
#include "event.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define REGION_BYTES 8192UL

enum { WORK = 12 };

struct pair {
	struct setup *setup;
	struct endpoint a;
	struct endpoint b;
};

/* --- draining --------------------------------------------------------------- */

void to_sqd(struct endpoint *ep, bool notify)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_SQD,
		.en_sqd_async_notify = notify,
	};
	int mask = IBV_QP_STATE | (notify ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0);

	if (ibv_modify_qp(ep->qp, &attr, mask))
		bail("cannot go to SQD");
}

int draining(struct endpoint *ep)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = { .sq_draining = 9 };

	if (ibv_query_qp(ep->qp, &attr, IBV_QP_STATE, &init) ||
	    !check(attr.qp_state == IBV_QPS_SQD, "the state is %s",
		   state_name(attr.qp_state)))
		return -1;
	return attr.sq_draining;
}

/* Nothing to drain: the event comes at once, and requests wait for RTS. */
static bool drain_idle(struct pair *pair)
{
	uint64_t id;

	to_sqd(&pair->a, true);
	if (!event_expect(pair->setup->a_dev.ctx, IBV_EVENT_SQ_DRAINED,
			  pair->a.qp) ||
	    !check(draining(&pair->a) == 0, "it is still draining"))
		return false;
	for (id = 0; id < 5; id++) {
		post_recv(&pair->b, id, NULL, 0);
		post_empty_send(&pair->a, id, IBV_SEND_SIGNALED);
	}
	if (!cq_stays_empty(pair->a.send_cq, 50) ||
	    !cq_stays_empty(pair->b.recv_cq, 0))
		return false;
	endpoint_go(&pair->a, IBV_QPS_RTS);
	return cq_expect_range(pair->a.send_cq, 0, 5, IBV_WC_SUCCESS) &&
	       cq_expect_range(pair->b.recv_cq, 0, 5, IBV_WC_SUCCESS);
}

/* What has begun is finished, what has not waits. */
static bool drain_busy(struct pair *pair)
{
	struct ibv_context *ctx = pair->setup->a_dev.ctx;
	uint64_t id;

	for (id = 0; id < 3; id++)
		post_empty_send(&pair->a, id, IBV_SEND_SIGNALED);
	sleep_ms(20);
	to_sqd(&pair->a, true);
	if (!check(draining(&pair->a) == 1, "it is not draining") ||
	    !events_none(ctx))
		return false;
	for (id = 0; id < 3; id++)
		post_recv(&pair->b, id, NULL, 0);
	if (!cq_expect(pair->a.send_cq, 0, IBV_WC_SUCCESS) ||
	    !event_expect(ctx, IBV_EVENT_SQ_DRAINED, pair->a.qp) ||
	    !cq_stays_empty(pair->a.send_cq, 50) ||
	    !check(draining(&pair->a) == 0, "it is still draining"))
		return false;
	endpoint_go(&pair->a, IBV_QPS_RTS);
	return cq_expect_range(pair->a.send_cq, 1, 3, IBV_WC_SUCCESS) &&
	       cq_expect_range(pair->b.recv_cq, 0, 3, IBV_WC_SUCCESS);
}

static bool drain_quietly(struct pair *pair)
{
	to_sqd(&pair->a, false);
	sleep_ms(20);
	if (!events_none(pair->setup->a_dev.ctx) ||
	    !check(draining(&pair->a) == 0, "it is still draining"))
		return false;
	endpoint_go(&pair->a, IBV_QPS_RTS);
	return exchange_empty(&pair->a, &pair->b, 1);
}

/* Receiving goes on, and attributes may be changed: that's what it is for. */
static bool drained_receives(struct pair *pair)
{
	struct ibv_sge sge = region_sge(&pair->setup->b_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_READ, &sge, 1);
	struct ibv_qp_attr attr = { .qp_access_flags =
					    IBV_ACCESS_REMOTE_WRITE };

	to_sqd(&pair->a, false);
	if (!exchange_empty(&pair->b, &pair->a, 1) ||
	    !check(!ibv_modify_qp(pair->a.qp, &attr, IBV_QP_ACCESS_FLAGS),
		   "rights can't be changed"))
		return false;
	endpoint_go(&pair->a, IBV_QPS_RTS);
	wr.wr.rdma.remote_addr = pair->setup->a_mem.rdma_addr;
	wr.wr.rdma.rkey = pair->setup->a_mem.mr->rkey;
	post_send(&pair->b, &wr);
	return cq_expect(pair->b.send_cq, 1, IBV_WC_REM_INV_REQ_ERR) &&
	       event_expect(pair->setup->a_dev.ctx, IBV_EVENT_QP_REQ_ERR,
			    pair->a.qp);
}

static bool drained_to_error(struct pair *pair)
{
	uint64_t id;

	to_sqd(&pair->a, false);
	for (id = 0; id < 5; id++)
		post_empty_send(&pair->a, id, 0);
	endpoint_go(&pair->a, IBV_QPS_ERR);
	return cq_expect_range(pair->a.send_cq, 0, 5, IBV_WC_WR_FLUSH_ERR);
}

/* --- destroyed in every state ------------------------------------------------ */

static void post_work(struct endpoint *ep, struct ibv_ah *ah)
{
	struct ibv_send_wr wr = send_wr(0, IBV_WR_SEND, NULL, 0);
	uint64_t id;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = 0xfff;
	for (id = 0; id < WORK; id++) {
		try_post_recv(ep, id, NULL, 0);
		if (try_post_send(ep, &wr))
			return;
	}
}

void to_state(struct endpoint *ep, const struct endpoint *peer,
	      enum ibv_qp_state state)
{
	struct endpoint_address address = endpoint_address(peer);

	if (state == IBV_QPS_RESET)
		return;
	endpoint_to_init(ep);
	if (state == IBV_QPS_INIT)
		return;
	endpoint_to_rtr(ep, &address);
	if (state == IBV_QPS_RTR)
		return;
	endpoint_to_rts(ep);
	if (state == IBV_QPS_SQD)
		to_sqd(ep, false);
	else if (state == IBV_QPS_ERR)
		endpoint_go(ep, IBV_QPS_ERR);
}

/* A datagram that can't be sent: the send queue stops. */
static void to_sqe(struct endpoint *ep, struct ibv_ah *ah)
{
	struct ibv_sge sge = { .addr = 1, .length = 1, .lkey = 0 };
	struct ibv_send_wr wr = send_wr(0, IBV_WR_SEND, &sge, 1);
	struct ibv_wc wc;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = 0xfff;
	post_send(ep, &wr);
	cq_wait(ep->send_cq, &wc);
}

/* Nothing comes of a queue pair that is gone. */
static bool destroy_in(struct setup *setup, enum ibv_qp_type type,
		       enum ibv_qp_state state)
{
	struct endpoint_options options = endpoint_options(type);
	struct ibv_ah *ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
	struct endpoint a, b;
	bool ok = true;
	int round;

	for (round = 0; ok && round < 10; round++) {
		endpoint_create(&a, &setup->a_dev, &options);
		endpoint_create(&b, &setup->b_dev, &options);
		endpoint_to_init(&b);
		if (state == IBV_QPS_SQE) {
			to_state(&a, &b, IBV_QPS_RTS);
			to_sqe(&a, ah);
		} else {
			to_state(&a, &b, state);
		}
		post_work(&a, ah);
		if (state == IBV_QPS_RTS && round % 2)
			sleep_ms(2);
		ok = check(!ibv_destroy_qp(a.qp), "ibv_destroy_qp fails") &&
		     cq_stays_empty(a.send_cq, 5) &&
		     cq_stays_empty(a.recv_cq, 0);
		a.qp = NULL;
		endpoint_destroy(&a);
		endpoint_destroy(&b);
	}
	return check(!ibv_destroy_ah(ah), "ibv_destroy_ah fails") && ok;
}

/* --- the current state ------------------------------------------------------- */

static int go_from(struct endpoint *ep, enum ibv_qp_state from,
		   enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = { .cur_qp_state = from, .qp_state = to };

	return ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE);
}

/* Who says what state it is in says the truth, or nothing changes. */
static bool current_state(struct pair *pair)
{
	struct endpoint *a = &pair->a;

	if (!check(!go_from(a, IBV_QPS_RTS, IBV_QPS_RTS), "RTS to RTS") ||
	    !check(go_from(a, IBV_QPS_SQD, IBV_QPS_RTS) == EINVAL,
		   "it is in RTS, not in SQD") ||
	    !check(go_from(a, IBV_QPS_RTR, IBV_QPS_RTS) == EINVAL,
		   "it is in RTS, not in RTR") ||
	    !check(endpoint_state(a) == IBV_QPS_RTS, "it has left RTS") ||
	    !exchange_empty(a, &pair->b, 1))
		return false;
	to_sqd(a, false);
	return check(go_from(a, IBV_QPS_RTS, IBV_QPS_RTS) == EINVAL,
		     "it is in SQD, not in RTS") &&
	       check(endpoint_state(a) == IBV_QPS_SQD, "it has left SQD") &&
	       check(!go_from(a, IBV_QPS_SQD, IBV_QPS_RTS), "SQD to RTS") &&
	       exchange_empty(a, &pair->b, 2);
}

/* A queue pair that has failed is not brought back by who has not seen it. */
static bool failed_meanwhile(struct pair *pair)
{
	struct endpoint *a = &pair->a;
	struct ibv_sge sge = { .addr = 1, .length = 1, .lkey = 0 };
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge, 1);

	post_send(a, &wr);
	return cq_expect(a->send_cq, 1, IBV_WC_LOC_PROT_ERR) &&
	       check(go_from(a, IBV_QPS_RTS, IBV_QPS_RTS) == EINVAL,
		     "it is in an error state, not in RTS") &&
	       check(endpoint_state(a) == IBV_QPS_ERR, "it has left ERR");
}

/* The same from SQE, and there it can be brought back. */
static bool back_from_sqe(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UC);
	struct ibv_sge sge = { .addr = 1, .length = 1, .lkey = 0 };
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge, 1);
	struct endpoint a, b;
	bool ok;

	pair_create(&a, &setup->a_dev, &b, &setup->b_dev, &options);
	post_send(&a, &wr);
	ok = cq_expect(a.send_cq, 1, IBV_WC_LOC_PROT_ERR) &&
	     check(go_from(&a, IBV_QPS_RTS, IBV_QPS_RTS) == EINVAL,
		   "it is in SQE, not in RTS") &&
	     check(endpoint_state(&a) == IBV_QPS_SQE, "it has left SQE") &&
	     check(!go_from(&a, IBV_QPS_SQE, IBV_QPS_RTS), "SQE to RTS") &&
	     exchange_empty(&a, &b, 2);
	pair_destroy(&a, &b);
	return ok;
}

enum { LIST = 1000, LIST_ROUNDS = 40 };

/* A list of WRITEs without a region of their own; the first one is wrong. */
static void post_list(struct endpoint *ep, const struct region *to,
		      struct ibv_sge *sge)
{
	static struct ibv_send_wr list[LIST];
	unsigned int i;

	for (i = 0; i < LIST; i++) {
		list[i] = send_wr(i, IBV_WR_RDMA_WRITE, sge, 1);
		list[i].send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		list[i].wr.rdma.remote_addr = to->rdma_addr;
		list[i].wr.rdma.rkey = to->mr->rkey;
		if (i)
			list[i - 1].next = &list[i];
	}
	list[0].send_flags = IBV_SEND_SIGNALED;
	post_send(ep, list);
}

/*
 * What was posted behind a request that fails is flushed, however soon the program
 * goes on when it has heard of that one.
 */
static bool flushed_before_rts(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UC);
	static uint64_t word = 0x7777777777777777;
	struct ibv_sge sge = { .addr = (uintptr_t)&word, .length = 8 };
	struct endpoint a, b;
	bool ok = true;
	int round;

	options.depth = LIST;
	options.inline_bytes = 8;
	pair_create(&a, &setup->a_dev, &b, &setup->b_dev, &options);
	memset(setup->b_mem.addr, 0, 8);
	for (round = 0; ok && round < LIST_ROUNDS; round++) {
		post_list(&a, &setup->b_mem, &sge);
		ok = cq_expect(a.send_cq, 0, IBV_WC_LOC_PROT_ERR) &&
		     check(!go_from(&a, IBV_QPS_SQE, IBV_QPS_RTS),
			   "SQE to RTS") &&
		     cq_expect_range(a.send_cq, 1, LIST, IBV_WC_WR_FLUSH_ERR) &&
		     exchange_empty(&a, &b, LIST) &&
		     all_are(setup->b_mem.addr, 8, 0);
	}
	pair_destroy(&a, &b);
	return ok;
}

/* --- events of a connection ---------------------------------------------------- */

/* Is there an event until @end? */
static bool takes_event(struct ibv_context *ctx, uint64_t end,
			struct ibv_async_event *event)
{
	while (ibv_get_async_event(ctx, event)) {
		if (now_ms() > end)
			return false;
		sleep_ms(1);
	}
	return true;
}

bool event_is(struct ibv_context *ctx, enum ibv_event_type type,
	      const struct ibv_qp *qp)
{
	struct ibv_async_event event;
	bool ok;

	if (!check(takes_event(ctx, deadline(), &event), "no event comes"))
		return false;
	ok = check(event.event_type == type && event.element.qp == qp,
		   "the event is '%s'", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
	return ok;
}

bool stays_without_event(struct ibv_context *ctx)
{
	struct ibv_async_event event;

	if (!takes_event(ctx, now_ms() + 20, &event))
		return true;
	ibv_ack_async_event(&event);
	return check(false, "there is '%s'",
		     ibv_event_type_str(event.event_type));
}

/* The first message before the receiver knows that it is connected. */
static bool established(struct pair *pair)
{
	struct endpoint_address a = endpoint_address(&pair->a);
	struct endpoint_address b = endpoint_address(&pair->b);
	struct ibv_context *ctx = pair->setup->b_dev.ctx;
	bool ok;

	endpoint_go(&pair->a, IBV_QPS_RESET);
	endpoint_go(&pair->b, IBV_QPS_RESET);
	endpoint_to_init(&pair->b);
	endpoint_to_rtr(&pair->b, &a);
	endpoint_connect(&pair->a, &b);
	ok = exchange_empty(&pair->a, &pair->b, 1) &&
	     event_is(ctx, IBV_EVENT_COMM_EST, pair->b.qp);
	/* it is told once */
	ok = ok && exchange_empty(&pair->a, &pair->b, 2) &&
	     stays_without_event(ctx);
	endpoint_to_rts(&pair->b);
	return exchange_empty(&pair->b, &pair->a, 3) && ok;
}

/* What is unreliable is told once as well. */
static bool established_unreliably(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UC);
	struct ibv_context *ctx = setup->b_dev.ctx;
	struct endpoint_address a_address, b_address;
	struct endpoint a, b;
	bool ok;

	endpoint_create(&a, &setup->a_dev, &options);
	endpoint_create(&b, &setup->b_dev, &options);
	a_address = endpoint_address(&a);
	b_address = endpoint_address(&b);
	endpoint_to_init(&b);
	endpoint_to_rtr(&b, &a_address);
	endpoint_connect(&a, &b_address);
	ok = exchange_empty(&a, &b, 1) &&
	     event_is(ctx, IBV_EVENT_COMM_EST, b.qp) &&
	     exchange_empty(&a, &b, 2) && stays_without_event(ctx);
	pair_destroy(&a, &b);
	return ok;
}

/* There is no connection that a datagram could establish. */
static bool not_by_datagrams(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);
	struct ibv_sge sge = region_sge(&setup->b_mem, 0, 40);
	struct endpoint a, b;
	bool ok;

	endpoint_create(&a, &setup->a_dev, &options);
	endpoint_create(&b, &setup->b_dev, &options);
	endpoint_to_init(&b);
	endpoint_to_rtr(&b, NULL);
	endpoint_to_init(&a);
	endpoint_to_rtr(&a, NULL);
	endpoint_to_rts(&a);
	wr.wr.ud.ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
	wr.wr.ud.remote_qpn = b.qp->qp_num;
	wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	post_recv(&b, 2, &sge, 1);
	post_send(&a, &wr);
	ok = cq_expect(a.send_cq, 1, IBV_WC_SUCCESS) &&
	     cq_expect(b.recv_cq, 2, IBV_WC_SUCCESS) &&
	     stays_without_event(setup->b_dev.ctx);
	ibv_destroy_ah(wr.wr.ud.ah);
	pair_destroy(&a, &b);
	return ok;
}

/* A receiver whose completion queue is full hears of that, and goes on. */
static bool full_receive_cq(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_cq *cq = ibv_create_cq(setup->b_dev.ctx, 2, NULL, NULL, 0);
	struct endpoint a, b;
	uint64_t id;
	bool ok;

	if (!cq)
		bail("no completion queue");
	endpoint_create(&a, &setup->a_dev, &options);
	options.recv_cq = cq;
	endpoint_create(&b, &setup->b_dev, &options);
	pair_connect(&a, &b);
	for (id = 0; id < 5; id++) {
		post_recv(&b, id, NULL, 0);
		post_empty_send(&a, id, IBV_SEND_SIGNALED);
	}
	ok = cq_expect_range(a.send_cq, 0, 5, IBV_WC_SUCCESS) &&
	     event_expect(setup->b_dev.ctx, IBV_EVENT_CQ_ERR, cq) &&
	     cq_expect_range(cq, 0, cq->cqe, IBV_WC_SUCCESS) &&
	     cq_stays_empty(cq, 20);
	pair_destroy(&a, &b);
	tap_must(!ibv_destroy_cq(cq), "ibv_destroy_cq fails");
	return events_none(setup->a_dev.ctx) && ok;
}

/* An empty shared queue is as no receive at all. */
static bool empty_srq(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
	};
	struct ibv_srq *srq = ibv_create_srq(setup->b_dev.pd, &attr);
	struct endpoint a, b;
	bool ok;

	if (!srq)
		bail("no shared receive queue");
	options.rnr_retry = 2;
	endpoint_create(&a, &setup->a_dev, &options);
	options.srq = srq;
	endpoint_create(&b, &setup->b_dev, &options);
	pair_connect(&a, &b);
	post_empty_send(&a, 1, 0);
	post_empty_send(&a, 2, 0);
	ok = cq_expect(a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR) &&
	     cq_expect(a.send_cq, 2, IBV_WC_WR_FLUSH_ERR) &&
	     check(endpoint_state(&a) == IBV_QPS_ERR, "the sender's state") &&
	     check(endpoint_state(&b) == IBV_QPS_RTS, "the receiver's state");
	pair_destroy(&a, &b);
	return check(!ibv_destroy_srq(srq), "ibv_destroy_srq fails") && ok;
}

/* ---------------------------------------------------------------------------- */

static const struct {
	bool (*run)(struct pair *pair);
	const char *name;
} pair_cases[] = {
	{ drain_idle, "an idle send queue is drained" },
	{ drain_busy, "a busy send queue is drained" },
	{ drain_quietly, "drained without an event" },
	{ drained_receives, "a drained queue pair receives and is changed" },
	{ drained_to_error, "from SQD to ERR" },
	{ established, "communication established" },
	{ current_state, "the current state is named, rightly or not" },
	{ failed_meanwhile, "the current state is named, but it has failed" },
};

static const struct {
	bool (*run)(struct setup *setup);
	const char *name;
} cases[] = {
	{ established_unreliably, "communication established, unreliable" },
	{ not_by_datagrams, "no communication is established by datagrams" },
	{ full_receive_cq, "a receiver's completion queue is full" },
	{ empty_srq, "an empty shared receive queue" },
	{ back_from_sqe, "the current state is SQE" },
	{ flushed_before_rts, "back from SQE, with a long list to flush" },
};

static void run_pair_case(struct setup *setup, struct neighbours *neighbours,
			  unsigned int i)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct pair pair = { .setup = setup };
	bool ok;

	pair_create(&pair.a, &setup->a_dev, &pair.b, &setup->b_dev, &options);
	ok = pair_cases[i].run(&pair);
	pair_destroy(&pair.a, &pair.b);
	ok = events_none(setup->a_dev.ctx) && events_none(setup->b_dev.ctx) &&
	     neighbours_work(neighbours) && ok;
	tap_ok(ok, "%s", pair_cases[i].name);
}

static void run_destroys(struct setup *setup, struct neighbours *neighbours)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC,
						  IBV_QPT_UD };
	static const char *const names[] = { "RC", "UC", "UD" };
	unsigned int i, state;

	for (i = 0; i < COUNT(types); i++)
		for (state = IBV_QPS_RESET; state <= IBV_QPS_ERR; state++) {
			if (state == IBV_QPS_SQE && types[i] != IBV_QPT_UD)
				continue;
			tap_ok(destroy_in(setup, types[i], state) &&
				       neighbours_work(neighbours),
			       "%s: destroyed in %s with work outstanding",
			       names[i], state_name(state));
		}
}

int main(int argc, char **argv)
{
	struct neighbours neighbours;
	struct setup setup;
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	events_prepare(setup.a_dev.ctx);
	events_prepare(setup.b_dev.ctx);
	neighbours_open(&neighbours, &setup);
	for (i = 0; i < COUNT(pair_cases); i++)
		run_pair_case(&setup, &neighbours, i);
	for (i = 0; i < COUNT(cases); i++)
		tap_ok(cases[i].run(&setup) && neighbours_work(&neighbours),
		       "%s", cases[i].name);
	run_middles(&setup, &neighbours);
	run_changes(&setup, &neighbours);
	run_destroys(&setup, &neighbours);
	run_xrc(&setup, &neighbours);
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
