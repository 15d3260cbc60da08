// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What a SEND invalidates, if nothing is wrong with it: a window of the peer's. It is
 * gone when the message has arrived whole and completes; in all other cases it grants
 * what it did.
 */
#include <errno.h>
#include <string.h>

#include "bind.h"
#include "clock.h"
#include "event.h"
#include "faults.h"
#include "tap.h"
#include "work.h"

enum { WRITE_ID = 40, WORD_BYTES = 8, CLOSED_BYTE = 0x3c };

void window_open(struct scene *scene)
{
	struct ibv_pd *pd = scene->setup->b_dev.pd;
	struct region *memory = &scene->window_mem;
	struct ibv_mw_bind_info info;

	if (!region_map(memory, MEMORY_ANON, PAGE_BYTES))
		bail("cannot map memory");
	region_register(memory, pd, ACCESS_ALL | IBV_ACCESS_MW_BIND);
	memset(memory->addr, CLOSED_BYTE, PAGE_BYTES);
	scene->window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	if (!scene->window)
		bail("ibv_alloc_mw: %s", strerror(errno));
	scene->invalidate_rkey = ibv_inc_rkey(scene->window->rkey);
	info = bind_info(memory, 0, WORD_BYTES, IBV_ACCESS_REMOTE_WRITE);
	if (!bind_type2(&scene->b, scene->window, scene->invalidate_rkey, &info,
			IBV_WC_SUCCESS))
		bail("no window is bound");
}

void window_close(struct scene *scene)
{
	tap_must(!ibv_dealloc_mw(scene->window), "ibv_dealloc_mw fails");
	region_destroy(&scene->window_mem);
}

/* Nobody can use it any more, but its region can't go. */
static bool is_bound(struct scene *scene)
{
	int error = ibv_dereg_mr(scene->window_mem.mr);

	if (!error)
		scene->window_mem.mr = NULL;
	return check(error == EBUSY, "the window's region goes: %s",
		     strerror(error));
}

static void reconnect(struct scene *scene)
{
	endpoint_go(&scene->a, IBV_QPS_RESET);
	endpoint_go(&scene->b, IBV_QPS_RESET);
	pair_connect(&scene->a, &scene->b);
}

static bool is_written(struct scene *scene)
{
	const volatile uint8_t *last = scene->window_mem.addr + WORD_BYTES - 1;
	uint64_t end = deadline();

	while (*last != A_BYTE) {
		if (now_ms() > end)
			return check(false, "the window is closed");
		/* memory of another machine is looked at with each verb */
		if (endpoint_state(&scene->b) != IBV_QPS_RTS)
			return check(false, "the peer is not in RTS");
	}
	return true;
}

/* Reliable services say so, others do not. */
static bool is_refused(struct scene *scene)
{
	struct ibv_context *ctx = scene->setup->b_dev.ctx;

	if (service_is_reliable(scene->service) &&
	    (!event_expect(ctx, IBV_EVENT_QP_ACCESS_ERR, scene->b.qp) ||
	     (scene->srq &&
	      !event_expect(ctx, IBV_EVENT_QP_LAST_WQE_REACHED, scene->b.qp))))
		return false;
	return neighbours_work(scene->neighbours) &&
	       all_are(scene->window_mem.addr, PAGE_BYTES, CLOSED_BYTE);
}

bool window_check(struct scene *scene, const struct outcome *outcome)
{
	bool gone = outcome->status == IBV_WC_SUCCESS &&
		    outcome->receive == RECEIVE_STAYS;
	enum ibv_wc_status status =
		gone && service_is_reliable(scene->service) ?
			IBV_WC_REM_ACCESS_ERR :
			IBV_WC_SUCCESS;
	struct ibv_sge sge = region_sge(&scene->setup->a_mem, 0, WORD_BYTES);
	struct ibv_send_wr wr = scene_send(scene, WRITE_ID, IBV_WR_RDMA_WRITE,
					   &sge);

	if (!scene->b.qp)
		return is_bound(scene);
	reconnect(scene);
	memset(scene->setup->a_mem.addr, A_BYTE, WORD_BYTES);
	wr.wr.rdma.remote_addr = scene->window_mem.rdma_addr;
	wr.wr.rdma.rkey = ibv_inc_rkey(scene->window->rkey);
	post_send(&scene->a, &wr);
	return cq_expect(scene->a.send_cq, WRITE_ID, status) &&
	       (gone ? is_refused(scene) : is_written(scene));
}
