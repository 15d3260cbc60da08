/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The direct path: RDMA requests executed by the process that posts them,
 * through a window of the peer's memory.
 *
 * A request goes this way only if it is certain that the kernel would carry it
 * out successfully and now; all others, and all errors, are the kernel's.
 */
#ifndef MIC_DIRECT_H
#define MIC_DIRECT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "copy.h"
#include "micdv.h"
#include "windows.h"

struct mic_context;
struct mic_key;
struct mic_keys;
struct mic_qp;
struct mic_send_wqe;

enum {
	MIC_CACHE_LINE = 64,
	/* Keys that a queue pair has room for; most have one or two. */
	MIC_DIRECT_FIRST = 4,
};

/* What is known of an rkey: a window, or that there is none. In one cache line. */
struct mic_direct_entry {
	uint32_t rkey;
	uint32_t retry; /* no window: uses to go until the kernel is asked */
	struct mic_window window; /* access is 0 if there is none */
} __attribute__((aligned(MIC_CACHE_LINE)));

static_assert(sizeof(struct mic_direct_entry) == MIC_CACHE_LINE,
	      "a look at a key is a look at one line");

/*
 * Of a queue pair, under the lock of its send queue. Before @path is what each
 * request needs.
 */
struct mic_direct {
	bool on __attribute__((aligned(MIC_CACHE_LINE)));
	bool simple;   /* requests of one piece need no further thought */
	uint32_t mask; /* of @table's length, a power of two */
	uint32_t pd_handle;
	struct mic_keys *keys;
	struct mic_key *key;		/* of the last request */
	struct mic_direct_entry *table; /* by rkey; @first, or larger */
	enum micdv_path path;
	uint32_t random;
	uint32_t used;	/* windows */
	uint32_t taken; /* places, by those and by keys without one */
	uint64_t engine;
	struct mic_direct_entry first[MIC_DIRECT_FIRST];
};

/* A request in either of the forms it is posted in. */
struct mic_direct_req {
	uint64_t wr_id;
	uint64_t remote_addr;
	uint64_t compare_add;
	uint64_t swap;
	const struct ibv_sge *sge;
	uint32_t nsge;
	uint32_t rkey;
	uint32_t flags; /* enum mic_wqe_flags */
	uint8_t opcode; /* enum mic_wr_opcode */
};

enum {
	MIC_DIRECT_MAX_SGE = MIC_COPY_PIECES,
	MIC_DIRECT_MAX_BYTES = 1 << 30,
};

/* direct_table.c: which queue pairs go that way, and their windows */
enum micdv_path mic_direct_default_path(void);
void mic_direct_init(struct mic_qp *qp, enum micdv_path path);
void mic_direct_destroy(struct mic_qp *qp);
void mic_direct_reset(struct mic_qp *qp);
void mic_direct_set_path(struct mic_qp *qp, enum micdv_path path);
void mic_direct_query(struct mic_qp *qp, struct micdv_qp_attr *attr);

/* The window of a key, or NULL. The send queue's lock is held. */
struct mic_window *mic_direct_window(struct mic_qp *qp, uint32_t rkey);
struct mic_windows *mic_context_windows(struct mic_context *ctx);

/* The place of a key in the table, or one of those where it might be. */
static inline struct mic_direct_entry *mic_direct_place(
	const struct mic_direct *direct, uint32_t rkey)
{
	/* indices are handed out in turn, so neighbours do not collide */
	return &direct->table[rkey >> 8 & direct->mask];
}

/* simple.c, then direct.c. True if the request is complete. The send queue's lock is held. */
bool mic_simple_execute(struct mic_qp *qp, const struct ibv_send_wr *wr);
bool mic_direct_execute(struct mic_qp *qp, const struct mic_direct_req *req);
bool mic_direct_post(struct mic_qp *qp, const struct ibv_send_wr *wr);
bool mic_direct_wqe(struct mic_qp *qp, const struct mic_send_wqe *wqe);

#endif /* MIC_DIRECT_H */
