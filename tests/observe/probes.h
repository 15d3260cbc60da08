/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Probes of functions of the kernel, most of them for locks, and what they see: each
 * tells the function's first argument, as "lock=", and who has called it, as "caller=".
 * On one processor: see tests/locks.test.
 */
#ifndef TESTS_OBSERVE_PROBES_H
#define TESTS_OBSERVE_PROBES_H

#include <stdbool.h>

struct probe {
	const char *name; /* as lines have it */
	const char *function;
};

/*
 * False if the kernel has no probes. Of the @count functions it may not have all; the
 * test ends if there are fewer than @least.
 */
bool probes_open(const struct probe *probes, unsigned int count,
		 unsigned int least);
void probes_close(void);

/* Only what this process does is seen. */
void probes_of_this_process(void);

void probes_on(void);

/*
 * Give each line that was seen since then to @add, with @to: "THREAD-PID [CPU] ...
 * NAME: (ADDRESS) lock=ADDRESS caller=FUNCTION [MODULE]". False, with a remark, if not
 * all of it fitted into the buffer.
 */
bool probes_off(void (*add)(void *to, const char *line), void *to);

#endif /* TESTS_OBSERVE_PROBES_H */
