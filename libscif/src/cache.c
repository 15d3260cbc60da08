// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Regions of memory that programs copy from or to with SCIF_RMA_USECACHE, kept
 * for the next time. Each is watched: one whose memory was unmapped, replaced
 * or protected is let go of, and is not used again. Without a watch there is no
 * honest way to know, so nothing is kept then.
 *
 * These regions have no remote rights: no peer learns of them. All connections over a
 * device share what may be kept; each has its own protection domain, and so its own
 * regions.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "direct.h"
#include "region.h"
#include "rma.h"

static bool has(const struct scif_region *region, const struct ibv_pd *pd,
		const uint8_t *addr, size_t length, int access)
{
	size_t skip = addr - region->addr;

	return region->pd == pd && addr >= region->addr &&
	       length <= region->length && skip <= region->length - length &&
	       (region->access & access) == access;
}

static struct scif_region *take_out(struct scif_cache *cache, unsigned int at)
{
	struct scif_region *region = cache->regions[at];

	cache->count--;
	for (; at < cache->count; at++)
		cache->regions[at] = cache->regions[at + 1];
	return region;
}

static void drop(struct scif_cache *cache, unsigned int at)
{
	scif_region_put(take_out(cache, at));
}

/* With a reference; used last: at the end. */
static struct scif_region *take(struct scif_cache *cache, unsigned int at)
{
	struct scif_region *region = take_out(cache, at);

	cache->regions[cache->count++] = region;
	scif_region_get(region);
	return region;
}

/* Also lets go of all that are not what is mapped any more. */
static struct scif_region *find(struct scif_cache *cache,
				const struct ibv_pd *pd, const uint8_t *addr,
				size_t length, int access)
{
	unsigned int i = cache->count;
	struct scif_region *found = NULL;

	while (i--) {
		if (!scif_region_is_current(cache->regions[i]))
			drop(cache, i);
		else if (!found &&
			 has(cache->regions[i], pd, addr, length, access))
			found = cache->regions[i];
	}
	for (i = 0; found && i < cache->count; i++)
		if (cache->regions[i] == found)
			return take(cache, i);
	return NULL;
}

static void keep(struct scif_cache *cache, struct scif_region *region)
{
	if (cache->count == SCIF_CACHE_REGIONS)
		drop(cache, 0);
	scif_region_get(region);
	cache->regions[cache->count++] = region;
}

/*
 * All of the pages: others on them are served by it, too; and to be written, if
 * the memory can be, so that one region serves both directions.
 */
static struct scif_region *make(struct scif_link *link, void *addr,
				size_t length, int access)
{
	struct scif_region *region;

	uintptr_t first = (uintptr_t)addr & -(uintptr_t)SCIF_PAGE;
	uintptr_t end = ((uintptr_t)addr + length + SCIF_PAGE - 1) &
			-(uintptr_t)SCIF_PAGE;

	if (end <= first) {
		errno = EFAULT;
		return NULL;
	}
	region = scif_region_new(link, (void *)first, end - first,
				 IBV_ACCESS_LOCAL_WRITE, true);
	if (!region && errno == EFAULT && !access)
		region = scif_region_new(link, (void *)first, end - first, 0,
					 true);
	return region;
}

struct scif_region *scif_cache_get(struct scif_link *link, void *addr,
				   size_t length, int access)
{
	struct scif_device *dev = link->dev;
	struct scif_cache *cache = &dev->cache;
	struct scif_region *region;

	if (!dev->direct) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	pthread_mutex_lock(&cache->lock);
	region = find(cache, link->pd, addr, length, access);
	pthread_mutex_unlock(&cache->lock);
	if (region)
		return region;
	region = make(link, addr, length, access);
	if (!region && errno == ENOMEM && scif_cache_empty(dev))
		region = make(link, addr, length, access);
	if (!region)
		return NULL;
	pthread_mutex_lock(&cache->lock);
	keep(cache, region);
	pthread_mutex_unlock(&cache->lock);
	return region;
}

bool scif_cache_empty(struct scif_device *dev)
{
	struct scif_cache *cache = &dev->cache;
	bool some;

	pthread_mutex_lock(&cache->lock);
	some = cache->count;
	while (cache->count)
		drop(cache, cache->count - 1);
	pthread_mutex_unlock(&cache->lock);
	return some;
}

void scif_cache_forget(struct scif_link *link)
{
	struct scif_cache *cache = &link->dev->cache;
	unsigned int i;

	pthread_mutex_lock(&cache->lock);
	for (i = cache->count; i--;)
		if (cache->regions[i]->pd == link->pd)
			drop(cache, i);
	pthread_mutex_unlock(&cache->lock);
}
