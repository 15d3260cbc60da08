// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "peer.h"
#include "tap.h"

uint16_t own_node, peer_node;

enum { PEERS = 20 };

static struct peer {
	pid_t pid;
	int socket;
} peers[PEERS];
static int peer_now;
static bool forked;

/* All at once, before this process uses the library: a child could not. */
static void fork_peers(void)
{
	int sockets[2], room = 4 * sizeof(struct peer_call), i, j;

	fflush(stdout);
	for (i = 0; i < PEERS; i++) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
			       sockets))
			bail("socketpair: %s", strerror(errno));
		setsockopt(sockets[0], SOL_SOCKET, SO_SNDBUF, &room,
			   sizeof(room));
		setsockopt(sockets[1], SOL_SOCKET, SO_SNDBUF, &room,
			   sizeof(room));
		peers[i].pid = fork();
		if (peers[i].pid < 0)
			bail("fork: %s", strerror(errno));
		if (!peers[i].pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(sockets[0]);
			for (j = 0; j < i; j++)
				close(peers[j].socket);
			peer_main(sockets[1]);
		}
		close(sockets[1]);
		peers[i].socket = sockets[0];
	}
	forked = true;
}

/* Each is a connection to scif_peer, which may be on another machine. */
static void connect_peers(const char *where)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	char host[INET_ADDRSTRLEN];
	unsigned short port;
	int i, fd;

	if (sscanf(where, "%15[0-9.]:%hu", host, &port) != 2 ||
	    inet_pton(AF_INET, host, &address.sin_addr) != 1)
		bail("SCIF_TEST_PEER is not ADDRESS:PORT: %s", where);
	address.sin_port = htons(port);
	for (i = 0; i < PEERS; i++) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0 ||
		    connect(fd, (struct sockaddr *)&address, sizeof(address)))
			bail("peer at %s: %s", where, strerror(errno));
		peers[i].socket = fd;
	}
	forked = true;
}

/* The next one that lives. */
static struct peer *current(void)
{
	while (peer_now < PEERS && peers[peer_now].socket < 0)
		peer_now++;
	if (peer_now == PEERS)
		bail("no peer is left");
	return &peers[peer_now];
}

void peer_start(void)
{
	const char *where = getenv("SCIF_TEST_PEER");

	if (forked)
		return;
	if (where && *where)
		connect_peers(where);
	else
		fork_peers();
}

static void peer_wait(struct peer *peer)
{
	close(peer->socket);
	peer->socket = -1;
	if (peer->pid)
		waitpid(peer->pid, NULL, 0);
}

void peer_end(void)
{
	int i;

	for (i = 0; i < PEERS; i++)
		if (peers[i].socket >= 0)
			peer_wait(&peers[i]);
}

void peer_kill(void)
{
	struct peer *peer = current();

	/* on another machine scif_peer does it, when the connection ends */
	if (peer->pid)
		kill(peer->pid, SIGKILL);
	peer_wait(peer);
}

void peer_stop(void)
{
	struct peer_call call = { .op = PEER_STOP };
	struct peer *peer = current();

	if (peer->pid) {
		kill(peer->pid, SIGSTOP);
		/* all its threads, before anybody asks it something */
		waitpid(peer->pid, NULL, WUNTRACED);
		return;
	}
	/* on another machine it does it itself, and says so when it goes on */
	peer_begin(&call);
	sleep_ms(200);
}

void peer_continue(void)
{
	struct peer_call call = { .op = PEER_STOP };
	struct peer *peer = current();

	if (peer->pid) {
		kill(peer->pid, SIGCONT);
		return;
	}
	/* scif_peer does it, when there is a byte that the peer does not read */
	if (send(peer->socket, "", 1, MSG_OOB | MSG_NOSIGNAL) != 1)
		bail("the peer does not listen: %s", strerror(errno));
	peer_finish(&call);
}

void peer_begin(const struct peer_call *call)
{
	if (send(current()->socket, call, sizeof(*call), MSG_NOSIGNAL) < 0)
		bail("the peer does not listen: %s", strerror(errno));
}

int64_t peer_finish(struct peer_call *call)
{
	struct peer *peer = current();

	if (!becomes_readable(peer->socket))
		bail("the peer is silent in call %d", call->op);
	if (recv(peer->socket, call, sizeof(*call), MSG_WAITALL) !=
	    sizeof(*call)) {
		if (call->op == PEER_EXIT) {
			peer_wait(peer);
			return 0;
		}
		bail("the peer is gone in call %d", call->op);
	}
	return call->ret;
}

int64_t peer_do(struct peer_call *call)
{
	peer_begin(call);
	return peer_finish(call);
}

int peer_op_epd(enum peer_op op, int epd)
{
	struct peer_call call = { .op = op, .epd = epd };

	return peer_do(&call);
}

int peer_send(int epd, const void *bytes, int length, int flags)
{
	struct peer_call call = {
		.op = PEER_SEND, .epd = epd, .length = length, .flags = flags
	};

	memcpy(call.data, bytes, length);
	peer_do(&call);
	errno = call.error;
	return call.ret;
}

int peer_recv(int epd, void *bytes, int length, int flags)
{
	struct peer_call call = {
		.op = PEER_RECV, .epd = epd, .length = length, .flags = flags
	};

	peer_do(&call);
	if (call.ret > 0)
		memcpy(bytes, call.data, call.ret);
	errno = call.error;
	return call.ret;
}

int64_t peer_register(int epd, int64_t place, uint64_t length, int64_t offset,
		      int prot, int flags)
{
	struct peer_call call = { .op = PEER_REGISTER,
				  .epd = epd,
				  .local = place,
				  .length = length,
				  .remote = offset,
				  .prot = prot,
				  .flags = flags };

	peer_do(&call);
	errno = call.error;
	return call.ret;
}

int peer_unregister(int epd, int64_t offset, uint64_t length)
{
	struct peer_call call = { .op = PEER_UNREGISTER,
				  .epd = epd,
				  .length = length,
				  .remote = offset };

	peer_do(&call);
	errno = call.error;
	return call.ret;
}

void peer_poke(int64_t place, const void *bytes, uint64_t length)
{
	struct peer_call call = { .op = PEER_POKE };
	uint64_t done, part;

	for (done = 0; done < length; done += part) {
		part = length - done < PEER_DATA ? length - done : PEER_DATA;
		call.local = place + done;
		call.length = part;
		memcpy(call.data, (const uint8_t *)bytes + done, part);
		peer_do(&call);
	}
}

void peer_peek(int64_t place, void *bytes, uint64_t length)
{
	struct peer_call call = { .op = PEER_PEEK };
	uint64_t done, part;

	for (done = 0; done < length; done += part) {
		part = length - done < PEER_DATA ? length - done : PEER_DATA;
		call.local = place + done;
		call.length = part;
		peer_do(&call);
		memcpy((uint8_t *)bytes + done, call.data, part);
	}
}

uint8_t *fresh_pages(size_t length)
{
	uint8_t *mem = mmap(NULL, length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	return mem;
}

void connect_pair(int *own, int *other)
{
	struct peer_call accept = { .op = PEER_ACCEPT, .flags = 1 };
	struct peer_call call = { .op = PEER_BIND };
	struct scif_port_id port = { .node = peer_node };
	int ret, listener = peer_op_epd(PEER_OPEN, -1);
	uint64_t end = deadline();

	call.epd = listener;
	port.port = peer_do(&call);
	call.op = PEER_LISTEN;
	call.flags = 1;
	if (listener < 0 || peer_do(&call))
		bail("the peer cannot listen: %s", strerror(call.error));
	accept.epd = listener;
	peer_begin(&accept);
	*own = scif_open();
	do /* one side gives up when a slow machine has kept the other */
		ret = scif_connect(*own, &port);
	while (ret < 0 && (errno == ENODEV || errno == ECONNREFUSED) &&
	       now_ms() < end);
	if (ret < 0)
		bail("connect to %u:%u: %s", port.node, port.port,
		     strerror(errno));
	*other = peer_finish(&accept);
	if (*other < 0)
		bail("accept: %s", strerror(accept.error));
	peer_op_epd(PEER_CLOSE, listener);
}

uint16_t peer_listen(int *listener, int backlog)
{
	struct peer_call call = { .op = PEER_BIND };
	uint16_t port;

	*listener = peer_op_epd(PEER_OPEN, -1);
	call.epd = *listener;
	port = peer_do(&call);
	call.op = PEER_LISTEN;
	call.flags = backlog;
	peer_do(&call);
	return port;
}

int peer_accept(int listener)
{
	struct peer_call call = { .op = PEER_ACCEPT,
				  .epd = listener,
				  .flags = SCIF_ACCEPT_SYNC };

	return peer_do(&call);
}

void connect_oneself(int *one, int *two)
{
	struct scif_port_id port = { .node = own_node }, from;
	int listener = scif_open();

	*one = scif_open();
	port.port = scif_bind(listener, 0);
	scif_listen(listener, 1);
	fcntl(*one, F_SETFL, O_NONBLOCK);
	scif_connect(*one, &port);
	if (scif_accept(listener, &from, two, SCIF_ACCEPT_SYNC) ||
	    !shows(*one, POLLOUT) || scif_connect(*one, &port) < 0)
		bail("connect to oneself: %s", strerror(errno));
	scif_close(listener);
}

void close_pair(int own, int other)
{
	scif_close(own);
	peer_op_epd(PEER_CLOSE, other);
}

struct couple couple_begin(void)
{
	const int rw = SCIF_PROT_READ | SCIF_PROT_WRITE;
	struct couple couple = { .mem = fresh_pages(COUPLE_BYTES) };

	connect_pair(&couple.own, &couple.other);
	if (scif_register(couple.own, couple.mem, COUPLE_BYTES, 0, rw,
			  SCIF_MAP_FIXED) ||
	    peer_register(couple.other, 0, COUPLE_BYTES, 0, rw, SCIF_MAP_FIXED))
		bail("register: %s", strerror(errno));
	return couple;
}

void couple_end(struct couple *couple)
{
	close_pair(couple->own, couple->other);
	munmap(couple->mem, COUPLE_BYTES);
}

static double seconds_between(const struct timespec *before,
			      const struct timespec *after)
{
	return after->tv_sec - before->tv_sec +
	       (after->tv_nsec - before->tv_nsec) / 1e9;
}

/* Of a second, or of a longer one, which part this process has a processor for. */
static double share_of_processor(void)
{
	struct timespec before, after, begin, end;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	sleep_ms(1000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	clock_gettime(CLOCK_MONOTONIC, &end);
	return seconds_between(&before, &after) / seconds_between(&begin, &end);
}

bool is_at_rest(void)
{
	double share = 1;
	int i;

	sleep_ms(300);
	/* a processor of an emulated machine that stands still counts, too */
	for (i = 0; i < 3 && share >= 0.5; i++)
		share = share_of_processor();
	return check(share < 0.5, "%.2f of a processor", share);
}

bool fails(int64_t ret, int error, const char *what)
{
	int err = errno;

	return check(ret == -1 && err == error,
		     "%s: returned %lld, errno %s, expected %s", what,
		     (long long)ret, ret == -1 ? strerrorname_np(err) : "unset",
		     strerrorname_np(error));
}

bool succeeds(int64_t ret, int64_t expected, const char *what)
{
	int err = errno;

	return check(ret == expected,
		     "%s: returned %lld, expected %lld, errno %s", what,
		     (long long)ret, (long long)expected, strerrorname_np(err));
}

bool peer_fails(struct peer_call *call, int error, const char *what)
{
	int64_t ret = peer_do(call);

	errno = call->error;
	return fails(ret, error, what);
}

bool shows(int fd, short events)
{
	struct pollfd pollfd = { .fd = fd, .events = events };
	uint64_t end = deadline();
	unsigned int round = 0;

	do {
		if (poll(&pollfd, 1, 100) < 0)
			return false;
		if ((pollfd.revents & events) == events)
			return true;
		relax(round++);
	} while (now_ms() < end);
	return check(false, "poll shows 0x%x, expected 0x%x", pollfd.revents,
		     events);
}

short poll_now(int fd)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN | POLLOUT };

	poll(&pollfd, 1, 0);
	return pollfd.revents;
}

short scif_poll_now(int epd)
{
	struct scif_pollepd entry = { epd, SCIF_POLLIN | SCIF_POLLOUT, 0 };

	scif_poll(&entry, 1, 0);
	return entry.revents;
}

bool marks_pass(int epd)
{
	enum { MARKS = 50 };
	bool ok = true;
	int mark, i;

	for (i = 0; i < MARKS && ok; i++)
		ok = succeeds(scif_fence_mark(epd, SCIF_FENCE_INIT_PEER, &mark),
			      0, "mark");
	return ok;
}
