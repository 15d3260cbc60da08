/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The two ends of connections that one process has to itself.
 */
#ifndef BENCH_ENDS_H
#define BENCH_ENDS_H

#include <infiniband/verbs.h>

#include "common.h"

enum { PAGE = 4096 };

/* A device with one buffer, and one queue for all completions. */
struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	union ibv_gid gid;
	uint8_t gid_index;
	enum ibv_mtu mtu;
	char *buffer;
	struct ibv_mr *mr;
};

/* A buffer of @bytes and room for @depth completions; ends the program if not. */
void open_end(struct end *end, const char *name, const char *gid_index,
	      size_t bytes, int depth);

/* An RC queue pair, and connecting it with the one called @peer at @gid. */
struct ibv_qp *create_qp(struct end *end, int depth);
void connect_qp(struct ibv_qp *qp, const struct end *end, uint32_t peer,
		const union ibv_gid *gid);

/* Two RC queue pairs of @depth requests, connected with each other. */
void create_pair(struct end *a, struct end *b, int depth, struct ibv_qp **qp,
		 struct ibv_qp **peer);

/* A signalled write of @bytes from the one buffer to the other. */
void post_write(struct ibv_qp *qp, const struct end *from, const struct end *to,
		uint32_t bytes, uint64_t id);

/* Take completions: how many of at most @count there were. */
int poll_writes(const struct end *end, struct ibv_wc *wc, int count);

#endif /* BENCH_ENDS_H */
