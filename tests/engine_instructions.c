// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * How many instructions it takes to post small requests that the kernel executes, with
 * all that the system call and the kernel do, where the clock counts instructions (./run
 * vm --icount). The limits are somewhat above what they were when this was written
 * (performance.md): what makes a request that much longer should be known.
 */
#include <stdint.h>

#include "counting.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { REGION_BYTES = 4096, ROUNDS = 101 };

static const struct {
	const char *name;
	enum ibv_wr_opcode opcode;
	int flags;
	unsigned int limit;
} cases[] = {
	{ "a SEND", IBV_WR_SEND, 0, 3600 },
	{ "a SEND with inline data", IBV_WR_SEND, IBV_SEND_INLINE, 3300 },
	{ "a WRITE", IBV_WR_RDMA_WRITE, 0, 3300 },
	{ "a READ", IBV_WR_RDMA_READ, 0, 3350 },
	{ "an atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 3400 },
};

static bool execute(struct endpoint *a, struct endpoint *b,
		    struct ibv_send_wr *wr, struct ibv_sge *to, uint64_t *ns)
{
	struct ibv_send_wr *bad;
	uint64_t start;
	int err;

	if (wr->opcode == IBV_WR_SEND)
		post_recv(b, 2, to, 1);
	start = now_ns();
	err = ibv_post_send(a->qp, wr, &bad);
	*ns = now_ns() - start;
	return check(!err, "ibv_post_send: %d", err) &&
	       cq_expect(a->send_cq, 1, IBV_WC_SUCCESS) &&
	       (wr->opcode != IBV_WR_SEND ||
		cq_expect(b->recv_cq, 2, IBV_WC_SUCCESS));
}

static bool is_short(struct setup *setup, unsigned int i)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_sge from = region_sge(&setup->a_mem, 0, 8);
	struct ibv_sge to = region_sge(&setup->b_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, cases[i].opcode, &from, 1);
	uint64_t values[ROUNDS], cost;
	struct endpoint a, b;
	unsigned int k;
	bool ok = true;

	options.inline_bytes = 64;
	pair_create(&a, &setup->a_dev, &b, &setup->b_dev, &options);
	wr.send_flags = IBV_SEND_SIGNALED | cases[i].flags;
	send_wr_aim(&wr, setup->b_mem.rdma_addr, setup->b_mem.mr->rkey);
	for (k = 0; ok && k < ROUNDS; k++)
		ok = execute(&a, &b, &wr, &to, &values[k]);
	pair_destroy(&a, &b);
	if (!ok)
		return false;
	cost = median(values, ROUNDS) - clock_cost();
	tap_note("%s: %llu", cases[i].name, (unsigned long long)cost);
	return check(cost <= cases[i].limit, "%llu, at most %u",
		     (unsigned long long)cost, cases[i].limit) &&
	       check(cost > cases[i].limit / 2,
		     "%llu: half of what was known: what is counted?",
		     (unsigned long long)cost);
}

int main(int argc, char **argv)
{
	struct setup setup;
	unsigned int i;

	if (!tap_ok(clock_counts(), "the clock counts instructions"))
		return tap_end();
	setup_open(&setup, &argc, argv, REGION_BYTES);
	for (i = 0; i < COUNT(cases); i++)
		tap_ok(is_short(&setup, i), "the kernel executes %s",
		       cases[i].name);
	setup_close(&setup);
	return tap_end();
}
