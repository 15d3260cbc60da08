// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Calls that wait: signals end them, also one that comes when the call has looked and
 * does not sleep yet; and a connection that is accepted later.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/time.h>

#include "behaviour.h"
#include "clock.h"
#include "hooks.h"
#include "pattern.h"
#include "peer.h"
#include "tap.h"

enum {
	RING = 4095,
	LONG = 8192,
	SOON_MS = 300,
	RESCUE_MS = 8000, /* where the first one comes too early */
	LATE_MS = 25000
};

static volatile sig_atomic_t signals;

static void note(int signal)
{
	(void)signal;
	signals++;
}

static int signal_now(void)
{
	raise(SIGALRM);
	return 0;
}

/* Not before the first time that the call sleeps, but when it has looked again. */
static int signal_next_time(void)
{
	hook_next(HOOK_SLEEP, signal_now);
	return 0;
}

static void begin_signals(unsigned int ms)
{
	const struct itimerval timer = {
		.it_value = { ms / 1000, ms % 1000 * 1000 },
		.it_interval = { RESCUE_MS / 1000, 0 }
	};
	struct sigaction action = { .sa_handler = note };

	signals = 0;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

static void end_signals(void)
{
	static const struct itimerval never;

	setitimer(ITIMER_REAL, &never, NULL);
}

static bool none_is_blocked(const char *what)
{
	sigset_t blocked;

	pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	return check(!sigismember(&blocked, SIGALRM), "%s: signals are blocked",
		     what);
}

static bool ends_by_signal(int (*call)(int epd), int epd, const char *what)
{
	bool ok;

	begin_signals(SOON_MS);
	ok = fails(call(epd), EINTR, what);
	end_signals();
	return ok && none_is_blocked(what);
}

/* If it were forgotten, another one would end the call. */
static bool remembers_signal(int (*call)(int epd), int epd, int (*when)(void),
			     const char *what)
{
	bool ok;

	begin_signals(LATE_MS * slowness());
	hook_next(HOOK_SLEEP, when);
	ok = fails(call(epd), EINTR, what);
	hook_next(HOOK_SLEEP, NULL);
	end_signals();
	return check(signals == 1, "%s: %d signals until it ended", what,
		     (int)signals) &&
	       ok && none_is_blocked(what);
}

static bool ends(int (*call)(int epd), int epd, const char *what)
{
	return ends_by_signal(call, epd, what) &&
	       remembers_signal(call, epd, signal_now, what) &&
	       remembers_signal(call, epd, signal_next_time, what);
}

static int accept_sync(int epd)
{
	struct scif_port_id from;
	int new;

	return scif_accept(epd, &from, &new, SCIF_ACCEPT_SYNC);
}

static bool accept_ends(void)
{
	int listener = scif_open();
	bool ok;

	scif_bind(listener, 0);
	scif_listen(listener, 1);
	ok = ends(accept_sync, listener, "accept");
	scif_close(listener);
	return ok;
}

static struct scif_port_id target;

static int connect_target(int epd)
{
	return scif_connect(epd, &target);
}

static bool connect_ends(void)
{
	int epd = scif_open(), listener, other;
	bool ok;

	target.node = peer_node;
	target.port = peer_listen(&listener, 1);
	ok = ends(connect_target, epd, "connect");
	other = peer_accept(listener);
	ok = check(connect_target(epd) > 0, "it goes on: %s",
		   strerror(errno)) &&
	     ok;
	close_pair(epd, other);
	peer_op_epd(PEER_CLOSE, listener);
	return ok;
}

static int receive_byte(int epd)
{
	char byte;

	return scif_recv(epd, &byte, 1, SCIF_RECV_BLOCK);
}

static int receive_much(int epd)
{
	uint8_t bytes[100];

	return scif_recv(epd, bytes, sizeof(bytes), SCIF_RECV_BLOCK);
}

static int send_byte(int epd)
{
	char byte = 'x';

	return scif_send(epd, &byte, 1, SCIF_SEND_BLOCK);
}

static int send_much(int epd)
{
	return scif_send(epd, (void *)pattern_bytes(3, LONG), LONG,
			 SCIF_SEND_BLOCK);
}

/* A call that has some bytes returns them. */
static bool receive_ends(void)
{
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	ok = ends(receive_byte, own, "recv") &&
	     succeeds(peer_send(other, pattern_bytes(1, 40), 40, 1), 40,
		      "send");
	begin_signals(SOON_MS);
	ok = succeeds(receive_much(own), 40, "with 40 bytes") && ok;
	end_signals();
	ok = succeeds(peer_send(other, "a", 1, 1), 1, "another one") &&
	     succeeds(receive_byte(own), 1, "recv, after that") && ok;
	close_pair(own, other);
	return ok;
}

static bool send_ends(void)
{
	uint8_t bytes[RING];
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	begin_signals(SOON_MS);
	ok = succeeds(send_much(own), RING, "as much as has room");
	end_signals();
	ok = ok && ends(send_byte, own, "send");
	ok = succeeds(peer_recv(other, bytes, RING, 1), RING, "recv") &&
	     check(!memcmp(bytes, pattern_bytes(3, LONG), RING), "bytes") &&
	     succeeds(send_byte(own), 1, "send, after that") && ok;
	close_pair(own, other);
	return ok;
}

static int poll_in(int epd)
{
	struct scif_pollepd entry = { epd, SCIF_POLLIN, 0 };

	return scif_poll(&entry, 1, -1);
}

static bool poll_ends(void)
{
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	ok = ends(poll_in, own, "poll") &&
	     succeeds(peer_send(other, "a", 1, 1), 1, "send") &&
	     succeeds(poll_in(own), 1, "poll, after that");
	close_pair(own, other);
	return ok;
}

struct connecting {
	int epd;
	int ret;
	atomic_bool over;
};

static void *connect_blocking(void *argument)
{
	struct connecting *connecting = argument;

	connecting->ret = connect_target(connecting->epd);
	atomic_store(&connecting->over, true);
	return NULL;
}

/* It sleeps until then. */
static bool accepted_later(void)
{
	struct connecting connecting = { .epd = scif_open() };
	int listener, other, bound = scif_bind(connecting.epd, 0);
	pthread_t thread;
	bool ok;

	target.node = peer_node;
	target.port = peer_listen(&listener, 1);
	pthread_create(&thread, NULL, connect_blocking, &connecting);
	ok = is_at_rest();
	ok = check(!atomic_load(&connecting.over), "nobody has accepted") && ok;
	other = peer_accept(listener);
	pthread_join(thread, NULL);
	ok = succeeds(connecting.ret, bound, "its port") &&
	     succeeds(peer_send(other, "a", 1, 1), 1, "send") &&
	     succeeds(receive_byte(connecting.epd), 1, "recv") && ok;
	close_pair(connecting.epd, other);
	peer_op_epd(PEER_CLOSE, listener);
	return ok;
}

const struct behaviour waiting_cases[] = {
	{ 17, "a connect that is accepted later waits asleep", accepted_later },
	{ 20, "accept and signals that come at any time", accept_ends },
	{ 23, "connect and signals that come at any time", connect_ends },
	{ 27, "recv and signals that come at any time", receive_ends },
	{ 27, "send and signals that come at any time", send_ends },
	{ 33, "scif_poll and signals that come at any time", poll_ends },
	{ 0, NULL, NULL }
};
