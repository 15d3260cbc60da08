// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Faults of requests that change keys, invalidate or bind, and of the numbers of
 * XRC receive queues.
 */
#include <errno.h>
#include <string.h>

#include "bind.h"
#include "faults.h"
#include "tap.h"
#include "work.h"

#define WINDOW_BYTES 1000U
#define WINDOW_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* Whose keys the request is about. */
static bool is_about_peer(const struct scene *scene)
{
	return scene->opcode == IBV_WR_SEND_WITH_INV;
}

static struct device *owner(struct scene *scene)
{
	return is_about_peer(scene) ? &scene->setup->b_dev :
				      &scene->setup->a_dev;
}

/* A connection of the owner's that is not the one of the case. */
static struct endpoint *other_connection(struct scene *scene)
{
	return is_about_peer(scene) ? &scene->neighbours->b :
				      &scene->neighbours->a;
}

static void new_window(struct scene *scene, enum ibv_mw_type type)
{
	scene->mw = ibv_alloc_mw(owner(scene)->pd, type);
	if (!scene->mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	scene->invalidate_rkey = scene->mw->rkey;
}

/* A window of the whole of a region that @access allows. */
static void window_of(struct scene *scene, struct ibv_pd *pd, int access)
{
	new_window(scene, IBV_MW_TYPE_2);
	extra_region(scene, pd, access);
	scene->bind = bind_info(&scene->extra, 0, WINDOW_BYTES, WINDOW_ACCESS);
}

static void good_window(struct scene *scene)
{
	window_of(scene, owner(scene)->pd, ACCESS_ALL | IBV_ACCESS_MW_BIND);
}

static void key_of_region(struct scene *scene)
{
	scene->invalidate_rkey = is_about_peer(scene) ?
					 scene->setup->b_mem.mr->rkey :
					 scene->setup->a_mem.mr->rkey;
}

static void key_of_nothing(struct scene *scene)
{
	key_of_region(scene);
	scene->invalidate_rkey ^= 0x00a5a500;
}

static void key_not_bound(struct scene *scene)
{
	new_window(scene, IBV_MW_TYPE_2);
}

static void key_of_type1(struct scene *scene)
{
	good_window(scene);
	tap_must(!ibv_dealloc_mw(scene->mw), "ibv_dealloc_mw fails");
	new_window(scene, IBV_MW_TYPE_1);
	if (!bind_type1(other_connection(scene), scene->mw, &scene->bind))
		bail("no window is bound");
	scene->invalidate_rkey = scene->mw->rkey;
}

static void bound_by_other(struct scene *scene)
{
	uint32_t key;

	good_window(scene);
	key = ibv_inc_rkey(scene->mw->rkey);
	if (!bind_type2(other_connection(scene), scene->mw, key, &scene->bind,
			IBV_WC_SUCCESS))
		bail("no window is bound");
	scene->invalidate_rkey = key;
}

static void bind_across_end(struct scene *scene)
{
	good_window(scene);
	scene->bind.addr++;
	scene->bind.length = REGION_BYTES;
}

static void bind_below(struct scene *scene)
{
	good_window(scene);
	scene->bind.addr--;
}

static void bind_wrapping(struct scene *scene)
{
	good_window(scene);
	scene->bind.length = UINT64_MAX - 4;
}

static void bind_not_allowed(struct scene *scene)
{
	window_of(scene, owner(scene)->pd, ACCESS_ALL);
}

static void bind_without_write(struct scene *scene)
{
	window_of(scene, owner(scene)->pd,
		  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
}

static void bind_other_pd(struct scene *scene)
{
	scene->extra_pd = ibv_alloc_pd(owner(scene)->ctx);
	if (!scene->extra_pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	window_of(scene, scene->extra_pd, ACCESS_ALL | IBV_ACCESS_MW_BIND);
}

/* Which nothing else is wrong with. */
static void window_of_other_pd(struct scene *scene)
{
	good_window(scene);
	tap_must(!ibv_dealloc_mw(scene->mw), "ibv_dealloc_mw fails");
	scene->extra_pd = ibv_alloc_pd(owner(scene)->ctx);
	if (!scene->extra_pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	scene->mw = ibv_alloc_mw(scene->extra_pd, IBV_MW_TYPE_2);
	if (!scene->mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
}

/* Its key is posted all the same; libmic looks at nothing else of it. */
static void window_freed(struct scene *scene)
{
	good_window(scene);
	scene->other_mw = *scene->mw;
	tap_must(!ibv_dealloc_mw(scene->mw), "ibv_dealloc_mw fails");
	scene->mw = &scene->other_mw;
}

static void window_is_region(struct scene *scene)
{
	window_freed(scene);
	scene->other_mw.rkey = scene->setup->a_mem.mr->rkey;
}

/* Nothing of it need be there. */
static void bind_on_demand(struct scene *scene)
{
	window_of(scene, owner(scene)->pd,
		  ACCESS_ALL | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND);
}

static void bind_to_lkey(struct scene *scene, uint32_t lkey)
{
	scene->other_mr = *scene->extra.mr;
	scene->other_mr.lkey = lkey;
	scene->bind.mr = &scene->other_mr;
}

static void bind_deregistered(struct scene *scene)
{
	good_window(scene);
	bind_to_lkey(scene, scene->extra.mr->lkey);
	tap_must(!ibv_dereg_mr(scene->extra.mr), "ibv_dereg_mr fails");
	scene->extra.mr = NULL;
}

static void bind_to_nothing(struct scene *scene)
{
	good_window(scene);
	bind_to_lkey(scene, scene->extra.mr->lkey ^ 0x00a5a500);
}

/* The low byte tells those from each other that have had the same place. */
static void bind_other_generation(struct scene *scene)
{
	good_window(scene);
	bind_to_lkey(scene, ibv_inc_rkey(scene->extra.mr->lkey));
}

static void bind_to_window(struct scene *scene)
{
	good_window(scene);
	bind_to_lkey(scene, scene->mw->rkey);
}

/* The key asked for is not one of the window's. */
static void bind_wrong_key(struct scene *scene)
{
	good_window(scene);
	scene->wrong_bits = 0x00a5a500;
}

/* --- windows that show something, and go on doing so ---------------------------- */

/* To the neighbours: one of type 1 is not of a queue pair. */
static bool still_shows(struct scene *scene)
{
	struct endpoint *reader = &scene->neighbours->b;
	struct region *memory = &scene->neighbours->b_mem;
	struct ibv_sge sge = region_sge(memory, 0, BAD_BYTES);
	struct ibv_send_wr wr = send_wr(GOOD_ID, IBV_WR_RDMA_READ, &sge, 1);

	wr.wr.rdma.remote_addr = scene->extra.rdma_addr;
	wr.wr.rdma.rkey = scene->mw->rkey;
	memset(memory->addr, 0, BAD_BYTES);
	post_send(reader, &wr);
	return cq_expect(reader->send_cq, GOOD_ID, IBV_WC_SUCCESS) &&
	       all_are(memory->addr, BAD_BYTES, EXTRA_BYTE);
}

static void shown(struct scene *scene)
{
	key_of_type1(scene);
	scene->afterwards = still_shows;
}

static void shown_across_end(struct scene *scene)
{
	shown(scene);
	scene->bind.addr++;
	scene->bind.length = REGION_BYTES;
}

static void shown_to_nothing(struct scene *scene)
{
	shown(scene);
	bind_to_lkey(scene, scene->extra.mr->lkey ^ 0x00a5a500);
}

static void shown_other_generation(struct scene *scene)
{
	shown(scene);
	bind_to_lkey(scene, ibv_inc_rkey(scene->extra.mr->lkey));
}

static void shown_not_allowed(struct scene *scene)
{
	shown(scene);
	scene->bind = bind_info(&scene->setup->a_mem, 0, WINDOW_BYTES,
				WINDOW_ACCESS);
}

static void shown_wrong_key(struct scene *scene)
{
	shown(scene);
	scene->wrong_bits = 0x00a5a500;
}

/* --- XRC -------------------------------------------------------------------- */

static void unknown_srq(struct scene *scene)
{
	scene->srqn ^= 0x5a5a00;
}

static void no_srq(struct scene *scene)
{
	scene->srqn = 0;
}

static uint32_t srq_number(struct ibv_srq *srq)
{
	uint32_t number;

	if (ibv_get_srq_num(srq, &number))
		bail("ibv_get_srq_num fails");
	return number;
}

static void destroyed_srq(struct scene *scene)
{
	struct ibv_srq *srq = xrc_create_srq(&scene->xrc, 1, 1);

	scene->srqn = srq_number(srq);
	tap_must(!ibv_destroy_srq(srq), "ibv_destroy_srq fails");
}

static void srq_of_other_domain(struct scene *scene)
{
	struct xrc *other = &scene->other_xrc;

	xrc_open_domain(other, scene->setup);
	other->srq[0] = xrc_create_srq(other, 1, 1);
	scene->srqn = srq_number(other->srq[0]);
}

/* -------------------------------------------------------------------------- */

#define PEER_INV BIT(IBV_WR_SEND_WITH_INV)
#define OWN_INV BIT(IBV_WR_LOCAL_INV)
#define BIND BIT(IBV_WR_BIND_MW)

#define PEER_REFUSES(status)                                                   \
	{                                                                      \
		status, RECEIVE_REFUSED, IBV_EVENT_QP_ACCESS_ERR               \
	}
#define PEER_REFUSES_BOTH                                                      \
	PEER_REFUSES(IBV_WC_REM_ACCESS_ERR), PEER_REFUSES(IBV_WC_SUCCESS)
#define LOCAL(status)                                                          \
	{                                                                      \
		status, RECEIVE_STAYS, -1                                      \
	}
#define OPERATION LOCAL(IBV_WC_LOC_QP_OP_ERR), LOCAL(IBV_WC_LOC_QP_OP_ERR)
#define UNBOUND LOCAL(IBV_WC_MW_BIND_ERR), LOCAL(IBV_WC_MW_BIND_ERR)
#define INVALID                                                                \
	{                                                                      \
		IBV_WC_REM_INV_REQ_ERR, RECEIVE_FLUSHED, IBV_EVENT_QP_REQ_ERR  \
	}

static const struct fault rows[] = {
	{ "key of a region", PEER_INV, key_of_region, PEER_REFUSES_BOTH, NULL },
	{ "key of nothing", PEER_INV, key_of_nothing, PEER_REFUSES_BOTH, NULL },
	{ "key of a window that is not bound", PEER_INV, key_not_bound,
	  PEER_REFUSES_BOTH, NULL },
	{ "key of a type 1 window", PEER_INV, key_of_type1, PEER_REFUSES_BOTH,
	  NULL },
	{ "key of another QP's window", PEER_INV, bound_by_other,
	  PEER_REFUSES_BOTH, NULL },
	{ "key of a region", OWN_INV, key_of_region, OPERATION, NULL },
	{ "key of nothing", OWN_INV, key_of_nothing, OPERATION, NULL },
	{ "key of a window that is not bound", OWN_INV, key_not_bound,
	  OPERATION, NULL },
	{ "key of a type 1 window", OWN_INV, key_of_type1, OPERATION, NULL },
	{ "key of another QP's window", OWN_INV, bound_by_other, OPERATION,
	  NULL },
	{ "across the region's end", BIND, bind_across_end, UNBOUND, NULL },
	{ "below the region", BIND, bind_below, UNBOUND, NULL },
	{ "a length that wraps around", BIND, bind_wrapping, UNBOUND, NULL },
	{ "region that allows no windows", BIND, bind_not_allowed, UNBOUND,
	  NULL },
	{ "more rights than the region's", BIND, bind_without_write, UNBOUND,
	  NULL },
	{ "region of another PD", BIND, bind_other_pd, UNBOUND, NULL },
	{ "window that is bound", BIND, bound_by_other, UNBOUND, NULL },
	{ "window of another PD", BIND, window_of_other_pd, UNBOUND, NULL },
	{ "window that is freed", BIND, window_freed, UNBOUND, NULL },
	{ "region for a window", BIND, window_is_region, UNBOUND, NULL },
	{ "region on demand", BIND, bind_on_demand, UNBOUND, NULL },
	{ "region that is deregistered", BIND, bind_deregistered, UNBOUND,
	  NULL },
	{ "lkey of nothing", BIND, bind_to_nothing, UNBOUND, NULL },
	{ "lkey of another generation", BIND, bind_other_generation, UNBOUND,
	  NULL },
	{ "window for a region", BIND, bind_to_window, UNBOUND, NULL },
	{ "key that is not of the window", BIND, bind_wrong_key, UNBOUND,
	  NULL },
	{ "across the region's end, type 1 that shows", BIND, shown_across_end,
	  UNBOUND, NULL },
	{ "lkey of nothing, type 1 that shows", BIND, shown_to_nothing, UNBOUND,
	  NULL },
	{ "lkey of another generation, type 1 that shows", BIND,
	  shown_other_generation, UNBOUND, NULL },
	{ "region that allows no windows, type 1 that shows", BIND,
	  shown_not_allowed, UNBOUND, NULL },
	{ "key that is not of the window, type 1 that shows", BIND,
	  shown_wrong_key, UNBOUND, NULL },
};

static const struct fault xrc_rows[] = {
	{ "unknown SRQ", ALL, unknown_srq, INVALID, INVALID, NULL },
	{ "SRQ 0", ALL, no_srq, INVALID, INVALID, NULL },
	{ "SRQ that is destroyed", ALL, destroyed_srq, INVALID, INVALID, NULL },
	{ "SRQ of another domain", ALL, srq_of_other_domain, INVALID, INVALID,
	  NULL },
};

const struct fault_table key_faults = {
	.faults = rows,
	.count = COUNT(rows),
	.services = BIT(SERVICES) - 1,
};

const struct fault_table xrc_faults = {
	.faults = xrc_rows,
	.count = COUNT(xrc_rows),
	.services = BIT(OVER_XRC),
};
