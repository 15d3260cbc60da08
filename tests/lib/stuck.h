/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Where a process is that does not end: it may wait in user space for what it spoiled
 * itself, but not in the kernel.
 */
#ifndef TESTS_STUCK_H
#define TESTS_STUCK_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Watch the threads of @pid for so many milliseconds. Is one of them held up in the
 * kernel all the while: it waits in one system call, or is at work there and hardly ever
 * comes back? Says so, and where. Who waits for a futex waits for another thread.
 */
bool is_stuck(pid_t pid, unsigned int ms);

#endif /* TESTS_STUCK_H */
