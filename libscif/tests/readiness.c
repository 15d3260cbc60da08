// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * poll, select, epoll and scif_poll.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "behaviour.h"
#include "clock.h"
#include "pattern.h"
#include "peer.h"
#include "tap.h"

enum { RING = 4095 };

static short select_now(int fd)
{
	struct timeval zero = { 0, 0 };
	fd_set in, out;
	short result = 0;

	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(fd, &in);
	FD_SET(fd, &out);
	select(fd + 1, &in, &out, NULL, &zero);
	if (FD_ISSET(fd, &in))
		result |= POLLIN;
	if (FD_ISSET(fd, &out))
		result |= POLLOUT;
	return result;
}

static short epoll_now(int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT };
	int epoll = epoll_create1(0);
	short result = 0;

	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
	if (epoll_wait(epoll, &event, 1, 0) == 1)
		result = event.events;
	close(epoll);
	return result;
}

/* Do all four say @expected, now? */
static bool all_say(int epd, short expected, const char *when)
{
	short one = poll_now(epd), two = select_now(epd);
	short three = epoll_now(epd), four = scif_poll_now(epd);

	return check(one == expected && two == expected && three == expected &&
			     four == expected,
		     "%s: poll 0x%x, select 0x%x, epoll 0x%x, scif_poll 0x%x, "
		     "expected 0x%x",
		     when, one, two, three, four, expected);
}

static bool listening(void)
{
	struct peer_call call = { .op = PEER_OPEN };
	int epd = scif_open(), new;
	struct scif_port_id port;
	bool ok;

	call.port.node = own_node;
	call.port.port = scif_bind(epd, 0);
	scif_listen(epd, 2);
	ok = all_say(epd, 0, "nobody");
	call.epd = peer_do(&call);
	call.op = PEER_CONNECT;
	peer_begin(&call);
	ok = shows(epd, POLLIN) && all_say(epd, POLLIN, "a request") && ok;
	ok = succeeds(scif_accept(epd, &port, &new, 0), 0, "accept") && ok;
	ok = all_say(epd, 0, "accepted") && ok;
	peer_finish(&call);
	close_pair(new, call.epd);
	scif_close(epd);
	return ok;
}

static bool connected(void)
{
	uint8_t bytes[RING];
	int own, other;
	bool ok;

	memset(bytes, 1, sizeof(bytes));
	connect_pair(&own, &other);
	ok = all_say(own, POLLOUT, "idle");
	peer_send(other, bytes, 5, 1);
	ok = shows(own, POLLIN) && all_say(own, POLLIN | POLLOUT, "5 bytes") &&
	     ok;
	scif_recv(own, bytes, 4, 0);
	ok = all_say(own, POLLIN | POLLOUT, "1 byte") && ok;
	scif_recv(own, bytes, 1, 0);
	ok = all_say(own, POLLOUT, "0 bytes") && ok;
	ok = succeeds(scif_send(own, bytes, RING, 0), RING, "send") &&
	     all_say(own, 0, "no room") && ok;
	peer_recv(other, bytes, 1, 0);
	ok = shows(own, POLLOUT) && all_say(own, POLLOUT, "room for 1") && ok;
	ok = succeeds(scif_send(own, bytes, 2, 0), 1, "send 1") &&
	     all_say(own, 0, "no room again") && ok;
	peer_send(other, bytes, 1, 1);
	ok = shows(own, POLLIN) && all_say(own, POLLIN, "a byte, no room") &&
	     ok;
	close_pair(own, other);
	return ok;
}

static bool peer_gone(void)
{
	char bytes[8];
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	peer_send(other, "abcd", 4, 1);
	peer_op_epd(PEER_CLOSE, other);
	ok = shows(own, POLLHUP) &&
	     check(scif_poll_now(own) == (POLLHUP | POLLIN), "bytes remain") &&
	     check((poll_now(own) & (POLLHUP | POLLIN)) == (POLLHUP | POLLIN),
		   "poll: 0x%x", poll_now(own)) &&
	     check((epoll_now(own) & (POLLHUP | POLLIN)) == (POLLHUP | POLLIN),
		   "epoll: 0x%x", epoll_now(own)) &&
	     check(select_now(own) & POLLIN, "select: 0x%x", select_now(own)) &&
	     succeeds(scif_recv(own, bytes, 8, 0), 4, "recv") &&
	     check(scif_poll_now(own) == POLLHUP, "nothing remains: 0x%x",
		   scif_poll_now(own));
	scif_close(own);
	return ok;
}

static bool other_states(void)
{
	int epd = scif_open();
	bool ok = check(scif_poll_now(epd) == POLLERR, "unbound: 0x%x",
			scif_poll_now(epd));

	scif_bind(epd, 0);
	ok = check(scif_poll_now(epd) == POLLERR, "bound: 0x%x",
		   scif_poll_now(epd)) &&
	     ok;
	/* What a socket pair can show of it, and select() says of errors. */
	ok = check(poll_now(epd) == (POLLIN | POLLOUT), "poll: 0x%x",
		   poll_now(epd)) &&
	     ok;
	scif_close(epd);
	return ok;
}

/* Does a sleeping poll, epoll or scif_poll wake for @event? */
struct sleeper {
	int epd;
	int how;
	short event;
	short result;
};

static void *sleep_for(void *argument)
{
	struct sleeper *sleeper = argument;
	struct scif_pollepd entry = { sleeper->epd, sleeper->event, 0 };
	struct pollfd pollfd = { sleeper->epd, sleeper->event, 0 };
	struct epoll_event event = { .events = sleeper->event | EPOLLET };
	int epoll;

	switch (sleeper->how) {
	case 0:
		poll(&pollfd, 1, 20000);
		sleeper->result = pollfd.revents;
		break;
	case 1:
		scif_poll(&entry, 1, 20000);
		sleeper->result = entry.revents;
		break;
	default:
		epoll = epoll_create1(0);
		epoll_ctl(epoll, EPOLL_CTL_ADD, sleeper->epd, &event);
		event.events = 0;
		epoll_wait(epoll, &event, 1, 20000);
		sleeper->result = event.events;
		close(epoll);
	}
	return NULL;
}

static bool sleepers(void)
{
	uint8_t bytes[RING] = { 0 };
	struct sleeper sleeper;
	pthread_t thread;
	int own, other, how;
	bool ok = true;

	connect_pair(&own, &other);
	for (how = 0; how < 3; how++) {
		sleeper = (struct sleeper){ own, how, POLLIN, 0 };
		pthread_create(&thread, NULL, sleep_for, &sleeper);
		sleep_ms(30);
		peer_send(other, "x", 1, 1);
		pthread_join(thread, NULL);
		ok = check(sleeper.result == POLLIN, "IN, way %d: 0x%x", how,
			   sleeper.result) &&
		     ok;
		scif_recv(own, bytes, 1, 0);
		scif_send(own, bytes, RING, 0);
		sleeper = (struct sleeper){ own, how, POLLOUT, 0 };
		pthread_create(&thread, NULL, sleep_for, &sleeper);
		sleep_ms(30);
		peer_recv(other, bytes, RING, 0);
		pthread_join(thread, NULL);
		ok = check(sleeper.result == POLLOUT, "OUT, way %d: 0x%x", how,
			   sleeper.result) &&
		     ok;
	}
	close_pair(own, other);
	return ok;
}

/* HUP wakes also who asks for nothing. */
static bool wakes_by_hangup(int how, short event, short expected)
{
	struct sleeper sleeper = { .how = how, .event = event };
	pthread_t thread;
	int other;

	connect_pair(&sleeper.epd, &other);
	pthread_create(&thread, NULL, sleep_for, &sleeper);
	sleep_ms(100);
	peer_op_epd(PEER_CLOSE, other);
	pthread_join(thread, NULL);
	scif_close(sleeper.epd);
	return check(sleeper.result == expected, "way %d: 0x%x, expected 0x%x",
		     how, sleeper.result, expected);
}

static bool hangup(void)
{
	bool ok = true;
	int how;

	for (how = 0; how < 3; how++)
		ok = wakes_by_hangup(how, 0, POLLHUP) && ok;
	return wakes_by_hangup(1, POLLIN, POLLHUP) && ok;
}

static bool poll_arguments(void)
{
	struct scif_pollepd entries[3];
	int pipes[2], epd = scif_open();
	bool ok;

	if (pipe2(pipes, O_CLOEXEC))
		return check(false, "pipe");
	entries[0] = (struct scif_pollepd){ -1, POLLIN, 77 };
	entries[1] = (struct scif_pollepd){ pipes[1], POLLOUT, 0 };
	entries[2] = (struct scif_pollepd){ epd, POLLIN, 0 };
	ok = succeeds(scif_poll(entries, 3, -1), 2, "mixed") &&
	     check(!entries[0].revents && entries[1].revents == POLLOUT &&
			   entries[2].revents == POLLERR,
		   "0x%x 0x%x 0x%x", entries[0].revents, entries[1].revents,
		   entries[2].revents);
	scif_close(epd);
	close(pipes[1]);
	entries[1].epd = epd;
	ok = succeeds(scif_poll(entries + 1, 1, 100), 1, "closed") &&
	     check(entries[1].revents == POLLNVAL, "0x%x",
		   entries[1].revents) &&
	     succeeds(scif_poll(NULL, 0, 1), 0, "none") &&
	     fails(scif_poll(NULL, 1, 0), EFAULT, "NULL") && ok;
	close(pipes[0]);
	return ok;
}

/* Entries that cannot be read, or not be written. */
static bool bad_entries(void)
{
	struct scif_pollepd *entries = (void *)fresh_pages(8192);
	const size_t page = 4096 / sizeof(*entries);
	int epd = scif_open();
	bool ok;

	entries[page - 1] = (struct scif_pollepd){ epd, POLLIN, 0 };
	mprotect(entries + page, 4096, PROT_NONE);
	ok = fails(scif_poll(entries + page, 1, -1), EFAULT, "a hole") &&
	     fails(scif_poll(entries + page - 1, 2, -1), EFAULT,
		   "the second one in a hole");
	mprotect(entries, 4096, PROT_READ);
	ok = fails(scif_poll(entries + page - 1, 1, -1), EFAULT, "read-only") &&
	     ok;
	mprotect(entries, 4096, PROT_READ | PROT_WRITE);
	ok = succeeds(scif_poll(entries + page - 1, 1, -1), 1, "good") &&
	     check(entries[page - 1].revents == POLLERR, "0x%x",
		   entries[page - 1].revents) &&
	     ok;
	scif_close(epd);
	munmap(entries, 8192);
	return ok;
}

/* poll(2) has these beside IN and OUT. */
static bool normal_data(void)
{
	struct scif_pollepd entry = { -1, POLLRDNORM, 0 };
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	entry.epd = own;
	ok = succeeds(scif_poll(&entry, 1, 0), 0, "nothing yet") &&
	     succeeds(peer_send(other, "x", 1, 1), 1, "send") &&
	     succeeds(scif_poll(&entry, 1, -1), 1, "a byte") &&
	     check(entry.revents == POLLRDNORM, "0x%x", entry.revents);
	entry.events = POLLWRNORM;
	ok = ok && succeeds(scif_poll(&entry, 1, -1), 1, "room") &&
	     check(entry.revents == POLLWRNORM, "0x%x", entry.revents);
	entry.events = POLLWRBAND;
	ok = ok && succeeds(scif_poll(&entry, 1, -1), 1, "room, in its band") &&
	     check(entry.revents == POLLWRBAND, "0x%x", entry.revents);
	close_pair(own, other);
	return ok;
}

const struct behaviour readiness_cases[] = {
	{ 29, "listening: IN while a request is pending", listening },
	{ 30, "connected: IN and OUT", connected },
	{ 31, "the peer is gone: HUP, and IN while bytes remain", peer_gone },
	{ 32, "other states: ERR", other_states },
	{ 33, "poll, scif_poll and epoll wake", sleepers },
	{ 33, "poll, scif_poll and epoll wake when the peer closes", hangup },
	{ 33, "scif_poll with other descriptors", poll_arguments },
	{ 33, "scif_poll for RDNORM, WRNORM and WRBAND", normal_data },
	{ 33, "scif_poll with bad entries: EFAULT", bad_entries },
	{ 0, NULL, NULL }
};
