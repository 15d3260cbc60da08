// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Device memory for programs. Of machines that share a PCI region it is in that, where
 * peers on the others can map it. It is mapped here like any memory; what is registered
 * of it is a region of device memory, in which addresses count from its first byte.
 *
 * Regions keep it, so it goes with the last of them, or when the program frees it.
 * Where there is no device memory, it is ordinary memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "direct.h"
#include "region.h"
#include "rma.h"

struct scif_memory {
	struct scif_memory *next; /* until the program has freed it */
	unsigned int refs;
	struct scif_device *dev;
	struct ibv_dm *dm; /* NULL: it is ordinary memory */
	uint8_t *addr;
	size_t length;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct scif_memory *list;

static bool allocate_dm(struct scif_memory *memory)
{
	struct ibv_alloc_dm_attr attr = { .length = memory->length };
	const struct scif_direct *direct = memory->dev->direct;

	if (!direct || !direct->dm_addr)
		return false;
	memory->dm = ibv_alloc_dm(memory->dev->ctx, &attr);
	if (memory->dm)
		memory->addr = direct->dm_addr(memory->dm);
	return memory->dm;
}

static bool allocate_pages(struct scif_memory *memory)
{
	memory->addr = mmap(NULL, memory->length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory->addr == MAP_FAILED)
		return false;
	madvise(memory->addr, memory->length, MADV_DONTFORK);
	return true;
}

/* NULL: ENOMEM. */
static struct scif_memory *allocate(struct scif_device *dev, size_t length)
{
	struct scif_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return NULL;
	memory->refs = 1;
	memory->dev = dev;
	memory->length = length;
	if (!allocate_dm(memory) && !allocate_pages(memory)) {
		free(memory);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	memory->next = list;
	list = memory;
	pthread_mutex_unlock(&lock);
	return memory;
}

void scif_memory_put(struct scif_memory *memory)
{
	bool last;

	pthread_mutex_lock(&lock);
	last = !--memory->refs;
	pthread_mutex_unlock(&lock);
	if (!last)
		return;
	/* The device may be gone, and its driver keeps the mapping, or even its context. */
	if (!memory->dm || atomic_load(&memory->dev->gone) ||
	    ibv_free_dm(memory->dm))
		munmap(memory->addr, memory->length);
	free(memory);
}

static bool has(const struct scif_memory *memory, const struct scif_device *dev,
		const uint8_t *addr, size_t length)
{
	return memory->dm && memory->dev == dev && addr >= memory->addr &&
	       length <= memory->length &&
	       (size_t)(addr - memory->addr) <= memory->length - length;
}

struct scif_memory *scif_memory_find(struct scif_device *dev, const void *addr,
				     size_t length)
{
	struct scif_memory *memory;

	pthread_mutex_lock(&lock);
	for (memory = list; memory; memory = memory->next)
		if (has(memory, dev, addr, length))
			break;
	if (memory)
		memory->refs++;
	pthread_mutex_unlock(&lock);
	return memory;
}

struct ibv_mr *scif_memory_register(struct scif_memory *memory,
				    struct ibv_pd *pd, const void *addr,
				    size_t length, int access)
{
	return ibv_reg_dm_mr(pd, memory->dm,
			     (const uint8_t *)addr - memory->addr, length,
			     access | IBV_ACCESS_ZERO_BASED);
}

void scif_memory_abandon(void)
{
	pthread_mutex_init(&lock, NULL);
	list = NULL;
}

SCIF_EXPORT void *scif_alloc_dm(scif_epd_t epd, size_t len)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = scif_get(epd);
	struct scif_memory *memory;
	void *addr = NULL;
	int err;

	if (!ep)
		return SCIF_ALLOC_FAILED;
	err = !len || len % SCIF_PAGE ? EINVAL : scif_check_connected(ep);
	if (!err) {
		memory = allocate(ep->link.dev, len);
		if (memory)
			addr = memory->addr;
		else
			err = ENOMEM;
	}
	scif_put(ep);
	if (err)
		errno = err;
	return err ? SCIF_ALLOC_FAILED : addr;
}

SCIF_EXPORT int scif_free_dm(void *addr)
{
	SCIF_NO_CANCEL;
	struct scif_memory **link, *memory;

	pthread_mutex_lock(&lock);
	for (link = &list; *link && (*link)->addr != addr;
	     link = &(*link)->next)
		;
	memory = *link;
	if (memory)
		*link = memory->next;
	pthread_mutex_unlock(&lock);
	if (!memory)
		return scif_fail(EINVAL);
	/* regions that are kept for copies would keep it */
	scif_cache_empty(memory->dev);
	scif_memory_put(memory);
	return 0;
}
