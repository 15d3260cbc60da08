// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What may be changed of a queue pair whose send queue is drained, and what may not:
 * paths, timers, retries and rights, IBA 11.2.5.2. And queues that are drained again
 * and again while there is work for them.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "clock.h"
#include "drain.h"
#include "event.h"
#include "srq.h"
#include "tap.h"
#include "work.h"

enum { REQUESTS = 3, ROUNDS = 40, AT_ONCE = 8, QUIET_MS = 20, PORT = 1 };

static const struct service {
	enum ibv_qp_type type;
	const char *name;
} services[] = {
	{ IBV_QPT_RC, "RC" },
	{ IBV_QPT_XRC_SEND, "XRC" },
	{ IBV_QPT_UC, "UC" },
	{ IBV_QPT_UD, "UD" },
};

struct stage {
	struct setup *setup;
	const struct service *service;
	struct endpoint a;
	struct endpoint b;
	struct xrc xrc; /* has both if it is XRC */
	struct ibv_cq *recv_cq;
	struct ibv_ah *ah;
};

static bool is(const struct stage *stage, enum ibv_qp_type type)
{
	return stage->service->type == type;
}

static void stage_open(struct stage *stage)
{
	struct endpoint_options options =
		endpoint_options(stage->service->type);
	struct setup *setup = stage->setup;

	/* who gets no answer asks for ever */
	options.timeout = 0;
	if (is(stage, IBV_QPT_XRC_SEND)) {
		xrc_open_domain(&stage->xrc, setup);
		stage->xrc.srq[0] = xrc_create_srq(&stage->xrc, AT_ONCE, 1);
		stage->recv_cq = stage->xrc.cq;
		endpoint_create(&stage->a, &setup->a_dev, &options);
		options.type = IBV_QPT_XRC_RECV;
		options.xrcd = stage->xrc.xrcd;
		endpoint_create(&stage->b, &setup->b_dev, &options);
		pair_connect(&stage->a, &stage->b);
		return;
	}
	pair_create(&stage->a, &setup->a_dev, &stage->b, &setup->b_dev,
		    &options);
	stage->recv_cq = stage->b.recv_cq;
	stage->ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
}

static void stage_close(struct stage *stage)
{
	if (stage->xrc.xrcd) {
		stage->xrc.a = stage->a;
		stage->xrc.b = stage->b;
		xrc_close(&stage->xrc);
		return;
	}
	pair_destroy(&stage->a, &stage->b);
	tap_must(!ibv_destroy_ah(stage->ah), "ibv_destroy_ah fails");
}

static void post_receive(struct stage *stage, uint64_t id)
{
	struct ibv_sge sge = region_sge(&stage->setup->b_mem, 0,
					sizeof(struct ibv_grh));
	struct ibv_recv_wr *bad, wr = {
		.wr_id = id,
		.sg_list = &sge,
		.num_sge = 1,
	};

	if (!stage->xrc.xrcd)
		post_recv(&stage->b, id, &sge, 1);
	else if (ibv_post_srq_recv(stage->xrc.srq[0], &wr, &bad))
		bail("posting a receive fails");
}

static void post_message(struct stage *stage, uint64_t id)
{
	struct ibv_send_wr wr = send_wr(id, IBV_WR_SEND, NULL, 0);

	if (stage->xrc.xrcd) {
		xrc_aim(&stage->xrc, 0, &wr);
	} else if (is(stage, IBV_QPT_UD)) {
		wr.wr.ud.ah = stage->ah;
		wr.wr.ud.remote_qpn = stage->b.qp->qp_num;
		wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	}
	post_send(&stage->a, &wr);
}

static bool exchange(struct stage *stage, uint64_t from, uint64_t to)
{
	uint64_t id;

	for (id = from; id < to; id++) {
		post_receive(stage, id);
		post_message(stage, id);
	}
	return cq_expect_range(stage->a.send_cq, from, to, IBV_WC_SUCCESS) &&
	       cq_expect_range(stage->recv_cq, from, to, IBV_WC_SUCCESS);
}

static bool drain(struct endpoint *ep)
{
	to_sqd(ep, true);
	return event_expect(ep->dev->ctx, IBV_EVENT_SQ_DRAINED, ep->qp) &&
	       check(draining(ep) == 0, "it is still draining");
}

static struct ibv_qp_attr attributes(const struct endpoint *ep)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(ep->qp, &attr, IBV_QP_STATE, &init))
		bail("ibv_query_qp fails");
	return attr;
}

/* --- paths ------------------------------------------------------------------- */

/* Another address of a device: one of IPv6, other than that of the link. */
static struct ibv_gid_entry other_gid(const struct device *dev)
{
	struct ibv_gid_entry entry;
	int i;

	for (i = 0; i < dev->port.gid_tbl_len; i++)
		if (!ibv_query_gid_ex(dev->ctx, PORT, i, &entry, 0) &&
		    entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    entry.gid.raw[0] == 0xfd)
			return entry;
	bail("%s has no second address", dev->name);
}

/* Only in SQD: the way to the peer is one between other addresses. */
static int set_path(struct endpoint *ep, const struct device *peer, int mask)
{
	struct ibv_gid_entry from = other_gid(ep->dev), to = other_gid(peer);
	struct ibv_qp_attr attr = {
		.port_num = PORT,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.sl = 3,
			.grh = {
				.dgid = to.gid,
				.sgid_index = from.gid_index,
				.hop_limit = 64,
			},
		},
	};

	return ibv_modify_qp(ep->qp, &attr, mask);
}

static bool has_path(const struct endpoint *ep, const struct device *peer)
{
	struct ibv_gid_entry from = other_gid(ep->dev), to = other_gid(peer);
	struct ibv_qp_attr attr = attributes(ep);

	return check(!memcmp(&attr.ah_attr.grh.dgid, &to.gid, sizeof(to.gid)),
		     "it leads elsewhere") &&
	       check(attr.ah_attr.grh.sgid_index == from.gid_index,
		     "it begins at index %u", attr.ah_attr.grh.sgid_index) &&
	       check(attr.ah_attr.sl == 3, "service level %u", attr.ah_attr.sl);
}

static bool change_path(struct endpoint *ep, const struct device *peer)
{
	int error = set_path(ep, peer, IBV_QP_AV);

	return check(!error, "%s", strerror(error)) && has_path(ep, peer) &&
	       check(draining(ep) == 0, "it is draining again");
}

/* One side has a new path, so the other hears nothing until it has it, too. */
static bool new_path(struct stage *stage)
{
	bool reliable = !is(stage, IBV_QPT_UC);
	uint64_t id;

	if (!exchange(stage, 0, REQUESTS) || !drain(&stage->a) ||
	    !change_path(&stage->a, &stage->setup->b_dev))
		return false;
	for (id = 0; id < REQUESTS; id++) {
		post_receive(stage, id);
		post_message(stage, id);
	}
	endpoint_go(&stage->a, IBV_QPS_RTS);
	if (!reliable &&
	    !cq_expect_range(stage->a.send_cq, 0, REQUESTS, IBV_WC_SUCCESS))
		return false;
	if (!cq_stays_empty(stage->a.send_cq, QUIET_MS) ||
	    !cq_stays_empty(stage->recv_cq, 0) || !drain(&stage->b) ||
	    !change_path(&stage->b, &stage->setup->a_dev))
		return false;
	endpoint_go(&stage->b, IBV_QPS_RTS);
	if (!reliable)
		post_message(stage, 0);
	return cq_expect_range(stage->a.send_cq, 0, reliable ? REQUESTS : 1,
			       IBV_WC_SUCCESS) &&
	       cq_expect_range(stage->recv_cq, 0, reliable ? REQUESTS : 1,
			       IBV_WC_SUCCESS) &&
	       has_path(&stage->a, &stage->setup->b_dev);
}

/*
 * What is not begun is not drained. When the kernel begins what was posted is its own
 * affair; where it polls the queue no doorbell tells it.
 */
static bool begin_to_drain(struct stage *stage)
{
	struct ibv_context *ctx = stage->setup->a_dev.ctx;
	uint64_t limit = deadline();

	to_sqd(&stage->a, true);
	while (!draining(&stage->a)) {
		if (!check(now_ms() < limit, "it is drained") ||
		    !event_expect(ctx, IBV_EVENT_SQ_DRAINED, stage->a.qp))
			return false;
		endpoint_go(&stage->a, IBV_QPS_RTS);
		sleep_ms(1);
		to_sqd(&stage->a, true);
	}
	return true;
}

/* A request that gets no answer keeps the queue from being drained: it gets a path. */
static bool path_while_draining(struct stage *stage)
{
	if (!exchange(stage, 0, 1) || !drain(&stage->b) ||
	    !change_path(&stage->b, &stage->setup->a_dev))
		return false;
	endpoint_go(&stage->b, IBV_QPS_RTS);
	post_receive(stage, 1);
	post_receive(stage, 2);
	post_message(stage, 1);
	post_message(stage, 2);
	if (!begin_to_drain(stage) ||
	    !cq_stays_empty(stage->a.send_cq, QUIET_MS) ||
	    !check(draining(&stage->a) == 1, "it is drained") ||
	    !check(!set_path(&stage->a, &stage->setup->b_dev,
			     IBV_QP_AV | IBV_QP_PORT),
		   "the path can't be changed") ||
	    !cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) ||
	    !event_expect(stage->setup->a_dev.ctx, IBV_EVENT_SQ_DRAINED,
			  stage->a.qp) ||
	    !cq_stays_empty(stage->a.send_cq, QUIET_MS))
		return false;
	endpoint_go(&stage->a, IBV_QPS_RTS);
	return cq_expect(stage->a.send_cq, 2, IBV_WC_SUCCESS) &&
	       cq_expect_range(stage->recv_cq, 1, 3, IBV_WC_SUCCESS);
}

/* --- other attributes -------------------------------------------------------- */

/* What of the requester counts from the next request on. */
static bool new_retries(struct stage *stage)
{
	struct ibv_qp_attr attr = {
		.timeout = 9,
		.retry_cnt = 2,
		.rnr_retry = 0,
		.max_rd_atomic = 7,
	};
	const int mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			 IBV_QP_MAX_QP_RD_ATOMIC;

	if (!drain(&stage->a) ||
	    !check(!ibv_modify_qp(stage->a.qp, &attr, mask), "not changed"))
		return false;
	attr = attributes(&stage->a);
	if (!check(attr.timeout == 9 && attr.retry_cnt == 2 &&
			   attr.rnr_retry == 0 && attr.max_rd_atomic == 7,
		   "timeout %u, retries %u and %u, %u READs", attr.timeout,
		   attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic))
		return false;
	endpoint_go(&stage->a, IBV_QPS_RTS);
	post_message(stage, 1);
	return cq_expect(stage->a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR) &&
	       check(endpoint_state(&stage->a) == IBV_QPS_ERR, "no error") &&
	       check(endpoint_state(&stage->b) == IBV_QPS_RTS, "an error");
}

static bool new_timeout(struct stage *stage)
{
	struct ibv_qp_attr attr = { .timeout = 1, .retry_cnt = 1 };
	const int mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;

	endpoint_go(&stage->b, IBV_QPS_RESET);
	if (!drain(&stage->a) ||
	    !check(!ibv_modify_qp(stage->a.qp, &attr, mask), "not changed"))
		return false;
	endpoint_go(&stage->a, IBV_QPS_RTS);
	post_message(stage, 1);
	return cq_expect(stage->a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
}

/* And of the responder: it answers no more READs. */
static bool no_more_reads(struct stage *stage)
{
	struct ibv_sge sge = region_sge(&stage->setup->a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_READ, &sge, 1);
	struct ibv_qp_attr attr = { .max_dest_rd_atomic = 0,
				    .min_rnr_timer = 5 };
	const int mask = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	wr.wr.rdma.remote_addr = stage->setup->b_mem.rdma_addr;
	wr.wr.rdma.rkey = stage->setup->b_mem.mr->rkey;
	if (stage->xrc.xrcd)
		xrc_aim(&stage->xrc, 0, &wr);
	post_send(&stage->a, &wr);
	if (!cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) ||
	    !drain(&stage->b) ||
	    !check(!ibv_modify_qp(stage->b.qp, &attr, mask), "not changed"))
		return false;
	attr = attributes(&stage->b);
	if (!check(!attr.max_dest_rd_atomic && attr.min_rnr_timer == 5,
		   "%u READs, timer %u", attr.max_dest_rd_atomic,
		   attr.min_rnr_timer))
		return false;
	endpoint_go(&stage->b, IBV_QPS_RTS);
	post_send(&stage->a, &wr);
	return cq_expect(stage->a.send_cq, 1, IBV_WC_REM_INV_REQ_ERR) &&
	       event_expect(stage->setup->b_dev.ctx, IBV_EVENT_QP_REQ_ERR,
			    stage->b.qp);
}

/* The sender's queue key stays: that of the receiver counts. */
static bool new_queue_key(struct stage *stage)
{
	struct ibv_qp_attr attr = { .qkey = ENDPOINT_QKEY + 1 };

	if (!exchange(stage, 0, 1) || !drain(&stage->b) ||
	    !check(!ibv_modify_qp(stage->b.qp, &attr, IBV_QP_QKEY),
		   "not changed") ||
	    !check(attributes(&stage->b).qkey == attr.qkey, "another key"))
		return false;
	endpoint_go(&stage->b, IBV_QPS_RTS);
	post_receive(stage, 1);
	post_message(stage, 1);
	if (!cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) ||
	    !cq_stays_empty(stage->recv_cq, QUIET_MS) || !drain(&stage->b))
		return false;
	attr.qkey = ENDPOINT_QKEY;
	if (ibv_modify_qp(stage->b.qp, &attr, IBV_QP_QKEY))
		return check(false, "not changed again");
	endpoint_go(&stage->b, IBV_QPS_RTS);
	post_message(stage, 2);
	return cq_expect(stage->a.send_cq, 2, IBV_WC_SUCCESS) &&
	       cq_expect(stage->recv_cq, 1, IBV_WC_SUCCESS);
}

/* --- what is refused --------------------------------------------------------- */

#define OF(type) (1U << (type))
#define CONNECTED (OF(IBV_QPT_RC) | OF(IBV_QPT_UC) | OF(IBV_QPT_XRC_SEND))
#define EACH (CONNECTED | OF(IBV_QPT_UD))

static const struct {
	const char *name;
	int mask;
	unsigned int types; /* that refuse it in SQD */
} refusals[] = {
	{ "the peer's number", IBV_QP_DEST_QPN, EACH },
	{ "the PSN to send", IBV_QP_SQ_PSN, EACH },
	{ "the PSN to receive", IBV_QP_RQ_PSN, EACH },
	{ "the path MTU", IBV_QP_PATH_MTU, EACH },
	{ "a notification", IBV_QP_EN_SQD_ASYNC_NOTIFY, EACH },
	{ "a second SQD with a notification",
	  IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY, EACH },
	{ "a queue key", IBV_QP_QKEY, CONNECTED },
	{ "a path", IBV_QP_AV, OF(IBV_QPT_UD) },
	{ "a timeout", IBV_QP_TIMEOUT, OF(IBV_QPT_UC) | OF(IBV_QPT_UD) },
	{ "retries", IBV_QP_RETRY_CNT, OF(IBV_QPT_UC) | OF(IBV_QPT_UD) },
	{ "RNR retries", IBV_QP_RNR_RETRY, OF(IBV_QPT_UC) | OF(IBV_QPT_UD) },
	{ "READs to send", IBV_QP_MAX_QP_RD_ATOMIC,
	  OF(IBV_QPT_UC) | OF(IBV_QPT_UD) },
	{ "READs to answer", IBV_QP_MAX_DEST_RD_ATOMIC,
	  OF(IBV_QPT_UC) | OF(IBV_QPT_UD) },
	{ "a receiver's timer", IBV_QP_MIN_RNR_TIMER,
	  OF(IBV_QPT_UC) | OF(IBV_QPT_UD) },
	{ "rights", IBV_QP_ACCESS_FLAGS, OF(IBV_QPT_UD) },
};

static bool are_same(const struct ibv_qp_attr *a, const struct ibv_qp_attr *b)
{
	return a->qp_state == b->qp_state && a->path_mtu == b->path_mtu &&
	       a->sq_psn == b->sq_psn && a->rq_psn == b->rq_psn &&
	       a->dest_qp_num == b->dest_qp_num && a->qkey == b->qkey &&
	       a->sq_draining == b->sq_draining && a->timeout == b->timeout &&
	       a->retry_cnt == b->retry_cnt && a->rnr_retry == b->rnr_retry &&
	       a->max_rd_atomic == b->max_rd_atomic &&
	       a->max_dest_rd_atomic == b->max_dest_rd_atomic &&
	       a->min_rnr_timer == b->min_rnr_timer &&
	       a->qp_access_flags == b->qp_access_flags &&
	       a->ah_attr.sl == b->ah_attr.sl;
}

/* Others than it has, of all that may be named. */
static bool refuses(struct endpoint *ep, const char *name, int mask)
{
	struct ibv_qp_attr before = attributes(ep), attr = before, after;
	int error;

	attr.en_sqd_async_notify = 1;
	attr.port_num = PORT;
	attr.ah_attr.port_num = PORT;
	attr.path_mtu = IBV_MTU_256;
	attr.sq_psn = before.sq_psn + 1;
	attr.rq_psn = before.rq_psn + 1;
	attr.dest_qp_num = before.dest_qp_num ^ 1;
	attr.qkey = before.qkey + 1;
	attr.timeout = before.timeout ^ 1;
	attr.retry_cnt = before.retry_cnt ^ 1;
	attr.rnr_retry = before.rnr_retry ^ 1;
	attr.max_rd_atomic = before.max_rd_atomic + 1;
	attr.max_dest_rd_atomic = before.max_dest_rd_atomic + 1;
	attr.min_rnr_timer = before.min_rnr_timer ^ 1;
	attr.qp_access_flags = before.qp_access_flags ^ IBV_ACCESS_REMOTE_READ;
	attr.ah_attr.sl = before.ah_attr.sl ^ 1;
	error = ibv_modify_qp(ep->qp, &attr, mask);
	if (!check(error == EINVAL, "%s, %s: %s", name,
		   state_name(before.qp_state), strerror(error)))
		return false;
	after = attributes(ep);
	return check(are_same(&before, &after),
		     "%s, %s: attributes have changed", name,
		     state_name(before.qp_state));
}

/* Nothing changes, and no event comes. Outside of SQD there are no other paths. */
static bool refused(struct stage *stage)
{
	unsigned int i;

	if (!refuses(&stage->a, "a path", IBV_QP_AV) ||
	    !refuses(&stage->a, "a timeout", IBV_QP_TIMEOUT) ||
	    !drain(&stage->a))
		return false;
	for (i = 0; i < COUNT(refusals); i++)
		if (refusals[i].types & OF(stage->service->type) &&
		    !refuses(&stage->a, refusals[i].name, refusals[i].mask))
			return false;
	if (!events_none(stage->setup->a_dev.ctx))
		return false;
	endpoint_go(&stage->a, IBV_QPS_RTS);
	return exchange(stage, 0, 1);
}

/* --- again and again ---------------------------------------------------------- */

/* To SQD when it is there already: the event that was asked for comes, once. */
static bool twice(struct stage *stage)
{
	struct ibv_context *ctx = stage->setup->a_dev.ctx;

	post_message(stage, 0);
	post_message(stage, 1);
	sleep_ms(QUIET_MS);
	to_sqd(&stage->a, true);
	to_sqd(&stage->a, false);
	if (!check(draining(&stage->a) == 1, "it is not draining") ||
	    !events_none(ctx))
		return false;
	post_receive(stage, 0);
	if (!cq_expect(stage->a.send_cq, 0, IBV_WC_SUCCESS) ||
	    !event_expect(ctx, IBV_EVENT_SQ_DRAINED, stage->a.qp))
		return false;
	to_sqd(&stage->a, false);
	if (!check(draining(&stage->a) == 0, "it is draining again") ||
	    !cq_stays_empty(stage->a.send_cq, QUIET_MS) || !events_none(ctx))
		return false;
	post_receive(stage, 1);
	endpoint_go(&stage->a, IBV_QPS_RTS);
	return cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) &&
	       cq_expect_range(stage->recv_cq, 0, 2, IBV_WC_SUCCESS);
}

/* In the middle of work, asked to tell or not: each request is executed once. */
static bool often(struct stage *stage)
{
	struct ibv_context *ctx = stage->setup->a_dev.ctx;
	uint64_t round, id, next = 0;
	bool notify;

	for (round = 0; round < ROUNDS; round++) {
		notify = round % 2;
		for (id = next; id < next + AT_ONCE; id++)
			post_receive(stage, id);
		for (id = next; id < next + AT_ONCE / 2; id++)
			post_message(stage, id);
		to_sqd(&stage->a, notify);
		for (; id < next + AT_ONCE; id++)
			post_message(stage, id);
		if (notify &&
		    !event_expect(ctx, IBV_EVENT_SQ_DRAINED, stage->a.qp))
			return false;
		endpoint_go(&stage->a, IBV_QPS_RTS);
		if (!cq_expect_range(stage->a.send_cq, next, id,
				     IBV_WC_SUCCESS) ||
		    !cq_expect_range(stage->recv_cq, next, id,
				     IBV_WC_SUCCESS) ||
		    !events_none(ctx))
			return check(false, "round %" PRIu64, round);
		next = id;
	}
	return cq_stays_empty(stage->a.send_cq, 0) &&
	       cq_stays_empty(stage->recv_cq, 0);
}

/* ----------------------------------------------------------------------------- */

static const struct {
	bool (*run)(struct stage *stage);
	const char *name;
	unsigned int types;
} cases[] = {
	{ new_path, "drained, a new path", CONNECTED },
	{ path_while_draining, "a request gets a path while it is drained",
	  OF(IBV_QPT_RC) | OF(IBV_QPT_XRC_SEND) },
	{ new_retries, "drained, new retries",
	  OF(IBV_QPT_RC) | OF(IBV_QPT_XRC_SEND) },
	{ new_timeout, "drained, a new timeout",
	  OF(IBV_QPT_RC) | OF(IBV_QPT_XRC_SEND) },
	{ no_more_reads, "drained, a responder of no more READs",
	  OF(IBV_QPT_RC) | OF(IBV_QPT_XRC_SEND) },
	{ new_queue_key, "drained, a new queue key", OF(IBV_QPT_UD) },
	{ refused, "drained, attributes that can't be changed", EACH },
	{ twice, "to SQD twice", OF(IBV_QPT_RC) | OF(IBV_QPT_XRC_SEND) },
	{ often, "drained again and again", EACH },
};

static bool run_case(struct setup *setup, unsigned int i,
		     const struct service *service)
{
	struct stage stage = { .setup = setup, .service = service };
	bool ok;

	stage_open(&stage);
	ok = cases[i].run(&stage) && events_none(setup->a_dev.ctx) &&
	     events_none(setup->b_dev.ctx);
	stage_close(&stage);
	return ok;
}

void run_changes(struct setup *setup, struct neighbours *neighbours)
{
	unsigned int i, k;

	for (i = 0; i < COUNT(cases); i++)
		for (k = 0; k < COUNT(services); k++)
			if (cases[i].types & OF(services[k].type))
				tap_ok(run_case(setup, i, &services[k]) &&
					       neighbours_work(neighbours),
				       "%s: %s", services[k].name,
				       cases[i].name);
}
