// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completion queues without room, for all that completes in them: the queue is in
 * error and says so, requests and queue pairs are none the worse.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "bind.h"
#include "event.h"
#include "faults.h"
#include "tap.h"
#include "work.h"

/*
 * The kernel and the process complete requests without asking each other: each
 * may fill a queue of one entry before the next one finds it full.
 */
enum { REQUESTS = 4, MOST = 2, LAST_ID = 90, BIND_BYTES = 8 };

struct ibv_cq *small_cq(const struct device *dev)
{
	struct ibv_cq *cq = ibv_create_cq(dev->ctx, 1, NULL, NULL, 0);

	if (!cq || cq->cqe != 1)
		bail("no completion queue of one entry: %s", strerror(errno));
	return cq;
}

/* A region that windows can be bound to, and a window. */
static void open_window(struct scene *scene, struct device *dev)
{
	extra_region(scene, dev->pd, ACCESS_ALL | IBV_ACCESS_MW_BIND);
	scene->mw = ibv_alloc_mw(dev->pd, IBV_MW_TYPE_2);
	if (!scene->mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	scene->invalidate_rkey = scene->mw->rkey;
	scene->bind = bind_info(&scene->extra, 0, BIND_BYTES,
				IBV_ACCESS_REMOTE_READ);
}

/* --- of sends --------------------------------------------------------------- */

/* The window is bound, then invalidated; the one of @opcode is signalled. */
static void post_own(struct scene *scene, uint64_t id)
{
	uint32_t key = ibv_inc_rkey(scene->invalidate_rkey);
	struct ibv_send_wr bind = scene_send(scene, id, IBV_WR_BIND_MW, NULL);
	struct ibv_send_wr inv = scene_send(scene, id, IBV_WR_LOCAL_INV, NULL);

	bind.bind_mw.mw = scene->mw;
	bind.bind_mw.rkey = key;
	bind.bind_mw.bind_info = scene->bind;
	inv.invalidate_rkey = key;
	if (scene->opcode == IBV_WR_BIND_MW)
		inv.send_flags = 0;
	else
		bind.send_flags = 0;
	bind.next = &inv;
	post_send(&scene->a, &bind);
	scene->invalidate_rkey = key;
}

/* The peer has bound the key that a SEND invalidates. */
static bool prepare_invalidation(struct scene *scene)
{
	if (scene->opcode != IBV_WR_SEND_WITH_INV)
		return true;
	scene->invalidate_rkey = ibv_inc_rkey(scene->invalidate_rkey);
	return bind_type2(&scene->b, scene->mw, scene->invalidate_rkey,
			  &scene->bind, IBV_WC_SUCCESS);
}

static bool post_request(struct scene *scene, uint64_t id)
{
	struct ibv_send_wr wr;

	if (OWN & BIT(scene->opcode)) {
		post_own(scene, id);
		return true;
	}
	if (opcode_takes_recv(scene->opcode))
		scene_post_receive(scene, id, scene->receive);
	if (!prepare_invalidation(scene))
		return false;
	wr = scene_request(scene, id);
	post_send(&scene->a, &wr);
	return true;
}

bool holds_first(struct ibv_cq *cq, enum ibv_wc_status status, int most)
{
	struct ibv_wc wc;
	int i;

	for (i = 0; ibv_poll_cq(cq, 1, &wc) == 1; i++)
		if (!check(wc.wr_id == (uint64_t)i && wc.status == status,
			   "wr_id %" PRIu64 ", %s at place %d", wc.wr_id,
			   ibv_wc_status_str(wc.status), i))
			return false;
	return check(i > 0 && i <= most, "%d completions", i);
}

static bool is_ready(const struct endpoint *ep)
{
	enum ibv_qp_state state = endpoint_state(ep);

	return check(state == IBV_QPS_RTS, "the QP is in %s",
		     state_name(state));
}

static bool arrives_after(struct scene *scene)
{
	struct ibv_send_wr wr = scene_send(scene, LAST_ID, IBV_WR_SEND, NULL);

	scene_post_receive(scene, LAST_ID, NULL);
	wr.send_flags = 0;
	post_send(&scene->a, &wr);
	return cq_expect(scene->recv_cq, LAST_ID, IBV_WC_SUCCESS);
}

static bool sends_fill(struct scene *scene, struct ibv_cq *cq)
{
	uint64_t id;

	for (id = 0; id < REQUESTS; id++)
		if (!post_request(scene, id) ||
		    (opcode_takes_recv(scene->opcode) &&
		     !cq_expect(scene->recv_cq, id, IBV_WC_SUCCESS)))
			return false;
	return arrives_after(scene) &&
	       event_expect(scene->setup->a_dev.ctx, IBV_EVENT_CQ_ERR, cq) &&
	       holds_first(cq, IBV_WC_SUCCESS, MOST) && is_ready(&scene->a) &&
	       is_ready(&scene->b);
}

static bool full_of_sends(struct setup *setup, enum service service,
			  enum ibv_wr_opcode opcode)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_cq *cq = small_cq(&setup->a_dev);
	struct scene scene;
	bool ok;

	options.send_cq = cq;
	scene_open(&scene, setup, service, opcode, &options);
	if (opcode == IBV_WR_SEND_WITH_INV)
		open_window(&scene, &setup->b_dev);
	else if (OWN & BIT(opcode))
		open_window(&scene, &setup->a_dev);
	ok = sends_fill(&scene, cq);
	scene_close(&scene);
	return check(!ibv_destroy_cq(cq), "ibv_destroy_cq fails") && ok;
}

/* --- of receives ------------------------------------------------------------ */

static bool receives_fill(struct scene *scene, struct ibv_cq *cq)
{
	uint64_t id;

	for (id = 0; id < REQUESTS; id++)
		if (!post_request(scene, id) ||
		    !cq_expect(scene->a.send_cq, id, IBV_WC_SUCCESS))
			return false;
	return event_expect(scene->setup->b_dev.ctx, IBV_EVENT_CQ_ERR, cq) &&
	       holds_first(cq, IBV_WC_SUCCESS, 1) && is_ready(&scene->a) &&
	       is_ready(&scene->b);
}

static bool full_of_receives(struct setup *setup, enum service service,
			     enum ibv_wr_opcode opcode)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_cq *cq = small_cq(&setup->b_dev);
	struct scene scene;
	bool ok;

	options.recv_cq = cq;
	scene_open(&scene, setup, service, opcode, &options);
	if (opcode == IBV_WR_SEND_WITH_INV)
		open_window(&scene, &setup->b_dev);
	ok = receives_fill(&scene, cq);
	scene_close(&scene);
	return check(!ibv_destroy_cq(cq), "ibv_destroy_cq fails") && ok;
}

/* -------------------------------------------------------------------------- */

/* A target of XRC has no send queue: it binds nothing that could be invalidated. */
static bool can_complete(enum service service, enum ibv_wr_opcode opcode)
{
	return service_has(service, opcode) &&
	       (service != OVER_XRC || opcode != IBV_WR_SEND_WITH_INV);
}

void run_full(struct setup *setup, struct neighbours *neighbours)
{
	unsigned int service, i;

	for (service = OVER_RC; service <= OVER_XRC; service++)
		for (i = 0; i < opcode_count; i++)
			if (can_complete(service, opcodes[i]))
				tap_ok(full_of_sends(setup, service,
						     opcodes[i]) &&
					       neighbours_work(neighbours),
				       "%s, %s: no room for its completion",
				       service_name(service),
				       opcode_name(opcodes[i]));
	for (service = 0; service < SERVICES; service++)
		for (i = 0; i < opcode_count; i++)
			if (can_complete(service, opcodes[i]) &&
			    opcode_takes_recv(opcodes[i]))
				tap_ok(full_of_receives(setup, service,
							opcodes[i]) &&
					       neighbours_work(neighbours),
				       "%s, %s: no room for its receive's",
				       service_name(service),
				       opcode_name(opcodes[i]));
	run_full_flushes(setup, neighbours);
	run_full_datagrams(setup, neighbours);
}
