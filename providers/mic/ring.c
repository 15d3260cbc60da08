// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Mapping of queue memory.
 */
#include <sys/mman.h>

#include "ring.h"

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
	return 0;
}

void mic_unmap_queue(struct mic_map *map)
{
	if (map->size)
		munmap(map->addr, map->size);
}
