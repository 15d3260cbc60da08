// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Threads that post to the same queues and poll the same ones, and threads with
 * queues of their own whose locks a thread domain does without.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "proxy.h"
#include "setup.h"
#include "srq.h"
#include "tap.h"
#include "threads.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 16)

enum { THREADS = 4, REQUESTS = 1000, TOTAL = THREADS * REQUESTS };
enum { AT_ONCE = 8, WORD_BYTES = 8 };

/* Queues that all threads use, and what has come of each request. */
struct stage {
	struct setup *setup;
	struct ibv_pd *domain; /* NULL: the device's */
	struct ibv_srq *srq;
	struct ibv_cq *cq; /* the one that all threads poll */
	struct endpoint a;
	struct endpoint b;
	struct endpoint timed_a[THREADS]; /* one for each thread */
	struct endpoint timed_b[THREADS];
	enum ibv_wr_opcode opcode;
	atomic_uint next;
	atomic_uint completed;
	atomic_uchar seen[TOTAL];
	atomic_bool failed;
};

struct worker {
	struct stage *stage;
	pthread_t thread;
	unsigned int index;
	unsigned int completed; /* as it has seen */
	uint64_t end;
};

/* There is time as long as requests complete. */
static bool goes_on(struct worker *worker)
{
	struct stage *stage = worker->stage;
	unsigned int completed = atomic_load(&stage->completed);

	if (completed != worker->completed) {
		worker->completed = completed;
		worker->end = deadline();
	}
	if (now_ms() > worker->end)
		atomic_store(&stage->failed, true);
	return !atomic_load(&stage->failed) && completed < TOTAL;
}

static void run_threads(struct stage *stage, void *(*main)(void *))
{
	struct worker workers[THREADS];
	unsigned int i;

	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){
			.stage = stage,
			.index = i,
			.end = deadline(),
		};
		if (pthread_create(&workers[i].thread, NULL, main, &workers[i]))
			bail("no thread");
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
}

/*
 * With room for everything: a place in a queue pair's queue is free again when the
 * request or receive is taken, not when its completion is.
 */
static struct ibv_cq *large_cq(struct stage *stage, struct device *dev)
{
	stage->cq = ibv_create_cq(dev->ctx, TOTAL, NULL, NULL, 0);
	if (!stage->cq)
		bail("no completion queue: %s", strerror(errno));
	return stage->cq;
}

/* --- one queue pair for all --------------------------------------------------- */

static struct ibv_pd *parent_domain(struct setup *setup, struct ibv_td *td)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = setup->a_dev.pd,
		.td = td,
	};
	struct ibv_pd *pd = ibv_alloc_parent_domain(setup->a_dev.ctx, &attr);

	if (!pd)
		bail("no parent domain: %s", strerror(errno));
	return pd;
}

/* A request of its own number and word; when the queue is full there will be room. */
static void post_next(struct stage *stage, unsigned int *mine)
{
	uint32_t offset = *mine * WORD_BYTES;
	struct ibv_sge sge = region_sge(&stage->setup->a_mem, offset,
					WORD_BYTES);
	struct ibv_send_wr wr = send_wr(*mine, stage->opcode, &sge, 1);
	int error;

	if (*mine >= TOTAL)
		return;
	wr.wr.rdma.remote_addr = stage->setup->b_mem.rdma_addr + offset;
	wr.wr.rdma.rkey = stage->setup->b_mem.mr->rkey;
	error = try_post_send(&stage->a, &wr);
	if (!error)
		*mine = atomic_fetch_add(&stage->next, 1);
	else if (error != ENOMEM)
		atomic_store(&stage->failed, true);
}

static void poll_some(struct stage *stage, struct ibv_cq *cq)
{
	struct ibv_wc wc[AT_ONCE];
	int i, count = ibv_poll_cq(cq, AT_ONCE, wc);

	for (i = 0; i < count; i++) {
		if (!check(!wc[i].status && wc[i].wr_id < TOTAL,
			   "wr_id %" PRIu64 ": %s", wc[i].wr_id,
			   ibv_wc_status_str(wc[i].status))) {
			atomic_store(&stage->failed, true);
			return;
		}
		atomic_fetch_add(&stage->seen[wc[i].wr_id], 1);
		atomic_fetch_add(&stage->completed, 1);
	}
	if (count < 0)
		atomic_store(&stage->failed, true);
}

static void *post_and_poll(void *argument)
{
	struct worker *worker = argument;
	struct stage *stage = worker->stage;
	unsigned int mine = atomic_fetch_add(&stage->next, 1);

	while (goes_on(worker)) {
		post_next(stage, &mine);
		poll_some(stage, stage->a.send_cq);
	}
	return NULL;
}

/* Each request completes once. */
static bool all_seen(struct stage *stage, struct ibv_cq *cq)
{
	unsigned int i;

	if (!check(!atomic_load(&stage->failed), "%u of %u completions came",
		   atomic_load(&stage->completed), (unsigned int)TOTAL))
		return false;
	for (i = 0; i < TOTAL; i++)
		if (!check(atomic_load(&stage->seen[i]) == 1,
			   "request %u has completed %u times", i,
			   atomic_load(&stage->seen[i])))
			return false;
	return cq_stays_empty(cq, 5);
}

static uint64_t word_of(const struct stage *stage, unsigned int i)
{
	return i * 0x100000001ULL + stage->opcode + 1;
}

/* Words to be moved, and where they are not yet. */
static void prepare_words(const struct stage *stage)
{
	struct setup *setup = stage->setup;
	bool reads = stage->opcode == IBV_WR_RDMA_READ;
	uint64_t *from = (uint64_t *)(reads ? setup->b_mem : setup->a_mem).addr;
	unsigned int i;

	for (i = 0; i < TOTAL; i++)
		from[i] = word_of(stage, i);
	memset((reads ? setup->a_mem : setup->b_mem).addr, 0,
	       (size_t)TOTAL * WORD_BYTES);
}

static bool words_moved(const struct stage *stage)
{
	const struct setup *setup = stage->setup;
	const uint64_t *words =
		(const uint64_t *)(stage->opcode == IBV_WR_RDMA_READ ?
					   setup->a_mem :
					   setup->b_mem)
			.addr;
	unsigned int i;

	proxy_sync();
	for (i = 0; i < TOTAL; i++)
		if (!check(words[i] == word_of(stage, i),
			   "word %u is 0x%" PRIx64, i, words[i]))
			return false;
	return true;
}

static bool share_sends(struct stage *stage, enum ibv_wr_opcode opcode)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct setup *setup = stage->setup;

	stage->opcode = opcode;
	prepare_words(stage);
	options.depth = AT_ONCE;
	options.pd = stage->domain;
	options.send_cq = large_cq(stage, &setup->a_dev);
	endpoint_create(&stage->a, &setup->a_dev, &options);
	options.pd = NULL;
	options.send_cq = NULL;
	endpoint_create(&stage->b, &setup->b_dev, &options);
	pair_connect(&stage->a, &stage->b);
	run_threads(stage, post_and_poll);
	return all_seen(stage, stage->a.send_cq) && words_moved(stage);
}

static bool share_reads(struct stage *stage)
{
	return share_sends(stage, IBV_WR_RDMA_READ);
}

static bool share_writes(struct stage *stage)
{
	return share_sends(stage, IBV_WR_RDMA_WRITE);
}

/* A domain alone promises nothing: its queues are locked. */
static bool share_in_domain(struct stage *stage)
{
	stage->domain = parent_domain(stage->setup, NULL);
	return share_sends(stage, IBV_WR_RDMA_WRITE);
}

/* --- receives of all ---------------------------------------------------------- */

static bool post_receive(struct stage *stage, uint64_t id)
{
	struct ibv_recv_wr wr = { .wr_id = id }, *bad;
	int error;

	error = stage->srq ? ibv_post_srq_recv(stage->srq, &wr, &bad) :
			     ibv_post_recv(stage->b.qp, &wr, &bad);
	if (error && error != ENOMEM)
		atomic_store(&stage->failed, true);
	return !error;
}

/* The first one sends; all of them post receives and take what has come. */
static void *receive(void *argument)
{
	struct worker *worker = argument;
	struct stage *stage = worker->stage;
	unsigned int mine = atomic_fetch_add(&stage->next, 1), sent = 0;
	struct ibv_send_wr wr = send_wr(0, IBV_WR_SEND, NULL, 0);
	struct ibv_wc wc;

	while (goes_on(worker)) {
		if (mine < TOTAL && post_receive(stage, mine))
			mine = atomic_fetch_add(&stage->next, 1);
		if (!worker->index && sent < TOTAL &&
		    !try_post_send(&stage->a, &wr))
			sent++;
		if (!worker->index)
			ibv_poll_cq(stage->a.send_cq, 1, &wc);
		poll_some(stage, stage->b.recv_cq);
	}
	return NULL;
}

static bool share_receives(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct setup *setup = stage->setup;

	options.depth = AT_ONCE;
	endpoint_create(&stage->a, &setup->a_dev, &options);
	options.srq = stage->srq;
	options.recv_cq = large_cq(stage, &setup->b_dev);
	endpoint_create(&stage->b, &setup->b_dev, &options);
	pair_connect(&stage->a, &stage->b);
	run_threads(stage, receive);
	return all_seen(stage, stage->b.recv_cq);
}

static bool share_srq(struct stage *stage)
{
	stage->srq = srq_create(stage->setup->b_dev.pd, AT_ONCE, 1);
	return share_receives(stage);
}

/* --- a thread domain for each ------------------------------------------------- */

/* Its own domain, queues and connection; of the device's only the memory. */
static bool own_traffic(struct setup *setup)
{
	struct ibv_td_init_attr attr = { .comp_mask = 0 };
	struct ibv_td *td = ibv_alloc_td(setup->a_dev.ctx, &attr);
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, WORD_BYTES);
	struct ibv_send_wr wr = send_wr(0, IBV_WR_RDMA_WRITE, &sge, 1);
	struct ibv_pd *domain;
	struct endpoint a, b;
	bool ok = true;

	if (!td)
		bail("no thread domain: %s", strerror(errno));
	domain = parent_domain(setup, td);
	options.pd = domain;
	endpoint_create(&a, &setup->a_dev, &options);
	options.pd = NULL;
	endpoint_create(&b, &setup->b_dev, &options);
	pair_connect(&a, &b);
	wr.wr.rdma.remote_addr = setup->b_mem.rdma_addr;
	wr.wr.rdma.rkey = setup->b_mem.mr->rkey;
	for (wr.wr_id = 0; ok && wr.wr_id < REQUESTS; wr.wr_id++) {
		post_send(&a, &wr);
		ok = cq_expect(a.send_cq, wr.wr_id, IBV_WC_SUCCESS) &&
		     (wr.wr_id % 16 || exchange_empty(&a, &b, wr.wr_id));
	}
	pair_destroy(&a, &b);
	return check(!ibv_dealloc_pd(domain), "parent domain") &&
	       check(!ibv_dealloc_td(td), "thread domain") && ok;
}

static void *be_alone(void *argument)
{
	struct worker *worker = argument;

	if (!own_traffic(worker->stage->setup))
		atomic_store(&worker->stage->failed, true);
	return NULL;
}

static bool thread_domains(struct stage *stage)
{
	run_threads(stage, be_alone);
	return check(!atomic_load(&stage->failed), "a thread fails");
}

/* --- time ---------------------------------------------------------------------- */

/* Requests without data, which the kernel executes. */
static void *post_timed(void *argument)
{
	struct worker *worker = argument;
	struct stage *stage = worker->stage;
	struct ibv_send_wr wr = send_wr(0, IBV_WR_RDMA_WRITE, NULL, 0);
	uint64_t end = deadline();
	int error;

	while (wr.wr_id < REQUESTS && !atomic_load(&stage->failed)) {
		error = try_post_send(&stage->timed_a[worker->index], &wr);
		if (!error) {
			wr.wr_id++;
			end = deadline();
		} else if (error == ENOMEM && now_ms() < end) {
			sched_yield();
		} else {
			atomic_store(&stage->failed, true);
		}
	}
	return NULL;
}

/* Each completion is no earlier than the one before it. */
static bool in_order_of_time(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { .comp_mask = 0 };
	uint64_t last = 0, now, end = deadline();
	unsigned int count = 0;
	bool ok = true;

	while (ok && count < TOTAL) {
		if (ibv_start_poll(cq, &attr)) {
			ok = check(now_ms() < end, "%u completions", count);
			continue;
		}
		do {
			now = ibv_wc_read_completion_ts(cq);
			ok = check(!cq->status && now >= last,
				   "%" PRIu64 " after %" PRIu64 ", status %d",
				   now, last, cq->status);
			last = now;
			count++;
		} while (ok && !ibv_next_poll(cq));
		ibv_end_poll(cq);
		end = deadline();
	}
	return ok;
}

static bool timestamps(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_cq_init_attr_ex attr = {
		.cqe = TOTAL,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(stage->setup->a_dev.ctx, &attr);
	unsigned int i;
	bool ok;

	if (!cq)
		bail("no extended completion queue: %s", strerror(errno));
	stage->cq = ibv_cq_ex_to_cq(cq);
	for (i = 0; i < THREADS; i++) {
		options.send_cq = stage->cq;
		endpoint_create(&stage->timed_a[i], &stage->setup->a_dev,
				&options);
		options.send_cq = NULL;
		endpoint_create(&stage->timed_b[i], &stage->setup->b_dev,
				&options);
		pair_connect(&stage->timed_a[i], &stage->timed_b[i]);
	}
	run_threads(stage, post_timed);
	ok = check(!atomic_load(&stage->failed), "a thread fails") &&
	     in_order_of_time(cq);
	for (i = 0; i < THREADS; i++)
		pair_destroy(&stage->timed_a[i], &stage->timed_b[i]);
	return ok;
}

/* ------------------------------------------------------------------------------ */

static const struct {
	bool (*run)(struct stage *stage);
	const char *name;
	bool one_machine; /* b's own threads, or a's alone */
} cases[] = {
	{ share_writes, "threads share a queue pair: WRITE", false },
	{ share_reads, "threads share a queue pair: READ", false },
	{ share_in_domain, "threads share a queue pair of a parent domain",
	  false },
	{ share_receives, "threads share a receive queue", true },
	{ share_srq, "threads share a shared receive queue", true },
	{ thread_domains, "a thread domain for each", true },
	{ timestamps, "completions of threads, in the order of time", false },
};

static bool run_case(struct setup *setup, unsigned int i)
{
	struct stage *stage = calloc(1, sizeof(*stage));
	bool ok;

	if (!stage)
		bail("no memory");
	stage->setup = setup;
	ok = cases[i].run(stage);
	if (stage->a.dev)
		pair_destroy(&stage->a, &stage->b);
	if (stage->cq)
		ok = check(!ibv_destroy_cq(stage->cq), "ibv_destroy_cq") && ok;
	if (stage->srq)
		ok = check(!ibv_destroy_srq(stage->srq), "ibv_destroy_srq") &&
		     ok;
	if (stage->domain)
		ok = check(!ibv_dealloc_pd(stage->domain), "parent domain") &&
		     ok;
	free(stage);
	return ok;
}

int main(int argc, char **argv)
{
	struct neighbours neighbours;
	struct setup setup;
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	neighbours_open(&neighbours, &setup);
	for (i = 0; i < COUNT(cases); i++) {
		if (cases[i].one_machine && setup_is_remote(&setup))
			continue;
		tap_ok(run_case(&setup, i) && neighbours_work(&neighbours),
		       "%s", cases[i].name);
	}
	if (!setup_is_remote(&setup))
		tap_ok(waits_for_copies(&setup) && neighbours_work(&neighbours),
		       "an urgent thread waits for copies of another");
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
