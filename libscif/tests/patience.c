// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * A peer that speaks the library's protocol with verbs, and does not do what the library
 * waits for: what that may keep, and for how long.
 * usage: scif_patience NODES OWN VICTIM-ADDRESS
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "liar.h"
#include "peer.h"
#include "process.h"
#include "tap.h"

enum {
	PAGE = 4096,
	MUCH = 12 << 20,
	RELEASE = 5,
	SILENT = 3,
	DEAF = 3, /* of those, see lie() */
	RW = SCIF_PROT_READ | SCIF_PROT_WRITE
};

/* What the two tell each other. */
static int go[2], told[2];

static bool tell(bool ok)
{
	return write(told[1], ok ? "y" : "n", 1) == 1 && ok;
}

static bool let_go(void)
{
	return check(write(go[1], "", 1) == 1, "pipe");
}

static bool show_window(struct liar *liar)
{
	struct scif_shared *shared = (struct scif_shared *)liar->mem;
	struct scif_dir_entry *entry = (void *)(liar->mem + 2 * PAGE);

	entry->length = PAGE;
	entry->addr = (uintptr_t)liar->mem + 3 * PAGE;
	entry->id = 1;
	entry->rkey = liar->mr->rkey;
	entry->prot = RW;
	shared->dir.count = 1;
	shared->dir.addr = (uintptr_t)entry;
	shared->dir.rkey = liar->mr->rkey;
	atomic_store(&shared->dir.begin, 2);
	atomic_store(&shared->dir.end, 2);
	return say_directory(liar, 2);
}

/* Has the victim sent this message, after others perhaps? */
static bool hears(struct liar *liar, uint32_t type, uint64_t first)
{
	const volatile struct scif_message *heard = liar->heard;
	uint64_t end = deadline();
	unsigned int round = 0;

	while ((heard->type != type || heard->args[0] != first) &&
	       now_ms() < end)
		relax(round++);
	return check(now_ms() < end, "no message %u of %llu", type,
		     (unsigned long long)first);
}

/*
 * Does not say that a window is mapped, and wants to know when the victim is done with
 * its windows.
 */
static bool answer_no_mapping(const char *address)
{
	struct scif_message release = { .type = SCIF_RELEASE };
	struct liar liar;
	bool ok;

	if (!connect_liar(&liar, address, true))
		return tell(false);
	release.args[0] = RELEASE;
	ok = show_window(&liar) && tell(true) && hears(&liar, SCIF_MAPPED, 1) &&
	     say(&liar, &release) && hears(&liar, SCIF_REPLY, RELEASE);
	tell(ok);
	close_liar(&liar);
	return ok;
}

static bool is_let_go(void)
{
	char byte;

	return read(go[0], &byte, 1) == 1;
}

/* Asks for a signal, for which its directory has to be read, and changes that for long. */
static bool change_directory(const char *address)
{
	struct scif_message signal = { .type = SCIF_SIGNAL,
				       .tag = 1,
				       .flags = SCIF_SIGNAL_LOCAL |
						SCIF_SIGNAL_REMOTE };
	struct scif_shared *shared;
	uint64_t until = deadline();
	struct liar liar;
	bool ok;

	if (!connect_liar(&liar, address, true) || !is_let_go())
		return tell(false);
	shared = (struct scif_shared *)liar.mem;
	atomic_store(&shared->dir.begin, 2);
	ok = say_directory(&liar, 2) && say(&liar, &signal) && tell(true);
	while (now_ms() < until && !readable_within(go[0], 50)) {
		atomic_fetch_add(&shared->dir.begin, 1);
		atomic_store(&shared->dir.end,
			     atomic_load(&shared->dir.begin) - 1);
	}
	ok = ok && check(now_ms() < until, "it is not let go") && is_let_go();
	tell(ok);
	close_liar(&liar);
	return ok;
}

/* They ask, and say nothing when they are accepted. */
static bool answer_no_reply(const char *address)
{
	struct scif_hello hello = { .node = LIAR_NODE, .shared_rkey = 1 };
	struct liar liars[SILENT] = {};
	bool ok = true;
	int i;

	for (i = 0; i < SILENT && ok; i++) {
		hello.rma_qpn = 0xabcd00 + i;
		ok = reach(&liars[i], address) && greet(&liars[i], &hello, 12);
	}
	return tell(ok);
}

/* Takes no message. */
static bool hear_nothing(const char *address)
{
	struct liar liar;
	bool ok = tell(connect_deaf(&liar, address)) && is_let_go();

	close_liar(&liar);
	return ok;
}

static void lie(const char *address)
{
	static bool (*const lies[])(const char *address) = {
		answer_no_mapping, change_directory, answer_no_reply,
		hear_nothing,	   hear_nothing,     hear_nothing
	};
	unsigned int i;

	for (i = 0; i < sizeof(lies) / sizeof(lies[0]) && is_let_go(); i++)
		lies[i](address);
	for (;;)
		pause();
}

/* A process of its own, from before the library is used here. */
static pid_t start_liar(const char *address)
{
	pid_t child;

	if (pipe2(go, O_CLOEXEC) || pipe2(told, O_CLOEXEC))
		bail("pipe");
	fflush(stdout);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		lie(address);
		_exit(1);
	}
	return child;
}

static int accept_liar(int listener)
{
	struct scif_port_id from;
	int epd = -1;

	if (shows(listener, POLLIN) &&
	    !succeeds(scif_accept(listener, &from, &epd, 0), 0, "accept"))
		epd = -1;
	return epd;
}

static void *map_page(void *epd)
{
	void *mem = scif_mmap(NULL, PAGE, RW, 0, *(int *)epd, 0);

	return mem == SCIF_MMAP_FAILED ? NULL : mem;
}

/* Who waits for it uses none of its windows meanwhile, and says so. */
static bool meets_no_mapping(int listener)
{
	pthread_t thread;
	void *mem;
	int epd;
	bool ok;

	if (!let_go())
		return false;
	epd = accept_liar(listener);
	if (epd < 0 || !is_told(told[0], 'y'))
		return false;
	pthread_create(&thread, NULL, map_page, &epd);
	ok = is_told(told[0], 'y');
	pthread_join(thread, &mem);
	ok = check(!mem, "mapped without an answer") && ok;
	scif_close(epd);
	return ok;
}

/* Who reads its directory uses no window meanwhile, and none stays locked for it. */
static bool meets_change(int listener)
{
	uint8_t *mem = fresh_pages(MUCH);
	size_t before;
	int epd;
	bool ok;

	if (!let_go())
		return false;
	epd = accept_liar(listener);
	before = pinned();
	ok = succeeds(scif_register(epd, mem, MUCH, 0, RW, SCIF_MAP_FIXED), 0,
		      "register") &&
	     let_go() && is_told(told[0], 'y');
	sleep_ms(300 * slowness());
	ok = ok && succeeds(scif_unregister(epd, 0, MUCH), 0, "unregister") &&
	     unpins(before + MUCH / 2) &&
	     check(!(scif_poll_now(epd) & POLLHUP), "it is disconnected");
	/* it is still at it, or says that it was not let go */
	ok = let_go() && is_told(told[0], 'y') && ok;
	scif_close(epd);
	munmap(mem, MUCH);
	return ok;
}

/* Will who waits for changes at the listener be told of one? */
static bool changes(int epoll, const char *when)
{
	struct epoll_event event;

	return check(epoll_wait(epoll, &event, 1, 100) == 1 &&
			     event.events & EPOLLIN,
		     "%s: no change", when);
}

static void nothing(int number)
{
	(void)number;
}

/* One of those who wait is given up after some seconds, the next is for the next call. */
static bool meets_no_reply(int listener)
{
	const struct itimerval often = { { 0, 200000 }, { 0, 200000 } };
	const struct itimerval never = { { 0, 0 }, { 0, 0 } };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct sigaction action = { .sa_handler = nothing };
	int epd, epoll = epoll_create1(EPOLL_CLOEXEC);
	struct scif_port_id from;
	bool ok;

	epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
	if (!let_go() || !is_told(told[0], 'y') || !shows(listener, POLLIN))
		return false;
	sleep_ms(500 * slowness()); /* all of them are there */
	ok = changes(epoll, "who asks") &&
	     fails(scif_accept(listener, &from, &epd, 0), EAGAIN, "accept") &&
	     check(poll_now(listener) & POLLIN, "nobody waits") &&
	     changes(epoll, "who still waits");
	close(epoll);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	ok = fails(scif_accept(listener, &from, &epd, SCIF_ACCEPT_SYNC), EINTR,
		   "accept under signals") &&
	     check(poll_now(listener) & POLLIN, "nobody is left") && ok;
	setitimer(ITIMER_REAL, &never, NULL);
	return ok;
}

struct unregistering {
	int epd;
	atomic_bool over;
};

static void *unregister_page(void *argument)
{
	struct unregistering *call = argument;

	/* it is over when that peer is given up, or as if it had heard of it */
	(void)scif_unregister(call->epd, 0, PAGE);
	atomic_store(&call->over, true);
	return NULL;
}

/* In @others: was that one still waited for when the others had been looked after? */
static bool meets_one_deaf(int listener, bool *others)
{
	struct unregistering call = { .over = false };
	uint8_t *mem = fresh_pages(PAGE);
	int asks, answers;
	pthread_t thread;
	bool ok;

	if (!let_go())
		return false;
	connect_oneself(&asks, &answers);
	call.epd = accept_liar(listener);
	ok = is_told(told[0], 'y') &&
	     succeeds(scif_register(call.epd, mem, PAGE, 0, RW, SCIF_MAP_FIXED),
		      0, "register");
	pthread_create(&thread, NULL, unregister_page, &call);
	sleep_ms(500);
	ok = ok && marks_pass(asks);
	*others = !atomic_load(&call.over);
	pthread_join(thread, NULL);
	ok = let_go() && marks_pass(asks) && ok;
	scif_close(call.epd);
	scif_close(asks);
	scif_close(answers);
	munmap(mem, PAGE);
	return ok;
}

/*
 * The peer shall say when it is done with a window, and takes no message. While a call
 * waits for that, the library's thread looks after the windows that go, and others. The
 * call does so for five seconds, which may be too little for a slow machine.
 */
static bool meets_deafness(int listener)
{
	bool ok = true, others = false;
	int i;

	for (i = 0; i < DEAF && ok && !others; i++)
		ok = meets_one_deaf(listener, &others);
	return ok && check(others, "they have waited for the call");
}

static int listen_to_liars(void)
{
	int listener = scif_open();

	if (scif_bind(listener, LIAR_PORT) < 0 || scif_listen(listener, 4))
		bail("listen: %s", strerror(errno));
	return listener;
}

int main(int argc, char **argv)
{
	int listener, status;
	pid_t child;

	if (argc != 4)
		bail("usage: %s NODES OWN ADDRESS", argv[0]);
	setenv("SCIF_NODES", argv[1], 1);
	setenv("SCIF_NODE", argv[2], 1);
	own_node = atoi(argv[2]);
	child = start_liar(argv[3]);
	listener = listen_to_liars();
	tap_ok(meets_no_mapping(listener),
	       "who waits for a mapping keeps no window of the peer's");
	tap_ok(meets_change(listener),
	       "unregister waits for no directory that changes always");
	tap_ok(meets_no_reply(listener),
	       "accept waits for one that never completes");
	scif_close(listener);
	listener = listen_to_liars();
	tap_ok(meets_deafness(listener),
	       "unregister waits for one that takes no message, others do not");
	scif_close(listener);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return tap_end();
}
