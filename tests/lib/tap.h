/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Test Anything Protocol on stdout, one line for each case.
 */
#ifndef TESTS_TAP_H
#define TESTS_TAP_H

#include <stdbool.h>

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* Report a case and return @ok. */
bool tap_ok(bool ok, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Report a case that cannot run here, and why. */
void tap_skip(const char *reason, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* A remark between the cases. */
void tap_note(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* A remark only if @ok is false. Returns @ok. */
bool check(bool ok, const char *fmt, ...) PRINTF_LIKE(2, 3);

/*
 * Say so if @ok is false, and have tap_end() report a failed case: for what no
 * case asks, but all of them rely on, as that what they used can be destroyed.
 */
void tap_must(bool ok, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* The test itself cannot go on: say so and exit. */
void bail(const char *fmt, ...) PRINTF_LIKE(1, 2) __attribute__((noreturn));

/* Print the plan. Returns the process's exit status. */
int tap_end(void);

#endif /* TESTS_TAP_H */
