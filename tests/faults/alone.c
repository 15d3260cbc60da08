// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Requests that need no peer, binding and invalidating, when there is none: they succeed,
 * and what is sent behind them is not.
 */
#include <errno.h>
#include <string.h>

#include "bind.h"
#include "event.h"
#include "faults.h"
#include "tap.h"
#include "work.h"

enum { WINDOW_BYTES = 100, INVALIDATE_ID = 41, BEHIND_ID = 42 };

static const struct {
	const char *name;
	void (*arrange)(struct scene *scene);
} cases[] = {
	{ "destroyed", peer_destroyed },
	{ "in RESET", peer_reset },
	{ "in INIT", peer_init },
	{ "in ERR", peer_error },
};

/* Bound and invalidated, in one list, then a message. */
static void post_requests(struct scene *scene)
{
	const uint32_t key = ibv_inc_rkey(scene->mw->rkey);
	struct ibv_send_wr wr[3];

	wr[0] = scene_send(scene, BIND_ID, IBV_WR_BIND_MW, NULL);
	wr[0].bind_mw.mw = scene->mw;
	wr[0].bind_mw.rkey = key;
	wr[0].bind_mw.bind_info = bind_info(&scene->extra, 0, WINDOW_BYTES,
					    IBV_ACCESS_REMOTE_READ);
	wr[1] = scene_send(scene, INVALIDATE_ID, IBV_WR_LOCAL_INV, NULL);
	wr[1].invalidate_rkey = key;
	wr[2] = scene_send(scene, BEHIND_ID, IBV_WR_SEND, NULL);
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	post_send(&scene->a, wr);
}

static bool succeed(struct scene *scene)
{
	const bool reliable = service_is_reliable(scene->service);
	const enum ibv_qp_state state = reliable ? IBV_QPS_ERR : IBV_QPS_RTS;

	post_requests(scene);
	return cq_expect(scene->a.send_cq, BIND_ID, IBV_WC_SUCCESS) &&
	       cq_expect(scene->a.send_cq, INVALIDATE_ID, IBV_WC_SUCCESS) &&
	       cq_expect(scene->a.send_cq, BEHIND_ID,
			 reliable ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS) &&
	       check(endpoint_state(&scene->a) == state, "it is not in %s",
		     state_name(state));
}

static bool run_case(struct setup *setup, enum service service, unsigned int i)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct scene scene;
	bool ok;

	few_retries(&options);
	scene_open(&scene, setup, service, IBV_WR_BIND_MW, &options);
	extra_region(&scene, setup->a_dev.pd, ACCESS_ALL | IBV_ACCESS_MW_BIND);
	scene.mw = ibv_alloc_mw(setup->a_dev.pd, IBV_MW_TYPE_2);
	if (!scene.mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	cases[i].arrange(&scene);
	ok = succeed(&scene) && events_none(setup->a_dev.ctx) &&
	     events_none(setup->b_dev.ctx);
	scene_close(&scene);
	return ok;
}

void run_alone(struct setup *setup, struct neighbours *neighbours)
{
	unsigned int service, i;

	for (service = OVER_RC; service <= OVER_XRC; service++)
		for (i = 0; i < COUNT(cases); i++)
			tap_ok(run_case(setup, service, i) &&
				       neighbours_work(neighbours),
			       "%s, what needs no peer: peer %s",
			       service_name(service), cases[i].name);
}
