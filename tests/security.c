// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Between processes of several users: the memory of a peer is mapped only if
 * the mapping gives no more than the key, or the process could access the
 * peer's memory anyway. All requests that the key allows succeed nevertheless.
 *
 * Each case has an owner of memory and an initiator, two processes, and this
 * one between them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <infiniband/micdv.h>

#include "endpoint.h"
#include "memory.h"
#include "process.h"
#include "tap.h"
#include "work.h"

enum { ROOT = 0, ALICE = 12001, BOB = 12002, REGION_BYTES = 8 * 4096 };

#define READ_WRITE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

struct scenario {
	const char *name;
	uid_t owner;
	uid_t initiator;
	int scope;	 /* of Yama */
	bool undumpable; /* the owner */
	bool device;	 /* the memory is device memory */
	size_t offset;	 /* of the region in pages of its own */
	size_t length;
	int access;    /* remote rights of the key */
	int qp_access; /* and of the owner's queue pair, 0: all */
	/* what is expected: 0 or an error number of mapping all of it */
	int map_read;
	int map_write;
	bool direct; /* some requests are executed by the process */
};

#define PAGES .offset = 0, .length = REGION_BYTES
#define PART .offset = 100, .length = 1000

static const struct scenario scenarios[] = {
	{ "another user maps whole pages that may be read and written", ALICE,
	  BOB, PAGES, .access = READ_WRITE, .direct = true },
	{ "another user maps whole pages that may be read to read them", ALICE,
	  BOB, PAGES, .access = IBV_ACCESS_REMOTE_READ, .map_write = EACCES,
	  .direct = true },
	{ "another user maps no part of a page", ALICE, BOB, PART,
	  .access = READ_WRITE, .map_read = EPERM, .map_write = EPERM },
	{ "another user's requests use the whole pages of a region", ALICE, BOB,
	  .offset = 100, .length = 3 * 4096, .access = READ_WRITE,
	  .map_read = EPERM, .map_write = EPERM, .direct = true },
	{ "another user maps nothing that may only be written", ALICE, BOB,
	  PAGES, .access = IBV_ACCESS_REMOTE_WRITE, .map_read = EACCES,
	  .map_write = EACCES },
	{ "what the queue pair does not allow is not mapped", ALICE, BOB, PAGES,
	  .access = READ_WRITE, .qp_access = IBV_ACCESS_REMOTE_WRITE,
	  .map_read = EACCES, .map_write = EACCES },
	{ "the same user maps a part of a page", ALICE, ALICE, PART,
	  .access = READ_WRITE, .direct = true },
	{ "the same user's requests write what may only be written", ALICE,
	  ALICE, PAGES, .access = IBV_ACCESS_REMOTE_WRITE, .map_read = EACCES,
	  .map_write = EACCES, .direct = true },
	{ "not with Yama's ptrace_scope 1", ALICE, ALICE, .scope = 1, PART,
	  .access = READ_WRITE, .map_read = EPERM, .map_write = EPERM },
	{ "nor what may only be written", ALICE, ALICE, .scope = 1, PAGES,
	  .access = IBV_ACCESS_REMOTE_WRITE, .map_read = EACCES,
	  .map_write = EACCES },
	{ "but whole pages", ALICE, ALICE, .scope = 1, PAGES,
	  .access = READ_WRITE, .direct = true },
	{ "the same user maps no part of a page of a process that can't be dumped",
	  ALICE, ALICE, .undumpable = true, PART, .access = READ_WRITE,
	  .map_read = EPERM, .map_write = EPERM },
	{ "another user maps whole pages of device memory", ALICE, BOB,
	  .device = true, PAGES, .access = READ_WRITE, .direct = true },
	{ "another user maps device memory that may be read to read it", ALICE,
	  BOB, .device = true, PAGES, .access = IBV_ACCESS_REMOTE_READ,
	  .map_write = EACCES, .direct = true },
	{ "the same user maps no part of a page of device memory", ALICE, ALICE,
	  .device = true, PART, .access = READ_WRITE, .map_read = EPERM,
	  .map_write = EPERM },
	{ "root maps a part of a page of a user", ALICE, ROOT, PART,
	  .access = READ_WRITE, .direct = true },
	{ "a user maps no part of a page of root", ROOT, ALICE, PART,
	  .access = READ_WRITE, .map_read = EPERM, .map_write = EPERM },
};

/* What the two sides tell each other. */
struct offer {
	struct endpoint_address address;
	uint64_t remote_addr;
	uint32_t rkey;
};

struct result {
	int map_read;
	int map_write;
	uint64_t direct;
	bool requests_succeed;
	bool finished;
};

/* The messages of one side, and the scenario. */
struct side {
	const struct scenario *scenario;
	const char *device;
};

static void become(uid_t uid, bool dumpable)
{
	if (uid && (setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
		bail("setresuid: %s", strerror(errno));
	if (prctl(PR_SET_DUMPABLE, dumpable))
		bail("PR_SET_DUMPABLE: %s", strerror(errno));
}

static void create_endpoint(struct endpoint *ep, struct device *dev,
			    int qp_access)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	if (qp_access)
		options.access = qp_access | IBV_ACCESS_LOCAL_WRITE;
	endpoint_create(ep, dev, &options);
}

/* --- the owner ------------------------------------------------------------- */

static struct ibv_mr *register_part(struct device *dev, uint8_t *pages,
				    struct ibv_dm *dm,
				    const struct scenario *scenario)
{
	const int access = scenario->access | IBV_ACCESS_LOCAL_WRITE;
	struct ibv_mr *mr;

	if (dm)
		mr = ibv_reg_dm_mr(dev->pd, dm, scenario->offset,
				   scenario->length,
				   access | IBV_ACCESS_ZERO_BASED);
	else
		mr = ibv_reg_mr(dev->pd, pages + scenario->offset,
				scenario->length, access);
	if (!mr)
		bail("no region: %s", strerror(errno));
	return mr;
}

static struct ibv_dm *allocate(struct device *dev)
{
	struct ibv_alloc_dm_attr attr = { .length = REGION_BYTES };
	struct ibv_dm *dm = ibv_alloc_dm(dev->ctx, &attr);

	if (!dm)
		bail("ibv_alloc_dm: %s", strerror(errno));
	return dm;
}

static int own(int socket, void *argument)
{
	const struct side *side = argument;
	struct endpoint_address peer;
	struct offer offer;
	struct device dev;
	struct endpoint ep;
	struct ibv_dm *dm = NULL;
	struct ibv_mr *mr;
	uint8_t *pages;
	char end;

	device_open(&dev, side->device);
	pages = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	become(side->scenario->owner, !side->scenario->undumpable);
	if (side->scenario->device)
		dm = allocate(&dev);
	mr = register_part(&dev, pages, dm, side->scenario);
	create_endpoint(&ep, &dev, side->scenario->qp_access);
	offer = (struct offer){
		.address = endpoint_address(&ep),
		.remote_addr = dm ? 0 : (uintptr_t)mr->addr,
		.rkey = mr->rkey,
	};
	if (!message_send(socket, &offer, sizeof(offer)) ||
	    !message_receive(socket, &peer, sizeof(peer)))
		return 1;
	endpoint_connect(&ep, &peer);
	/* connected; and wait for the end */
	message_send(socket, "", 1);
	message_receive(socket, &end, 1);
	endpoint_destroy(&ep);
	ibv_dereg_mr(mr);
	if (dm)
		ibv_free_dm(dm);
	device_close(&dev);
	return 0;
}

/* --- the initiator --------------------------------------------------------- */

static int try_map(struct endpoint *ep, const struct offer *offer,
		   size_t length, int prot)
{
	struct micdv_window *window;

	window = micdv_map_window(ep->qp, offer->remote_addr, offer->rkey,
				  length, prot);
	if (!window)
		return errno;
	*(volatile uint8_t *)window->addr;
	if (prot & PROT_WRITE)
		*(volatile uint8_t *)window->addr = 1;
	micdv_unmap_window(window);
	return 0;
}

static bool request(struct endpoint *ep, const struct offer *offer,
		    enum ibv_wr_opcode opcode, struct region *memory,
		    size_t offset, size_t length)
{
	struct ibv_sge sge = region_sge(memory, 0, length);
	struct ibv_send_wr wr = send_wr(opcode, opcode, &sge, 1);

	wr.wr.rdma.remote_addr = offer->remote_addr + offset;
	wr.wr.rdma.rkey = offer->rkey;
	post_send(ep, &wr);
	return cq_expect(ep->send_cq, opcode, IBV_WC_SUCCESS);
}

/* All that key and queue pair allow, at the ends and in the middle. */
static bool requests_succeed(struct endpoint *ep, const struct offer *offer,
			     const struct scenario *scenario,
			     struct region *memory)
{
	const int rights = scenario->access &
			   (scenario->qp_access ? scenario->qp_access : ~0);
	const size_t at[] = { 0, scenario->length - 16, scenario->length / 2 };
	size_t i;

	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		if (rights & IBV_ACCESS_REMOTE_WRITE &&
		    !request(ep, offer, IBV_WR_RDMA_WRITE, memory, at[i], 16))
			return false;
		if (rights & IBV_ACCESS_REMOTE_READ &&
		    !request(ep, offer, IBV_WR_RDMA_READ, memory, at[i], 16))
			return false;
	}
	return true;
}

static int initiate(int socket, void *argument)
{
	const struct side *side = argument;
	struct micdv_qp_attr attr = { .comp_mask = 0 };
	struct endpoint_address address;
	struct result result;
	struct region memory;
	struct device dev;
	struct offer offer;
	struct endpoint ep;

	device_open(&dev, side->device);
	become(side->scenario->initiator, true);
	region_create(&memory, dev.pd, REGION_BYTES);
	create_endpoint(&ep, &dev, 0);
	address = endpoint_address(&ep);
	if (!message_receive(socket, &offer, sizeof(offer)) ||
	    !message_send(socket, &address, sizeof(address)))
		return 1;
	endpoint_connect(&ep, &offer.address);
	if (!message_receive(socket, &result, 1))
		return 1;
	micdv_set_path(ep.qp, MICDV_PATH_DIRECT);
	memset(&result, 0, sizeof(result));
	result.map_read = try_map(&ep, &offer, side->scenario->length,
				  PROT_READ);
	result.map_write = try_map(&ep, &offer, side->scenario->length,
				   PROT_READ | PROT_WRITE);
	result.requests_succeed = requests_succeed(&ep, &offer, side->scenario,
						   &memory);
	micdv_query_qp(ep.qp, &attr);
	result.direct = attr.direct;
	result.finished = true;
	message_send(socket, &result, sizeof(result));
	endpoint_destroy(&ep);
	region_destroy(&memory);
	device_close(&dev);
	return 0;
}

/* --- between them ---------------------------------------------------------- */

/* A kernel without Yama is as one with scope 0. */
static bool set_scope(int scope)
{
	FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "w");
	bool ok;

	if (!file)
		return errno == ENOENT && !scope;
	ok = fprintf(file, "%d\n", scope) > 0;
	return fclose(file) == 0 && ok;
}

static bool play(const struct scenario *scenario, const char *device,
		 const char *peer, struct result *result)
{
	struct side owner_side = { scenario, peer };
	struct side initiator_side = { scenario, device };
	struct process owner, initiator;
	union {
		struct offer offer;
		struct endpoint_address address;
		char byte;
	} message;
	bool ok;

	memset(result, 0, sizeof(*result));
	process_start(&owner, own, &owner_side);
	process_start(&initiator, initiate, &initiator_side);
	ok = message_relay(owner.socket, initiator.socket, &message.offer,
			   sizeof(message.offer)) &&
	     message_relay(initiator.socket, owner.socket, &message.address,
			   sizeof(message.address)) &&
	     message_relay(owner.socket, initiator.socket, &message.byte, 1) &&
	     message_receive(initiator.socket, result, sizeof(*result));
	ok = process_end(&initiator) && ok;
	return process_end(&owner) && ok && result->finished;
}

static bool as_expected(const struct scenario *scenario,
			const struct result *result)
{
	bool ok;

	ok = check(result->map_read == scenario->map_read,
		   "mapping to read: %s", strerror(result->map_read));
	ok = check(result->map_write == scenario->map_write,
		   "mapping to write: %s", strerror(result->map_write)) &&
	     ok;
	ok = check(result->requests_succeed, "a request fails") && ok;
	return check(!result->direct == !scenario->direct,
		     "%lu requests were executed by the process",
		     (unsigned long)result->direct) &&
	       ok;
}

int main(int argc, char **argv)
{
	const char *device, *peer;
	struct result result;
	bool ok;
	size_t i;

	device_names(&argc, argv, &device, &peer);
	for (i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		if (!set_scope(scenarios[i].scope)) {
			if (errno != ENOENT)
				bail("ptrace_scope can't be set: %s",
				     strerror(errno));
			tap_skip("this kernel has no Yama", "%s",
				 scenarios[i].name);
			continue;
		}
		ok = play(&scenarios[i], device, peer, &result);
		tap_ok(check(ok, "the processes do not end well") &&
			       as_expected(&scenarios[i], &result),
		       "%s", scenarios[i].name);
	}
	if (!set_scope(0))
		tap_note("ptrace_scope is not what it was");
	return tap_end();
}
