// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completion queues without room for what is flushed, and for what fails: the queue
 * pair is in error as if there were room, and its queues are empty.
 */
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "event.h"
#include "faults.h"
#include "tap.h"
#include "work.h"

enum { REQUESTS = 4, AGAIN_ID = 70 };

static bool is_in(const struct endpoint *ep, enum ibv_qp_state expected)
{
	enum ibv_qp_state state = endpoint_state(ep);

	return check(state == expected, "the state is %s instead of %s",
		     state_name(state), state_name(expected));
}

static bool is_full(struct scene *scene, bool at_responder, struct ibv_cq *cq)
{
	struct setup *setup = scene->setup;

	return event_expect(at_responder ? setup->b_dev.ctx : setup->a_dev.ctx,
			    IBV_EVENT_CQ_ERR, cq);
}

static void post_sends(struct scene *scene, uint64_t from, uint64_t to)
{
	struct ibv_send_wr wr = scene_send(scene, from, IBV_WR_SEND, NULL);

	for (; wr.wr_id < to; wr.wr_id++)
		post_send(&scene->a, &wr);
}

/* Requests arrive until the queue of one side's completions is full. */
static bool fill(struct scene *scene, bool at_responder, struct ibv_cq *cq)
{
	struct ibv_cq *other = at_responder ? scene->a.send_cq : scene->recv_cq;
	uint64_t id;

	for (id = 0; id < 2; id++) {
		scene_post_receive(scene, id, NULL);
		post_sends(scene, id, id + 1);
		if (!cq_expect(other, id, IBV_WC_SUCCESS))
			return false;
	}
	return is_full(scene, at_responder, cq) &&
	       holds_first(cq, IBV_WC_SUCCESS, 1);
}

/* What is posted in error is gone at once: there is always room for one more. */
static bool takes_all(struct scene *scene)
{
	struct ibv_send_wr wr = scene_send(scene, 0, IBV_WR_SEND, NULL);
	uint32_t count = 2 * scene->a.options.depth;
	uint64_t end = deadline();
	int error;

	while (count && now_ms() < end) {
		error = try_post_send(&scene->a, &wr);
		if (error && error != ENOMEM)
			return check(false, "posting: %s", strerror(error));
		count -= !error;
	}
	return check(!count, "the send queue is not flushed");
}

/* Connected again, requests are carried out as before, if nobody is told or not. */
static bool arrives_again(struct scene *scene)
{
	endpoint_go(&scene->a, IBV_QPS_RESET);
	endpoint_go(&scene->b, IBV_QPS_RESET);
	pair_connect(&scene->a, &scene->b);
	scene_post_receive(scene, AGAIN_ID, NULL);
	post_sends(scene, AGAIN_ID, AGAIN_ID + 1);
	return cq_expect(scene->recv_cq, AGAIN_ID, IBV_WC_SUCCESS);
}

/* --- cases ------------------------------------------------------------------- */

static bool sends(struct scene *scene, struct ibv_cq *cq)
{
	endpoint_go(&scene->a, IBV_QPS_SQD);
	post_sends(scene, 0, REQUESTS);
	endpoint_go(&scene->a, IBV_QPS_ERR);
	return is_full(scene, false, cq) &&
	       holds_first(cq, IBV_WC_WR_FLUSH_ERR, 1) &&
	       is_in(&scene->a, IBV_QPS_ERR) && is_in(&scene->b, IBV_QPS_RTS) &&
	       takes_all(scene) && cq_stays_empty(cq, 0) &&
	       arrives_again(scene) && cq_stays_empty(cq, 2);
}

static bool receives(struct scene *scene, struct ibv_cq *cq)
{
	uint64_t id;

	for (id = 0; id < REQUESTS; id++)
		scene_post_receive(scene, id, NULL);
	endpoint_go(&scene->b, IBV_QPS_ERR);
	if (!is_full(scene, true, cq) ||
	    !holds_first(cq, IBV_WC_WR_FLUSH_ERR, 1) ||
	    !is_in(&scene->b, IBV_QPS_ERR) || !is_in(&scene->a, IBV_QPS_RTS))
		return false;
	/* all are gone, with a completion or without */
	endpoint_go(&scene->b, IBV_QPS_RESET);
	endpoint_go(&scene->a, IBV_QPS_RESET);
	pair_connect(&scene->a, &scene->b);
	scene_post_receive(scene, AGAIN_ID, NULL);
	post_sends(scene, AGAIN_ID, AGAIN_ID + 1);
	return cq_expect(scene->a.send_cq, AGAIN_ID, IBV_WC_SUCCESS) &&
	       cq_stays_empty(cq, 2);
}

/* Of a shared queue nothing is flushed; that it was the last one is told anyway. */
static bool last_receive(struct scene *scene, struct ibv_cq *cq)
{
	if (!fill(scene, true, cq))
		return false;
	scene_post_receive(scene, AGAIN_ID, NULL);
	endpoint_go(&scene->b, IBV_QPS_ERR);
	return (scene->service == OVER_XRC ||
		event_expect(scene->setup->b_dev.ctx,
			     IBV_EVENT_QP_LAST_WQE_REACHED, scene->b.qp)) &&
	       is_in(&scene->b, IBV_QPS_ERR) && cq_stays_empty(cq, 2);
}

/* The requester is not told why, but both queue pairs are in error. */
static bool refused_request(struct scene *scene, struct ibv_cq *cq)
{
	struct ibv_send_wr wr;

	if (!fill(scene, false, cq))
		return false;
	wrong_rkey(scene);
	scene->opcode = IBV_WR_RDMA_WRITE;
	wr = scene_request(scene, BAD_ID);
	post_send(&scene->a, &wr);
	return event_expect(scene->setup->b_dev.ctx, IBV_EVENT_QP_ACCESS_ERR,
			    scene->b.qp) &&
	       takes_all(scene) && is_in(&scene->a, IBV_QPS_ERR) &&
	       is_in(&scene->b, IBV_QPS_ERR) && cq_stays_empty(cq, 2);
}

/* On an unreliable service its queue stops, and goes on when it is told to. */
static bool failed_request(struct scene *scene, struct ibv_cq *cq)
{
	uint64_t end = deadline();
	struct ibv_send_wr wr;

	if (!fill(scene, false, cq))
		return false;
	scene->local[0].lkey ^= 0x00a5a500;
	wr = scene_request(scene, BAD_ID);
	post_send(&scene->a, &wr);
	while (endpoint_state(&scene->a) != IBV_QPS_SQE)
		if (now_ms() > end)
			return check(false, "it does not fail");
	scene_post_receive(scene, AGAIN_ID, NULL);
	endpoint_go(&scene->a, IBV_QPS_RTS);
	post_sends(scene, AGAIN_ID, AGAIN_ID + 1);
	return cq_expect(scene->recv_cq, AGAIN_ID, IBV_WC_SUCCESS) &&
	       is_in(&scene->b, IBV_QPS_RTS) && cq_stays_empty(cq, 2);
}

/* The responder is not told, the requester is. */
static bool failed_receive(struct scene *scene, struct ibv_cq *cq)
{
	struct ibv_context *ctx = scene->setup->b_dev.ctx;
	struct ibv_send_wr wr;

	if (!fill(scene, true, cq))
		return false;
	scene->receive[0].lkey ^= 0x00a5a500;
	scene_post_receives(scene);
	wr = scene_request(scene, BAD_ID);
	post_send(&scene->a, &wr);
	return cq_expect(scene->a.send_cq, BAD_ID,
			 service_is_reliable(scene->service) ?
				 IBV_WC_REM_OP_ERR :
				 IBV_WC_SUCCESS) &&
	       is_in(&scene->b, IBV_QPS_ERR) &&
	       (!service_is_shared(scene->service) ||
		scene->service == OVER_XRC ||
		event_expect(ctx, IBV_EVENT_QP_LAST_WQE_REACHED,
			     scene->b.qp)) &&
	       cq_stays_empty(cq, 2);
}

/* ------------------------------------------------------------------------------- */

#define RELIABLE (BIT(OVER_RC) | BIT(OVER_XRC))

static const struct {
	const char *name;
	bool (*run)(struct scene *scene, struct ibv_cq *cq);
	unsigned int services;
	bool at_responder; /* it is the receives' queue that is full */
} cases[] = {
	{ "requests that are flushed", sends, RELIABLE | BIT(OVER_UC), false },
	{ "receives that are flushed", receives, BIT(OVER_RC) | BIT(OVER_UC),
	  true },
	{ "the last receive", last_receive,
	  BIT(OVER_SRQ) | BIT(OVER_UC_SRQ) | BIT(OVER_XRC), true },
	{ "a request that is refused", refused_request, RELIABLE, false },
	{ "a request that fails", failed_request, BIT(OVER_UC), false },
	{ "a receive that fails", failed_receive, BIT(SERVICES) - 1, true },
};

static bool run_case(struct setup *setup, unsigned int i, enum service service)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct scene scene;
	struct ibv_cq *cq;
	bool ok;

	if (cases[i].at_responder) {
		cq = small_cq(&setup->b_dev);
		options.recv_cq = cq;
	} else {
		cq = small_cq(&setup->a_dev);
		options.send_cq = cq;
	}
	scene_open(&scene, setup, service, IBV_WR_SEND, &options);
	/* it is told once, and nothing else is; events go with what they are of */
	ok = cases[i].run(&scene, cq) && events_none(setup->a_dev.ctx) &&
	     events_none(setup->b_dev.ctx);
	scene_close(&scene);
	return check(!ibv_destroy_cq(cq), "ibv_destroy_cq fails") && ok;
}

void run_full_flushes(struct setup *setup, struct neighbours *neighbours)
{
	unsigned int service, i;

	for (service = 0; service < SERVICES; service++)
		for (i = 0; i < COUNT(cases); i++)
			if (cases[i].services & BIT(service))
				tap_ok(run_case(setup, i, service) &&
					       neighbours_work(neighbours),
				       "%s: no room for %s",
				       service_name(service), cases[i].name);
}
