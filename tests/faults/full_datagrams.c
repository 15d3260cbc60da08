// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completion queues without room for datagrams: they are sent and received as if
 * there were, and what is flushed or fails is gone.
 */
#include <inttypes.h>
#include <string.h>

#include "clock.h"
#include "event.h"
#include "faults.h"
#include "tap.h"
#include "work.h"

enum { REQUESTS = 4, LAST_ID = 90 };

/* From a to b; one of their completion queues has one entry. */
struct lane {
	struct setup *setup;
	struct endpoint a;
	struct endpoint b;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_cq *cq;
};

static bool is_in(const struct endpoint *ep, enum ibv_qp_state expected)
{
	enum ibv_qp_state state = endpoint_state(ep);

	return check(state == expected, "the state is %s instead of %s",
		     state_name(state), state_name(expected));
}

static struct ibv_sge receive_sge(struct lane *lane, uint64_t id)
{
	return region_sge(&lane->setup->b_mem,
			  RECEIVE_OFFSET + id % LAST_ID * RECEIVE_BYTES,
			  RECEIVE_BYTES);
}

static void post_receive(struct lane *lane, uint64_t id)
{
	struct ibv_sge sge = receive_sge(lane, id);
	struct ibv_recv_wr *bad, wr = {
		.wr_id = id,
		.sg_list = &sge,
		.num_sge = 1,
	};

	if (!lane->srq)
		post_recv(&lane->b, id, &sge, 1);
	else if (ibv_post_srq_recv(lane->srq, &wr, &bad))
		bail("posting a receive fails");
}

static void post_datagram(struct lane *lane, uint64_t id, uint32_t wrong)
{
	struct ibv_sge sge = region_sge(&lane->setup->a_mem, 0, BAD_BYTES);
	struct ibv_send_wr wr = send_wr(id, IBV_WR_SEND, &sge, 1);

	sge.lkey ^= wrong;
	wr.wr.ud.ah = lane->ah;
	wr.wr.ud.remote_qpn = lane->b.qp->qp_num;
	wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	post_send(&lane->a, &wr);
}

/* There is a datagram in the receive, whether somebody was told or not. */
static bool is_there(struct lane *lane, uint64_t id)
{
	const volatile uint8_t *last =
		(const uint8_t *)(uintptr_t)receive_sge(lane, id).addr +
		sizeof(struct ibv_grh) + BAD_BYTES - 1;
	uint64_t end = deadline();

	while (*last != A_BYTE) {
		if (now_ms() > end)
			return check(false, "datagram %" PRIu64 " is lost", id);
		/* memory of another machine is looked at with each verb */
		if (!is_in(&lane->b, IBV_QPS_RTS))
			return false;
	}
	return true;
}

/* --- cases ------------------------------------------------------------------- */

static bool of_receives(struct lane *lane)
{
	uint64_t id;

	for (id = 0; id < REQUESTS; id++) {
		post_receive(lane, id);
		post_datagram(lane, id, 0);
		if (!cq_expect(lane->a.send_cq, id, IBV_WC_SUCCESS) ||
		    !is_there(lane, id))
			return false;
	}
	return event_expect(lane->setup->b_dev.ctx, IBV_EVENT_CQ_ERR,
			    lane->cq) &&
	       holds_first(lane->cq, IBV_WC_SUCCESS, 1) &&
	       is_in(&lane->a, IBV_QPS_RTS) && is_in(&lane->b, IBV_QPS_RTS);
}

static bool of_last_receive(struct lane *lane)
{
	if (!of_receives(lane))
		return false;
	post_receive(lane, LAST_ID);
	endpoint_go(&lane->b, IBV_QPS_ERR);
	return (!lane->srq ||
		event_expect(lane->setup->b_dev.ctx,
			     IBV_EVENT_QP_LAST_WQE_REACHED, lane->b.qp)) &&
	       is_in(&lane->b, IBV_QPS_ERR) && cq_stays_empty(lane->cq, 2);
}

static bool of_flushed_receives(struct lane *lane)
{
	uint64_t id;

	for (id = 0; id < REQUESTS; id++)
		post_receive(lane, id);
	endpoint_go(&lane->b, IBV_QPS_ERR);
	return event_expect(lane->setup->b_dev.ctx, IBV_EVENT_CQ_ERR,
			    lane->cq) &&
	       holds_first(lane->cq, IBV_WC_WR_FLUSH_ERR, 1) &&
	       is_in(&lane->a, IBV_QPS_RTS) && is_in(&lane->b, IBV_QPS_ERR);
}

static bool is_full_of(struct lane *lane, enum ibv_wc_status status)
{
	return event_expect(lane->setup->a_dev.ctx, IBV_EVENT_CQ_ERR,
			    lane->cq) &&
	       holds_first(lane->cq, status, 1) && is_in(&lane->b, IBV_QPS_RTS);
}

static bool of_sends(struct lane *lane)
{
	uint64_t id;

	for (id = 0; id < REQUESTS; id++) {
		post_receive(lane, id);
		post_datagram(lane, id, 0);
		if (!cq_expect(lane->b.recv_cq, id, IBV_WC_SUCCESS))
			return false;
	}
	return is_full_of(lane, IBV_WC_SUCCESS) && is_in(&lane->a, IBV_QPS_RTS);
}

/* One fails, which is told; those behind it are flushed, which is not. */
static bool of_failed_sends(struct lane *lane)
{
	uint64_t id;

	post_datagram(lane, 0, 0x00a5a500);
	for (id = 1; id < REQUESTS; id++)
		post_datagram(lane, id, 0);
	if (!is_full_of(lane, IBV_WC_LOC_PROT_ERR) ||
	    !is_in(&lane->a, IBV_QPS_SQE))
		return false;
	post_receive(lane, LAST_ID);
	endpoint_go(&lane->a, IBV_QPS_RTS);
	post_datagram(lane, LAST_ID, 0);
	return cq_expect(lane->b.recv_cq, LAST_ID, IBV_WC_SUCCESS);
}

static bool of_flushed_sends(struct lane *lane)
{
	uint64_t id;

	endpoint_go(&lane->a, IBV_QPS_SQD);
	for (id = 0; id < REQUESTS; id++)
		post_datagram(lane, id, 0);
	endpoint_go(&lane->a, IBV_QPS_ERR);
	return is_full_of(lane, IBV_WC_WR_FLUSH_ERR) &&
	       is_in(&lane->a, IBV_QPS_ERR);
}

static const struct {
	const char *name;
	bool (*run)(struct lane *lane);
	bool at_receiver; /* it is the receives' queue that is full */
	bool srq;	  /* a shared receive queue makes a difference */
} cases[] = {
	{ "its receive's", of_receives, true, true },
	{ "its receive's, then the queue pair ends", of_last_receive, true,
	  true },
	{ "receives that are flushed", of_flushed_receives, true, false },
	{ "its completion", of_sends, false, false },
	{ "what waits behind one that fails", of_failed_sends, false, false },
	{ "datagrams that are flushed", of_flushed_sends, false, false },
};

/* ------------------------------------------------------------------------------- */

static void lane_open(struct lane *lane, struct setup *setup, bool at_receiver,
		      bool with_srq)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);

	memset(lane, 0, sizeof(*lane));
	lane->setup = setup;
	lane->cq = small_cq(at_receiver ? &setup->b_dev : &setup->a_dev);
	if (!at_receiver)
		options.send_cq = lane->cq;
	endpoint_create(&lane->a, &setup->a_dev, &options);
	options.send_cq = NULL;
	if (at_receiver)
		options.recv_cq = lane->cq;
	if (with_srq)
		lane->srq = srq_create(setup->b_dev.pd, 2 * REQUESTS, 1);
	options.srq = lane->srq;
	endpoint_create(&lane->b, &setup->b_dev, &options);
	pair_connect(&lane->a, &lane->b);
	lane->ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
	memset(setup->a_mem.addr, A_BYTE, REGION_BYTES);
	memset(setup->b_mem.addr, B_BYTE, REGION_BYTES);
}

static void lane_close(struct lane *lane)
{
	tap_must(!ibv_destroy_ah(lane->ah), "ibv_destroy_ah fails");
	pair_destroy(&lane->a, &lane->b);
	if (lane->srq)
		tap_must(!ibv_destroy_srq(lane->srq), "ibv_destroy_srq fails");
	tap_must(!ibv_destroy_cq(lane->cq), "ibv_destroy_cq fails");
}

static bool run_case(struct setup *setup, unsigned int i, bool with_srq)
{
	struct lane lane;
	bool ok;

	lane_open(&lane, setup, cases[i].at_receiver, with_srq);
	/* it is told once, and nothing else is; events go with what they are of */
	ok = cases[i].run(&lane) && events_none(setup->a_dev.ctx) &&
	     events_none(setup->b_dev.ctx);
	lane_close(&lane);
	return ok;
}

void run_full_datagrams(struct setup *setup, struct neighbours *neighbours)
{
	unsigned int i, with_srq;

	for (with_srq = 0; with_srq < 2; with_srq++)
		for (i = 0; i < COUNT(cases); i++)
			if (!with_srq || cases[i].srq)
				tap_ok(run_case(setup, i, with_srq) &&
					       neighbours_work(neighbours),
				       "UD%s: no room for %s",
				       with_srq ? " with an SRQ" : "",
				       cases[i].name);
}
