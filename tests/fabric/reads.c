// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * reads --peer ADDRESS:PORT STOP CONTINUE: how many requests are on their way to
 * another machine at once. The command STOP keeps that machine from answering, and
 * CONTINUE lets it go on: what has been sent by then is counted, where the queue pair
 * says so and where the region's lanes are written.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "measure.h"
#include "setup.h"
#include "tap.h"
#include "text.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* An aligned word. */
#define WORD_OFFSET (PAGE_BYTES - 77)

enum { REGION_BYTES = 128 << 10, WORD_BYTES = 8, LOTS = 256, LARGE = 64 << 10 };

/*
 * An idle queue pair is to have 8 KiB at most, and has so much by limits.c, with most
 * SGEs, before it sends to another machine.
 */
enum {
	MANY_QPS = 100,
	MOST_SGES = 32,
	KEPT_BYTES = 8192 - 7321,
	GIVE_BACK_MS = 30000
};

static struct setup setup;
static const char *stop_command, *go_command;

/* Requests of one kind after the other, of which so many may be on their way. */
struct queue {
	const char *name;
	enum ibv_wr_opcode opcodes[2]; /* in turn */
	uint32_t length;
	uint8_t reads; /* max_rd_atomic */
	unsigned int posted;
	unsigned int in_flight;
	bool one_by_one;
};

static const struct queue queues[] = {
	{ "128 READs in flight, two wait",
	  { IBV_WR_RDMA_READ, IBV_WR_RDMA_READ },
	  WORD_BYTES,
	  128,
	  130,
	  128,
	  false },
	{ "READs and atomics, 128 together",
	  { IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD },
	  WORD_BYTES,
	  128,
	  200,
	  128,
	  false },
	{ "as many READs as the queue pair may have",
	  { IBV_WR_RDMA_READ, IBV_WR_RDMA_READ },
	  WORD_BYTES,
	  5,
	  12,
	  5,
	  false },
	{ "large READs, of 4 MiB",
	  { IBV_WR_RDMA_READ, IBV_WR_RDMA_READ },
	  LARGE,
	  128,
	  130,
	  64,
	  false },
	{ "16 WRITEs",
	  { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE },
	  WORD_BYTES,
	  128,
	  30,
	  16,
	  false },
	{ "four READs, and WRITEs between them",
	  { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ },
	  WORD_BYTES,
	  4,
	  30,
	  9,
	  false },
	/* the first ones ring the doorbell, the others go with the answers */
	{ "READs that are posted one by one",
	  { IBV_WR_RDMA_READ, IBV_WR_RDMA_READ },
	  WORD_BYTES,
	  128,
	  30,
	  8,
	  true },
	{ "WRITEs that are posted one by one",
	  { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE },
	  WORD_BYTES,
	  128,
	  30,
	  8,
	  true },
};

/* Requests that this machine has sent to others since it is there. */
static uint64_t requests_sent(void)
{
	return ethtool_counter("requests_sent:");
}

static uint64_t in_flight(const struct endpoint *ep)
{
	char *text = text_of_command("rdma resource show qp lqpn %u -dd",
				     ep->qp->qp_num);
	uint64_t count = number_after(text, "drv_in_flight");

	free(text);
	return count;
}

static void fill_request(const struct queue *queue, uint64_t id,
			 struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	enum ibv_wr_opcode opcode = queue->opcodes[id % 2];
	size_t offset = WORD_OFFSET +
			(queue->length == WORD_BYTES ? id * WORD_BYTES : 0);

	*sge = region_sge(&setup.a_mem, offset, queue->length);
	*wr = send_wr(id, opcode, sge, 1);
	if (opcode_is_atomic(opcode)) {
		wr->wr.atomic.remote_addr = setup.b_mem.rdma_addr + offset;
		wr->wr.atomic.rkey = setup.b_mem.mr->rkey;
		wr->wr.atomic.compare_add = 1;
	} else {
		wr->wr.rdma.remote_addr = setup.b_mem.rdma_addr + offset;
		wr->wr.rdma.rkey = setup.b_mem.mr->rkey;
	}
}

/*
 * Not by those who look at the other machine's memory before: it is stopped.
 */
static bool post_all(struct endpoint *a, const struct queue *queue)
{
	static struct ibv_send_wr wr[LOTS];
	static struct ibv_sge sge[LOTS];
	struct ibv_send_wr *bad;
	uint64_t id;

	for (id = 0; id < queue->posted; id++) {
		fill_request(queue, id, &wr[id], &sge[id]);
		if (!queue->one_by_one && id)
			wr[id - 1].next = &wr[id];
	}
	for (id = 0; id < (queue->one_by_one ? queue->posted : 1); id++)
		if (!check(!ibv_post_send(a->qp, &wr[id], &bad),
			   "posting fails"))
			return false;
	return true;
}

/* So many have left, and the others have not when the last one has been looked at. */
static bool have_left(const struct endpoint *a, uint64_t before,
		      const struct queue *queue)
{
	uint64_t end = deadline(), sent;

	do {
		sent = requests_sent() - before;
	} while (sent < queue->in_flight && now_ms() < end);
	return check(sent == queue->in_flight, "%" PRIu64 " have been sent",
		     sent) &&
	       check(in_flight(a) == queue->in_flight,
		     "%" PRIu64 " are in flight", in_flight(a));
}

/* What is there, and what was brought back. */
static uint64_t word_of(uint64_t id)
{
	return id * 0x0101010101ULL + 7;
}

static void fill(void)
{
	uint64_t *there = (uint64_t *)(setup.b_mem.addr + WORD_OFFSET);
	uint64_t id;

	memset(setup.a_mem.addr, 0, REGION_BYTES);
	for (id = 0; id < LOTS; id++)
		there[id] = word_of(id);
}

static bool is_back(const struct queue *queue)
{
	const uint64_t *here =
		(const uint64_t *)(setup.a_mem.addr + WORD_OFFSET);
	const uint64_t *there =
		(const uint64_t *)(setup.b_mem.addr + WORD_OFFSET);
	uint64_t id, added;

	for (id = 0; id < queue->posted; id++) {
		enum ibv_wr_opcode opcode = queue->opcodes[id % 2];

		added = opcode_is_atomic(opcode);
		if (opcode == IBV_WR_RDMA_WRITE ?
			    !check(!there[id], "word %" PRIu64 " is there",
				   id) :
			    !check(here[id] == word_of(id) &&
					   there[id] == word_of(id) + added,
				   "word %" PRIu64 " is 0x%" PRIx64, id,
				   here[id]))
			return false;
	}
	return true;
}

static bool stopped(struct endpoint *a, const struct queue *queue)
{
	uint64_t before = requests_sent();
	bool ok;

	if (!command_runs("%s", stop_command))
		return false;
	ok = post_all(a, queue) && have_left(a, before, queue);
	return command_runs("%s", go_command) && ok;
}

static bool run_queue(const struct queue *queue)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint a, b;
	bool ok;

	options.depth = LOTS;
	options.reads = queue->reads;
	options.timeout = 0;
	fill();
	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	/* this takes what was filled there */
	ok = exchange_empty(&a, &b, 1) && stopped(&a, queue) &&
	     cq_expect_range(a.send_cq, 0, queue->posted, IBV_WC_SUCCESS) &&
	     check(!in_flight(&a), "some are in flight still") &&
	     is_back(queue);
	pair_destroy(&a, &b);
	return ok;
}

/* --- what is kept afterwards ------------------------------------------------ */

static const struct queue many_reads = {
	.opcodes = { IBV_WR_RDMA_READ, IBV_WR_RDMA_READ },
	.length = WORD_BYTES,
	.reads = 128,
	.posted = 128,
};

static void use(struct endpoint *a)
{
	static struct ibv_send_wr wr[LOTS];
	static struct ibv_sge sge[LOTS];
	struct ibv_send_wr *bad;
	uint64_t id;

	for (id = 0; id < many_reads.posted; id++) {
		fill_request(&many_reads, id, &wr[id], &sge[id]);
		if (id)
			wr[id - 1].next = &wr[id];
	}
	if (ibv_post_send(a->qp, wr, &bad))
		bail("posting fails");
}

static bool all_used(struct endpoint *a)
{
	unsigned int i;

	for (i = 0; i < MANY_QPS; i++) {
		use(&a[i]);
		if (!cq_expect_range(a[i].send_cq, 0, many_reads.posted,
				     IBV_WC_SUCCESS))
			return false;
	}
	return true;
}

/* Bytes that each has more than @before: the fewest there are within a time. */
static long kept(uint64_t before)
{
	uint64_t end = now_ms() + GIVE_BACK_MS * slowness();
	long least = 0, bytes;
	bool first = true;

	while (first || (least > KEPT_BYTES && now_ms() < end)) {
		sleep(1);
		bytes = ((long)slab_bytes() - (long)before) / MANY_QPS;
		least = first || bytes < least ? bytes : least;
		first = false;
	}
	return least;
}

/* Many, each of which once had as much on its way as may be. */
static bool given_back(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint a[MANY_QPS], b[MANY_QPS];
	uint64_t before, most;
	unsigned int i;
	long bytes;
	bool ok;

	options.depth = LOTS;
	options.sges = MOST_SGES;
	options.reads = many_reads.reads;
	for (i = 0; i < MANY_QPS; i++)
		pair_create(&a[i], &setup.a_dev, &b[i], &setup.b_dev, &options);
	/* looking takes memory itself, the first time */
	slab_bytes();
	before = slab_bytes();
	ok = all_used(a);
	most = slab_bytes() - before;
	bytes = kept(before);
	tap_note("%ld bytes are kept for each queue pair, of %" PRIu64, bytes,
		 most / MANY_QPS);
	for (i = 0; i < MANY_QPS; i++)
		pair_destroy(&a[i], &b[i]);
	return ok && check(bytes <= KEPT_BYTES, "%ld bytes", bytes);
}

int main(int argc, char **argv)
{
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	if (argc != 3)
		bail("how is the other machine stopped, and how does it go on?");
	stop_command = argv[1];
	go_command = argv[2];
	for (i = 0; i < COUNT(queues); i++)
		tap_ok(run_queue(&queues[i]), "%s", queues[i].name);
	if (is_debug_kernel())
		tap_skip("checkers add to each object",
			 "what is kept of 128 READs");
	else
		tap_ok(given_back(), "what is kept of 128 READs");
	setup_close(&setup);
	return tap_end();
}
