// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What completes, and in which order: signalled or not, fenced, on shared
 * queues, through rings that wrap many times.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "pattern.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 20)
/* Long enough for an event that should not come to be seen. */
#define QUIET_MS 50

/* One connected pair for one case. */
struct pair {
	struct setup *setup;
	struct endpoint a;
	struct endpoint b;
};

static void pair_open(struct pair *pair, struct setup *setup,
		      const struct endpoint_options *options)
{
	pair->setup = setup;
	pair_create(&pair->a, &setup->a_dev, &pair->b, &setup->b_dev, options);
}

static void pair_close(struct pair *pair)
{
	pair_destroy(&pair->a, &pair->b);
}

static struct ibv_sge a_sge(const struct pair *pair, size_t offset,
			    uint32_t length)
{
	return region_sge(&pair->setup->a_mem, offset, length);
}

static struct ibv_sge b_sge(const struct pair *pair, size_t offset,
			    uint32_t length)
{
	return region_sge(&pair->setup->b_mem, offset, length);
}

/* Post to @pair->a. */
static void post_between(struct pair *pair, uint64_t id,
			 enum ibv_wr_opcode opcode, size_t a_offset,
			 size_t b_offset, uint32_t length, int flags)
{
	const struct region *remote = &pair->setup->b_mem;
	struct ibv_sge sge = a_sge(pair, a_offset, length);
	struct ibv_send_wr wr = send_wr(id, opcode, &sge, 1);

	wr.send_flags = flags;
	wr.imm_data = htobe32(id);
	if (opcode_is_atomic(opcode)) {
		wr.wr.atomic.remote_addr = remote->rdma_addr + b_offset;
		wr.wr.atomic.rkey = remote->mr->rkey;
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.swap = 2;
	} else {
		wr.wr.rdma.remote_addr = remote->rdma_addr + b_offset;
		wr.wr.rdma.rkey = remote->mr->rkey;
	}
	post_send(&pair->a, &wr);
}

/* The same with one offset for both memories. */
static void post_a(struct pair *pair, uint64_t id, enum ibv_wr_opcode opcode,
		   size_t offset, uint32_t length, int flags)
{
	post_between(pair, id, opcode, offset, offset, length, flags);
}

static void post_b_receive(struct pair *pair, uint64_t id, size_t offset,
			   uint32_t length)
{
	struct ibv_sge sge = b_sge(pair, offset, length);

	post_recv(&pair->b, id, &sge, 1);
}

/* Atomics need eight bytes at a multiple of eight. */
#define WORD_OFFSET (PAGE_BYTES - 77)

/* --- signalled and unsignalled ------------------------------------------ */

static const enum ibv_wr_opcode mixed_opcodes[] = {
	IBV_WR_SEND,
	IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_READ,
	IBV_WR_SEND_WITH_IMM,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
	IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_ATOMIC_CMP_AND_SWP,
};

static enum ibv_wr_opcode post_random(struct pair *pair,
				      struct random_state *random, uint64_t id,
				      bool signalled)
{
	enum ibv_wr_opcode opcode =
		mixed_opcodes[random_below(random, COUNT(mixed_opcodes))];
	uint32_t length = random_below(random, 20000);

	if (opcode_is_atomic(opcode))
		length = 8;
	if (opcode_takes_recv(opcode))
		post_b_receive(pair, id, WORD_OFFSET + 40000, 20000);
	post_a(pair, id, opcode, WORD_OFFSET, length,
	       signalled ? IBV_SEND_SIGNALED : 0);
	return opcode;
}

/* A burst whose last request is signalled; all completions in order. */
static bool mixed_burst(struct pair *pair, struct random_state *random,
			unsigned int burst)
{
	enum ibv_wr_opcode opcodes[64];
	bool signalled[64];
	struct ibv_wc wc;
	unsigned int i;

	for (i = 0; i < burst; i++) {
		signalled[i] = i == burst - 1 || random_below(random, 3) == 0;
		opcodes[i] = post_random(pair, random, i, signalled[i]);
	}
	for (i = 0; i < burst; i++) {
		if (signalled[i] &&
		    (!cq_success(pair->a.send_cq, i, &wc) ||
		     !check(wc.opcode == completion_of(opcodes[i]),
			    "opcode of request %u is %d", i, wc.opcode)))
			return false;
	}
	for (i = 0; i < burst; i++)
		if (opcode_takes_recv(opcodes[i]) &&
		    !cq_expect(pair->b.recv_cq, i, IBV_WC_SUCCESS))
			return false;
	return cq_stays_empty(pair->a.send_cq, 0) &&
	       cq_stays_empty(pair->b.recv_cq, 0);
}

static bool case_mixed_signals(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct random_state random;
	struct pair pair;
	bool ok = true;
	int i;

	random_seed(&random, 1);
	pair_open(&pair, setup, &options);
	for (i = 0; i < 40 && ok; i++)
		ok = mixed_burst(&pair, &random,
				 1 + random_below(&random, options.depth));
	pair_close(&pair);
	return ok;
}

static bool case_signal_all(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct pair pair;
	bool ok = true;
	unsigned int i;

	options.signal_all = true;
	pair_open(&pair, setup, &options);
	for (i = 0; i < options.depth; i++)
		post_a(&pair, i, IBV_WR_RDMA_WRITE, 0, 16, 0);
	for (i = 0; i < options.depth && ok; i++)
		ok = cq_expect(pair.a.send_cq, i, IBV_WC_SUCCESS);
	pair_close(&pair);
	return ok;
}

/* --- the order of effects ----------------------------------------------- */

/* What a fenced SEND carries is what the READ before it has fetched. */
static bool fenced_round(struct pair *pair, unsigned int round)
{
	const uint8_t *bytes = pattern_bytes(round, 200000);
	struct setup *setup = pair->setup;
	struct ibv_wc wc;

	memset(setup->a_mem.addr, 0, 200000);
	memset(setup->b_mem.addr + 400000, 0, 200000);
	memcpy(setup->b_mem.addr, bytes, 200000);
	post_b_receive(pair, 2, 400000, 200000);
	post_a(pair, 1, IBV_WR_RDMA_READ, 0, 200000, IBV_SEND_SIGNALED);
	post_a(pair, 2, IBV_WR_SEND, 0, 200000,
	       IBV_SEND_SIGNALED | IBV_SEND_FENCE);
	return cq_success(pair->b.recv_cq, 2, &wc) &&
	       check(!memcmp(setup->b_mem.addr + 400000, bytes, 200000),
		     "the fenced SEND overtook the READ") &&
	       cq_success(pair->a.send_cq, 1, &wc) &&
	       cq_success(pair->a.send_cq, 2, &wc);
}

static bool case_fence_read(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct pair pair;
	unsigned int i;
	bool ok = true;

	pair_open(&pair, setup, &options);
	for (i = 0; i < 20 && ok; i++)
		ok = fenced_round(&pair, i);
	pair_close(&pair);
	return ok;
}

static bool case_fence_atomic(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	uint64_t *local = (uint64_t *)(setup->a_mem.addr + WORD_OFFSET);
	uint64_t *remote = (uint64_t *)(setup->b_mem.addr + WORD_OFFSET);
	struct pair pair;
	struct ibv_wc wc;
	bool ok = true;
	uint64_t i;

	pair_open(&pair, setup, &options);
	for (i = 0; i < 100 && ok; i++) {
		*local = 0;
		*remote = 1000 + i;
		post_a(&pair, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, WORD_OFFSET, 8,
		       0);
		/* The old value goes back, once it has been fetched. */
		post_a(&pair, 2, IBV_WR_RDMA_WRITE, WORD_OFFSET, 8,
		       IBV_SEND_SIGNALED | IBV_SEND_FENCE);
		ok = cq_success(pair.a.send_cq, 2, &wc) &&
		     check(*remote == 1000 + i,
			   "the fenced WRITE wrote %" PRIu64, *remote);
	}
	pair_close(&pair);
	return ok;
}

/* When the SEND has arrived, the WRITEs before it have, too. */
static bool case_write_then_send(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	const uint8_t *bytes;
	struct pair pair;
	struct ibv_wc wc;
	bool ok = true;
	unsigned int i;

	pair_open(&pair, setup, &options);
	for (i = 0; i < 50 && ok; i++) {
		bytes = pattern_bytes(i, 70000);
		memcpy(setup->a_mem.addr, bytes, 70000);
		memset(setup->b_mem.addr, 0, 70000);
		post_b_receive(&pair, i, 100000, 8);
		post_a(&pair, i, IBV_WR_RDMA_WRITE, 0, 70000, 0);
		post_a(&pair, i, IBV_WR_SEND, 0, 8, IBV_SEND_SIGNALED);
		ok = cq_success(pair.b.recv_cq, i, &wc) &&
		     check(!memcmp(setup->b_mem.addr, bytes, 70000),
			   "the SEND overtook the WRITE") &&
		     cq_success(pair.a.send_cq, i, &wc);
	}
	pair_close(&pair);
	return ok;
}

/* A READ sees the WRITE before it, and not the WRITE after it. */
static bool case_read_after_write(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	uint8_t *memory = setup->a_mem.addr;
	struct pair pair;
	struct ibv_wc wc;
	bool ok = true;
	unsigned int i;

	pair_open(&pair, setup, &options);
	memset(memory + 200000, 0xff, 30000);
	for (i = 1; i < 50 && ok; i++) {
		memset(setup->b_mem.addr, 0, 30000);
		memset(memory, i, 30000);
		memset(memory + 100000, 0, 30000);
		post_between(&pair, 1, IBV_WR_RDMA_WRITE, 0, 0, 30000, 0);
		post_between(&pair, 2, IBV_WR_RDMA_READ, 100000, 0, 30000, 0);
		post_between(&pair, 3, IBV_WR_RDMA_WRITE, 200000, 0, 30000,
			     IBV_SEND_SIGNALED | IBV_SEND_FENCE);
		ok = cq_success(pair.a.send_cq, 3, &wc) &&
		     check(!memcmp(memory, memory + 100000, 30000),
			   "the READ got other bytes, first 0x%02x, last 0x%02x",
			   memory[100000], memory[129999]) &&
		     check(setup->b_mem.addr[29999] == 0xff,
			   "the last WRITE did not happen");
	}
	pair_close(&pair);
	return ok;
}

/* --- rings --------------------------------------------------------------- */

/* Keep @pair's queues full for @total messages that carry their number. */
static bool stream(struct pair *pair, uint64_t total)
{
	uint64_t *slots_a = (uint64_t *)(pair->setup->a_mem.addr + WORD_OFFSET);
	uint64_t *slots_b = (uint64_t *)(pair->setup->b_mem.addr + WORD_OFFSET);
	uint32_t depth = pair->a.options.depth;
	uint64_t posted = 0, received = 0, sent = 0;
	struct ibv_wc wc;
	uint64_t i;

	for (i = 0; i < depth; i++)
		post_b_receive(pair, i, WORD_OFFSET + i * 8, 8);
	while (received < total) {
		for (; posted < total && posted - sent < depth; posted++) {
			slots_a[posted % depth] = ~posted;
			post_a(pair, posted, IBV_WR_SEND,
			       WORD_OFFSET + posted % depth * 8, 8,
			       IBV_SEND_SIGNALED);
		}
		if (!cq_success(pair->a.send_cq, sent++, &wc) ||
		    !cq_success(pair->b.recv_cq, received, &wc) ||
		    !check(slots_b[received % depth] == ~received,
			   "message %" PRIu64 " has other bytes", received))
			return false;
		post_b_receive(pair, received + depth,
			       WORD_OFFSET + received % depth * 8, 8);
		received++;
	}
	return true;
}

static bool run_stream(struct setup *setup, uint32_t depth, uint64_t total)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct pair pair;
	bool ok;

	options.depth = depth;
	pair_open(&pair, setup, &options);
	ok = stream(&pair, total);
	pair_close(&pair);
	return ok;
}

static bool case_stream_depth_1(struct setup *setup)
{
	return run_stream(setup, 1, 1000);
}

static bool case_stream_depth_13(struct setup *setup)
{
	return run_stream(setup, 13, 20000);
}

static bool case_stream_depth_1024(struct setup *setup)
{
	return run_stream(setup, 1024, 20000);
}

/* Chains of requests through one call, with unsignalled ones in between. */
static bool case_lists(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_send_wr wrs[64], *bad;
	struct ibv_sge sge;
	unsigned int round, i, count;
	struct pair pair;
	bool ok = true;
	int error;

	pair_open(&pair, setup, &options);
	sge = a_sge(&pair, 0, 100);
	for (round = 0; round < 200 && ok; round++) {
		count = 1 + round % COUNT(wrs);
		for (i = 0; i < count; i++) {
			wrs[i] = send_wr(i, IBV_WR_RDMA_WRITE, &sge, 1);
			wrs[i].wr.rdma.remote_addr = setup->b_mem.rdma_addr;
			wrs[i].wr.rdma.rkey = setup->b_mem.mr->rkey;
			wrs[i].next = i + 1 < count ? &wrs[i + 1] : NULL;
			if (i + 1 < count)
				wrs[i].send_flags = 0;
		}
		error = ibv_post_send(pair.a.qp, wrs, &bad);
		ok = check(!error, "posting a list of %u: %s", count,
			   strerror(error)) &&
		     cq_expect(pair.a.send_cq, count - 1, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
	return ok;
}

/* A list that does not fit: all before the bad one are posted. */
static bool overfull_list(struct pair *pair)
{
	struct ibv_qp_init_attr init;
	struct ibv_send_wr *wrs, *bad = NULL;
	struct ibv_qp_attr attr;
	uint32_t capacity, i;
	bool ok;
	int error;

	if (ibv_query_qp(pair->a.qp, &attr, IBV_QP_CAP, &init))
		bail("ibv_query_qp fails");
	capacity = init.cap.max_send_wr;
	wrs = calloc(capacity + 1, sizeof(*wrs));
	if (!wrs)
		bail("out of memory");
	/* Without receives none of these can complete. */
	for (i = 0; i <= capacity; i++) {
		wrs[i] = send_wr(i, IBV_WR_SEND, NULL, 0);
		wrs[i].next = i < capacity ? &wrs[i + 1] : NULL;
	}
	error = ibv_post_send(pair->a.qp, wrs, &bad);
	ok = check(error == ENOMEM, "a request too many gives %d (%s)", error,
		   strerror(error)) &&
	     check(bad == &wrs[capacity], "bad_wr is request %td",
		   bad ? bad - wrs : -1);
	for (i = 0; i < capacity && ok; i++) {
		post_recv(&pair->b, i, NULL, 0);
		ok = cq_expect(pair->a.send_cq, i, IBV_WC_SUCCESS) &&
		     cq_expect(pair->b.recv_cq, i, IBV_WC_SUCCESS);
	}
	free(wrs);
	return ok && cq_stays_empty(pair->a.send_cq, QUIET_MS);
}

static bool case_overfull_list(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct pair pair;
	bool ok;

	options.depth = 16;
	pair_open(&pair, setup, &options);
	ok = overfull_list(&pair);
	pair_close(&pair);
	return ok;
}

static bool case_overfull_receive_list(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair pair;
	uint32_t i;
	int error;
	bool ok;

	options.depth = 16;
	pair_open(&pair, setup, &options);
	if (ibv_query_qp(pair.b.qp, &attr, IBV_QP_CAP, &init))
		bail("ibv_query_qp fails");
	for (i = 0; i < init.cap.max_recv_wr; i++)
		post_recv(&pair.b, i, NULL, 0);
	error = try_post_recv(&pair.b, i, NULL, 0);
	ok = check(error == ENOMEM, "a receive too many gives %d (%s)", error,
		   strerror(error));
	for (i = 0; i < init.cap.max_recv_wr && ok; i++) {
		post_a(&pair, i, IBV_WR_SEND, 0, 0, IBV_SEND_SIGNALED);
		ok = cq_expect(pair.a.send_cq, i, IBV_WC_SUCCESS) &&
		     cq_expect(pair.b.recv_cq, i, IBV_WC_SUCCESS);
	}
	pair_close(&pair);
	return ok;
}

/* --- several queue pairs ------------------------------------------------- */

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
	check(!ibv_destroy_cq(crowd->cq), "ibv_destroy_cq fails");
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

static bool case_shared_cq(struct setup *setup)
{
	struct crowd crowd;
	unsigned int round, i, k;
	bool ok = true;

	/* Exactly as many entries as requests: none may get lost. */
	crowd_open(&crowd, setup, MANY * 60);
	for (round = 0; round < 10 && ok; round++) {
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
static bool case_atomic_sum(struct setup *setup)
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
	bool ok;
};

static void *worker_main(void *argument)
{
	struct worker *worker = argument;
	uint64_t id;

	worker->ok = true;
	for (id = 0; id < 2000 && worker->ok; id++) {
		post_b_receive(&worker->pair, id, 0, 64);
		post_a(&worker->pair, id, IBV_WR_SEND, 4096, 64,
		       IBV_SEND_SIGNALED);
		worker->ok =
			cq_expect(worker->pair.a.send_cq, id, IBV_WC_SUCCESS) &&
			cq_expect(worker->pair.b.recv_cq, id, IBV_WC_SUCCESS);
	}
	return NULL;
}

static bool case_threads(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct worker workers[4];
	bool ok = true;
	unsigned int i;

	for (i = 0; i < COUNT(workers); i++)
		pair_open(&workers[i].pair, setup, &options);
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
	while (posted < 3000 && now_ms() < end) {
		error = try_post_send(&worker->pair.a, &wr);
		if (!error) {
			posted++;
			round = 0;
		} else if (error == ENOMEM) {
			relax(round++);
		} else {
			break;
		}
	}
	worker->ok = check(posted == 3000, "only %u posts", posted);
	return NULL;
}

static bool case_threads_one_qp(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct worker workers[3];
	unsigned int i, total = 3000 * COUNT(workers);
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
		workers[i] = (struct worker){ .setup = setup, .pair = pair };
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
	check(!ibv_destroy_cq(cq), "ibv_destroy_cq fails");
	return ok;
}

static bool case_both_directions(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct pair pair;
	bool ok = true;
	unsigned int i;

	pair_open(&pair, setup, &options);
	for (i = 0; i < 1000 && ok; i++) {
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
static bool case_self(struct setup *setup)
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

static const struct {
	const char *name;
	bool (*run)(struct setup *setup);
} cases[] = {
	{ "signalled and unsignalled mixed, in order", case_mixed_signals },
	{ "a queue that signals all", case_signal_all },
	{ "fenced SEND after READ", case_fence_read },
	{ "fenced WRITE after fetch-and-add", case_fence_atomic },
	{ "SEND does not overtake WRITE", case_write_then_send },
	{ "READ sees WRITE", case_read_after_write },
	{ "20 000 messages through 13 slots", case_stream_depth_13 },
	{ "20 000 messages through 1024 slots", case_stream_depth_1024 },
	{ "1000 messages through 1 slot", case_stream_depth_1 },
	{ "lists of requests", case_lists },
	{ "a list that does not fit", case_overfull_list },
	{ "more receives than fit", case_overfull_receive_list },
	{ "16 queue pairs on one completion queue", case_shared_cq },
	{ "16 queue pairs add to one word", case_atomic_sum },
	{ "four threads with a queue pair each", case_threads },
	{ "three threads post to one queue pair", case_threads_one_qp },
	{ "both directions at once", case_both_directions },
	{ "a queue pair connected with itself", case_self },
};

int main(int argc, char **argv)
{
	struct setup setup;
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	for (i = 0; i < COUNT(cases); i++)
		tap_ok(cases[i].run(&setup), "%s", cases[i].name);
	setup_close(&setup);
	return tap_end();
}
