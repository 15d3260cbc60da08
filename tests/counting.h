/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Counting instructions by the clock of a machine on which an instruction takes a
 * nanosecond, whatever it does (./run vm --icount).
 */
#ifndef TESTS_COUNTING_H
#define TESTS_COUNTING_H

#include <stdbool.h>
#include <stdint.h>

uint64_t now_ns(void);

/* Interrupts make some longer: that in the middle of @n, which are sorted then. */
uint64_t median(uint64_t *values, unsigned int n);

/* What it takes to look at the clock. */
uint64_t clock_cost(void);

/* The clock of a machine that counts says the same of the same loop, each time. */
bool clock_counts(void);

#endif /* TESTS_COUNTING_H */
