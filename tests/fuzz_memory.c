// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Scribbles over everything it shares with the kernel while it posts.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include <rdma/mic-abi.h>

#include "endpoint.h"
#include "fuzz.h"
#include "memory.h"
#include "work.h"

enum { PAIRS = 4, MAX_MAPS = 64, BURST = 64, MEMORY_BYTES = 65536 };

struct range {
	uint32_t *start;
	size_t words;
};

static struct range maps[MAX_MAPS];
static unsigned int map_count;
static struct device devices[2];
static struct endpoint ends[2 * PAIRS];
static struct region regions[2];

/* Where the queues are. */
static void find_maps(void)
{
	unsigned long start, end;
	char line[512];
	FILE *file = fopen("/proc/self/maps", "r");

	map_count = 0;
	if (!file)
		return;
	while (map_count < MAX_MAPS && fgets(line, sizeof(line), file)) {
		if (!strstr(line, "mic_doorbell") ||
		    sscanf(line, "%lx-%lx", &start, &end) != 2)
			continue;
		maps[map_count].start = (uint32_t *)start;
		maps[map_count++].words = (end - start) / sizeof(uint32_t);
	}
	fclose(file);
}

/* The control blocks come first, and are the most fun. */
static void scribble(struct random_state *random)
{
	const struct range *map = &maps[random_below(random, map_count)];
	size_t word;

	if (random_below(random, 2))
		word = random_below(random, 64);
	else
		word = random_below(random, map->words);
	*(volatile uint32_t *)&map->start[word] = fuzz_number(random);
}

static void *scribbler(void *argument)
{
	struct random_state random;
	unsigned int steps = *(unsigned int *)argument;

	random_seed(&random, steps);
	while (steps--)
		scribble(&random);
	return NULL;
}

static void post_something(struct random_state *random)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND,
		IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	unsigned int which = random_below(random, 2 * PAIRS);
	struct endpoint *ep = &ends[which];
	struct region *mine = &regions[which & 1];
	struct region *theirs = &regions[!(which & 1)];
	struct ibv_sge sge = region_sge(mine, 0, random_below(random, 4096));
	struct ibv_send_wr *bad_send,
		wr = send_wr(1, opcodes[random_below(random, 6)], &sge, 1);
	struct ibv_recv_wr *bad_recv, recv = {
		.sg_list = &sge,
		.num_sge = 1,
	};

	if (opcode_is_atomic(wr.opcode)) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = theirs->rdma_addr;
		wr.wr.atomic.rkey = theirs->mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = theirs->rdma_addr;
		wr.wr.rdma.rkey = theirs->mr->rkey;
	}
	ibv_post_recv(ends[which ^ 1].qp, &recv, &bad_recv);
	ibv_post_send(ep->qp, &wr, &bad_send);
}

static void poll_all(void)
{
	struct ibv_wc wc[16];
	int i;

	for (i = 0; i < 2 * PAIRS; i++) {
		ibv_poll_cq(ends[i].send_cq, 16, wc);
		ibv_poll_cq(ends[i].recv_cq, 16, wc);
	}
}

static void round_of_chaos(struct random_state *random, unsigned int steps)
{
	int fd = fuzz_doorbell_fd();
	pthread_t thread;
	unsigned int i;

	find_maps();
	if (!map_count || pthread_create(&thread, NULL, scribbler, &steps))
		exit(1);
	for (i = 0; i < steps; i++) {
		post_something(random);
		ioctl(fd,
		      random_below(random, 2) ? MIC_IOC_DOORBELL :
						MIC_IOC_DOORBELL_LATER,
		      ends[random_below(random, 2 * PAIRS)].qp->qp_num);
		if (!random_below(random, 8))
			poll_all();
	}
	pthread_join(thread, NULL);
}

static void chaos(struct random_state *random, unsigned int steps)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	unsigned int i;

	options.retry_count = 1;
	options.rnr_retry = 1;
	device_open(&devices[0], fuzz_device);
	device_open(&devices[1], fuzz_peer);
	region_create(&regions[0], devices[0].pd, MEMORY_BYTES);
	region_create(&regions[1], devices[1].pd, MEMORY_BYTES);
	for (; steps >= BURST; steps -= BURST) {
		for (i = 0; i < PAIRS; i++)
			pair_create(&ends[2 * i], &devices[0], &ends[2 * i + 1],
				    &devices[1], &options);
		round_of_chaos(random, BURST);
		for (i = 0; i < PAIRS; i++)
			pair_destroy(&ends[2 * i], &ends[2 * i + 1]);
	}
}

int main(int argc, char **argv)
{
	return fuzz_run(argc, argv, chaos, 4000,
			FUZZ_MAY_CRASH | FUZZ_MAY_HANG);
}
