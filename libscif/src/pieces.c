// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Lists of the contiguous parts of a range.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rma.h"

void scif_pieces_init(struct scif_pieces *pieces)
{
	pieces->list = pieces->few;
	pieces->count = 0;
	pieces->room = SCIF_INLINE_PIECES;
}

void scif_pieces_free(struct scif_pieces *pieces)
{
	if (pieces->list != pieces->few)
		free(pieces->list);
}

static int grow(struct scif_pieces *pieces)
{
	unsigned int room = pieces->room * 2;
	struct scif_piece *list;

	list = malloc(room * sizeof(*list));
	if (!list)
		return ENOMEM;
	memcpy(list, pieces->list, pieces->count * sizeof(*list));
	scif_pieces_free(pieces);
	pieces->list = list;
	pieces->room = room;
	return 0;
}

int scif_pieces_add(struct scif_pieces *pieces, uint64_t addr, uint64_t length,
		    uint32_t key, uint64_t window)
{
	struct scif_piece *piece;

	if (pieces->count == pieces->room && grow(pieces))
		return ENOMEM;
	piece = &pieces->list[pieces->count++];
	piece->addr = addr;
	piece->length = length;
	piece->key = key;
	piece->window = window;
	piece->region = NULL;
	return 0;
}
