// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The provider knows a child of fork() from its parent, however it was made, and where
 * both are process 1 of their namespaces.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../providers/mic/process.h"
#include "tap.h"

static int refused;

/* The provider calls this one. */
int madvise(void *addr, size_t length, int advice)
{
	return refused ? -1 : (int)syscall(SYS_madvise, addr, length, advice);
}

static pid_t fork_plainly(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static int status_of(pid_t pid)
{
	int status = -1;

	if (pid < 0)
		return -1;
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* In a process: 0 if a child of it has a number of its own, and so has its child. */
static int differs(pid_t (*make)(void), int generations)
{
	const uint32_t mine = mic_process();
	pid_t pid;

	if (!mine || mic_process() != mine)
		return 1;
	if (!generations)
		return 0;
	pid = make();
	if (!pid)
		_exit(mic_process() == mine ? 2 :
					      differs(make, generations - 1));
	return status_of(pid);
}

static bool children_differ(pid_t (*make)(void))
{
	int status = differs(make, 2);

	return check(!status, "it ends with %d", status);
}

/* Process 1 has a child that is process 1. */
static bool first_ones_differ(void)
{
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWPID))
		bail("no namespace of pids");
	pid = fork();
	if (!pid) {
		const uint32_t mine = mic_process();

		if (getpid() != 1 || unshare(CLONE_NEWPID))
			_exit(3);
		pid = fork();
		if (!pid)
			_exit(getpid() != 1 ? 4 : mic_process() == mine);
		_exit(status_of(pid));
	}
	status = status_of(pid);
	return check(!status, "it ends with %d", status);
}

/* In a child, for a process decides once. */
static bool falls_back(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		refused = 1;
		_exit(differs(fork, 2));
	}
	status = status_of(pid);
	return check(!status, "it ends with %d", status);
}

int main(void)
{
	tap_ok(falls_back(), "where the kernel does not clear a page");
	tap_ok(children_differ(fork), "children of fork()");
	tap_ok(children_differ(fork_plainly),
	       "children that libc has not made");
	tap_ok(first_ones_differ(), "both are process 1");
	return tap_end();
}
