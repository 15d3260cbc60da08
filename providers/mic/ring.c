// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Mapping of queue memory.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "process.h"
#include "ring.h"

/* More than any queue has; the kernel refuses it. */
#define MIC_SLOTS_MAX (1U << 24)

/* Returns 0 or an errno value. A queue without memory is a valid queue. */
int mic_map_queue(struct mic_map *map, int fd, const struct mic_mmap_info *info)
{
	void *addr;

	map->addr = NULL;
	map->size = 0;
	if (!info->size)
		return 0;
	addr = mmap(NULL, info->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    (off_t)info->offset);
	if (addr == MAP_FAILED)
		return errno;
	map->addr = addr;
	map->size = info->size;
	map->owner = mic_process();
	return 0;
}

bool mic_map_is_own(const struct mic_map *map)
{
	return map->size && map->owner == mic_process();
}

/* What a child has in that place is something else. */
void mic_unmap_queue(struct mic_map *map)
{
	if (mic_map_is_own(map))
		munmap(map->addr, map->size);
}

/*
 * Address space for a queue that is to have @n slots and is laid out like the
 * one in @map, which has @entries. Returns 0 or an errno value.
 */
int mic_reserve_queue(struct mic_map *room, const struct mic_map *map,
		      uint32_t entries, uint32_t n, size_t stride)
{
	const size_t page = sysconf(_SC_PAGESIZE);
	size_t slots = 1;
	void *addr;

	*room = (struct mic_map){ .owner = mic_process() };
	if (n > MIC_SLOTS_MAX)
		return 0;
	while (slots < n)
		slots *= 2;
	/* what is there besides, and the rest of its last page */
	room->size = map->size - entries * stride + slots * stride;
	room->size = (room->size + page - 1) / page * page;
	addr = mmap(NULL, room->size, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (addr == MAP_FAILED) {
		room->size = 0;
		return errno;
	}
	room->addr = addr;
	return 0;
}

/*
 * Map a queue in place of @room, which is used up. Not there: a mapping that fails would
 * leave nothing there, and then what another thread has mapped. Returns 0 or an errno
 * value.
 */
int mic_map_reserved(struct mic_map *map, struct mic_map *room, int fd,
		     const struct mic_mmap_info *info)
{
	int ret = mic_map_queue(map, fd, info);

	/* where there was no room besides, or no further mapping, there is now */
	mic_unmap_queue(room);
	return ret ? mic_map_queue(map, fd, info) : 0;
}
