/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory that two processes on two machines have at the same addresses: which pages
 * that are, and what has changed of them since the other process heard of it.
 */
#ifndef TESTS_MIRROR_H
#define TESTS_MIRROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PATCH_BYTES = 64 };

struct patch {
	uint64_t addr;
	uint8_t bytes[PATCH_BYTES];
};

/* The pages that these bytes are in. */
void mirror_add(uint64_t addr, size_t length);
void mirror_drop(uint64_t addr, size_t length);
bool mirror_has(uint64_t addr, size_t length);
bool mirror_has_page(uint64_t page);

/* On both sides they are zero by now. */
void mirror_cleared(uint64_t addr, size_t length);

/* What has changed; valid until the next call. */
const struct patch *mirror_changes(uint32_t *count);
void mirror_apply(const struct patch *patches, uint32_t count);

#endif /* TESTS_MIRROR_H */
