// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A kernel consumer whose completion events are moderated, which resets, or whose queue
 * has no room. Loading the module runs one case; that fails if the case does, and the log
 * says why.
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
/* Of the queue; so many more find no room. */
#define TEST_ENTRIES	16
#define TEST_MORE	3

/**
 * struct bench - what a case works with
 * @near: its completion queue is @cq
 * @far: the other end
 * @cq: completions of @near, moderated
 * @own: the queue that @near had before
 * @told: events of @cq
 * @errors: how often it was said to be in error
 */
struct bench {
	struct side near;
	struct side far;
	struct ib_cq *cq;
	struct ib_cq *own;
	atomic_t told;
	atomic_t errors;
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

/* --- without room --------------------------------------------------------------- */

/* A message from the one side to the other, whose end the caller waits for. */
static int post_message(struct side *from, struct side *to, u64 id)
{
	const struct ib_send_wr send = { .wr_id = id, .opcode = IB_WR_SEND };
	const struct ib_recv_wr receive = { .wr_id = id };

	return ib_post_recv(to->qp, &receive, NULL) ?:
	       ib_post_send(from->qp, &send, NULL);
}

static int expect_next(struct side *side, u64 id)
{
	struct ib_wc wc;
	int err = side_wait(side, &wc);

	if (!err && (wc.wr_id != id || wc.status)) {
		pr_err("%llu with status %d instead of %llu\n", wc.wr_id,
		       wc.status, id);
		err = -EIO;
	}
	return err;
}

/* What found room is there, and nothing else. */
static int expect_first(struct side *side, u64 count)
{
	struct ib_wc wc;
	u64 id;
	int n, err = 0;

	for (id = 0; id < count && !err; id++)
		err = expect_next(side, id);
	if (err)
		return err;
	n = ib_poll_cq(side->cq, 1, &wc);
	if (n)
		pr_err("%d completions more\n", n);
	return n ? -EIO : 0;
}

/* The queue pairs are none the worse for it. */
static int expect_ready(struct bench *bench)
{
	if (side_state(&bench->near) == IB_QPS_RTS &&
	    side_state(&bench->far) == IB_QPS_RTS)
		return 0;
	pr_err("a queue pair has left RTS\n");
	return -EIO;
}

static int expect_error(struct bench *bench)
{
	unsigned long end = jiffies + 60 * HZ;

	while (!atomic_read(&bench->errors) && time_before(jiffies, end))
		usleep_range(100, 200);
	if (atomic_read(&bench->errors) == 1)
		return 0;
	pr_err("%d events of an error\n", atomic_read(&bench->errors));
	return -EIO;
}

/*
 * Messages between @from and @to, of which one is the near side: its completions wait,
 * those of the other are taken, also that of a message more than there is room for.
 */
static int fill(struct bench *bench, struct side *from, struct side *to)
{
	u64 id;
	int err = 0;

	for (id = 0; id < TEST_ENTRIES + TEST_MORE && !err; id++)
		err = post_message(from, to, id) ?: expect_next(&bench->far, id);
	/* one more arrives when there is room again, but the queue takes no more */
	return err ?: expect_error(bench) ?:
	       expect_first(&bench->near, TEST_ENTRIES) ?:
	       post_message(from, to, id) ?: expect_next(&bench->far, id) ?:
	       expect_first(&bench->near, 0) ?: expect_error(bench) ?:
	       expect_ready(bench);
}

static int test_full_of_sends(struct bench *bench)
{
	return fill(bench, &bench->near, &bench->far);
}

static int test_full_of_receives(struct bench *bench)
{
	return fill(bench, &bench->far, &bench->near);
}

/* Once there is place for it. */
static int post_flushed(struct side *side)
{
	const struct ib_recv_wr receive = { .wr_id = 1 };
	unsigned long end = jiffies + 60 * HZ;
	int err = ib_post_recv(side->qp, &receive, NULL);

	while (err == -ENOMEM && time_before(jiffies, end)) {
		usleep_range(100, 200);
		err = ib_post_recv(side->qp, &receive, NULL);
	}
	return err;
}

/* What is flushed leaves its queue all the same. */
static int test_full_of_flushes(struct bench *bench)
{
	int i, err = side_set_state(&bench->near, IB_QPS_ERR);

	for (i = 0; i < 3 * TEST_ENTRIES && !err; i++)
		err = post_flushed(&bench->near);
	return err ?: expect_error(bench);
}

/* Of ib_alloc_cq()'s, which nobody hears of. */
static int test_full_unheard(struct bench *bench)
{
	const u64 entries = bench->far.cq->cqe;
	u64 id;
	int err = 0;

	for (id = 0; id < entries + TEST_MORE && !err; id++)
		err = post_message(&bench->near, &bench->far, id) ?:
		      expect_next(&bench->near, id);
	return err ?: expect_first(&bench->far, entries) ?: expect_ready(bench);
}

static const struct test_case tests[] = {
	{ "settled", test_settled },
	{ "unarmed", test_unarmed },
	{ "reset", test_reset },
	{ "resize", test_resize },
	{ "sends", test_full_of_sends },
	{ "receives", test_full_of_receives },
	{ "flushes", test_full_of_flushes },
	{ "unheard", test_full_unheard },
};

/* --- the bench ---------------------------------------------------------------- */

static void on_completion(struct ib_cq *cq, void *context)
{
	struct bench *bench = context;

	atomic_inc(&bench->told);
}

static void on_event(struct ib_event *event, void *context)
{
	struct bench *bench = context;

	if (event->event == IB_EVENT_CQ_ERR && event->element.cq == bench->cq)
		atomic_inc(&bench->errors);
}

static int create_cq(struct bench *bench)
{
	const struct ib_cq_init_attr attr = { .cqe = TEST_ENTRIES };

	bench->cq = ib_create_cq(bench->near.dev, on_completion, on_event, bench,
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
