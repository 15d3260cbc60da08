// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Requests to a node that does not answer: what they borrow can be had back at
 * once. Once connected it waits for a line of input, before which the node may
 * be stopped.
 *
 * usage: silent [--device NAME] PEER-GID
 */
#include <arpa/inet.h>
#include <stdio.h>

#include "endpoint.h"
#include "memory.h"
#include "tap.h"
#include "work.h"

enum { BYTES = 1 << 20, NOBODY = 42 };

struct one {
	struct endpoint ep;
	struct region mem;
};

static void connect_to(struct one *one, struct device *dev,
		       const union ibv_gid *gid)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address address;

	region_create(&one->mem, dev->pd, BYTES);
	endpoint_create(&one->ep, dev, &options);
	address = endpoint_address(&one->ep);
	address.gid = *gid;
	address.qp_num = NOBODY;
	endpoint_connect(&one->ep, &address);
}

static void ask(struct one *one, enum ibv_wr_opcode opcode, uint32_t bytes)
{
	struct ibv_sge sge = region_sge(&one->mem, 0, bytes);
	struct ibv_send_wr wr = send_wr(1, opcode, &sge, 1);

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.rkey = 1;
	else
		wr.wr.rdma.rkey = 1;
	post_send(&one->ep, &wr);
}

int main(int argc, char **argv)
{
	static const enum ibv_wr_opcode opcode[] = {
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_RDMA_WRITE,
	};
	const char *name, *peer;
	struct one one[3];
	union ibv_gid gid;
	struct device dev;
	char line[16];
	int i;

	device_names(&argc, argv, &name, &peer);
	if (argc != 2 || inet_pton(AF_INET6, argv[1], &gid) != 1)
		bail("usage: silent [--device NAME] PEER-GID");
	device_open(&dev, name);
	for (i = 0; i < 3; i++)
		connect_to(&one[i], &dev, &gid);
	tap_note("connected");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		bail("no word to begin");
	for (i = 0; i < 3; i++) {
		ask(&one[i], opcode[i],
		    opcode[i] == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : BYTES);
		/* or the test itself asks somebody who answers */
		tap_ok(cq_stays_empty(one[i].ep.send_cq, 1),
		       "%s: there is no answer", opcode_name(opcode[i]));
		region_destroy(&one[i].mem);
		tap_ok(true, "%s: its region is deregistered",
		       opcode_name(opcode[i]));
	}
	tap_note("all deregistered");
	fflush(stdout);
	for (i = 0; i < 3; i++)
		endpoint_destroy(&one[i].ep);
	device_close(&dev);
	return tap_end();
}
