// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The locks that a thread domain saves. They are taken within libmic, by an exchange
 * with memory in the middle of a function, so those are counted (lib/tally.h) while this
 * process posts or polls. The kernel's locks are not there (locks has them).
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "setup.h"
#include "srq.h"
#include "tally.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { REGION_BYTES = 4096, WORD_BYTES = 8 };
/* Before that tables grow, functions are looked for, and a peer is mapped. */
enum { WARM = 16, DEPTH = 64 };

/* --- who is counted ---------------------------------------------------------- */

enum promise {
	NO_DOMAIN,
	PARENT_DOMAIN, /* which promises nothing */
	THREAD_DOMAIN,
};

/* What is made in a domain, and a peer that is not. */
struct stage {
	struct setup setup;
	struct ibv_td *td;
	struct ibv_pd *domain;
	struct ibv_cq_ex *cq;
	struct ibv_srq *srq;
	struct endpoint a;
	struct endpoint b;
};

static void stage_open(struct stage *stage, enum promise promise,
		       uint32_t flags)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_context *ctx = stage->setup.a_dev.ctx;
	struct ibv_td_init_attr td = { .comp_mask = 0 };
	struct ibv_parent_domain_init_attr parent = {
		.pd = stage->setup.a_dev.pd,
	};
	struct ibv_cq_init_attr_ex cq = {
		.cqe = DEPTH,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = flags,
	};
	unsigned int i;

	if (promise == THREAD_DOMAIN)
		stage->td = ibv_alloc_td(ctx, &td);
	parent.td = stage->td;
	if (promise != NO_DOMAIN) {
		stage->domain = ibv_alloc_parent_domain(ctx, &parent);
		cq.parent_domain = stage->domain;
		cq.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
	}
	stage->cq = ibv_create_cq_ex(ctx, &cq);
	if (!stage->cq || (promise != NO_DOMAIN && !stage->domain))
		bail("no domain or completion queue: %s", strerror(errno));
	options.pd = stage->domain;
	options.send_cq = ibv_cq_ex_to_cq(stage->cq);
	stage->srq = srq_create(options.pd ? options.pd : parent.pd, DEPTH, 1);
	endpoint_create(&stage->a, &stage->setup.a_dev, &options);
	options.pd = NULL;
	options.send_cq = NULL;
	endpoint_create(&stage->b, &stage->setup.b_dev, &options);
	pair_connect(&stage->a, &stage->b);
	for (i = 0; i <= WARM; i++)
		post_recv(&stage->b, i, NULL, 0);
}

static void stage_close(struct stage *stage)
{
	pair_destroy(&stage->a, &stage->b);
	tap_must(!ibv_destroy_srq(stage->srq), "ibv_destroy_srq fails");
	tap_must(!ibv_destroy_cq(ibv_cq_ex_to_cq(stage->cq)),
		 "ibv_destroy_cq fails");
	if (stage->domain)
		tap_must(!ibv_dealloc_pd(stage->domain), "ibv_dealloc_pd");
	if (stage->td)
		tap_must(!ibv_dealloc_td(stage->td), "ibv_dealloc_td");
	stage->domain = NULL;
	stage->td = NULL;
}

static void do_nothing(struct stage *stage)
{
	(void)stage;
}

/* As a lock is taken, and as a barrier is made. */
static void do_exchange(struct stage *stage)
{
	static atomic_bool taken;
	bool was = atomic_exchange_explicit(&taken, true, memory_order_acquire);

	(void)stage;
	atomic_thread_fence(memory_order_seq_cst);
	was = !was;
	atomic_compare_exchange_strong(&taken, &was, false);
}

/* The kernel executes it. */
static void do_send(struct stage *stage)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;

	ibv_post_send(stage->a.qp, &wr, &bad);
}

/* The process executes it, if it may. */
static void do_write(struct stage *stage)
{
	struct ibv_sge sge = region_sge(&stage->setup.a_mem, 0, WORD_BYTES);
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
	};

	wr.wr.rdma.remote_addr = stage->setup.b_mem.rdma_addr;
	wr.wr.rdma.rkey = stage->setup.b_mem.mr->rkey;
	ibv_post_send(stage->a.qp, &wr, &bad);
}

static void do_receive(struct stage *stage)
{
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;

	ibv_post_recv(stage->a.qp, &wr, &bad);
}

static void do_shared_receive(struct stage *stage)
{
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;

	ibv_post_srq_recv(stage->srq, &wr, &bad);
}

static void do_poll(struct stage *stage)
{
	struct ibv_wc wc;

	ibv_poll_cq(ibv_cq_ex_to_cq(stage->cq), 1, &wc);
}

static void do_poll_ex(struct stage *stage)
{
	struct ibv_poll_cq_attr attr = { .comp_mask = 0 };

	if (!ibv_start_poll(stage->cq, &attr))
		ibv_end_poll(stage->cq);
}

static const struct operation {
	const char *name;
	void (*run)(struct stage *stage);
	unsigned int locked;
	unsigned int unlocked;
} operations[] = {
	{ "nothing", do_nothing, 0, 0 },
	{ "two locks and a barrier", do_exchange, 2, 2 },
	/* queue pairs of others may complete there, whoever polls */
	{ "a WRITE, and its completion", do_write, 2, 1 },
	{ "a SEND", do_send, 1, 0 },
	{ "a receive", do_receive, 1, 0 },
	{ "a receive of a shared queue", do_shared_receive, 1, 0 },
	{ "a poll", do_poll, 1, 0 },
	{ "ibv_start_poll", do_poll_ex, 1, 0 },
};

/* How many locks it takes. */
static unsigned int locks_of(struct stage *stage,
			     void (*run)(struct stage *stage))
{
	unsigned int i;

	for (i = 0; i < WARM; i++)
		run(stage);
	tally_mark();
	run(stage);
	tally_mark();
	return tally->locks;
}

static bool takes(struct stage *stage, const struct operation *op,
		  unsigned int expected)
{
	unsigned int locks = locks_of(stage, op->run);

	return check(tally->instructions, "nothing was counted") &&
	       check(locks == expected, "%s takes %u locks, not %u", op->name,
		     locks, expected);
}

static void *idle(void *argument)
{
	int *pipe = argument;
	char byte;

	return read(pipe[0], &byte, 1) ? NULL : argument;
}

/* ----------------------------------------------------------------------------- */

static const struct {
	const char *name;
	enum promise promise;
	uint32_t flags;
	bool threads; /* the process has a second one */
	bool queue;   /* the promise is of the completion queue alone */
	bool locked;
} cases[] = {
	{ "a process of one thread", NO_DOMAIN, 0, false, false, false },
	{ "no domain", NO_DOMAIN, 0, true, false, true },
	{ "a parent domain", PARENT_DOMAIN, 0, true, false, true },
	{ "a thread domain", THREAD_DOMAIN, 0, true, false, false },
	{ "a completion queue of one thread", NO_DOMAIN,
	  IBV_CREATE_CQ_ATTR_SINGLE_THREADED, true, true, true },
};

static unsigned int expected_locks(unsigned int i, const struct operation *op)
{
	bool polls = op->run == do_poll || op->run == do_poll_ex;

	if (!cases[i].threads)
		return op->run == do_exchange ? op->unlocked : 0;
	if (cases[i].queue && polls)
		return op->unlocked;
	return cases[i].locked ? op->locked : op->unlocked;
}

static bool run_case(struct stage *stage, unsigned int i)
{
	bool ok = true;
	unsigned int k;

	stage_open(stage, cases[i].promise, cases[i].flags);
	for (k = 0; k < COUNT(operations); k++)
		ok = takes(stage, &operations[k],
			   expected_locks(i, &operations[k])) &&
		     ok;
	stage_close(stage);
	return ok;
}

static int be_counted(int argc, char **argv)
{
	struct stage stage = { .td = NULL };
	int stop[2], result;
	pthread_t thread;
	unsigned int i;

	if (pipe(stop))
		bail("pipe: %s", strerror(errno));
	setup_open(&stage.setup, &argc, argv, REGION_BYTES);
	for (i = 0; i < COUNT(cases); i++) {
		/* the others have one beside them, which does nothing */
		if (i == 1 && pthread_create(&thread, NULL, idle, stop))
			bail("no thread");
		tap_ok(run_case(&stage, i), "locks: %s", cases[i].name);
	}
	close(stop[1]);
	pthread_join(thread, NULL);
	setup_close(&stage.setup);
	result = tap_end();
	fflush(stdout);
	return result;
}

int main(int argc, char **argv)
{
	if (!TALLY_CAN_COUNT) {
		tap_skip("only the instructions of x86-64 are known", "locks");
		return tap_end();
	}
	return tally_run(be_counted, argc, argv);
}
