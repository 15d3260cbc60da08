// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Requests of a kernel consumer that go wrong, over RC and over UC: the status on both
 * sides, what is flushed, the states, the event, and a connection beside them that
 * goes on. Loading the module runs one case, all faults of a service; that fails if one
 * does, and the log says which.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/string.h>

#include "cases.h"
#include "status.h"

#define TEST_SEED	0x5a

enum {
	TEST_BAD = 1,
	TEST_LATE,
	TEST_AGAIN,
	TEST_RECEIVE = 100,
	TEST_RECEIVES = 2,
	TEST_NEIGHBOUR = 200,
};

#define OF_UC	(BIT_ULL(IB_WR_SEND) | BIT_ULL(IB_WR_SEND_WITH_IMM) | \
		 BIT_ULL(IB_WR_RDMA_WRITE) | BIT_ULL(IB_WR_RDMA_WRITE_WITH_IMM) | \
		 BIT_ULL(IB_WR_SEND_WITH_INV) | BIT_ULL(IB_WR_LOCAL_INV) | \
		 BIT_ULL(IB_WR_REG_MR))

static const enum ib_wr_opcode opcodes[] = {
	IB_WR_SEND, IB_WR_SEND_WITH_IMM, IB_WR_RDMA_WRITE, IB_WR_RDMA_WRITE_WITH_IMM,
	IB_WR_RDMA_READ, IB_WR_ATOMIC_FETCH_AND_ADD, IB_WR_ATOMIC_CMP_AND_SWP,
	IB_WR_SEND_WITH_INV, IB_WR_LOCAL_INV, IB_WR_REG_MR,
};

static bool takes_receive(enum ib_wr_opcode opcode)
{
	return opcode == IB_WR_SEND || opcode == IB_WR_SEND_WITH_IMM ||
	       opcode == IB_WR_SEND_WITH_INV || opcode == IB_WR_RDMA_WRITE_WITH_IMM;
}

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

/* The request that goes wrong. */
static struct ib_send_wr *request(struct bench *bench, enum ib_wr_opcode opcode)
{
	switch (opcode) {
	case IB_WR_ATOMIC_FETCH_AND_ADD:
	case IB_WR_ATOMIC_CMP_AND_SWP:
		bench->request.remote_addr = bench->rdma.remote_addr;
		bench->request.rkey = bench->rdma.rkey;
		bench->request.compare_add = 1;
		return &bench->request.wr;
	case IB_WR_REG_MR:
		return &bench->reg.wr;
	default:
		return &bench->rdma.wr;
	}
}

/* In one list, so that the second one waits behind the first. */
static int post_requests(struct bench *bench, enum ib_wr_opcode opcode)
{
	struct ib_send_wr late = { .wr_id = TEST_LATE, .opcode = IB_WR_SEND };
	struct ib_send_wr *wr = request(bench, opcode);

	wr->wr_id = TEST_BAD;
	wr->opcode = opcode;
	wr->next = &late;
	wr->ex.invalidate_rkey = bench->request.wr.ex.invalidate_rkey;
	if (opcode != IB_WR_LOCAL_INV && opcode != IB_WR_REG_MR) {
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

static int check_gone(struct side *side)
{
	return expect_none(side) ?:
	       (side->qp ? expect_number("state of the responder",
					 side_state(side), IB_QPS_RESET) : 0);
}

static int check_far(struct bench *bench, const struct outcome *outcome,
		     enum ib_wr_opcode opcode)
{
	bool failed = outcome->end == FAR_FLUSHED || outcome->end == FAR_FAILED;
	int arrived = outcome->end == FAR_BOTH ? 1 + takes_receive(opcode) :
		      outcome->end == FAR_NEXT;
	int i, err = 0;

	if (outcome->end == FAR_GONE)
		return check_gone(&bench->far);
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
	    (!memchr_inv(bench->to.page, TEST_SEED, 2 * MEMORY_BYTES) &&
	     !memchr_inv(bench->from.page, 0, PAGE_SIZE) &&
	     !memchr_inv(bench->strange[0].page, 0, PAGE_SIZE) &&
	     !memchr_inv(bench->strange[1].page, 0, PAGE_SIZE)))
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

/* The side that has a connection with the owner's domain, beside the one of the case. */
static struct side *reader_of(struct bench *bench, const struct memory *memory)
{
	if (memory->side == &bench->near)
		return &bench->third[1];
	if (memory->side == &bench->far)
		return &bench->third[0];
	return memory->side == &bench->beside[0] ? &bench->beside[1] :
						   &bench->beside[0];
}

/* By @key; returns the status. */
static int read_by(struct bench *bench, const struct memory *memory, u32 key)
{
	struct side *reader = reader_of(bench, memory);
	struct ib_sge sge = {
		(uintptr_t)&bench->word, sizeof(bench->word),
		reader->pd->local_dma_lkey,
	};
	struct ib_rdma_wr wr = {
		.wr = { .opcode = IB_WR_RDMA_READ, .sg_list = &sge, .num_sge = 1 },
		.remote_addr = memory->mr->iova,
		.rkey = key,
	};

	return side_execute(reader, &wr.wr);
}

/*
 * A request that invalidates does so when it succeeds at whoever has the key, and else
 * it does not; nor does it invalidate what it must not.
 */
static int check_keys(struct bench *bench, const struct outcome *outcome,
		      enum ib_wr_opcode opcode)
{
	const struct memory *own = opcode == IB_WR_LOCAL_INV ? &bench->from :
							       &bench->to;
	bool gone = outcome->end == FAR_BOTH;
	int err;

	if (opcode != IB_WR_LOCAL_INV && opcode != IB_WR_SEND_WITH_INV)
		return 0;
	err = expect_number("a READ by the key", read_by(bench, own, own->key),
			    gone ? IB_WC_REM_ACCESS_ERR : IB_WC_SUCCESS);
	if (err || !bench->kept)
		return err;
	return expect_number("a READ by the key of another",
			     read_by(bench, bench->kept, bench->kept->key),
			     IB_WC_SUCCESS);
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
	      connect(&bench->third[0], &bench->third[1]) ?:
	      memory_register(&bench->from, access) ?:
	      memory_register(&bench->to, access);
	if (err)
		return err;
	memset(&bench->request, 0, sizeof(bench->request));
	memset(&bench->rdma, 0, sizeof(bench->rdma));
	bench->reg = (struct ib_reg_wr) {
		.mr = bench->from.mr, .key = bench->from.key, .access = access,
	};
	bench->sge = (struct ib_sge) {
		bench->from.mr->iova, sizeof(u64), bench->from.key,
	};
	bench->rdma.remote_addr = ALIGN(bench->to.mr->iova, 8);
	bench->rdma.rkey = bench->to.key;
	bench->receive = (struct ib_sge) {
		(uintptr_t)bench->to.page + PAGE_SIZE / 2, MEMORY_BYTES,
		bench->far.pd->local_dma_lkey,
	};
	bench->receives = TEST_RECEIVES;
	bench->kept = NULL;
	return 0;
}

static void scene_close(struct bench *bench)
{
	memory_forget(&bench->from);
	memory_forget(&bench->to);
	memory_forget(&bench->strange[0]);
	memory_forget(&bench->strange[1]);
	side_destroy_qp(&bench->near);
	side_destroy_qp(&bench->far);
	side_destroy_qp(&bench->third[0]);
	side_destroy_qp(&bench->third[1]);
}

int post_receives(struct bench *bench)
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

	int err = scene_open(bench);

	bench->request.wr.ex.invalidate_rkey =
		opcode == IB_WR_LOCAL_INV ? bench->from.key : bench->to.key;
	return err ?: fault->arrange(bench) ?: post_receives(bench) ?:
	       post_requests(bench, opcode) ?: check_near(bench, outcome) ?:
	       check_far(bench, outcome, opcode) ?: check_events(bench, outcome) ?:
	       check_memory(bench, outcome) ?: goes_on(bench) ?:
	       check_keys(bench, outcome, opcode) ?: neighbour_works(bench);
}

static int run_faults(struct bench *bench, enum ib_qp_type type)
{
	u64 has = type == IB_QPT_UC ? OF_UC : ~0ULL;
	int i, k, err = 0, count = 0;

	bench->near.type = type;
	bench->far.type = type;
	for (i = 0; i < fault_count; i++)
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

/* A key that is registered again while it is valid grants what it did, and no more. */
static int test_kept(struct bench *bench)
{
	u32 next;
	int err;

	bench->near.type = IB_QPT_RC;
	bench->far.type = IB_QPT_RC;
	err = scene_open(bench) ?: read_by(bench, &bench->from, bench->from.key);
	if (err)
		return err;
	next = ib_inc_rkey(bench->from.key);
	bench->reg.key = next;
	bench->reg.access = 0;
	return post_requests(bench, IB_WR_REG_MR) ?:
	       expect(&bench->near, TEST_BAD, IB_WC_MW_BIND_ERR) ?:
	       expect(&bench->near, TEST_LATE, IB_WC_WR_FLUSH_ERR) ?:
	       read_by(bench, &bench->from, bench->from.key) ?:
	       expect_number("the refused key", read_by(bench, &bench->from, next),
			     IB_WC_REM_ACCESS_ERR);
}

static const struct test_case tests[] = {
	{ "rc", test_rc },
	{ "uc", test_uc },
	{ "refused", test_refused },
	{ "kept", test_kept },
};

static int bench_open(struct bench *bench, const char *device, const char *peer)
{
	int err;

	err = side_open(&bench->near, device) ?: side_open(&bench->far, peer) ?:
	      side_open_beside(&bench->third[0], &bench->near) ?:
	      side_open_beside(&bench->third[1], &bench->far) ?:
	      side_open(&bench->beside[0], device) ?:
	      side_open(&bench->beside[1], peer) ?:
	      connect(&bench->beside[0], &bench->beside[1]) ?:
	      memory_open(&bench->from, &bench->near) ?:
	      memory_open(&bench->to, &bench->far) ?:
	      memory_open(&bench->strange[0], &bench->beside[0]) ?:
	      memory_open(&bench->strange[1], &bench->beside[1]);
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
	memory_close(&bench->strange[0]);
	memory_close(&bench->strange[1]);
	side_close(&bench->third[0]);
	side_close(&bench->third[1]);
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
