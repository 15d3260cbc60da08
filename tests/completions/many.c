// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Many queue pairs, and many threads.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "clock.h"
#include "pattern.h"
#include "tap.h"
#include "work.h"
#include "completions.h"

#define MANY 16

struct crowd {
	struct ibv_cq *cq; /* for all of @pairs[].a */
	struct pair pairs[MANY];
};

static void crowd_open(struct crowd *crowd, struct setup *setup, int entries)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	int i;

	crowd->cq = ibv_create_cq(setup->a_dev.ctx, entries, NULL, NULL, 0);
	if (!crowd->cq)
		bail("cannot create a CQ: %s", strerror(errno));
	for (i = 0; i < MANY; i++) {
		crowd->pairs[i].setup = setup;
		options.send_cq = crowd->cq;
		options.recv_cq = crowd->cq;
		endpoint_create(&crowd->pairs[i].a, &setup->a_dev, &options);
		options.send_cq = NULL;
		options.recv_cq = NULL;
		endpoint_create(&crowd->pairs[i].b, &setup->b_dev, &options);
		pair_connect(&crowd->pairs[i].a, &crowd->pairs[i].b);
	}
}

static void crowd_close(struct crowd *crowd)
{
	int i;

	for (i = 0; i < MANY; i++)
		pair_close(&crowd->pairs[i]);
	tap_must(!ibv_destroy_cq(crowd->cq), "ibv_destroy_cq fails");
}

static int crowd_find(const struct crowd *crowd, uint32_t qp_num)
{
	int i;

	for (i = 0; i < MANY; i++)
		if (crowd->pairs[i].a.qp->qp_num == qp_num)
			return i;
	return -1;
}

/* Each queue pair's completions come in its order, under its number. */
static bool crowd_collect(struct crowd *crowd, unsigned int total)
{
	uint64_t next[MANY] = { 0 };
	struct ibv_wc wc;
	unsigned int i;
	int who;

	for (i = 0; i < total; i++) {
		if (!cq_wait(crowd->cq, &wc))
			return false;
		who = crowd_find(crowd, wc.qp_num);
		if (!check(who >= 0, "unknown qp_num %u", wc.qp_num) ||
		    !check(wc.status == IBV_WC_SUCCESS, "%s",
			   ibv_wc_status_str(wc.status)) ||
		    !check(wc.wr_id == next[who],
			   "wr_id %" PRIu64 " after %" PRIu64, wc.wr_id,
			   next[who] - 1))
			return false;
		next[who]++;
	}
	return cq_stays_empty(crowd->cq, 0);
}

bool case_shared_cq(struct setup *setup)
{
	struct crowd crowd;
	unsigned int rounds = repetitions(setup, 10), round, i, k;
	bool ok = true;

	/* Exactly as many entries as requests: none may get lost. */
	crowd_open(&crowd, setup, MANY * 60);
	for (round = 0; round < rounds && ok; round++) {
		for (k = 0; k < 60; k++)
			for (i = 0; i < MANY; i++)
				post_a(&crowd.pairs[i], k, IBV_WR_RDMA_WRITE, 0,
				       1 + k * 50, IBV_SEND_SIGNALED);
		ok = crowd_collect(&crowd, MANY * 60);
	}
	crowd_close(&crowd);
	return ok;
}

/* Additions by many queue pairs to one word: none is lost. */
bool case_atomic_sum(struct setup *setup)
{
	uint64_t *word = (uint64_t *)(setup->b_mem.addr + WORD_OFFSET);
	struct crowd crowd;
	unsigned int i, k;
	bool ok;

	*word = 0;
	crowd_open(&crowd, setup, MANY * 60);
	for (k = 0; k < 60; k++)
		for (i = 0; i < MANY; i++)
			post_a(&crowd.pairs[i], k, IBV_WR_ATOMIC_FETCH_AND_ADD,
			       WORD_OFFSET, 8, IBV_SEND_SIGNALED);
	ok = crowd_collect(&crowd, MANY * 60) &&
	     check(*word == MANY * 60, "the sum is %" PRIu64, *word);
	crowd_close(&crowd);
	return ok;
}

struct worker {
	struct setup *setup;
	struct pair pair;
	pthread_t thread;
	uint64_t total;
	bool ok;
};

static void *worker_main(void *argument)
{
	struct worker *worker = argument;
	uint64_t id;

	worker->ok = true;
	for (id = 0; id < worker->total && worker->ok; id++) {
		post_b_receive(&worker->pair, id, 0, 64);
		post_a(&worker->pair, id, IBV_WR_SEND, 4096, 64,
		       IBV_SEND_SIGNALED);
		worker->ok =
			cq_expect(worker->pair.a.send_cq, id, IBV_WC_SUCCESS) &&
			cq_expect(worker->pair.b.recv_cq, id, IBV_WC_SUCCESS);
	}
	return NULL;
}

bool case_threads(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct worker workers[4];
	bool ok = true;
	unsigned int i;

	for (i = 0; i < COUNT(workers); i++) {
		pair_open(&workers[i].pair, setup, &options);
		workers[i].total = repetitions(setup, 2000);
	}
	for (i = 0; i < COUNT(workers); i++)
		if (pthread_create(&workers[i].thread, NULL, worker_main,
				   &workers[i]))
			bail("pthread_create fails");
	for (i = 0; i < COUNT(workers); i++) {
		pthread_join(workers[i].thread, NULL);
		ok = ok && workers[i].ok;
		pair_close(&workers[i].pair);
	}
	return ok;
}

/* Several threads post to one queue pair; as many completions as posts. */
static void *poster_main(void *argument)
{
	struct worker *worker = argument;
	struct ibv_sge sge = a_sge(&worker->pair, 0, 8);
	struct ibv_send_wr wr = send_wr(0, IBV_WR_RDMA_WRITE, &sge, 1);
	unsigned int posted = 0, round = 0;
	uint64_t end = deadline();
	int error;

	wr.wr.rdma.remote_addr = worker->setup->b_mem.rdma_addr;
	wr.wr.rdma.rkey = worker->setup->b_mem.mr->rkey;
	while (posted < worker->total && now_ms() < end) {
		error = try_post_send(&worker->pair.a, &wr);
		if (!error) {
			posted++;
			round = 0;
			end = deadline();
		} else if (error == ENOMEM) {
			relax(round++);
		} else {
			break;
		}
	}
	worker->ok = check(posted == worker->total, "only %u posts", posted);
	return NULL;
}

bool case_threads_one_qp(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct worker workers[3];
	unsigned int i, each = repetitions(setup, 3000);
	unsigned int total = each * COUNT(workers);
	struct ibv_cq *cq;
	struct pair pair;
	bool ok = true;

	/* The posters don't count completions: there is room for all. */
	cq = ibv_create_cq(setup->a_dev.ctx, total, NULL, NULL, 0);
	if (!cq)
		bail("cannot create a CQ: %s", strerror(errno));
	options.send_cq = cq;
	pair.setup = setup;
	endpoint_create(&pair.a, &setup->a_dev, &options);
	options.send_cq = NULL;
	endpoint_create(&pair.b, &setup->b_dev, &options);
	pair_connect(&pair.a, &pair.b);
	for (i = 0; i < COUNT(workers); i++) {
		workers[i] = (struct worker){
			.setup = setup,
			.pair = pair,
			.total = each,
		};
		if (pthread_create(&workers[i].thread, NULL, poster_main,
				   &workers[i]))
			bail("pthread_create fails");
	}
	for (i = 0; i < total && ok; i++)
		ok = cq_expect(pair.a.send_cq, 0, IBV_WC_SUCCESS);
	for (i = 0; i < COUNT(workers); i++) {
		pthread_join(workers[i].thread, NULL);
		ok = ok && workers[i].ok;
	}
	ok = ok && cq_stays_empty(pair.a.send_cq, 0);
	pair_close(&pair);
	tap_must(!ibv_destroy_cq(cq), "ibv_destroy_cq fails");
	return ok;
}

bool case_both_directions(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct pair pair;
	bool ok = true;
	unsigned int i, total = repetitions(setup, 1000);

	pair_open(&pair, setup, &options);
	for (i = 0; i < total && ok; i++) {
		post_b_receive(&pair, i, 0, 100);
		sge = a_sge(&pair, 0, 100);
		post_recv(&pair.a, i, &sge, 1);
		post_a(&pair, i, IBV_WR_SEND, 1000, 100, IBV_SEND_SIGNALED);
		sge = b_sge(&pair, 1000, 100);
		wr = send_wr(i, IBV_WR_SEND, &sge, 1);
		post_send(&pair.b, &wr);
		ok = cq_expect(pair.a.send_cq, i, IBV_WC_SUCCESS) &&
		     cq_expect(pair.b.send_cq, i, IBV_WC_SUCCESS) &&
		     cq_expect(pair.a.recv_cq, i, IBV_WC_SUCCESS) &&
		     cq_expect(pair.b.recv_cq, i, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
	return ok;
}

/* A queue pair connected with itself. */
bool case_self(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address address;
	struct ibv_sge from = region_sge(&setup->a_mem, 0, 5000);
	struct ibv_sge to = region_sge(&setup->a_mem, 9999, 5000);
	struct ibv_send_wr wr = send_wr(7, IBV_WR_SEND, &from, 1);
	struct endpoint ep;
	bool ok;

	memcpy(setup->a_mem.addr, pattern_bytes(5, 5000), 5000);
	endpoint_create(&ep, &setup->a_dev, &options);
	address = endpoint_address(&ep);
	endpoint_connect(&ep, &address);
	post_recv(&ep, 6, &to, 1);
	post_send(&ep, &wr);
	ok = cq_expect(ep.send_cq, 7, IBV_WC_SUCCESS) &&
	     cq_expect(ep.recv_cq, 6, IBV_WC_SUCCESS) &&
	     check(!memcmp(setup->a_mem.addr + 9999, pattern_bytes(5, 5000),
			   5000),
		   "other bytes arrive");
	endpoint_destroy(&ep);
	return ok;
}
