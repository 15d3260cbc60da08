// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Requests of a kernel consumer that go wrong, over RC and over UC: the status on both
 * sides, what is flushed, the states, the event, and a connection beside them that
 * goes on. Loading the module runs one case, all faults of a service; that fails if one
 * does, and the log says which.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

#include "cases.h"
#include "side.h"

#define TEST_BYTES	256
#define TEST_SEED	0x5a
#define TEST_WRONG	0x00a5a500	/* makes a key another one */

enum {
	TEST_BAD = 1,
	TEST_LATE,
	TEST_AGAIN,
	TEST_RECEIVE = 100,
	TEST_RECEIVES = 2,
	TEST_NEIGHBOUR = 200,
};

/**
 * struct memory - a page, and a region of it
 * @side: whose it is
 * @page: memory
 * @mr: region, in place when @key is; NULL: there is none
 * @key: its key
 */
struct memory {
	struct side *side;
	u8 *page;
	struct ib_mr *mr;
	u32 key;
};

/**
 * struct bench - what a case works with
 * @near: sends
 * @far: receives, and has the memory
 * @beside: connection that nothing may happen to
 * @from: of @near
 * @to: of @far
 * @rdma: the request that goes wrong
 * @request: the same if it is an atomic
 * @sge: its memory
 * @receive: memory of the first receive
 * @receives: how many there are
 */
struct bench {
	struct side near;
	struct side far;
	struct side beside[2];
	struct memory from;
	struct memory to;
	struct ib_rdma_wr rdma;
	struct ib_atomic_wr request;
	struct ib_sge sge;
	struct ib_sge receive;
	int receives;
};

/* --- memory ------------------------------------------------------------------ */

static int memory_open(struct memory *memory, struct side *side)
{
	memory->side = side;
	memory->page = (u8 *)get_zeroed_page(GFP_KERNEL);
	return memory->page ? 0 : -ENOMEM;
}

static void memory_close(struct memory *memory)
{
	free_page((unsigned long)memory->page);
}

static void memory_forget(struct memory *memory)
{
	if (!IS_ERR_OR_NULL(memory->mr))
		ib_dereg_mr(memory->mr);
	memory->mr = NULL;
}

/* A region of @TEST_BYTES in the middle of the page, with these rights. */
static int memory_register(struct memory *memory, int access)
{
	struct ib_reg_wr wr = { .wr = { .opcode = IB_WR_REG_MR }, .access = access };
	struct scatterlist sg;
	int n;

	memory_forget(memory);
	memory->mr = ib_alloc_mr(memory->side->pd, IB_MR_TYPE_MEM_REG, 1);
	if (IS_ERR(memory->mr))
		return PTR_ERR(memory->mr);
	sg_init_one(&sg, memory->page + TEST_BYTES, TEST_BYTES);
	if (ib_dma_map_sg(memory->side->dev, &sg, 1, DMA_BIDIRECTIONAL) != 1)
		return -EIO;
	n = ib_map_mr_sg(memory->mr, &sg, 1, NULL, PAGE_SIZE);
	if (n != 1)
		return n < 0 ? n : -EINVAL;
	ib_update_fast_reg_key(memory->mr, ib_inc_rkey(memory->mr->rkey));
	memory->key = memory->mr->rkey;
	wr.mr = memory->mr;
	wr.key = memory->key;
	return side_execute(memory->side, &wr.wr);
}

/* --- faults ------------------------------------------------------------------ */

static int wrong_lkey(struct bench *bench)
{
	bench->sge.lkey ^= TEST_WRONG;
	return 0;
}

static int stale_lkey(struct bench *bench)
{
	struct ib_send_wr wr = {
		.opcode = IB_WR_LOCAL_INV, .ex.invalidate_rkey = bench->from.key,
	};

	return side_execute(&bench->near, &wr);
}

static int beyond_local(struct bench *bench)
{
	bench->sge.addr += TEST_BYTES - bench->sge.length + 1;
	return 0;
}

static int no_local_write(struct bench *bench)
{
	int err = memory_register(&bench->from, IB_ACCESS_REMOTE_READ);

	bench->sge.lkey = bench->from.key;
	return err;
}

static int short_word(struct bench *bench)
{
	bench->sge.length = 4;
	return 0;
}

static int wrong_rkey(struct bench *bench)
{
	bench->rdma.rkey ^= TEST_WRONG;
	return 0;
}

static int stale_rkey(struct bench *bench)
{
	struct ib_send_wr wr = {
		.opcode = IB_WR_LOCAL_INV, .ex.invalidate_rkey = bench->to.key,
	};

	return side_execute(&bench->far, &wr);
}

static int beyond_remote(struct bench *bench)
{
	bench->rdma.remote_addr += TEST_BYTES - bench->sge.length + 8;
	return 0;
}

static int no_rights(struct bench *bench)
{
	int err = memory_register(&bench->to, IB_ACCESS_LOCAL_WRITE);

	bench->rdma.rkey = bench->to.key;
	return err;
}

static int qp_without_rights(struct bench *bench)
{
	struct ib_qp_attr attr = { .qp_access_flags = 0 };

	return ib_modify_qp(bench->far.qp, &attr, IB_QP_ACCESS_FLAGS);
}

static int misaligned(struct bench *bench)
{
	bench->rdma.remote_addr += 4;
	return 0;
}

static int short_receive(struct bench *bench)
{
	bench->receive.length = bench->sge.length - 1;
	return 0;
}

static int wrong_receive(struct bench *bench)
{
	bench->receive.lkey ^= TEST_WRONG;
	return 0;
}

static int no_receive(struct bench *bench)
{
	bench->receives = 0;
	return 0;
}

static int peer_in_error(struct bench *bench)
{
	return side_set_state(&bench->far, IB_QPS_ERR);
}

static int wrong_invalidation(struct bench *bench)
{
	bench->request.wr.ex.invalidate_rkey = bench->to.key ^ TEST_WRONG;
	return 0;
}

static int nothing_wrong(struct bench *bench)
{
	return 0;
}

/* What the receives end with. */
enum far_end {
	FAR_UNTOUCHED,	/* none has completed, the queue pair is in RTS */
	FAR_NEXT,	/* the message behind takes the first one */
	FAR_BOTH,	/* both messages arrive */
	FAR_FLUSHED,	/* all are flushed, in error */
	FAR_FAILED,	/* the first one with a status, the others are flushed */
};

struct outcome {
	enum ib_wc_status status;
	enum far_end end;
	enum ib_wc_status received;
	int event;		/* at the far side; 0: none (IB_EVENT_CQ_ERR) */
};

#define LOCAL(what)	{ what, FAR_UNTOUCHED, 0, 0 }
#define REMOTE(what, which) { what, FAR_FLUSHED, 0, which }
#define RECEIVE(what, in, which) { what, FAR_FAILED, in, which }
#define LOST		{ IB_WC_SUCCESS, FAR_NEXT, 0, 0 }

#define OP(opcode)	BIT_ULL(IB_WR_##opcode)
#define MOVES	(OP(SEND) | OP(RDMA_WRITE) | OP(RDMA_READ) | OP(ATOMIC_FETCH_AND_ADD))
#define NAMES	(OP(RDMA_WRITE) | OP(RDMA_READ) | OP(ATOMIC_FETCH_AND_ADD))
#define OF_UC	(OP(SEND) | OP(RDMA_WRITE) | OP(SEND_WITH_INV) | OP(LOCAL_INV))

static const enum ib_wr_opcode opcodes[] = {
	IB_WR_SEND, IB_WR_RDMA_WRITE, IB_WR_RDMA_READ, IB_WR_ATOMIC_FETCH_AND_ADD,
	IB_WR_SEND_WITH_INV, IB_WR_LOCAL_INV,
};

/**
 * struct fault - a row of the table
 * @name: what is wrong
 * @opcodes: with these requests, a bit for each
 * @arrange: makes it so
 * @rc: what comes of it over RC
 * @uc: over UC, of the requests it has
 */
struct fault {
	const char *name;
	u64 opcodes;
	int (*arrange)(struct bench *bench);
	struct outcome rc;
	struct outcome uc;
};

static const struct fault faults[] = {
	{ "nothing", MOVES, nothing_wrong,
	  { IB_WC_SUCCESS, FAR_BOTH, 0, 0 }, { IB_WC_SUCCESS, FAR_BOTH, 0, 0 } },
	{ "unknown lkey", MOVES, wrong_lkey,
	  LOCAL(IB_WC_LOC_PROT_ERR), LOCAL(IB_WC_LOC_PROT_ERR) },
	{ "invalidated lkey", MOVES, stale_lkey,
	  LOCAL(IB_WC_LOC_PROT_ERR), LOCAL(IB_WC_LOC_PROT_ERR) },
	{ "beyond the local region", MOVES, beyond_local,
	  LOCAL(IB_WC_LOC_PROT_ERR), LOCAL(IB_WC_LOC_PROT_ERR) },
	{ "no local write", OP(RDMA_READ) | OP(ATOMIC_FETCH_AND_ADD), no_local_write,
	  LOCAL(IB_WC_LOC_PROT_ERR), LOCAL(0) },
	{ "word of 4 bytes", OP(ATOMIC_FETCH_AND_ADD), short_word,
	  LOCAL(IB_WC_LOC_LEN_ERR), LOCAL(0) },
	{ "unknown key to invalidate", OP(LOCAL_INV), wrong_invalidation,
	  LOCAL(IB_WC_LOC_QP_OP_ERR), LOCAL(IB_WC_LOC_QP_OP_ERR) },
	{ "unknown rkey", NAMES, wrong_rkey,
	  REMOTE(IB_WC_REM_ACCESS_ERR, IB_EVENT_QP_ACCESS_ERR), LOST },
	{ "invalidated rkey", NAMES, stale_rkey,
	  REMOTE(IB_WC_REM_ACCESS_ERR, IB_EVENT_QP_ACCESS_ERR), LOST },
	{ "beyond the remote region", NAMES, beyond_remote,
	  REMOTE(IB_WC_REM_ACCESS_ERR, IB_EVENT_QP_ACCESS_ERR), LOST },
	{ "region without rights", NAMES, no_rights,
	  REMOTE(IB_WC_REM_ACCESS_ERR, IB_EVENT_QP_ACCESS_ERR), LOST },
	{ "queue pair without rights", NAMES, qp_without_rights,
	  REMOTE(IB_WC_REM_INV_REQ_ERR, IB_EVENT_QP_REQ_ERR), LOST },
	{ "misaligned word", OP(ATOMIC_FETCH_AND_ADD), misaligned,
	  REMOTE(IB_WC_REM_INV_REQ_ERR, IB_EVENT_QP_REQ_ERR), LOST },
	{ "receive too short", OP(SEND), short_receive,
	  RECEIVE(IB_WC_REM_INV_REQ_ERR, IB_WC_LOC_LEN_ERR, 0),
	  RECEIVE(IB_WC_SUCCESS, IB_WC_LOC_LEN_ERR, 0) },
	{ "receive with an unknown lkey", OP(SEND), wrong_receive,
	  RECEIVE(IB_WC_REM_OP_ERR, IB_WC_LOC_PROT_ERR, 0),
	  RECEIVE(IB_WC_SUCCESS, IB_WC_LOC_PROT_ERR, 0) },
	{ "unknown key to invalidate", OP(SEND_WITH_INV), wrong_invalidation,
	  RECEIVE(IB_WC_REM_ACCESS_ERR, IB_WC_LOC_ACCESS_ERR, IB_EVENT_QP_ACCESS_ERR),
	  RECEIVE(IB_WC_SUCCESS, IB_WC_LOC_ACCESS_ERR, IB_EVENT_QP_ACCESS_ERR) },
	{ "no receive", OP(SEND), no_receive,
	  LOCAL(IB_WC_RNR_RETRY_EXC_ERR), { IB_WC_SUCCESS, FAR_UNTOUCHED, 0, 0 } },
	{ "peer in error", MOVES, peer_in_error,
	  REMOTE(IB_WC_RETRY_EXC_ERR, 0), REMOTE(IB_WC_SUCCESS, 0) },
};

/* --- what comes of them -------------------------------------------------------- */

static int expect_number(const char *what, int number, int expected)
{
	if (number == expected)
		return 0;
	pr_err("%s: %d instead of %d\n", what, number, expected);
	return -EIO;
}

static int expect(struct side *side, u64 id, enum ib_wc_status status)
{
	struct ib_wc wc;
	int err = side_wait(side, &wc);

	if (err) {
		pr_err("%llu does not complete: %d\n", id, err);
	} else if (wc.wr_id != id || wc.status != status) {
		pr_err("%llu is %s, not %llu %s\n", wc.wr_id,
		       ib_wc_status_msg(wc.status), id, ib_wc_status_msg(status));
		err = -EIO;
	}
	return err;
}

static int expect_none(struct side *side)
{
	struct ib_wc wc;

	return expect_number("completions", ib_poll_cq(side->cq, 1, &wc), 0);
}

static int post_receive(struct side *side, u64 id, struct ib_sge *sge)
{
	struct ib_recv_wr wr = { .wr_id = id, .sg_list = sge, .num_sge = !!sge };

	return ib_post_recv(side->qp, &wr, NULL);
}

/* In one list, so that the second one waits behind the first. */
static int post_requests(struct bench *bench, enum ib_wr_opcode opcode)
{
	struct ib_send_wr late = { .wr_id = TEST_LATE, .opcode = IB_WR_SEND };
	struct ib_send_wr *wr = &bench->rdma.wr;

	if (opcode == IB_WR_ATOMIC_FETCH_AND_ADD) {
		wr = &bench->request.wr;
		bench->request.remote_addr = bench->rdma.remote_addr;
		bench->request.rkey = bench->rdma.rkey;
		bench->request.compare_add = 1;
	}
	wr->wr_id = TEST_BAD;
	wr->opcode = opcode;
	wr->next = &late;
	wr->ex.invalidate_rkey = bench->request.wr.ex.invalidate_rkey;
	if (opcode != IB_WR_LOCAL_INV) {
		wr->sg_list = &bench->sge;
		wr->num_sge = 1;
	}
	return ib_post_send(bench->near.qp, wr, NULL);
}

static int check_near(struct bench *bench, const struct outcome *outcome)
{
	bool failed = outcome->status != IB_WC_SUCCESS;
	int state = bench->near.type == IB_QPT_UC ? IB_QPS_SQE : IB_QPS_ERR;

	return expect(&bench->near, TEST_BAD, outcome->status) ?:
	       expect(&bench->near, TEST_LATE,
		      failed ? IB_WC_WR_FLUSH_ERR : IB_WC_SUCCESS) ?:
	       expect_number("state of the requester", side_state(&bench->near),
			     failed ? state : IB_QPS_RTS);
}

static int check_far(struct bench *bench, const struct outcome *outcome,
		     enum ib_wr_opcode opcode)
{
	bool failed = outcome->end == FAR_FLUSHED || outcome->end == FAR_FAILED;
	/* not all requests take a receive */
	int arrived = outcome->end == FAR_BOTH ? 1 + (opcode == IB_WR_SEND) :
		      outcome->end == FAR_NEXT;
	int i, err = 0;

	for (i = 0; i < bench->receives && !err; i++)
		if (!i && outcome->end == FAR_FAILED)
			err = expect(&bench->far, TEST_RECEIVE, outcome->received);
		else if (failed)
			err = expect(&bench->far, TEST_RECEIVE + i,
				     IB_WC_WR_FLUSH_ERR);
		else if (i < arrived)
			err = expect(&bench->far, TEST_RECEIVE + i, IB_WC_SUCCESS);
	return err ?: expect_none(&bench->far) ?:
	       expect_number("state of the responder", side_state(&bench->far),
			     failed ? IB_QPS_ERR : IB_QPS_RTS);
}

static int check_events(struct bench *bench, const struct outcome *outcome)
{
	int i, err = 0;

	for (i = 1; i < ARRAY_SIZE(bench->far.events) && !err; i++) {
		if (i == IB_EVENT_COMM_EST)
			continue;
		err = expect_number(ib_event_msg(i),
				    atomic_read(&bench->far.events[i]),
				    i == outcome->event) ?:
		      expect_number("the requester's events",
				    atomic_read(&bench->near.events[i]), 0);
	}
	return err;
}

/* Nothing was written, but perhaps into receives. */
static int check_memory(struct bench *bench, const struct outcome *outcome)
{
	if (outcome->end == FAR_BOTH ||
	    (!memchr_inv(bench->to.page, TEST_SEED, 2 * TEST_BYTES) &&
	     !memchr_inv(bench->from.page, 0, PAGE_SIZE)))
		return 0;
	pr_err("memory has changed\n");
	return -EIO;
}

/* From SQE it goes on. */
static int goes_on(struct bench *bench)
{
	struct ib_send_wr wr = { .wr_id = TEST_AGAIN, .opcode = IB_WR_SEND };

	if (side_state(&bench->near) != IB_QPS_SQE)
		return 0;
	return side_set_state(&bench->near, IB_QPS_RTS) ?:
	       ib_post_send(bench->near.qp, &wr, NULL) ?:
	       expect(&bench->near, TEST_AGAIN, IB_WC_SUCCESS) ?:
	       expect(&bench->far, TEST_RECEIVE, IB_WC_SUCCESS);
}

static int neighbour_works(struct bench *bench)
{
	struct ib_send_wr wr = { .wr_id = TEST_NEIGHBOUR, .opcode = IB_WR_SEND };

	return post_receive(&bench->beside[1], TEST_NEIGHBOUR, NULL) ?:
	       side_execute(&bench->beside[0], &wr) ?:
	       expect(&bench->beside[1], TEST_NEIGHBOUR, IB_WC_SUCCESS);
}

/* --- a fault ------------------------------------------------------------------- */

static int connect(struct side *one, struct side *other)
{
	return side_create_qp(one, NULL) ?: side_create_qp(other, NULL) ?:
	       side_connect(one, other) ?: side_connect(other, one);
}

static int scene_open(struct bench *bench)
{
	int access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ |
		     IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC;
	int err;

	memset(bench->near.events, 0, sizeof(bench->near.events));
	memset(bench->far.events, 0, sizeof(bench->far.events));
	memset(bench->from.page, 0, PAGE_SIZE);
	memset(bench->to.page, TEST_SEED, PAGE_SIZE);
	err = connect(&bench->near, &bench->far) ?:
	      memory_register(&bench->from, access) ?:
	      memory_register(&bench->to, access);
	if (err)
		return err;
	memset(&bench->request, 0, sizeof(bench->request));
	memset(&bench->rdma, 0, sizeof(bench->rdma));
	bench->sge = (struct ib_sge) {
		bench->from.mr->iova, sizeof(u64), bench->from.key,
	};
	bench->rdma.remote_addr = ALIGN(bench->to.mr->iova, 8);
	bench->rdma.rkey = bench->to.key;
	bench->receive = (struct ib_sge) {
		(uintptr_t)bench->to.page + PAGE_SIZE / 2, TEST_BYTES,
		bench->far.pd->local_dma_lkey,
	};
	bench->receives = TEST_RECEIVES;
	return 0;
}

static void scene_close(struct bench *bench)
{
	memory_forget(&bench->from);
	memory_forget(&bench->to);
	side_destroy_qp(&bench->near);
	side_destroy_qp(&bench->far);
}

static int post_receives(struct bench *bench)
{
	int i, err = 0;

	for (i = 0; i < bench->receives && !err; i++)
		err = post_receive(&bench->far, TEST_RECEIVE + i,
				   i ? NULL : &bench->receive);
	return err;
}

static int run_fault(struct bench *bench, const struct fault *fault,
		     enum ib_wr_opcode opcode)
{
	const struct outcome *outcome = bench->near.type == IB_QPT_UC ? &fault->uc :
								       &fault->rc;

	return scene_open(bench) ?: fault->arrange(bench) ?: post_receives(bench) ?:
	       post_requests(bench, opcode) ?: check_near(bench, outcome) ?:
	       check_far(bench, outcome, opcode) ?: check_events(bench, outcome) ?:
	       check_memory(bench, outcome) ?: goes_on(bench) ?:
	       neighbour_works(bench);
}

static int run_faults(struct bench *bench, enum ib_qp_type type)
{
	u64 has = type == IB_QPT_UC ? OF_UC : ~0ULL;
	int i, k, err = 0, count = 0;

	bench->near.type = type;
	bench->far.type = type;
	for (i = 0; i < ARRAY_SIZE(faults); i++)
		for (k = 0; k < ARRAY_SIZE(opcodes) && !err; k++) {
			if (!(faults[i].opcodes & has & BIT_ULL(opcodes[k])))
				continue;
			err = run_fault(bench, &faults[i], opcodes[k]);
			scene_close(bench);
			count++;
			if (err)
				pr_err("%s, opcode %d: %d\n", faults[i].name,
				       opcodes[k], err);
		}
	pr_info("%d faults\n", count);
	return err;
}

/* --- cases ------------------------------------------------------------------- */

static int test_rc(struct bench *bench)
{
	return run_faults(bench, IB_QPT_RC);
}

static int test_uc(struct bench *bench)
{
	return run_faults(bench, IB_QPT_UC);
}

/* What UC does not have completes as such, and so does what comes in error. */
static int test_refused(struct bench *bench)
{
	int err;

	bench->near.type = IB_QPT_UC;
	bench->far.type = IB_QPT_UC;
	err = scene_open(bench) ?: post_receives(bench) ?:
	      post_requests(bench, IB_WR_RDMA_READ) ?:
	      expect(&bench->near, TEST_BAD, IB_WC_LOC_QP_OP_ERR) ?:
	      expect(&bench->near, TEST_LATE, IB_WC_WR_FLUSH_ERR) ?:
	      goes_on(bench) ?: side_set_state(&bench->near, IB_QPS_ERR) ?:
	      post_requests(bench, IB_WR_RDMA_WRITE) ?:
	      expect(&bench->near, TEST_BAD, IB_WC_WR_FLUSH_ERR) ?:
	      expect(&bench->near, TEST_LATE, IB_WC_WR_FLUSH_ERR) ?:
	      post_receive(&bench->near, TEST_RECEIVE, NULL) ?:
	      expect(&bench->near, TEST_RECEIVE, IB_WC_WR_FLUSH_ERR) ?:
	      neighbour_works(bench);
	scene_close(bench);
	return err;
}

static const struct test_case tests[] = {
	{ "rc", test_rc },
	{ "uc", test_uc },
	{ "refused", test_refused },
};

static int bench_open(struct bench *bench, const char *device, const char *peer)
{
	int err;

	err = side_open(&bench->near, device) ?: side_open(&bench->far, peer) ?:
	      side_open(&bench->beside[0], device) ?:
	      side_open(&bench->beside[1], peer) ?:
	      connect(&bench->beside[0], &bench->beside[1]) ?:
	      memory_open(&bench->from, &bench->near) ?:
	      memory_open(&bench->to, &bench->far);
	bench->near.rnr_retry = 1;
	bench->near.timeout = 8;
	bench->far.access |= IB_ACCESS_REMOTE_ATOMIC;
	return err;
}

static void bench_close(struct bench *bench)
{
	scene_close(bench);
	memory_close(&bench->from);
	memory_close(&bench->to);
	side_close(&bench->near);
	side_close(&bench->far);
	side_close(&bench->beside[0]);
	side_close(&bench->beside[1]);
}

const struct cases cases = {
	.of = tests,
	.count = ARRAY_SIZE(tests),
	.bench_size = sizeof(struct bench),
	.open = bench_open,
	.close = bench_close,
};

MODULE_DESCRIPTION("Statuses of a kernel consumer's requests");
MODULE_LICENSE("Dual BSD/GPL");
