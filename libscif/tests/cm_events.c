// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <rdma/rdma_cma.h>

#include "clock.h"
#include "cm_events.h"

static _Atomic enum cm_telling how;

void tell_cm_events(enum cm_telling telling)
{
	atomic_store(&how, telling);
}

/* What a queue pair needs to be connected, the kernel tells until then. */
static void wait_for_end(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	uint64_t limit = deadline();
	unsigned int round = 0;
	int mask;

	while (!rdma_init_qp_attr(id, &attr, &mask) && now_ms() < limit)
		relax(round++);
}

/* What the library calls. */
int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event)
{
	typeof(rdma_get_cm_event) *get = dlsym(RTLD_NEXT, "rdma_get_cm_event");
	const enum cm_telling telling = atomic_load(&how);

	if (get(channel, event))
		return -1;
	if (telling == CM_REJECTED &&
	    (*event)->event == RDMA_CM_EVENT_DISCONNECTED)
		(*event)->event = RDMA_CM_EVENT_REJECTED;
	if ((*event)->event != RDMA_CM_EVENT_ESTABLISHED)
		return 0;
	if (telling == CM_LATE)
		wait_for_end((*event)->id);
	if (telling != CM_OVERTAKEN)
		return 0;
	rdma_ack_cm_event(*event);
	errno = EAGAIN;
	return -1;
}
