// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Creates, uses and destroys objects in random order from several threads.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "fuzz.h"
#include "memory.h"
#include "work.h"

enum { THREADS = 4, SLOTS = 8, MEMORY_BYTES = 65536 };

/* One thread's own; queue pairs of all talk through the same device. */
struct worker {
	pthread_t thread;
	struct random_state random;
	unsigned int steps;
	struct ibv_cq *cqs[SLOTS];
	struct ibv_mr *mrs[SLOTS];
	struct ibv_srq *srqs[SLOTS];
	struct ibv_mw *mws[SLOTS];
	struct ibv_ah *ahs[SLOTS];
	struct endpoint pairs[SLOTS][2];
	bool paired[SLOTS];
};

static struct device dev;
static uint8_t memory[MEMORY_BYTES];

static void toggle_cq(struct worker *worker, unsigned int i)
{
	struct ibv_cq **cq = &worker->cqs[i];

	if (!*cq)
		*cq = ibv_create_cq(dev.ctx,
				    1 + random_below(&worker->random, 300),
				    NULL, NULL, 0);
	else if (random_below(&worker->random, 2))
		ibv_resize_cq(*cq, 1 + random_below(&worker->random, 300));
	else if (!ibv_destroy_cq(*cq))
		*cq = NULL;
}

static void toggle_mr(struct worker *worker, unsigned int i)
{
	struct ibv_mr **mr = &worker->mrs[i];
	size_t offset = random_below(&worker->random, MEMORY_BYTES / 2);

	if (!*mr && !random_below(&worker->random, 8))
		*mr = ibv_alloc_null_mr(dev.pd);
	else if (!*mr)
		*mr = ibv_reg_mr(dev.pd, memory + offset,
				 1 + random_below(&worker->random,
						  MEMORY_BYTES / 2),
				 ACCESS_ALL | IBV_ACCESS_MW_BIND);
	else if (random_below(&worker->random, 2))
		ibv_rereg_mr(*mr, IBV_REREG_MR_CHANGE_TRANSLATION, dev.pd,
			     memory + offset, 100, 0);
	else if (!ibv_dereg_mr(*mr))
		*mr = NULL;
}

static void toggle_srq(struct worker *worker, unsigned int i)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = 64, .max_sge = 2 },
	};

	if (!worker->srqs[i]) {
		worker->srqs[i] = ibv_create_srq(dev.pd, &attr);
	} else if (random_below(&worker->random, 4)) {
		struct ibv_srq_attr change = {
			.max_wr = 1 + random_below(&worker->random, 300),
			.srq_limit = random_below(&worker->random, 20),
		};

		ibv_modify_srq(worker->srqs[i], &change,
			       1 + random_below(&worker->random, 3));
	} else if (!ibv_destroy_srq(worker->srqs[i])) {
		worker->srqs[i] = NULL;
	}
}

static void fill_srq(struct worker *worker, unsigned int i)
{
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	unsigned int n = random_below(&worker->random, 20);

	while (worker->srqs[i] && n--)
		ibv_post_srq_recv(worker->srqs[i], &wr, &bad);
}

static void toggle_mw(struct worker *worker, unsigned int i)
{
	if (!worker->mws[i])
		worker->mws[i] = ibv_alloc_mw(dev.pd, IBV_MW_TYPE_1);
	else if (!ibv_dealloc_mw(worker->mws[i]))
		worker->mws[i] = NULL;
}

static void toggle_ah(struct worker *worker, unsigned int i)
{
	if (!worker->ahs[i])
		worker->ahs[i] = address_handle(&dev, &dev.gid);
	else if (!ibv_destroy_ah(worker->ahs[i]))
		worker->ahs[i] = NULL;
}

static void toggle_pair(struct worker *worker, unsigned int i)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint *pair = worker->pairs[i];

	options.depth = 16;
	options.retry_count = 1;
	options.rnr_retry = 1;
	options.srq = worker->srqs[random_below(&worker->random, SLOTS)];
	if (!worker->paired[i])
		pair_create(&pair[0], &dev, &pair[1], &dev, &options);
	else
		pair_destroy(&pair[0], &pair[1]);
	worker->paired[i] = !worker->paired[i];
}

/* For a receive of a shared queue, perhaps while that is resized. */
static void post_empty(struct endpoint *ep)
{
	struct ibv_send_wr wr = send_wr(3, IBV_WR_SEND, NULL, 0);

	try_post_send(ep, &wr);
}

/* Something for a pair to do, with whatever region there is. */
static void use_pair(struct worker *worker, unsigned int i)
{
	struct endpoint *pair = worker->pairs[i];
	struct ibv_mr *mr = worker->mrs[random_below(&worker->random, SLOTS)];
	struct ibv_mw *mw = worker->mws[random_below(&worker->random, SLOTS)];
	struct ibv_send_wr wr, *bad;
	struct ibv_wc wc[8];
	struct ibv_sge sge;

	if (!worker->paired[i])
		return;
	ibv_poll_cq(pair[0].send_cq, 8, wc);
	if (!mr)
		return;
	sge = (struct ibv_sge){
		.addr = (uintptr_t)mr->addr,
		.length = mr->length,
		.lkey = mr->lkey,
	};
	wr = send_wr(1,
		     random_below(&worker->random, 2) ? IBV_WR_RDMA_WRITE :
							IBV_WR_RDMA_READ,
		     &sge, 1);
	wr.wr.rdma.remote_addr = (uintptr_t)mr->addr;
	wr.wr.rdma.rkey = mr->rkey;
	ibv_post_send(pair[0].qp, &wr, &bad);
	if (random_below(&worker->random, 2))
		post_empty(&pair[0]);
	if (mw) {
		struct ibv_mw_bind bind = {
			.wr_id = 2,
			.bind_info = {
				.mr = mr, .addr = (uintptr_t)mr->addr,
				.length = random_below(&worker->random, 100),
				.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
			},
		};

		ibv_bind_mw(pair[1].qp, mw, &bind);
	}
	if (!random_below(&worker->random, 8))
		endpoint_set_state(&pair[0], IBV_QPS_ERR);
}

static void one_step(struct worker *worker)
{
	unsigned int i = random_below(&worker->random, SLOTS);

	switch (random_below(&worker->random, 11)) {
	case 0:
		toggle_cq(worker, i);
		break;
	case 1:
		toggle_mr(worker, i);
		break;
	case 2:
		toggle_srq(worker, i);
		break;
	case 3:
		toggle_mw(worker, i);
		break;
	case 4:
		toggle_ah(worker, i);
		break;
	case 5:
		toggle_pair(worker, i);
		break;
	case 6:
		fill_srq(worker, i);
		break;
	default:
		use_pair(worker, i);
		break;
	}
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	while (worker->steps--)
		one_step(worker);
	return NULL;
}

static void objects(struct random_state *random, unsigned int steps)
{
	static struct worker workers[THREADS];
	int i;

	device_open(&dev, fuzz_device);
	for (i = 0; i < THREADS; i++) {
		random_seed(&workers[i].random, random_next(random));
		workers[i].steps = steps / THREADS;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			exit(1);
	}
	/* half of the processes leave in the middle of it */
	if (random_below(random, 2))
		pthread_join(workers[0].thread, NULL);
	else
		for (i = 0; i < THREADS; i++)
			pthread_join(workers[i].thread, NULL);
}

int main(int argc, char **argv)
{
	return fuzz_run(argc, argv, objects, 4000, FUZZ_ENDS);
}
