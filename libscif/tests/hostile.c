// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * What a peer meets that lies (lies.c): it writes garbage into what it may write, shows
 * a garbage directory, sends garbage control messages, or does not answer. It may break
 * its own connection; another one must not notice, and no call may crash or hang.
 * usage: scif_hostile NODES OWN PEER VICTIM-ADDRESS [ROUNDS]
 *        scif_hostile liar VICTIM-ADDRESS ROUNDS
 * The second one is the peer only, which the first one starts with $SCIF_TEST_LIAR
 * before its name, if that is set: on another machine.
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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "lies.h"
#include "pattern.h"
#include "peer.h"
#include "process.h"
#include "tap.h"

enum {
	PAGE = LIAR_PAGE,
	CALLS = 12,
	MUCH = 12 << 20,
};

static struct random_state dice;

/* On another machine: it tells its standard output. */
static int lie_from_there(const char *address, const char *rounds)
{
	int tell = dup(STDOUT_FILENO);

	if (tell < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return 1;
	return lie(address, atoi(rounds), tell);
}

static void exec_liar(const char *where, const char *self, const char *address,
		      unsigned int rounds, int tell)
{
	char command[512];

	if (dup2(tell, STDOUT_FILENO) < 0 ||
	    snprintf(command, sizeof(command), "exec %s %s liar %s %u", where,
		     self, address, rounds) >= (int)sizeof(command))
		return;
	execl("/bin/sh", "sh", "-c", command, NULL);
}

/* A process of its own, from before the library is used here. */
static pid_t start_liar(char **argv, unsigned int rounds, int go, int tell)
{
	const char *where = getenv("SCIF_TEST_LIAR");
	pid_t child;
	char byte;

	fflush(stdout);
	child = fork();
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(go, &byte, 1) != 1)
		_exit(1);
	if (!where)
		_exit(lie(argv[4], rounds, tell));
	exec_liar(where, argv[0], argv[4], rounds, tell);
	_exit(127);
}

/* Calls that believe the liar. Whatever they return is fine. */
static void believe(int epd, uint8_t *mem)
{
	struct scif_pollepd entry = { epd, SCIF_POLLIN | SCIF_POLLOUT, 0 };
	uint8_t bytes[5000];
	int mark, i;

	scif_register(epd, mem, PAGE, 0, 3, SCIF_MAP_FIXED);
	for (i = 0; i < CALLS; i++) {
		switch (random_below(&dice, 8)) {
		case 0:
			scif_send(epd, bytes, sizeof(bytes), 0);
			break;
		case 1:
			scif_recv(epd, bytes, sizeof(bytes), 0);
			break;
		case 2:
			scif_poll(&entry, 1, 2);
			break;
		case 3:
			scif_readfrom(epd, 0, 100, PAGE, SCIF_RMA_SYNC);
			break;
		case 4:
			scif_vwriteto(epd, bytes, 100, 0, SCIF_RMA_SYNC);
			break;
		case 5:
			if (!scif_fence_mark(epd, SCIF_FENCE_INIT_PEER, &mark))
				scif_fence_wait(epd, mark);
			break;
		case 6:
			scif_fence_signal(epd, 0, 1, 0, 1,
					  SCIF_FENCE_INIT_SELF |
						  SCIF_SIGNAL_LOCAL);
			break;
		default:
			scif_unregister(epd, 0, PAGE);
			scif_register(epd, mem, PAGE, 0, 3, SCIF_MAP_FIXED);
		}
	}
}

static bool healthy(int own, int other)
{
	char text[4] = "";

	return succeeds(scif_send(own, "abc", 4, 1), 4, "send") &&
	       succeeds(peer_recv(other, text, 4, 1), 4, "recv") &&
	       check(!strcmp(text, "abc"), "the bytes");
}

/*
 * The liar's next request, if it has not gone before: what comes of that, and whether
 * the other connection is as it was.
 */
static bool survives_lies(int listener, int own, int other, uint8_t *mem,
			  unsigned int *believed)
{
	struct scif_port_id from;
	int epd;
	bool ok;

	if (!shows(listener, POLLIN))
		return false;
	if (scif_accept(listener, &from, &epd, 0))
		return check(errno == EAGAIN, "accept: %s", strerror(errno));
	++*believed;
	believe(epd, mem);
	ok = healthy(own, other);
	scif_close(epd);
	return ok;
}

/*
 * The one that holds on to windows: by @closes, or by scif_unregister(), the large one
 * goes after a while all the same.
 */
static bool meets_holder(int listener, int told, bool closes)
{
	uint8_t *mem = fresh_pages(MUCH), *page = fresh_pages(PAGE);
	struct scif_port_id from;
	size_t before;
	int epd;
	bool ok;

	if (!shows(listener, POLLIN) ||
	    !succeeds(scif_accept(listener, &from, &epd, 0), 0, "accept"))
		return false;
	before = pinned();
	ok = succeeds(scif_register(epd, mem, MUCH, PAGE, 3, SCIF_MAP_FIXED),
		      PAGE, "much") &&
	     succeeds(scif_register(epd, page, PAGE, 0, 3, SCIF_MAP_FIXED), 0,
		      "a page") &&
	     is_told(told, '\0');
	if (closes)
		scif_close(epd);
	else
		ok = succeeds(scif_unregister(epd, PAGE, MUCH), 0,
			      "unregister") &&
		     ok;
	ok = ok && is_told(told, 'y') && unpins(before + MUCH / 2);
	if (!closes)
		scif_close(epd);
	munmap(mem, MUCH);
	munmap(page, PAGE);
	return ok;
}

/* The one with two connections, of which the first has windows. */
static bool meets_thief(int listener, int told)
{
	uint8_t *pages = fresh_pages(LIES_WINDOWS * PAGE);
	int epds[2] = { -1, -1 }, i;
	struct scif_port_id from;
	bool ok = true;

	for (i = 0; i < 2 && ok; i++)
		ok = shows(listener, POLLIN) &&
		     succeeds(scif_accept(listener, &from, &epds[i], 0), 0,
			      "accept");
	for (i = 0; i < LIES_WINDOWS && ok; i++)
		ok = succeeds(scif_register(epds[0], pages + i * PAGE, PAGE,
					    i * PAGE, 3, SCIF_MAP_FIXED),
			      i * PAGE, "register");
	ok = ok && is_told(told, 'y');
	for (i = 0; i < 2; i++)
		scif_close(epds[i]);
	munmap(pages, LIES_WINDOWS * PAGE);
	return ok;
}

/* Who accepts, and does not speak the library's protocol, learns that it is over. */
static bool meets_stranger(int told)
{
	struct scif_port_id to = { .node = peer_node, .port = STRANGER_PORT };
	int epd = scif_open();
	bool ok;

	ok = is_told(told, 'l') &&
	     fails(scif_connect(epd, &to), ECONNREFUSED, "connect") &&
	     is_told(told, 'y');
	scif_close(epd);
	return ok;
}

struct acceptance {
	int listener;
	int epd;
	int ret;
	atomic_bool over;
};

static void *accept_one(void *argument)
{
	struct acceptance *acceptance = argument;
	struct scif_port_id from;

	acceptance->ret = scif_accept(acceptance->listener, &from,
				      &acceptance->epd, SCIF_ACCEPT_SYNC);
	atomic_store(&acceptance->over, true);
	return NULL;
}

/* Who comes next, in @epd; while the library is busy with it the other is served. */
static bool meets(int listener, int own, int *epd)
{
	struct scif_port_id from;

	if (!shows(listener, POLLIN) ||
	    !succeeds(scif_accept(listener, &from, epd, 0), 0, "accept"))
		return false;
	sleep_ms(500);
	if (marks_pass(own))
		return true;
	scif_close(*epd);
	return false;
}

/*
 * Is the other connection served while the library waits for a directory that
 * does not hold still? In the end that one is lost.
 */
static bool meets_unsteadiness(int listener, int own, bool last, bool *served)
{
	int epd;
	bool ok;

	if (!meets(listener, own, &epd))
		return false;
	*served = *served || !(scif_poll_now(epd) & POLLHUP);
	ok = !last || shows(epd, POLLHUP);
	scif_close(epd);
	return ok;
}

static bool survives_unsteadiness(int listener, int own, bool *served)
{
	bool ok = true;
	int i;

	for (i = 0; i < LIES_UNSTEADY && ok; i++)
		ok = meets_unsteadiness(listener, own, i == LIES_UNSTEADY - 1,
					served);
	return ok;
}

/* One that changes its windows all the time is read when it has done so. */
static bool meets_change(int listener, int own, int told)
{
	int epd;
	bool ok;

	if (!meets(listener, own, &epd))
		return false;
	ok = is_told(told, 'y');
	scif_close(epd);
	return ok;
}

/*
 * One that never answers, which the library finds out when it is accepted. Is
 * the other connection served before that? A slow machine may miss it.
 */
static bool meets_silence(int listener, int own, bool *served)
{
	struct acceptance acceptance = { .listener = listener };
	pthread_t thread;
	bool ok;

	if (!shows(listener, POLLIN))
		return false;
	pthread_create(&thread, NULL, accept_one, &acceptance);
	sleep_ms(500);
	ok = marks_pass(own);
	*served = *served || !atomic_load(&acceptance.over);
	pthread_join(thread, NULL);
	ok = succeeds(acceptance.ret, 0, "accept") &&
	     shows(acceptance.epd, POLLHUP) &&
	     fails(scif_send(acceptance.epd, "a", 1, 1), ECONNRESET,
		   "to the silent one") &&
	     ok;
	scif_close(acceptance.epd);
	return ok;
}

static bool survives_silence(int listener, int own, int other, bool *served)
{
	bool ok = healthy(own, other);
	int i;

	for (i = 0; i < LIES_SILENT && ok && !*served; i++)
		ok = meets_silence(listener, own, served);
	return healthy(own, other) && ok;
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 5 ? atoi(argv[5]) : 20, i, believed = 0;
	int listener, own, other, status, go[2], told[2];
	uint8_t *mem;
	pid_t child;
	bool ok = true, served = false, busy = false;

	if (argc == 4 && !strcmp(argv[1], "liar"))
		return lie_from_there(argv[2], argv[3]);
	if (argc < 5)
		bail("usage: %s NODES OWN PEER ADDRESS [ROUNDS]", argv[0]);
	setenv("SCIF_NODES", argv[1], 1);
	setenv("SCIF_NODE", argv[2], 1);
	own_node = atoi(argv[2]);
	peer_node = atoi(argv[3]);
	peer_start();
	if (pipe2(go, O_CLOEXEC) || pipe2(told, O_CLOEXEC))
		bail("pipe");
	child = start_liar(argv, rounds, go[0], told[1]);
	mem = fresh_pages(PAGE);
	random_seed(&dice, 78);
	connect_pair(&own, &other);
	listener = scif_open();
	if (scif_bind(listener, LIAR_PORT) < 0 || scif_listen(listener, 4))
		bail("listen: %s", strerror(errno));
	if (write(go[1], "", 1) != 1)
		bail("pipe");
	for (i = 0; i < rounds && ok; i++)
		ok = survives_lies(listener, own, other, mem, &believed);
	tap_ok(ok && believed > rounds / 2,
	       "a lying peer breaks only its own connection, round %u, %u believed",
	       i, believed);
	ok = ok && survives_unsteadiness(listener, own, &busy);
	tap_ok(ok, "a directory that is always about to change is none");
	tap_ok(busy, "while it is looked at, others are served");
	ok = ok && meets_change(listener, own, told[0]);
	tap_ok(ok, "a directory that changes for long is one");
	ok = ok && meets_holder(listener, told[0], false);
	tap_ok(ok, "a peer that releases no window keeps none for long");
	ok = ok && meets_holder(listener, told[0], true) && healthy(own, other);
	tap_ok(ok,
	       "a peer that maps a window keeps no other when that is closed");
	ok = ok && meets_thief(listener, told[0]) && healthy(own, other);
	tap_ok(ok,
	       "what one connection may use, another of the peer's may not");
	ok = ok && meets_stranger(told[0]);
	tap_ok(ok, "a peer that accepts and is none of ours is told the end");
	tap_ok(ok && survives_silence(listener, own, other, &served),
	       "a peer that does not answer is gone after a while");
	tap_ok(served, "meanwhile others are served");
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	close_pair(own, other);
	peer_end();
	return tap_end();
}
