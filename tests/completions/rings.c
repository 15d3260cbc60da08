// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Rings that wrap many times, and lists of requests.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "work.h"
#include "completions.h"

/* Long enough for an event that should not come to be seen. */
#define QUIET_MS 50

/* Keep @pair's queues full for @total messages that carry their number. */
static bool stream(struct pair *pair, uint64_t total)
{
	uint64_t *slots_a = (uint64_t *)(pair->setup->a_mem.addr + WORD_OFFSET);
	uint64_t *slots_b = (uint64_t *)(pair->setup->b_mem.addr + WORD_OFFSET);
	uint32_t depth = pair->a.options.depth;
	uint64_t posted = 0, received = 0, sent = 0;
	struct ibv_wc wc;
	uint64_t i;

	for (i = 0; i < depth; i++)
		post_b_receive(pair, i, WORD_OFFSET + i * 8, 8);
	while (received < total) {
		for (; posted < total && posted - sent < depth; posted++) {
			slots_a[posted % depth] = ~posted;
			post_a(pair, posted, IBV_WR_SEND,
			       WORD_OFFSET + posted % depth * 8, 8,
			       IBV_SEND_SIGNALED);
		}
		if (!cq_success(pair->a.send_cq, sent++, &wc) ||
		    !cq_success(pair->b.recv_cq, received, &wc) ||
		    !check(slots_b[received % depth] == ~received,
			   "message %" PRIu64 " has other bytes", received))
			return false;
		post_b_receive(pair, received + depth,
			       WORD_OFFSET + received % depth * 8, 8);
		received++;
	}
	return true;
}

static bool run_stream(struct setup *setup, uint32_t depth, uint64_t total)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct pair pair;
	bool ok;

	options.depth = depth;
	pair_open(&pair, setup, &options);
	ok = stream(&pair, repetitions(setup, total));
	pair_close(&pair);
	return ok;
}

bool case_stream_depth_1(struct setup *setup)
{
	return run_stream(setup, 1, 1000);
}

bool case_stream_depth_13(struct setup *setup)
{
	return run_stream(setup, 13, 20000);
}

bool case_stream_depth_1024(struct setup *setup)
{
	return run_stream(setup, 1024, 20000);
}

/* Chains of requests through one call, with unsignalled ones in between. */
bool case_lists(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_send_wr wrs[64], *bad;
	struct ibv_sge sge;
	unsigned int round, i, count;
	struct pair pair;
	bool ok = true;
	int error;

	pair_open(&pair, setup, &options);
	sge = a_sge(&pair, 0, 100);
	for (round = 0; round < 200 && ok; round++) {
		count = 1 + round % COUNT(wrs);
		for (i = 0; i < count; i++) {
			wrs[i] = send_wr(i, IBV_WR_RDMA_WRITE, &sge, 1);
			wrs[i].wr.rdma.remote_addr = setup->b_mem.rdma_addr;
			wrs[i].wr.rdma.rkey = setup->b_mem.mr->rkey;
			wrs[i].next = i + 1 < count ? &wrs[i + 1] : NULL;
			if (i + 1 < count)
				wrs[i].send_flags = 0;
		}
		error = ibv_post_send(pair.a.qp, wrs, &bad);
		ok = check(!error, "posting a list of %u: %s", count,
			   strerror(error)) &&
		     cq_expect(pair.a.send_cq, count - 1, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
	return ok;
}

/* A list that does not fit: all before the bad one are posted. */
static bool overfull_list(struct pair *pair)
{
	struct ibv_qp_init_attr init;
	struct ibv_send_wr *wrs, *bad = NULL;
	struct ibv_qp_attr attr;
	uint32_t capacity, i;
	bool ok;
	int error;

	if (ibv_query_qp(pair->a.qp, &attr, IBV_QP_CAP, &init))
		bail("ibv_query_qp fails");
	capacity = init.cap.max_send_wr;
	wrs = calloc(capacity + 1, sizeof(*wrs));
	if (!wrs)
		bail("out of memory");
	/* Without receives none of these can complete. */
	for (i = 0; i <= capacity; i++) {
		wrs[i] = send_wr(i, IBV_WR_SEND, NULL, 0);
		wrs[i].next = i < capacity ? &wrs[i + 1] : NULL;
	}
	error = ibv_post_send(pair->a.qp, wrs, &bad);
	ok = check(error == ENOMEM, "a request too many gives %d (%s)", error,
		   strerror(error)) &&
	     check(bad == &wrs[capacity], "bad_wr is request %td",
		   bad ? bad - wrs : -1);
	for (i = 0; i < capacity && ok; i++) {
		post_recv(&pair->b, i, NULL, 0);
		ok = cq_expect(pair->a.send_cq, i, IBV_WC_SUCCESS) &&
		     cq_expect(pair->b.recv_cq, i, IBV_WC_SUCCESS);
	}
	free(wrs);
	return ok && cq_stays_empty(pair->a.send_cq, QUIET_MS);
}

bool case_overfull_list(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct pair pair;
	bool ok;

	options.depth = 16;
	pair_open(&pair, setup, &options);
	ok = overfull_list(&pair);
	pair_close(&pair);
	return ok;
}

bool case_overfull_receive_list(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair pair;
	uint32_t i;
	int error;
	bool ok;

	options.depth = 16;
	pair_open(&pair, setup, &options);
	if (ibv_query_qp(pair.b.qp, &attr, IBV_QP_CAP, &init))
		bail("ibv_query_qp fails");
	for (i = 0; i < init.cap.max_recv_wr; i++)
		post_recv(&pair.b, i, NULL, 0);
	error = try_post_recv(&pair.b, i, NULL, 0);
	ok = check(error == ENOMEM, "a receive too many gives %d (%s)", error,
		   strerror(error));
	for (i = 0; i < init.cap.max_recv_wr && ok; i++) {
		post_a(&pair, i, IBV_WR_SEND, 0, 0, IBV_SEND_SIGNALED);
		ok = cq_expect(pair.a.send_cq, i, IBV_WC_SUCCESS) &&
		     cq_expect(pair.b.recv_cq, i, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
	return ok;
}
