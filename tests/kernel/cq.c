// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A kernel consumer whose completion events are moderated, or which resets. Loading the
 * module runs one case; that fails if the case does, and the log says why.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/module.h>
#include <rdma/ib_verbs.h>

#include "cases.h"
#include "side.h"

/* An event stands for so many completions, or for those of so long. */
#define TEST_COUNT	1000
#define TEST_PERIOD_MS	60

/**
 * struct bench - what a case works with
 * @near: its completion queue is @cq
 * @far: the other end
 * @cq: completions of @near, moderated
 * @own: the queue that @near had before
 * @told: events of @cq
 */
struct bench {
	struct side near;
	struct side far;
	struct ib_cq *cq;
	struct ib_cq *own;
	atomic_t told;
};

static int expect_told(struct bench *bench, const char *when, int expected)
{
	int told = atomic_read(&bench->told);

	if (told == expected)
		return 0;
	pr_err("%d events instead of %d %s\n", told, expected, when);
	return -EIO;
}

/* Its completion is taken from the queue; if there is an event that is held back. */
static int complete_one(struct bench *bench)
{
	const struct ib_rdma_wr write = { .wr.opcode = IB_WR_RDMA_WRITE };

	return side_execute(&bench->near, &write.wr);
}

/*
 * An event is held back when the last queue pair goes. It comes then, not later: who
 * frees the queue waits for the work that events have queued, and then for no other.
 */
static int test_settled(struct bench *bench)
{
	int err = ib_req_notify_cq(bench->cq, IB_CQ_NEXT_COMP);

	err = err ?: complete_one(bench);
	side_destroy_qp(&bench->near);
	err = err ?: expect_told(bench, "with the queue pair", 1);
	msleep(2 * TEST_PERIOD_MS);
	return err ?: expect_told(bench, "after the period", 1);
}

/* The same with nobody waiting for an event. */
static int test_unarmed(struct bench *bench)
{
	int err = complete_one(bench);

	side_destroy_qp(&bench->near);
	err = err ?: expect_told(bench, "with the queue pair", 0);
	msleep(2 * TEST_PERIOD_MS);
	return err ?: expect_told(bench, "after the period", 0);
}

/* Of two completions one has been taken when the queue pair begins anew. */
static int test_reset(struct bench *bench)
{
	const struct ib_rdma_wr write = {
		.wr.opcode = IB_WR_RDMA_WRITE,
		.wr.send_flags = IB_SEND_SIGNALED,
	};
	struct ib_wc wc;
	int n, err;

	err = ib_post_send(bench->near.qp, &write.wr, NULL);
	err = err ?: side_execute(&bench->near, &write.wr);
	msleep(TEST_PERIOD_MS);
	err = err ?: side_set_state(&bench->near, IB_QPS_RESET);
	if (err)
		return err;
	n = ib_poll_cq(bench->cq, 1, &wc);
	if (n)
		pr_err("%d completions after the reset\n", n);
	return n ? -EIO : 0;
}

/* It keeps its size. */
static int test_resize(struct bench *bench)
{
	int before = bench->cq->cqe, err = ib_resize_cq(bench->cq, 2 * before);

	if (err == -EOPNOTSUPP && bench->cq->cqe == before)
		return 0;
	pr_err("%d from resizing, %d elements instead of %d\n", err,
	       bench->cq->cqe, before);
	return -EIO;
}

static const struct test_case tests[] = {
	{ "settled", test_settled },
	{ "unarmed", test_unarmed },
	{ "reset", test_reset },
	{ "resize", test_resize },
};

/* --- the bench ---------------------------------------------------------------- */

static void on_completion(struct ib_cq *cq, void *context)
{
	struct bench *bench = context;

	atomic_inc(&bench->told);
}

static int create_cq(struct bench *bench)
{
	const struct ib_cq_init_attr attr = { .cqe = 16 };

	bench->cq = ib_create_cq(bench->near.dev, on_completion, NULL, bench,
				 &attr);
	if (IS_ERR(bench->cq))
		return PTR_ERR(bench->cq);
	bench->own = bench->near.cq;
	bench->near.cq = bench->cq;
	return rdma_set_cq_moderation(bench->cq, TEST_COUNT,
				      TEST_PERIOD_MS * USEC_PER_MSEC);
}

static int bench_open(struct bench *bench, const char *device, const char *peer)
{
	return side_open(&bench->near, device) ?:
	       side_open(&bench->far, peer) ?:
	       create_cq(bench) ?:
	       side_create_qp(&bench->near, NULL) ?:
	       side_create_qp(&bench->far, NULL) ?:
	       side_connect(&bench->near, &bench->far) ?:
	       side_connect(&bench->far, &bench->near);
}

static void bench_close(struct bench *bench)
{
	side_destroy_qp(&bench->near);
	if (bench->own)
		bench->near.cq = bench->own;
	if (!IS_ERR_OR_NULL(bench->cq))
		ib_destroy_cq(bench->cq);
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

MODULE_DESCRIPTION("Completion events of a kernel consumer");
MODULE_LICENSE("Dual BSD/GPL");
