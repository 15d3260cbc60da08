// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Who has the memory.
 */
#define _GNU_SOURCE
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

enum { HUGE_BYTES = 2 << 20, EXTENTS = 2048 };

static const char *const kinds[] = {
	[DEVICE] = "device",	 [PAGES] = "pages",
	[HUGE_PAGES] = "huge",	 [MOST_EXTENTS] = "most",
	[MORE_EXTENTS] = "more", [ON_DEMAND] = "demand",
	[DMABUF] = "dmabuf",
};

static enum kind kind_of(const char *name)
{
	unsigned int kind;

	for (kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++)
		if (!strcmp(kinds[kind], name))
			return kind;
	bail("no such memory: %s", name);
}

static size_t registered_bytes(const struct side *side)
{
	switch (side->kind) {
	case MOST_EXTENTS:
		return EXTENTS * PAGE;
	case MORE_EXTENTS:
		return (EXTENTS + 1) * PAGE;
	default:
		return BYTES;
	}
}

static size_t mapped_bytes(const struct side *side)
{
	return side->kind == HUGE_PAGES ? HUGE_BYTES : registered_bytes(side);
}

static void *map_at(void *at, size_t bytes, int flags, int fd)
{
	void *addr = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (addr == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	return addr;
}

static uint8_t *map_anonymous(size_t bytes, int flags)
{
	return map_at(NULL, bytes, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1);
}

/* The same page again and again: it never follows itself, so each is an extent. */
static uint8_t *map_extents(size_t bytes)
{
	uint8_t *addr = map_anonymous(bytes, 0);
	int fd = memfd_create("slice", MFD_CLOEXEC);
	size_t at;

	if (fd < 0 || ftruncate(fd, PAGE))
		bail("memfd: %s", strerror(errno));
	for (at = 0; at < bytes; at += PAGE)
		map_at(addr + at, PAGE, MAP_SHARED | MAP_FIXED, fd);
	close(fd);
	return addr;
}

static uint8_t *map_dmabuf(struct side *side, size_t bytes)
{
	if (!dmabuf_create(&side->dmabuf, bytes))
		bail("nobody exports dma-bufs here");
	return side->dmabuf.addr;
}

static uint8_t *map_pages(struct side *side)
{
	size_t bytes = mapped_bytes(side);

	switch (side->kind) {
	case MOST_EXTENTS:
	case MORE_EXTENTS:
		return map_extents(bytes);
	case DMABUF:
		return map_dmabuf(side, bytes);
	case HUGE_PAGES:
		return map_anonymous(bytes, MAP_POPULATE | MAP_HUGETLB);
	case ON_DEMAND:
		return map_anonymous(bytes, 0);
	default:
		return map_anonymous(bytes, MAP_POPULATE);
	}
}

static void allocate(struct side *side)
{
	struct ibv_alloc_dm_attr attr = { .length = BYTES };

	if (side->kind != DEVICE) {
		side->pages = map_pages(side);
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

static struct ibv_mr *new_region(const struct side *side, int access)
{
	const size_t bytes = registered_bytes(side);
	struct ibv_pd *pd = side->dev.pd;

	switch (side->kind) {
	case DEVICE:
		return ibv_reg_dm_mr(pd, side->dm, 0, bytes,
				     access | IBV_ACCESS_ZERO_BASED);
	case DMABUF:
		return ibv_reg_dmabuf_mr(pd, 0, bytes, 0, side->dmabuf.fd,
					 access);
	case ON_DEMAND:
		access |= IBV_ACCESS_ON_DEMAND;
		/* fall through */
	default:
		return ibv_reg_mr_iova(pd, side->pages, bytes, 0, access);
	}
}

static void registered(struct side *side, struct message *msg)
{
	deregister(side);
	side->mr = new_region(side, msg->arg);
	if (!side->mr)
		bail("register: %s", strerror(errno));
	msg->rkey = side->mr->rkey;
	msg->bytes = registered_bytes(side);
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

int slice_serve(const char *name, const char *port, const char *kind)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	struct side side = { .kind = kind_of(kind) };
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
