/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the tests of limits have in common: figures, and much address space.
 */
#ifndef TESTS_MEASURE_H
#define TESTS_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t now_us(void);

/* A line of /proc/meminfo. */
long meminfo_kb(const char *key);

/*
 * Bytes of the objects in all slabs. Those that are free but on a page with others are
 * not counted, and what processors keep at hand is given back first.
 */
uint64_t slab_bytes(void);

/* The debug kernel's checkers add to each object, and free late. */
bool is_debug_kernel(void);

/*
 * @length bytes of addresses for a few pages of memory, which appear again and
 * again.
 */
uint8_t *map_repeated(size_t length, size_t memory);

#endif /* TESTS_MEASURE_H */
