/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The kernel's fault injection: the n-th allocation, or copy from or to user space, that
 * a thread makes in the kernel fails. Only the debug kernel has it.
 */
#ifndef TESTS_FAIL_H
#define TESTS_FAIL_H

#include <stdbool.h>
#include <sys/types.h>

/* False if there is none. */
bool fail_open(void);

/* That one of this thread, from now on; 0: none. */
void fail_nth(unsigned int n);

/* Did it fail since? */
bool has_failed(void);

/* The same for another thread of this machine; false if it is not there. */
bool fail_nth_of(pid_t thread, unsigned int n);
bool has_failed_of(pid_t thread);

#endif /* TESTS_FAIL_H */
