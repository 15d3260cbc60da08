/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the tests of limits have in common: figures, and much address space.
 */
#ifndef TESTS_MEASURE_H
#define TESTS_MEASURE_H

#include <stddef.h>
#include <stdint.h>

uint64_t now_us(void);

/* A line of /proc/meminfo. */
long meminfo_kb(const char *key);

/*
 * @length bytes of addresses for a few pages of memory, which appear again and
 * again.
 */
uint8_t *map_repeated(size_t length, size_t memory);

#endif /* TESTS_MEASURE_H */
