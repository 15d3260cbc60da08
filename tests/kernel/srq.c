// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A kernel consumer with a shared receive queue, which two of its queue pairs take
 * their receives from. Loading the module runs one case; that fails if the case
 * does, and the log says why.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

#include "cases.h"
#include "side.h"

#define TEST_SLOTS	8
#define TEST_BYTES	3000
#define TEST_LIMIT	3
/* how long a request waits for a receive before one is posted */
#define TEST_WAIT_MS	30

/**
 * struct bench - what a case works with
 * @near: two that send
 * @far: those that receive, with one queue
 * @srq: the queue, in the domain of the first of them
 * @events: of @srq, limits that were reached
 * @out: what is sent
 * @in: what receives are posted for, @TEST_SLOTS of them
 */
struct bench {
	struct side near[2];
	struct side far[2];
	struct ib_srq *srq;
	atomic_t events;
	u8 *out;
	u8 *in;
};

static u8 *slot(const struct bench *bench, u64 i)
{
	return bench->in + i * TEST_BYTES;
}

static int post_receive(struct bench *bench, u64 i)
{
	struct ib_sge sge = {
		.addr = (uintptr_t)slot(bench, i),
		.length = TEST_BYTES,
		.lkey = bench->far[0].pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };

	return ib_post_srq_recv(bench->srq, &wr, NULL);
}

static int post_receives(struct bench *bench, u64 from, u64 to)
{
	int err = 0;

	for (; from < to && !err; from++)
		err = post_receive(bench, from);
	return err;
}

static int post_message(struct bench *bench, int way, u8 byte)
{
	struct ib_sge sge = {
		.addr = (uintptr_t)bench->out,
		.length = TEST_BYTES,
		.lkey = bench->near[way].pd->local_dma_lkey,
	};
	struct ib_send_wr wr = {
		.wr_id = byte, .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1,
	};

	memset(bench->out, byte, TEST_BYTES);
	return ib_post_send(bench->near[way].qp, &wr, NULL);
}

/* A completion of @side with that id and status. */
static int expect(struct side *side, u64 id, enum ib_wc_status status)
{
	struct ib_wc wc;
	int err = side_wait(side, &wc);

	if (err) {
		pr_err("no completion: %d\n", err);
	} else if (wc.wr_id != id || wc.status != status || wc.qp != side->qp) {
		pr_err("completion of %llu is %s, not of %llu\n", wc.wr_id,
		       ib_wc_status_msg(wc.status), id);
		err = -EIO;
	}
	return err;
}

/* The message has arrived in the slot. */
static int arrives(struct bench *bench, int way, u64 i, u8 byte)
{
	int err = expect(&bench->near[way], byte, IB_WC_SUCCESS) ?:
		  expect(&bench->far[way], i, IB_WC_SUCCESS);

	if (!err && memchr_inv(slot(bench, i), byte, TEST_BYTES)) {
		pr_err("other bytes in slot %llu\n", i);
		err = -EIO;
	}
	return err;
}

static int send_one(struct bench *bench, int way, u64 i)
{
	u8 byte = 0x40 + i;

	return post_message(bench, way, byte) ?: arrives(bench, way, i, byte);
}

static int expect_count(const char *what, int count, int expected)
{
	if (count == expected)
		return 0;
	pr_err("%s: %d instead of %d\n", what, count, expected);
	return -EIO;
}

static int to_error(struct side *side)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	return ib_modify_qp(side->qp, &attr, IB_QP_STATE);
}

/* --- cases ------------------------------------------------------------------- */

/* Whoever receives next takes the receive that was posted next. */
static int test_shared(struct bench *bench)
{
	int err = post_receives(bench, 0, TEST_SLOTS);
	u64 i;

	for (i = 0; i < TEST_SLOTS && !err; i++)
		err = send_one(bench, i / 2 % 2, i);
	/* the queue goes round */
	err = err ?: post_receives(bench, 0, TEST_SLOTS);
	for (i = 0; i < TEST_SLOTS && !err; i++)
		err = send_one(bench, i % 2, i);
	return err;
}

/* The event comes once, when fewer are left; then it is asked for again. */
static int test_limit(struct bench *bench)
{
	struct ib_srq_attr attr = { .srq_limit = TEST_LIMIT };
	int err = post_receives(bench, 0, TEST_SLOTS) ?:
		  ib_modify_srq(bench->srq, &attr, IB_SRQ_LIMIT);
	u64 i;

	for (i = 0; i < TEST_SLOTS && !err; i++) {
		err = send_one(bench, 0, i);
		err = err ?: expect_count("events", atomic_read(&bench->events),
					  TEST_SLOTS - 1 - i < TEST_LIMIT);
	}
	err = err ?: ib_query_srq(bench->srq, &attr);
	err = err ?: expect_count("limit", attr.srq_limit, 0);
	attr.srq_limit = 1;
	err = err ?: post_receives(bench, 0, 1) ?:
	      ib_modify_srq(bench->srq, &attr, IB_SRQ_LIMIT) ?:
	      send_one(bench, 1, 0);
	return err ?: expect_count("events", atomic_read(&bench->events), 2);
}

/* Both wait for a receive; the one posted first is the first one's to come. */
static int test_empty(struct bench *bench)
{
	struct ib_wc wc;
	int err;

	err = post_message(bench, 0, 0x71);
	msleep(TEST_WAIT_MS);
	err = err ?: expect_count("completions of a request without a receive",
				  ib_poll_cq(bench->near[0].cq, 1, &wc), 0);
	err = err ?: post_receives(bench, 0, 1) ?: arrives(bench, 0, 0, 0x71);
	/* what the others take is not missing here */
	return err ?: post_receives(bench, 1, 2) ?: send_one(bench, 1, 1);
}

/* As many as it has room for, and no more; none of too many pieces. */
static int test_full(struct bench *bench)
{
	struct ib_recv_wr wr = { .num_sge = 2 };
	struct ib_srq_attr attr;
	const struct ib_recv_wr *bad = NULL;
	int err = ib_query_srq(bench->srq, &attr);

	err = err ?: expect_count("max_wr", attr.max_wr, TEST_SLOTS);
	err = err ?: expect_count("two pieces",
				  ib_post_srq_recv(bench->srq, &wr, &bad),
				  -EINVAL);
	err = err ?: expect_count("the bad one", bad == &wr, true);
	err = err ?: post_receives(bench, 0, TEST_SLOTS);
	err = err ?: expect_count("one more", post_receive(bench, 0), -ENOMEM);
	attr.max_wr = 2 * TEST_SLOTS;
	err = err ?: expect_count("resized", ib_modify_srq(bench->srq, &attr,
							   IB_SRQ_MAX_WR),
				  -EOPNOTSUPP);
	return err ?: send_one(bench, 0, 0) ?: post_receive(bench, 0);
}

/* One queue pair fails: the receives are the other's, and there is an event. */
static int test_flushed(struct bench *bench)
{
	struct ib_wc wc;
	int err = post_receives(bench, 0, 2) ?: send_one(bench, 0, 0) ?:
		  to_error(&bench->far[0]);

	ib_drain_qp(bench->far[0].qp);
	err = err ?: expect_count("receives flushed",
				  ib_poll_cq(bench->far[0].cq, 1, &wc), 0);
	err = err ?: expect_count("last WQE reached",
				  atomic_read(&bench->far[0].events[IB_EVENT_QP_LAST_WQE_REACHED]),
				  1);
	return err ?: send_one(bench, 1, 1);
}

static const struct test_case tests[] = {
	{ "shared", test_shared },
	{ "limit", test_limit },
	{ "empty", test_empty },
	{ "full", test_full },
	{ "flushed", test_flushed },
};

/* --- the bench ---------------------------------------------------------------- */

static void on_srq_event(struct ib_event *event, void *context)
{
	struct bench *bench = context;

	if (event->event == IB_EVENT_SRQ_LIMIT_REACHED)
		atomic_inc(&bench->events);
}

static int create_srq(struct bench *bench)
{
	struct ib_srq_init_attr init = {
		.event_handler = on_srq_event,
		.srq_context = bench,
		.srq_type = IB_SRQT_BASIC,
		.attr = { .max_wr = TEST_SLOTS, .max_sge = 1 },
	};

	bench->srq = ib_create_srq(bench->far[0].pd, &init);
	return PTR_ERR_OR_ZERO(bench->srq);
}

static int bench_open(struct bench *bench, const char *device,
		      const char *peer)
{
	int err, i;

	bench->out = kmalloc(TEST_BYTES, GFP_KERNEL);
	bench->in = kmalloc_array(TEST_SLOTS, TEST_BYTES, GFP_KERNEL);
	err = bench->out && bench->in ? 0 : -ENOMEM;
	err = err ?: side_open(&bench->far[0], peer) ?:
	      side_open_beside(&bench->far[1], &bench->far[0]) ?:
	      create_srq(bench);
	for (i = 0; i < 2 && !err; i++)
		err = side_open(&bench->near[i], device) ?:
		      side_create_qp(&bench->near[i], NULL) ?:
		      side_create_qp(&bench->far[i], bench->srq) ?:
		      side_connect(&bench->near[i], &bench->far[i]) ?:
		      side_connect(&bench->far[i], &bench->near[i]);
	return err;
}

/* Queue pairs first, then the queue, and its domain last. */
static void bench_close(struct bench *bench)
{
	side_close(&bench->near[0]);
	side_close(&bench->near[1]);
	side_close(&bench->far[1]);
	if (!IS_ERR_OR_NULL(bench->far[0].qp))
		ib_destroy_qp(bench->far[0].qp);
	bench->far[0].qp = NULL;
	if (!IS_ERR_OR_NULL(bench->srq))
		ib_destroy_srq(bench->srq);
	side_close(&bench->far[0]);
	kfree(bench->in);
	kfree(bench->out);
}

const struct cases cases = {
	.of = tests,
	.count = ARRAY_SIZE(tests),
	.bench_size = sizeof(struct bench),
	.open = bench_open,
	.close = bench_close,
};

MODULE_DESCRIPTION("Shared receive queues of a kernel consumer");
MODULE_LICENSE("Dual BSD/GPL");
