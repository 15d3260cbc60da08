// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Accepting.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

#include "behaviour.h"
#include "clock.h"
#include "cm_events.h"
#include "hooks.h"
#include "peer.h"
#include "process.h"
#include "tap.h"

enum { ATTEMPTS = 10 };

static bool accept_invalid(void)
{
	int epd = scif_open(), new, own, other;
	struct scif_port_id port;
	bool ok;

	ok = fails(scif_accept(epd, &port, &new, 0), EINVAL, "unbound");
	scif_bind(epd, 0);
	ok = fails(scif_accept(epd, &port, &new, 0), EINVAL, "bound") && ok;
	scif_listen(epd, 1);
	ok = fails(scif_accept(epd, &port, &new, 2), EINVAL, "flags 2") && ok;
	ok = fails(scif_accept(epd, NULL, &new, 0), EINVAL, "no peer") && ok;
	ok = fails(scif_accept(epd, &port, NULL, 0), EINVAL, "no new") && ok;
	scif_close(epd);
	connect_pair(&own, &other);
	ok = fails(scif_accept(own, &port, &new, 0), EINVAL, "connected") && ok;
	close_pair(own, other);
	return ok;
}

static bool accept_again(void)
{
	int epd = scif_open(), new;
	struct scif_port_id port;
	bool ok;

	scif_bind(epd, 0);
	scif_listen(epd, 1);
	ok = fails(scif_accept(epd, &port, &new, 0), EAGAIN, "nobody");
	fcntl(epd, F_SETFL, O_NONBLOCK);
	ok = fails(scif_accept(epd, &port, &new, 0), EAGAIN, "O_NONBLOCK") &&
	     ok;
	scif_close(epd);
	return ok;
}

static void nothing(int signal)
{
	(void)signal;
}

static struct closer {
	int epd;
	pthread_t thread;
} closer;

static void *close_later(void *unused)
{
	sleep_ms(200);
	scif_close(closer.epd);
	return unused;
}

static int start_close(void)
{
	return pthread_create(&closer.thread, NULL, close_later, NULL);
}

static bool accept_interrupted(void)
{
	/* the first one may come before it waits */
	static const struct itimerval often = { { 0, 200000 }, { 0, 200000 } },
				      never;
	struct sigaction action = { .sa_handler = nothing };
	int epd = scif_open(), new;
	struct scif_port_id port;
	bool ok;

	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
	scif_bind(epd, 0);
	scif_listen(epd, 1);
	fcntl(epd, F_SETFL, O_NONBLOCK); /* has no say */
	setitimer(ITIMER_REAL, &often, NULL);
	ok = fails(scif_accept(epd, &port, &new, SCIF_ACCEPT_SYNC), EINTR,
		   "a signal");
	setitimer(ITIMER_REAL, &never, NULL);
	closer.epd = epd;
	hook_next(HOOK_SLEEP, start_close);
	ok = fails(scif_accept(epd, &port, &new, SCIF_ACCEPT_SYNC), EINTR,
		   "closed meanwhile") &&
	     ok;
	pthread_join(closer.thread, NULL);
	return ok;
}

/* A signal may end the wait for a request, but no connection. */
static bool accept_under_signals(void)
{
	static const struct itimerval often = { { 0, 10000 }, { 0, 10000 } },
				      never;
	struct peer_call call = { .op = PEER_CONNECT };
	struct sigaction action = { .sa_handler = nothing };
	struct scif_port_id port, to = { .node = own_node };
	int epd = scif_open(), new, i, ret;
	bool ok = true;

	sigaction(SIGALRM, &action, NULL);
	to.port = scif_bind(epd, 0);
	scif_listen(epd, 1);
	for (i = 0; i < 10 && ok; i++) {
		call.op = PEER_CONNECT;
		call.epd = peer_op_epd(PEER_OPEN, -1);
		call.port = to;
		peer_begin(&call);
		setitimer(ITIMER_REAL, &often, NULL);
		do
			ret = scif_accept(epd, &port, &new, SCIF_ACCEPT_SYNC);
		while (ret && errno == EINTR);
		setitimer(ITIMER_REAL, &never, NULL);
		ok = succeeds(ret, 0, "accept") &&
		     check(peer_finish(&call) > 0, "connect: %s",
			   strerror(call.error)) &&
		     succeeds(peer_send(call.epd, "a", 1, 1), 1, "send");
		close_pair(new, call.epd);
	}
	scif_close(epd);
	return ok;
}

static bool accepted_port(void)
{
	struct peer_call call = { .op = PEER_OPEN };
	struct scif_port_id port;
	int epd = scif_open(), new, listening;
	bool ok;

	listening = scif_bind(epd, 0);
	scif_listen(epd, 1);
	call.epd = peer_do(&call);
	call.op = PEER_CONNECT;
	call.port.node = own_node;
	call.port.port = listening;
	peer_begin(&call);
	ok = succeeds(scif_accept(epd, &port, &new, SCIF_ACCEPT_SYNC), 0,
		      "accept");
	peer_finish(&call);
	ok = check(call.ret == port.port && port.node == peer_node,
		   "the peer has port %lld, accept says %u:%u",
		   (long long)call.ret, port.node, port.port) &&
	     ok;
	ok = check(fcntl(new, F_GETFD) == FD_CLOEXEC, "close-on-exec") && ok;
	/* The port is taken as long as the listener, not the connection. */
	scif_close(epd);
	epd = scif_open();
	ok = succeeds(scif_bind(epd, listening), listening, "bind again") && ok;
	scif_close(epd);
	close_pair(new, call.epd);
	return ok;
}

static void *accept_all(void *listener)
{
	struct scif_port_id port;
	int epd;

	while (!scif_accept(*(int *)listener, &port, &epd, SCIF_ACCEPT_SYNC))
		scif_close(epd);
	return NULL;
}

/* Peers that have gone when they are accepted, or just then. */
static bool gone_when_accepted(void)
{
	struct peer_call call = { .flags = 0 };
	struct scif_port_id port = { own_node, 0 };
	int listener = scif_open(), i;
	uint64_t end = deadline();
	pthread_t thread;
	bool ok;

	port.port = scif_bind(listener, 0);
	scif_listen(listener, 16);
	pthread_create(&thread, NULL, accept_all, &listener);
	for (i = 0; i < ATTEMPTS; i++) {
		call.epd = peer_op_epd(PEER_OPEN, -1);
		peer_op_epd(PEER_NONBLOCK, call.epd);
		call.op = PEER_CONNECT;
		call.port = port;
		peer_do(&call);
		sleep_ms(i % 8);
		peer_op_epd(PEER_CLOSE, call.epd);
	}
	call.op = PEER_CONNECT;
	call.epd = peer_op_epd(PEER_OPEN, -1);
	call.port = port;
	/* Until there is room in the backlog. */
	while (peer_do(&call) < 0 &&
	       (call.error == ECONNREFUSED || call.error == ENODEV) &&
	       now_ms() < end)
		sleep_ms(100);
	/* EINVAL: connected, and closed by the other side already. */
	ok = check(call.ret > 0 || call.error == EINVAL, "one that stays: %s",
		   strerror(call.error));
	peer_op_epd(PEER_CLOSE, call.epd);
	scif_close(listener);
	pthread_join(thread, NULL);
	return ok;
}

struct acceptance {
	int listener;
	int epd;
	int ret;
};

static void *accept_one(void *argument)
{
	struct acceptance *acceptance = argument;
	struct scif_port_id port;

	acceptance->ret = scif_accept(acceptance->listener, &port,
				      &acceptance->epd, 0);
	return NULL;
}

/* The peer connects, sends and leaves; all that is heard of it is that it has left. */
static bool gone_before_it_is_heard(void)
{
	struct peer_call call = { .op = PEER_CONNECT };
	struct acceptance acceptance = { .listener = scif_open() };
	pthread_t thread;
	char text[4] = "";
	bool ok;

	call.port.node = own_node;
	call.port.port = scif_bind(acceptance.listener, 0);
	scif_listen(acceptance.listener, 1);
	call.epd = peer_op_epd(PEER_OPEN, -1);
	peer_begin(&call);
	ok = shows(acceptance.listener, POLLIN);
	tell_cm_events(CM_OVERTAKEN);
	pthread_create(&thread, NULL, accept_one, &acceptance);
	ok = check(peer_finish(&call) > 0, "connect: %s",
		   strerror(call.error)) &&
	     succeeds(peer_send(call.epd, "abc", 4, 1), 4, "send") && ok;
	peer_op_epd(PEER_CLOSE, call.epd);
	pthread_join(thread, NULL);
	tell_cm_events(CM_AS_THEY_COME);
	ok = succeeds(acceptance.ret, 0, "accept") && ok;
	if (ok) {
		ok = succeeds(scif_recv(acceptance.epd, text, 4, 1), 4,
			      "recv") &&
		     check(!strcmp(text, "abc"), "the bytes") &&
		     shows(acceptance.epd, POLLHUP);
		scif_close(acceptance.epd);
	}
	scif_close(acceptance.listener);
	return ok;
}

/* The peer has begun to connect to @port; its endpoint. */
static int peer_begins(uint16_t port)
{
	struct peer_call call = { .op = PEER_CONNECT };

	call.epd = peer_op_epd(PEER_OPEN, -1);
	peer_op_epd(PEER_NONBLOCK, call.epd);
	call.port.node = own_node;
	call.port.port = port;
	peer_do(&call);
	return call.epd;
}

/* The request is not lost by it. */
static bool out_of_descriptors(void)
{
	int listener = scif_open(), new = -1, other;
	struct scif_port_id port;
	unsigned long limit;
	bool ok;

	port.port = scif_bind(listener, 0);
	scif_listen(listener, 1);
	other = peer_begins(port.port);
	ok = shows(listener, POLLIN);
	limit = limit_descriptors(next_number() + 1); /* an endpoint has two */
	ok = fails(scif_accept(listener, &port, &new, 0), EMFILE, "accept") &&
	     ok;
	limit_descriptors(limit);
	ok = check(poll_now(listener) & POLLIN, "somebody still waits") &&
	     succeeds(scif_accept(listener, &port, &new, 0), 0, "again") &&
	     succeeds(scif_send(new, "abc", 3, 1), 3, "send") && ok;
	close_pair(new, other);
	scif_close(listener);
	return ok;
}

/* There is no memory for what a connection needs: the peer is refused. */
static bool out_of_memory(void)
{
	int listener = scif_open(), new = -1, other;
	struct rlimit limit, none;
	struct scif_port_id port;
	uint16_t number;
	bool ok;

	number = scif_bind(listener, 0);
	scif_listen(listener, 1);
	other = peer_begins(number);
	ok = shows(listener, POLLIN);
	getrlimit(RLIMIT_AS, &limit);
	none = limit;
	none.rlim_cur = 4096;
	setrlimit(RLIMIT_AS, &none);
	ok = fails(scif_accept(listener, &port, &new, SCIF_ACCEPT_SYNC), ENOMEM,
		   "accept") &&
	     ok;
	setrlimit(RLIMIT_AS, &limit);
	peer_op_epd(PEER_CLOSE, other);
	other = peer_begins(number);
	ok = shows(listener, POLLIN) &&
	     succeeds(scif_accept(listener, &port, &new, 0), 0, "another") &&
	     succeeds(scif_send(new, "abc", 3, 1), 3, "send") && ok;
	close_pair(new, other);
	scif_close(listener);
	return ok;
}

static int no_space(void)
{
	return ENOSPC;
}

/* The device has no room for one that was taken; the next one still waits. */
static bool out_of_queues(void)
{
	struct peer_call call = { .op = PEER_CONNECT };
	int listener = scif_open(), new = -1, others[2];
	struct scif_port_id port;
	bool ok;

	call.port.node = own_node;
	call.port.port = scif_bind(listener, 0);
	scif_listen(listener, 2);
	others[0] = peer_begins(call.port.port);
	ok = shows(listener, POLLIN);
	others[1] = peer_begins(call.port.port);
	sleep_ms(300); /* so that it waits, too, unless the machine is slow */
	hook_next(HOOK_CREATE_CQ, no_space);
	ok = fails(scif_accept(listener, &port, &new, SCIF_ACCEPT_SYNC), ENOMEM,
		   "accept") &&
	     ok;
	hook_next(HOOK_CREATE_CQ, NULL);
	ok = shows(listener, POLLIN) &&
	     succeeds(scif_accept(listener, &port, &new, 0), 0, "the next") &&
	     ok;
	call.epd = others[0];
	call.op = PEER_POLL;
	call.flags = SCIF_POLLOUT;
	call.length = 25000;
	ok = succeeds(peer_do(&call), 1, "the first one's poll") && ok;
	call.op = PEER_CONNECT;
	ok = peer_fails(&call, ECONNREFUSED, "the first one's connect") && ok;
	peer_op_epd(PEER_CLOSE, others[0]);
	close_pair(new, others[1]);
	scif_close(listener);
	return ok;
}

/* One thread has other credentials than rdma_cm knows. */
static void *accept_as_another(void *argument)
{
	int listener = *(int *)argument, new;
	struct scif_port_id port;
	bool ok;

	ok = succeeds(syscall(SYS_setgroups, 0, NULL), 0, "setgroups") &&
	     fails(scif_accept(listener, &port, &new, SCIF_ACCEPT_SYNC), EACCES,
		   "accept");
	return ok ? argument : NULL;
}

static bool another_thread(void)
{
	int listener = scif_open(), new = -1, other;
	struct scif_port_id port;
	pthread_t thread;
	uint16_t number;
	void *refused;
	bool ok;

	number = scif_bind(listener, 0);
	scif_listen(listener, 1);
	other = peer_begins(number);
	ok = shows(listener, POLLIN);
	if (pthread_create(&thread, NULL, accept_as_another, &listener))
		bail("pthread_create fails");
	pthread_join(thread, &refused);
	peer_op_epd(PEER_CLOSE, other);
	other = peer_begins(number);
	ok = ok && refused && shows(listener, POLLIN) &&
	     succeeds(scif_accept(listener, &port, &new, 0), 0, "another");
	close_pair(new, other);
	scif_close(listener);
	return ok;
}

/* All threads of the peer have: nobody comes to it, and it is told so. */
static bool another_process(void)
{
	struct peer_call call = { .op = PEER_BIND };
	int own = scif_open();
	struct scif_port_id port = { peer_node, 0 };
	bool ok;

	call.epd = peer_op_epd(PEER_OPEN, 0);
	port.port = peer_do(&call);
	call.op = PEER_LISTEN;
	call.flags = 1;
	peer_do(&call);
	call.op = PEER_SETGROUPS;
	ok = succeeds(peer_do(&call), 0, "setgroups");
	call.op = PEER_ACCEPT;
	call.flags = SCIF_ACCEPT_SYNC;
	peer_begin(&call);
	fcntl(own, F_SETFL, O_NONBLOCK);
	scif_connect(own, &port);
	ok = check(peer_finish(&call) == -1 && call.error == ENODEV,
		   "the peer's accept: %s", strerrorname_np(call.error)) &&
	     ok;
	peer_kill();
	scif_close(own);
	return ok;
}

static bool is_socket(int fd)
{
	struct stat status;

	return !fstat(fd, &status) && S_ISSOCK(status.st_mode);
}

/*
 * While the peer is slow to connect, a stranger takes the number of the endpoint
 * that is being accepted. That ends, and the stranger's file stays open.
 */
static bool number_of_a_stranger(void)
{
	int listener = scif_open(), null = open("/dev/null", O_RDWR);
	int number, other;
	uint64_t limit = deadline();
	unsigned int round = 0;
	pthread_t thread;
	uint16_t port;
	bool ok;

	port = scif_bind(listener, 0);
	scif_listen(listener, 1);
	peer_begins(port);
	ok = shows(listener, POLLIN);
	peer_stop();
	number = next_number();
	pthread_create(&thread, NULL, accept_all, &listener);
	while (!is_socket(number) && now_ms() < limit)
		relax(round++);
	sleep_ms(200);
	/* So that only the number tells. */
	other = dup(number);
	dup2(null, number);
	/* At most so long, the call sleeps on the file that it had. */
	sleep_ms(1000);
	ok = is_at_rest() && ok;
	peer_kill();
	scif_close(listener);
	pthread_join(thread, NULL);
	ok = check(fcntl(number, F_GETFD) != -1 && !is_socket(number),
		   "the stranger's file is open") &&
	     ok;
	close(number);
	close(other);
	close(null);
	return ok;
}

const struct behaviour accept_cases[] = {
	{ 18, "accept with bad arguments: EINVAL", accept_invalid },
	{ 19, "accept with nobody there: EAGAIN", accept_again },
	{ 20, "accept interrupted, or closed: EINTR", accept_interrupted },
	{ 20, "no signal loses a connection", accept_under_signals },
	{ 21, "what is accepted has the listener's port", accepted_port },
	{ 21, "peers that are gone when accepted", gone_when_accepted },
	{ 21, "a peer that is gone before it is heard that it is there",
	  gone_before_it_is_heard },
	{ 21, "accept out of descriptors: EMFILE", out_of_descriptors },
	{ 21, "accept out of memory: ENOMEM", out_of_memory },
	{ 21, "accept without room in the device: ENOMEM, once",
	  out_of_queues },
	{ 21, "accept by a thread with other credentials: EACCES",
	  another_thread },
	{ 21, "accept by a process with other credentials: ENODEV",
	  another_process },
	{ 21, "a number that a stranger has when accept fails",
	  number_of_a_stranger },
	{ 0, NULL, NULL }
};
