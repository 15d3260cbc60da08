// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Nodes, and how endpoints end.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "behaviour.h"
#include "clock.h"
#include "peer.h"
#include "process.h"
#include "tap.h"

static bool node_numbers(void)
{
	uint16_t nodes[8] = { 9, 9, 9 }, self = 9;
	int count = scif_get_nodeIDs(NULL, 0, &self);

	if (!fails(scif_get_node_ids(NULL, 1, &self), EFAULT, "no list") ||
	    !fails(scif_get_node_ids(nodes, -1, &self), EINVAL, "length -1"))
		return false;
	return check(count == 3 && self == own_node, "%d nodes, self %u", count,
		     self) &&
	       succeeds(scif_get_node_ids(nodes, 8, &self), count, "all") &&
	       check(nodes[0] == 0 && nodes[1] == 1, "nodes %u and %u",
		     nodes[0], nodes[1]) &&
	       succeeds(scif_get_nodeIDs(nodes + 4, 1, &self), count, "one") &&
	       check(nodes[4] == 0 && nodes[5] == 0, "no more than asked") &&
	       fails(scif_get_nodeIDs(nodes, 8, NULL), EFAULT, "no self");
}

static bool wrong_descriptors(void)
{
	int epd = scif_open(), pipes[2], null, sockets[2];
	struct scif_port_id port = { own_node, 2000 };
	char byte = 0;
	bool ok;

	if (pipe2(pipes, O_CLOEXEC) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		return check(false, "pipe");
	ok = fails(scif_send(-1, &byte, 1, 0), EBADF, "-1") &&
	     fails(scif_bind(12345, 0), EBADF, "12345") &&
	     fails(scif_bind(pipes[0], 0), ENOTTY, "a pipe") &&
	     fails(scif_connect(sockets[0], &port), ENOTTY, "a socket");
	scif_close(epd);
	ok = fails(scif_close(epd), EBADF, "closed") &&
	     fails(scif_listen(epd, 1), EBADF, "listen, closed") && ok;
	epd = scif_open();
	close(epd);
	ok = fails(scif_bind(epd, 0), EBADF, "close()d") && ok;
	null = open("/dev/null", O_RDWR);
	ok = check(null == epd, "the number is used again") &&
	     fails(scif_bind(epd, 0), ENOTTY, "now a file") && ok;
	close(null);
	close(pipes[0]);
	close(pipes[1]);
	close(sockets[0]);
	close(sockets[1]);
	return ok;
}

/* Every function that takes an endpoint. */
static bool all_fail(int epd, int error)
{
	uint8_t *mem = fresh_pages(4096);
	struct scif_port_id port = { own_node, 2000 };
	int new, mark;
	bool ok;

	ok = fails(scif_bind(epd, 0), error, "bind") &&
	     fails(scif_listen(epd, 1), error, "listen") &&
	     fails(scif_connect(epd, &port), error, "connect") &&
	     fails(scif_accept(epd, &port, &new, 0), error, "accept") &&
	     fails(scif_send(epd, mem, 1, 0), error, "send") &&
	     fails(scif_recv(epd, mem, 1, 0), error, "recv") &&
	     fails(scif_register(epd, mem, 4096, 0, 1, 0), error, "register") &&
	     fails(scif_unregister(epd, 0, 4096), error, "unregister") &&
	     fails(scif_mmap(NULL, 4096, 1, 0, epd, 0) == SCIF_MMAP_FAILED ?
			   -1 :
			   0,
		   error, "mmap") &&
	     fails(scif_readfrom(epd, 0, 1, 0, 0), error, "readfrom") &&
	     fails(scif_writeto(epd, 0, 1, 0, 0), error, "writeto") &&
	     fails(scif_vreadfrom(epd, mem, 1, 0, 0), error, "vreadfrom") &&
	     fails(scif_vwriteto(epd, mem, 1, 0, 0), error, "vwriteto") &&
	     fails(scif_fence_mark(epd, SCIF_FENCE_INIT_SELF, &mark), error,
		   "fence_mark") &&
	     fails(scif_fence_wait(epd, 1), error, "fence_wait") &&
	     fails(scif_fence_signal(epd, 0, 0, 0, 0,
				     SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL),
		   error, "fence_signal") &&
	     fails(scif_close(epd), error, "close");
	munmap(mem, 4096);
	return ok;
}

static bool every_function(void)
{
	int epd = scif_open(), file = open("/dev/zero", O_RDWR);
	bool ok;

	scif_close(epd);
	ok = all_fail(epd, EBADF) && all_fail(-1, EBADF) &&
	     all_fail(file, ENOTTY) &&
	     check(fcntl(file, F_GETFD) != -1, "the file is still open");
	close(file);
	return ok;
}

static bool duplicates(void)
{
	int own, other, copy;
	char bytes[4];
	bool ok;

	connect_pair(&own, &other);
	copy = fcntl(own, F_DUPFD_CLOEXEC, 100);
	ok = succeeds(scif_send(copy, "abc", 3, 1), 3, "send by the copy") &&
	     succeeds(scif_close(own), 0, "close one") &&
	     succeeds(scif_send(copy, "def", 3, 1), 3, "the copy works") &&
	     succeeds(peer_recv(other, bytes, 3, 1), 3, "recv") &&
	     succeeds(peer_recv(other, bytes, 3, 1), 3, "recv") &&
	     check(!memcmp(bytes, "def", 3), "bytes") &&
	     fails(scif_send(own, "x", 1, 0), EBADF, "the closed one");
	scif_close(copy);
	ok = fails(peer_recv(other, bytes, 1, 1), ECONNRESET, "both closed") &&
	     ok;
	peer_op_epd(PEER_CLOSE, other);
	return ok;
}

enum { LONG = 8192 };

struct caller {
	int epd;
	bool sends;
	int ret;
};

static void *call_long(void *arg)
{
	static char bytes[LONG];
	struct caller *caller = arg;

	caller->ret = caller->sends ?
			      scif_send(caller->epd, bytes, sizeof(bytes), 1) :
			      scif_recv(caller->epd, bytes, sizeof(bytes), 1);
	return NULL;
}

/*
 * A stranger takes the number of an endpoint on which another thread sleeps.
 * The peer wakes that thread, and it would sleep again.
 */
static bool stranger(bool sends)
{
	struct caller caller = { .sends = sends };
	int own, other, ends[2];
	char bytes[8] = "abc";
	pthread_t thread;
	bool ok;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return check(false, "socketpair");
	connect_pair(&own, &other);
	caller.epd = own;
	pthread_create(&thread, NULL, call_long, &caller);
	sleep_ms(300);
	dup2(ends[0], own);
	ok = succeeds(send(ends[1], "for me", 6, 0), 6, "the stranger's bytes");
	if (sends)
		peer_recv(other, bytes, 3, 0);
	else
		peer_send(other, bytes, 3, 0);
	pthread_join(thread, NULL);
	ok = check(caller.ret < LONG, "the call returns %d", caller.ret) &&
	     succeeds(recv(own, bytes, 8, MSG_DONTWAIT), 6, "they are there") &&
	     fails(recv(ends[1], bytes, 8, MSG_DONTWAIT), EAGAIN,
		   "no others") &&
	     ok;
	close(own);
	close(ends[0]);
	close(ends[1]);
	peer_op_epd(PEER_CLOSE, other);
	return ok;
}

static bool stranger_is_left_alone(void)
{
	return stranger(true) && stranger(false);
}

/* After the peer's end by @op: HUP and ECONNRESET here. */
static bool ends(enum peer_op op, const char *what)
{
	int own, other;
	char byte = 0;
	bool ok;

	connect_pair(&own, &other);
	peer_send(other, "abc", 3, 1);
	if (op == PEER_OPEN)
		peer_kill();
	else
		peer_op_epd(op, other);
	ok = shows(own, POLLHUP) &&
	     succeeds(scif_recv(own, &byte, 1, 1), 1, "a byte") &&
	     check(byte == 'a', "the byte") &&
	     fails(scif_send(own, &byte, 1, 1), ECONNRESET, what);
	scif_close(own);
	return ok;
}

static bool ends_by_close(void)
{
	return ends(PEER_CLOSE, "scif_close") &&
	       ends(PEER_PLAIN_CLOSE, "close");
}

static bool ends_by_exit(void)
{
	return ends(PEER_EXIT, "exit");
}

static bool ends_by_kill(void)
{
	return ends(PEER_OPEN, "SIGKILL");
}

/* A thread that looks at one endpoint until something happens. */
struct looker {
	int epd;
	short shown;
	pthread_t thread;
};

static void *look_for_ever(void *argument)
{
	struct looker *looker = argument;
	struct scif_pollepd entry = { looker->epd, SCIF_POLLIN, 0 };

	scif_poll(&entry, 1, -1);
	looker->shown = entry.revents;
	return NULL;
}

/* @epd under a number that nothing else takes. */
static void begin_to_look(struct looker *looker, int epd)
{
	looker->epd = fcntl(epd, F_DUPFD_CLOEXEC, 100);
	scif_close(epd);
	pthread_create(&looker->thread, NULL, look_for_ever, looker);
	sleep_ms(300);
}

static bool ends_looked_at(void)
{
	struct peer_call call = { .op = PEER_RECV, .flags = 1, .length = 1 };
	struct looker looker;
	bool ok;
	int own;

	connect_pair(&own, &call.epd);
	begin_to_look(&looker, own);
	scif_close(looker.epd);
	ok = peer_fails(&call, ECONNRESET, "the peer's recv");
	pthread_join(looker.thread, NULL);
	peer_op_epd(PEER_CLOSE, call.epd);
	return check(looker.shown == SCIF_POLLNVAL, "scif_poll shows 0x%x",
		     looker.shown) &&
	       ok;
}

static bool listener_ends_looked_at(void)
{
	int first = scif_open(), next = scif_open(), port;
	uint64_t end = deadline();
	struct looker looker;

	port = scif_bind(first, 0);
	scif_listen(first, 1);
	begin_to_look(&looker, first);
	scif_close(looker.epd);
	while (scif_bind(next, port) < 0 && errno == EINVAL && now_ms() < end)
		sleep_ms(20);
	scif_close(next);
	next = scif_open();
	if (!succeeds(scif_bind(next, port), port, "the port is free"))
		return false;
	pthread_join(looker.thread, NULL);
	scif_close(next);
	return check(looker.shown == SCIF_POLLNVAL, "scif_poll shows 0x%x",
		     looker.shown);
}

/* All threads of this process, to one processor or to any. */
static void run_on(const cpu_set_t *set)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (atoi(entry->d_name))
			sched_setaffinity(atoi(entry->d_name), sizeof(*set),
					  set);
	if (dir)
		closedir(dir);
}

/* The library's thread notices the close, too, and may be there first. */
static bool port_is_free_at_once(void)
{
	enum { PORT = 2600, CLOSES = 1000 };
	cpu_set_t all, one;
	bool ok = true;
	int epd, i;

	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	run_on(&one);
	for (i = 0; i < CLOSES && ok; i++) {
		epd = scif_open();
		ok = succeeds(scif_bind(epd, PORT), PORT, "bind") &&
		     succeeds(scif_listen(epd, 1), 0, "listen");
		scif_close(epd);
	}
	run_on(&all);
	return check(ok, "after %d times", i);
}

/* A call that waits for something that will not come. */
struct waiter {
	int epd;
	bool (*waits)(int epd);
	pthread_t thread;
	bool ok;
};

static bool waits_to_send(int epd)
{
	static char bytes[2 * LONG];
	int ret = scif_send(epd, bytes, sizeof(bytes), SCIF_SEND_BLOCK);

	/* What had room was sent before. */
	return check(ret < (int)sizeof(bytes), "send returns %d", ret) &&
	       fails(scif_send(epd, bytes, 1, SCIF_SEND_BLOCK), ECONNRESET,
		     "send");
}

static bool waits_to_receive(int epd)
{
	char byte;

	return fails(scif_recv(epd, &byte, 1, SCIF_RECV_BLOCK), ECONNRESET,
		     "recv");
}

static bool waits_to_poll(int epd)
{
	struct scif_pollepd entry = { epd, SCIF_POLLIN, 0 };

	return succeeds(scif_poll(&entry, 1, -1), 1, "poll") &&
	       check(entry.revents == SCIF_POLLHUP, "it shows 0x%x",
		     entry.revents);
}

static bool waits_for_mark(int epd)
{
	int mark;

	return fails(scif_fence_mark(epd, SCIF_FENCE_INIT_PEER, &mark),
		     ECONNRESET, "mark");
}

static bool waits_for_signal(int epd)
{
	return fails(scif_fence_signal(epd, 0, 1, 0, 1,
				       SCIF_FENCE_INIT_PEER |
					       SCIF_SIGNAL_LOCAL),
		     ECONNRESET, "signal");
}

static void *wait_for_nothing(void *argument)
{
	struct waiter *waiter = argument;

	waiter->ok = waiter->waits(waiter->epd);
	return NULL;
}

/* The peer stops, calls wait for it, and it dies. */
static bool ends_waits(void)
{
	static bool (*const waits[])(
		int epd) = { waits_to_send, waits_to_receive, waits_to_poll,
			     waits_for_mark, waits_for_signal };
	enum { WAITERS = sizeof(waits) / sizeof(waits[0]) };
	struct waiter waiters[WAITERS];
	bool ok = true;
	int other, i;

	for (i = 0; i < WAITERS; i++) {
		connect_pair(&waiters[i].epd, &other);
		waiters[i].waits = waits[i];
	}
	peer_stop();
	for (i = 0; i < WAITERS; i++)
		pthread_create(&waiters[i].thread, NULL, wait_for_nothing,
			       &waiters[i]);
	sleep_ms(300);
	peer_kill();
	for (i = 0; i < WAITERS; i++) {
		pthread_join(waiters[i].thread, NULL);
		ok = check(waiters[i].ok, "call %d", i) && ok;
		scif_close(waiters[i].epd);
	}
	return ok;
}

/*
 * The peer has changed its credentials, and rdma_cm tells it nothing any more: it
 * finds out by itself, in a call that waits and for poll().
 */
static bool ends_untold(void)
{
	struct peer_call call = { .op = PEER_SETGROUPS };
	int waits[2], polls[2];
	bool ok;

	connect_pair(&waits[0], &waits[1]);
	connect_pair(&polls[0], &polls[1]);
	ok = succeeds(peer_do(&call), 0, "setgroups");
	call.op = PEER_RECV;
	call.epd = waits[1];
	call.flags = SCIF_RECV_BLOCK;
	call.length = 1;
	peer_begin(&call);
	sleep_ms(100);
	scif_close(waits[0]);
	scif_close(polls[0]);
	ok = check(peer_finish(&call) == -1 && call.error == ECONNRESET,
		   "the peer's recv: %s", strerrorname_np(call.error)) &&
	     ok;
	call.op = PEER_POLL;
	call.epd = polls[1];
	call.flags = SCIF_POLLIN;
	call.length = 20000;
	ok = succeeds(peer_do(&call), 1, "the peer's poll") &&
	     check(call.flags == SCIF_POLLHUP, "it shows 0x%x", call.flags) &&
	     ok;
	peer_kill();
	return ok;
}

/* The child has all the descriptors that it may have. */
static pid_t fork_when_full(void)
{
	unsigned long limit = limit_descriptors(next_number());
	pid_t child = fork();

	if (child)
		limit_descriptors(limit);
	return child;
}

/* A child that lives on does not keep the parent's connections. */
static bool child_keeps_nothing(bool full)
{
	int own, other, pipes[2];
	pid_t child;
	char byte;
	bool ok;

	connect_pair(&own, &other);
	if (pipe2(pipes, O_CLOEXEC))
		return check(false, "pipe");
	child = full ? fork_when_full() : fork();
	if (!child) {
		close(pipes[1]);
		if (scif_send(own, "x", 1, 0) != -1)
			_exit(1);
		_exit(read(pipes[0], &byte, 1) == 0 ? 0 : 2);
	}
	ok = succeeds(scif_send(own, "a", 1, 1), 1, "the parent's send") &&
	     succeeds(peer_recv(other, &byte, 1, 1), 1, "recv") &&
	     check(byte == 'a', "not the child's byte");
	scif_close(own);
	ok = fails(peer_recv(other, &byte, 1, 1), ECONNRESET, "closed") && ok;
	close(pipes[1]);
	close(pipes[0]);
	waitpid(child, &own, 0);
	peer_op_epd(PEER_CLOSE, other);
	return check(WIFEXITED(own) && !WEXITSTATUS(own), "child 0x%x", own) &&
	       ok;
}

static bool fork_keeps_nothing(void)
{
	return child_keeps_nothing(false);
}

static bool full_fork_keeps_nothing(void)
{
	return child_keeps_nothing(true);
}

/* Another program that this one starts, without its knowing, has no descriptors. */
static bool program_keeps_nothing(void)
{
	char *const arguments[] = { "sleep", "60", NULL };
	struct peer_call call = { .op = PEER_RECV, .flags = 1, .length = 1 };
	int own, other;
	pid_t pid;
	bool ok;

	connect_pair(&own, &other);
	if (posix_spawn(&pid, "/bin/sleep", NULL, NULL, arguments, environ))
		return check(false, "posix_spawn");
	call.epd = other;
	peer_begin(&call);
	scif_close(own);
	ok = check(peer_finish(&call) == -1 && call.error == ECONNRESET,
		   "the peer's call: %s", strerrorname_np(call.error)) &&
	     check(!waitpid(pid, NULL, WNOHANG), "the program has ended");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	peer_op_epd(PEER_CLOSE, other);
	return ok;
}

const struct behaviour lifetime_cases[] = {
	{ 54, "numbers of nodes", node_numbers },
	{ 55, "wrong descriptors: EBADF, ENOTTY", wrong_descriptors },
	{ 55, "every function: EBADF, ENOTTY", every_function },
	{ 55, "dup: the last close ends it", duplicates },
	{ 55, "a number that a stranger has now", stranger_is_left_alone },
	{ 56, "the end by close: HUP, ECONNRESET", ends_by_close },
	{ 56, "the end while scif_poll waits: NVAL, ECONNRESET",
	  ends_looked_at },
	{ 56, "a listener's end while scif_poll waits",
	  listener_ends_looked_at },
	{ 56, "a port is free when its endpoint is closed",
	  port_is_free_at_once },
	{ 56, "the end by exit: HUP, ECONNRESET", ends_by_exit },
	{ 56, "the end by SIGKILL: HUP, ECONNRESET", ends_by_kill },
	{ 56, "the end while calls wait: ECONNRESET", ends_waits },
	{ 56, "the end for who has other credentials: HUP, ECONNRESET",
	  ends_untold },
	{ 56, "a forked child keeps nothing", fork_keeps_nothing },
	{ 56, "a child that can open nothing keeps nothing",
	  full_fork_keeps_nothing },
	{ 56, "another program keeps nothing", program_keeps_nothing },
	{ 0, NULL, NULL }
};
