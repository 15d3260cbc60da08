// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A connected pair, and posting to it.
 */
#include <endian.h>

#include "work.h"
#include "completions.h"

void pair_open(struct pair *pair, struct setup *setup,
	       const struct endpoint_options *options)
{
	pair->setup = setup;
	pair_create(&pair->a, &setup->a_dev, &pair->b, &setup->b_dev, options);
}

void pair_close(struct pair *pair)
{
	pair_destroy(&pair->a, &pair->b);
}

struct ibv_sge a_sge(const struct pair *pair, size_t offset, uint32_t length)
{
	return region_sge(&pair->setup->a_mem, offset, length);
}

struct ibv_sge b_sge(const struct pair *pair, size_t offset, uint32_t length)
{
	return region_sge(&pair->setup->b_mem, offset, length);
}

/* Post to @pair->a. */
void post_between(struct pair *pair, uint64_t id, enum ibv_wr_opcode opcode,
		  size_t a_offset, size_t b_offset, uint32_t length, int flags)
{
	const struct region *remote = &pair->setup->b_mem;
	struct ibv_sge sge = a_sge(pair, a_offset, length);
	struct ibv_send_wr wr = send_wr(id, opcode, &sge, 1);

	wr.send_flags = flags;
	wr.imm_data = htobe32(id);
	if (opcode_is_atomic(opcode)) {
		wr.wr.atomic.remote_addr = remote->rdma_addr + b_offset;
		wr.wr.atomic.rkey = remote->mr->rkey;
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.swap = 2;
	} else {
		wr.wr.rdma.remote_addr = remote->rdma_addr + b_offset;
		wr.wr.rdma.rkey = remote->mr->rkey;
	}
	post_send(&pair->a, &wr);
}

/* The same with one offset for both memories. */
void post_a(struct pair *pair, uint64_t id, enum ibv_wr_opcode opcode,
	    size_t offset, uint32_t length, int flags)
{
	post_between(pair, id, opcode, offset, offset, length, flags);
}

void post_b_receive(struct pair *pair, uint64_t id, size_t offset,
		    uint32_t length)
{
	struct ibv_sge sge = b_sge(pair, offset, length);

	post_recv(&pair->b, id, &sge, 1);
}
