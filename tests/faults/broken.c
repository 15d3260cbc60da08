// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A message whose sender is reset when part of it has arrived: it has taken a receive. The
 * next message has that, and if a request that needs none is refused it is told of.
 */
#include "event.h"
#include "faults.h"
#include "tap.h"
#include "work.h"

static void wrong_word(struct scene *scene)
{
	scene->remote_addr++;
}

/* What the sender asks for when it is connected again. */
static const struct {
	const char *name;
	enum ibv_wr_opcode opcode;
	void (*arrange)(struct scene *scene);
	enum ibv_wc_status status;
	enum ibv_wc_status received;
	int event; /* -1: none */
} cases[] = {
	{ "the next message", IBV_WR_SEND, NULL, IBV_WC_SUCCESS, IBV_WC_SUCCESS,
	  -1 },
	{ "a WRITE with a wrong rkey", IBV_WR_RDMA_WRITE, wrong_rkey,
	  IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_QP_OP_ERR,
	  IBV_EVENT_QP_ACCESS_ERR },
	{ "a misaligned word", IBV_WR_ATOMIC_FETCH_AND_ADD, wrong_word,
	  IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_QP_OP_ERR, -1 },
};

/* The sender is as new, and what it was sending is gone without a completion. */
static bool break_off(struct scene *scene)
{
	const struct endpoint_address peer = endpoint_address(&scene->b);
	struct ibv_send_wr wr = scene_request(scene, BAD_ID);

	scene_post_receives(scene);
	post_send(&scene->a, &wr);
	if (!message_begins(scene))
		return false;
	endpoint_go(&scene->a, IBV_QPS_RESET);
	message_goes_on(scene);
	endpoint_connect(&scene->a, &peer);
	return cq_stays_empty(scene->a.send_cq, 5) &&
	       cq_stays_empty(scene->recv_cq, 0);
}

static void post_next(struct scene *scene, unsigned int i)
{
	struct setup *setup = scene->setup;
	struct ibv_send_wr wr;

	scene->opcode = cases[i].opcode;
	scene->local[0] = region_sge(&setup->a_mem, TARGET_OFFSET,
				     request_bytes(scene));
	scene->remote_addr = (setup->b_mem.rdma_addr + TARGET_OFFSET) & ~7ULL;
	scene->rkey = setup->b_mem.mr->rkey;
	if (cases[i].arrange)
		cases[i].arrange(scene);
	wr = scene_request(scene, GOOD_ID);
	post_send(&scene->a, &wr);
}

/* Those behind the first one wait, or are flushed unless they are anybody's. */
static bool check_others(struct scene *scene, bool failed)
{
	struct ibv_context *ctx = scene->setup->b_dev.ctx;

	if (failed && !service_is_shared(scene->service) &&
	    !cq_expect_range(scene->recv_cq, FIRST_RECEIVE_ID + 1,
			     FIRST_RECEIVE_ID + scene->receives,
			     IBV_WC_WR_FLUSH_ERR))
		return false;
	return cq_stays_empty(scene->recv_cq, 0) &&
	       (!failed || scene->service != OVER_SRQ ||
		event_expect(ctx, IBV_EVENT_QP_LAST_WQE_REACHED, scene->b.qp));
}

static bool check_end(struct scene *scene, unsigned int i)
{
	bool failed = cases[i].status != IBV_WC_SUCCESS;
	enum ibv_qp_state state = failed ? IBV_QPS_ERR : IBV_QPS_RTS;
	struct ibv_context *ctx = scene->setup->b_dev.ctx;

	return cq_expect(scene->a.send_cq, GOOD_ID, cases[i].status) &&
	       cq_expect(scene->recv_cq, FIRST_RECEIVE_ID, cases[i].received) &&
	       check(endpoint_state(&scene->a) == state &&
			     endpoint_state(&scene->b) == state,
		     "a queue pair is not in %s", state_name(state)) &&
	       (cases[i].event < 0 ||
		event_expect(ctx, cases[i].event, scene->b.qp)) &&
	       check_others(scene, failed);
}

static bool run_case(struct setup *setup, enum service service, unsigned int i)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct scene scene;
	bool ok;

	scene_open(&scene, setup, service, IBV_WR_SEND, &options);
	message_open(&scene);
	ok = break_off(&scene);
	if (ok) {
		post_next(&scene, i);
		ok = check_end(&scene, i);
	}
	ok = events_none(setup->a_dev.ctx) && events_none(setup->b_dev.ctx) &&
	     ok;
	scene_close(&scene);
	return ok;
}

void run_broken(struct setup *setup, struct neighbours *neighbours)
{
	unsigned int service, i;

	for (service = 0; service < SERVICES; service++)
		for (i = 0; service_is_reliable(service) && i < COUNT(cases);
		     i++)
			tap_ok(run_case(setup, service, i) &&
				       neighbours_work(neighbours),
			       "%s, a message that was broken off: %s",
			       service_name(service), cases[i].name);
}
