/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Two processes with UCP, each on a device of its own, that do the same cases: the
 * active side, which reports them, and the passive one. A socket between them is
 * for what they have to tell each other beside.
 */
#ifndef TESTS_UCX_SIDE_H
#define TESTS_UCX_SIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

/* What memory that must not be written holds. */
#define GUARD 0xa5

struct side {
	bool active;
	int socket;
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h ep;
	ucs_status_t failure; /* of the endpoint, as its handler was told */
};

/* Memory of this side that the other may use. */
struct memory {
	uint8_t *data;
	size_t bytes;
	ucp_mem_h handle;
};

/* Memory of the other side. */
struct window {
	uint64_t address;
	ucp_rkey_h rkey;
};

/* Both sides: @device is one of verbs, @socket stays the caller's. */
void side_open(struct side *side, const char *device, int socket, bool active);
void side_close(struct side *side);
/* The endpoint with an error handler, and one end's UCX alone. */
void side_force_close(struct side *side);

/* Both sides come here before either goes on. UCX goes on meanwhile. */
void meet(struct side *side);
/* Whether it is good on both sides; known to the active one. */
bool agree(struct side *side, bool good);

/* Waits for a request; @what for who reads that it failed. */
bool done(struct side *side, void *request, const char *what);
ucs_status_t outcome(struct side *side, void *request);
bool flush(struct side *side);
/* Waits for the endpoint's failure. */
bool is_told(struct side *side);

/* Both sides: memory of this one, full of GUARD, and a window to the other's. */
void share(struct side *side, struct memory *mine, struct window *theirs,
	   size_t bytes);
void unshare(struct side *side, struct memory *mine, struct window *theirs);

void fill(uint8_t *data, size_t bytes, uint32_t seed, size_t offset);
/* Bytes as fill() made them with the same @seed and @offset. */
bool is_filled(const uint8_t *data, size_t bytes, uint32_t seed, size_t offset);
bool is_guard(const uint8_t *data, size_t bytes);
void *zeroed(size_t bytes);

#endif /* TESTS_UCX_SIDE_H */
