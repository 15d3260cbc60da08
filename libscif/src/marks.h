/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * Marks: a count of requests, modulo 2^30, plus 1, so that none is 0 before there were
 * as many; bit 30 tells whose they are.
 */
#ifndef SCIF_MARKS_H
#define SCIF_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#define SCIF_MARK_PEER (1 << 30)
#define SCIF_MARK_COUNT (SCIF_MARK_PEER - 1)

static inline int scif_to_mark(uint64_t posted, int kind)
{
	return (int)((posted + 1) & SCIF_MARK_COUNT) | kind;
}

/*
 * The count behind a mark, which is at most @most; false if there is none. When there
 * were 2^30 requests, each number has been a mark, and means the last such count.
 */
static inline bool scif_from_mark(int mark, uint64_t most, uint64_t *posted)
{
	uint64_t back = ((most + 1) - (uint64_t)mark) & SCIF_MARK_COUNT;

	if (mark < 0 || back > most)
		return false;
	*posted = most - back;
	return true;
}

#endif /* SCIF_MARKS_H */
