// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * How many instructions it takes to post small requests that this process executes, and
 * to poll their completions, in a program with one thread. The limits are somewhat above
 * what they were when this was written (performance.md): what makes a request that much
 * longer should be known.
 */
#include <stdio.h>
#include <string.h>

#include "setup.h"
#include "tally.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Before that the peer is mapped, and functions are looked for. */
enum { REGION_BYTES = 4096, WARM = 4 };

static const struct {
	const char *name;
	enum ibv_wr_opcode opcode;
	uint32_t bytes;
	int flags;
	unsigned int post;
	unsigned int poll;
} cases[] = {
	{ "a WRITE", IBV_WR_RDMA_WRITE, 8, 0, 180, 75 },
	{ "a WRITE with inline data", IBV_WR_RDMA_WRITE, 8, IBV_SEND_INLINE,
	  165, 75 },
	{ "a WRITE of 64 bytes", IBV_WR_RDMA_WRITE, 64, 0, 240, 75 },
	{ "a READ", IBV_WR_RDMA_READ, 8, 0, 190, 75 },
	{ "an atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, 190, 75 },
};

static bool is_done(int err, int n, const struct ibv_wc *wc)
{
	return check(!err && n == 1, "post: %d, poll: %d", err, n) &&
	       check(wc->status == IBV_WC_SUCCESS, "%s",
		     ibv_wc_status_str(wc->status));
}

static bool warm_up(struct ibv_qp *qp, struct ibv_cq *cq,
		    struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int err = ibv_post_send(qp, wr, &bad);

	return is_done(err, ibv_poll_cq(cq, 1, &wc), &wc);
}

static bool count_one(struct ibv_qp *qp, struct ibv_cq *cq,
		      struct ibv_send_wr *wr, unsigned int *post,
		      unsigned int *poll)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int err, n;

	tally_mark();
	err = ibv_post_send(qp, wr, &bad);
	tally_mark();
	*post = tally->instructions;
	tally_mark();
	n = ibv_poll_cq(cq, 1, &wc);
	tally_mark();
	*poll = tally->instructions;
	return is_done(err, n, &wc);
}

static bool is_short(struct setup *setup, unsigned int i)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, cases[i].bytes);
	struct ibv_send_wr wr = send_wr(0, cases[i].opcode, &sge, 1);
	unsigned int k, post = 0, poll = 0;
	struct endpoint a, b;
	bool ok = true;

	options.inline_bytes = 64;
	pair_create(&a, &setup->a_dev, &b, &setup->b_dev, &options);
	wr.send_flags = IBV_SEND_SIGNALED | cases[i].flags;
	send_wr_aim(&wr, setup->b_mem.rdma_addr, setup->b_mem.mr->rkey);
	for (k = 0; ok && k < WARM; k++)
		ok = warm_up(a.qp, a.send_cq, &wr);
	ok = ok && count_one(a.qp, a.send_cq, &wr, &post, &poll);
	pair_destroy(&a, &b);
	printf("# %s: post %u, poll %u\n", cases[i].name, post, poll);
	return ok &&
	       check(post && post <= cases[i].post, "post: %u at most",
		     cases[i].post) &&
	       check(poll && poll <= cases[i].poll, "poll: %u at most",
		     cases[i].poll);
}

static int be_counted(int argc, char **argv)
{
	struct setup setup;
	unsigned int i;
	int result;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	for (i = 0; i < COUNT(cases); i++)
		tap_ok(is_short(&setup, i), "instructions: %s", cases[i].name);
	setup_close(&setup);
	result = tap_end();
	fflush(stdout);
	return result;
}

int main(int argc, char **argv)
{
	if (!TALLY_CAN_COUNT) {
		tap_skip("only those of x86-64 are known", "instructions");
		return tap_end();
	}
	return tally_run(be_counted, argc, argv);
}
