// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory is short while requests go to another machine: the kernel's fault injection
 * lets each allocation of a request's way fail once, here and there.
 *
 * usage: scarce server PORT
 *        scarce client ADDRESS:PORT
 *        scarce bind DEVICE, of mic_ivshmem, whose probe fails
 *        scarce memory, which is a device's in the region
 *        scarce link NETDEV, which is a region's and has no RDMA device
 *
 * The server is on the other machine. It has the memory, and lets allocations of the
 * thread fail that receives there what this one asks for.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "endpoint.h"
#include "fail.h"
#include "memory.h"
#include "process.h"
#include "scarce.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum {
	BYTES = 4 * 4096,
	RECEIVES = 4,
	MOST = 5000, /* allocations of one request */
	THERE = 6,   /* those that fail there, one after the other */
	QUIET_MS = 100,
	TIMEOUT_17_S = 22,
};

enum order { CONNECT, FAIL, ASK };

struct message {
	uint32_t order;
	uint32_t arg; /* back: whether it went well */
	struct endpoint_address address;
	uint32_t rkey;
};

/* --- the other machine ------------------------------------------------------- */

static const char *device_name;

struct server {
	struct device dev;
	struct endpoint ep;
	bool connected;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	struct region receives;
	pid_t thread;
};

/* The thread of the path to the one other machine there is. */
static pid_t path_thread(void)
{
	DIR *dir = opendir("/proc");
	const struct dirent *entry;
	char path[300], name[32];
	pid_t pid = 0;
	FILE *file;

	if (!dir)
		bail("/proc: %s", strerror(errno));
	while (!pid && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fgets(name, sizeof(name), file) &&
		    !strncmp(name, "mic_path", strlen("mic_path")))
			pid = atoi(entry->d_name);
		fclose(file);
	}
	closedir(dir);
	return pid;
}

static void server_connect(struct server *server, struct message *msg)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_sge sge = region_sge(&server->receives, 0, BYTES);
	struct endpoint_address peer = msg->address;
	uint64_t id;

	if (server->connected)
		endpoint_destroy(&server->ep);
	endpoint_create(&server->ep, &server->dev, &options);
	msg->address = endpoint_address(&server->ep);
	msg->rkey = server->mr->rkey;
	endpoint_connect(&server->ep, &peer);
	for (id = 0; id < RECEIVES; id++)
		post_recv(&server->ep, id, &sge, 1);
	server->connected = true;
}

/* What this very exchange makes the thread do comes before. */
static bool fail_soon(const struct server *server, unsigned int n)
{
	sleep_ms(QUIET_MS * slowness());
	return fail_nth_of(server->thread, n);
}

static void server_open(struct server *server)
{
	struct ibv_alloc_dm_attr attr = { .length = BYTES };
	static const char zeros[BYTES];

	device_open(&server->dev, device_name);
	server->dm = ibv_alloc_dm(server->dev.ctx, &attr);
	if (!server->dm || ibv_memcpy_to_dm(server->dm, 0, zeros, BYTES))
		bail("device memory: %s", strerror(errno));
	server->mr = ibv_reg_dm_mr(server->dev.pd, server->dm, 0, BYTES,
				   ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	if (!server->mr)
		bail("ibv_reg_dm_mr: %s", strerror(errno));
	region_create(&server->receives, server->dev.pd, BYTES);
	server->thread = path_thread();
}

static void server_close(struct server *server)
{
	if (server->connected)
		endpoint_destroy(&server->ep);
	region_destroy(&server->receives);
	tap_must(!ibv_dereg_mr(server->mr), "ibv_dereg_mr");
	tap_must(!ibv_free_dm(server->dm), "ibv_free_dm");
	device_close(&server->dev);
}

static int serve(int socket, void *unused)
{
	struct server server = {};
	struct message msg;
	bool soon;

	(void)unused;
	server_open(&server);
	while (message_receive(socket, &msg, sizeof(msg))) {
		soon = msg.order == FAIL;
		if (msg.order == CONNECT)
			server_connect(&server, &msg);
		else if (msg.order == ASK)
			msg.arg = has_failed_of(server.thread) &&
				  fail_nth_of(server.thread, 0);
		if (!message_send(socket, &msg, sizeof(msg)))
			break;
		if (soon && !fail_soon(&server, msg.arg))
			break;
	}
	server_close(&server);
	return 0;
}

/* --- this machine -------------------------------------------------------------- */

static struct process peer;
static struct device dev;
static struct endpoint ep;
static struct region memory;
static bool connected;
static uint32_t rkey;

static struct message tell(enum order what, uint32_t arg)
{
	struct message msg = { .order = what, .arg = arg };

	if (what == CONNECT)
		msg.address = endpoint_address(&ep);
	if (!message_send(peer.socket, &msg, sizeof(msg)) ||
	    !message_receive(peer.socket, &msg, sizeof(msg)))
		bail("the server is gone in order %d", what);
	return msg;
}

/* Queue pairs that have never sent nor received anything. */
static void meet_as(const struct endpoint_options *options)
{
	struct message msg;

	if (connected)
		endpoint_destroy(&ep);
	endpoint_create(&ep, &dev, options);
	msg = tell(CONNECT, 0);
	rkey = msg.rkey;
	endpoint_connect(&ep, &msg.address);
	connected = true;
}

static void meet(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	meet_as(&options);
}

/* A request that is repeated is one too many. */
static void meet_once(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	options.retry_count = 0;
	options.timeout = TIMEOUT_17_S;
	meet_as(&options);
}

static void fail_there(unsigned int n)
{
	tell(FAIL, n);
	sleep_ms(3 * QUIET_MS * slowness());
}

static bool has_failed_there(void)
{
	return tell(ASK, 0).arg;
}

static int post(enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = region_sge(&memory, 0,
					opcode_is_atomic(opcode) ? 8 : BYTES);
	struct ibv_send_wr wr = send_wr(1, opcode, &sge, 1);

	if (opcode_is_atomic(opcode)) {
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else if (opcode_has_remote(opcode)) {
		wr.wr.rdma.rkey = rkey;
	}
	return try_post_send(&ep, &wr);
}

/* An atomic is carried out once, however often it is asked for. */
static bool arrived(enum ibv_wr_opcode opcode, uint64_t *count)
{
	uint64_t found;

	if (!cq_expect(ep.send_cq, 1, IBV_WC_SUCCESS))
		return false;
	if (opcode != IBV_WR_ATOMIC_FETCH_AND_ADD)
		return true;
	memcpy(&found, memory.addr, sizeof(found));
	if (!check(found == *count, "%llu before, not %llu",
		   (unsigned long long)found, (unsigned long long)*count))
		return false;
	(*count)++;
	return true;
}

/* The adder starts at what is there. */
static bool count_now(uint64_t *count)
{
	meet();
	if (!check(!post(IBV_WR_ATOMIC_FETCH_AND_ADD), "posting fails") ||
	    !cq_expect(ep.send_cq, 1, IBV_WC_SUCCESS))
		return false;
	memcpy(count, memory.addr, sizeof(*count));
	(*count)++;
	return true;
}

static const enum ibv_wr_opcode opcodes[] = {
	IBV_WR_SEND,
	IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
};

/*
 * The first request of a queue pair, with each failure on its way from here. That it
 * cannot be sent yet is no lost answer, and costs no retry.
 */
static bool fails_here(enum ibv_wr_opcode opcode)
{
	unsigned int n, refused = 0;
	bool failed = true, ok;
	uint64_t count;
	int error;

	ok = count_now(&count);
	for (n = 1; ok && failed && n < MOST; n++) {
		meet_once();
		fail_nth(n);
		error = post(opcode);
		failed = has_failed();
		fail_nth(0);
		refused += !!error;
		ok = check(!error || (failed &&
				      (error == ENOMEM || error == EFAULT)),
			   "failure %u: %s", n, strerror(error)) &&
		     (error || check(arrived(opcode, &count), "failure %u", n));
	}
	tap_note("%s: %u failures, %u of them passed on", opcode_name(opcode),
		 n - 2, refused);
	return ok && check(n > 2, "nothing has failed");
}

static bool fails_there(enum ibv_wr_opcode opcode)
{
	unsigned int n, failures = 0;
	uint64_t count;
	bool ok;

	ok = count_now(&count);
	for (n = 1; ok && n <= THERE; n++) {
		meet();
		fail_there(n);
		ok = check(!post(opcode), "posting fails") &&
		     check(arrived(opcode, &count), "failure %u", n);
		failures += has_failed_there();
	}
	tap_note("%s: %u failures there", opcode_name(opcode), failures);
	/* a place for its result is made with the first one; others may need no memory */
	return ok && check(failures || !opcode_is_atomic(opcode),
			   "nothing has failed there");
}

/* --- windows ------------------------------------------------------------------- */

static struct micdv_window *map(void)
{
	return micdv_map_window(ep.qp, 0, rkey, BYTES, PROT_READ | PROT_WRITE);
}

/* What micdv_map_window() says when memory is short, or user memory not there. */
static bool is_expected(int error)
{
	return error == ENOMEM || error == EFAULT || error == EAGAIN ||
	       error == EIO || error == EOPNOTSUPP;
}

/* As it should be, or not there. */
static bool try_map(bool failed, unsigned int n, struct micdv_window *window,
		    int error)
{
	bool valid;

	if (!window)
		return check(failed && is_expected(error), "failure %u: %s", n,
			     strerror(error));
	valid = check(micdv_window_valid(window), "failure %u: not valid", n);
	return check(!micdv_unmap_window(window), "failure %u: unmapping", n) &&
	       valid;
}

/* The other machine may be too busy to answer in time when it is asked first. */
static bool is_mapped(void)
{
	struct micdv_window *window;
	uint64_t end = deadline();

	do {
		window = map();
	} while (!window && errno == EAGAIN && now_ms() < end);
	return check(window, "it can't be mapped: %s", strerror(errno)) &&
	       try_map(false, 0, window, 0);
}

static bool maps_here(void)
{
	struct micdv_window *window;
	bool failed = true, ok;
	unsigned int n, refused = 0;
	int error;

	meet();
	ok = is_mapped();
	for (n = 1; ok && failed && n < MOST; n++) {
		fail_nth(n);
		window = map();
		error = errno;
		failed = has_failed();
		fail_nth(0);
		refused += !window;
		/* a machine that is too busy to answer in time is no failure */
		if (!window && !failed && error == EAGAIN)
			failed = true;
		ok = try_map(failed, n, window, error);
	}
	tap_note("%u failures, %u of them passed on", n - 2, refused);
	return ok && check(n > 2, "nothing has failed") && is_mapped();
}

static bool maps_there(void)
{
	unsigned int n, failures = 0, refused = 0;
	struct micdv_window *window;
	bool ok = true;
	int error;

	for (n = 1; ok && n <= THERE; n++) {
		meet();
		fail_there(n);
		window = map();
		error = errno;
		failures += has_failed_there();
		refused += !window;
		ok = try_map(true, n, window, error) && is_mapped();
	}
	tap_note("%u failures there, %u of them passed on", failures, refused);
	return ok && check(failures, "nothing has failed there");
}

static int client(const char *where)
{
	size_t i;

	process_connect(&peer, where);
	device_open(&dev, device_name);
	region_create(&memory, dev.pd, BYTES);
	for (i = 0; i < COUNT(opcodes); i++)
		tap_ok(fails_here(opcodes[i]), "%s, short of memory here",
		       opcode_name(opcodes[i]));
	for (i = 0; i < COUNT(opcodes); i++)
		tap_ok(fails_there(opcodes[i]), "%s, short of memory there",
		       opcode_name(opcodes[i]));
	tap_ok(maps_here(), "a window, short of memory here");
	tap_ok(maps_there(), "a window, short of memory there");
	endpoint_destroy(&ep);
	region_destroy(&memory);
	device_close(&dev);
	close(peer.socket);
	return tap_end();
}

int main(int argc, char **argv)
{
	const char *other;

	device_names(&argc, argv, &device_name, &other);
	if (argc < 2 || !fail_open())
		bail("no fault injection, or a wrong argument");
	if (argc == 2 ||
	    (strcmp(argv[1], "server") && strcmp(argv[1], "client")))
		return scarce_device(device_name, argv[1], argv[2]);
	if (!strcmp(argv[1], "server"))
		process_serve(argv[2], serve, NULL);
	return client(argv[2]);
}
