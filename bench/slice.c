// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * RDMA WRITE into memory of another machine that shares a region with this one: what
 * the initiator copies itself.
 *
 * usage: bench-slice DEVICE GID-INDEX slice|aperture server PORT
 *        bench-slice DEVICE GID-INDEX slice|aperture client ADDRESS PORT bw|lat
 *                    SIZE...
 *
 * slice: into device memory. aperture: into ordinary memory, which the initiator can
 * map if it has an aperture on the other machine.
 * lat: each side writes into the other's memory and looks at its own.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ends.h"

enum {
	BYTES = 4 << 20,
	DEPTH = 16,
	MSEC = 300,
	WARM_UP = 200,
	MAX_ROUNDS = 2000,
};

/* What the two tell each other before they begin. */
struct hello {
	union ibv_gid gid;
	uint32_t qpn;
	uint32_t rkey;
};

struct side {
	int socket;
	struct end end;
	struct ibv_qp *qp;
	const char *kind; /* slice or aperture */
	struct ibv_dm *dm;
	char *pages; /* unless it is device memory */
	struct ibv_mr *target;
	uint32_t rkey; /* of the other's */
};

/* What can be written through a mapping can be read, so that has to be allowed. */
enum {
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		 IBV_ACCESS_REMOTE_READ
};

static void open_slice(struct side *side)
{
	struct ibv_alloc_dm_attr attr = { .length = BYTES };

	side->dm = ibv_alloc_dm(side->end.context, &attr);
	if (!side->dm)
		fail("ibv_alloc_dm");
	side->target = ibv_reg_dm_mr(side->end.pd, side->dm, 0, BYTES,
				     IBV_ACCESS_ZERO_BASED | ACCESS);
}

static void open_pages(struct side *side)
{
	side->pages = aligned_alloc(PAGE, BYTES);
	if (!side->pages)
		fail("aligned_alloc");
	memset(side->pages, 0, BYTES);
	side->target = ibv_reg_mr_iova(side->end.pd, side->pages, BYTES, 0,
				       ACCESS);
}

static void open_side(struct side *side, const char *name, const char *index)
{
	open_end(&side->end, name, index, BYTES, DEPTH);
	if (strcmp(side->kind, "aperture"))
		open_slice(side);
	else
		open_pages(side);
	if (!side->target)
		fail("register");
	side->qp = create_qp(&side->end, DEPTH);
}

/* The last 8 bytes of a message of that size. */
static uint64_t read_turn(struct side *side, size_t size)
{
	uint64_t turn;

	if (side->pages)
		return *(volatile uint64_t *)(side->pages + size - 8);
	if (ibv_memcpy_from_dm(&turn, side->dm, size - 8, 8))
		fail("ibv_memcpy_from_dm");
	return turn;
}

static void clear_turn(struct side *side, size_t size)
{
	const char zero[8] = {};

	if (side->pages)
		memset(side->pages + size - 8, 0, 8);
	else if (ibv_memcpy_to_dm(side->dm, size - 8, zero, 8))
		fail("ibv_memcpy_to_dm");
}

static void exchange(struct side *side, void *out, void *in, size_t length)
{
	if (write(side->socket, out, length) != (ssize_t)length ||
	    recv(side->socket, in, length, MSG_WAITALL) != (ssize_t)length)
		fail("the other side");
}

static void meet(struct side *side)
{
	struct hello own = {
		.gid = side->end.gid,
		.qpn = side->qp->qp_num,
		.rkey = side->target->rkey,
	};
	struct hello other;
	char done = 0;

	exchange(side, &own, &other, sizeof(own));
	connect_qp(side->qp, &side->end, other.qpn, &other.gid);
	side->rkey = other.rkey;
	exchange(side, &done, &done, 1);
}

static void write_there(struct side *side, uint32_t bytes)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)side->end.buffer,
		.length = bytes,
		.lkey = side->end.mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.rkey = side->rkey,
	};

	errno = ibv_post_send(side->qp, &wr, &bad);
	if (errno)
		fail("ibv_post_send");
}

static void take(struct side *side, int count)
{
	struct ibv_wc wc[DEPTH];

	while (count > 0)
		count -= poll_writes(&side->end, wc, count);
}

/* Writes of the whole, as many at a time as fit. */
static double bandwidth(struct side *side, size_t size)
{
	uint64_t begin, bytes = 0;
	int i;

	/* the pages are mapped as they are touched first */
	write_there(side, size);
	take(side, 1);
	begin = now_ns();
	do {
		for (i = 0; i < DEPTH; i++)
			write_there(side, size);
		take(side, DEPTH);
		bytes += DEPTH * size;
	} while (now_ns() - begin < MSEC * NSEC_PER_MSEC);
	return (double)bytes * NSEC_PER_SEC / (now_ns() - begin) / (1 << 20);
}

/* The last 8 bytes are the turn. */
static void put_turn(struct side *side, size_t size, uint64_t turn)
{
	memcpy(side->end.buffer + size - 8, &turn, 8);
	write_there(side, size);
	take(side, 1);
}

static void await_turn(struct side *side, size_t size, uint64_t turn)
{
	while (read_turn(side, size) != turn)
		;
}

static double latency(struct side *side, size_t size)
{
	static double round[MAX_ROUNDS];
	uint64_t turn, begin, end;

	for (turn = 1; turn <= WARM_UP + MAX_ROUNDS; turn++) {
		begin = now_ns();
		put_turn(side, size, turn);
		await_turn(side, size, turn);
		end = now_ns();
		if (turn > WARM_UP)
			round[turn - WARM_UP - 1] = (end - begin) / 2000.0;
	}
	return median(round, MAX_ROUNDS);
}

/* The other side of latency(). */
static void answer(struct side *side, size_t size)
{
	uint64_t turn;

	for (turn = 1; turn <= WARM_UP + MAX_ROUNDS; turn++) {
		await_turn(side, size, turn);
		put_turn(side, size, turn);
	}
}

/* What is measured next: 0 bytes if nothing. */
struct job {
	uint64_t size;
	uint64_t is_lat;
};

static void serve(struct side *side)
{
	struct job job;

	while (recv(side->socket, &job, sizeof(job), MSG_WAITALL) ==
		       sizeof(job) &&
	       job.size) {
		clear_turn(side, job.size);
		if (write(side->socket, &job, sizeof(job)) != sizeof(job))
			fail("the client");
		if (job.is_lat)
			answer(side, job.size);
	}
}

static void measure(struct side *side, const char *what, const char *text)
{
	struct job job = { .size = parse_size(text), .is_lat = *what == 'l' };
	char name[64];

	if (job.size < 8 || job.size > BYTES)
		fail("a size from 8 to 4 MiB");
	clear_turn(side, job.size);
	exchange(side, &job, &job, sizeof(job));
	snprintf(name, sizeof(name), "%s_write_%s", side->kind,
		 job.is_lat ? "lat" : "bw");
	if (job.is_lat)
		report(name, "mic", job.size, latency(side, job.size), "us");
	else
		report(name, "mic", job.size, bandwidth(side, job.size),
		       "MiB/s");
}

static int accept_one(const char *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	at.sin_port = htons(atoi(port));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(listener, 1))
		fail("listen");
	return accept(listener, NULL, NULL);
}

static int connect_to(const char *address, const char *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	at.sin_port = htons(atoi(port));
	if (inet_pton(AF_INET, address, &at.sin_addr) != 1 ||
	    connect(fd, (struct sockaddr *)&at, sizeof(at)))
		fail(address);
	return fd;
}

int main(int argc, char **argv)
{
	struct side side = {};
	int i;

	errno = EINVAL;
	if (argc < 6 ||
	    (strcmp(argv[3], "slice") && strcmp(argv[3], "aperture")))
		fail("arguments");
	side.kind = argv[3];
	if (argc == 6 && !strcmp(argv[4], "server"))
		side.socket = accept_one(argv[5]);
	else if (argc > 8 && !strcmp(argv[4], "client"))
		side.socket = connect_to(argv[5], argv[6]);
	else
		fail("arguments");
	open_side(&side, argv[1], argv[2]);
	meet(&side);
	if (argc == 6) {
		serve(&side);
		return 0;
	}
	for (i = 8; i < argc; i++)
		measure(&side, argv[7], argv[i]);
	return 0;
}
