// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Two queue pairs on one path to another machine, one with small and one with
 * large messages: neither keeps the other waiting for long. What one of them
 * gets done while the other waits is counted, not timed.
 *
 * usage: fair server PORT
 *        fair client ADDRESS PORT
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "endpoint.h"
#include "memory.h"
#include "tap.h"
#include "work.h"

enum { SMALL = 8, LARGE = 1 << 20, UNDER_WAY = 8, TIMES = 200 };

/*
 * These nearly fill a lane of 512 KiB, and each finds room: what is left is not
 * enough for a segment of a large one.
 */
enum { MIDDLE = 64 << 10, MIDDLE_UNDER_WAY = 5 };

struct message {
	struct endpoint_address small, large;
	uint64_t addr;
	uint32_t rkey;
};

struct side {
	struct device dev;
	struct region mem;
	struct endpoint small, large;
};

/* What a queue pair has to do: @depth requests at a time. */
struct load {
	struct endpoint *ep;
	const struct side *side;
	const struct message *peer;
	uint32_t bytes;
	int depth;
	int posted;
	int done;
};

static void open_side(struct side *side, const char *name)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	options.depth = UNDER_WAY;
	device_open(&side->dev, name);
	region_create(&side->mem, side->dev.pd, LARGE);
	endpoint_create(&side->small, &side->dev, &options);
	endpoint_create(&side->large, &side->dev, &options);
}

static void close_side(struct side *side)
{
	endpoint_destroy(&side->small);
	endpoint_destroy(&side->large);
	region_destroy(&side->mem);
	device_close(&side->dev);
}

static struct message describe(const struct side *side)
{
	return (struct message){
		.small = endpoint_address(&side->small),
		.large = endpoint_address(&side->large),
		.addr = side->mem.rdma_addr,
		.rkey = side->mem.mr->rkey,
	};
}

/* Each side tells the other how it is reached; @first: this one begins. */
static struct message introduce(struct side *side, int sock, bool first)
{
	struct message mine = describe(side), theirs;

	if ((first && write(sock, &mine, sizeof(mine)) != sizeof(mine)) ||
	    recv(sock, &theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs))
		bail("the other side is gone");
	endpoint_connect(&side->small, &theirs.small);
	endpoint_connect(&side->large, &theirs.large);
	if (!first && write(sock, &mine, sizeof(mine)) != sizeof(mine))
		bail("the other side is gone");
	return theirs;
}

static int serve(const char *name, const char *port)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, sock;
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct side side;
	char end;

	at.sin_port = htons(atoi(port));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(listener, 1))
		bail("listen: %s", strerror(errno));
	sock = accept(listener, NULL, NULL);
	open_side(&side, name);
	introduce(&side, sock, false);
	/* until the client is done */
	if (recv(sock, &end, 1, 0) > 0)
		bail("the client says something");
	close_side(&side);
	return 0;
}

static void post(struct load *load)
{
	struct ibv_sge sge = region_sge(&load->side->mem, 0, load->bytes);
	struct ibv_send_wr wr = send_wr(load->posted, IBV_WR_RDMA_WRITE, &sge,
					1);

	wr.wr.rdma.remote_addr = load->peer->addr;
	wr.wr.rdma.rkey = load->peer->rkey;
	post_send(load->ep, &wr);
	load->posted++;
}

/* What has ended is counted, and as much is posted again. */
static bool move(struct load *load)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(load->ep->send_cq, 1, &wc) > 0) {
		if (!check(wc.status == IBV_WC_SUCCESS, "%s",
			   ibv_wc_status_str(wc.status)))
			return false;
		load->done++;
		post(load);
	}
	return true;
}

static void begin(struct load *load)
{
	int i;

	for (i = 0; i < load->depth; i++)
		post(load);
}

/* Until none is under way. */
static bool end(struct load *load)
{
	struct ibv_wc wc;

	while (load->done < load->posted) {
		if (!cq_wait(load->ep->send_cq, &wc))
			return false;
		load->done++;
	}
	return true;
}

/* Both at once, until @one has done @times more. */
static bool beside(struct load *one, struct load *other, int times)
{
	const uint64_t limit = deadline();
	const int target = one->done + times;

	begin(other);
	begin(one);
	while (one->done < target)
		if (!move(one) || !move(other) ||
		    !check(now_ms() < limit, "%d are missing",
			   target - one->done))
			return false;
	return true;
}

static void test_small(struct load *small, struct load *large)
{
	bool ok;

	small->depth = 1;
	large->depth = UNDER_WAY;
	ok = beside(small, large, TIMES);
	tap_note("%d large messages while %d small ones waited", large->done,
		 small->done);
	/* behind all that the other one has posted, it would be UNDER_WAY */
	tap_ok(ok && check(large->done <= 3 * TIMES, "it waits for %d",
			   large->done / TIMES),
	       "a small message waits for less than what others have posted");
	tap_ok(end(small) && end(large), "all end well");
}

/* @other's are called @what. */
static void test_large(struct load *other, struct load *large, const char *what)
{
	const int before = other->done;
	bool ok;

	large->depth = 1;
	ok = beside(large, other, TIMES / 10);
	tap_note("%d %s messages while %d large ones waited",
		 other->done - before, what, TIMES / 10);
	tap_ok(ok, "large messages end beside %s ones without end", what);
	tap_ok(end(other) && end(large), "all end well");
}

static int use(const char *name, const char *address, const char *port)
{
	int sock = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct message peer;
	struct side side;
	struct load small = {
		.ep = &side.small,
		.side = &side,
		.peer = &peer,
		.bytes = SMALL,
	};
	struct load large = {
		.ep = &side.large,
		.side = &side,
		.peer = &peer,
		.bytes = LARGE,
	};

	at.sin_port = htons(atoi(port));
	if (inet_pton(AF_INET, address, &at.sin_addr) != 1 ||
	    connect(sock, (struct sockaddr *)&at, sizeof(at)))
		bail("%s: %s", address, strerror(errno));
	open_side(&side, name);
	peer = introduce(&side, sock, true);
	test_small(&small, &large);
	small.depth = UNDER_WAY;
	test_large(&small, &large, "small");
	small.bytes = MIDDLE;
	small.depth = MIDDLE_UNDER_WAY;
	test_large(&small, &large, "middle-sized");
	close(sock);
	close_side(&side);
	return tap_end();
}

int main(int argc, char **argv)
{
	const char *name, *peer;

	device_names(&argc, argv, &name, &peer);
	if (argc == 3 && !strcmp(argv[1], "server"))
		return serve(name, argv[2]);
	if (argc == 4 && !strcmp(argv[1], "client"))
		return use(name, argv[2], argv[3]);
	bail("usage: fair server PORT | client ADDRESS PORT");
}
