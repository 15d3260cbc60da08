// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <string.h>

#include "pattern.h"
#include "proxy.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

enum { MESSAGE_BYTES = 100, BACK_OFFSET = 1000, NEIGHBOUR_BYTES = 2000 };

void setup_open(struct setup *setup, int *argc, char **argv, size_t bytes)
{
	const char *device, *peer;

	device_names(argc, argv, &device, &peer);
	device_open(&setup->a_dev, device);
	device_open(&setup->b_dev, peer);
	region_create(&setup->a_mem, setup->a_dev.pd, bytes);
	region_create(&setup->b_mem, setup->b_dev.pd, bytes);
}

void setup_close(struct setup *setup)
{
	region_destroy(&setup->a_mem);
	region_destroy(&setup->b_mem);
	device_close(&setup->a_dev);
	device_close(&setup->b_dev);
}

bool setup_is_remote(const struct setup *setup)
{
	return proxy_is(setup->a_dev.ctx) || proxy_is(setup->b_dev.ctx);
}

unsigned int repetitions(const struct setup *setup, unsigned int count)
{
	return setup_is_remote(setup) ? count / 10 : count;
}

void neighbours_open(struct neighbours *neighbours, struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	memset(neighbours, 0, sizeof(*neighbours));
	pair_create(&neighbours->a, &setup->a_dev, &neighbours->b,
		    &setup->b_dev, &options);
	region_create(&neighbours->a_mem, setup->a_dev.pd, NEIGHBOUR_BYTES);
	region_create(&neighbours->b_mem, setup->b_dev.pd, NEIGHBOUR_BYTES);
}

void neighbours_close(struct neighbours *neighbours)
{
	pair_destroy(&neighbours->a, &neighbours->b);
	region_destroy(&neighbours->a_mem);
	region_destroy(&neighbours->b_mem);
}

/* The bytes go there by WRITE. */
static bool write_there(struct neighbours *neighbours)
{
	struct ibv_sge sge = region_sge(&neighbours->a_mem, 0, MESSAGE_BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);

	wr.wr.rdma.remote_addr = neighbours->b_mem.rdma_addr;
	wr.wr.rdma.rkey = neighbours->b_mem.mr->rkey;
	return check(!try_post_send(&neighbours->a, &wr) &&
			     cq_expect(neighbours->a.send_cq, 1,
				       IBV_WC_SUCCESS),
		     "the neighbours' WRITE fails");
}

/* And they come back by SEND. */
static bool send_back(struct neighbours *neighbours)
{
	struct ibv_sge from = region_sge(&neighbours->b_mem, 0, MESSAGE_BYTES);
	struct ibv_sge to = region_sge(&neighbours->a_mem, BACK_OFFSET,
				       MESSAGE_BYTES);
	struct ibv_send_wr wr = send_wr(2, IBV_WR_SEND, &from, 1);

	return check(
		!try_post_recv(&neighbours->a, 3, &to, 1) &&
			!try_post_send(&neighbours->b, &wr) &&
			cq_expect(neighbours->b.send_cq, 2, IBV_WC_SUCCESS) &&
			cq_expect(neighbours->a.recv_cq, 3, IBV_WC_SUCCESS),
		"the neighbours' SEND fails");
}

bool neighbours_work(struct neighbours *neighbours)
{
	const uint8_t *bytes = pattern_bytes(++neighbours->rounds,
					     MESSAGE_BYTES);

	memcpy(neighbours->a_mem.addr, bytes, MESSAGE_BYTES);
	return write_there(neighbours) && send_back(neighbours) &&
	       check(!memcmp(neighbours->a_mem.addr + BACK_OFFSET, bytes,
			     MESSAGE_BYTES),
		     "the neighbours' bytes changed");
}
