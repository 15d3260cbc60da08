// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue pairs in all their states: what is refused, what is flushed, what
 * works again afterwards; and a completion queue that overflows.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "event.h"
#include "proxy.h"
#include "setup.h"
#include "states.h"
#include "tap.h"
#include "work.h"

#define REGION_BYTES 8192UL
#define RECEIVE_OFFSET 4096U
#define RECEIVE_BYTES 512U

bool expect_state(const struct endpoint *ep, enum ibv_qp_state state)
{
	enum ibv_qp_state found = endpoint_state(ep);

	return check(found == state, "the QP is in %s instead of %s",
		     state_name(found), state_name(state));
}

/* Requests that wait for a receive are flushed in order, all of them. */
static bool flush_waiting_sends(struct pair *pair)
{
	uint64_t id;

	for (id = 0; id < 20; id++)
		post_empty_send(&pair->a, id, id % 3 ? 0 : IBV_SEND_SIGNALED);
	endpoint_go(&pair->a, IBV_QPS_ERR);
	return cq_expect_range(pair->a.send_cq, 0, 20, IBV_WC_WR_FLUSH_ERR) &&
	       cq_stays_empty(pair->a.send_cq, 0) &&
	       expect_state(&pair->a, IBV_QPS_ERR);
}

static bool flush_receives(struct pair *pair)
{
	uint64_t id;

	for (id = 0; id < 20; id++)
		post_recv(&pair->b, id, NULL, 0);
	endpoint_go(&pair->b, IBV_QPS_ERR);
	return cq_expect_range(pair->b.recv_cq, 0, 20, IBV_WC_WR_FLUSH_ERR) &&
	       cq_stays_empty(pair->b.recv_cq, 0);
}

/* What is posted to a queue pair in ERR is flushed at once. */
static bool post_in_error(struct pair *pair)
{
	uint64_t id;

	endpoint_go(&pair->a, IBV_QPS_ERR);
	for (id = 0; id < 100; id++) {
		post_empty_send(&pair->a, id, 0);
		post_recv(&pair->a, id, NULL, 0);
		if (!cq_expect(pair->a.send_cq, id, IBV_WC_WR_FLUSH_ERR) ||
		    !cq_expect(pair->a.recv_cq, id, IBV_WC_WR_FLUSH_ERR))
			return false;
	}
	return true;
}

static bool post_in_reset(struct pair *pair)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);

	endpoint_go(&pair->a, IBV_QPS_RESET);
	return check(try_post_send(&pair->a, &wr) != 0,
		     "a send is accepted in RESET") &&
	       check(try_post_recv(&pair->a, 1, NULL, 0) != 0,
		     "a receive is accepted in RESET");
}

static bool post_in_init(struct pair *pair)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);

	endpoint_go(&pair->a, IBV_QPS_RESET);
	endpoint_to_init(&pair->a);
	return check(try_post_send(&pair->a, &wr) != 0,
		     "a send is accepted in INIT") &&
	       check(!try_post_recv(&pair->a, 1, NULL, 0),
		     "a receive is refused in INIT");
}

static bool post_in_rtr(struct pair *pair)
{
	struct endpoint_address address = endpoint_address(&pair->b);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);

	endpoint_go(&pair->a, IBV_QPS_RESET);
	endpoint_to_init(&pair->a);
	endpoint_to_rtr(&pair->a, &address);
	return check(try_post_send(&pair->a, &wr) != 0,
		     "a send is accepted in RTR") &&
	       check(!try_post_recv(&pair->a, 1, NULL, 0),
		     "a receive is refused in RTR");
}

/* Receives from before the connection work after it. */
static bool receive_before_connect(struct pair *pair)
{
	struct endpoint_address a = endpoint_address(&pair->a);
	struct endpoint_address b = endpoint_address(&pair->b);

	endpoint_go(&pair->a, IBV_QPS_RESET);
	endpoint_go(&pair->b, IBV_QPS_RESET);
	endpoint_to_init(&pair->b);
	post_recv(&pair->b, 7, NULL, 0);
	endpoint_to_rtr(&pair->b, &a);
	endpoint_connect(&pair->a, &b);
	/* The peer only receives: RTR is enough for that. */
	post_empty_send(&pair->a, 8, IBV_SEND_SIGNALED);
	return cq_expect(pair->a.send_cq, 8, IBV_WC_SUCCESS) &&
	       cq_expect(pair->b.recv_cq, 7, IBV_WC_SUCCESS);
}

/* RESET empties the queues without a word; then all works again. */
static bool reset_and_again(struct pair *pair)
{
	uint64_t round, id;

	for (round = 0; round < 5; round++) {
		for (id = 0; id < 10; id++) {
			post_empty_send(&pair->a, 1000 + id, IBV_SEND_SIGNALED);
			post_recv(&pair->a, 1000 + id, NULL, 0);
		}
		endpoint_go(&pair->a, IBV_QPS_RESET);
		endpoint_go(&pair->b, IBV_QPS_RESET);
		if (!cq_stays_empty(pair->a.send_cq, 20) ||
		    !cq_stays_empty(pair->a.recv_cq, 0))
			return false;
		pair_connect(&pair->a, &pair->b);
		for (id = 0; id < 100; id++)
			if (!exchange_empty(&pair->a, &pair->b, id))
				return false;
	}
	return true;
}

static bool error_and_again(struct pair *pair)
{
	uint64_t round;

	for (round = 0; round < 5; round++) {
		endpoint_go(&pair->a, IBV_QPS_ERR);
		endpoint_go(&pair->b, IBV_QPS_ERR);
		endpoint_go(&pair->a, IBV_QPS_RESET);
		endpoint_go(&pair->b, IBV_QPS_RESET);
		pair_connect(&pair->a, &pair->b);
		if (!exchange_empty(&pair->a, &pair->b, round))
			return false;
	}
	return true;
}

/* With rnr_retry 7 a sender waits as long as it takes. */
static bool wait_for_receive(struct pair *pair)
{
	post_empty_send(&pair->a, 1, IBV_SEND_SIGNALED);
	post_empty_send(&pair->a, 2, IBV_SEND_SIGNALED);
	if (!cq_stays_empty(pair->a.send_cq, 200) ||
	    !expect_state(&pair->a, IBV_QPS_RTS))
		return false;
	post_recv(&pair->b, 11, NULL, 0);
	post_recv(&pair->b, 12, NULL, 0);
	return cq_expect_range(pair->a.send_cq, 1, 3, IBV_WC_SUCCESS) &&
	       cq_expect_range(pair->b.recv_cq, 11, 13, IBV_WC_SUCCESS);
}

/*
 * If both the process and the kernel execute requests, each has room for as many
 * completions as the queue was made for, as they do not ask each other.
 */
static unsigned int fold(void)
{
	const char *path = getenv("MIC_DIRECT");

	return path && !strcmp(path, "random") ? 2 : 1;
}

/*
 * More completions than entries: those that fit are there, the event comes,
 * and the queue pair can be destroyed.
 */
static bool overflow_cq(struct setup *setup, struct endpoint *a,
			struct endpoint *b, struct ibv_cq *cq)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 64);
	struct ibv_send_wr wr = send_wr(0, IBV_WR_RDMA_WRITE, &sge, 1);
	unsigned int i, total = cq->cqe + 8;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = setup->b_mem.rdma_addr;
	wr.wr.rdma.rkey = setup->b_mem.mr->rkey;
	for (wr.wr_id = 0; wr.wr_id < total; wr.wr_id++)
		post_send(a, &wr);
	if (!event_expect(setup->a_dev.ctx, IBV_EVENT_CQ_ERR, cq))
		return false;
	for (i = 0; ibv_poll_cq(cq, 1, &wc) == 1; i++)
		if (!check(wc.wr_id == i && wc.status == IBV_WC_SUCCESS,
			   "wr_id %" PRIu64 " at place %u", wc.wr_id, i))
			return false;
	return check(i <= cq->cqe * fold(), "%u completions", i) &&
	       expect_state(b, IBV_QPS_RTS);
}

/* One that the queues of @options can overrun. */
static struct ibv_cq *small_cq(struct setup *setup,
			       struct endpoint_options *options)
{
	struct ibv_cq *cq = ibv_create_cq(setup->a_dev.ctx, 4, NULL, NULL, 0);

	if (!cq)
		bail("cannot create a CQ: %s", strerror(errno));
	options->depth = cq->cqe + 16;
	return cq;
}

static bool run_overflow(struct setup *setup, struct neighbours *neighbours)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint a, b;
	struct ibv_cq *cq;
	bool ok;

	cq = small_cq(setup, &options);
	endpoint_create(&b, &setup->b_dev, &options);
	options.send_cq = cq;
	endpoint_create(&a, &setup->a_dev, &options);
	pair_connect(&a, &b);
	ok = overflow_cq(setup, &a, &b, cq);
	pair_destroy(&a, &b);
	tap_must(!ibv_destroy_cq(cq), "ibv_destroy_cq fails");
	/* Queue pairs of a broken queue may report that too. */
	events_none(setup->a_dev.ctx);
	return neighbours_work(neighbours) && ok;
}

/*
 * The kernel's completions are too many: then those of what the process executes are not
 * taken either, on another queue pair.
 */
static bool overflow_both(struct setup *setup, struct endpoint *a,
			  struct endpoint *b, struct endpoint *other)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);
	int i, total = a->send_cq->cqe + 1;

	send_wr_aim(&wr, setup->b_mem.rdma_addr, setup->b_mem.mr->rkey);
	post_send(other, &wr);
	if (!cq_expect(a->send_cq, 1, IBV_WC_SUCCESS))
		return false;
	for (i = 0; i < total; i++) {
		post_recv(b, i, NULL, 0);
		post_empty_send(a, i, IBV_SEND_SIGNALED);
	}
	if (!event_expect(setup->a_dev.ctx, IBV_EVENT_CQ_ERR, a->send_cq) ||
	    !cq_expect_range(a->send_cq, 0, total - 1, IBV_WC_SUCCESS))
		return false;
	post_send(other, &wr);
	return cq_stays_empty(a->send_cq, 50);
}

static bool run_overflow_both(struct setup *setup,
			      struct neighbours *neighbours)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint a, b, other, other_b;
	struct ibv_cq *cq;
	bool ok;

	cq = small_cq(setup, &options);
	endpoint_create(&b, &setup->b_dev, &options);
	endpoint_create(&other_b, &setup->b_dev, &options);
	options.send_cq = cq;
	endpoint_create(&a, &setup->a_dev, &options);
	endpoint_create(&other, &setup->a_dev, &options);
	pair_connect(&a, &b);
	pair_connect(&other, &other_b);
	ok = overflow_both(setup, &a, &b, &other);
	pair_destroy(&a, &b);
	pair_destroy(&other, &other_b);
	tap_must(!ibv_destroy_cq(cq), "ibv_destroy_cq fails");
	events_drop(setup->a_dev.ctx);
	return neighbours_work(neighbours) && ok;
}

/* A queue that ignores overruns loses what does not fit, and goes on. */
static bool overrun_cq(struct setup *setup, struct endpoint *a,
		       struct endpoint *b, struct ibv_cq *cq)
{
	uint64_t id, entries = cq->cqe;

	for (id = 0; id < entries + 8; id++)
		post_recv(b, id, NULL, 0);
	for (id = 0; id < entries + 8; id++)
		post_empty_send(a, id, IBV_SEND_SIGNALED);
	/* when all have arrived, all have completed but perhaps the last */
	if (!cq_expect_range(b->recv_cq, 0, entries + 8, IBV_WC_SUCCESS) ||
	    !cq_expect_range(cq, 0, entries, IBV_WC_SUCCESS) ||
	    !cq_stays_empty(cq, 50) || !events_none(setup->a_dev.ctx) ||
	    !expect_state(a, IBV_QPS_RTS))
		return false;
	for (id = 0; id < 3; id++)
		post_recv(b, id, NULL, 0);
	for (id = 0; id < 3; id++)
		post_empty_send(a, 100 + id, IBV_SEND_SIGNALED);
	return cq_expect_range(cq, 100, 103, IBV_WC_SUCCESS);
}

/* What is left does not exceed what the queue can hold, and is in order. */
static bool holds_no_more(struct ibv_cq *cq, uint64_t next)
{
	const uint64_t most = cq->cqe * (fold() - 1);
	struct ibv_wc wc;
	uint64_t n;

	if (fold() == 1)
		return cq_stays_empty(cq, 50);
	sleep_ms(50);
	for (n = 0; ibv_poll_cq(cq, 1, &wc) == 1; n++) {
		if (!check(!wc.status && wc.wr_id >= next && n < most,
			   "wr_id %" PRIu64 ", %s", wc.wr_id,
			   ibv_wc_status_str(wc.status)))
			return false;
		next = wc.wr_id + 1;
	}
	return true;
}

/* The same for requests that the process may execute by itself. */
static bool overrun_writes(struct setup *setup, struct endpoint *a,
			   struct ibv_cq *cq)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 64);
	struct ibv_send_wr wr = send_wr(0, IBV_WR_RDMA_WRITE, &sge, 1);
	uint64_t entries = cq->cqe;

	wr.wr.rdma.remote_addr = setup->b_mem.rdma_addr;
	wr.wr.rdma.rkey = setup->b_mem.mr->rkey;
	for (; wr.wr_id < entries + 8; wr.wr_id++)
		post_send(a, &wr);
	if (!cq_expect_range(cq, 0, entries, IBV_WC_SUCCESS) ||
	    !holds_no_more(cq, entries) || !events_none(setup->a_dev.ctx) ||
	    !expect_state(a, IBV_QPS_RTS))
		return false;
	for (wr.wr_id = 100; wr.wr_id < 103; wr.wr_id++)
		post_send(a, &wr);
	return cq_expect_range(cq, 100, 103, IBV_WC_SUCCESS);
}

static bool run_overrun(struct setup *setup, struct neighbours *neighbours)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 4,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(setup->a_dev.ctx, &attr);
	struct endpoint a, b;
	bool ok;

	if (!check(cq, "no such queue: %s", strerror(errno)))
		return false;
	options.depth = 32;
	endpoint_create(&b, &setup->b_dev, &options);
	options.send_cq = ibv_cq_ex_to_cq(cq);
	endpoint_create(&a, &setup->a_dev, &options);
	pair_connect(&a, &b);
	ok = overrun_writes(setup, &a, options.send_cq) &&
	     overrun_cq(setup, &a, &b, options.send_cq);
	pair_destroy(&a, &b);
	tap_must(!ibv_destroy_cq(options.send_cq), "ibv_destroy_cq fails");
	return neighbours_work(neighbours) && ok;
}

/* What memory has no use for: a second path, a rate, other capacities. */
static bool refuse_attributes(struct pair *pair)
{
	static const struct {
		int mask;
		const char *name;
	} masks[] = {
		{ IBV_QP_ALT_PATH, "an alternate path" },
		{ IBV_QP_PATH_MIG_STATE, "path migration" },
		{ IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE, "both" },
		{ IBV_QP_RATE_LIMIT, "a rate" },
	};
	struct ibv_qp_attr attr = {
		.alt_ah_attr = { .is_global = 1, .port_num = 1 },
		.alt_port_num = 1,
		.alt_timeout = 14,
		.path_mig_state = IBV_MIG_REARM,
		.rate_limit = 1000,
	};
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000 };
	unsigned int i;
	int error;

	attr.alt_ah_attr.grh.dgid = pair->setup->b_dev.gid;
	attr.alt_ah_attr.grh.sgid_index = pair->setup->a_dev.gid_index;
	for (i = 0; i < COUNT(masks); i++) {
		error = ibv_modify_qp(pair->a.qp, &attr, masks[i].mask);
		if (!check(error == EOPNOTSUPP, "%s: %s", masks[i].name,
			   strerror(error)))
			return false;
	}
	error = ibv_modify_qp(pair->a.qp, &attr, IBV_QP_CAP);
	return check(error == EOPNOTSUPP, "other capacities: %s",
		     strerror(error)) &&
	       check(ibv_modify_qp_rate_limit(pair->a.qp, &rate) == EOPNOTSUPP,
		     "a rate, by its own call") &&
	       exchange_empty(&pair->a, &pair->b, 1);
}

/* One partition, as in every RoCE device. */
static bool one_partition(struct pair *pair)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 1,
		.port_num = 1,
	};
	struct ibv_context *ctx = pair->setup->a_dev.ctx;
	__be16 pkey = 0;

	endpoint_go(&pair->a, IBV_QPS_RESET);
	return check(pair->setup->a_dev.port.pkey_tbl_len == 1, "the table") &&
	       check(!ibv_query_pkey(ctx, 1, 0, &pkey) &&
			     pkey == htobe16(0xffff),
		     "key 0x%x", be16toh(pkey)) &&
	       check(ibv_query_pkey(ctx, 1, 1, &pkey), "a second key") &&
	       check(ibv_modify_qp(pair->a.qp, &attr,
				   IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					   IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
			     EINVAL,
		     "a second key in use");
}

/* A datagram queue pair stops sending on a fault, and can go on. */
static bool datagram_send_error(struct pair *pair)
{
	struct setup *setup = pair->setup;
	struct ibv_ah *ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 10);
	struct ibv_sge to = region_sge(&setup->b_mem, RECEIVE_OFFSET,
				       RECEIVE_BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge, 1);
	bool ok;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = pair->b.qp->qp_num;
	wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	post_recv(&pair->b, 1, &to, 1);
	sge.lkey ^= 0x00a5a500;
	post_send(&pair->a, &wr);
	ok = cq_expect(pair->a.send_cq, 1, IBV_WC_LOC_PROT_ERR) &&
	     expect_state(&pair->a, IBV_QPS_SQE);
	wr.wr_id = 2;
	post_send(&pair->a, &wr);
	ok = ok && cq_expect(pair->a.send_cq, 2, IBV_WC_WR_FLUSH_ERR) &&
	     check(!endpoint_set_state(&pair->a, IBV_QPS_RTS),
		   "cannot go from SQE to RTS");
	sge.lkey ^= 0x00a5a500;
	wr.wr_id = 3;
	ok = ok && check(!try_post_send(&pair->a, &wr), "posting fails") &&
	     cq_expect(pair->a.send_cq, 3, IBV_WC_SUCCESS) &&
	     cq_expect(pair->b.recv_cq, 1, IBV_WC_SUCCESS) &&
	     expect_state(&pair->b, IBV_QPS_RTS);
	return check(!ibv_destroy_ah(ah), "ibv_destroy_ah fails") && ok;
}

/* The receiver alone learns that its receive was too short. */
static bool datagram_short_receive(struct pair *pair)
{
	struct setup *setup = pair->setup;
	struct ibv_ah *ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 100);
	struct ibv_sge to = region_sge(&setup->b_mem, RECEIVE_OFFSET, 139);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge, 1);
	bool ok;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = pair->b.qp->qp_num;
	wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	post_recv(&pair->b, 1, &to, 1);
	post_recv(&pair->b, 2, &to, 1);
	post_send(&pair->a, &wr);
	ok = cq_expect(pair->a.send_cq, 1, IBV_WC_SUCCESS) &&
	     expect_state(&pair->a, IBV_QPS_RTS) &&
	     cq_expect(pair->b.recv_cq, 1, IBV_WC_LOC_LEN_ERR) &&
	     cq_expect(pair->b.recv_cq, 2, IBV_WC_WR_FLUSH_ERR) &&
	     expect_state(&pair->b, IBV_QPS_ERR);
	return check(!ibv_destroy_ah(ah), "ibv_destroy_ah fails") && ok;
}

/* Destroyed with requests waiting in both queues: nothing completes after. */
static bool destroy_busy(struct pair *pair)
{
	struct endpoint_options options = pair->a.options;
	struct ibv_cq *send_cq, *recv_cq;
	struct endpoint a, b;
	bool ok = true;
	uint64_t i, id;

	send_cq = pair->a.send_cq;
	recv_cq = pair->b.recv_cq;
	for (i = 0; i < 50 && ok; i++) {
		options.send_cq = send_cq;
		options.recv_cq = NULL;
		endpoint_create(&a, &pair->setup->a_dev, &options);
		options.send_cq = NULL;
		options.recv_cq = recv_cq;
		endpoint_create(&b, &pair->setup->b_dev, &options);
		pair_connect(&a, &b);
		for (id = 0; id < i; id++) {
			post_empty_send(&a, id, IBV_SEND_SIGNALED);
			post_recv(&a, id, NULL, 0);
		}
		if (i % 2)
			pair_destroy(&a, &b);
		else
			pair_destroy(&b, &a);
		ok = cq_stays_empty(send_cq, 0) && cq_stays_empty(recv_cq, 0);
	}
	return ok;
}

static const struct {
	const char *name;
	enum ibv_qp_type type;
	bool (*run)(struct pair *pair);
} cases[] = {
	{ "sends that wait are flushed in order", IBV_QPT_RC,
	  flush_waiting_sends },
	{ "receives are flushed in order", IBV_QPT_RC, flush_receives },
	{ "posts in ERR are flushed", IBV_QPT_RC, post_in_error },
	{ "posts in RESET are refused", IBV_QPT_RC, post_in_reset },
	{ "sends in INIT are refused", IBV_QPT_RC, post_in_init },
	{ "sends in RTR are refused", IBV_QPT_RC, post_in_rtr },
	{ "receives posted in INIT are used in RTR", IBV_QPT_RC,
	  receive_before_connect },
	{ "RESET empties the queues", IBV_QPT_RC, reset_and_again },
	{ "from ERR over RESET to work again", IBV_QPT_RC, error_and_again },
	{ "rnr_retry 7 waits for a receive", IBV_QPT_RC, wait_for_receive },
	{ "UD: a send error stops the send queue only", IBV_QPT_UD,
	  datagram_send_error },
	{ "UD: receive too short", IBV_QPT_UD, datagram_short_receive },
	{ "destroyed with requests waiting", IBV_QPT_RC, destroy_busy },
	{ "attributes that are refused", IBV_QPT_RC, refuse_attributes },
	{ "attributes that the kernel refuses", IBV_QPT_RC,
	  kernel_refuses_attributes },
	{ "one partition key", IBV_QPT_RC, one_partition },
};

static void run_case(struct setup *setup, struct neighbours *neighbours,
		     unsigned int i)
{
	struct endpoint_options options = endpoint_options(cases[i].type);
	struct pair pair = { .setup = setup };
	bool ok;

	pair_create(&pair.a, &setup->a_dev, &pair.b, &setup->b_dev, &options);
	ok = cases[i].run(&pair);
	pair_destroy(&pair.a, &pair.b);
	ok = events_none(setup->a_dev.ctx) && events_none(setup->b_dev.ctx) &&
	     neighbours_work(neighbours) && ok;
	tap_ok(ok, "%s", cases[i].name);
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
	for (i = 0; i < COUNT(cases); i++)
		run_case(&setup, &neighbours, i);
	tap_ok(run_overflow(&setup, &neighbours), "completion queue overflow");
	tap_ok(run_overflow_both(&setup, &neighbours),
	       "it is the end of what the process executes, too");
	/* between machines, what has arrived has not completed yet */
	if (!proxy_is_name(setup.b_dev.name))
		tap_ok(run_overrun(&setup, &neighbours),
		       "overflow of a completion queue that ignores it");
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
