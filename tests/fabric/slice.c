// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory of a machine that shares a region with this one: requests that a process
 * executes itself, mappings, and how both end.
 *
 * usage: slice server PORT [pages|huge|most|more|demand|dmabuf]
 *        slice client ADDRESS PORT [aperture]
 *        slice hold ADDRESS PORT
 *        slice refused ADDRESS PORT
 *        slice own
 *
 * The server has the memory and does as the client says, which makes all checks. It
 * is device memory, or ordinary memory, which can be mapped where there is an
 * aperture only: pages, a huge page, as many extents as can be mapped. One more, pages
 * that come on demand and those of a dma-buf can't. "refused" expects that, but that
 * requests work.
 * The third one maps the memory, says so, and writes to it until it is taken away.
 * The last one has memory itself, and writes to it for ever.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "endpoint.h"
#include "executed.h"
#include "memory.h"
#include "slice.h"
#include "tap.h"
#include "work.h"

enum { TIMES = 300 };

static struct message tell(struct side *side, enum order order, uint32_t arg)
{
	struct message msg = { .order = order, .arg = arg };

	if (order == CONNECT)
		msg.address = endpoint_address(&side->ep);
	if (write(side->socket, &msg, sizeof(msg)) != sizeof(msg) ||
	    recv(side->socket, &msg, sizeof(msg), MSG_WAITALL) != sizeof(msg))
		bail("the server is gone in order %d", order);
	return msg;
}

static bool order(struct side *side, enum order order, uint32_t arg)
{
	return tell(side, order, arg).arg;
}

static void meet(struct side *side)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct message msg;

	if (side->connected)
		endpoint_destroy(&side->ep);
	endpoint_create(&side->ep, &side->dev, &options);
	msg = tell(side, CONNECT, 0);
	endpoint_connect(&side->ep, &msg.address);
	side->connected = true;
}

static struct message registered(struct side *side, int access)
{
	return tell(side, REGISTER, access | IBV_ACCESS_LOCAL_WRITE);
}

static uint32_t grant(struct side *side, int access)
{
	return registered(side, access).rkey;
}

static enum ibv_wc_status request(struct side *side, enum ibv_wr_opcode opcode,
				  const struct region *mem, uint32_t bytes,
				  uint32_t rkey)
{
	struct ibv_sge sge = region_sge(mem, 0, bytes);
	struct ibv_send_wr wr = send_wr(1, opcode, &sge, 1);
	struct ibv_wc wc;

	if (opcode_is_atomic(opcode)) {
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.rkey = rkey;
	}
	post_send(&side->ep, &wr);
	if (!cq_wait(side->ep.send_cq, &wc))
		return IBV_WC_GENERAL_ERR;
	return wc.status;
}

static bool requests(struct side *side, const struct region *mem, uint32_t rkey,
		     uint8_t byte)
{
	uint64_t *word = (uint64_t *)mem->addr;
	bool ok;

	memset(mem->addr, byte, BYTES);
	ok = check(request(side, IBV_WR_RDMA_WRITE, mem, BYTES, rkey) ==
			   IBV_WC_SUCCESS,
		   "WRITE") &&
	     check(order(side, CHECK, byte), "it has not arrived");
	memset(mem->addr, 0, BYTES);
	ok = ok &&
	     check(request(side, IBV_WR_RDMA_READ, mem, BYTES, rkey) ==
			   IBV_WC_SUCCESS,
		   "READ") &&
	     check(all_are(mem->addr, BYTES, byte), "it is something else");
	ok = ok &&
	     check(request(side, IBV_WR_ATOMIC_FETCH_AND_ADD, mem, 8, rkey) ==
			   IBV_WC_SUCCESS,
		   "FETCH_ADD") &&
	     check(*word == byte * 0x0101010101010101ULL, "old value %lx",
		   (unsigned long)*word);
	return ok &&
	       check(request(side, IBV_WR_RDMA_READ, mem, 8, rkey) ==
			     IBV_WC_SUCCESS,
		     "READ") &&
	       check(*word == byte * 0x0101010101010101ULL + 1, "new value %lx",
		     (unsigned long)*word);
}

/* The other machine may be too busy to answer in time when it is asked first. */
static bool is_mapped(struct side *side, const struct region *mem,
		      uint32_t rkey)
{
	const uint64_t end = deadline(), before = executed_here(&side->ep);

	while (executed_here(&side->ep) == before)
		if (request(side, IBV_WR_RDMA_WRITE, mem, 8, rkey) !=
			    IBV_WC_SUCCESS ||
		    now_ms() > end)
			return false;
	return true;
}

static void test_requests(struct side *side, const struct region *mem)
{
	uint32_t rkey = grant(side, ACCESS_ALL);
	uint64_t before;

	meet(side);
	tap_ok(is_mapped(side, mem, rkey), "a window for requests");
	before = executed_here(&side->ep);
	tap_ok(requests(side, mem, rkey, 0x11), "requests");
	tap_ok(check(executed_here(&side->ep) == before + 4, "%lu of 4",
		     (unsigned long)(executed_here(&side->ep) - before)),
	       "the process executes them itself");
	before = executed_here(&side->ep);
	micdv_set_path(side->ep.qp, MICDV_PATH_ENGINE);
	tap_ok(requests(side, mem, rkey, 0x22) &&
		       check(executed_here(&side->ep) == before, "by itself"),
	       "the same requests by the kernels");
	micdv_set_path(side->ep.qp, MICDV_PATH_DIRECT);
}

static struct micdv_window *map(struct side *side, uint32_t rkey, int prot)
{
	return micdv_map_window(side->ep.qp, 0, rkey, BYTES, prot);
}

static bool seen(const volatile uint8_t *at, uint8_t byte)
{
	const uint64_t end = deadline();

	while (*at != byte)
		if (now_ms() > end)
			return check(false, "%02x, not %02x", *at, byte);
	return true;
}

static void test_mapping(struct side *side)
{
	uint32_t rkey = grant(side, ACCESS_ALL);
	struct micdv_window *window;
	bool ok;

	meet(side);
	window = map(side, rkey, PROT_READ | PROT_WRITE);
	if (!tap_ok(check(window, "%s", strerror(errno)), "a mapping"))
		return;
	memset(window->addr, 0x33, BYTES);
	tap_ok(order(side, CHECK, 0x33), "stores are seen there");
	tap_ok(order(side, FILL, 0x44) && seen(window->addr, 0x44) &&
		       all_are(window->addr, BYTES, 0x44),
	       "and that one's here");
	ok = order(side, DEREGISTER, 0);
	memset(window->addr, 0x55, BYTES);
	tap_ok(ok && check(!micdv_window_valid(window), "it is valid") &&
		       order(side, CHECK, 0x44),
	       "deregistered: nothing gets there");
	micdv_unmap_window(window);
	tap_ok(request(side, IBV_WR_RDMA_WRITE, &side->ordinary, 8, rkey) ==
		       IBV_WC_REM_ACCESS_ERR,
	       "the key is not known any more");
}

/* Its queue pair is told @taken; what is stored once that has returned is not there. */
static bool nothing_gets_there(struct side *side, enum order taken)
{
	uint32_t rkey = grant(side, ACCESS_ALL);
	struct micdv_window *window;
	bool ok;

	meet(side);
	window = map(side, rkey, PROT_READ | PROT_WRITE);
	if (!check(window, "not mapped: %s", strerror(errno)))
		return false;
	ok = order(side, FILL, 0x11) && order(side, taken, 0);
	memset(window->addr, 0x66, BYTES);
	ok = check(!micdv_window_valid(window), "it is valid") &&
	     order(side, CHECK, 0x11) && ok;
	micdv_unmap_window(window);
	return ok;
}

static void test_queue_pair(struct side *side)
{
	bool ok = true;
	int i;

	tap_ok(nothing_gets_there(side, FAIL),
	       "its queue pair failed: nothing gets there");
	for (i = 0; i < TIMES && ok; i++)
		ok = nothing_gets_there(side, LIMIT);
	tap_ok(ok, "its queue pair's peer may only read: nothing gets there");
}

static bool refused_bytes(struct side *side, uint32_t rkey, uint64_t addr,
			  size_t bytes, int prot, int error)
{
	struct micdv_window *window;

	errno = 0;
	window = micdv_map_window(side->ep.qp, addr, rkey, bytes, prot);
	if (window)
		micdv_unmap_window(window);
	return check(!window && errno == error, "%s: %s",
		     window ? "granted" : "refused", strerror(errno));
}

static bool refused(struct side *side, uint32_t rkey, uint64_t addr, int prot,
		    int error)
{
	return refused_bytes(side, rkey, addr, PAGE, prot, error);
}

static void test_refusals(struct side *side)
{
	struct message mr = registered(side, IBV_ACCESS_REMOTE_READ);
	struct micdv_window *window;
	struct message msg;

	meet(side);
	tap_ok(refused(side, mr.rkey, 0, PROT_READ | PROT_WRITE, EACCES),
	       "no right to write: EACCES");
	window = map(side, mr.rkey, PROT_READ);
	tap_ok(window, "but to read");
	if (window)
		micdv_unmap_window(window);
	tap_ok(refused(side, mr.rkey, mr.bytes, PROT_READ, ERANGE),
	       "behind its end: ERANGE");
	tap_ok(refused(side, mr.rkey, 8, PROT_READ, EPERM),
	       "not whole pages: EPERM");
	tap_ok(refused(side, mr.rkey ^ 0x100000, 0, PROT_READ, EACCES),
	       "no such key: EACCES");
	if (side->aperture)
		return;
	msg = tell(side, ORDINARY, 0);
	tap_ok(refused(side, msg.rkey, msg.address.gid.global.interface_id,
		       PROT_READ, EOPNOTSUPP),
	       "ordinary memory: EOPNOTSUPP");
}

/* More often than there are slots, so each is used again. */
static void test_many(struct side *side)
{
	uint32_t rkey = grant(side, ACCESS_ALL);
	struct micdv_window *window;
	bool ok = true;
	int i;

	meet(side);
	for (i = 0; ok && i < TIMES; i++) {
		window = map(side, rkey, PROT_READ | PROT_WRITE);
		ok = check(window, "time %d: %s", i, strerror(errno));
		if (window)
			micdv_unmap_window(window);
	}
	tap_ok(ok, "mapped %d times", TIMES);
	ok = true;
	for (i = 0; ok && i < 20; i++) {
		rkey = grant(side, ACCESS_ALL);
		window = map(side, rkey, PROT_READ | PROT_WRITE);
		ok = check(window, "time %d: %s", i, strerror(errno));
		if (!window)
			break;
		ok = ok && order(side, RENEW, 0);
		memset(window->addr, 0x77, BYTES);
		ok = ok && order(side, CHECK, 0);
		micdv_unmap_window(window);
	}
	tap_ok(ok, "memory is new each time it is allocated");
}

struct writer {
	volatile uint8_t *at;
	atomic_bool stop;
};

static void *write_and_read(void *arg)
{
	struct writer *writer = arg;
	int i;

	while (!atomic_load(&writer->stop))
		for (i = 0; i < BYTES; i += 64)
			writer->at[i] = writer->at[i + 1] | 0xbb;
	return NULL;
}

/* Once the memory is deregistered, nothing gets to who has its pages then. */
static bool renewed_while_written(struct side *side)
{
	uint32_t rkey = grant(side, ACCESS_ALL);
	struct micdv_window *window = map(side, rkey, PROT_READ | PROT_WRITE);
	struct writer writer = {};
	pthread_t thread;
	bool ok;

	if (!check(window, "%s", strerror(errno)))
		return false;
	writer.at = window->addr;
	pthread_create(&thread, NULL, write_and_read, &writer);
	usleep(10000);
	ok = check(order(side, RENEW, 0), "not zero");
	usleep(10000);
	ok = check(order(side, CHECK, 0), "not zero any more") && ok;
	atomic_store(&writer.stop, true);
	pthread_join(thread, NULL);
	ok = check(!micdv_window_valid(window), "it is valid") && ok;
	micdv_unmap_window(window);
	return ok;
}

static void test_busy(struct side *side)
{
	bool ok = true;
	int i;

	meet(side);
	for (i = 0; ok && i < 10; i++)
		ok = renewed_while_written(side);
	tap_ok(ok, "the same while it is read and written all the time");
}

static void test_death(struct side *side)
{
	uint32_t rkey = grant(side, ACCESS_ALL);
	struct micdv_window *window;
	struct message msg = { .order = DIE };
	const uint64_t end = deadline();

	meet(side);
	window = map(side, rkey, PROT_READ | PROT_WRITE);
	if (!tap_ok(window, "mapped"))
		return;
	if (write(side->socket, &msg, sizeof(msg)) != sizeof(msg))
		bail("the server is gone");
	while (micdv_window_valid(window) && now_ms() < end) {
		memset(window->addr, 0x88, BYTES);
		usleep(1000);
	}
	tap_ok(!micdv_window_valid(window), "its process ends: it is over");
	micdv_unmap_window(window);
}

static void run_tests(struct side *side)
{
	test_requests(side, &side->ordinary);
	test_mapping(side);
	test_queue_pair(side);
	test_refusals(side);
	test_many(side);
	test_busy(side);
	test_death(side);
}

static void hold(struct side *side)
{
	uint32_t rkey = grant(side, ACCESS_ALL);
	struct micdv_window *window;

	meet(side);
	window = map(side, rkey, PROT_READ | PROT_WRITE);
	if (!tap_ok(window, "mapped"))
		return;
	fflush(stdout);
	/* whoever has started this has a limit */
	while (micdv_window_valid(window))
		memset(window->addr, 0x99, BYTES);
	tap_ok(true, "it is over");
	micdv_unmap_window(window);
}

static void refuse(struct side *side)
{
	struct message mr = registered(side, ACCESS_ALL);
	uint64_t before;

	meet(side);
	before = executed_here(&side->ep);
	tap_ok(refused_bytes(side, mr.rkey, 0, mr.bytes, PROT_READ, EOPNOTSUPP),
	       "not mapped");
	tap_ok(requests(side, &side->ordinary, mr.rkey, 0x5a) &&
		       check(executed_here(&side->ep) == before, "by itself"),
	       "requests go through the kernels");
}

static int use(const char *name, const char *address, const char *port,
	       bool aperture, void (*run)(struct side *side))
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct side side = { .aperture = aperture };

	at.sin_port = htons(atoi(port));
	side.socket = socket(AF_INET, SOCK_STREAM, 0);
	if (inet_pton(AF_INET, address, &at.sin_addr) != 1 ||
	    connect(side.socket, (struct sockaddr *)&at, sizeof(at)))
		bail("%s: %s", address, strerror(errno));
	device_open(&side.dev, name);
	region_create(&side.ordinary, side.dev.pd, BYTES);
	run(&side);
	endpoint_destroy(&side.ep);
	region_destroy(&side.ordinary);
	device_close(&side.dev);
	return tap_end();
}

int main(int argc, char **argv)
{
	const char *name, *peer;

	device_names(&argc, argv, &name, &peer);
	if (argc == 3 && !strcmp(argv[1], "server"))
		return slice_serve(name, argv[2], "device");
	if (argc == 4 && !strcmp(argv[1], "server"))
		return slice_serve(name, argv[2], argv[3]);
	if (argc >= 4 && !strcmp(argv[1], "client"))
		return use(name, argv[2], argv[3], argc == 5, run_tests);
	if (argc == 4 && !strcmp(argv[1], "hold"))
		return use(name, argv[2], argv[3], true, hold);
	if (argc == 4 && !strcmp(argv[1], "refused"))
		return use(name, argv[2], argv[3], true, refuse);
	if (argc == 2 && !strcmp(argv[1], "own"))
		return slice_own(name);
	bail("usage: slice server PORT [KIND] | client ADDRESS PORT [aperture] | "
	     "hold|refused ADDRESS PORT | own");
}
