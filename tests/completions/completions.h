/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef COMPLETIONS_H
#define COMPLETIONS_H

#include "setup.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
/* Atomics need eight bytes at a multiple of eight. */
#define WORD_OFFSET (PAGE_BYTES - 77)

/* One connected pair for one case. */
struct pair {
	struct setup *setup;
	struct endpoint a;
	struct endpoint b;
};

void pair_open(struct pair *pair, struct setup *setup,
	       const struct endpoint_options *options);
void pair_close(struct pair *pair);
struct ibv_sge a_sge(const struct pair *pair, size_t offset, uint32_t length);
struct ibv_sge b_sge(const struct pair *pair, size_t offset, uint32_t length);
void post_between(struct pair *pair, uint64_t id, enum ibv_wr_opcode opcode,
		  size_t a_offset, size_t b_offset, uint32_t length, int flags);
void post_a(struct pair *pair, uint64_t id, enum ibv_wr_opcode opcode,
	    size_t offset, uint32_t length, int flags);
void post_b_receive(struct pair *pair, uint64_t id, size_t offset,
		    uint32_t length);

/* order.c */
bool case_mixed_signals(struct setup *setup);
bool case_signal_all(struct setup *setup);
bool case_fence_read(struct setup *setup);
bool case_fence_atomic(struct setup *setup);
bool case_write_then_send(struct setup *setup);
bool case_read_after_write(struct setup *setup);

/* rings.c */
bool case_stream_depth_1(struct setup *setup);
bool case_stream_depth_13(struct setup *setup);
bool case_stream_depth_1024(struct setup *setup);
bool case_lists(struct setup *setup);
bool case_overfull_list(struct setup *setup);
bool case_overfull_receive_list(struct setup *setup);

/* many.c */
bool case_shared_cq(struct setup *setup);
bool case_atomic_sum(struct setup *setup);
bool case_threads(struct setup *setup);
bool case_threads_one_qp(struct setup *setup);
bool case_both_directions(struct setup *setup);
bool case_self(struct setup *setup);

#endif /* COMPLETIONS_H */
