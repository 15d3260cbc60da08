// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * scif_poll(): what is so now, and waiting on the descriptors until it changes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

_Static_assert(sizeof(struct scif_pollepd) == sizeof(struct pollfd) &&
		       offsetof(struct scif_pollepd, revents) ==
			       offsetof(struct pollfd, revents),
	       "the same layout");

static short ready_connected(struct scif_endpoint *ep)
{
	short ready = 0;

	if (scif_bytes(ep))
		ready |= POLLIN;
	if (scif_room(ep))
		ready |= POLLOUT;
	return ready;
}

short scif_ready(struct scif_endpoint *ep)
{
	switch (scif_state(ep)) {
	case SCIF_LISTENING:
		if (ep->pending)
			return POLLIN;
		return atomic_load(&ep->removed) ? POLLERR : 0;
	case SCIF_CONNECTING:
		return 0;
	case SCIF_CONNECTED:
		return ready_connected(ep);
	case SCIF_DISCONNECTED:
		return POLLHUP | (scif_bytes(ep) ? POLLIN : 0) |
		       (ep->connect_untold ? POLLOUT : 0);
	case SCIF_CLOSED:
		return POLLNVAL;
	default:
		/* The result of scif_connect() waits, or nothing can come. */
		return ep->connect_error ? POLLOUT : POLLERR;
	}
}

/* There is but one kind of data. */
static short with_normal(short ready)
{
	return ready | (ready & POLLIN ? POLLRDNORM : 0) |
	       (ready & POLLOUT ? POLLWRNORM | POLLWRBAND : 0);
}

/* What is so for all of them; how many have something. */
static int look(struct scif_pollepd *epds, struct pollfd *fds,
		unsigned int count)
{
	const short always = POLLERR | POLLHUP | POLLNVAL;
	struct scif_endpoint *ep;
	unsigned int i;
	int found = 0;

	for (i = 0; i < count; i++) {
		fds[i].fd = epds[i].epd;
		fds[i].events = epds[i].events;
		fds[i].revents = 0;
		epds[i].revents = 0;
		ep = epds[i].epd < 0 ? NULL : scif_get(epds[i].epd);
		if (!ep)
			continue;
		scif_cool(ep, epds[i].epd);
		/* What was shown must not wake poll() for nothing. */
		scif_refresh(ep, epds[i].epd);
		epds[i].revents = with_normal(scif_ready(ep)) &
				  (epds[i].events | always);
		found += epds[i].revents != 0;
		scif_put(ep);
	}
	return found;
}

/* Descriptors that are no endpoints, as poll() sees them. */
static int add_others(struct scif_pollepd *epds, const struct pollfd *fds,
		      unsigned int count)
{
	struct scif_endpoint *ep;
	unsigned int i;
	int found = 0;

	for (i = 0; i < count; i++) {
		if (!fds[i].revents)
			continue;
		ep = scif_get(fds[i].fd);
		if (ep) {
			scif_put(ep);
		} else {
			epds[i].revents = fds[i].revents;
			found++;
		}
	}
	return found;
}

/*
 * How long to sleep, not after @end. And not for long: who sleeps keeps the files open,
 * so that one that another thread closes meanwhile ends only after the next look.
 */
static int nap(uint64_t now, uint64_t end)
{
	if (now >= end)
		return 0;
	return end - now < SCIF_SLEEP_MS ? (int)(end - now) : SCIF_SLEEP_MS;
}

/* Here the thread may be cancelled: it has nothing but @fds. */
static int sleep_on(struct pollfd *fds, unsigned int count, int wait,
		    int cancel_state)
{
	int ret;

	pthread_cleanup_push(free, fds);
	pthread_setcancelstate(cancel_state, NULL);
	ret = scif_signals_poll(fds, count, wait);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cleanup_pop(0);
	return ret;
}

static int do_poll(struct scif_pollepd *epds, struct pollfd *fds,
		   unsigned int count, long timeout_ms, int cancel_state)
{
	uint64_t end = timeout_ms < 0 ? UINT64_MAX : scif_now_ms() + timeout_ms;
	int found, wait;

	for (;;) {
		found = look(epds, fds, count);
		wait = found ? 0 : nap(scif_now_ms(), end);
		if (wait)
			scif_signals_hold();
		if (sleep_on(fds, count, wait, cancel_state) < 0 && !found)
			return -1;
		found += add_others(epds, fds, count);
		if (found || !wait)
			return found;
	}
}

SCIF_EXPORT int scif_poll(struct scif_pollepd *epds, unsigned int nepds,
			  long timeout_ms)
{
	SCIF_NO_CANCEL;
	struct pollfd *fds;
	int ret;

	if (nepds > INT_MAX / sizeof(*fds))
		return scif_fail(EINVAL);
	/* The kernel reads and writes them first, or says EFAULT. */
	if (poll((struct pollfd *)epds, nepds, 0) < 0)
		return -1;
	fds = calloc(nepds + 1, sizeof(*fds));
	if (!fds)
		return scif_fail(ENOMEM);
	ret = do_poll(epds, fds, nepds, timeout_ms, cancel_state);
	free(fds);
	return ret;
}
