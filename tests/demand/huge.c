// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Regions on demand of hugetlbfs: its pages Linux 6.1 faults in whoever pins them, and
 * for all that he says.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "demand.h"
#include "tap.h"
#include "work.h"

enum { ROUNDS = 100 };

/* It comes, has what was written, goes, and is empty when it comes again. */
bool demand_huge(struct stage *stage)
{
	struct setup *setup = stage->setup;
	struct demand demand;
	bool good;

	fill(setup);
	good = demand_create_huge(&demand, stage) &&
	       succeeds(access_demand(stage, IBV_WR_RDMA_WRITE, &demand)) &&
	       all_are(demand.addr, REGION_BYTES, FILL_BYTE) &&
	       all_are(demand.addr + REGION_BYTES, HUGE_BYTES - REGION_BYTES,
		       0) &&
	       !madvise(demand.addr, HUGE_BYTES, MADV_DONTNEED) &&
	       succeeds(access_demand(stage, IBV_WR_RDMA_READ, &demand)) &&
	       all_are(setup->a_mem.addr, REGION_BYTES, 0) &&
	       !munmap(demand.addr, HUGE_BYTES) &&
	       ends_with(access_demand(stage, IBV_WR_RDMA_WRITE, &demand),
			 IBV_WC_REM_ACCESS_ERR);
	return demand_destroy(&demand) && good;
}

/* A write that waits for a page while nobody withholds it any more. */
static bool let_go_once(struct stage *stage)
{
	struct ibv_sge sge = region_sge(&stage->setup->a_mem, 0, REGION_BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);
	struct demand demand;
	bool good;
	int fd;

	if (!demand_create_huge(&demand, stage))
		return false;
	fd = withhold(demand.addr, demand.length);
	wr.wr.rdma.remote_addr = (uintptr_t)demand.addr;
	wr.wr.rdma.rkey = demand.mr->rkey;
	post_send(&stage->a, &wr);
	good = fd >= 0 && !close(fd) &&
	       cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) &&
	       all_are(demand.addr, REGION_BYTES, FILL_BYTE);
	return demand_destroy(&demand) && good;
}

bool demand_huge_let_go(struct stage *stage)
{
	bool good = true;
	int i;

	fill(stage->setup);
	for (i = 0; i < ROUNDS && good; i++)
		good = let_go_once(stage);
	return good;
}
