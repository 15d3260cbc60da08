// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Requests of all kinds on one queue pair, executed by the process, by the
 * kernel, and now by one and now by the other: the data is that of executing
 * them one after the other, and the completions come in the order of posting,
 * however they are waited for. Memory of another machine is the kernel's to reach,
 * unless there is an "aperture".
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "endpoint.h"
#include "pattern.h"
#include "proxy.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

enum {
	TARGET_BYTES = 1 << 14,
	SOURCE_BYTES = 1 << 14,
	BATCH = 24,
	SLOT_BYTES = 4096,	/* for what a READ or a SEND brings */
	RESULTS = SOURCE_BYTES, /* where the READs' slots begin */
	RECEIVED = TARGET_BYTES,
	MEMORY_BYTES = SOURCE_BYTES + BATCH * SLOT_BYTES,
	INLINE = 128,
	MAX_SGES = 4,
	WORD = 8,
};

static const char *const path_names[] = {
	[MICDV_PATH_ENGINE] = "the kernel",
	[MICDV_PATH_DIRECT] = "the process",
	[MICDV_PATH_RANDOM] = "one or the other",
	[MICDV_PATH_WORKER] = "the kernel's worker",
};

/* How completions are waited for. */
enum wait { WAIT_POLL, WAIT_EXTENDED, WAIT_EVENT, WAITS };

static const char *const wait_names[] = {
	[WAIT_POLL] = "polled",
	[WAIT_EXTENDED] = "polled one by one",
	[WAIT_EVENT] = "waited for",
};

/* A request, and what it leaves behind. */
struct request {
	struct ibv_send_wr wr;
	struct ibv_sge sges[MAX_SGES];
	uint32_t length;
	uint32_t source;	    /* offset of what it sends */
	uint8_t result[SLOT_BYTES]; /* what it brings */
	bool brings;
	bool takes_recv;
};

struct test {
	struct setup *setup;
	bool mapped; /* the process can reach the memory */
	struct endpoint a;
	struct endpoint b;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_cq_ex *cq_ex;
	enum wait wait;
	struct random_state random;
	struct request request[BATCH];
	unsigned int count;
	uint64_t next_id;
	uint8_t model[TARGET_BYTES];
};

static void create_cq(struct test *test)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 2 * BATCH,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
	};

	if (test->wait == WAIT_EVENT) {
		test->channel = ibv_create_comp_channel(test->setup->a_dev.ctx);
		if (!test->channel)
			bail("ibv_create_comp_channel: %s", strerror(errno));
	}
	if (test->wait == WAIT_EXTENDED) {
		test->cq_ex = ibv_create_cq_ex(test->setup->a_dev.ctx, &attr);
		test->cq = test->cq_ex ? ibv_cq_ex_to_cq(test->cq_ex) : NULL;
	} else {
		test->cq = ibv_create_cq(test->setup->a_dev.ctx, 2 * BATCH,
					 NULL, test->channel, 0);
	}
	if (!test->cq)
		bail("no completion queue: %s", strerror(errno));
}

static void open_test(struct test *test, struct setup *setup, enum wait wait,
		      enum micdv_path path)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	memset(test, 0, sizeof(*test));
	test->setup = setup;
	test->wait = wait;
	random_seed(&test->random, 4711 + wait * 3 + path);
	create_cq(test);
	options.inline_bytes = INLINE;
	options.sges = MAX_SGES;
	endpoint_create(&test->b, &setup->b_dev, &options);
	options.send_cq = test->cq;
	endpoint_create(&test->a, &setup->a_dev, &options);
	pair_connect(&test->a, &test->b);
	if (micdv_set_path(test->a.qp, path))
		bail("micdv_set_path fails");
	memcpy(setup->a_mem.addr, pattern_bytes(wait, SOURCE_BYTES),
	       SOURCE_BYTES);
	memset(setup->b_mem.addr, 0, TARGET_BYTES);
}

static void close_test(struct test *test)
{
	pair_destroy(&test->a, &test->b);
	tap_must(!ibv_destroy_cq(test->cq), "ibv_destroy_cq fails");
	if (test->channel)
		tap_must(!ibv_destroy_comp_channel(test->channel),
			 "ibv_destroy_comp_channel fails");
}

/* --- making a request ------------------------------------------------------ */

static uint32_t pick_length(struct test *test, enum ibv_wr_opcode opcode)
{
	static const uint32_t lengths[] = { 0,	 1,   2,   3,	 4,    7,   8,
					    9,	 15,  16,  17,	 63,   64,  65,
					    100, 128, 256, 1000, 4095, 4096 };

	if (opcode_is_atomic(opcode))
		return WORD;
	return lengths[random_below(&test->random,
				    sizeof(lengths) / sizeof(lengths[0]))];
}

/* Cut @length bytes at @offset of our memory into pieces. */
static void cut(struct test *test, struct request *request, uint32_t offset)
{
	uint32_t left = request->length, n;
	int i = 0, pieces = 1 + random_below(&test->random, MAX_SGES);

	for (; i < pieces - 1; i++) {
		n = random_below(&test->random, left + 1);
		request->sges[i] = region_sge(&test->setup->a_mem, offset, n);
		offset += n;
		left -= n;
	}
	request->sges[i] = region_sge(&test->setup->a_mem, offset, left);
	request->wr.num_sge = pieces;
}

static void pick_remote(struct test *test, struct request *request)
{
	uint32_t offset = random_below(&test->random,
				       TARGET_BYTES - request->length + 1);
	uint64_t address = test->setup->b_mem.rdma_addr + offset;
	uint32_t rkey = test->setup->b_mem.mr->rkey;

	if (opcode_is_atomic(request->wr.opcode)) {
		address &= ~(uint64_t)(WORD - 1);
		if (address < test->setup->b_mem.rdma_addr)
			address += WORD;
	}
	if (opcode_is_atomic(request->wr.opcode)) {
		request->wr.wr.atomic.remote_addr = address;
		request->wr.wr.atomic.rkey = rkey;
		request->wr.wr.atomic.compare_add = random_below(&test->random,
								 3);
		request->wr.wr.atomic.swap = random_next(&test->random);
	} else {
		request->wr.wr.rdma.remote_addr = address;
		request->wr.wr.rdma.rkey = rkey;
	}
}

static enum ibv_wr_opcode pick_opcode(struct test *test)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
		IBV_WR_SEND,
		IBV_WR_RDMA_WRITE_WITH_IMM,
	};

	return opcodes[random_below(&test->random,
				    sizeof(opcodes) / sizeof(opcodes[0]))];
}

static void make_request(struct test *test, unsigned int index)
{
	struct request *request = &test->request[index];
	enum ibv_wr_opcode opcode = pick_opcode(test);

	memset(request, 0, sizeof(*request));
	request->wr = send_wr(test->next_id++, opcode, request->sges, 1);
	request->length = pick_length(test, opcode);
	request->brings = opcode_writes_local(opcode);
	request->takes_recv = opcode_takes_recv(opcode);
	request->source = random_below(&test->random,
				       SOURCE_BYTES - request->length + 1);
	cut(test, request,
	    request->brings ? RESULTS + index * SLOT_BYTES : request->source);
	if (opcode_has_remote(opcode))
		pick_remote(test, request);
	if (!random_below(&test->random, 3))
		request->wr.send_flags &= ~IBV_SEND_SIGNALED;
	if (!random_below(&test->random, 4))
		request->wr.send_flags |= IBV_SEND_FENCE;
	if (!request->brings && request->length <= INLINE &&
	    random_below(&test->random, 2))
		request->wr.send_flags |= IBV_SEND_INLINE;
}

/* --- what it has to do ----------------------------------------------------- */

static void model_atomic(struct test *test, struct request *request)
{
	const struct ibv_send_wr *wr = &request->wr;
	uint8_t *at = test->model + (wr->wr.atomic.remote_addr -
				     test->setup->b_mem.rdma_addr);
	uint64_t word;

	memcpy(&word, at, WORD);
	memcpy(request->result, &word, WORD);
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		word += wr->wr.atomic.compare_add;
	else if (word == wr->wr.atomic.compare_add)
		word = wr->wr.atomic.swap;
	memcpy(at, &word, WORD);
}

static void model_request(struct test *test, struct request *request)
{
	const uint8_t *source = test->setup->a_mem.addr + request->source;
	uint64_t offset = request->wr.wr.rdma.remote_addr -
			  test->setup->b_mem.rdma_addr;

	switch (request->wr.opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		memcpy(test->model + offset, source, request->length);
		break;
	case IBV_WR_RDMA_READ:
		memcpy(request->result, test->model + offset, request->length);
		break;
	case IBV_WR_SEND:
		memcpy(request->result, source, request->length);
		break;
	default:
		model_atomic(test, request);
		break;
	}
}

/* --- a batch --------------------------------------------------------------- */

/* The last one is signalled, so all are known to be done. */
static void make_batch(struct test *test)
{
	struct ibv_sge sge;
	unsigned int i;

	test->count = 1 + random_below(&test->random, BATCH);
	for (i = 0; i < test->count; i++) {
		struct request *request = &test->request[i];

		make_request(test, i);
		if (i == test->count - 1)
			request->wr.send_flags |= IBV_SEND_SIGNALED;
		model_request(test, request);
		if (!request->takes_recv)
			continue;
		sge = region_sge(&test->setup->b_mem, RECEIVED + i * SLOT_BYTES,
				 SLOT_BYTES);
		post_recv(&test->b, i, &sge, 1);
	}
}

/* In lists of several lengths. */
static void post_batch(struct test *test)
{
	unsigned int i = 0, j, n;

	while (i < test->count) {
		n = 1 + random_below(&test->random, test->count - i);
		for (j = i; j < i + n - 1; j++)
			test->request[j].wr.next = &test->request[j + 1].wr;
		post_send(&test->a, &test->request[i].wr);
		i += n;
	}
}

static bool next_extended(struct test *test, struct ibv_wc *wc)
{
	struct ibv_poll_cq_attr attr = { .comp_mask = 0 };
	uint64_t end = deadline();
	unsigned int round = 0;

	while (ibv_start_poll(test->cq_ex, &attr)) {
		if (now_ms() > end)
			return check(false, "no completion came");
		relax(round++);
	}
	wc->wr_id = test->cq_ex->wr_id;
	wc->status = test->cq_ex->status;
	wc->opcode = ibv_wc_read_opcode(test->cq_ex);
	wc->qp_num = ibv_wc_read_qp_num(test->cq_ex);
	ibv_end_poll(test->cq_ex);
	return true;
}

/* Arm, look again, sleep: an event that is missed is a hang here. */
static bool next_event(struct test *test, struct ibv_wc *wc)
{
	struct ibv_cq *cq;
	void *context;
	int n;

	for (;;) {
		n = ibv_poll_cq(test->cq, 1, wc);
		if (n)
			return n > 0;
		if (ibv_req_notify_cq(test->cq, 0))
			return check(false, "arming fails");
		n = ibv_poll_cq(test->cq, 1, wc);
		if (n)
			return n > 0;
		if (!check(becomes_readable(test->channel->fd),
			   "no event came") ||
		    ibv_get_cq_event(test->channel, &cq, &context))
			return false;
		ibv_ack_cq_events(cq, 1);
	}
}

static bool next_completion(struct test *test, struct ibv_wc *wc)
{
	bool ok;

	if (test->wait == WAIT_POLL)
		return cq_wait(test->cq, wc);
	ok = test->wait == WAIT_EXTENDED ? next_extended(test, wc) :
					   next_event(test, wc);
	proxy_sync();
	return ok;
}

static bool complete_batch(struct test *test)
{
	struct ibv_wc wc;
	unsigned int i;

	for (i = 0; i < test->count; i++) {
		const struct ibv_send_wr *wr = &test->request[i].wr;

		if (!(wr->send_flags & IBV_SEND_SIGNALED))
			continue;
		if (!next_completion(test, &wc))
			return false;
		if (!check(wc.wr_id == wr->wr_id &&
				   wc.status == IBV_WC_SUCCESS &&
				   wc.opcode == completion_of(wr->opcode) &&
				   wc.qp_num == test->a.qp->qp_num,
			   "completion of %" PRIu64 " (%s) is %" PRIu64 " %s",
			   wr->wr_id, opcode_name(wr->opcode), wc.wr_id,
			   ibv_wc_status_str(wc.status)))
			return false;
	}
	return true;
}

/* What a SEND brings is where the peer's receives say, in their order. */
static bool verify_sends(struct test *test)
{
	struct ibv_wc wc;
	unsigned int i;

	for (i = 0; i < test->count; i++) {
		struct request *request = &test->request[i];

		if (!request->takes_recv)
			continue;
		if (!cq_success(test->b.recv_cq, i, &wc))
			return false;
		if (request->wr.opcode == IBV_WR_SEND &&
		    !check(!memcmp(test->setup->b_mem.addr + RECEIVED +
					   i * SLOT_BYTES,
				   request->result, request->length),
			   "request %u: other bytes arrived", i))
			return false;
	}
	return true;
}

static bool verify_batch(struct test *test)
{
	unsigned int i;

	for (i = 0; i < test->count; i++) {
		struct request *request = &test->request[i];

		if (request->brings &&
		    !check(!memcmp(test->setup->a_mem.addr + RESULTS +
					   i * SLOT_BYTES,
				   request->result, request->length),
			   "request %u: %s brought other bytes", i,
			   opcode_name(request->wr.opcode)))
			return false;
	}
	return check(!memcmp(test->setup->b_mem.addr, test->model,
			     TARGET_BYTES),
		     "the memory is not as the requests leave it");
}

static bool run_batches(struct test *test, unsigned int count)
{
	while (count--) {
		make_batch(test);
		post_batch(test);
		if (!complete_batch(test) || !verify_sends(test) ||
		    !verify_batch(test))
			return false;
	}
	return cq_stays_empty(test->cq, 1);
}

/* Did who was told to execute do so? */
static bool verify_path(struct test *test, enum micdv_path path)
{
	struct micdv_qp_attr attr = { .comp_mask = 0 };

	if (micdv_query_qp(test->a.qp, &attr))
		return check(false, "micdv_query_qp fails");
	switch (path) {
	case MICDV_PATH_ENGINE:
	case MICDV_PATH_WORKER:
		return check(!attr.direct, "the process executed requests");
	case MICDV_PATH_DIRECT:
	case MICDV_PATH_RANDOM:
		return check(attr.engine > 20 &&
				     (test->mapped ? attr.direct > 20 :
						     !attr.direct),
			     "%" PRIu64 " requests by the process, %" PRIu64
			     " by the kernel",
			     attr.direct, attr.engine);
	}
	return false;
}

static void run_case(struct setup *setup, bool mapped, enum wait wait,
		     enum micdv_path path)
{
	struct test test;
	bool ok;

	open_test(&test, setup, wait, path);
	test.mapped = mapped;
	ok = run_batches(&test, 120) && verify_path(&test, path);
	close_test(&test);
	tap_ok(ok, "executed by %s, completions %s", path_names[path],
	       wait_names[wait]);
}

int main(int argc, char **argv)
{
	struct setup setup;
	enum micdv_path path;
	enum wait wait;
	bool mapped;

	setup_open(&setup, &argc, argv, MEMORY_BYTES);
	mapped = !setup_is_remote(&setup) || argc == 2;
	for (path = MICDV_PATH_ENGINE; path <= MICDV_PATH_WORKER; path++)
		for (wait = WAIT_POLL; wait < WAITS; wait++)
			run_case(&setup, mapped, wait, path);
	setup_close(&setup);
	return tap_end();
}
