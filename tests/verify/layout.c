// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * How a buffer is made of pieces.
 */
#include <string.h>

#include "verify.h"

static uint32_t part_length(enum shape shape, uint32_t size, int i, int count)
{
	switch (shape) {
	case SHAPE_ONE:
		return size;
	case SHAPE_HOLES:
		if (i % 2 == 0)
			return 0;
		return i == 1 ? size / 2 : size - size / 2;
	case SHAPE_TWO:
		return i == 0 ? size / 3 : size - size / 3;
	default:
		return (uint64_t)size * (i + 1) / count -
		       (uint64_t)size * i / count;
	}
}

static int part_count(enum shape shape, uint32_t size, int max_sges)
{
	switch (shape) {
	case SHAPE_ONE:
		return 1;
	case SHAPE_TWO:
		return size ? 2 : 0;
	case SHAPE_HOLES:
		return max_sges < 5 ? 1 : 5;
	default:
		return max_sges;
	}
}

/* The first bytes of the stream lie highest in memory, with gaps between. */
void make_layout(struct layout *layout, enum shape shape, size_t offset,
		 uint32_t size, int max_sges)
{
	int i;

	layout->count = part_count(shape, size, max_sges);
	if (layout->count == 1)
		shape = SHAPE_ONE;
	for (i = layout->count - 1; i >= 0; i--) {
		layout->part[i].offset = offset;
		layout->part[i].length = part_length(shape, size, i,
						     layout->count);
		offset += layout->part[i].length + GAP_BYTES;
	}
}

void make_contiguous(struct layout *layout, size_t offset, uint32_t size)
{
	make_layout(layout, SHAPE_ONE, offset, size, 1);
}

int layout_sges(const struct layout *layout, const struct region *region,
		struct ibv_sge *sges)
{
	int i;

	for (i = 0; i < layout->count; i++)
		sges[i] = region_sge(region, layout->part[i].offset,
				     layout->part[i].length);
	return layout->count;
}

void write_layout(uint8_t *memory, const struct layout *layout,
		  const uint8_t *bytes)
{
	int i;

	for (i = 0; i < layout->count; i++) {
		memcpy(memory + layout->part[i].offset, bytes,
		       layout->part[i].length);
		bytes += layout->part[i].length;
	}
}
