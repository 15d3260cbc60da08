// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Open, bind, listen, connect, accept.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "behaviour.h"
#include "clock.h"
#include "cm_events.h"
#include "peer.h"
#include "tap.h"

enum { NO_NODE = 999, NO_PORT = 2999, ATTEMPTS = 10 };

static bool close_on_exec(void)
{
	int epd = scif_open();
	int flags = fcntl(epd, F_GETFD);

	return succeeds(scif_close(epd), 0, "close") &&
	       check(flags == FD_CLOEXEC, "descriptor flags 0x%x", flags);
}

/* A thread of its own: rdma_cm refuses a thread that has changed its user. */
static void *as_another_user(void *epd)
{
	bool ok;

	if (syscall(SYS_setresuid, -1, 1000, -1)) {
		check(false, "cannot change the user");
		return NULL;
	}
	ok = fails(scif_bind(*(int *)epd, 1), EACCES, "1, bound before") &&
	     fails(scif_bind(*(int *)epd, 1023), EACCES, "1023") &&
	     fails(scif_bind(*(int *)epd, 1024), EINVAL, "1024 is for all");
	return ok ? epd : NULL;
}

static bool bind_unprivileged(void)
{
	int epd = scif_open();
	pthread_t thread;
	void *ok;

	if (scif_bind(epd, 0) < 0)
		return check(false, "bind: %s", strerror(errno));
	pthread_create(&thread, NULL, as_another_user, &epd);
	pthread_join(thread, &ok);
	scif_close(epd);
	return !!ok;
}

static bool bind_twice(void)
{
	int epd = scif_open();
	bool ok = succeeds(scif_bind(epd, 2500), 2500, "bind") &&
		  fails(scif_bind(epd, 2501), EINVAL, "again");

	scif_close(epd);
	return ok;
}

static bool bind_in_use_state(void)
{
	int epd = scif_open(), own, other;
	bool ok;

	scif_bind(epd, 0);
	scif_listen(epd, 1);
	ok = fails(scif_bind(epd, 0), EISCONN, "listening");
	scif_close(epd);
	connect_pair(&own, &other);
	ok = fails(scif_bind(own, 0), EISCONN, "connected") && ok;
	peer_op_epd(PEER_CLOSE, other);
	ok = shows(own, POLLHUP) &&
	     fails(scif_bind(own, 0), EISCONN, "disconnected") && ok;
	scif_close(own);
	return ok;
}

static bool port_in_use(void)
{
	int one = scif_open(), two = scif_open();
	bool ok = succeeds(scif_bind(one, 2600), 2600, "bind") &&
		  fails(scif_bind(two, 2600), EINVAL, "the same port");

	scif_close(one);
	ok = succeeds(scif_bind(two, 2600), 2600, "after close") && ok;
	scif_close(two);
	return ok;
}

static bool bind_any(void)
{
	int one = scif_open(), two = scif_open();
	int first = scif_bind(one, 0), second = scif_bind(two, 0);

	scif_close(one);
	scif_close(two);
	return check(first >= 1089 && second >= 1089 && first != second,
		     "ports %d and %d", first, second);
}

static bool listen_backlog(void)
{
	int epd = scif_open();
	bool ok;

	scif_bind(epd, 0);
	ok = fails(scif_listen(epd, 0), EINVAL, "backlog 0") &&
	     fails(scif_listen(epd, -1), EINVAL, "backlog -1");
	scif_close(epd);
	return ok;
}

static bool listen_unbound(void)
{
	int epd = scif_open();
	bool ok = fails(scif_listen(epd, 1), EINVAL, "unbound");

	scif_close(epd);
	return ok;
}

static bool listen_twice(void)
{
	int epd = scif_open(), own, other;
	bool ok;

	scif_bind(epd, 0);
	scif_listen(epd, 1);
	ok = fails(scif_listen(epd, 1), EISCONN, "listening");
	scif_close(epd);
	connect_pair(&own, &other);
	ok = fails(scif_listen(own, 1), EISCONN, "connected") && ok;
	peer_op_epd(PEER_CLOSE, other);
	ok = shows(own, POLLHUP) &&
	     fails(scif_listen(own, 1), EINVAL, "disconnected") && ok;
	scif_close(own);
	return ok;
}

static bool connect_null(void)
{
	int epd = scif_open();
	bool ok = fails(scif_connect(epd, NULL), EINVAL, "NULL");

	scif_close(epd);
	return ok;
}

static bool connect_no_node(void)
{
	struct scif_port_id port = { NO_NODE, 0 };
	uint64_t begin = now_ms(), took;
	int epd = scif_open();
	bool ok = fails(scif_connect(epd, &port), ENODEV, "no such node");

	port.node = 998; /* It has an address where nobody is. */
	port.port = 2000;
	ok = fails(scif_connect(epd, &port), ENODEV, "a dead node") && ok;
	took = now_ms() - begin;
	/* Not after a minute, and not after as long as a connection may take. */
	ok = check(took < 8000ULL * slowness(), "%llu ms",
		   (unsigned long long)took) &&
	     ok;
	scif_close(epd);
	return ok;
}

static bool connect_port_zero(void)
{
	struct scif_port_id port = { peer_node, 0 };
	int epd = scif_open();
	bool ok = fails(scif_connect(epd, &port), EINVAL, "port 0");

	scif_close(epd);
	return ok;
}

static bool connect_listener(void)
{
	struct scif_port_id port = { peer_node, NO_PORT };
	int epd = scif_open();
	bool ok;

	scif_bind(epd, 0);
	scif_listen(epd, 1);
	ok = fails(scif_connect(epd, &port), EOPNOTSUPP, "a listener");
	scif_close(epd);
	return ok;
}

static bool connect_connected(void)
{
	struct scif_port_id port = { peer_node, NO_PORT };
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	ok = fails(scif_connect(own, &port), EISCONN, "connected");
	close_pair(own, other);
	return ok;
}

static bool connect_disconnected(void)
{
	struct scif_port_id port = { peer_node, NO_PORT };
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	peer_op_epd(PEER_CLOSE, other);
	ok = shows(own, POLLHUP) &&
	     fails(scif_connect(own, &port), EINVAL, "disconnected");
	scif_close(own);
	return ok;
}

static bool connect_refused(void)
{
	struct scif_port_id port = { peer_node, NO_PORT };
	struct peer_call call = { .op = PEER_POLL,
				  .flags = SCIF_POLLIN,
				  .length = 25000 };
	int one = scif_open(), two = scif_open(), listener, other, bound;
	bool ok;

	bound = scif_bind(two, 0);
	ok = fails(scif_connect(two, &port), ECONNREFUSED, "nobody listens");
	port.port = peer_listen(&listener, 1);
	fcntl(one, F_SETFL, O_NONBLOCK);
	ok = fails(scif_connect(one, &port), EINPROGRESS, "the first") && ok;
	call.epd = listener;
	ok = succeeds(peer_do(&call), 1, "the first is there") &&
	     fails(scif_connect(two, &port), ECONNREFUSED, "full backlog") &&
	     ok;
	other = peer_accept(listener);
	ok = check(other >= 0, "the first is accepted") && ok;
	fcntl(two, F_SETFL, O_NONBLOCK);
	fails(scif_connect(two, &port), EINPROGRESS, "once more");
	peer_op_epd(PEER_CLOSE, other);
	other = peer_accept(listener);
	ok = shows(two, POLLOUT) &&
	     succeeds(scif_connect(two, &port), bound, "the second") && ok;
	scif_close(one);
	close_pair(two, other);
	peer_op_epd(PEER_CLOSE, listener);
	return ok;
}

/* The peer dies before it has accepted. */
static bool listener_dies(void)
{
	struct scif_port_id port = { peer_node, NO_PORT };
	int epd = scif_open(), listener, other, bound;
	bool ok;

	bound = scif_bind(epd, 0);
	fcntl(epd, F_SETFL, O_NONBLOCK);
	port.port = peer_listen(&listener, 1);
	ok = fails(scif_connect(epd, &port), EINPROGRESS, "connect");
	sleep_ms(300);
	peer_kill();
	ok = shows(epd, POLLOUT) && ok;
	ok = check(scif_connect(epd, &port) == -1 &&
			   (errno == ECONNREFUSED || errno == ENODEV),
		   "the result: %s", strerror(errno)) &&
	     ok;
	port.port = peer_listen(&listener, 1);
	fails(scif_connect(epd, &port), EINPROGRESS, "to another one");
	other = peer_accept(listener);
	ok = shows(epd, POLLOUT) &&
	     succeeds(scif_connect(epd, &port), bound, "its port") && ok;
	close_pair(epd, other);
	peer_op_epd(PEER_CLOSE, listener);
	return ok;
}

static void *connect_often(void *unused)
{
	struct scif_port_id port = { peer_node, NO_PORT };
	int epd = scif_open(), i;
	bool ok = epd >= 0;

	(void)unused;
	/* A busy machine may say other things than that nobody listens. */
	for (i = 0; i < ATTEMPTS && ok; i++)
		ok = check(scif_connect(epd, &port) < 0, "connected");
	scif_close(epd);
	return ok ? connect_often : NULL;
}

/* Each attempt frees what the progress thread may still look at. */
static bool refused_often(void)
{
	pthread_t threads[4];
	bool ok = true;
	void *result;
	int i;

	for (i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, connect_often, NULL);
	for (i = 0; i < 4; i++) {
		pthread_join(threads[i], &result);
		ok = ok && result;
	}
	return ok;
}

static bool connect_binds(void)
{
	struct peer_call accept = { .op = PEER_ACCEPT, .flags = 1 };
	struct scif_port_id port = { peer_node, 0 };
	int epd = scif_open(), listener, bound;
	bool ok;

	port.port = peer_listen(&listener, 1);
	accept.epd = listener;
	peer_begin(&accept);
	bound = scif_connect(epd, &port);
	peer_finish(&accept);
	ok = check(bound >= 1089, "connect returned %d", bound) &&
	     check(accept.port.node == own_node && accept.port.port == bound,
		   "the peer saw %u:%u", accept.port.node, accept.port.port);
	close_pair(epd, accept.ret);
	peer_op_epd(PEER_CLOSE, listener);
	return ok;
}

/* The library does not take numbers of rand(), which the program may count on. */
static bool random_numbers_are_left(void)
{
	int own, other, expected, number;

	srand(17);
	expected = rand();
	srand(17);
	connect_pair(&own, &other);
	number = rand();
	close_pair(own, other);
	return check(number == expected, "another number");
}

static bool own_node_works(void)
{
	int listener = scif_open(), one = scif_open(), two;
	struct scif_port_id port = { .node = own_node }, from;
	char text[4] = "";
	bool ok;

	port.port = scif_bind(listener, 0);
	scif_listen(listener, 1);
	fcntl(one, F_SETFL, O_NONBLOCK);
	ok = fails(scif_connect(one, &port), EINPROGRESS, "connect");
	ok = succeeds(scif_accept(listener, &from, &two, SCIF_ACCEPT_SYNC), 0,
		      "accept") &&
	     ok;
	ok = check(from.node == own_node, "from node %u", from.node) && ok;
	ok = shows(one, POLLOUT) &&
	     succeeds(scif_connect(one, &port), from.port, "port") && ok;
	ok = succeeds(scif_send(one, "abc", 4, SCIF_SEND_BLOCK), 4, "send") &&
	     succeeds(scif_recv(two, text, 4, SCIF_RECV_BLOCK), 4, "recv") &&
	     check(!strcmp(text, "abc"), "the bytes") && ok;
	scif_close(one);
	scif_close(two);
	scif_close(listener);
	return ok;
}

static bool nonblocking_connect(void)
{
	struct scif_port_id port = { peer_node, NO_PORT };
	int epd = scif_open(), listener, other, bound;
	bool ok;

	bound = scif_bind(epd, 0);
	fcntl(epd, F_SETFL, O_NONBLOCK);
	ok = fails(scif_connect(epd, &port), EINPROGRESS, "no listener") &&
	     shows(epd, POLLOUT) &&
	     fails(scif_connect(epd, &port), ECONNREFUSED, "its result");
	port.port = peer_listen(&listener, 1);
	ok = fails(scif_connect(epd, &port), EINPROGRESS, "begin") &&
	     fails(scif_connect(epd, &port), EINPROGRESS, "repeat") &&
	     fails(scif_bind(epd, 0), EISCONN, "bind meanwhile") &&
	     fails(scif_listen(epd, 1), EISCONN, "listen meanwhile") && ok;
	ok = check(!(poll_now(epd) & POLLOUT), "no POLLOUT yet") && ok;
	other = peer_accept(listener);
	ok = shows(epd, POLLOUT) &&
	     succeeds(scif_connect(epd, &port), bound, "the port") &&
	     fails(scif_connect(epd, &port), EISCONN, "after that") && ok;
	close_pair(epd, other);
	peer_op_epd(PEER_CLOSE, listener);
	return ok;
}

/* Who has given up, and has not closed, does not keep the listener waiting. */
static bool given_up(void)
{
	struct peer_call call = { .op = PEER_CONNECT };
	struct scif_port_id from;
	int listener = scif_open(), new;
	uint64_t begin;
	bool ok;

	call.port.node = own_node;
	call.port.port = scif_bind(listener, 0);
	scif_listen(listener, 1);
	call.epd = peer_op_epd(PEER_OPEN, -1);
	peer_op_epd(PEER_NONBLOCK, call.epd);
	ok = peer_fails(&call, EINPROGRESS, "connect");
	call.op = PEER_POLL;
	call.flags = SCIF_POLLOUT;
	call.length = 25000;
	ok = succeeds(peer_do(&call), 1, "the peer's poll") && ok;
	sleep_ms(300);
	begin = now_ms();
	/* five seconds are what it has for one that does not answer */
	ok = fails(scif_accept(listener, &from, &new, 0), EAGAIN, "accept") &&
	     check(now_ms() - begin < 4500, "it took %llu ms",
		   (unsigned long long)(now_ms() - begin)) &&
	     ok;
	call.op = PEER_CONNECT;
	ok = peer_fails(&call, ENODEV, "the result") && ok;
	close_pair(listener, call.epd);
	return ok;
}

/* What the peer has sent is there, though it is gone before the result is read. */
static bool connected_and_left(void)
{
	struct scif_port_id port = { peer_node, NO_PORT };
	int epd = scif_open(), listener, other, bound;
	char text[4] = "";
	bool ok;

	bound = scif_bind(epd, 0);
	fcntl(epd, F_SETFL, O_NONBLOCK);
	port.port = peer_listen(&listener, 1);
	ok = fails(scif_connect(epd, &port), EINPROGRESS, "begin");
	other = peer_accept(listener);
	ok = succeeds(peer_send(other, "bye", 4, SCIF_SEND_BLOCK), 4, "send") &&
	     ok;
	peer_op_epd(PEER_CLOSE, other);
	ok = shows(epd, POLLHUP) && shows(epd, POLLOUT) &&
	     succeeds(scif_connect(epd, &port), bound, "its result") &&
	     succeeds(scif_recv(epd, text, 4, SCIF_RECV_BLOCK), 4, "recv") &&
	     check(!strcmp(text, "bye"), "the bytes") &&
	     fails(scif_connect(epd, &port), EINVAL, "after that") && ok;
	scif_close(epd);
	peer_op_epd(PEER_CLOSE, listener);
	return ok;
}

static void nothing(int signal)
{
	(void)signal;
}

static bool left(enum cm_telling telling)
{
	bool ok;

	tell_cm_events(telling);
	ok = connected_and_left();
	tell_cm_events(CM_AS_THEY_COME);
	return ok;
}

/* Likewise, if this side hears that it is connected only after the peer has left. */
static bool left_before_it_is_heard(void)
{
	return left(CM_LATE);
}

/* Likewise, if the peer's kernel has not heard that it was connected. */
static bool left_as_a_rejection(void)
{
	return left(CM_REJECTED);
}

/* A signal ends the call, and the next one waits for the same attempt. */
static bool connect_under_signals(void)
{
	static const struct itimerval often = { { 0, 50000 }, { 0, 50000 } },
				      never;
	struct sigaction action = { .sa_handler = nothing };
	struct scif_port_id port = { peer_node, NO_PORT };
	int i, epd, listener, other, bound, ret, interrupted = 0;
	bool ok = true;

	sigaction(SIGALRM, &action, NULL);
	port.port = peer_listen(&listener, 1);
	for (i = 0; i < 3 && ok; i++) {
		struct peer_call call = { .op = PEER_ACCEPT,
					  .epd = listener,
					  .flags = SCIF_ACCEPT_SYNC };
		bool asked = false;

		epd = scif_open();
		bound = scif_bind(epd, 0);
		setitimer(ITIMER_REAL, &often, NULL);
		do {
			ret = scif_connect(epd, &port);
			if (ret < 0 && errno == EINTR && interrupted++ >= 3 &&
			    !asked) {
				peer_begin(&call);
				asked = true;
			}
		} while (ret < 0 && errno == EINTR);
		setitimer(ITIMER_REAL, &never, NULL);
		ok = succeeds(ret, bound, "connect") &&
		     check(asked, "no signal ended it");
		other = peer_finish(&call);
		close_pair(epd, other);
	}
	peer_op_epd(PEER_CLOSE, listener);
	return ok;
}

const struct behaviour connection_cases[] = {
	{ 1, "open sets close-on-exec", close_on_exec },
	{ 2, "a privileged port without privilege: EACCES", bind_unprivileged },
	{ 3, "bound twice: EINVAL", bind_twice },
	{ 4, "bind when listening or connected, also before: EISCONN",
	  bind_in_use_state },
	{ 5, "a port in use: EINVAL", port_in_use },
	{ 6, "port 0: one from 1089 on", bind_any },
	{ 7, "a backlog below 1: EINVAL", listen_backlog },
	{ 8, "listen unbound: EINVAL", listen_unbound },
	{ 9, "listen while listening or connected: EISCONN", listen_twice },
	{ 10, "connect to NULL: EINVAL", connect_null },
	{ 11, "a node that is unknown or dead: ENODEV", connect_no_node },
	{ 12, "connect to port 0: EINVAL", connect_port_zero },
	{ 13, "connect a listener: EOPNOTSUPP", connect_listener },
	{ 14, "connect while connected: EISCONN", connect_connected },
	{ 15, "connect when disconnected: EINVAL", connect_disconnected },
	{ 16, "no listener, or a full backlog: ECONNREFUSED", connect_refused },
	{ 16, "refused many times, in four threads", refused_often },
	{ 16, "the peer dies before it accepts", listener_dies },
	{ 17, "connect binds and returns the port", connect_binds },
	{ 17, "connect leaves rand() alone", random_numbers_are_left },
	{ 22, "connecting to one's own node", own_node_works },
	{ 23, "connect with O_NONBLOCK", nonblocking_connect },
	{ 23, "a connect that was given up keeps nobody waiting", given_up },
	{ 23, "connected, and the peer has left", connected_and_left },
	{ 23, "the peer has left before it is heard that it is there",
	  left_before_it_is_heard },
	{ 23,
	  "the peer has left before its kernel heard that this side is there",
	  left_as_a_rejection },
	{ 23, "connect under signals", connect_under_signals },
	{ 0, NULL, NULL }
};
