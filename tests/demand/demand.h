/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * On-demand paging: what its tests share, and their cases.
 */
#ifndef DEMAND_H
#define DEMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "setup.h"
#include "withhold.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 16)
#define HUGE_BYTES (2UL << 20)
#define FILL_BYTE 0x5c
/* What moves at a time, and a message of several of these. */
#define SEGMENT_BYTES (256UL << 10)
#define LONG_BYTES (3 * SEGMENT_BYTES)
/* What a program may want beforehand. */
#define PREFETCH_BYTES (16UL << 20)
#define LET_GO_ROUNDS 500
#define DEMAND_ACCESS (ACCESS_ALL | IBV_ACCESS_ON_DEMAND)

/* A pair of a case's own. */
struct stage {
	struct setup *setup;
	struct endpoint a;
	struct endpoint b;
};

/* Memory of b that nobody has touched, and a region that does not pin it. */
struct demand {
	uint8_t *addr;
	size_t length;
	struct ibv_mr *mr;
};

/* region.c */
void fill(struct setup *setup);
bool succeeds(enum ibv_wc_status status);
bool ends_with(enum ibv_wc_status status, enum ibv_wc_status expected);
bool demand_map(struct demand *demand, struct ibv_pd *pd, size_t length,
		bool implicit);
bool demand_create(struct demand *demand, struct stage *stage, bool implicit);
/* Memory of hugetlbfs, not touched either; length is that of a page of it. */
bool demand_create_huge(struct demand *demand, struct stage *stage);
bool demand_destroy(struct demand *demand);
enum ibv_wc_status transfer(struct setup *setup, struct endpoint *a,
			    enum ibv_wr_opcode opcode, uint64_t addr,
			    uint32_t rkey);
enum ibv_wc_status access_demand(struct stage *stage, enum ibv_wr_opcode opcode,
				 const struct demand *demand);

/* pages.c */
bool demand_advertised(struct stage *stage);
bool demand_explicit(struct stage *stage);
bool demand_implicit(struct stage *stage);
bool demand_unmapped(struct stage *stage);
bool demand_beyond_end(struct stage *stage);
bool demand_unpinnable(struct stage *stage);
bool demand_read_only(struct stage *stage);
bool demand_withheld(struct stage *stage);
bool demand_let_go(struct stage *stage);
bool demand_huge_let_go(struct stage *stage);
bool demand_huge(struct stage *stage);
bool demand_advice(struct stage *stage);
bool demand_bad_advice(struct stage *stage);
bool demand_prefetched(struct stage *stage);
bool demand_refused(struct stage *stage);

/* messages.c */
bool demand_lost(struct stage *stage);
bool demand_waiting(struct stage *stage);

/* processes.c; to be started before a device is opened */
void processes_start(void);
bool demand_killed(struct stage *stage);
bool demand_orphaned(struct stage *stage);

#endif /* DEMAND_H */
