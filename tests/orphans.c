// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The owner of memory is killed while another process writes to it and reads
 * from it through a window and by requests of its own. The memory is a file's,
 * so this process still sees it: nothing is written to it any more, and nothing
 * that it writes is read. The initiator lives on, or is killed as well, or
 * instead: then its owner has the memory for itself.
 *
 * usage: orphans [--device NAME] [--peer NAME] [ROUNDS]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "endpoint.h"
#include "memory.h"
#include "pattern.h"
#include "process.h"
#include "tap.h"
#include "work.h"

enum { BYTES = 32 * 4096, BEFORE = 1, AFTER = 2 };

/* Shared with this process: what the initiator does and sees. */
struct report {
	atomic_ulong rounds;
	atomic_bool saw_after;
	atomic_bool stop;
};

static struct {
	const char *device;
	const char *peer;
	uint8_t *memory;
	struct report *report;
} common;

struct offer {
	struct endpoint_address address;
	uint64_t remote_addr;
	uint32_t rkey;
};

static int own(int socket, void *argument)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address peer;
	struct offer offer;
	struct device dev;
	struct endpoint ep;
	struct ibv_mr *mr;
	char end;

	(void)argument;
	device_open(&dev, common.peer);
	mr = ibv_reg_mr(dev.pd, common.memory, BYTES, ACCESS_ALL);
	if (!mr)
		bail("ibv_reg_mr: %s", strerror(errno));
	endpoint_create(&ep, &dev, &options);
	offer = (struct offer){
		.address = endpoint_address(&ep),
		.remote_addr = (uintptr_t)common.memory,
		.rkey = mr->rkey,
	};
	if (!message_send(socket, &offer, sizeof(offer)) ||
	    !message_receive(socket, &peer, sizeof(peer)))
		return 1;
	endpoint_connect(&ep, &peer);
	message_send(socket, "", 1);
	/* until it is killed, or the other one was */
	message_receive(socket, &end, 1);
	if (ibv_dereg_mr(mr))
		return 2;
	endpoint_destroy(&ep);
	device_close(&dev);
	return 0;
}

/* As long as the owner is there requests succeed; then they fail. */
static void write_and_read(struct endpoint *ep, const struct offer *offer,
			   struct region *memory)
{
	struct ibv_sge from = region_sge(memory, 0, BYTES);
	struct ibv_sge to = region_sge(memory, BYTES, BYTES);
	struct ibv_send_wr write = send_wr(1, IBV_WR_RDMA_WRITE, &from, 1);
	struct ibv_send_wr read = send_wr(2, IBV_WR_RDMA_READ, &to, 1);
	struct ibv_wc wc;

	write.wr.rdma.remote_addr = offer->remote_addr;
	write.wr.rdma.rkey = offer->rkey;
	read.wr.rdma = write.wr.rdma;
	write.next = &read;
	write.send_flags = 0;
	if (!try_post_send(ep, &write))
		while (ibv_poll_cq(ep->send_cq, 1, &wc) > 0)
			;
	if (memchr(memory->addr + BYTES, AFTER, BYTES))
		atomic_store(&common.report->saw_after, true);
}

static void hammer(struct endpoint *ep, const struct offer *offer,
		   struct region *memory, volatile uint8_t *window)
{
	size_t i;

	memset(memory->addr, BEFORE, BYTES);
	while (!atomic_load(&common.report->stop)) {
		write_and_read(ep, offer, memory);
		for (i = 0; i < BYTES; i += 512) {
			window[i] = BEFORE;
			if (window[i + 1] == AFTER)
				atomic_store(&common.report->saw_after, true);
		}
		atomic_fetch_add(&common.report->rounds, 1);
	}
}

static int initiate(int socket, void *argument)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct micdv_window *window;
	struct endpoint_address address;
	struct region memory;
	struct offer offer;
	struct device dev;
	struct endpoint ep;
	char go;

	(void)argument;
	device_open(&dev, common.device);
	region_create(&memory, dev.pd, 2 * BYTES);
	options.retry_count = 1;
	endpoint_create(&ep, &dev, &options);
	address = endpoint_address(&ep);
	if (!message_receive(socket, &offer, sizeof(offer)) ||
	    !message_send(socket, &address, sizeof(address)) ||
	    !message_receive(socket, &go, 1))
		return 1;
	endpoint_connect(&ep, &offer.address);
	micdv_set_path(ep.qp, MICDV_PATH_DIRECT);
	window = micdv_map_window(ep.qp, offer.remote_addr, offer.rkey, BYTES,
				  PROT_READ | PROT_WRITE);
	if (!window)
		bail("micdv_map_window: %s", strerror(errno));
	hammer(&ep, &offer, &memory, window->addr);
	if (micdv_window_valid(window))
		return 2;
	micdv_unmap_window(window);
	endpoint_destroy(&ep);
	region_destroy(&memory);
	device_close(&dev);
	return 0;
}

static bool wait_rounds(unsigned long n)
{
	unsigned long end = atomic_load(&common.report->rounds) + n;
	uint64_t limit = deadline();
	unsigned int round = 0;

	while (atomic_load(&common.report->rounds) < end && now_ms() < limit)
		relax(round++);
	return check(atomic_load(&common.report->rounds) >= end,
		     "the initiator does not go on");
}

static bool start_both(struct process *owner, struct process *initiator)
{
	union {
		struct offer offer;
		struct endpoint_address address;
		char byte;
	} message;

	process_start(owner, own, NULL);
	process_start(initiator, initiate, NULL);
	return message_relay(owner->socket, initiator->socket, &message.offer,
			     sizeof(message.offer)) &&
	       message_relay(initiator->socket, owner->socket, &message.address,
			     sizeof(message.address)) &&
	       message_relay(owner->socket, initiator->socket, &message.byte,
			     1);
}

/* When it is reaped its regions are gone, and their windows. */
static void kill_process(struct process *process)
{
	kill(process->pid, SIGKILL);
	waitpid(process->pid, NULL, 0);
	close(process->socket);
}

static bool untouched(void)
{
	size_t i;

	memset(common.memory, AFTER, BYTES);
	if (!wait_rounds(3))
		return false;
	for (i = 0; i < BYTES; i++)
		if (!check(common.memory[i] == AFTER, "byte %zu was written",
			   i))
			return false;
	return check(!atomic_load(&common.report->saw_after),
		     "what was written later was read");
}

/* Nobody is left who could write. */
static bool left_alone(void)
{
	size_t i;

	memset(common.memory, AFTER, BYTES);
	sleep_ms(2);
	for (i = 0; i < BYTES; i++)
		if (!check(common.memory[i] == AFTER, "byte %zu was written",
			   i))
			return false;
	return true;
}

/* Both are at it, and are about to lose one or the other. */
static bool start_copying(struct random_state *random, struct process *owner,
			  struct process *initiator)
{
	bool ok;

	memset(common.memory, 0, BYTES);
	atomic_store(&common.report->rounds, 0);
	atomic_store(&common.report->saw_after, false);
	atomic_store(&common.report->stop, false);
	ok = start_both(owner, initiator) && wait_rounds(1);
	sleep_ms(random_below(random, 10));
	return ok;
}

static bool kill_owner(struct random_state *random)
{
	struct process owner, initiator;
	bool ok = start_copying(random, &owner, &initiator);

	kill_process(&owner);
	ok = ok && untouched();
	atomic_store(&common.report->stop, true);
	return process_end(&initiator) && ok;
}

static bool kill_initiator(struct random_state *random)
{
	struct process owner, initiator;
	bool ok = start_copying(random, &owner, &initiator);

	kill_process(&initiator);
	ok = left_alone() && ok;
	return process_end(&owner) && ok;
}

static bool kill_both(struct random_state *random)
{
	struct process owner, initiator;
	bool ok = start_copying(random, &owner, &initiator);

	kill_process(&owner);
	kill_process(&initiator);
	return left_alone() && ok;
}

static bool repeat(bool (*kill_some)(struct random_state *), int rounds)
{
	struct random_state random;
	bool ok = true;

	random_seed(&random, 4711);
	while (ok && rounds--)
		ok = kill_some(&random);
	return ok;
}

static void *shared(size_t length)
{
	void *addr = mmap(NULL, length, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (addr == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	return addr;
}

int main(int argc, char **argv)
{
	int rounds;

	device_names(&argc, argv, &common.device, &common.peer);
	rounds = argc > 1 ? atoi(argv[1]) : 8;
	common.memory = shared(BYTES);
	common.report = shared(sizeof(*common.report));
	tap_ok(repeat(kill_owner, rounds),
	       "the memory of a killed process is out of reach");
	tap_ok(repeat(kill_initiator, rounds),
	       "memory is as it was left by a process that was killed");
	tap_ok(repeat(kill_both, rounds),
	       "both processes are killed in the middle of a copy");
	return tap_end();
}
