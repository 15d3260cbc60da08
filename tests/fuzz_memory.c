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

#include "bind.h"
#include "endpoint.h"
#include "fuzz.h"
#include "memory.h"
#include "setup.h"
#include "srq.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { MAX_MAPS = 64, BURST = 64, MEMORY_BYTES = 65536 };

/* One pair of each. */
enum { PAIR_RC, PAIR_UC, PAIR_UD, PAIR_SRQ, PAIR_XRC, PAIRS };

static const enum ibv_qp_type types[PAIRS] = {
	[PAIR_RC] = IBV_QPT_RC,	       [PAIR_UC] = IBV_QPT_UC,
	[PAIR_UD] = IBV_QPT_UD,	       [PAIR_SRQ] = IBV_QPT_RC,
	[PAIR_XRC] = IBV_QPT_XRC_SEND,
};

/* A UD pair has the first ones, UC not the last ones. */
static const enum ibv_wr_opcode opcodes[] = {
	IBV_WR_SEND,
	IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_SEND_WITH_INV,
	IBV_WR_LOCAL_INV,
	IBV_WR_BIND_MW,
	IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
	IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_WR_ATOMIC_WRITE,
};

enum { OF_UD = 2, OF_UC = 7, OPCODES = COUNT(opcodes) };

/*
 * The first of them are the pairs' requests that were carried out, then those of each
 * opcode.
 */
enum { FIRST_OPCODE = PAIRS, UNREAD = PAIRS + OPCODES, BURSTS };

static const struct fuzz_goal goals[] = {
	[PAIR_RC] = { "requests of RC pairs", 20 },
	[PAIR_UC] = { "requests of UC pairs", 20 },
	[PAIR_UD] = { "requests of UD pairs", 20 },
	[PAIR_SRQ] = { "requests into shared receive queues", 20 },
	[PAIR_XRC] = { "requests of XRC pairs", 20 },
	[FIRST_OPCODE] = { "SENDs", 10 },
	{ "SENDs with immediate data", 10 },
	{ "WRITEs", 10 },
	{ "WRITEs with immediate data", 10 },
	{ "SENDs that invalidate", 5 },
	{ "invalidations", 10 },
	{ "windows bound", 10 },
	{ "READs", 10 },
	{ "additions", 10 },
	{ "comparisons", 10 },
	{ "atomic WRITEs", 10 },
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
static struct setup both; /* the devices, for @xrc */
static struct xrc xrc;
static struct ibv_mw *windows[2 * PAIRS];
static uint32_t keys[2 * PAIRS];  /* of windows that are bound, or 0 */
static struct ibv_ah *handles[2]; /* to the other device */
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

/* Mostly one that may succeed: a window that is not bound is bound, and others aren't. */
static enum ibv_wr_opcode some_opcode(struct random_state *random,
				      unsigned int which)
{
	enum ibv_qp_type type = ends[which].options.type;
	enum ibv_wr_opcode opcode =
		opcodes[random_below(random, type == IBV_QPT_UD ? OF_UD :
					     type == IBV_QPT_UC ? OF_UC :
								  OPCODES)];

	if (!random_below(random, 16))
		return opcode;
	if (opcode == IBV_WR_SEND_WITH_INV && !keys[which ^ 1])
		return IBV_WR_SEND;
	if (opcode == IBV_WR_LOCAL_INV && !keys[which])
		return IBV_WR_BIND_MW;
	if (opcode == IBV_WR_BIND_MW && keys[which])
		return IBV_WR_LOCAL_INV;
	return opcode;
}

static uint64_t index_of(enum ibv_wr_opcode opcode)
{
	uint64_t i = 0;

	while (opcodes[i] != opcode)
		i++;
	return i;
}

static void post_recv_of(struct endpoint *ep, struct ibv_sge *sge)
{
	struct ibv_srq *srq = ep->options.type == IBV_QPT_XRC_RECV ?
				      xrc.srq[0] :
				      ep->options.srq;
	struct ibv_recv_wr *bad, recv = {
		.sg_list = sge,
		.num_sge = 1,
	};

	if (srq)
		ibv_post_srq_recv(srq, &recv, &bad);
	else
		ibv_post_recv(ep->qp, &recv, &bad);
}

/* What the request is about beside its data. */
static void aim(struct ibv_send_wr *wr, unsigned int which)
{
	struct region *mine = &regions[which & 1];
	struct region *theirs = &regions[!(which & 1)];

	switch (wr->opcode) {
	case IBV_WR_SEND_WITH_INV:
		wr->invalidate_rkey = keys[which ^ 1];
		keys[which ^ 1] = 0;
		break;
	case IBV_WR_LOCAL_INV:
		wr->invalidate_rkey = keys[which];
		keys[which] = 0;
		break;
	case IBV_WR_BIND_MW:
		wr->bind_mw.mw = windows[which];
		wr->bind_mw.rkey = ibv_inc_rkey(windows[which]->rkey);
		wr->bind_mw.bind_info = bind_info(mine, 0, PAGE_BYTES,
						  IBV_ACCESS_REMOTE_READ);
		keys[which] = wr->bind_mw.rkey;
		break;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		break;
	default:
		/* regions begin anywhere, words do not */
		send_wr_aim(wr, (theirs->rdma_addr + 7) & ~7ULL,
			    theirs->mr->rkey);
	}
}

static bool is_of_word(enum ibv_wr_opcode opcode)
{
	return opcode_is_atomic(opcode) || opcode == IBV_WR_ATOMIC_WRITE;
}

static void post_something(struct random_state *random)
{
	unsigned int which = random_below(random, 2 * PAIRS);
	struct ibv_sge sge = region_sge(&regions[which & 1], 0,
					random_below(random, 4096));
	struct ibv_sge recv_sge = region_sge(&regions[!(which & 1)], 0,
					     PAGE_BYTES + 64);
	struct ibv_send_wr *bad, wr;
	enum ibv_wr_opcode opcode;

	/* a target sends nothing */
	if (ends[which].options.type == IBV_QPT_XRC_RECV)
		return;
	opcode = some_opcode(random, which);
	wr = send_wr(index_of(opcode), opcode, &sge, 1);
	if (ends[which].options.type == IBV_QPT_UD) {
		sge.length = random_below(random, 1024);
		wr.wr.ud.ah = handles[which & 1];
		wr.wr.ud.remote_qpn = ends[which ^ 1].qp->qp_num;
		wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	} else {
		aim(&wr, which);
	}
	if (is_of_word(opcode))
		sge.length = 8;
	if (ends[which].options.type == IBV_QPT_XRC_SEND)
		xrc_aim(&xrc, 0, &wr);
	post_recv_of(&ends[which ^ 1], &recv_sge);
	ibv_post_send(ends[which].qp, &wr, &bad);
}

static void poll_sends(unsigned int which)
{
	struct ibv_wc wc[16];
	int i, n = ibv_poll_cq(ends[which].send_cq, 16, wc);

	for (i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			continue;
		fuzz_count(which / 2);
		/* it may have been scribbled over */
		if (wc[i].wr_id < OPCODES)
			fuzz_count(FIRST_OPCODE + wc[i].wr_id);
	}
}

static void poll_all(void)
{
	struct ibv_wc wc[16];
	unsigned int i;

	for (i = 0; i < 2 * PAIRS; i++) {
		poll_sends(i);
		ibv_poll_cq(ends[i].recv_cq, 16, wc);
	}
	ibv_poll_cq(xrc.cq, 16, wc);
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
		fuzz_step();
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
	if (which == PAIR_XRC) {
		options.type = IBV_QPT_XRC_RECV;
		options.xrcd = xrc.xrcd;
	}
	endpoint_create(b, &devices[1], &options);
	pair_connect(a, b);
}

/* A type 2 window for each end. */
static void create_windows(void)
{
	unsigned int i;

	for (i = 0; i < 2 * PAIRS; i++) {
		windows[i] = ibv_alloc_mw(devices[i & 1].pd, IBV_MW_TYPE_2);
		if (!windows[i])
			exit(1);
		keys[i] = 0;
	}
}

static void destroy_windows(void)
{
	unsigned int i;

	for (i = 0; i < 2 * PAIRS; i++)
		if (ibv_dealloc_mw(windows[i]))
			exit(1);
}

static void burst(struct random_state *random)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		srqs[i] = create_srq(devices[i].pd);
	xrc_open_domain(&xrc, &both);
	xrc.srq[0] = xrc_create_srq(&xrc, 64, 4);
	create_windows();
	for (i = 0; i < PAIRS; i++)
		create_pair(i);
	round_of_chaos(random, BURST);
	for (i = 0; i < PAIRS; i++)
		pair_destroy(&ends[2 * i], &ends[2 * i + 1]);
	for (i = 0; i < 2; i++)
		if (ibv_destroy_srq(srqs[i]))
			exit(1);
	xrc_close(&xrc);
	destroy_windows();
	fuzz_count(BURSTS);
}

static void chaos(struct random_state *random, unsigned int steps)
{
	unsigned int i;

	device_open(&devices[0], fuzz_device);
	device_open(&devices[1], fuzz_peer);
	both.a_dev = devices[0];
	both.b_dev = devices[1];
	for (i = 0; i < 2; i++) {
		if (!region_map(&regions[i], MEMORY_ANON, MEMORY_BYTES))
			exit(1);
		region_register(&regions[i], devices[i].pd,
				ACCESS_ALL | IBV_ACCESS_MW_BIND);
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
