// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The direct path in races: windows are revoked all the time while requests
 * use them, several threads post to one queue pair, and several queue pairs
 * complete to one queue. Nothing is lost, done twice or out of order.
 *
 * usage: races [--device NAME] [--peer NAME] [MILLISECONDS of each case]
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "endpoint.h"
#include "pattern.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

enum {
	MEMORY_BYTES = 1 << 18,
	COPY_BYTES = 20000,
	WORD = 8,
	PAIRS = 3,
	IN_FLIGHT = 8,
	FAILURES = 50,
};

static unsigned int duration = 1500;

struct pair {
	struct endpoint a;
	struct endpoint b;
};

struct test {
	struct setup setup;
	struct pair pair;
	atomic_bool stop;
	atomic_ulong revocations;
};

static void pair_open(struct pair *pair, struct setup *setup, struct ibv_cq *cq,
		      enum micdv_path path)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	endpoint_create(&pair->b, &setup->b_dev, &options);
	options.send_cq = cq;
	endpoint_create(&pair->a, &setup->a_dev, &options);
	pair_connect(&pair->a, &pair->b);
	if (micdv_set_path(pair->a.qp, path))
		bail("micdv_set_path fails");
}

static void pair_close(struct pair *pair)
{
	pair_destroy(&pair->a, &pair->b);
}

static void start(pthread_t *thread, void *(*main)(void *), void *argument)
{
	if (pthread_create(thread, NULL, main, argument))
		bail("pthread_create fails");
}

/* A change that means nothing, but ends the windows of the queue pair. */
static bool touch(struct endpoint *ep)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.min_rnr_timer = 1,
	};

	return check(!ibv_modify_qp(ep->qp, &attr,
				    IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER),
		     "ibv_modify_qp fails");
}

static void *revoke_all_the_time(void *argument)
{
	struct test *test = argument;

	while (!atomic_load(&test->stop)) {
		touch(atomic_fetch_add(&test->revocations, 1) & 1 ?
			      &test->pair.a :
			      &test->pair.b);
		sched_yield();
	}
	return NULL;
}

/* Is a request that was posted complete? */
static bool execute(struct test *test, struct ibv_send_wr *wr)
{
	return check(!try_post_send(&test->pair.a, wr), "posting fails") &&
	       cq_expect(test->pair.a.send_cq, wr->wr_id, IBV_WC_SUCCESS);
}

static bool add_one(struct test *test, uint64_t count)
{
	struct ibv_sge sge = region_sge(&test->setup.a_mem, 0, WORD);
	struct ibv_send_wr wr = send_wr(count, IBV_WR_ATOMIC_FETCH_AND_ADD,
					&sge, 1);
	uint64_t old;

	wr.wr.atomic.remote_addr = (test->setup.b_mem.rdma_addr + WORD - 1) &
				   ~(uint64_t)(WORD - 1);
	wr.wr.atomic.rkey = test->setup.b_mem.mr->rkey;
	wr.wr.atomic.compare_add = 1;
	if (!execute(test, &wr))
		return false;
	memcpy(&old, test->setup.a_mem.addr, WORD);
	return check(old == count, "the sum is %" PRIu64 " after %" PRIu64, old,
		     count);
}

static bool copy_there_and_back(struct test *test, uint64_t round)
{
	struct region *memory = &test->setup.a_mem, *peer = &test->setup.b_mem;
	const uint8_t *bytes = pattern_bytes(round, COPY_BYTES);
	struct ibv_sge from = region_sge(memory, 0, COPY_BYTES);
	struct ibv_sge to = region_sge(memory, COPY_BYTES, COPY_BYTES);
	struct ibv_send_wr write = send_wr(1, IBV_WR_RDMA_WRITE, &from, 1);
	struct ibv_send_wr read = send_wr(2, IBV_WR_RDMA_READ, &to, 1);

	memcpy(memory->addr, bytes, COPY_BYTES);
	write.wr.rdma.remote_addr = peer->rdma_addr + 100;
	write.wr.rdma.rkey = peer->mr->rkey;
	read.wr.rdma = write.wr.rdma;
	return execute(test, &write) &&
	       check(!memcmp(peer->addr + 100, bytes, COPY_BYTES),
		     "a complete WRITE did not arrive") &&
	       execute(test, &read) &&
	       check(!memcmp(memory->addr + COPY_BYTES, bytes, COPY_BYTES),
		     "a READ brought other bytes");
}

static bool survives(struct test *test, enum micdv_path path,
		     bool (*step)(struct test *, uint64_t))
{
	uint64_t end = now_ms() + duration, n = 0;
	pthread_t revoker;
	bool ok = true;

	pair_open(&test->pair, &test->setup, NULL, path);
	memset(test->setup.b_mem.addr, 0, MEMORY_BYTES);
	atomic_store(&test->stop, false);
	atomic_store(&test->revocations, 0);
	start(&revoker, revoke_all_the_time, test);
	while (ok && (now_ms() < end || n < 50))
		ok = step(test, n++);
	atomic_store(&test->stop, true);
	pthread_join(revoker, NULL);
	pair_close(&test->pair);
	tap_note("%" PRIu64 " rounds, %lu revocations", n,
		 atomic_load(&test->revocations));
	return ok && check(atomic_load(&test->revocations) > 0,
			   "nothing was revoked");
}

/* --- several threads ------------------------------------------------------- */

struct poster {
	struct test *test;
	struct endpoint *ep;
	unsigned int index;
	atomic_ulong *window; /* requests that are not complete */
	atomic_ulong posted;
	pthread_t thread;
};

static void post_one(struct poster *poster, uint64_t number)
{
	struct region *memory = &poster->test->setup.a_mem;
	struct region *peer = &poster->test->setup.b_mem;
	size_t offset = (size_t)poster->index * 4096 + 8 * (number % 64);
	struct ibv_sge sge = region_sge(memory, offset, 8);
	struct ibv_send_wr wr = send_wr(
		number << 8 | poster->index,
		number % 5 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &sge, 1);

	wr.wr.rdma.remote_addr = peer->rdma_addr + offset;
	wr.wr.rdma.rkey = peer->mr->rkey;
	post_send(poster->ep, &wr);
}

static void *post_all_the_time(void *argument)
{
	struct poster *poster = argument;
	uint64_t number = 0;
	unsigned int round = 0;

	while (!atomic_load(&poster->test->stop)) {
		if (atomic_load(poster->window) >= IN_FLIGHT) {
			relax(round++);
			continue;
		}
		round = 0;
		atomic_fetch_add(poster->window, 1);
		post_one(poster, number++);
		atomic_store(&poster->posted, number);
	}
	return NULL;
}

/* Each poster's numbers come one after the other. */
static bool take(struct poster *posters, uint64_t *next, struct ibv_cq *cq)
{
	unsigned int index;
	uint64_t number;
	struct ibv_wc wc;
	int n = ibv_poll_cq(cq, 1, &wc);

	if (n <= 0)
		return check(!n, "ibv_poll_cq fails");
	index = wc.wr_id & 0xff;
	number = next[index]++;
	atomic_fetch_sub(posters[index].window, 1);
	return check(wc.status == IBV_WC_SUCCESS, "a request fails: %s",
		     ibv_wc_status_str(wc.status)) &&
	       check(wc.wr_id >> 8 == number,
		     "poster %u: completion %" PRIu64
		     " came instead of %" PRIu64,
		     index, wc.wr_id >> 8, number);
}

static bool all_taken(struct poster *posters, const uint64_t *next)
{
	unsigned int i;

	for (i = 0; i < PAIRS; i++)
		if (next[i] != atomic_load(&posters[i].posted))
			return false;
	return true;
}

static bool run_posters(struct test *test, struct poster *posters,
			struct ibv_cq *cq)
{
	uint64_t next[PAIRS] = { 0 }, end = now_ms() + duration, limit;
	unsigned int i;
	bool ok = true;

	atomic_store(&test->stop, false);
	for (i = 0; i < PAIRS; i++)
		start(&posters[i].thread, post_all_the_time, &posters[i]);
	while (ok && now_ms() < end)
		ok = take(posters, next, cq);
	atomic_store(&test->stop, true);
	for (i = 0; i < PAIRS; i++)
		pthread_join(posters[i].thread, NULL);
	limit = deadline();
	while (ok && !all_taken(posters, next) && now_ms() < limit)
		ok = take(posters, next, cq);
	tap_note("%" PRIu64 " requests", next[0] + next[1] + next[2]);
	return ok && check(all_taken(posters, next), "completions are missing");
}

static struct ibv_cq *posters_cq(struct test *test)
{
	struct ibv_cq *cq = ibv_create_cq(test->setup.a_dev.ctx,
					  PAIRS * IN_FLIGHT, NULL, NULL, 0);

	if (!cq)
		bail("ibv_create_cq: %s", strerror(errno));
	return cq;
}

static bool one_queue(struct test *test, enum micdv_path path)
{
	struct ibv_cq *cq = posters_cq(test);
	struct poster posters[PAIRS];
	atomic_ulong windows[PAIRS];
	struct pair pairs[PAIRS];
	unsigned int i;
	bool ok;

	for (i = 0; i < PAIRS; i++) {
		pair_open(&pairs[i], &test->setup, cq, path);
		atomic_init(&windows[i], 0);
		posters[i] = (struct poster){
			.test = test,
			.ep = &pairs[i].a,
			.index = i,
			.window = &windows[i],
		};
	}
	ok = run_posters(test, posters, cq);
	for (i = 0; i < PAIRS; i++)
		pair_close(&pairs[i]);
	ibv_destroy_cq(cq);
	return ok;
}

static bool one_queue_pair(struct test *test, enum micdv_path path)
{
	struct ibv_cq *cq = posters_cq(test);
	struct poster posters[PAIRS];
	atomic_ulong windows[PAIRS];
	struct pair pair;
	unsigned int i;
	bool ok;

	pair_open(&pair, &test->setup, cq, path);
	for (i = 0; i < PAIRS; i++) {
		atomic_init(&windows[i], 0);
		posters[i] = (struct poster){
			.test = test,
			.ep = &pair.a,
			.index = i,
			.window = &windows[i],
		};
	}
	ok = run_posters(test, posters, cq);
	pair_close(&pair);
	ibv_destroy_cq(cq);
	return ok;
}

/* --- the queue pair fails -------------------------------------------------- */

/* The peer asks for what there is no key for. */
static void *fail_pair(void *argument)
{
	struct test *test = argument;
	struct ibv_sge sge = region_sge(&test->setup.b_mem, 0, WORD);
	struct ibv_send_wr wr = send_wr(0, IBV_WR_RDMA_WRITE, &sge, 1);

	wr.wr.rdma.remote_addr = test->setup.a_mem.rdma_addr;
	wr.wr.rdma.rkey = ~0U;
	post_send(&test->pair.b, &wr);
	return NULL;
}

/* WRITEs without bytes, which are the kernel's, and others take turns. */
static bool write_until_failed(struct test *test)
{
	struct region *peer = &test->setup.b_mem;
	unsigned int failed = 0;
	uint64_t id;

	for (id = 0; failed < IN_FLIGHT; id++) {
		struct ibv_sge sge = region_sge(&test->setup.a_mem, 0,
						id % 2 ? WORD : 0);
		struct ibv_send_wr wr = send_wr(id, IBV_WR_RDMA_WRITE, &sge, 1);
		struct ibv_wc wc;

		wr.wr.rdma.remote_addr = peer->rdma_addr;
		wr.wr.rdma.rkey = peer->mr->rkey;
		post_send(&test->pair.a, &wr);
		if (!cq_wait(test->pair.a.send_cq, &wc))
			return false;
		if (wc.status != IBV_WC_SUCCESS)
			failed++;
		else if (!check(!failed, "success behind %u that failed",
				failed))
			return false;
	}
	return true;
}

static bool fails_for_good(struct test *test, enum micdv_path path)
{
	unsigned int i;
	bool ok = true;

	for (i = 0; ok && i < FAILURES; i++) {
		pthread_t peer;

		pair_open(&test->pair, &test->setup, NULL, path);
		start(&peer, fail_pair, test);
		ok = write_until_failed(test);
		pthread_join(peer, NULL);
		pair_close(&test->pair);
	}
	return ok;
}

int main(int argc, char **argv)
{
	static const struct {
		enum micdv_path path;
		const char *name;
	} paths[] = {
		{ MICDV_PATH_DIRECT, "the process executes" },
		{ MICDV_PATH_RANDOM, "the process or the kernel executes" },
	};
	struct test test;
	size_t i;

	memset(&test, 0, sizeof(test));
	setup_open(&test.setup, &argc, argv, MEMORY_BYTES);
	if (argc > 1)
		duration = atoi(argv[1]);
	for (i = 0; i < 2; i++) {
		tap_ok(survives(&test, paths[i].path, add_one),
		       "%s: an atomic takes place once, whatever is revoked",
		       paths[i].name);
		tap_ok(survives(&test, paths[i].path, copy_there_and_back),
		       "%s: copies are whole, whatever is revoked",
		       paths[i].name);
		tap_ok(one_queue(&test, paths[i].path),
		       "%s: queue pairs complete to one queue", paths[i].name);
		tap_ok(one_queue_pair(&test, paths[i].path),
		       "%s: threads post to one queue pair", paths[i].name);
		tap_ok(fails_for_good(&test, paths[i].path),
		       "%s: nothing succeeds behind what failed",
		       paths[i].name);
	}
	setup_close(&test.setup);
	return tap_end();
}
