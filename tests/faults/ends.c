// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue pairs and receive queues that are destroyed with work in them: nothing
 * completes afterwards, and the other side goes on. (RC: in states.)
 */
#include <errno.h>
#include <string.h>

#include "event.h"
#include "faults.h"
#include "tap.h"
#include "work.h"

enum { ROUNDS = 30 };

static void destroy_qp(struct endpoint *ep)
{
	tap_must(!ibv_destroy_qp(ep->qp), "ibv_destroy_qp fails");
	ep->qp = NULL;
}

static bool destroy_srq(struct scene *scene)
{
	bool ok = check(!ibv_destroy_srq(scene->srq), "ibv_destroy_srq fails");

	scene->xrc.srq[0] = NULL;
	scene->srq = NULL;
	return ok;
}

static void post_sends(struct scene *scene, uint64_t count)
{
	struct ibv_send_wr wr = scene_send(scene, 0, IBV_WR_SEND, NULL);

	for (wr.wr_id = 0; wr.wr_id < count; wr.wr_id++)
		post_send(&scene->a, &wr);
}

static bool nothing_completes(struct scene *scene)
{
	return cq_stays_empty(scene->a.send_cq, 2) &&
	       cq_stays_empty(scene->recv_cq, 0);
}

/* Its requests wait for a receive. */
static bool end_of_initiator(struct scene *scene, uint64_t count)
{
	post_sends(scene, count);
	destroy_qp(&scene->a);
	scene_post_receive(scene, FIRST_RECEIVE_ID, NULL);
	return nothing_completes(scene) &&
	       check(endpoint_state(&scene->b) == IBV_QPS_RTS,
		     "the target has left RTS");
}

/* The same, but first it fails: what is posted is flushed, or about to be. */
static bool end_of_failed_initiator(struct scene *scene, uint64_t count)
{
	struct ibv_sge sge = region_sge(&scene->setup->a_mem, 0, 8);
	struct ibv_send_wr wr = scene_send(scene, BAD_ID, IBV_WR_SEND, &sge);

	sge.lkey ^= 0x00a5a500;
	post_send(&scene->a, &wr);
	post_sends(scene, count);
	destroy_qp(&scene->a);
	return nothing_completes(scene);
}

/* Those who ask a target that is gone get no answer, however long they wait. */
static bool end_of_target(struct scene *scene, uint64_t count)
{
	uint64_t id;

	post_sends(scene, count);
	destroy_qp(&scene->b);
	scene_post_receive(scene, FIRST_RECEIVE_ID, NULL);
	if (!cq_stays_empty(scene->recv_cq, 0))
		return false;
	for (id = 0; id < count; id++)
		if (!cq_expect(scene->a.send_cq, id,
			       id ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR))
			return false;
	return true;
}

/* While requests wait for a receive of it. */
static bool end_of_srq(struct scene *scene, uint64_t count)
{
	struct ibv_context *ctx = scene->setup->b_dev.ctx;
	uint64_t id;

	post_sends(scene, count);
	if (!destroy_srq(scene))
		return false;
	for (id = 0; id < count; id++)
		if (!cq_expect(scene->a.send_cq, id,
			       id ? IBV_WC_WR_FLUSH_ERR :
				    IBV_WC_REM_INV_REQ_ERR))
			return false;
	return cq_stays_empty(scene->recv_cq, 0) &&
	       (!count || event_expect(ctx, IBV_EVENT_QP_REQ_ERR, scene->b.qp));
}

/* With receives in it, and a message in one. */
static bool end_of_used_srq(struct scene *scene, uint64_t count)
{
	uint64_t id;

	for (id = 0; id <= count; id++)
		scene_post_receive(scene, id, NULL);
	post_sends(scene, 1);
	return cq_expect(scene->a.send_cq, 0, IBV_WC_SUCCESS) &&
	       destroy_srq(scene) && nothing_completes(scene);
}

/* In SQE, or on its way there, with requests that are flushed or not yet. */
static bool end_in_sqe(struct scene *scene, uint64_t count)
{
	struct ibv_sge sge = region_sge(&scene->setup->a_mem, 0, 8);
	struct ibv_send_wr wr = scene_send(scene, BAD_ID, IBV_WR_SEND, &sge);

	scene_post_receive(scene, FIRST_RECEIVE_ID, NULL);
	sge.lkey ^= 0x00a5a500;
	post_send(&scene->a, &wr);
	if (count % 2 &&
	    !cq_expect(scene->a.send_cq, BAD_ID, IBV_WC_LOC_PROT_ERR))
		return false;
	post_sends(scene, count);
	destroy_qp(&scene->a);
	return nothing_completes(scene) &&
	       check(endpoint_state(&scene->b) == IBV_QPS_RTS,
		     "the peer has left RTS");
}

static const struct {
	const char *name;
	enum service service;
	bool (*run)(struct scene *scene, uint64_t count);
} cases[] = {
	{ "the initiator", OVER_XRC, end_of_initiator },
	{ "an initiator that has failed", OVER_XRC, end_of_failed_initiator },
	{ "the target", OVER_XRC, end_of_target },
	{ "the receive queue, requests wait for it", OVER_XRC, end_of_srq },
	{ "the receive queue with receives", OVER_XRC, end_of_used_srq },
	{ "a queue pair in SQE", OVER_UC, end_in_sqe },
	{ "a queue pair in SQE", OVER_UC_SRQ, end_in_sqe },
};

static bool run_case(struct setup *setup, unsigned int i)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct scene scene;
	uint64_t count;
	bool ok = true;

	options.timeout = 1;
	options.retry_count = 2;
	for (count = 0; ok && count < ROUNDS; count++) {
		scene_open(&scene, setup, cases[i].service, IBV_WR_SEND,
			   &options);
		ok = cases[i].run(&scene, count);
		scene_close(&scene);
		ok = events_none(setup->a_dev.ctx) &&
		     events_none(setup->b_dev.ctx) && ok;
	}
	return ok;
}

void run_ends(struct setup *setup, struct neighbours *neighbours)
{
	unsigned int i;

	for (i = 0; i < COUNT(cases); i++)
		tap_ok(run_case(setup, i) && neighbours_work(neighbours),
		       "%s, destroyed with work in it: %s",
		       service_name(cases[i].service), cases[i].name);
}
