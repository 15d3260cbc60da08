// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Regions whose memory is not pinned, and access to it.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "demand.h"
#include "proxy.h"
#include "tap.h"
#include "work.h"

void fill(struct setup *setup)
{
	memset(setup->a_mem.addr, FILL_BYTE, LONG_BYTES);
}

bool succeeds(enum ibv_wc_status status)
{
	return check(!status, "the status is %s", ibv_wc_status_str(status));
}

bool ends_with(enum ibv_wc_status status, enum ibv_wc_status expected)
{
	return check(status == expected, "the status is %s instead of %s",
		     ibv_wc_status_str(status), ibv_wc_status_str(expected));
}

static bool map_memory(struct demand *demand, struct ibv_pd *pd, size_t length,
		       int flags, bool implicit)
{
	demand->length = length;
	demand->addr = mmap(NULL, length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	tap_must(demand->addr != MAP_FAILED, "no memory");
	proxy_share(pd, demand->addr, length);
	demand->mr = ibv_reg_mr(pd, implicit ? NULL : demand->addr,
				implicit ? SIZE_MAX : length, DEMAND_ACCESS);
	return check(demand->mr, "ibv_reg_mr: %s", strerror(errno));
}

bool demand_map(struct demand *demand, struct ibv_pd *pd, size_t length,
		bool implicit)
{
	return map_memory(demand, pd, length, 0, implicit);
}

bool demand_create(struct demand *demand, struct stage *stage, bool implicit)
{
	return demand_map(demand, stage->setup->b_dev.pd, REGION_BYTES,
			  implicit);
}

bool demand_create_huge(struct demand *demand, struct stage *stage)
{
	return map_memory(demand, stage->setup->b_dev.pd, HUGE_BYTES,
			  MAP_HUGETLB, false);
}

bool demand_destroy(struct demand *demand)
{
	munmap(demand->addr, demand->length);
	return check(!ibv_dereg_mr(demand->mr), "ibv_dereg_mr fails");
}

/* Between a's memory and so much of the peer's. */
enum ibv_wc_status transfer(struct setup *setup, struct endpoint *a,
			    enum ibv_wr_opcode opcode, uint64_t addr,
			    uint32_t rkey)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, REGION_BYTES);
	struct ibv_send_wr wr = send_wr(1, opcode, &sge, 1);
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	post_send(a, &wr);
	cq_wait(a->send_cq, &wc);
	return wc.status;
}

enum ibv_wc_status access_demand(struct stage *stage, enum ibv_wr_opcode opcode,
				 const struct demand *demand)
{
	return transfer(stage->setup, &stage->a, opcode,
			(uintptr_t)demand->addr, demand->mr->rkey);
}
