// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory.h"
#include "tap.h"

#define HUGE_BYTES (2UL << 20)
/* The registered bytes start neither on a page nor on a cache line. */
#define LEAD_BYTES 77UL
#define FAR_AWAY 0x5a5a00000000ULL

static const char *const names[MEMORY_KINDS] = {
	[MEMORY_ANON] = "anonymous",
	[MEMORY_HUGE] = "huge pages",
	[MEMORY_THP] = "transparent huge pages",
	[MEMORY_SHARED] = "shared",
	[MEMORY_FILE] = "file",
	[MEMORY_IOVA] = "iova",
};

const char *memory_name(enum memory_kind kind)
{
	return names[kind];
}

static size_t round_up(size_t value, size_t to)
{
	return (value + to - 1) / to * to;
}

static void *map_anon(size_t length, int flags)
{
	return mmap(NULL, length, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

/* A mapping aligned to a huge page, which the kernel may then use. */
static void *map_thp(size_t length)
{
	uint8_t *raw = map_anon(length + HUGE_BYTES, 0);
	uint8_t *start;

	if (raw == MAP_FAILED)
		return MAP_FAILED;
	start = (uint8_t *)round_up((uintptr_t)raw, HUGE_BYTES);
	if (start > raw)
		munmap(raw, start - raw);
	munmap(start + length, raw + HUGE_BYTES - start);
	if (madvise(start, length, MADV_HUGEPAGE)) {
		munmap(start, length);
		return MAP_FAILED;
	}
	return start;
}

static void *map_fd(int fd, size_t length)
{
	void *map = MAP_FAILED;

	if (fd < 0)
		return MAP_FAILED;
	if (!ftruncate(fd, length))
		map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			   0);
	close(fd);
	return map;
}

static int temporary_file(void)
{
	char path[] = "/tmp/mic-test-XXXXXX";
	int fd = mkstemp(path);

	if (fd >= 0)
		unlink(path);
	return fd;
}

bool region_map(struct region *region, enum memory_kind kind, size_t length)
{
	size_t total = round_up(length + LEAD_BYTES, PAGE_BYTES);
	void *map = MAP_FAILED;

	if (kind == MEMORY_HUGE || kind == MEMORY_THP)
		total = round_up(total, HUGE_BYTES);
	switch (kind) {
	case MEMORY_ANON:
	case MEMORY_IOVA:
		map = map_anon(total, 0);
		break;
	case MEMORY_HUGE:
		map = map_anon(total, MAP_HUGETLB | MAP_POPULATE);
		break;
	case MEMORY_THP:
		map = map_thp(total);
		break;
	case MEMORY_SHARED:
		map = map_fd(memfd_create("mic-test", MFD_CLOEXEC), total);
		break;
	case MEMORY_FILE:
		map = map_fd(temporary_file(), total);
		break;
	case MEMORY_KINDS:
		break;
	}
	if (map == MAP_FAILED)
		return false;
	memset(map, 0, total);
	*region = (struct region){
		.kind = kind,
		.addr = (uint8_t *)map + LEAD_BYTES,
		.length = length,
		.map = map,
		.map_length = total,
	};
	return true;
}

void region_register(struct region *region, struct ibv_pd *pd, int access)
{
	region->rdma_addr = (uintptr_t)region->addr;
	if (region->kind == MEMORY_IOVA) {
		region->rdma_addr = FAR_AWAY | LEAD_BYTES;
		region->mr = ibv_reg_mr_iova(pd, region->addr, region->length,
					     region->rdma_addr, access);
	} else {
		region->mr = ibv_reg_mr(pd, region->addr, region->length,
					access);
	}
	if (!region->mr)
		bail("cannot register %zu bytes, %s: %s", region->length,
		     names[region->kind], strerror(errno));
}

void region_create(struct region *region, struct ibv_pd *pd, size_t length)
{
	if (!region_map(region, MEMORY_ANON, length))
		bail("cannot map %zu bytes: %s", length, strerror(errno));
	region_register(region, pd, ACCESS_ALL);
}

void region_destroy(struct region *region)
{
	if (region->mr)
		tap_must(!ibv_dereg_mr(region->mr), "ibv_dereg_mr fails");
	if (region->map)
		munmap(region->map, region->map_length);
	memset(region, 0, sizeof(*region));
}

bool all_are(const uint8_t *bytes, size_t length, uint8_t value)
{
	size_t i;

	for (i = 0; i < length; i++)
		if (bytes[i] != value)
			return check(false, "byte %zu is 0x%02x, not 0x%02x", i,
				     bytes[i], value);
	return true;
}

struct ibv_sge region_sge(const struct region *region, size_t offset,
			  uint32_t length)
{
	return (struct ibv_sge){
		.addr = region->rdma_addr + offset,
		.length = length,
		.lkey = region->mr->lkey,
	};
}
