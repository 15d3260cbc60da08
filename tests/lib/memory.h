/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Registered memory of several kinds.
 */
#ifndef TESTS_MEMORY_H
#define TESTS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#define PAGE_BYTES 4096UL

#define ACCESS_ALL                                                             \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |                    \
	 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

enum memory_kind {
	MEMORY_ANON,
	MEMORY_HUGE,   /* hugetlbfs pages */
	MEMORY_THP,    /* transparent huge pages */
	MEMORY_SHARED, /* an anonymous file, shared */
	MEMORY_FILE,   /* a file in a file system, shared */
	MEMORY_IOVA,   /* anonymous, its RDMA address is not its address */
	MEMORY_KINDS
};

struct region {
	enum memory_kind kind;
	uint8_t *addr; /* the registered bytes */
	size_t length;
	uint64_t rdma_addr; /* what SGEs and peers call @addr */
	struct ibv_mr *mr;
	void *map;
	size_t map_length;
};

const char *memory_name(enum memory_kind kind);

/* Map @length bytes; false if such memory cannot be had here. */
bool region_map(struct region *region, enum memory_kind kind, size_t length);

/* Register a mapped region, or end the test. */
void region_register(struct region *region, struct ibv_pd *pd, int access);

/* Both for anonymous memory with all rights. */
void region_create(struct region *region, struct ibv_pd *pd, size_t length);

void region_destroy(struct region *region);

/* Is each of the bytes @value? With a remark if not. */
bool all_are(const uint8_t *bytes, size_t length, uint8_t value);

/* An SGE for @length bytes at @offset. */
struct ibv_sge region_sge(const struct region *region, size_t offset,
			  uint32_t length);

#endif /* TESTS_MEMORY_H */
