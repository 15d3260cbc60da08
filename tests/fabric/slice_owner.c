// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Who has the memory.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "slice.h"
#include "tap.h"

enum { HUGE_BYTES = 2 << 20 };

static size_t mapped_bytes(const struct side *side)
{
	return side->kind == HUGE_PAGES ? HUGE_BYTES : BYTES;
}

static void map_pages(struct side *side)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;

	if (side->kind == HUGE_PAGES)
		flags |= MAP_HUGETLB;
	side->pages = mmap(NULL, mapped_bytes(side), PROT_READ | PROT_WRITE,
			   flags, -1, 0);
	if (side->pages == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
}

static void allocate(struct side *side)
{
	struct ibv_alloc_dm_attr attr = { .length = BYTES };

	if (side->kind != DEVICE) {
		map_pages(side);
		return;
	}
	side->dm = ibv_alloc_dm(side->dev.ctx, &attr);
	if (!side->dm)
		bail("ibv_alloc_dm: %s", strerror(errno));
}

static void connect_queue(struct side *side, struct message *msg)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address peer = msg->address;

	if (side->connected)
		endpoint_destroy(&side->ep);
	endpoint_create(&side->ep, &side->dev, &options);
	msg->address = endpoint_address(&side->ep);
	endpoint_connect(&side->ep, &peer);
	side->connected = true;
}

static void deregister(struct side *side)
{
	if (side->mr && ibv_dereg_mr(side->mr))
		bail("ibv_dereg_mr: %s", strerror(errno));
	side->mr = NULL;
}

static void registered(struct side *side, struct message *msg)
{
	deregister(side);
	if (side->kind == DEVICE)
		side->mr = ibv_reg_dm_mr(side->dev.pd, side->dm, 0, BYTES,
					 msg->arg | IBV_ACCESS_ZERO_BASED);
	else
		side->mr = ibv_reg_mr_iova(side->dev.pd, side->pages, BYTES, 0,
					   msg->arg);
	if (!side->mr)
		bail("register: %s", strerror(errno));
	msg->rkey = side->mr->rkey;
}

static bool filled_with(struct side *side, uint8_t byte)
{
	static uint8_t copy[BYTES];

	if (side->kind != DEVICE)
		return all_are(side->pages, BYTES, byte);
	return !ibv_memcpy_from_dm(copy, side->dm, 0, BYTES) &&
	       all_are(copy, BYTES, byte);
}

static bool fill(struct side *side, uint8_t byte)
{
	static uint8_t copy[BYTES];

	if (side->kind != DEVICE) {
		memset(side->pages, byte, BYTES);
		return true;
	}
	memset(copy, byte, BYTES);
	return !ibv_memcpy_to_dm(side->dm, 0, copy, BYTES);
}

static bool renew(struct side *side)
{
	deregister(side);
	if (side->kind != DEVICE)
		munmap(side->pages, mapped_bytes(side));
	else if (ibv_free_dm(side->dm))
		return false;
	allocate(side);
	return filled_with(side, 0);
}

static bool limit(struct side *side)
{
	struct ibv_qp_attr attr = { .qp_access_flags = IBV_ACCESS_REMOTE_READ };

	return !ibv_modify_qp(side->ep.qp, &attr, IBV_QP_ACCESS_FLAGS);
}

static bool obey(struct side *side, struct message *msg)
{
	switch (msg->order) {
	case CONNECT:
		connect_queue(side, msg);
		return true;
	case REGISTER:
		registered(side, msg);
		return true;
	case DEREGISTER:
		deregister(side);
		return true;
	case FILL:
		return fill(side, msg->arg);
	case CHECK:
		return filled_with(side, msg->arg);
	case FAIL:
		return !endpoint_set_state(&side->ep, IBV_QPS_ERR);
	case LIMIT:
		return limit(side);
	case RENEW:
		return renew(side);
	case ORDINARY:
		region_create(&side->ordinary, side->dev.pd, BYTES);
		msg->rkey = side->ordinary.mr->rkey;
		msg->address.gid.global.interface_id = side->ordinary.rdma_addr;
		return true;
	default:
		_exit(0);
	}
}

int slice_serve(const char *name, const char *port, enum kind kind)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	struct side side = { .kind = kind };
	struct message msg;

	at.sin_port = htons(atoi(port));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(listener, 1))
		bail("listen: %s", strerror(errno));
	side.socket = accept(listener, NULL, NULL);
	device_open(&side.dev, name);
	allocate(&side);
	while (recv(side.socket, &msg, sizeof(msg), MSG_WAITALL) ==
	       sizeof(msg)) {
		msg.arg = obey(&side, &msg);
		if (write(side.socket, &msg, sizeof(msg)) != sizeof(msg))
			break;
	}
	return 0;
}

int slice_own(const char *name)
{
	struct side side = {};

	device_open(&side.dev, name);
	allocate(&side);
	if (!fill(&side, 0xaa))
		bail("it can't be written");
	tap_note("it writes");
	fflush(stdout);
	while (fill(&side, 0xaa))
		;
	return 1;
}
