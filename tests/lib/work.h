/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Posting work requests and waiting for their completions.
 */
#ifndef TESTS_WORK_H
#define TESTS_WORK_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "endpoint.h"

const char *opcode_name(enum ibv_wr_opcode opcode);
bool opcode_has_imm(enum ibv_wr_opcode opcode);
bool opcode_is_atomic(enum ibv_wr_opcode opcode);
/* Does the peer need a receive for it? */
bool opcode_takes_recv(enum ibv_wr_opcode opcode);
/* Does it name memory of the peer? */
bool opcode_has_remote(enum ibv_wr_opcode opcode);
/* Does it write into local memory? */
bool opcode_writes_local(enum ibv_wr_opcode opcode);
enum ibv_wc_opcode completion_of(enum ibv_wr_opcode opcode);

/* A signalled work request without remote address. */
struct ibv_send_wr send_wr(uint64_t id, enum ibv_wr_opcode opcode,
			   struct ibv_sge *sges, int count);

/* The memory of the peer that it names: a word of it, if it is an atomic. */
void send_wr_aim(struct ibv_send_wr *wr, uint64_t addr, uint32_t rkey);

/* Each ends the test if the post is refused. */
void post_send(struct endpoint *ep, struct ibv_send_wr *wr);
void post_recv(struct endpoint *ep, uint64_t id, struct ibv_sge *sges,
	       int count);
/* Each returns what the verb returns. */
int try_post_send(struct endpoint *ep, struct ibv_send_wr *wr);
int try_post_recv(struct endpoint *ep, uint64_t id, struct ibv_sge *sges,
		  int count);

/* A SEND without data. */
void post_empty_send(struct endpoint *ep, uint64_t id, int flags);
/* One SEND without data, with its receive and both completions. */
bool exchange_empty(struct endpoint *from, struct endpoint *to, uint64_t id);

/* Wait for a completion; false, with a remark, if the deadline passes. */
bool cq_wait(struct ibv_cq *cq, struct ibv_wc *wc);
/* Is there no completion within @ms? */
bool cq_stays_empty(struct ibv_cq *cq, unsigned int ms);
/* Wait for a completion of @id with @status, with a remark otherwise. */
bool cq_expect(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status);
/* The same for those from @from up to @to, which is not one of them, in order. */
bool cq_expect_range(struct ibv_cq *cq, uint64_t from, uint64_t to,
		     enum ibv_wc_status status);
/* The same for success, and give the completion to the caller. */
bool cq_success(struct ibv_cq *cq, uint64_t id, struct ibv_wc *wc);

#endif /* TESTS_WORK_H */
