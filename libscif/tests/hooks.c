// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>

#include "hooks.h"

static __thread int (*hooks[HOOKS])(void);

void hook_next(enum hooked which, int (*run)(void))
{
	hooks[which] = run;
}

bool hook_waits(enum hooked which)
{
	return hooks[which];
}

/* False, with errno, if the call is to fail. */
static bool pass(enum hooked which)
{
	int (*run)(void) = hooks[which];
	int err;

	hooks[which] = NULL;
	err = run ? run() : 0;
	if (err)
		errno = err;
	return !err;
}

/* What the library calls. */
int poll(struct pollfd *fds, nfds_t count, int wait)
{
	typeof(poll) *next = dlsym(RTLD_NEXT, "poll");

	return !wait || pass(HOOK_SLEEP) ? next(fds, count, wait) : -1;
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *wait,
	  const sigset_t *mask)
{
	typeof(ppoll) *next = dlsym(RTLD_NEXT, "ppoll");
	const bool sleeps = !wait || wait->tv_sec || wait->tv_nsec;

	return !sleeps || pass(HOOK_SLEEP) ? next(fds, count, wait, mask) : -1;
}

ssize_t recv(int fd, void *bytes, size_t length, int flags)
{
	typeof(recv) *next = dlsym(RTLD_NEXT, "recv");

	return pass(HOOK_RECV) ? next(fd, bytes, length, flags) : -1;
}

ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
	typeof(send) *next = dlsym(RTLD_NEXT, "send");

	return pass(HOOK_SEND) ? next(fd, bytes, length, flags) : -1;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int depth, void *owner,
			     struct ibv_comp_channel *channel, int vector)
{
	typeof(ibv_create_cq) *next = dlsym(RTLD_NEXT, "ibv_create_cq");

	return pass(HOOK_CREATE_CQ) ? next(ctx, depth, owner, channel, vector) :
				      NULL;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
	typeof(setsockopt) *next = dlsym(RTLD_NEXT, "setsockopt");

	return pass(HOOK_SETSOCKOPT) ? next(fd, level, name, value, length) :
				       -1;
}
