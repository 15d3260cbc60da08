// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What a kernel consumer has of XRC: domains, receive queues, initiators and targets,
 * but no way to say which queue a request is for. Loading the module runs one case;
 * that fails if the case does, and the log says why.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <rdma/ib_verbs.h>

#include "cases.h"
#include "side.h"

/**
 * struct bench - what a case works with
 * @near: has the initiator
 * @far: has the target
 * @xrcd: its domain
 * @srq: a receive queue there, with receives
 */
struct bench {
	struct side near;
	struct side far;
	struct ib_xrcd *xrcd;
	struct ib_srq *srq;
};

static int expect_number(const char *what, int number, int expected)
{
	if (number == expected)
		return 0;
	pr_err("%s: %d instead of %d\n", what, number, expected);
	return -EIO;
}

static int expect(struct side *side, enum ib_wc_status status)
{
	struct ib_wc wc;
	int err = side_wait(side, &wc);

	return err ?: expect_number("status", wc.status, status);
}

/* A request names no queue: it is refused as one for a queue that there is not. */
static int test_refused(struct bench *bench)
{
	struct ib_send_wr late = { .opcode = IB_WR_SEND };
	struct ib_send_wr wr = { .opcode = IB_WR_SEND, .next = &late };
	struct ib_wc wc;

	return ib_post_send(bench->near.qp, &wr, NULL) ?:
	       expect(&bench->near, IB_WC_REM_INV_REQ_ERR) ?:
	       expect(&bench->near, IB_WC_WR_FLUSH_ERR) ?:
	       expect_number("initiator", side_state(&bench->near), IB_QPS_ERR) ?:
	       expect_number("target", side_state(&bench->far), IB_QPS_ERR) ?:
	       expect_number("events",
			     atomic_read(&bench->far.events[IB_EVENT_QP_REQ_ERR]),
			     1) ?:
	       expect_number("last WQE reached",
			     atomic_read(&bench->far.events[IB_EVENT_QP_LAST_WQE_REACHED]),
			     0) ?:
	       expect_number("receives", ib_poll_cq(bench->far.cq, 1, &wc), 0);
}

/* An initiator has no receive queue, a target none at all. */
static int test_queues(struct bench *bench)
{
	struct ib_send_wr send = { .opcode = IB_WR_SEND };
	struct ib_recv_wr receive = { .num_sge = 0 };

	return expect_number("a receive of an initiator",
			     ib_post_recv(bench->near.qp, &receive, NULL), -EINVAL) ?:
	       expect_number("a receive of a target",
			     ib_post_recv(bench->far.qp, &receive, NULL), -EINVAL) ?:
	       expect_number("a request of a target",
			     ib_post_send(bench->far.qp, &send, NULL), -EINVAL) ?:
	       expect_number("initiator", side_state(&bench->near), IB_QPS_RTS) ?:
	       expect_number("target", side_state(&bench->far), IB_QPS_RTS);
}

/* A region of the initiator's, and what registers it; the caller deregisters it. */
static int prepare_region(struct bench *bench, struct ib_reg_wr *reg)
{
	struct ib_mr *mr = ib_alloc_mr(bench->near.pd, IB_MR_TYPE_MEM_REG, 1);

	if (IS_ERR(mr))
		return PTR_ERR(mr);
	*reg = (struct ib_reg_wr) {
		.wr = { .opcode = IB_WR_REG_MR },
		.mr = mr,
		.key = mr->rkey,
		.access = IB_ACCESS_REMOTE_READ,
	};
	return 0;
}

/* What needs no peer works, and what waits for one is flushed. */
static int test_local(struct bench *bench)
{
	struct ib_send_wr invalidate = { .opcode = IB_WR_LOCAL_INV };
	struct ib_send_wr send = { .opcode = IB_WR_SEND };
	struct ib_reg_wr reg;
	int err = prepare_region(bench, &reg);

	if (err)
		return err;
	invalidate.ex.invalidate_rkey = reg.key;
	err = side_execute(&bench->near, &reg.wr) ?:
	      side_execute(&bench->near, &invalidate) ?:
	      side_set_state(&bench->near, IB_QPS_ERR) ?:
	      ib_post_send(bench->near.qp, &send, NULL) ?:
	      expect(&bench->near, IB_WC_WR_FLUSH_ERR);
	ib_dereg_mr(reg.mr);
	return err;
}

/* What is refused without a peer ends the initiator, and its target does not know. */
static int test_unbound(struct bench *bench)
{
	struct ib_send_wr late = { .opcode = IB_WR_SEND };
	struct ib_reg_wr reg;
	int err = prepare_region(bench, &reg);

	if (err)
		return err;
	err = side_execute(&bench->near, &reg.wr);
	reg.wr.next = &late;
	err = err ?: ib_post_send(bench->near.qp, &reg.wr, NULL) ?:
	      expect(&bench->near, IB_WC_MW_BIND_ERR) ?:
	      expect(&bench->near, IB_WC_WR_FLUSH_ERR) ?:
	      expect_number("initiator", side_state(&bench->near), IB_QPS_ERR) ?:
	      expect_number("target", side_state(&bench->far), IB_QPS_RTS);
	ib_dereg_mr(reg.mr);
	return err;
}

static const struct test_case tests[] = {
	{ "refused", test_refused },
	{ "queues", test_queues },
	{ "local", test_local },
	{ "unbound", test_unbound },
};

/* --- the bench ---------------------------------------------------------------- */

static int create_srq(struct bench *bench)
{
	struct ib_srq_init_attr init = {
		.srq_type = IB_SRQT_XRC,
		.attr = { .max_wr = 4, .max_sge = 1 },
		.ext = { .cq = bench->far.cq, .xrc = { .xrcd = bench->xrcd } },
	};
	struct ib_recv_wr wr = { .num_sge = 0 };

	bench->srq = ib_create_srq(bench->far.pd, &init);
	return PTR_ERR_OR_ZERO(bench->srq) ?: ib_post_srq_recv(bench->srq, &wr, NULL);
}

static int bench_open(struct bench *bench, const char *device, const char *peer)
{
	int err;

	err = side_open(&bench->near, device) ?: side_open(&bench->far, peer);
	if (err)
		return err;
	bench->xrcd = ib_alloc_xrcd_user(bench->far.dev, NULL, NULL);
	if (IS_ERR(bench->xrcd))
		return PTR_ERR(bench->xrcd);
	bench->near.type = IB_QPT_XRC_INI;
	bench->far.type = IB_QPT_XRC_TGT;
	bench->far.xrcd = bench->xrcd;
	return create_srq(bench) ?:
	       side_create_qp(&bench->near, NULL) ?:
	       side_create_qp(&bench->far, NULL) ?:
	       side_connect(&bench->near, &bench->far) ?:
	       side_connect(&bench->far, &bench->near);
}

/* The target before its domain, and the receive queue before that, too. */
static void bench_close(struct bench *bench)
{
	side_destroy_qp(&bench->near);
	side_destroy_qp(&bench->far);
	if (!IS_ERR_OR_NULL(bench->srq))
		ib_destroy_srq(bench->srq);
	if (!IS_ERR_OR_NULL(bench->xrcd) &&
	    ib_dealloc_xrcd_user(bench->xrcd, NULL))
		pr_err("the domain is in use\n");
	side_close(&bench->near);
	side_close(&bench->far);
}

const struct cases cases = {
	.of = tests,
	.count = ARRAY_SIZE(tests),
	.bench_size = sizeof(struct bench),
	.open = bench_open,
	.close = bench_close,
};

MODULE_DESCRIPTION("XRC of a kernel consumer");
MODULE_LICENSE("Dual BSD/GPL");
