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
#include "faults.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define LATE_OFFSET 20000U
#define RECEIVE_OFFSET 30000U
#define GOOD_OFFSET 60000U
/* What the memories hold where nothing was written. */
#define A_BYTE 0x3a
#define B_BYTE 0x3b

enum {
	RECEIVES = 3,
	FIRST_RECEIVE_ID = 100,
	GOOD_ID = 0,
	BAD_ID = 1,
	LATE_WRITE_ID = 2,
	LATE_SEND_ID = 3,
};

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

	for (i = 0; i < fault_count; i++)
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
