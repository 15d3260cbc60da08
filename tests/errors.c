// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What goes wrong goes wrong by the book: for each operation and each fault
 * the completion on either side, the state of both queue pairs, the flushed
 * requests, the events, and memory that stays as it was. After each case a
 * connection between the same processes still works.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "device.h"
#include "endpoint.h"
#include "event.h"
#include "memory.h"
#include "pattern.h"
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

struct setup {
	struct device a_dev;
	struct device b_dev;
	struct region a_mem;
	struct region b_mem;
	/* the neighbours, whom nothing of this concerns */
	struct endpoint a_neighbour;
	struct endpoint b_neighbour;
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
	RECEIVE_STAYS,		/* still posted, queue pair unharmed */
	RECEIVE_FLUSHED,
	RECEIVE_FAILS,		/* any error */
	RECEIVE_TOO_SHORT,	/* local length error */
	RECEIVE_PROTECTED,	/* local protection error */
	RECEIVE_UNKNOWN,	/* the case destroyed or changed the QP */
};

struct outcome {
	enum ibv_wc_status status;
	enum receive_end receive;
	int event;		/* at the responder, -1: none */
};

struct fault {
	const char *name;
	unsigned int opcodes;	/* a bit for each */
	void (*arrange)(struct scene *scene);
	struct outcome outcome;
	void (*options)(struct endpoint_options *options);
};

#define BIT(opcode) (1U << (opcode))
#define WRITES (BIT(IBV_WR_RDMA_WRITE) | BIT(IBV_WR_RDMA_WRITE_WITH_IMM))
#define SENDS (BIT(IBV_WR_SEND) | BIT(IBV_WR_SEND_WITH_IMM))
#define READS BIT(IBV_WR_RDMA_READ)
#define ATOMICS                                                                \
	(BIT(IBV_WR_ATOMIC_CMP_AND_SWP) | BIT(IBV_WR_ATOMIC_FETCH_AND_ADD))
#define REMOTE (WRITES | READS | ATOMICS)
#define INWARD (READS | ATOMICS)
#define OUTWARD (WRITES | SENDS)
#define ALL (REMOTE | SENDS)
#define RECEIVED (SENDS | BIT(IBV_WR_RDMA_WRITE_WITH_IMM))

/* What a request completes with, what its receive does, and which event. */
#define REMOTE_ACCESS                                                          \
	{ IBV_WC_REM_ACCESS_ERR, RECEIVE_FLUSHED, IBV_EVENT_QP_ACCESS_ERR }
#define REMOTE_INVALID                                                         \
	{ IBV_WC_REM_INV_REQ_ERR, RECEIVE_FLUSHED, IBV_EVENT_QP_REQ_ERR }
#define LOCAL_PROTECTION { IBV_WC_LOC_PROT_ERR, RECEIVE_STAYS, -1 }
#define RECEIVE_SHORT { IBV_WC_REM_INV_REQ_ERR, RECEIVE_TOO_SHORT, -1 }
#define RECEIVE_PROTECTION { IBV_WC_REM_OP_ERR, RECEIVE_PROTECTED, -1 }
#define NO_ANSWER { IBV_WC_RETRY_EXC_ERR, RECEIVE_UNKNOWN, -1 }
#define NOT_READY { IBV_WC_RNR_RETRY_EXC_ERR, RECEIVE_STAYS, -1 }
#define FINE { IBV_WC_SUCCESS, RECEIVE_STAYS, -1 }

static uint32_t request_bytes(const struct scene *scene)
{
	return opcode_is_atomic(scene->opcode) ? 8 : BAD_BYTES;
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
	if (opcode_is_atomic(scene->opcode))
		scene->remote_addr &= ~7ULL;
}

static void across_remote_end(struct scene *scene)
{
	uint64_t end;

	remote_without(scene, 0);
	end = scene->extra.rdma_addr + REGION_BYTES;
	scene->remote_addr = end - request_bytes(scene) + 1;
	if (opcode_is_atomic(scene->opcode))
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
	struct endpoint_address address =
		endpoint_address(&scene->setup->a_neighbour);

	set_peer_state(scene, IBV_QPS_RESET);
	endpoint_connect(&scene->b, &address);
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
	{ "MR without remote write", WRITES, no_remote_write, REMOTE_ACCESS,
	  NULL },
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
	{ "QP without remote write", WRITES, NULL, REMOTE_INVALID,
	  qp_without_write },
	{ "QP without remote read", READS, NULL, REMOTE_INVALID,
	  qp_without_read },
	{ "QP without remote atomic", ATOMICS, NULL, REMOTE_INVALID,
	  qp_without_atomic },
	{ "misaligned word", ATOMICS, misaligned_remote, REMOTE_INVALID, NULL },
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
		check(!ibv_dealloc_pd(scene->extra_pd),
		      "ibv_dealloc_pd fails");
	if (scene->extra_ctx)
		check(!ibv_close_device(scene->extra_ctx),
		      "ibv_close_device fails");
}

static void post_write(struct endpoint *from, const struct region *local,
		       const struct region *remote, uint64_t id,
		       uint32_t offset, int flags)
{
	struct ibv_sge sge = region_sge(local, GOOD_OFFSET, BAD_BYTES);
	struct ibv_send_wr wr = send_wr(id, IBV_WR_RDMA_WRITE, &sge, 1);

	wr.send_flags = flags;
	wr.wr.rdma.remote_addr = remote->rdma_addr + offset;
	wr.wr.rdma.rkey = remote->mr->rkey;
	post_send(from, &wr);
}

static void post_plain_send(struct endpoint *ep, uint64_t id, int flags)
{
	struct ibv_send_wr wr = send_wr(id, IBV_WR_SEND, NULL, 0);

	wr.send_flags = flags;
	post_send(ep, &wr);
}

/* A message without bytes. */
static bool exchange(struct endpoint *from, struct endpoint *to, uint64_t id)
{
	post_recv(to, id, NULL, 0);
	post_plain_send(from, id, IBV_SEND_SIGNALED);
	return cq_expect(from->send_cq, id, IBV_WC_SUCCESS) &&
	       cq_expect(to->recv_cq, id, IBV_WC_SUCCESS);
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
	if (!cq_expect(cq, LATE_SEND_ID, failed ? IBV_WC_WR_FLUSH_ERR :
		       IBV_WC_SUCCESS))
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
			return check(false, "byte %zu is 0x%02x instead of 0x%02x",
				     i, region->addr[i], byte);
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

static bool check_neighbours(struct setup *setup)
{
	static uint32_t seed;
	const uint8_t *bytes = pattern_bytes(++seed, BAD_BYTES);
	struct ibv_sge from = region_sge(&setup->b_mem, GOOD_OFFSET, BAD_BYTES);
	struct ibv_sge to = region_sge(&setup->a_mem, GOOD_OFFSET + 200,
				       BAD_BYTES);
	struct ibv_send_wr wr = send_wr(seed, IBV_WR_SEND, &from, 1);

	memcpy(setup->a_mem.addr + GOOD_OFFSET, bytes, BAD_BYTES);
	memset(setup->a_mem.addr + GOOD_OFFSET + 200, 0, BAD_BYTES);
	/* There by WRITE, and back by SEND. */
	post_write(&setup->a_neighbour, &setup->a_mem, &setup->b_mem, seed,
		   GOOD_OFFSET, IBV_SEND_SIGNALED);
	if (!cq_expect(setup->a_neighbour.send_cq, seed, IBV_WC_SUCCESS))
		return check(false, "the neighbours' WRITE fails");
	post_recv(&setup->a_neighbour, seed, &to, 1);
	post_send(&setup->b_neighbour, &wr);
	return check(cq_expect(setup->b_neighbour.send_cq, seed,
			       IBV_WC_SUCCESS) &&
		     cq_expect(setup->a_neighbour.recv_cq, seed,
			       IBV_WC_SUCCESS) &&
		     !memcmp(setup->a_mem.addr + GOOD_OFFSET + 200, bytes,
			     BAD_BYTES), "the neighbours' SEND fails");
}

static bool run_fault(struct setup *setup, const struct fault *fault,
		      enum ibv_wr_opcode opcode)
{
	struct scene scene;
	bool ok;

	open_scene(&scene, setup, fault, opcode);
	ok = exchange(&scene.a, &scene.b, GOOD_ID);
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
	return check_neighbours(setup) && ok;
}

static void run_faults(struct setup *setup)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND,
		IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	unsigned int i, k;

	for (i = 0; i < COUNT(faults); i++)
		for (k = 0; k < COUNT(opcodes); k++)
			if (faults[i].opcodes & BIT(opcodes[k]))
				tap_ok(run_fault(setup, &faults[i], opcodes[k]),
				       "%s: %s", opcode_name(opcodes[k]),
				       faults[i].name);
}

/* --- cases that are not one request -------------------------------------- */

struct pair {
	struct setup *setup;
	struct endpoint a;
	struct endpoint b;
};

static bool expect_range(struct ibv_cq *cq, uint64_t from, uint64_t to,
			 enum ibv_wc_status status)
{
	uint64_t id;

	for (id = from; id < to; id++)
		if (!cq_expect(cq, id, status))
			return false;
	return true;
}

static bool expect_state(const struct endpoint *ep, enum ibv_qp_state state)
{
	enum ibv_qp_state found = endpoint_state(ep);

	return check(found == state, "the QP is in %s instead of %s",
		     state_name(found), state_name(state));
}

static void go(struct endpoint *ep, enum ibv_qp_state state)
{
	int error = endpoint_set_state(ep, state);

	if (error)
		bail("cannot go to %s: %s", state_name(state), strerror(error));
}

/* Requests that wait for a receive are flushed in order, all of them. */
static bool flush_waiting_sends(struct pair *pair)
{
	uint64_t id;

	for (id = 0; id < 20; id++)
		post_plain_send(&pair->a, id, id % 3 ? 0 : IBV_SEND_SIGNALED);
	go(&pair->a, IBV_QPS_ERR);
	return expect_range(pair->a.send_cq, 0, 20, IBV_WC_WR_FLUSH_ERR) &&
	       cq_stays_empty(pair->a.send_cq, 0) &&
	       expect_state(&pair->a, IBV_QPS_ERR);
}

static bool flush_receives(struct pair *pair)
{
	uint64_t id;

	for (id = 0; id < 20; id++)
		post_recv(&pair->b, id, NULL, 0);
	go(&pair->b, IBV_QPS_ERR);
	return expect_range(pair->b.recv_cq, 0, 20, IBV_WC_WR_FLUSH_ERR) &&
	       cq_stays_empty(pair->b.recv_cq, 0);
}

/* What is posted to a queue pair in ERR is flushed at once. */
static bool post_in_error(struct pair *pair)
{
	uint64_t id;

	go(&pair->a, IBV_QPS_ERR);
	for (id = 0; id < 100; id++) {
		post_plain_send(&pair->a, id, 0);
		post_recv(&pair->a, id, NULL, 0);
		if (!cq_expect(pair->a.send_cq, id, IBV_WC_WR_FLUSH_ERR) ||
		    !cq_expect(pair->a.recv_cq, id, IBV_WC_WR_FLUSH_ERR))
			return false;
	}
	return true;
}

static bool post_in_reset(struct pair *pair)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);

	go(&pair->a, IBV_QPS_RESET);
	return check(try_post_send(&pair->a, &wr) != 0,
		     "a send is accepted in RESET") &&
	       check(try_post_recv(&pair->a, 1, NULL, 0) != 0,
		     "a receive is accepted in RESET");
}

static bool post_in_init(struct pair *pair)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);

	go(&pair->a, IBV_QPS_RESET);
	endpoint_to_init(&pair->a);
	return check(try_post_send(&pair->a, &wr) != 0,
		     "a send is accepted in INIT") &&
	       check(!try_post_recv(&pair->a, 1, NULL, 0),
		     "a receive is refused in INIT");
}

static bool post_in_rtr(struct pair *pair)
{
	struct endpoint_address address = endpoint_address(&pair->b);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);

	go(&pair->a, IBV_QPS_RESET);
	endpoint_to_init(&pair->a);
	endpoint_to_rtr(&pair->a, &address);
	return check(try_post_send(&pair->a, &wr) != 0,
		     "a send is accepted in RTR") &&
	       check(!try_post_recv(&pair->a, 1, NULL, 0),
		     "a receive is refused in RTR");
}

/* Receives from before the connection work after it. */
static bool receive_before_connect(struct pair *pair)
{
	struct endpoint_address a = endpoint_address(&pair->a);
	struct endpoint_address b = endpoint_address(&pair->b);

	go(&pair->a, IBV_QPS_RESET);
	go(&pair->b, IBV_QPS_RESET);
	endpoint_to_init(&pair->b);
	post_recv(&pair->b, 7, NULL, 0);
	endpoint_to_rtr(&pair->b, &a);
	endpoint_connect(&pair->a, &b);
	/* The peer only receives: RTR is enough for that. */
	post_plain_send(&pair->a, 8, IBV_SEND_SIGNALED);
	return cq_expect(pair->a.send_cq, 8, IBV_WC_SUCCESS) &&
	       cq_expect(pair->b.recv_cq, 7, IBV_WC_SUCCESS);
}

/* RESET empties the queues without a word; then all works again. */
static bool reset_and_again(struct pair *pair)
{
	uint64_t round, id;

	for (round = 0; round < 5; round++) {
		for (id = 0; id < 10; id++) {
			post_plain_send(&pair->a, 1000 + id, IBV_SEND_SIGNALED);
			post_recv(&pair->a, 1000 + id, NULL, 0);
		}
		go(&pair->a, IBV_QPS_RESET);
		go(&pair->b, IBV_QPS_RESET);
		if (!cq_stays_empty(pair->a.send_cq, 20) ||
		    !cq_stays_empty(pair->a.recv_cq, 0))
			return false;
		pair_connect(&pair->a, &pair->b);
		for (id = 0; id < 100; id++)
			if (!exchange(&pair->a, &pair->b, id))
				return false;
	}
	return true;
}

static bool error_and_again(struct pair *pair)
{
	uint64_t round;

	for (round = 0; round < 5; round++) {
		go(&pair->a, IBV_QPS_ERR);
		go(&pair->b, IBV_QPS_ERR);
		go(&pair->a, IBV_QPS_RESET);
		go(&pair->b, IBV_QPS_RESET);
		pair_connect(&pair->a, &pair->b);
		if (!exchange(&pair->a, &pair->b, round))
			return false;
	}
	return true;
}

/* With rnr_retry 7 a sender waits as long as it takes. */
static bool wait_for_receive(struct pair *pair)
{
	post_plain_send(&pair->a, 1, IBV_SEND_SIGNALED);
	post_plain_send(&pair->a, 2, IBV_SEND_SIGNALED);
	if (!cq_stays_empty(pair->a.send_cq, 200) ||
	    !expect_state(&pair->a, IBV_QPS_RTS))
		return false;
	post_recv(&pair->b, 11, NULL, 0);
	post_recv(&pair->b, 12, NULL, 0);
	return expect_range(pair->a.send_cq, 1, 3, IBV_WC_SUCCESS) &&
	       expect_range(pair->b.recv_cq, 11, 13, IBV_WC_SUCCESS);
}

/*
 * More completions than entries: those that fit are there, the event comes,
 * and the queue pair can be destroyed.
 */
static bool overflow_cq(struct setup *setup, struct endpoint *a,
			struct endpoint *b, struct ibv_cq *cq)
{
	unsigned int i, total = cq->cqe + 8;
	struct ibv_wc wc;

	for (i = 0; i < total; i++)
		post_write(a, &setup->a_mem, &setup->b_mem, i, GOOD_OFFSET,
			   IBV_SEND_SIGNALED);
	if (!event_expect(setup->a_dev.ctx, IBV_EVENT_CQ_ERR, cq))
		return false;
	for (i = 0; ibv_poll_cq(cq, 1, &wc) == 1; i++)
		if (!check(wc.wr_id == i && wc.status == IBV_WC_SUCCESS,
			   "wr_id %" PRIu64 " at place %u", wc.wr_id, i))
			return false;
	return check(i <= (unsigned int)cq->cqe, "%u completions", i) &&
	       expect_state(b, IBV_QPS_RTS);
}

static bool run_overflow(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint a, b;
	struct ibv_cq *cq;
	bool ok;

	cq = ibv_create_cq(setup->a_dev.ctx, 4, NULL, NULL, 0);
	if (!cq)
		bail("cannot create a CQ: %s", strerror(errno));
	options.depth = cq->cqe + 16;
	endpoint_create(&b, &setup->b_dev, &options);
	options.send_cq = cq;
	endpoint_create(&a, &setup->a_dev, &options);
	pair_connect(&a, &b);
	ok = overflow_cq(setup, &a, &b, cq);
	pair_destroy(&a, &b);
	check(!ibv_destroy_cq(cq), "ibv_destroy_cq fails");
	/* Queue pairs of a broken queue may report that too. */
	events_none(setup->a_dev.ctx);
	return check_neighbours(setup) && ok;
}

/* A datagram queue pair stops sending on a fault, and can go on. */
static bool datagram_send_error(struct pair *pair)
{
	struct setup *setup = pair->setup;
	struct ibv_ah *ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
	struct ibv_sge sge = region_sge(&setup->a_mem, GOOD_OFFSET, 10);
	struct ibv_sge to = region_sge(&setup->b_mem, RECEIVE_OFFSET, 512);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge, 1);
	bool ok;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = pair->b.qp->qp_num;
	wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	post_recv(&pair->b, 1, &to, 1);
	sge.lkey ^= 0x00a5a500;
	post_send(&pair->a, &wr);
	ok = cq_expect(pair->a.send_cq, 1, IBV_WC_LOC_PROT_ERR) &&
	     expect_state(&pair->a, IBV_QPS_SQE);
	wr.wr_id = 2;
	post_send(&pair->a, &wr);
	ok = ok && cq_expect(pair->a.send_cq, 2, IBV_WC_WR_FLUSH_ERR) &&
	     check(!endpoint_set_state(&pair->a, IBV_QPS_RTS),
		   "cannot go from SQE to RTS");
	sge.lkey ^= 0x00a5a500;
	wr.wr_id = 3;
	ok = ok && check(!try_post_send(&pair->a, &wr), "posting fails") &&
	     cq_expect(pair->a.send_cq, 3, IBV_WC_SUCCESS) &&
	     cq_expect(pair->b.recv_cq, 1, IBV_WC_SUCCESS) &&
	     expect_state(&pair->b, IBV_QPS_RTS);
	return check(!ibv_destroy_ah(ah), "ibv_destroy_ah fails") && ok;
}

/* The receiver alone learns that its receive was too short. */
static bool datagram_short_receive(struct pair *pair)
{
	struct setup *setup = pair->setup;
	struct ibv_ah *ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
	struct ibv_sge sge = region_sge(&setup->a_mem, GOOD_OFFSET, 100);
	struct ibv_sge to = region_sge(&setup->b_mem, RECEIVE_OFFSET, 139);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge, 1);
	bool ok;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = pair->b.qp->qp_num;
	wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	post_recv(&pair->b, 1, &to, 1);
	post_recv(&pair->b, 2, &to, 1);
	post_send(&pair->a, &wr);
	ok = cq_expect(pair->a.send_cq, 1, IBV_WC_SUCCESS) &&
	     expect_state(&pair->a, IBV_QPS_RTS) &&
	     cq_expect(pair->b.recv_cq, 1, IBV_WC_LOC_LEN_ERR) &&
	     cq_expect(pair->b.recv_cq, 2, IBV_WC_WR_FLUSH_ERR) &&
	     expect_state(&pair->b, IBV_QPS_ERR);
	return check(!ibv_destroy_ah(ah), "ibv_destroy_ah fails") && ok;
}

/* Destroyed with requests waiting in both queues: nothing completes after. */
static bool destroy_busy(struct pair *pair)
{
	struct endpoint_options options = pair->a.options;
	struct ibv_cq *send_cq, *recv_cq;
	struct endpoint a, b;
	bool ok = true;
	uint64_t i, id;

	send_cq = pair->a.send_cq;
	recv_cq = pair->b.recv_cq;
	for (i = 0; i < 50 && ok; i++) {
		options.send_cq = send_cq;
		options.recv_cq = NULL;
		endpoint_create(&a, &pair->setup->a_dev, &options);
		options.send_cq = NULL;
		options.recv_cq = recv_cq;
		endpoint_create(&b, &pair->setup->b_dev, &options);
		pair_connect(&a, &b);
		for (id = 0; id < i; id++) {
			post_plain_send(&a, id, IBV_SEND_SIGNALED);
			post_recv(&a, id, NULL, 0);
		}
		if (i % 2)
			pair_destroy(&a, &b);
		else
			pair_destroy(&b, &a);
		ok = cq_stays_empty(send_cq, 0) && cq_stays_empty(recv_cq, 0);
	}
	return ok;
}

static const struct {
	const char *name;
	enum ibv_qp_type type;
	bool (*run)(struct pair *pair);
} pair_cases[] = {
	{ "sends that wait are flushed in order", IBV_QPT_RC,
	  flush_waiting_sends },
	{ "receives are flushed in order", IBV_QPT_RC, flush_receives },
	{ "posts in ERR are flushed", IBV_QPT_RC, post_in_error },
	{ "posts in RESET are refused", IBV_QPT_RC, post_in_reset },
	{ "sends in INIT are refused", IBV_QPT_RC, post_in_init },
	{ "sends in RTR are refused", IBV_QPT_RC, post_in_rtr },
	{ "receives posted in INIT are used in RTR", IBV_QPT_RC,
	  receive_before_connect },
	{ "RESET empties the queues", IBV_QPT_RC, reset_and_again },
	{ "from ERR over RESET to work again", IBV_QPT_RC, error_and_again },
	{ "rnr_retry 7 waits for a receive", IBV_QPT_RC, wait_for_receive },
	{ "UD: a send error stops the send queue only", IBV_QPT_UD,
	  datagram_send_error },
	{ "UD: receive too short", IBV_QPT_UD, datagram_short_receive },
	{ "destroyed with requests waiting", IBV_QPT_RC, destroy_busy },
};

static void run_pair_case(struct setup *setup, unsigned int i)
{
	struct endpoint_options options = endpoint_options(pair_cases[i].type);
	struct pair pair = { .setup = setup };
	bool ok;

	pair_create(&pair.a, &setup->a_dev, &pair.b, &setup->b_dev, &options);
	ok = pair_cases[i].run(&pair);
	pair_destroy(&pair.a, &pair.b);
	ok = events_none(setup->a_dev.ctx) && events_none(setup->b_dev.ctx) &&
	     check_neighbours(setup) && ok;
	tap_ok(ok, "%s", pair_cases[i].name);
}

static void open_setup(struct setup *setup, const char *device,
		       const char *peer)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	device_open(&setup->a_dev, device);
	device_open(&setup->b_dev, peer);
	events_prepare(setup->a_dev.ctx);
	events_prepare(setup->b_dev.ctx);
	region_create(&setup->a_mem, setup->a_dev.pd, REGION_BYTES);
	region_create(&setup->b_mem, setup->b_dev.pd, REGION_BYTES);
	pair_create(&setup->a_neighbour, &setup->a_dev, &setup->b_neighbour,
		    &setup->b_dev, &options);
}

static void close_setup(struct setup *setup)
{
	pair_destroy(&setup->a_neighbour, &setup->b_neighbour);
	region_destroy(&setup->a_mem);
	region_destroy(&setup->b_mem);
	device_close(&setup->a_dev);
	device_close(&setup->b_dev);
}

int main(int argc, char **argv)
{
	const char *device, *peer;
	struct setup setup;
	unsigned int i;

	device_names(&argc, argv, &device, &peer);
	open_setup(&setup, device, peer);
	run_faults(&setup);
	for (i = 0; i < COUNT(pair_cases); i++)
		run_pair_case(&setup, i);
	tap_ok(run_overflow(&setup), "completion queue overflow");
	close_setup(&setup);
	return tap_end();
}
