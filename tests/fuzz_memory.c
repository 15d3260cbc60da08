// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Scribbles over everything it shares with the kernel while it posts.
 */
#define _GNU_SOURCE
#include <poll.h>
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

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { MAX_MAPS = 64, BURST = 64, MEMORY_BYTES = 65536 };

/* One pair of each. */
enum { PAIR_RC, PAIR_UC, PAIR_UD, PAIR_SRQ, PAIRS };

static const enum ibv_qp_type types[PAIRS] = {
	[PAIR_RC] = IBV_QPT_RC,
	[PAIR_UC] = IBV_QPT_UC,
	[PAIR_UD] = IBV_QPT_UD,
	[PAIR_SRQ] = IBV_QPT_RC,
};

/* The first of them are the pairs' requests that were carried out. */
enum { UNREAD = PAIRS, BURSTS };

static const struct fuzz_goal goals[] = {
	[PAIR_RC] = { "requests of RC pairs", 20 },
	[PAIR_UC] = { "requests of UC pairs", 20 },
	[PAIR_UD] = { "requests of UD pairs", 20 },
	[PAIR_SRQ] = { "requests into shared receive queues", 20 },
	[UNREAD] = { "bursts with completion events that nobody reads", 5 },
	[BURSTS] = { "bursts", 10 },
	{ NULL, 0 },
};

struct range {
	uint32_t *start;
	size_t words;
};

static struct range maps[MAX_MAPS];
static unsigned int map_count;
static struct device devices[2];
static struct endpoint ends[2 * PAIRS];
static struct region regions[2];
static struct ibv_srq *srqs[2];
static struct ibv_ah *handles[2];	     /* to the other device */
static struct ibv_comp_channel *channels[2]; /* nobody reads what is in them */

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

struct scribbling {
	uint64_t seed;
	unsigned int steps;
};

static void *scribbler(void *argument)
{
	struct scribbling *scribbling = argument;
	struct random_state random;
	unsigned int i;

	random_seed(&random, scribbling->seed);
	for (i = 0; i < scribbling->steps; i++)
		scribble(&random);
	return NULL;
}

static enum ibv_wr_opcode some_opcode(struct random_state *random,
				      enum ibv_qp_type type)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND,	   IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_FETCH_AND_ADD,
	};

	/* a UD pair has the first two, UC not the last two */
	return opcodes[random_below(random, type == IBV_QPT_UD ? 2 :
					    type == IBV_QPT_UC ? 4 :
								 6)];
}

static void post_recv_of(struct endpoint *ep, struct ibv_sge *sge)
{
	struct ibv_recv_wr *bad, recv = {
		.sg_list = sge,
		.num_sge = 1,
	};

	if (ep->options.srq)
		ibv_post_srq_recv(ep->options.srq, &recv, &bad);
	else
		ibv_post_recv(ep->qp, &recv, &bad);
}

static void post_something(struct random_state *random)
{
	unsigned int which = random_below(random, 2 * PAIRS);
	struct endpoint *ep = &ends[which];
	struct region *mine = &regions[which & 1];
	struct region *theirs = &regions[!(which & 1)];
	struct ibv_sge sge = region_sge(mine, 0, random_below(random, 4096));
	struct ibv_sge recv_sge = region_sge(theirs, 0, PAGE_BYTES + 64);
	struct ibv_send_wr *bad,
		wr = send_wr(1, some_opcode(random, ep->options.type), &sge, 1);

	if (ep->options.type == IBV_QPT_UD) {
		sge.length = random_below(random, 1024);
		wr.wr.ud.ah = handles[which & 1];
		wr.wr.ud.remote_qpn = ends[which ^ 1].qp->qp_num;
		wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	} else if (opcode_is_atomic(wr.opcode)) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = theirs->rdma_addr;
		wr.wr.atomic.rkey = theirs->mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = theirs->rdma_addr;
		wr.wr.rdma.rkey = theirs->mr->rkey;
	}
	post_recv_of(&ends[which ^ 1], &recv_sge);
	ibv_post_send(ep->qp, &wr, &bad);
}

static void poll_sends(unsigned int which)
{
	struct ibv_wc wc[16];
	int i, n = ibv_poll_cq(ends[which].send_cq, 16, wc);

	for (i = 0; i < n; i++)
		if (wc[i].status == IBV_WC_SUCCESS)
			fuzz_count(which / 2);
}

static void poll_all(void)
{
	struct ibv_wc wc[16];
	unsigned int i;

	for (i = 0; i < 2 * PAIRS; i++) {
		poll_sends(i);
		ibv_poll_cq(ends[i].recv_cq, 16, wc);
	}
}

/* Calls on the doorbell file, of which most take a queue pair's number. */
static void call_something(struct random_state *random, int fd)
{
	static const unsigned long calls[] = {
		MIC_IOC_DOORBELL, MIC_IOC_DOORBELL_LATER,
		MIC_IOC_DOORBELL, MIC_IOC_DOORBELL_LATER,
		MIC_IOC_CQ_EVENT, MIC_IOC_POLL,
	};
	const struct endpoint *ep = &ends[random_below(random, 2 * PAIRS)];

	/* once in a while, since it is the end of the queue */
	if (!random_below(random, 256))
		ioctl(fd, MIC_IOC_CQ_OVERRUN, ep->qp->qp_num);
	else
		ioctl(fd, calls[random_below(random, COUNT(calls))],
		      ep->qp->qp_num);
}

static void arm_something(struct random_state *random)
{
	const struct endpoint *ep = &ends[random_below(random, 2 * PAIRS)];

	ibv_req_notify_cq(random_below(random, 2) ? ep->send_cq : ep->recv_cq,
			  !random_below(random, 4));
}

static bool has_events(const struct ibv_comp_channel *channel)
{
	struct pollfd pollfd = { .fd = channel->fd, .events = POLLIN };

	return poll(&pollfd, 1, 0) == 1;
}

static void round_of_chaos(struct random_state *random, unsigned int steps)
{
	struct scribbling scribbling = { random_next(random), steps };
	int fd = fuzz_doorbell_fd();
	pthread_t thread;
	unsigned int i;

	find_maps();
	if (!map_count || pthread_create(&thread, NULL, scribbler, &scribbling))
		exit(1);
	for (i = 0; i < steps; i++) {
		post_something(random);
		call_something(random, fd);
		arm_something(random);
		if (!random_below(random, 8))
			poll_all();
	}
	pthread_join(thread, NULL);
	poll_all();
	if (has_events(channels[0]) || has_events(channels[1]))
		fuzz_count(UNREAD);
}

static struct ibv_srq *create_srq(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = 64, .max_sge = 4 },
	};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);

	if (!srq)
		exit(1);
	return srq;
}

static void create_pair(unsigned int which)
{
	struct endpoint_options options = endpoint_options(types[which]);
	struct endpoint *a = &ends[2 * which], *b = a + 1;

	options.retry_count = 1;
	options.rnr_retry = 1;
	options.srq = which == PAIR_SRQ ? srqs[0] : NULL;
	options.channel = channels[0];
	endpoint_create(a, &devices[0], &options);
	options.srq = which == PAIR_SRQ ? srqs[1] : NULL;
	options.channel = channels[1];
	endpoint_create(b, &devices[1], &options);
	pair_connect(a, b);
}

static void burst(struct random_state *random)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		srqs[i] = create_srq(devices[i].pd);
	for (i = 0; i < PAIRS; i++)
		create_pair(i);
	round_of_chaos(random, BURST);
	for (i = 0; i < PAIRS; i++)
		pair_destroy(&ends[2 * i], &ends[2 * i + 1]);
	for (i = 0; i < 2; i++)
		if (ibv_destroy_srq(srqs[i]))
			exit(1);
	fuzz_count(BURSTS);
}

static void chaos(struct random_state *random, unsigned int steps)
{
	unsigned int i;

	device_open(&devices[0], fuzz_device);
	device_open(&devices[1], fuzz_peer);
	for (i = 0; i < 2; i++) {
		region_create(&regions[i], devices[i].pd, MEMORY_BYTES);
		handles[i] = address_handle(&devices[i], &devices[!i].gid);
		channels[i] = ibv_create_comp_channel(devices[i].ctx);
		if (!channels[i])
			exit(1);
	}
	for (; steps >= BURST; steps -= BURST)
		burst(random);
}

int main(int argc, char **argv)
{
	return fuzz_run(argc, argv, chaos, 4000, FUZZ_MAY_CRASH | FUZZ_MAY_HANG,
			goals);
}
