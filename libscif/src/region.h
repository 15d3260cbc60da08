/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * Registered memory.
 */
#ifndef SCIF_REGION_H
#define SCIF_REGION_H

#include "internal.h"

struct micdv_watch;
struct scif_memory;

struct scif_region {
	atomic_int refs;
	struct scif_device *dev;
	struct ibv_pd *pd; /* its connection's */
	uint8_t *addr;
	size_t length;
	int access;
	uint64_t start; /* what @mr calls @addr */
	struct ibv_mr *mr;
	struct scif_memory *memory; /* if it is of device memory */
	struct micdv_watch *watch;  /* NULL if there is none */
	struct scif_region *next;   /* of an endpoint's windows */
};

/* With one reference; NULL with errno. @watched: where that is possible. */
struct scif_region *scif_region_new(struct scif_link *link, void *addr,
				    size_t length, int access, bool watched);
static inline void scif_region_get(struct scif_region *region)
{
	atomic_fetch_add(&region->refs, 1);
}
void scif_region_put(struct scif_region *region);

/* What its key calls the byte at @addr. */
static inline uint64_t scif_region_at(const struct scif_region *region,
				      const void *addr)
{
	return region->start + ((const uint8_t *)addr - region->addr);
}

/* Is it known to be the memory that is mapped now? */
bool scif_region_is_current(const struct scif_region *region);

/*
 * On a device with direct verbs: may this process copy from or to its addresses,
 * instead of the kernel from or to its pages? By one thread at a time.
 */
bool scif_region_is_there(struct scif_region *region);

/*
 * cache.c: regions for copies with SCIF_RMA_USECACHE. One that has @addr and
 * @length, with a reference for the caller; NULL with errno, EOPNOTSUPP where
 * regions can't be kept.
 */
struct scif_region *scif_cache_get(struct scif_link *link, void *addr,
				   size_t length, int access);
/* Let go of those that no copy uses; false if there were none. */
bool scif_cache_empty(struct scif_device *dev);
/* Of a connection's, which has no copies any more. */
void scif_cache_forget(struct scif_link *link);

/* alloc.c: device memory that has all of the range, with a reference, or NULL. */
struct scif_memory *scif_memory_find(struct scif_device *dev, const void *addr,
				     size_t length);
struct ibv_mr *scif_memory_register(struct scif_memory *memory,
				    struct ibv_pd *pd, const void *addr,
				    size_t length, int access);
void scif_memory_put(struct scif_memory *memory);
/* In the child of a fork, which has none. */
void scif_memory_abandon(void);

#endif /* SCIF_REGION_H */
