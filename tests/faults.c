// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What goes wrong goes wrong by the book: for each operation and each fault
 * the completion on either side, the state of both queue pairs, the flushed
 * requests, the events, and memory that stays as it was. After each case a
 * connection between the same processes still works.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "event.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define REGION_BYTES (1UL << 16)
/* Where things are in both regions; the target is aligned for atomics. */
#define TARGET_OFFSET (PAGE_BYTES - 77)
#define LATE_OFFSET 20000U
#define RECEIVE_OFFSET 30000U
#define RECEIVE_BYTES 512U
#define GOOD_OFFSET 60000U
#define BAD_BYTES 64U
/* What the memories hold where nothing was written. */
#define A_BYTE 0x3a
#define B_BYTE 0x3b
#define EXTRA_BYTE 0x3e

enum {
	RECEIVES = 3,
	FIRST_RECEIVE_ID = 100,
	GOOD_ID = 0,
	BAD_ID = 1,
	LATE_WRITE_ID = 2,
	LATE_SEND_ID = 3,
};

/* One fault: a connection, and the request to go wrong. */
struct scene {
	struct setup *setup;
	enum ibv_wr_opcode opcode;
	struct endpoint a;
	struct endpoint b;
	struct ibv_sge local;
	uint64_t remote_addr;
	uint32_t rkey;
	struct ibv_sge receive;
	int receives;
	/* what a case made for itself */
	struct region extra;
	struct ibv_pd *extra_pd;
	struct ibv_context *extra_ctx;
};

/* What the first receive of the responder ends with. */
enum receive_end {
	RECEIVE_STAYS, /* still posted, queue pair unharmed */
	RECEIVE_FLUSHED,
	RECEIVE_FAILS,	   /* any error */
	RECEIVE_TOO_SHORT, /* local length error */
	RECEIVE_PROTECTED, /* local protection error */
	RECEIVE_UNKNOWN,   /* the case destroyed or changed the QP */
};

struct outcome {
	enum ibv_wc_status status;
	enum receive_end receive;
	int event; /* at the responder, -1: none */
};

struct fault {
	const char *name;
	unsigned int opcodes; /* a bit for each */
	void (*arrange)(struct scene *scene);
	struct outcome outcome;
	void (*options)(struct endpoint_options *options);
};

#define BIT(opcode) (1U << (opcode))
#define WRITES (BIT(IBV_WR_RDMA_WRITE) | BIT(IBV_WR_RDMA_WRITE_WITH_IMM))
#define SENDS                                                                  \
	(BIT(IBV_WR_SEND) | BIT(IBV_WR_SEND_WITH_IMM) |                        \
	 BIT(IBV_WR_SEND_WITH_INV))
#define READS BIT(IBV_WR_RDMA_READ)
#define ATOMICS                                                                \
	(BIT(IBV_WR_ATOMIC_CMP_AND_SWP) | BIT(IBV_WR_ATOMIC_FETCH_AND_ADD))
/* An aligned word at the peer, but no bytes come back. */
#define WORD_WRITE BIT(IBV_WR_ATOMIC_WRITE)
#define WORDS (ATOMICS | WORD_WRITE)
#define REMOTE (WRITES | READS | WORDS)
#define INWARD (READS | ATOMICS)
#define ALL (REMOTE | SENDS)
#define RECEIVED (SENDS | BIT(IBV_WR_RDMA_WRITE_WITH_IMM))

/* What a request completes with, what its receive does, and which event. */
#define REMOTE_ACCESS                                                          \
	{                                                                      \
		IBV_WC_REM_ACCESS_ERR, RECEIVE_FLUSHED,                        \
			IBV_EVENT_QP_ACCESS_ERR                                \
	}
#define REMOTE_INVALID                                                         \
	{                                                                      \
		IBV_WC_REM_INV_REQ_ERR, RECEIVE_FLUSHED, IBV_EVENT_QP_REQ_ERR  \
	}
#define LOCAL_PROTECTION                                                       \
	{                                                                      \
		IBV_WC_LOC_PROT_ERR, RECEIVE_STAYS, -1                         \
	}
#define LOCAL_LENGTH                                                           \
	{                                                                      \
		IBV_WC_LOC_LEN_ERR, RECEIVE_STAYS, -1                          \
	}
#define RECEIVE_SHORT                                                          \
	{                                                                      \
		IBV_WC_REM_INV_REQ_ERR, RECEIVE_TOO_SHORT, -1                  \
	}
#define RECEIVE_PROTECTION                                                     \
	{                                                                      \
		IBV_WC_REM_OP_ERR, RECEIVE_PROTECTED, -1                       \
	}
#define NO_ANSWER                                                              \
	{                                                                      \
		IBV_WC_RETRY_EXC_ERR, RECEIVE_UNKNOWN, -1                      \
	}
#define NOT_READY                                                              \
	{                                                                      \
		IBV_WC_RNR_RETRY_EXC_ERR, RECEIVE_STAYS, -1                    \
	}
#define FINE                                                                   \
	{                                                                      \
		IBV_WC_SUCCESS, RECEIVE_STAYS, -1                              \
	}

static bool is_of_word(const struct scene *scene)
{
	return WORDS & BIT(scene->opcode);
}

static uint32_t request_bytes(const struct scene *scene)
{
	return is_of_word(scene) ? 8 : BAD_BYTES;
}

/* --- the faults ---------------------------------------------------------- */

static void extra_region(struct scene *scene, struct ibv_pd *pd, int access)
{
	if (!region_map(&scene->extra, MEMORY_ANON, REGION_BYTES))
		bail("cannot map memory");
	region_register(&scene->extra, pd, access);
	memset(scene->extra.addr, EXTRA_BYTE, REGION_BYTES);
}

static void aim_at_extra(struct scene *scene)
{
	scene->remote_addr = scene->extra.rdma_addr + TARGET_OFFSET;
	scene->rkey = scene->extra.mr->rkey;
}

static void remote_without(struct scene *scene, int access)
{
	extra_region(scene, scene->setup->b_dev.pd, ACCESS_ALL & ~access);
	aim_at_extra(scene);
}

static void wrong_rkey(struct scene *scene)
{
	scene->rkey ^= 0x00a5a500;
}

static void next_rkey(struct scene *scene)
{
	scene->rkey++;
}

static void zero_rkey(struct scene *scene)
{
	scene->rkey = 0;
}

static void stale_rkey(struct scene *scene)
{
	remote_without(scene, 0);
	check(!ibv_dereg_mr(scene->extra.mr), "ibv_dereg_mr fails");
	scene->extra.mr = NULL;
}

static void rkey_of_other_pd(struct scene *scene)
{
	scene->extra_pd = ibv_alloc_pd(scene->setup->b_dev.ctx);
	if (!scene->extra_pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	extra_region(scene, scene->extra_pd, ACCESS_ALL);
	aim_at_extra(scene);
}

/* The same memory, registered through another open of the device. */
static void rkey_of_other_context(struct scene *scene)
{
	scene->extra_ctx = device_open_context(scene->setup->b_dev.name);
	if (!scene->extra_ctx)
		bail("cannot open the device again");
	scene->extra_pd = ibv_alloc_pd(scene->extra_ctx);
	if (!scene->extra_pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	extra_region(scene, scene->extra_pd, ACCESS_ALL);
	aim_at_extra(scene);
}

static void no_remote_write(struct scene *scene)
{
	remote_without(scene, IBV_ACCESS_REMOTE_WRITE);
}

static void no_remote_read(struct scene *scene)
{
	remote_without(scene, IBV_ACCESS_REMOTE_READ);
}

static void no_remote_atomic(struct scene *scene)
{
	remote_without(scene, IBV_ACCESS_REMOTE_ATOMIC);
}

static void below_remote(struct scene *scene)
{
	remote_without(scene, 0);
	scene->remote_addr = scene->extra.rdma_addr - 8;
	/* Atomics ask for alignment first: the last word before the start. */
	if (is_of_word(scene))
		scene->remote_addr &= ~7ULL;
}

static void across_remote_end(struct scene *scene)
{
	uint64_t end;

	remote_without(scene, 0);
	end = scene->extra.rdma_addr + REGION_BYTES;
	scene->remote_addr = end - request_bytes(scene) + 1;
	if (is_of_word(scene))
		scene->remote_addr = end & ~7ULL;
}

static void wrap_remote(struct scene *scene)
{
	scene->remote_addr = UINT64_MAX - 7;
}

static void misaligned_remote(struct scene *scene)
{
	scene->remote_addr += 4;
}

static void qp_without_write(struct endpoint_options *options)
{
	options->access &= ~IBV_ACCESS_REMOTE_WRITE;
}

static void qp_without_read(struct endpoint_options *options)
{
	options->access &= ~IBV_ACCESS_REMOTE_READ;
}

static void qp_without_atomic(struct endpoint_options *options)
{
	options->access &= ~IBV_ACCESS_REMOTE_ATOMIC;
}

static void wrong_lkey(struct scene *scene)
{
	scene->local.lkey ^= 0x00a5a500;
}

static void stale_lkey(struct scene *scene)
{
	extra_region(scene, scene->setup->a_dev.pd, ACCESS_ALL);
	scene->local = region_sge(&scene->extra, 0, request_bytes(scene));
	check(!ibv_dereg_mr(scene->extra.mr), "ibv_dereg_mr fails");
	scene->extra.mr = NULL;
}

static void lkey_of_other_pd(struct scene *scene)
{
	scene->extra_pd = ibv_alloc_pd(scene->setup->a_dev.ctx);
	if (!scene->extra_pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	extra_region(scene, scene->extra_pd, ACCESS_ALL);
	scene->local = region_sge(&scene->extra, 0, request_bytes(scene));
}

static void lkey_read_only(struct scene *scene)
{
	extra_region(scene, scene->setup->a_dev.pd, IBV_ACCESS_REMOTE_READ);
	scene->local = region_sge(&scene->extra, 0, request_bytes(scene));
}

static void below_local(struct scene *scene)
{
	extra_region(scene, scene->setup->a_dev.pd, ACCESS_ALL);
	scene->local = region_sge(&scene->extra, -1, request_bytes(scene));
}

static void across_local_end(struct scene *scene)
{
	uint32_t length = request_bytes(scene);

	extra_region(scene, scene->setup->a_dev.pd, ACCESS_ALL);
	scene->local = region_sge(&scene->extra, REGION_BYTES - length + 1,
				  length);
}

static void wrap_local(struct scene *scene)
{
	scene->local.addr = UINT64_MAX - 3;
}

static void short_receive(struct scene *scene)
{
	scene->receive.length = BAD_BYTES - 1;
}

static void wrong_receive_lkey(struct scene *scene)
{
	scene->receive.lkey ^= 0x00a5a500;
}

static void receive_lkey_of_other_pd(struct scene *scene)
{
	scene->extra_pd = ibv_alloc_pd(scene->setup->b_dev.ctx);
	if (!scene->extra_pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	extra_region(scene, scene->extra_pd, ACCESS_ALL);
	scene->receive = region_sge(&scene->extra, 0, RECEIVE_BYTES);
}

static void receive_read_only(struct scene *scene)
{
	extra_region(scene, scene->setup->b_dev.pd, IBV_ACCESS_REMOTE_READ);
	scene->receive = region_sge(&scene->extra, 0, RECEIVE_BYTES);
}

static void receive_outside(struct scene *scene)
{
	extra_region(scene, scene->setup->b_dev.pd, ACCESS_ALL);
	scene->receive = region_sge(&scene->extra, REGION_BYTES - 8,
				    RECEIVE_BYTES);
}

static void no_receives(struct scene *scene)
{
	scene->receives = 0;
}

static void rnr_retry_0(struct endpoint_options *options)
{
	options->rnr_retry = 0;
}

static void rnr_retry_1(struct endpoint_options *options)
{
	options->rnr_retry = 1;
}

static void rnr_retry_6(struct endpoint_options *options)
{
	options->rnr_retry = 6;
}

static void peer_destroyed(struct scene *scene)
{
	check(!ibv_destroy_qp(scene->b.qp), "ibv_destroy_qp fails");
	scene->b.qp = NULL;
}

static void set_peer_state(struct scene *scene, enum ibv_qp_state state)
{
	if (endpoint_set_state(&scene->b, state))
		bail("cannot go to %s", state_name(state));
}

static void peer_reset(struct scene *scene)
{
	set_peer_state(scene, IBV_QPS_RESET);
}

static void peer_init(struct scene *scene)
{
	set_peer_state(scene, IBV_QPS_RESET);
	endpoint_to_init(&scene->b);
}

static void peer_error(struct scene *scene)
{
	set_peer_state(scene, IBV_QPS_ERR);
}

/* The peer is connected again, but with somebody else. */
static void peer_elsewhere(struct scene *scene)
{
	struct endpoint_address address = endpoint_address(&scene->a);

	address.qp_num ^= 1;
	set_peer_state(scene, IBV_QPS_RESET);
	endpoint_connect(&scene->b, &address);
}

static void short_word(struct scene *scene)
{
	scene->local.length = 4;
}

static void long_word(struct scene *scene)
{
	scene->local.length = 16;
}

static void no_reads_here(struct endpoint_options *options)
{
	options->reads = 0;
}

static void few_retries(struct endpoint_options *options)
{
	options->timeout = 1;
	options->retry_count = 2;
}

static void no_retries(struct endpoint_options *options)
{
	options->timeout = 1;
	options->retry_count = 0;
}

/* Not a fault: without bytes to move, the key does not matter. */
static void zero_length(struct scene *scene)
{
	scene->local.length = 0;
	wrong_rkey(scene);
}

static const struct fault faults[] = {
	{ "wrong rkey", REMOTE, wrong_rkey, REMOTE_ACCESS, NULL },
	{ "rkey plus one", REMOTE, next_rkey, REMOTE_ACCESS, NULL },
	{ "rkey zero", REMOTE, zero_rkey, REMOTE_ACCESS, NULL },
	{ "rkey of a deregistered MR", REMOTE, stale_rkey, REMOTE_ACCESS,
	  NULL },
	{ "rkey of another PD", REMOTE, rkey_of_other_pd, REMOTE_ACCESS, NULL },
	{ "rkey of another context", REMOTE, rkey_of_other_context,
	  REMOTE_ACCESS, NULL },
	{ "MR without remote write", WRITES | WORD_WRITE, no_remote_write,
	  REMOTE_ACCESS, NULL },
	{ "MR without remote read", READS, no_remote_read, REMOTE_ACCESS,
	  NULL },
	{ "MR without remote atomic", ATOMICS, no_remote_atomic, REMOTE_ACCESS,
	  NULL },
	{ "remote address below the MR", REMOTE, below_remote, REMOTE_ACCESS,
	  NULL },
	{ "across the MR's end", REMOTE, across_remote_end, REMOTE_ACCESS,
	  NULL },
	{ "remote address that wraps around", REMOTE, wrap_remote,
	  REMOTE_ACCESS, NULL },
	{ "QP without remote write", WRITES | WORD_WRITE, NULL, REMOTE_INVALID,
	  qp_without_write },
	{ "QP without remote read", READS, NULL, REMOTE_INVALID,
	  qp_without_read },
	{ "QP without remote atomic", ATOMICS, NULL, REMOTE_INVALID,
	  qp_without_atomic },
	{ "misaligned word", WORDS, misaligned_remote, REMOTE_INVALID, NULL },
	{ "QP that answers no READs", INWARD, NULL, REMOTE_INVALID,
	  no_reads_here },
	{ "word of 4 bytes", WORDS, short_word, LOCAL_LENGTH, NULL },
	{ "word of 16 bytes", WORDS, long_word, LOCAL_LENGTH, NULL },
	{ "wrong lkey", ALL, wrong_lkey, LOCAL_PROTECTION, NULL },
	{ "lkey of a deregistered MR", ALL, stale_lkey, LOCAL_PROTECTION,
	  NULL },
	{ "lkey of another PD", ALL, lkey_of_other_pd, LOCAL_PROTECTION, NULL },
	{ "MR without local write", INWARD, lkey_read_only, LOCAL_PROTECTION,
	  NULL },
	{ "local address below the MR", ALL, below_local, LOCAL_PROTECTION,
	  NULL },
	{ "across the local MR's end", ALL, across_local_end, LOCAL_PROTECTION,
	  NULL },
	{ "local address that wraps around", ALL, wrap_local, LOCAL_PROTECTION,
	  NULL },
	{ "receive too short", SENDS, short_receive, RECEIVE_SHORT, NULL },
	{ "receive with a wrong lkey", SENDS, wrong_receive_lkey,
	  RECEIVE_PROTECTION, NULL },
	{ "receive with the lkey of another PD", SENDS,
	  receive_lkey_of_other_pd, RECEIVE_PROTECTION, NULL },
	{ "receive into an MR without local write", SENDS, receive_read_only,
	  RECEIVE_PROTECTION, NULL },
	{ "receive outside its MR", SENDS, receive_outside, RECEIVE_PROTECTION,
	  NULL },
	{ "no receive, no retry", RECEIVED, no_receives, NOT_READY,
	  rnr_retry_0 },
	{ "no receive, one retry", RECEIVED, no_receives, NOT_READY,
	  rnr_retry_1 },
	{ "no receive, six retries", RECEIVED, no_receives, NOT_READY,
	  rnr_retry_6 },
	{ "peer destroyed", ALL, peer_destroyed, NO_ANSWER, few_retries },
	{ "peer destroyed, no retries", ALL, peer_destroyed, NO_ANSWER,
	  no_retries },
	{ "peer in RESET", ALL, peer_reset, NO_ANSWER, few_retries },
	{ "peer in INIT", ALL, peer_init, NO_ANSWER, few_retries },
	{ "peer in ERR", ALL, peer_error, NO_ANSWER, few_retries },
	{ "peer connected with another", ALL, peer_elsewhere, NO_ANSWER,
	  few_retries },
	{ "wrong rkey for no bytes", WRITES | READS, zero_length, FINE, NULL },
};

/* --- one case ------------------------------------------------------------ */

static void open_scene(struct scene *scene, struct setup *setup,
		       const struct fault *fault, enum ibv_wr_opcode opcode)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	memset(scene, 0, sizeof(*scene));
	scene->setup = setup;
	scene->opcode = opcode;
	if (fault->options)
		fault->options(&options);
	pair_create(&scene->a, &setup->a_dev, &scene->b, &setup->b_dev,
		    &options);
	memset(setup->a_mem.addr, A_BYTE, REGION_BYTES);
	memset(setup->b_mem.addr, B_BYTE, REGION_BYTES);
	scene->local = region_sge(&setup->a_mem, TARGET_OFFSET,
				  request_bytes(scene));
	scene->remote_addr = setup->b_mem.rdma_addr + TARGET_OFFSET;
	scene->rkey = setup->b_mem.mr->rkey;
	scene->receive = region_sge(&setup->b_mem, RECEIVE_OFFSET,
				    RECEIVE_BYTES);
	scene->receives = RECEIVES;
}

static void close_scene(struct scene *scene)
{
	pair_destroy(&scene->a, &scene->b);
	if (scene->extra.map)
		region_destroy(&scene->extra);
	if (scene->extra_pd)
		check(!ibv_dealloc_pd(scene->extra_pd), "ibv_dealloc_pd fails");
	if (scene->extra_ctx)
		check(!ibv_close_device(scene->extra_ctx),
		      "ibv_close_device fails");
}

static void post_receives(struct scene *scene)
{
	struct ibv_sge sge = scene->receive;
	int i;

	for (i = 0; i < scene->receives; i++) {
		post_recv(&scene->b, FIRST_RECEIVE_ID + i, &sge, 1);
		sge = region_sge(&scene->setup->b_mem,
				 RECEIVE_OFFSET + (i + 1) * RECEIVE_BYTES,
				 RECEIVE_BYTES);
	}
}

/* In one list, so that what follows the request waits behind it. */
static bool post_fault(struct scene *scene)
{
	struct setup *setup = scene->setup;
	struct ibv_sge late = region_sge(&setup->a_mem, GOOD_OFFSET, BAD_BYTES);
	struct ibv_send_wr wr[3];
	int error;

	wr[0] = send_wr(BAD_ID, scene->opcode, &scene->local, 1);
	if (opcode_is_atomic(scene->opcode)) {
		wr[0].wr.atomic.remote_addr = scene->remote_addr;
		wr[0].wr.atomic.rkey = scene->rkey;
		wr[0].wr.atomic.compare_add = 1;
		wr[0].wr.atomic.swap = 2;
	} else {
		wr[0].wr.rdma.remote_addr = scene->remote_addr;
		wr[0].wr.rdma.rkey = scene->rkey;
	}
	wr[1] = send_wr(LATE_WRITE_ID, IBV_WR_RDMA_WRITE, &late, 1);
	wr[1].wr.rdma.remote_addr = setup->b_mem.rdma_addr + LATE_OFFSET;
	wr[1].wr.rdma.rkey = setup->b_mem.mr->rkey;
	wr[1].send_flags = 0;
	wr[2] = send_wr(LATE_SEND_ID, IBV_WR_SEND, &late, 1);
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	error = try_post_send(&scene->a, &wr[0]);
	return check(!error, "posting fails: %s", strerror(error));
}

static bool check_requester(struct scene *scene, const struct outcome *outcome)
{
	struct ibv_cq *cq = scene->a.send_cq;
	bool failed = outcome->status != IBV_WC_SUCCESS;
	enum ibv_qp_state state;

	if (!cq_expect(cq, BAD_ID, outcome->status))
		return false;
	/* The WRITE behind it is unsignalled: it completes only if flushed. */
	if (failed && !cq_expect(cq, LATE_WRITE_ID, IBV_WC_WR_FLUSH_ERR))
		return false;
	if (!cq_expect(cq, LATE_SEND_ID,
		       failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS))
		return false;
	state = endpoint_state(&scene->a);
	return check(state == (failed ? IBV_QPS_ERR : IBV_QPS_RTS),
		     "the requester is in %s", state_name(state)) &&
	       cq_stays_empty(cq, 0);
}

static bool is_first_end(const struct ibv_wc *wc, enum receive_end end)
{
	switch (end) {
	case RECEIVE_FLUSHED:
		return wc->status == IBV_WC_WR_FLUSH_ERR;
	case RECEIVE_FAILS:
		return wc->status != IBV_WC_SUCCESS;
	case RECEIVE_TOO_SHORT:
		return wc->status == IBV_WC_LOC_LEN_ERR;
	case RECEIVE_PROTECTED:
		return wc->status == IBV_WC_LOC_PROT_ERR;
	default:
		return false;
	}
}

static bool check_first_receive(struct scene *scene, enum receive_end end)
{
	struct ibv_wc wc;

	/* The operation may have taken its receive before it failed. */
	if (end == RECEIVE_FLUSHED &&
	    scene->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		end = RECEIVE_FAILS;
	return cq_wait(scene->b.recv_cq, &wc) &&
	       check(wc.wr_id == FIRST_RECEIVE_ID && is_first_end(&wc, end),
		     "the first receive: wr_id %" PRIu64 ", '%s'", wc.wr_id,
		     ibv_wc_status_str(wc.status));
}

static bool check_failed_responder(struct scene *scene, enum receive_end end)
{
	enum ibv_qp_state state;
	int i;

	if (!check_first_receive(scene, end))
		return false;
	for (i = 1; i < scene->receives; i++)
		if (!cq_expect(scene->b.recv_cq, FIRST_RECEIVE_ID + i,
			       IBV_WC_WR_FLUSH_ERR))
			return false;
	state = endpoint_state(&scene->b);
	return check(state == IBV_QPS_ERR, "the responder is in %s",
		     state_name(state)) &&
	       cq_stays_empty(scene->b.recv_cq, 0);
}

static bool check_responder(struct scene *scene, const struct outcome *outcome)
{
	enum ibv_qp_state state;

	if (outcome->receive == RECEIVE_UNKNOWN)
		return true;
	if (outcome->receive != RECEIVE_STAYS)
		return check_failed_responder(scene, outcome->receive);
	state = endpoint_state(&scene->b);
	return check(state == IBV_QPS_RTS, "the responder is in %s",
		     state_name(state)) &&
	       (outcome->status == IBV_WC_SUCCESS ||
		cq_stays_empty(scene->b.recv_cq, 0));
}

static bool check_events(struct scene *scene, const struct outcome *outcome)
{
	struct setup *setup = scene->setup;

	if (outcome->event >= 0 &&
	    !event_expect(setup->b_dev.ctx, outcome->event, scene->b.qp))
		return false;
	return events_none(setup->b_dev.ctx) && events_none(setup->a_dev.ctx);
}

static bool is_untouched(const struct region *region, size_t length,
			 uint8_t byte)
{
	size_t i;

	for (i = 0; i < length; i++)
		if (region->addr[i] != byte)
			return check(false,
				     "byte %zu is 0x%02x instead of 0x%02x", i,
				     region->addr[i], byte);
	return true;
}

/* A request that failed moved nothing, and those behind it didn't either. */
static bool check_memory(struct scene *scene, const struct outcome *outcome)
{
	if (outcome->status == IBV_WC_SUCCESS)
		return true;
	return is_untouched(&scene->setup->a_mem, GOOD_OFFSET, A_BYTE) &&
	       is_untouched(&scene->setup->b_mem, GOOD_OFFSET, B_BYTE) &&
	       (!scene->extra.map ||
		is_untouched(&scene->extra, REGION_BYTES, EXTRA_BYTE));
}

static bool run_fault(struct setup *setup, struct neighbours *neighbours,
		      const struct fault *fault, enum ibv_wr_opcode opcode)
{
	struct scene scene;
	bool ok;

	open_scene(&scene, setup, fault, opcode);
	ok = exchange_empty(&scene.a, &scene.b, GOOD_ID);
	/* Some faults are of a receive, some of a peer that had receives. */
	if (fault->arrange && fault->outcome.receive != RECEIVE_UNKNOWN)
		fault->arrange(&scene);
	post_receives(&scene);
	if (fault->arrange && fault->outcome.receive == RECEIVE_UNKNOWN)
		fault->arrange(&scene);
	ok = ok && post_fault(&scene) &&
	     check_requester(&scene, &fault->outcome) &&
	     check_responder(&scene, &fault->outcome) &&
	     check_memory(&scene, &fault->outcome);
	ok = check_events(&scene, &fault->outcome) && ok;
	close_scene(&scene);
	return neighbours_work(neighbours) && ok;
}

static void run_faults(struct setup *setup, struct neighbours *neighbours)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND,
		IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_SEND_WITH_INV,
		IBV_WR_ATOMIC_WRITE,
	};
	unsigned int i, k;

	for (i = 0; i < COUNT(faults); i++)
		for (k = 0; k < COUNT(opcodes); k++)
			if (faults[i].opcodes & BIT(opcodes[k]))
				tap_ok(run_fault(setup, neighbours, &faults[i],
						 opcodes[k]),
				       "%s: %s", opcode_name(opcodes[k]),
				       faults[i].name);
}

int main(int argc, char **argv)
{
	struct neighbours neighbours;
	struct setup setup;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	events_prepare(setup.a_dev.ctx);
	events_prepare(setup.b_dev.ctx);
	neighbours_open(&neighbours, &setup);
	run_faults(&setup, &neighbours);
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
