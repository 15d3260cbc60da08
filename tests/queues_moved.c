// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queues that are resized, so that the kernel has them in new memory.
 */
#include <infiniband/micdv.h>

#include "queues.h"
#include "tap.h"
#include "work.h"
#include "writer.h"

enum { ENTRIES = 16, MANY = 1024, WRITES = 300 };

static uint64_t count_direct(const struct pair *pair)
{
	struct micdv_qp_attr attr = { .comp_mask = 0 };

	if (micdv_query_qp(pair->a.qp, &attr))
		bail("micdv_query_qp fails");
	return attr.direct;
}

/* Of completions of what the process executes as many may wait as of others. */
static bool has_room_for_own(struct setup *setup)
{
	struct pair pair;
	uint64_t before;
	bool ok;

	pair_open(&pair, setup, ENTRIES);
	post_writes(&pair, 1, ENTRIES / 2);
	ok = expect_ids(pair.cq, 1, 3) &&
	     check(!ibv_resize_cq(pair.cq, MANY), "growing fails");
	before = count_direct(&pair);
	post_writes(&pair, ENTRIES / 2 + 1, WRITES);
	ok = ok &&
	     check(count_direct(&pair) - before == WRITES,
		   "%u of %u by the process",
		   (unsigned int)(count_direct(&pair) - before), WRITES) &&
	     expect_ids(pair.cq, 4, ENTRIES / 2 - 3 + WRITES) &&
	     cq_stays_empty(pair.cq, 20);
	pair_close(&pair);
	return ok;
}

void run_moved(struct setup *setup)
{
	tap_ok(has_room_for_own(setup),
	       "after growing %u more requests are executed by the process",
	       WRITES);
}
