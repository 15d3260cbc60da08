// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Registered memory. A region keeps the pages that it was made of, whatever the
 * program maps in their place; a watch tells if it did. Only mic devices have
 * watches: where there is none, no region is used for a second purpose.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "direct.h"
#include "region.h"
#include "rma.h"

/* A watch, if it can be had. It begins before the memory is locked. */
static void begin_watch(struct scif_region *region)
{
	const struct scif_direct *direct = region->dev->direct;

	if (direct)
		region->watch = direct->watch(region->dev->ctx, region->addr,
					      region->length);
}

static void end_watch(struct scif_region *region)
{
	if (region->watch)
		region->dev->direct->unwatch(region->watch);
}

/*
 * Nobody's memory goes to the end of the addresses. And to read it, the kernel would
 * lock memory that the program may not.
 */
static bool may_be_locked(const void *addr, size_t length, int access)
{
	return (uintptr_t)addr + length > (uintptr_t)addr &&
	       (access & IBV_ACCESS_LOCAL_WRITE ||
		scif_is_readable(addr, length));
}

static int register_region(struct scif_region *region)
{
	region->memory = scif_memory_find(region->dev, region->addr,
					  region->length);
	if (region->memory) {
		region->mr = scif_memory_register(region->memory, region->pd,
						  region->addr, region->length,
						  region->access);
	} else {
		region->start = (uintptr_t)region->addr;
		region->mr = scif_reg_mr(region->pd, region->addr,
					 region->length, region->access);
	}
	return region->mr ? 0 : errno;
}

struct scif_region *scif_region_new(struct scif_link *link, void *addr,
				    size_t length, int access, bool watched)
{
	struct scif_region *region;
	int err;

	if (!may_be_locked(addr, length, access)) {
		errno = EFAULT;
		return NULL;
	}
	region = calloc(1, sizeof(*region));
	if (!region)
		return NULL;
	atomic_init(&region->refs, 1);
	region->dev = link->dev;
	region->pd = link->pd;
	region->addr = addr;
	region->length = length;
	region->access = access;
	if (watched)
		begin_watch(region);
	err = register_region(region);
	if (!err)
		return region;
	end_watch(region);
	if (region->memory)
		scif_memory_put(region->memory);
	free(region);
	errno = err;
	return NULL;
}

void scif_region_put(struct scif_region *region)
{
	if (atomic_fetch_sub(&region->refs, 1) != 1)
		return;
	ibv_dereg_mr(region->mr);
	end_watch(region);
	if (region->memory)
		scif_memory_put(region->memory);
	free(region);
}

bool scif_region_is_current(const struct scif_region *region)
{
	return region->watch &&
	       !region->dev->direct->watch_state(region->watch);
}

/*
 * Its protection changed, or the kernel balances NUMA nodes, which looks the
 * same. If it can be accessed, a new watch begins. Nothing else may have
 * changed before.
 */
static bool watch_again(struct scif_region *region,
			const struct scif_direct *direct)
{
	const int advice = region->access & IBV_ACCESS_LOCAL_WRITE ?
				   MADV_POPULATE_WRITE :
				   MADV_POPULATE_READ;
	struct micdv_watch *old = region->watch, *new;

	new = direct->watch(region->dev->ctx, region->addr, region->length);
	if (!new)
		return false;
	if (direct->watch_state(old) & MICDV_WATCH_CHANGED ||
	    madvise(region->addr, region->length, advice)) {
		direct->unwatch(new);
		return false;
	}
	region->watch = new;
	direct->unwatch(old);
	return true;
}

bool scif_region_is_there(struct scif_region *region)
{
	const struct scif_direct *direct;
	unsigned int state;

	/* Nobody knows what is at its addresses: the kernel could not watch it. */
	if (!region->watch)
		return false;
	direct = region->dev->direct;
	state = direct->watch_state(region->watch);
	if (!state)
		return true;
	return !(state & MICDV_WATCH_CHANGED) && watch_again(region, direct);
}
