// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * TCP over the loopback device, between two processes of one machine: what a
 * program has that does not use RDMA.
 *
 * usage: bench-tcp bw|lat SIZE...
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"

enum {
	BW_MSEC = 300,
	LAT_MSEC = 300,
	WARM_UP = 100,
	MAX_ROUNDS = 20000,
};

/* What the server needs to know, and where it puts what it has measured. */
struct run {
	int listener;
	size_t size;
	uint64_t bytes;
	uint64_t ns;
};

static void set_nodelay(int fd)
{
	int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		fail("TCP_NODELAY");
}

static int listen_anywhere(struct sockaddr_in *address)
{
	socklen_t length = sizeof(*address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	memset(address, 0, sizeof(*address));
	address->sin_family = AF_INET;
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)address, length) ||
	    listen(fd, 1) ||
	    getsockname(fd, (struct sockaddr *)address, &length))
		fail("listen");
	return fd;
}

static int connect_to(const struct sockaddr_in *address)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 ||
	    connect(fd, (const struct sockaddr *)address, sizeof(*address)))
		fail("connect");
	set_nodelay(fd);
	return fd;
}

static int accept_one(int listener)
{
	int fd = accept(listener, NULL, NULL);

	if (fd < 0)
		fail("accept");
	set_nodelay(fd);
	return fd;
}

static void send_all(int fd, const char *buffer, size_t size)
{
	ssize_t n;

	while (size) {
		n = send(fd, buffer, size, MSG_NOSIGNAL);
		if (n < 0)
			fail("send");
		buffer += n;
		size -= n;
	}
}

/* Returns 0 at the end of the stream. */
static int receive_all(int fd, char *buffer, size_t size)
{
	ssize_t n;

	while (size) {
		n = recv(fd, buffer, size, 0);
		if (n < 0)
			fail("recv");
		if (!n)
			return 0;
		buffer += n;
		size -= n;
	}
	return 1;
}

static void drain(void *argument)
{
	struct run *run = argument;
	char *buffer = malloc(run->size);
	uint64_t start;
	ssize_t n;
	int fd;

	if (!buffer)
		fail("malloc");
	pin(SERVER_CPU);
	fd = accept_one(run->listener);
	start = now_ns();
	while ((n = recv(fd, buffer, run->size, 0)) > 0)
		run->bytes += n;
	if (n < 0)
		fail("recv");
	run->ns = now_ns() - start;
	free(buffer);
}

static void echo(void *argument)
{
	struct run *run = argument;
	char *buffer = malloc(run->size);
	int fd;

	if (!buffer)
		fail("malloc");
	pin(SERVER_CPU);
	fd = accept_one(run->listener);
	while (receive_all(fd, buffer, run->size))
		send_all(fd, buffer, run->size);
	free(buffer);
}

static void stream(int fd, struct run *run, char *buffer)
{
	uint64_t end = now_ns() + BW_MSEC * NSEC_PER_MSEC;

	while (now_ns() < end)
		send_all(fd, buffer, run->size);
}

static double one_way_us(int fd, struct run *run, char *buffer)
{
	uint64_t start = now_ns();

	send_all(fd, buffer, run->size);
	if (!receive_all(fd, buffer, run->size)) {
		errno = ECONNRESET;
		fail("recv");
	}
	return (now_ns() - start) / 2000.0;
}

static double ping_pong(int fd, struct run *run, char *buffer)
{
	double *rounds = calloc(MAX_ROUNDS, sizeof(*rounds));
	double result;
	uint64_t end;
	size_t n = 0;
	int i;

	if (!rounds)
		fail("calloc");
	for (i = 0; i < WARM_UP; i++)
		one_way_us(fd, run, buffer);
	end = now_ns() + LAT_MSEC * NSEC_PER_MSEC;
	while (n < MAX_ROUNDS && now_ns() < end)
		rounds[n++] = one_way_us(fd, run, buffer);
	result = median(rounds, n);
	free(rounds);
	return result;
}

static void measure(const char *test, size_t size)
{
	struct run *run = shared_memory(sizeof(*run));
	int is_bw = !strcmp(test, "bw");
	char *buffer = calloc(1, size);
	struct sockaddr_in address;
	double value = 0;
	pid_t peer;
	int fd;

	if (!buffer)
		fail("calloc");
	run->size = size;
	run->listener = listen_anywhere(&address);
	peer = start_side(is_bw ? drain : echo, run);
	pin(CLIENT_CPU);
	fd = connect_to(&address);
	if (is_bw)
		stream(fd, run, buffer);
	else
		value = ping_pong(fd, run, buffer);
	close(fd);
	join_side(peer);
	close(run->listener);
	free(buffer);
	if (is_bw)
		report("tcp_bw", "tcp", size,
		       (double)run->bytes / (1 << 20) * NSEC_PER_SEC / run->ns,
		       "MiB/s");
	else
		report("tcp_lat", "tcp", size, value, "us");
}

int main(int argc, char **argv)
{
	int i;

	if (argc < 3 || (strcmp(argv[1], "bw") && strcmp(argv[1], "lat"))) {
		fprintf(stderr, "usage: bench-tcp bw|lat SIZE...\n");
		return 2;
	}
	for (i = 2; i < argc; i++)
		measure(argv[1], parse_size(argv[i]));
	return 0;
}
