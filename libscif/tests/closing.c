// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * What is free when an endpoint is closed, or its connection has ended.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "behaviour.h"
#include "clock.h"
#include "hooks.h"
#include "peer.h"
#include "process.h"
#include "tap.h"

enum {
	PORT = 2601,
	ROUNDS = 5,
	MUCH = 4 << 20,
	LITTLE = 64 << 10,
	RW = SCIF_PROT_READ | SCIF_PROT_WRITE
};

/* A call that waits on a bound endpoint until that is closed. */
struct waiter {
	int epd;
	struct scif_port_id peer; /* listens */
	pthread_t thread;
};

static void *wait_to_accept(void *argument)
{
	struct waiter *waiter = argument;
	struct scif_port_id from;
	int new;

	scif_accept(waiter->epd, &from, &new, SCIF_ACCEPT_SYNC);
	return NULL;
}

static void *wait_to_connect(void *argument)
{
	struct waiter *waiter = argument;

	scif_connect(waiter->epd, &waiter->peer);
	return NULL;
}

static void *wait_to_receive(void *argument)
{
	struct waiter *waiter = argument;
	char byte;

	scif_recv(waiter->epd, &byte, 1, SCIF_RECV_BLOCK);
	return NULL;
}

/* The number is one that nothing else takes. */
static bool is_free_after(struct waiter *waiter, void *(*wait)(void *),
			  const char *what)
{
	int next;
	bool ok;

	pthread_create(&waiter->thread, NULL, wait, waiter);
	sleep_ms(100);
	scif_close(waiter->epd);
	next = scif_open();
	ok = succeeds(scif_bind(next, PORT), PORT, what);
	scif_close(next);
	pthread_join(waiter->thread, NULL);
	return ok;
}

static int bound_endpoint(void)
{
	int low = scif_open(), epd = fcntl(low, F_DUPFD_CLOEXEC, 100);

	close(low);
	return succeeds(scif_bind(epd, PORT), PORT, "bind") ? epd : -1;
}

static bool free_of_accept(struct waiter *waiter)
{
	waiter->epd = bound_endpoint();
	return succeeds(scif_listen(waiter->epd, 1), 0, "listen") &&
	       is_free_after(waiter, wait_to_accept, "under accept");
}

static bool free_of_connect(struct waiter *waiter)
{
	waiter->epd = bound_endpoint();
	return is_free_after(waiter, wait_to_connect, "under connect");
}

static bool free_of_recv(struct waiter *waiter, int listener)
{
	struct peer_call accept = { .op = PEER_ACCEPT,
				    .epd = listener,
				    .flags = SCIF_ACCEPT_SYNC };
	bool ok;

	waiter->epd = bound_endpoint();
	peer_begin(&accept);
	ok = succeeds(scif_connect(waiter->epd, &waiter->peer), PORT,
		      "connect");
	peer_finish(&accept);
	ok = ok && is_free_after(waiter, wait_to_receive, "under recv");
	peer_op_epd(PEER_CLOSE, accept.ret);
	return ok;
}

/* Who sleeps in a call keeps the file of the closed descriptor for a moment. */
static bool port_is_free_of_waiters(void)
{
	struct peer_call call = { .op = PEER_BIND };
	struct waiter waiter = { .peer.node = peer_node };
	bool ok = true;
	int i;

	call.epd = peer_op_epd(PEER_OPEN, -1);
	waiter.peer.port = peer_do(&call);
	call.op = PEER_LISTEN;
	call.flags = 2 * ROUNDS;
	peer_do(&call);
	for (i = 0; i < ROUNDS && ok; i++)
		ok = free_of_accept(&waiter) && free_of_recv(&waiter, call.epd);
	/* These requests stay with the listener. */
	for (i = 0; i < ROUNDS && ok; i++)
		ok = free_of_connect(&waiter);
	peer_op_epd(PEER_CLOSE, call.epd);
	return ok;
}

/* Copies are under way, from memory that has been unregistered. */
static bool end_unlocks_once(uint8_t *mem)
{
	enum { COPIES = 16 };
	size_t before;
	int own, other, i;
	bool ok;

	connect_pair(&own, &other);
	ok = succeeds(peer_register(other, 0, MUCH, 0, RW, SCIF_MAP_FIXED), 0,
		      "the peer's register");
	before = pinned();
	ok = succeeds(scif_register(own, mem, MUCH, 0, RW, SCIF_MAP_FIXED), 0,
		      "register") &&
	     ok;
	for (i = 0; i < COPIES && ok; i++)
		ok = succeeds(scif_writeto(own, 0, MUCH, 0, 0), 0, "copy");
	ok = succeeds(scif_unregister(own, 0, MUCH), 0, "unregister") && ok;
	peer_op_epd(PEER_CLOSE, other);
	ok = shows(own, POLLHUP) && unpins(before + LITTLE) && ok;
	scif_close(own);
	return ok;
}

static bool end_unlocks(void)
{
	uint8_t *mem = fresh_pages(MUCH);
	bool ok = true;
	int i;

	for (i = 0; i < ROUNDS && ok; i++)
		ok = end_unlocks_once(mem);
	munmap(mem, MUCH);
	return ok;
}

/* Until @pipe ends. The number of the copy stays taken, and is no endpoint. */
static int live_on(int pipe, int copy)
{
	char byte;

	return read(pipe, &byte, 1) || fcntl(copy, F_GETFD) < 0 ||
	       scif_send(copy, "x", 1, 0) != -1;
}

/* Of the endpoint there is only a number that no call has been given. */
static bool child_keeps_no_copy(void)
{
	int own, other, copy, pipes[2], status;
	pid_t child;
	char byte;
	bool ok;

	connect_pair(&own, &other);
	copy = dup(own);
	close(own);
	if (pipe2(pipes, O_CLOEXEC))
		return check(false, "pipe");
	child = fork();
	if (!child) {
		close(pipes[1]);
		_exit(live_on(pipes[0], copy));
	}
	ok = succeeds(scif_send(copy, "a", 1, 1), 1, "the parent's send") &&
	     succeeds(peer_recv(other, &byte, 1, 1), 1, "recv");
	scif_close(copy);
	ok = fails(peer_recv(other, &byte, 1, 1), ECONNRESET, "closed") && ok;
	close(pipes[1]);
	close(pipes[0]);
	waitpid(child, &status, 0);
	peer_op_epd(PEER_CLOSE, other);
	return check(!status, "the child ends with 0x%x", status) && ok;
}

/* Has a child as soon as it may. */
static struct forker {
	pthread_t thread;
	pid_t child;
	int pipes[2];
} forker;

static void *fork_child(void *unused)
{
	forker.child = fork();
	if (!forker.child) {
		close(forker.pipes[1]);
		_exit(live_on(forker.pipes[0], 0));
	}
	return unused;
}

static int start_fork(void)
{
	pthread_create(&forker.thread, NULL, fork_child, NULL);
	sleep_ms(100 * slowness());
	return 0;
}

/* Its parent's descriptor was there when the child was made, and no endpoint yet. */
static bool child_keeps_none_in_the_making(void)
{
	struct scif_port_id port = { .node = peer_node };
	struct peer_call call = { .op = PEER_POLL,
				  .flags = SCIF_POLLIN,
				  .length = 25000 };
	int own, listener, status = -1;
	bool ok;

	port.port = peer_listen(&listener, 1);
	if (pipe2(forker.pipes, O_CLOEXEC))
		return check(false, "pipe");
	hook_next(HOOK_SETSOCKOPT, start_fork);
	own = scif_open();
	if (hook_waits(HOOK_SETSOCKOPT))
		return check(false, "there was no fork");
	pthread_join(forker.thread, NULL);
	fcntl(own, F_SETFL, O_NONBLOCK);
	scif_connect(own, &port);
	call.epd = peer_accept(listener);
	close(own);
	ok = succeeds(peer_do(&call), 1, "the peer's poll") &&
	     check(call.flags & SCIF_POLLHUP, "it shows 0x%x", call.flags);
	close(forker.pipes[1]);
	waitpid(forker.child, &status, 0);
	close(forker.pipes[0]);
	peer_op_epd(PEER_CLOSE, call.epd);
	peer_op_epd(PEER_CLOSE, listener);
	return check(!status, "the child ends with 0x%x", status) && ok;
}

/*
 * Another program that is about to begin: with posix_spawn() there is no fork that the
 * library is told of. It says at the first FIFO that it is there, and waits at the second.
 */
struct spawned {
	char folder[32];
	char here[48];
	char go[48];
	pid_t pid;
	int error;
};

static bool make_fifos(struct spawned *program)
{
	strcpy(program->folder, "/tmp/scif-spawn-XXXXXX");
	if (!mkdtemp(program->folder))
		return check(false, "mkdtemp: %s", strerror(errno));
	snprintf(program->here, sizeof(program->here), "%s/here",
		 program->folder);
	snprintf(program->go, sizeof(program->go), "%s/go", program->folder);
	return check(!mkfifo(program->here, 0600) && !mkfifo(program->go, 0600),
		     "mkfifo: %s", strerror(errno));
}

static void *spawn_program(void *argument)
{
	char *const arguments[] = { "true", NULL }, *const none[] = { NULL };
	struct spawned *program = argument;
	posix_spawn_file_actions_t actions;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, program->here, O_WRONLY,
					 0);
	posix_spawn_file_actions_addopen(&actions, 0, program->go, O_RDONLY, 0);
	program->error = posix_spawn(&program->pid, "/bin/true", &actions, NULL,
				     arguments, none);
	posix_spawn_file_actions_destroy(&actions);
	return NULL;
}

/* It has what this process has, until it is another program. */
static bool port_is_free_of_programs(void)
{
	struct spawned program;
	int own, next, here, go;
	pthread_t thread;
	bool ok;

	if (!make_fifos(&program))
		return false;
	own = bound_endpoint();
	pthread_create(&thread, NULL, spawn_program, &program);
	here = open(program.here, O_RDONLY);
	ok = succeeds(scif_close(own), 0, "close");
	next = scif_open();
	ok = succeeds(scif_bind(next, PORT), PORT, "the port is free") && ok;
	scif_close(next);
	go = open(program.go, O_WRONLY);
	pthread_join(thread, NULL);
	ok = succeeds(program.error, 0, "spawn") && ok;
	waitpid(program.pid, NULL, 0);
	close(here);
	close(go);
	unlink(program.here);
	unlink(program.go);
	rmdir(program.folder);
	return ok;
}

/*
 * A child that is made when its parent has listened, and not connected yet. If it kept
 * the device, what the parent registers later would stay when that dies.
 */
static bool early_child_keeps_no_device(void)
{
	struct peer_call call = { .op = PEER_BIND };
	bool ok;

	/* One that has never been connected. */
	peer_kill();
	call.epd = peer_op_epd(PEER_OPEN, -1);
	peer_do(&call);
	call.op = PEER_LISTEN;
	call.flags = 1;
	ok = succeeds(peer_do(&call), 0, "listen");
	call.op = PEER_FORK;
	ok = succeeds(peer_do(&call), 0, "the child's devices") && ok;
	peer_op_epd(PEER_CLOSE, call.epd);
	return ok;
}

struct closer {
	int epd;
	int listener;
};

/* With other credentials than the library has begun with. */
static void *close_as_another(void *argument)
{
	struct closer *closer = argument;

	setfsuid(1);
	scif_close(closer->epd);
	scif_close(closer->listener);
	return NULL;
}

static bool closed_as_another(void)
{
	struct peer_call call = { .op = PEER_POLL,
				  .flags = SCIF_POLLIN,
				  .length = 20000 };
	struct closer closer = { .listener = bound_endpoint() };
	pthread_t thread;
	int next;
	bool ok;

	connect_pair(&closer.epd, &call.epd);
	ok = succeeds(scif_listen(closer.listener, 1), 0, "listen");
	pthread_create(&thread, NULL, close_as_another, &closer);
	pthread_join(thread, NULL);
	ok = succeeds(peer_do(&call), 1, "the peer's poll") &&
	     check(call.flags == SCIF_POLLHUP, "it shows 0x%x", call.flags) &&
	     ok;
	next = scif_open();
	ok = succeeds(scif_bind(next, PORT), PORT, "the port is free") && ok;
	scif_close(next);
	peer_op_epd(PEER_CLOSE, call.epd);
	return ok;
}

/* Then rdma_cm does nothing for the peer any more. */
static bool ends_by_another(void)
{
	struct peer_call call = { .op = PEER_SETGROUPS };
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	ok = succeeds(peer_do(&call), 0, "setgroups");
	peer_op_epd(PEER_CLOSE, other);
	ok = shows(own, POLLHUP) && ok;
	peer_kill();
	scif_close(own);
	return ok;
}

const struct behaviour closing_cases[] = {
	{ 56, "a port is free when its endpoint is closed under a call",
	  port_is_free_of_waiters },
	{ 56, "the end under copies unlocks what was unregistered",
	  end_unlocks },
	{ 56, "a forked child keeps no copy of a descriptor",
	  child_keeps_no_copy },
	{ 56, "a forked child keeps no descriptor that was being made",
	  child_keeps_none_in_the_making },
	{ 56, "a port is free when its endpoint is closed beside posix_spawn()",
	  port_is_free_of_programs },
	{ 56, "a child forked before the first connection keeps no device",
	  early_child_keeps_no_device },
	{ 56, "a thread with other credentials closes", closed_as_another },
	{ 0, NULL, NULL }
};

/* Where a process that has changed its credentials can post. */
const struct behaviour credential_cases[] = {
	{ 56, "the end by who has other credentials: HUP", ends_by_another },
	{ 0, NULL, NULL }
};
