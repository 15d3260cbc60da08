// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Many endpoints in a process, many threads on an endpoint, no descriptors
 * left, peers that die.
 * usage: scif_many NODES OWN PEER [ENDPOINTS]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "pattern.h"
#include "peer.h"
#include "process.h"
#include "tap.h"

enum {
	PAGE = 4096,
	MOST = 4096,
	RECORDS = 400,
	SENDERS = 4,
	RECORD = 64,
	ROUNDS = 20,
	MAPS = 16,
	RW = SCIF_PROT_READ | SCIF_PROT_WRITE
};

static void list_descriptors(void)
{
	char name[32], target[256];
	ssize_t length;
	int fd;

	for (fd = 0; fd < MOST; fd++) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		length = readlink(name, target, sizeof(target) - 1);
		if (length >= 0) {
			target[length] = '\0';
			tap_note("%d is %s", fd, target);
		}
	}
}

/* In a process that has not used the library: which step fails, or 0. */
static int ask_and_fork(void)
{
	unsigned int before = count_descriptors();
	int status, epd;
	uint16_t self;
	pid_t child;

	if (scif_get_nodeIDs(NULL, 0, &self) < 0 || self != own_node)
		return 1;
	if (count_descriptors() != before)
		return 2;
	child = fork();
	if (!child) {
		epd = scif_open();
		_exit(epd < 0 || scif_bind(epd, 0) < 0);
	}
	waitpid(child, &status, 0);
	return status ? 3 : 0;
}

/* The nodes' numbers are known, and a child opens the devices itself. */
static bool numbers_keep_nothing(void)
{
	pid_t child = fork();
	int status;

	if (!child)
		_exit(ask_and_fork());
	waitpid(child, &status, 0);
	return check(!status, "the child ends with 0x%x", status);
}

/*
 * Are there no more descriptors than @before? The last one to let go may be the
 * library's own thread, also of what was before: it has time as long as they get fewer.
 */
static bool returns_to(unsigned int before)
{
	uint64_t end = deadline();
	unsigned int round = 0, now, fewest = ~0U;

	while ((now = count_descriptors()) > before && now_ms() < end) {
		if (now < fewest) {
			fewest = now;
			end = deadline();
		}
		relax(round++);
	}
	if (check(now <= before, "%u descriptors, were %u", now, before))
		return true;
	list_descriptors();
	return false;
}

/* Both ends here, on one's own node. */
static bool pair_here(int listener, uint16_t port, int *one, int *two)
{
	struct scif_port_id to = { own_node, port }, from;

	*two = -1;
	*one = scif_open();
	fcntl(*one, F_SETFL, O_NONBLOCK);
	return check(*one >= 0, "open: %s", strerror(errno)) &&
	       fails(scif_connect(*one, &to), EINPROGRESS, "connect") &&
	       succeeds(scif_accept(listener, &from, two, SCIF_ACCEPT_SYNC), 0,
			"accept") &&
	       shows(*one, POLLOUT) &&
	       succeeds(scif_connect(*one, &to), from.port, "port");
}

/* An endpoint has two descriptors: more than most shells allow. */
static bool raise_limit(unsigned int descriptors)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur >= descriptors)
		return true;
	limit.rlim_cur = descriptors;
	if (limit.rlim_max < descriptors)
		limit.rlim_max = descriptors;
	return succeeds(setrlimit(RLIMIT_NOFILE, &limit), 0, "setrlimit");
}

static bool many_endpoints(int pairs)
{
	static int one[MOST], two[MOST];
	int listener = scif_open(), made, i, value;
	unsigned int before;
	uint16_t port;
	bool ok = raise_limit(4 * pairs + 64);

	port = scif_bind(listener, 0);
	scif_listen(listener, 8);
	before = count_descriptors();
	for (made = 0; made < pairs && ok; made++)
		ok = pair_here(listener, port, &one[made], &two[made]);
	check(ok, "pair %d", made);
	for (i = 0; i < made && ok; i++)
		ok = succeeds(scif_send(one[i], &i, sizeof(i), 1), sizeof(i),
			      "send");
	for (i = made - 1; i >= 0 && ok; i--)
		ok = succeeds(scif_recv(two[i], &value, sizeof(value), 1),
			      sizeof(value), "recv") &&
		     check(value == i, "%d came to %d", value, i);
	for (i = 0; i < made; i++) {
		scif_close(one[i]);
		scif_close(two[i]);
	}
	ok = returns_to(before) && ok;
	scif_close(listener);
	return ok;
}

/* Senders write records; one by one, each must arrive whole. */
struct sender {
	int epd;
	uint32_t number;
	bool ok;
};

static void *send_records(void *argument)
{
	struct sender *sender = argument;
	uint32_t record[RECORD / 4];
	uint32_t i, j;

	sender->ok = true;
	for (i = 0; i < RECORDS && sender->ok; i++) {
		record[0] = sender->number;
		for (j = 1; j < RECORD / 4; j++)
			record[j] = i * 31 + j + sender->number;
		sender->ok = scif_send(sender->epd, record, RECORD, 1) ==
			     RECORD;
	}
	return NULL;
}

static bool take_records(int epd)
{
	uint32_t next[SENDERS] = { 0 }, record[RECORD / 4], j, who;
	unsigned int i;

	for (i = 0; i < SENDERS * RECORDS; i++) {
		if (scif_recv(epd, record, RECORD, 1) != RECORD)
			return check(false, "record %u: %s", i,
				     strerror(errno));
		who = record[0];
		if (who >= SENDERS)
			return check(false, "record %u is of %u", i, who);
		for (j = 1; j < RECORD / 4; j++)
			if (record[j] != next[who] * 31 + j + who)
				return check(false, "record %u, word %u", i, j);
		next[who]++;
	}
	return true;
}

/* Threads that look and copy meanwhile. */
struct bystander {
	int epd;
	atomic_bool stop;
	bool ok;
};

static void *stand_by(void *argument)
{
	struct bystander *self = argument;
	uint8_t *mem = fresh_pages(PAGE);
	struct scif_pollepd entry = { self->epd, SCIF_POLLIN, 0 };
	int mark;

	self->ok = true;
	while (!atomic_load(&self->stop) && self->ok) {
		off_t offset = scif_register(self->epd, mem, PAGE, 0, RW, 0);

		scif_poll(&entry, 1, 0);
		self->ok = offset > 0 &&
			   !scif_fence_mark(self->epd, SCIF_FENCE_INIT_PEER,
					    &mark) &&
			   !scif_fence_wait(self->epd, mark) &&
			   !scif_unregister(self->epd, offset, PAGE);
	}
	return NULL;
}

static bool many_threads(void)
{
	struct sender senders[SENDERS];
	pthread_t threads[SENDERS], others[2];
	struct bystander bystanders[2];
	int listener = scif_open(), one, two, i;
	uint16_t port;
	bool ok;

	port = scif_bind(listener, 0);
	scif_listen(listener, 1);
	ok = pair_here(listener, port, &one, &two);
	for (i = 0; i < 2; i++) {
		bystanders[i].epd = i ? one : two;
		atomic_init(&bystanders[i].stop, false);
		pthread_create(&others[i], NULL, stand_by, &bystanders[i]);
	}
	for (i = 0; i < SENDERS; i++) {
		senders[i] = (struct sender){ one, i, false };
		pthread_create(&threads[i], NULL, send_records, &senders[i]);
	}
	ok = ok && take_records(two);
	for (i = 0; i < SENDERS; i++) {
		pthread_join(threads[i], NULL);
		ok = check(senders[i].ok, "sender %d", i) && ok;
	}
	for (i = 0; i < 2; i++) {
		atomic_store(&bystanders[i].stop, true);
		pthread_join(others[i], NULL);
		ok = check(bystanders[i].ok, "bystander %d", i) && ok;
	}
	scif_close(one);
	scif_close(two);
	scif_close(listener);
	return ok;
}

static bool no_descriptors(void)
{
	int one = scif_open(), other = scif_open();
	unsigned long limit = limit_descriptors(other + 2);
	bool ok;

	ok = fails(scif_open(), EMFILE, "open");
	limit_descriptors(limit);
	scif_close(one);
	scif_close(other);
	one = scif_open();
	ok = check(one >= 0, "open again") && ok;
	scif_close(one);
	return ok;
}

/* Not even for what a process opens once; and then there are. */
static bool no_descriptors_at_first(void)
{
	unsigned long limit = limit_descriptors(next_number());
	int epd;
	bool ok;

	ok = fails(scif_open(), EMFILE, "the first open");
	limit_descriptors(limit);
	epd = scif_open();
	ok = check(epd >= 0, "open again: %s", strerror(errno)) && ok;
	scif_close(epd);
	return ok;
}

/* The peer is killed in the middle of what it does. */
static bool killed_peer(enum peer_op op, const char *what)
{
	struct peer_call blocked = { .op = op, .flags = 1, .length = 16000 };
	uint8_t *mem = fresh_pages(1 << 20);
	uint64_t bytes[64];
	int own, other, i;
	bool ok = true;

	connect_pair(&own, &other);
	scif_register(own, mem, 1 << 20, 0, RW, SCIF_MAP_FIXED);
	peer_register(other, 0, 1 << 20, 0, RW, SCIF_MAP_FIXED);
	blocked.epd = other;
	peer_begin(&blocked);
	sleep_ms(20);
	for (i = 0; i < 20; i++)
		scif_writeto(own, 0, 1 << 20, 0, 0);
	peer_kill();
	ok = shows(own, POLLHUP) &&
	     fails(scif_writeto(own, 0, 8, 0, SCIF_RMA_SYNC), ECONNRESET,
		   what) &&
	     fails(scif_send(own, bytes, 8, 1), ECONNRESET, what);
	while (scif_recv(own, bytes, sizeof(bytes), 1) > 0)
		;
	ok = check(errno == ECONNRESET, "recv: %s", strerror(errno)) && ok;
	scif_close(own);
	return ok;
}

/* A window that the peer has mapped often; where, in @call. */
static bool map_often(struct peer_call *call, int own, uint8_t *mem)
{
	uint64_t at[MAPS];
	bool ok = true;
	int i;

	scif_register(own, mem, PAGE, 0, RW, SCIF_MAP_FIXED);
	call->op = PEER_MMAP;
	call->flags = 0;
	call->length = PAGE;
	call->prot = RW;
	for (i = 0; i < MAPS && ok; i++) {
		at[i] = peer_do(call);
		ok = check(call->ret != -1, "the peer's mmap: %s",
			   strerror(call->error));
	}
	memcpy(call->data, at, sizeof(at));
	call->flags = MAPS;
	call->op = PEER_MUNMAP_SEND;
	return ok;
}

/* The peer unmaps a window just before this side closes. */
static bool unmap_and_close(void)
{
	unsigned int before = count_descriptors();
	struct peer_call call = { .flags = 0 };
	uint8_t *mem = fresh_pages(PAGE);
	int own, i;
	bool ok = true;
	char byte;

	for (i = 0; i < ROUNDS && ok; i++) {
		connect_pair(&own, &call.epd);
		ok = map_often(&call, own, mem);
		peer_begin(&call);
		ok = ok && succeeds(scif_recv(own, &byte, 1, 1), 1, "recv");
		scif_close(own);
		ok = succeeds(peer_finish(&call), 1, "munmap and send") && ok;
		peer_op_epd(PEER_CLOSE, call.epd);
	}
	return returns_to(before) && ok;
}

/* Each side maps a window of the other's, and unmaps it when both have closed. */
static bool map_each_other(void)
{
	unsigned int before = count_descriptors();
	struct peer_call call = { .length = PAGE, .prot = RW };
	uint8_t *mem = fresh_pages(PAGE);
	void *here;
	bool ok = true;
	int own, i;

	for (i = 0; i < ROUNDS && ok; i++) {
		connect_pair(&own, &call.epd);
		scif_register(own, mem, PAGE, 0, RW, SCIF_MAP_FIXED);
		peer_register(call.epd, 0, PAGE, 0, RW, SCIF_MAP_FIXED);
		here = scif_mmap(NULL, PAGE, RW, 0, own, 0);
		call.op = PEER_MMAP;
		call.local = peer_do(&call);
		ok = check(here != SCIF_MMAP_FAILED && call.ret != -1,
			   "mmap: %s, the peer's: %s", strerror(errno),
			   strerror(call.error));
		close_pair(own, call.epd);
		call.op = PEER_MUNMAP;
		ok = ok && succeeds(scif_munmap(here, PAGE), 0, "munmap") &&
		     succeeds(peer_do(&call), 0, "the peer's munmap");
	}
	return returns_to(before) && ok;
}

/*
 * Both sides close at the same time, with bytes to receive, and no room to
 * send: of this one's two ways to notice, one must.
 */
static bool close_together(void)
{
	struct peer_call call = { .op = PEER_CLOSE };
	static char bytes[2 * PAGE];
	unsigned int before = count_descriptors();
	int own, i;
	bool ok = true;

	for (i = 0; i < ROUNDS && ok; i++) {
		connect_pair(&own, &call.epd);
		ok = succeeds(peer_send(call.epd, bytes, 1, 1), 1, "send") &&
		     succeeds(scif_send(own, bytes, sizeof(bytes), 0), PAGE - 1,
			      "fill") &&
		     shows(own, POLLIN);
		call.op = PEER_CLOSE;
		peer_begin(&call);
		usleep(i * 20);
		close(own);
		peer_finish(&call);
	}
	return returns_to(before) && ok;
}

int main(int argc, char **argv)
{
	int pairs = argc > 4 ? atoi(argv[4]) / 2 : 500;

	if (argc < 4)
		bail("usage: %s NODES OWN PEER [ENDPOINTS]", argv[0]);
	setenv("SCIF_NODES", argv[1], 1);
	setenv("SCIF_NODE", argv[2], 1);
	own_node = atoi(argv[2]);
	peer_node = atoi(argv[3]);
	peer_start();
	tap_ok(numbers_keep_nothing(),
	       "who has asked for the nodes' numbers keeps no device open");
	tap_ok(no_descriptors_at_first(),
	       "out of descriptors at first: EMFILE");
	tap_ok(killed_peer(PEER_SEND, "killed in send"),
	       "the peer is killed in a blocked send");
	tap_ok(killed_peer(PEER_RECV, "killed in recv"),
	       "the peer is killed in a blocked receive");
	tap_ok(no_descriptors(), "out of descriptors: EMFILE");
	tap_ok(close_together(), "both sides close at the same time");
	if (getenv("SCIF_TEST_MAPS")) {
		tap_ok(unmap_and_close(), "the peer unmaps, and this closes");
		tap_ok(map_each_other(), "both sides close, and then unmap");
	}
	tap_ok(many_threads(), "%d senders and more on one endpoint", SENDERS);
	tap_ok(many_endpoints(pairs), "%d endpoints in one process",
	       2 * pairs + 1);
	peer_end();
	return tap_end();
}
