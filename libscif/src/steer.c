// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * The descriptor of an endpoint is one end of a socket pair, and the library
 * has the other: the steer. What poll() says about the user's end:
 *
 * POLLIN   while a byte is queued for it
 * POLLOUT  until what was written through it, and not read by the steer, fills
 *          its buffer
 * POLLHUP  when the steer has been shut down; POLLIN comes with it
 *
 * The user's end is never kept, so the last close() of it is seen at the
 * steer. To take back POLLIN or POLLOUT needs the user's end; only calls that
 * were given the descriptor can do that, and only they have to. They use a number
 * of their own for it: the one that they were given may become a stranger's at any
 * moment.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

enum { FILLER = 2048, FILLERS = 16 };

int scif_steer_open(struct scif_steer *steer, uint64_t *inode)
{
	struct stat status;
	int ends[2], least = 1;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return -1;
	if (fstat(ends[0], &status) ||
	    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least))) {
		close(ends[0]);
		close(ends[1]);
		return -1;
	}
	*inode = status.st_ino;
	pthread_mutex_init(&steer->lock, NULL);
	atomic_init(&steer->fd, ends[1]);
	atomic_init(&steer->in, false);
	atomic_init(&steer->out, true);
	atomic_init(&steer->hup, false);
	atomic_init(&steer->reset, false);
	return ends[0];
}

void scif_steer_end(struct scif_steer *steer)
{
	int fd;

	pthread_mutex_lock(&steer->lock);
	fd = atomic_exchange(&steer->fd, -1);
	if (fd >= 0)
		close(fd);
	pthread_mutex_unlock(&steer->lock);
}

void scif_steer_close(struct scif_steer *steer)
{
	scif_steer_end(steer);
	pthread_mutex_destroy(&steer->lock);
}

/*
 * When the user's end goes, the steer gets a hangup. If it was shut down
 * before, it has one already, but then there also was a byte left unread,
 * whose loss is an error, for whoever asks first. This must not wait for the
 * lock, whose owner may wait for the peer.
 */
bool scif_steer_is_closed(struct scif_steer *steer)
{
	struct pollfd pollfd = { .fd = steer->fd };
	bool closed = false;

	if (pollfd.fd < 0 || atomic_load(&steer->reset))
		return true;
	if (poll(&pollfd, 1, 0) >= 0)
		closed = pollfd.revents &
			 (atomic_load(&steer->hup) ? POLLERR : POLLHUP);
	return closed;
}

/* Another thread may have closed it, and a stranger may have its number. */
bool scif_is_own(struct scif_endpoint *ep, scif_epd_t epd)
{
	struct stat status;

	return epd >= 0 && !fstat(epd, &status) && S_ISSOCK(status.st_mode) &&
	       status.st_ino == ep->inode;
}

/* Who takes away a number that the library has told nobody yet may be too quick. */
void scif_close_own(struct scif_endpoint *ep, scif_epd_t epd)
{
	if (scif_is_own(ep, epd))
		close(epd);
}

static void note_error(struct scif_steer *steer)
{
	if (errno == ECONNRESET)
		atomic_store(&steer->reset, true);
}

static void raise_in(struct scif_steer *steer)
{
	if (steer->in || atomic_load(&steer->fd) < 0)
		return;
	steer->in = send(steer->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
	if (!steer->in)
		note_error(steer);
}

static void give_back(struct scif_endpoint *ep, scif_epd_t epd, int number)
{
	if (number >= 0 && number != epd)
		close(number);
	/* Who closes the endpoint waits for this, and looks then if it has ended. */
	atomic_fetch_sub(&ep->sleepers, 1);
}

/*
 * A number for the user's end that stays this one's until give_back(); -1 if @epd is a
 * stranger's. Where the process may have no more numbers it is @epd itself, which was
 * the endpoint's a moment ago.
 */
static int borrow(struct scif_endpoint *ep, scif_epd_t epd)
{
	int number = -1;

	atomic_fetch_add(&ep->sleepers, 1);
	/* To close another number of a file of a stranger would end locks that it has. */
	if (scif_is_own(ep, epd)) {
		number = fcntl(epd, F_DUPFD_CLOEXEC, 0);
		if (number < 0 && errno == EMFILE)
			number = epd;
	}
	if (number >= 0 && scif_is_own(ep, number))
		return number;
	give_back(ep, epd, number);
	return -1;
}

static void lower_in(struct scif_endpoint *ep, scif_epd_t epd)
{
	struct scif_steer *steer = &ep->steer;
	char bytes[16];
	int number;

	if (!steer->in)
		return;
	number = borrow(ep, epd);
	if (number < 0)
		return;
	while (recv(number, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	steer->in = false;
	give_back(ep, epd, number);
}

static void raise_out(struct scif_steer *steer)
{
	char bytes[FILLER];
	ssize_t ret;

	if (steer->out || atomic_load(&steer->fd) < 0)
		return;
	do
		ret = recv(steer->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	while (ret > 0);
	if (ret < 0)
		note_error(steer);
	steer->out = true;
}

static void lower_out(struct scif_endpoint *ep, scif_epd_t epd)
{
	static const char filler[FILLER];
	struct pollfd pollfd = { .events = POLLOUT };
	struct scif_steer *steer = &ep->steer;
	int i;

	if (!steer->out)
		return;
	pollfd.fd = borrow(ep, epd);
	if (pollfd.fd < 0)
		return;
	for (i = 0; i < FILLERS; i++) {
		if (poll(&pollfd, 1, 0) <= 0 || !(pollfd.revents & POLLOUT))
			break;
		send(pollfd.fd, filler, sizeof(filler),
		     MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	steer->out = false;
	give_back(ep, epd, pollfd.fd);
}

static void hang_up(struct scif_steer *steer)
{
	if (atomic_load(&steer->hup) || atomic_load(&steer->fd) < 0)
		return;
	raise_in(steer);
	raise_out(steer);
	/* Without a byte there the user's end is gone, and shows nothing. */
	if (!steer->in)
		return;
	atomic_store(&steer->hup, true); /* before a hangup shows */
	shutdown(steer->fd, SHUT_RDWR);
}

/* For who waits for a change only, and sees none: what is there is shown anew. */
void scif_show_again(struct scif_endpoint *ep, scif_epd_t epd)
{
	struct scif_steer *steer = &ep->steer;

	pthread_mutex_lock(&steer->lock);
	if (scif_ready(ep) & POLLIN) {
		lower_in(ep, epd);
		raise_in(steer);
	}
	pthread_mutex_unlock(&steer->lock);
}

void scif_refresh(struct scif_endpoint *ep, scif_epd_t epd)
{
	struct scif_steer *steer = &ep->steer;
	short ready;

	pthread_mutex_lock(&steer->lock);
	if (scif_state(ep) == SCIF_CONNECTED)
		scif_arm(ep);
	ready = scif_ready(ep);
	if (scif_state(ep) == SCIF_CLOSED || ready & POLLHUP) {
		hang_up(steer);
		goto unlock;
	}
	/* What poll() cannot show; a socket with an error is both, too. */
	if (ready & POLLERR)
		ready |= POLLIN | POLLOUT;
	if (ready & POLLIN)
		raise_in(steer);
	else
		lower_in(ep, epd);
	if (ready & POLLOUT)
		raise_out(steer);
	else
		lower_out(ep, epd);
unlock:
	pthread_mutex_unlock(&steer->lock);
}

/*
 * Sleep until the descriptor shows @event; 0, EINTR, or EBADF if it was closed
 * meanwhile. Not for long: after the look that comes first, its number may have
 * become a stranger's. Who sleeps looks again what there is.
 */
int scif_sleep(struct scif_endpoint *ep, scif_epd_t epd, short event)
{
	struct pollfd pollfd = { .fd = epd, .events = event };
	unsigned int closes = atomic_load(&ep->closes);
	int err = 0;

	atomic_fetch_add(&ep->sleepers, 1);
	/* A close that did not see the sleeper was before this look. */
	if (!scif_is_own(ep, epd))
		err = EBADF;
	else if (scif_signals_poll(&pollfd, 1, SCIF_SLEEP_MS) < 0)
		err = errno;
	atomic_fetch_sub(&ep->sleepers, 1);
	if (!err && atomic_load(&ep->closes) != closes && !scif_is_own(ep, epd))
		err = EBADF;
	return err;
}

/*
 * A descriptor was closed, but sleepers may hold the file. Those that came by
 * the closed one leave, and when no other is left, the steer gets its hangup.
 */
void scif_wake_sleepers(struct scif_endpoint *ep)
{
	if (!atomic_load(&ep->sleepers))
		return;
	atomic_fetch_add(&ep->closes, 1);
	pthread_mutex_lock(&ep->steer.lock);
	raise_in(&ep->steer);
	raise_out(&ep->steer);
	pthread_mutex_unlock(&ep->steer.lock);
}
