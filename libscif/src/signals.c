// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Signals that end a call. In the kernel, a call that is about to sleep sees a signal
 * that came before it does. A handler that runs between the library's look and its
 * sleep would be forgotten; so from the last look on a call holds back all signals, and
 * only its sleep, ppoll(), lets them in. One that comes before that look is one that came
 * before the call, so what sends, receives or polls without a sleep makes no system call.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>

#include "internal.h"

/* Of this thread's call: are they held back, and what was blocked before? */
static __thread bool held;
static __thread sigset_t before;

/* All but those that tell of a fault: a thread that blocks these is killed by one. */
static void fill(sigset_t *set)
{
	static const int faults[] = { SIGSEGV, SIGBUS,	SIGILL,
				      SIGFPE,  SIGTRAP, SIGSYS };
	unsigned int i;

	sigfillset(set);
	for (i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(set, faults[i]);
}

void scif_signals_hold(void)
{
	sigset_t most;

	if (held)
		return;
	fill(&most);
	held = !pthread_sigmask(SIG_BLOCK, &most, &before);
}

/* The handlers of those that came run here. */
void scif_signals_release(void)
{
	int err = errno;

	if (!held)
		return;
	held = false;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = err;
}

static void let_in(void *mask)
{
	if (mask)
		pthread_sigmask(SIG_SETMASK, mask, NULL);
}

/*
 * A handler that runs meanwhile may call the library: that call has signals of its own to
 * hold back. And where the thread may be cancelled, it ends with none held back.
 */
int scif_signals_poll(struct pollfd *fds, unsigned int count, int wait_ms)
{
	const struct timespec limit = { .tv_sec = wait_ms / 1000,
					.tv_nsec = wait_ms % 1000 * 1000000L };
	const bool were_held = held;
	sigset_t mask = before;
	int ret;

	held = false;
	pthread_cleanup_push(let_in, were_held ? &mask : NULL);
	ret = ppoll(fds, count, wait_ms < 0 ? NULL : &limit,
		    were_held ? &mask : NULL);
	pthread_cleanup_pop(0);
	before = mask;
	held = were_held;
	return ret;
}
