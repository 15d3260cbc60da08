// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Connections that are now busy and now idle, for as long as the thread that
 * polls send queues likes to wait, or longer: each request is carried out, in
 * order, though nobody may have rung the doorbell for it.
 *
 * usage: polling [--device NAME] [--peer NAME] MILLISECONDS PAUSE-US [PAIRS
 *	[modify]]
 *
 * The pauses are of a random length up to PAUSE-US. With "modify" the queue pairs
 * are modified all the time, too, which ends the polling until they ring again.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "endpoint.h"
#include "pattern.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

enum { MAX_PAIRS = 16, BYTES = 64, SLOT = 4096, LIST = 3, LEAST_ROUNDS = 30 };

static struct setup setup;
static unsigned int duration, pause_us;
static bool modify;

struct pair {
	struct endpoint a;
	struct endpoint b;
	size_t offset;
	struct random_state random;
	pthread_t thread;
	uint64_t rounds;
	uint64_t sends;
	bool ok;
};

static void pause_randomly(struct pair *pair)
{
	struct timespec ts = { 0 };

	if (!pause_us || random_below(&pair->random, 2))
		return;
	ts.tv_nsec = 1000L * random_below(&pair->random, pause_us);
	nanosleep(&ts, NULL);
}

/* One side sends what only this round sends, the other receives it. */
static bool send_one(struct pair *pair, bool back)
{
	struct region *from_mem = back ? &setup.b_mem : &setup.a_mem;
	struct region *to_mem = back ? &setup.a_mem : &setup.b_mem;
	struct endpoint *from = back ? &pair->b : &pair->a;
	struct endpoint *to = back ? &pair->a : &pair->b;
	struct ibv_sge send = region_sge(from_mem, pair->offset, BYTES);
	struct ibv_sge receive = region_sge(to_mem, pair->offset + BYTES,
					    BYTES);
	struct ibv_send_wr wr = send_wr(pair->rounds, IBV_WR_SEND, &send, 1);
	uint8_t bytes[BYTES];

	memset(bytes, 1 + pair->rounds % 255, BYTES);
	memcpy(from_mem->addr + pair->offset, bytes, BYTES);
	post_recv(to, pair->rounds, &receive, 1);
	post_send(from, &wr);
	pair->sends++;
	return cq_expect(to->recv_cq, pair->rounds, IBV_WC_SUCCESS) &&
	       cq_expect(from->send_cq, pair->rounds, IBV_WC_SUCCESS) &&
	       check(!memcmp(to_mem->addr + pair->offset + BYTES, bytes, BYTES),
		     "other bytes arrive");
}

/* A list, of which this process may execute the first by itself. */
static bool post_list(struct pair *pair)
{
	struct ibv_sge sge = region_sge(&setup.a_mem, pair->offset, BYTES);
	struct ibv_send_wr wr[LIST];
	unsigned int i;

	for (i = 0; i < LIST; i++) {
		wr[i] = send_wr(i, i % 2 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE,
				&sge, 1);
		wr[i].wr.rdma.remote_addr = setup.b_mem.rdma_addr +
					    pair->offset + 2 * BYTES;
		wr[i].wr.rdma.rkey = setup.b_mem.mr->rkey;
		wr[i].next = i + 1 < LIST ? &wr[i + 1] : NULL;
	}
	wr[1].sg_list = NULL;
	wr[1].num_sge = 0;
	post_recv(&pair->b, 77, NULL, 0);
	post_send(&pair->a, &wr[0]);
	pair->sends++;
	for (i = 0; i < LIST; i++)
		if (!cq_expect(pair->a.send_cq, i, IBV_WC_SUCCESS))
			return false;
	return cq_expect(pair->b.recv_cq, 77, IBV_WC_SUCCESS);
}

/* In RTS nothing but what it permits others changes. */
static void modify_one(struct pair *pair)
{
	struct endpoint *one = pair->rounds % 3 ? &pair->a : &pair->b;
	struct ibv_qp_attr attr = {
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ,
	};
	int err = ibv_modify_qp(one->qp, &attr, IBV_QP_ACCESS_FLAGS);

	if (!check(!err, "ibv_modify_qp returns %d", err))
		pair->ok = false;
}

static void *run(void *argument)
{
	struct pair *pair = argument;
	uint64_t end = now_ms() + duration;

	pair->ok = true;
	while (pair->ok && (now_ms() < end || pair->rounds < LEAST_ROUNDS)) {
		pair->ok = pair->rounds % 5 == 4 ?
				   post_list(pair) :
				   send_one(pair, pair->rounds % 2);
		pair->rounds++;
		pause_randomly(pair);
		if (modify)
			modify_one(pair);
	}
	return NULL;
}

static void open_pair(struct pair *pair, unsigned int index)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	pair_create(&pair->a, &setup.a_dev, &pair->b, &setup.b_dev, &options);
	pair->offset = (size_t)index * SLOT;
	random_seed(&pair->random, 4711 + index);
}

int main(int argc, char **argv)
{
	static struct pair pairs[MAX_PAIRS];
	unsigned int n, i;
	uint64_t rounds = 0, sends = 0;

	setup_open(&setup, &argc, argv, (size_t)MAX_PAIRS * SLOT);
	if (argc < 3)
		bail("usage: polling MILLISECONDS PAUSE-US [PAIRS [modify]]");
	duration = atoi(argv[1]);
	pause_us = atoi(argv[2]);
	n = argc > 3 ? atoi(argv[3]) : 1;
	if (!n || n > MAX_PAIRS)
		bail("1 to %d pairs", MAX_PAIRS);
	modify = argc > 4 && !strcmp(argv[4], "modify");
	for (i = 0; i < n; i++)
		open_pair(&pairs[i], i);
	for (i = 0; i < n; i++)
		if (pthread_create(&pairs[i].thread, NULL, run, &pairs[i]))
			bail("pthread_create fails");
	for (i = 0; i < n; i++) {
		pthread_join(pairs[i].thread, NULL);
		tap_ok(pairs[i].ok, "pair %u: each request is carried out", i);
		rounds += pairs[i].rounds;
		sends += pairs[i].sends;
		pair_destroy(&pairs[i].a, &pairs[i].b);
	}
	tap_note("%" PRIu64 " rounds", rounds);
	tap_note("posts %" PRIu64, sends);
	setup_close(&setup);
	return tap_end();
}
