/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * What happens just before the library makes a system call, or in its place.
 */
#ifndef SCIF_TESTS_HOOKS_H
#define SCIF_TESTS_HOOKS_H

#include <stdbool.h>

enum hooked {
	HOOK_SLEEP,
	HOOK_RECV,
	HOOK_SEND,
	HOOK_CREATE_CQ,
	HOOK_SETSOCKOPT,
	HOOKS
};

/*
 * Before this thread's next call of that function, @run, once. If it returns an errno,
 * the call fails with it. HOOK_SLEEP: poll() and ppoll() that wait. NULL: none.
 */
void hook_next(enum hooked which, int (*run)(void));

/* Has it not run yet? */
bool hook_waits(enum hooked which);

#endif /* SCIF_TESTS_HOOKS_H */
