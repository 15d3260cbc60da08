/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the parts of threads share.
 */
#ifndef TESTS_THREADS_H
#define TESTS_THREADS_H

#include <stdbool.h>

#include "setup.h"

/*
 * threads_urgent.c: who waits for a copy that another thread is at lets it go on, and
 * has other things go on, too.
 */
bool waits_for_copies(struct setup *setup);

#endif /* TESTS_THREADS_H */
