// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Shared receive queues whose memory is brought in when a message comes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "shared.h"
#include "tap.h"
#include "work.h"

enum { DEMAND_ID = 5, WRITE_OFFSET = 2 * PAGE_BYTES };

/* No page of it is there before somebody wants it. */
static void demand_open(struct region *region, struct ibv_pd *pd)
{
	if (!region_map(region, MEMORY_ANON, 4 * PAGE_BYTES))
		bail("cannot map memory");
	region_register(region, pd,
			IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE |
				IBV_ACCESS_REMOTE_WRITE);
	if (madvise(region->map, region->map_length, MADV_DONTNEED))
		bail("madvise: %s", strerror(errno));
}

bool demand_arrives(struct setup *setup, struct endpoint *a,
		    struct ibv_srq *srq, struct ibv_cq *cq,
		    struct ibv_send_wr wr)
{
	bool datagram = a->options.type == IBV_QPT_UD;
	struct ibv_recv_wr recv = { .wr_id = DEMAND_ID, .num_sge = 1 }, *bad;
	struct region from, to;
	struct ibv_sge send, receive;
	struct ibv_wc wc;
	bool ok;

	demand_open(&from, setup->a_dev.pd);
	demand_open(&to, setup->b_dev.pd);
	memset(from.addr, 0x5a, 8);
	send = region_sge(&from, 0, 8);
	wr.sg_list = &send;
	wr.num_sge = 1;
	receive = region_sge(&to, 0, 100);
	recv.sg_list = &receive;
	ok = check(!ibv_post_srq_recv(srq, &recv, &bad), "no receive");
	post_send(a, &wr);
	ok = ok && cq_expect(a->send_cq, wr.wr_id, IBV_WC_SUCCESS) &&
	     cq_success(cq, DEMAND_ID, &wc) &&
	     all_are(to.addr + (datagram ? GRH_BYTES : 0), 8, 0x5a);
	region_destroy(&from);
	region_destroy(&to);
	return ok;
}

/* On UC a WRITE, too, goes where nothing is; the SEND comes after it. */
static bool demand_write(struct setup *setup, struct endpoint *a,
			 struct endpoint *b, struct ibv_srq *srq)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, NULL, 0);
	struct ibv_send_wr after = send_wr(2, IBV_WR_SEND, NULL, 0);
	struct region to;
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 8);
	bool ok;

	demand_open(&to, setup->b_dev.pd);
	memset(setup->a_mem.addr, 0x66, 8);
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.wr.rdma.remote_addr = to.rdma_addr + WRITE_OFFSET;
	wr.wr.rdma.rkey = to.mr->rkey;
	post_send(a, &wr);
	ok = check(!try_post_shared(srq, &setup->b_mem, 2), "no receive");
	post_send(a, &after);
	ok = ok && cq_expect(a->send_cq, 1, IBV_WC_SUCCESS) &&
	     cq_expect(a->send_cq, 2, IBV_WC_SUCCESS) &&
	     cq_expect(b->recv_cq, 2, IBV_WC_SUCCESS) &&
	     all_are(to.addr + WRITE_OFFSET, 8, 0x66);
	region_destroy(&to);
	return ok;
}

bool demand_of(struct setup *setup, enum ibv_qp_type type)
{
	struct endpoint_options options = endpoint_options(type);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);
	struct ibv_srq *srq = srq_create(setup->b_dev.pd, SMALL, 2);
	struct ibv_ah *ah = NULL;
	struct endpoint a, b;
	bool ok;

	endpoint_create(&a, &setup->a_dev, &options);
	options.srq = srq;
	endpoint_create(&b, &setup->b_dev, &options);
	pair_connect(&a, &b);
	if (type == IBV_QPT_UD) {
		ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = b.qp->qp_num;
		wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	}
	ok = demand_arrives(setup, &a, srq, b.recv_cq, wr) &&
	     (type != IBV_QPT_UC || demand_write(setup, &a, &b, srq));
	pair_destroy(&a, &b);
	tap_must(!ibv_destroy_srq(srq), "ibv_destroy_srq fails");
	if (ah)
		tap_must(!ibv_destroy_ah(ah), "ibv_destroy_ah fails");
	return ok;
}
