/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the two sides of "slice" have in common.
 */
#ifndef TESTS_SLICE_H
#define TESTS_SLICE_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "device.h"
#include "dmabuf.h"
#include "endpoint.h"
#include "memory.h"

enum { PAGE = 4096, BYTES = 64 * PAGE };

/* Of the memory. */
enum kind {
	DEVICE,
	PAGES,
	HUGE_PAGES,
	MOST_EXTENTS, /* that can be mapped through an aperture */
	MORE_EXTENTS,
	ON_DEMAND,
	DMABUF,
};

/* What the client says. */
enum order {
	CONNECT,  /* with the queue pair at @address */
	REGISTER, /* the memory, with the rights @arg */
	DEREGISTER,
	FILL,	  /* with the byte @arg */
	CHECK,	  /* is each byte @arg? */
	FAIL,	  /* queue pair in error */
	LIMIT,	  /* the queue pair's peer may only read */
	RENEW,	  /* free the memory and allocate it */
	ORDINARY, /* register ordinary memory */
	DIE,
};

struct message {
	uint32_t order;
	uint32_t arg; /* back: whether it went well */
	struct endpoint_address address;
	uint32_t rkey;
	uint64_t bytes; /* registered */
};

struct side {
	int socket;
	struct device dev;
	struct endpoint ep;
	enum kind kind;
	struct ibv_dm *dm;
	struct dmabuf dmabuf;
	uint8_t *pages; /* unless it is device memory */
	struct ibv_mr *mr;
	struct region ordinary;
	bool connected;
	bool aperture; /* ordinary memory of the server can be mapped */
};

/* Memory of a kind that does as a client says, until that goes; the exit status. */
int slice_serve(const char *name, const char *port, const char *kind);

/* Device memory that is written to for ever; else the exit status. */
int slice_own(const char *name);

#endif /* TESTS_SLICE_H */
