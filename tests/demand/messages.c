// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Messages of which a piece gets lost.
 */
#include <unistd.h>

#include "demand.h"
#include "tap.h"
#include "work.h"

enum { QUIET_MS = 50 };

static void post_long(struct stage *stage, enum ibv_wr_opcode opcode,
		      const struct demand *demand)
{
	struct ibv_sge sge = region_sge(&stage->setup->a_mem, 0, LONG_BYTES);
	struct ibv_send_wr wr = send_wr(1, opcode, &sge, 1);

	wr.wr.rdma.remote_addr = (uintptr_t)demand->addr;
	wr.wr.rdma.rkey = demand->mr->rkey;
	post_send(&stage->a, &wr);
}

/*
 * A page in the middle is not there in time, so that message is lost; the next
 * one arrives whole, with the receive of the first.
 */
static bool lost_then_whole(struct stage *stage, enum ibv_wr_opcode opcode,
			    struct demand *demand)
{
	struct ibv_sge sge = { .addr = (uintptr_t)demand->addr,
			       .length = LONG_BYTES,
			       .lkey = demand->mr->lkey };
	struct ibv_wc wc;
	bool good;
	int fd;

	fd = withhold(demand->addr + SEGMENT_BYTES + PAGE_BYTES, PAGE_BYTES);
	if (fd < 0)
		return false;
	fill(stage->setup);
	post_recv(&stage->b, 7, &sge, 1);
	post_long(stage, opcode, demand);
	good = cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) &&
	       cq_stays_empty(stage->b.recv_cq, QUIET_MS);
	close(fd);
	if (!good)
		return false;
	post_long(stage, opcode, demand);
	return cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) &&
	       cq_success(stage->b.recv_cq, 7, &wc) &&
	       check(wc.byte_len == LONG_BYTES, "%u bytes", wc.byte_len) &&
	       all_are(demand->addr, LONG_BYTES, FILL_BYTE);
}

bool demand_lost(struct stage *stage)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM
	};
	struct endpoint_options options = endpoint_options(IBV_QPT_UC);
	struct stage other = { .setup = stage->setup };
	struct demand demand;
	bool good = true;
	unsigned int i;

	for (i = 0; i < COUNT(opcodes) && good; i++) {
		pair_create(&other.a, &stage->setup->a_dev, &other.b,
			    &stage->setup->b_dev, &options);
		good = demand_map(&demand, stage->setup->b_dev.pd, LONG_BYTES,
				  false) &&
		       check(lost_then_whole(&other, opcodes[i], &demand), "%s",
			     opcode_name(opcodes[i]));
		pair_destroy(&other.a, &other.b);
		good = demand_destroy(&demand) && good;
	}
	return good;
}
