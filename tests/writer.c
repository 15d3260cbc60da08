// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <string.h>

#include "tap.h"
#include "work.h"
#include "writer.h"

struct endpoint_options pair_options(struct ibv_cq *cq)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	options.depth = DEPTH;
	options.inline_bytes = INLINE_BYTES;
	options.send_cq = cq;
	return options;
}

void pair_open_on(struct pair *pair, struct setup *setup, struct ibv_cq *cq)
{
	struct endpoint_options options = pair_options(cq);

	pair->setup = setup;
	pair->cq = cq;
	endpoint_create(&pair->a, &setup->a_dev, &options);
	options.send_cq = NULL;
	endpoint_create(&pair->b, &setup->b_dev, &options);
	pair_connect(&pair->a, &pair->b);
}

struct ibv_cq *new_cq(struct setup *setup, int entries)
{
	struct ibv_cq *cq;

	cq = ibv_create_cq(setup->a_dev.ctx, entries, NULL, NULL, 0);
	if (!cq)
		bail("no completion queue of %d: %s", entries, strerror(errno));
	return cq;
}

void pair_open(struct pair *pair, struct setup *setup, int entries)
{
	pair_open_on(pair, setup, new_cq(setup, entries));
}

void pair_close(struct pair *pair)
{
	pair_destroy(&pair->a, &pair->b);
	tap_must(!ibv_destroy_cq(pair->cq), "ibv_destroy_cq fails");
}

struct ibv_send_wr write_wr(struct pair *pair, uint64_t id, struct ibv_sge *sge)
{
	struct ibv_send_wr wr;

	*sge = region_sge(&pair->setup->a_mem, 0, 8);
	wr = send_wr(id, IBV_WR_RDMA_WRITE, sge, 1);
	wr.wr.rdma.remote_addr = pair->setup->b_mem.rdma_addr;
	wr.wr.rdma.rkey = pair->setup->b_mem.mr->rkey;
	return wr;
}

void post_writes(struct pair *pair, uint64_t first, unsigned int count)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	unsigned int i;

	for (i = 0; i < count; i++) {
		wr = write_wr(pair, first + i, &sge);
		post_send(&pair->a, &wr);
	}
}

void post_sends(struct pair *pair, uint64_t first, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		post_recv(&pair->b, 0, NULL, 0);
		post_empty_send(&pair->a, first + i, IBV_SEND_SIGNALED);
		tap_must(cq_expect(pair->b.recv_cq, 0, IBV_WC_SUCCESS),
			 "a message does not arrive");
	}
}

bool settle(struct pair *pair)
{
	struct ibv_send_wr wr = send_wr(0, IBV_WR_SEND, NULL, 0);
	struct ibv_wc wc;

	post_recv(&pair->b, 0, NULL, 0);
	wr.send_flags = 0;
	post_send(&pair->a, &wr);
	return cq_success(pair->b.recv_cq, 0, &wc);
}

bool expect_ids(struct ibv_cq *cq, uint64_t first, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (!cq_expect(cq, first + i, IBV_WC_SUCCESS))
			return false;
	return true;
}

struct ibv_cq_ex *new_cq_ex(struct setup *setup,
			    struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq_ex *cq;

	attr->cqe = 64;
	attr->wc_flags = WC_EX_FLAGS;
	cq = ibv_create_cq_ex(setup->a_dev.ctx, attr);
	if (!cq)
		bail("no extended completion queue: %s", strerror(errno));
	return cq;
}
