/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * What the cases of mapping and of unmapping share.
 */
#ifndef SCIF_TESTS_MAPPINGS_H
#define SCIF_TESTS_MAPPINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <scif.h>

enum {
	PAGE = 4096,
	RW = SCIF_PROT_READ | SCIF_PROT_WRITE,
	FIXED = SCIF_MAP_FIXED
};

/* The peer's: three windows side by side, of memory that is not, the last to read. */
void register_three(int epd);
/* Says the test script: the device can map. */
bool can_map(void);
/* Of the peer's memory. */
bool peer_has(int64_t place, uint64_t value, const char *what);
/* Is nothing mapped here? */
bool is_nothing(volatile uint64_t *word);

#endif /* SCIF_TESTS_MAPPINGS_H */
