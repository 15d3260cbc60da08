// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * rdma statistic: each case does something and knows by how much every
 * counter of both devices has to grow; those it does not name must not.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "counter.h"
#include "observe.h"
#include "tap.h"
#include "text.h"

enum { MAX_COUNTERS = 64, NAME_BYTES = 64, MAX_CHANGES = 8 };

struct counters {
	int count;
	struct {
		char name[NAME_BYTES];
		uint64_t value;
	} counter[MAX_COUNTERS];
};

/* How much a counter grows. */
struct change {
	const char *name;
	uint64_t by;
};

struct counter_case {
	const char *name;
	bool (*run)(struct setup *setup);
	struct change a[MAX_CHANGES];
	struct change b[MAX_CHANGES];
	enum ibv_qp_type type; /* 0: RC with little patience */
};

/* Lines like: link mic0/1 sends 5 send_bytes 320 ... */
static void read_counters(const struct device *dev, struct counters *counters)
{
	char *text = text_of_command("rdma statistic show link %s/1",
				     dev->name);
	char *rest = text, *name, *value;

	strsep(&rest, " ");
	strsep(&rest, " ");
	counters->count = 0;
	while ((name = strsep(&rest, " ")) && (value = strsep(&rest, " "))) {
		if (counters->count == MAX_COUNTERS)
			bail("more than %d counters", MAX_COUNTERS);
		snprintf(counters->counter[counters->count].name, NAME_BYTES,
			 "%s", name);
		counters->counter[counters->count++].value = strtoull(value,
								      NULL, 10);
	}
	free(text);
	if (!counters->count)
		bail("%s has no counters", dev->name);
}

static const struct change *find_change(const struct change *changes,
					const char *name)
{
	int i;

	for (i = 0; i < MAX_CHANGES && changes[i].name; i++)
		if (!strcmp(changes[i].name, name))
			return &changes[i];
	return NULL;
}

/* How often the engine runs is its own business, but for a minimum. */
static bool grew(const struct change *change, const char *name, uint64_t by)
{
	uint64_t expected = change ? change->by : 0;

	if (!strncmp(name, "engine_", 7))
		return by >= expected;
	return by == expected;
}

/* The counter that did not grow as it should, -1 if there is none. */
static int find_wrong(const struct counters *before,
		      const struct counters *after,
		      const struct change *changes)
{
	int i;

	for (i = 0; i < after->count; i++) {
		const char *name = after->counter[i].name;

		if (!grew(find_change(changes, name), name,
			  after->counter[i].value - before->counter[i].value))
			return i;
	}
	return -1;
}

static bool names_exist(const struct counters *counters,
			const struct change *changes)
{
	int i, j;

	for (i = 0; i < MAX_CHANGES && changes[i].name; i++) {
		for (j = 0; j < counters->count; j++)
			if (!strcmp(changes[i].name, counters->counter[j].name))
				break;
		if (!check(j < counters->count, "there is no counter %s",
			   changes[i].name))
			return false;
	}
	return true;
}

/* Some things are counted just after the completion that tells of them. */
static bool counters_grow(const struct device *dev,
			  const struct counters *before,
			  const struct change *changes)
{
	uint64_t end = deadline();
	struct counters after;
	const struct change *change;
	int wrong;

	if (!names_exist(before, changes))
		return false;
	do {
		read_counters(dev, &after);
		wrong = find_wrong(before, &after, changes);
		if (wrong < 0)
			return true;
		change = find_change(changes, after.counter[wrong].name);
		sleep_ms(10);
	} while (change && now_ms() < end &&
		 after.counter[wrong].value - before->counter[wrong].value <
			 change->by);
	return check(false, "%s: %s grows by %" PRIu64 ", expected %" PRIu64,
		     dev->name, after.counter[wrong].name,
		     after.counter[wrong].value - before->counter[wrong].value,
		     change ? change->by : 0);
}

/* --- the cases ----------------------------------------------------------- */

static bool case_sends(struct setup *setup)
{
	return exchange(setup, IBV_WR_SEND, 64, 3) &&
	       exchange(setup, IBV_WR_SEND_WITH_IMM, 64, 2);
}

static bool case_writes(struct setup *setup)
{
	return exchange(setup, IBV_WR_RDMA_WRITE, 1000, 3) &&
	       exchange(setup, IBV_WR_RDMA_WRITE_WITH_IMM, 500, 2);
}

static bool case_reads(struct setup *setup)
{
	return exchange(setup, IBV_WR_RDMA_READ, 300, 4);
}

static bool case_atomics(struct setup *setup)
{
	return exchange(setup, IBV_WR_ATOMIC_CMP_AND_SWP, 8, 2) &&
	       exchange(setup, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1);
}

static bool bind_window(struct setup *setup, struct ibv_mw *mw,
			struct ibv_mr *mr, uint64_t length)
{
	struct ibv_mw_bind bind = {
		.wr_id = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {
			.mr = mr,
			.addr = (uintptr_t)mr->addr,
			.length = length,
			.mw_access_flags = IBV_ACCESS_REMOTE_READ,
		},
	};

	return check(!ibv_bind_mw(setup->a.qp, mw, &bind),
		     "ibv_bind_mw fails") &&
	       cq_expect(setup->a.send_cq, 1, IBV_WC_SUCCESS);
}

static bool case_local(struct setup *setup)
{
	struct ibv_pd *pd = setup->a_dev.pd;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	bool ok;

	mr = ibv_reg_mr(pd, setup->a_mem.addr, PAGE_BYTES,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	if (!mr || !mw)
		bail("no memory window: %s", strerror(errno));
	ok = bind_window(setup, mw, mr, 64) && bind_window(setup, mw, mr, 0);
	return check(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr),
		     "window or region can't be freed") &&
	       ok;
}

static bool case_not_ready(struct setup *setup)
{
	return request_ends(setup, IBV_WR_SEND, 64, IBV_WC_RNR_RETRY_EXC_ERR);
}

static bool case_no_answer(struct setup *setup)
{
	endpoint_set_state(&setup->b, IBV_QPS_ERR);
	return request_ends(setup, IBV_WR_RDMA_WRITE, 64, IBV_WC_RETRY_EXC_ERR);
}

static bool case_access(struct setup *setup)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 64);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);

	wr.wr.rdma.remote_addr = setup->b_mem.rdma_addr + REGION_BYTES;
	wr.wr.rdma.rkey = setup->b_mem.mr->rkey;
	post_send(&setup->a, &wr);
	return cq_expect(setup->a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
}

static bool case_invalid(struct setup *setup)
{
	receive(setup, 2);
	return request_ends(setup, IBV_WR_SEND, RECEIVE_BYTES + 1,
			    IBV_WC_REM_INV_REQ_ERR) &&
	       cq_expect(setup->b.recv_cq, 2, IBV_WC_LOC_LEN_ERR);
}

static bool case_operation(struct setup *setup)
{
	struct ibv_sge sge = region_sge(&setup->b_mem, 0, RECEIVE_BYTES);

	sge.lkey ^= 0x00a5a500;
	post_recv(&setup->b, 2, &sge, 1);
	return request_ends(setup, IBV_WR_SEND, 64, IBV_WC_REM_OP_ERR) &&
	       cq_expect(setup->b.recv_cq, 2, IBV_WC_LOC_PROT_ERR);
}

static bool case_local_error(struct setup *setup)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, REGION_BYTES, 64);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge, 1);

	post_send(&setup->a, &wr);
	return cq_expect(setup->a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
}

static bool case_flush(struct setup *setup)
{
	uint64_t i;

	endpoint_set_state(&setup->a, IBV_QPS_ERR);
	for (i = 0; i < 3; i++)
		request(setup, i, IBV_WR_RDMA_WRITE, 64);
	for (i = 0; i < 2; i++)
		post_recv(&setup->a, i, NULL, 0);
	for (i = 0; i < 3; i++)
		if (!cq_expect(setup->a.send_cq, i, IBV_WC_WR_FLUSH_ERR))
			return false;
	for (i = 0; i < 2; i++)
		if (!cq_expect(setup->a.recv_cq, i, IBV_WC_WR_FLUSH_ERR))
			return false;
	return true;
}

static bool send_datagram(struct setup *setup, struct ibv_ah *ah, uint32_t qpn,
			  uint32_t qkey)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 64);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge, 1);

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	post_send(&setup->a, &wr);
	return cq_expect(setup->a.send_cq, 1, IBV_WC_SUCCESS);
}

/* To nobody, with a wrong key, without a receive, and one that arrives. */
static bool case_datagrams(struct setup *setup)
{
	struct ibv_ah *ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
	uint32_t qpn = setup->b.qp->qp_num;
	bool ok;

	ok = send_datagram(setup, ah, 0xfffffe, ENDPOINT_QKEY) &&
	     send_datagram(setup, ah, qpn, ENDPOINT_QKEY) &&
	     send_datagram(setup, ah, qpn, ENDPOINT_QKEY);
	receive(setup, 5);
	ok = ok && send_datagram(setup, ah, qpn, ENDPOINT_QKEY + 1) &&
	     send_datagram(setup, ah, qpn, ENDPOINT_QKEY) &&
	     cq_expect(setup->b.recv_cq, 5, IBV_WC_SUCCESS);
	return check(!ibv_destroy_ah(ah), "ibv_destroy_ah fails") && ok;
}

/* Without a receive the message of an unreliable connection is lost, whole. */
static bool case_unreliable(struct setup *setup)
{
	if (!request_ends(setup, IBV_WR_SEND, 1U << 20, IBV_WC_SUCCESS))
		return false;
	return exchange(setup, IBV_WR_SEND, 64, 1);
}

static bool case_overflow(struct setup *setup)
{
	struct endpoint_options options = impatient_options();
	struct endpoint own_a = setup->a, own_b = setup->b;
	struct ibv_cq *cq;
	uint64_t i;
	bool ok;

	cq = ibv_create_cq(setup->a_dev.ctx, 2, NULL, NULL, 0);
	if (!cq)
		bail("ibv_create_cq: %s", strerror(errno));
	options.send_cq = cq;
	endpoint_create(&setup->a, &setup->a_dev, &options);
	options.send_cq = NULL;
	endpoint_create(&setup->b, &setup->b_dev, &options);
	pair_connect(&setup->a, &setup->b);
	receive(setup, 3);
	for (i = 0; i < 2; i++)
		request(setup, i, IBV_WR_RDMA_WRITE, 10);
	request(setup, 2, IBV_WR_RDMA_WRITE_WITH_IMM, 10);
	ok = cq_expect(setup->b.recv_cq, 3, IBV_WC_SUCCESS);
	pair_destroy(&setup->a, &setup->b);
	setup->a = own_a;
	setup->b = own_b;
	return check(!ibv_destroy_cq(cq), "ibv_destroy_cq fails") && ok;
}

static bool case_events(struct setup *setup)
{
	struct ibv_comp_channel *channel;
	struct endpoint own_a = setup->a, own_b = setup->b;
	struct endpoint_options options = impatient_options();
	struct ibv_cq *cq;
	void *context;
	bool ok;

	channel = ibv_create_comp_channel(setup->b_dev.ctx);
	if (!channel)
		bail("ibv_create_comp_channel: %s", strerror(errno));
	endpoint_create(&setup->a, &setup->a_dev, &options);
	options.channel = channel;
	endpoint_create(&setup->b, &setup->b_dev, &options);
	pair_connect(&setup->a, &setup->b);
	ok = check(!ibv_req_notify_cq(setup->b.recv_cq, 0),
		   "ibv_req_notify_cq fails") &&
	     exchange(setup, IBV_WR_SEND, 64, 3) &&
	     check(becomes_readable(channel->fd), "no event comes") &&
	     check(!ibv_get_cq_event(channel, &cq, &context),
		   "ibv_get_cq_event fails");
	if (ok)
		ibv_ack_cq_events(cq, 1);
	pair_destroy(&setup->a, &setup->b);
	setup->a = own_a;
	setup->b = own_b;
	return check(!ibv_destroy_comp_channel(channel),
		     "ibv_destroy_comp_channel fails") &&
	       ok;
}

/* More than a run of the engine may do at once. */
static bool case_budget(struct setup *setup)
{
	return exchange(setup, IBV_WR_RDMA_WRITE, REGION_BYTES, 1);
}

static const struct counter_case cases[] = {
	{
		.name = "5 SENDs",
		.run = case_sends,
		.a = { { "sends", 5 },
		       { "send_bytes", 320 },
		       { "engine_runs", 5 } },
		.b = { { "receives", 5 }, { "receive_bytes", 320 } },
	},
	{
		.name = "5 WRITEs, 2 of them with immediate data",
		.run = case_writes,
		.a = { { "rdma_writes", 5 }, { "rdma_write_bytes", 4000 } },
		.b = { { "receives", 2 } },
	},
	{
		.name = "4 READs",
		.run = case_reads,
		.a = { { "rdma_reads", 4 }, { "rdma_read_bytes", 1200 } },
	},
	{
		.name = "100 READs, answered within local_ca_ack_delay",
		.run = count_answers,
		.a = { { "rdma_reads", 100 }, { "rdma_read_bytes", 800 } },
	},
	{
		.name = "3 atomics",
		.run = case_atomics,
		.a = { { "atomics", 3 }, { "atomic_bytes", 24 } },
	},
	{
		.name = "3 atomic writes",
		.run = count_atomic_writes,
		.a = { { "atomics", 3 }, { "atomic_bytes", 24 } },
	},
	{
		.name = "2 local operations",
		.run = case_local,
		.a = { { "local_operations", 2 } },
	},
	{
		.name = "a bind and a local invalidation",
		.run = count_local_invalidation,
		.a = { { "local_operations", 2 } },
	},
	{
		.name = "a bind, and a SEND that invalidates",
		.run = count_remote_invalidation,
		.a = { { "sends", 1 }, { "send_bytes", 64 } },
		.b = { { "local_operations", 1 },
		       { "receives", 1 },
		       { "receive_bytes", 64 } },
	},
	{
		.name = "XRC: a WRITE, a SEND, and one without a receive",
		.run = count_xrc,
		.a = { { "rdma_writes", 1 },
		       { "rdma_write_bytes", 64 },
		       { "sends", 1 },
		       { "send_bytes", 64 },
		       { "rnr_retries", 3 },
		       { "rnr_retries_exceeded", 1 } },
		.b = { { "receives", 1 },
		       { "receive_bytes", 64 },
		       { "rnr_nak_sent", 4 } },
	},
	{
		/* by the worker, however short the timer: a caller does not wait */
		.name = "receiver not ready, 3 retries by the worker",
		.run = case_not_ready,
		.a = { { "rnr_retries", 3 },
		       { "rnr_retries_exceeded", 1 },
		       { "engine_worker_runs", 3 } },
		.b = { { "rnr_nak_sent", 4 } },
	},
	{
		.name = "no answer, 2 retries",
		.run = case_no_answer,
		.a = { { "retries", 2 }, { "retries_exceeded", 1 } },
	},
	{
		.name = "remote access error",
		.run = case_access,
		.a = { { "req_remote_access_errors", 1 } },
		.b = { { "resp_access_errors", 1 }, { "async_events", 1 } },
	},
	{
		.name = "remote invalid request",
		.run = case_invalid,
		.a = { { "req_remote_invalid_requests", 1 } },
		.b = { { "resp_invalid_requests", 1 } },
	},
	{
		.name = "remote operation error",
		.run = case_operation,
		.a = { { "req_remote_operation_errors", 1 } },
		.b = { { "resp_operation_errors", 1 } },
	},
	{
		.name = "local error",
		.run = case_local_error,
		.a = { { "req_local_errors", 1 } },
	},
	{
		.name = "3 requests and 2 receives flushed",
		.run = case_flush,
		.a = { { "flushed", 5 } },
	},
	{
		.name = "5 datagrams, 4 of them dropped",
		.run = case_datagrams,
		.a = { { "sends", 5 }, { "send_bytes", 320 } },
		.b = { { "receives", 1 },
		       { "receive_bytes", 64 },
		       { "messages_dropped", 4 } },
		.type = IBV_QPT_UD,
	},
	{
		.name = "a message of an unreliable connection dropped",
		.run = case_unreliable,
		.a = { { "sends", 2 }, { "send_bytes", (1U << 20) + 64 } },
		.b = { { "receives", 1 },
		       { "receive_bytes", 64 },
		       { "messages_dropped", 1 } },
		.type = IBV_QPT_UC,
	},
	{
		.name = "a completion queue overflows",
		.run = case_overflow,
		.a = { { "rdma_writes", 3 },
		       { "rdma_write_bytes", 30 },
		       { "cq_overflows", 1 },
		       { "async_events", 1 } },
		.b = { { "receives", 1 } },
	},
	{
		.name = "one completion event for 3 SENDs",
		.run = case_events,
		.a = { { "sends", 3 }, { "send_bytes", 192 } },
		.b = { { "receives", 3 },
		       { "receive_bytes", 192 },
		       { "cq_events", 1 } },
	},
	{
		.name = "a message beyond the engine's budget",
		.run = case_budget,
		.a = { { "rdma_writes", 1 },
		       { "rdma_write_bytes", REGION_BYTES },
		       { "engine_runs", 4 },
		       { "engine_worker_runs", 3 },
		       { "engine_budget_exhausted", 3 } },
	},
};

static void run_case(struct setup *setup, const struct counter_case *the_case)
{
	struct endpoint_options options = impatient_options();
	struct counters before_a, before_b;
	bool ok;

	if (the_case->type)
		options.type = the_case->type;
	pair_create(&setup->a, &setup->a_dev, &setup->b, &setup->b_dev,
		    &options);
	read_counters(&setup->a_dev, &before_a);
	read_counters(&setup->b_dev, &before_b);
	ok = the_case->run(setup) &&
	     counters_grow(&setup->a_dev, &before_a, the_case->a) &&
	     counters_grow(&setup->b_dev, &before_b, the_case->b);
	pair_destroy(&setup->a, &setup->b);
	tap_ok(ok, "counters: %s", the_case->name);
}

/* What the tool says is what is in sysfs, too. */
static bool sysfs_agrees(const struct device *dev)
{
	struct counters counters;
	const char *name;
	uint64_t value;
	int i;

	counter_settle();
	read_counters(dev, &counters);
	for (i = 0; i < counters.count; i++) {
		name = counters.counter[i].name;
		value = counter_now(dev, name);
		if (!check(value == counters.counter[i].value,
			   "%s is %" PRIu64 ", not %" PRIu64, name, value,
			   counters.counter[i].value))
			return false;
	}
	return true;
}

void test_counters(struct setup *setup)
{
	unsigned int i;

	for (i = 0; i < COUNT(cases); i++)
		run_case(setup, &cases[i]);
	tap_ok(sysfs_agrees(&setup->a_dev) && sysfs_agrees(&setup->b_dev),
	       "counters: sysfs says the same");
}
