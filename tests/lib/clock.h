/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Deadlines that tell a hang from a slow machine, and waiting without one.
 */
#ifndef TESTS_CLOCK_H
#define TESTS_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

uint64_t now_ms(void);

/*
 * When something that has to happen has not happened: 30 seconds from now,
 * or MIC_TEST_PATIENCE milliseconds, times MIC_SLOW.
 */
uint64_t deadline(void);

/* How much slower than others this kernel is: MIC_SLOW. */
unsigned int slowness(void);

/* Let others run; @round counts the calls since something happened. */
void relax(unsigned int round);

void sleep_ms(unsigned int ms);

/* Wait until @fd is readable, at most @ms. */
bool readable_within(int fd, int ms);

/* Wait until @fd is readable, until the deadline. */
bool becomes_readable(int fd);

/* Until there is @value at @place, a multiple of 4; @what it is, if it is not. */
bool becomes_word(const uint8_t *place, uint64_t value, const char *what);

#endif /* TESTS_CLOCK_H */
