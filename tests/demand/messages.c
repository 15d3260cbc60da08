// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Messages of which a piece gets lost, or has to wait for a page.
 */
#include <inttypes.h>
#include <unistd.h>

#include "counter.h"
#include "demand.h"
#include "proxy.h"
#include "tap.h"
#include "work.h"

enum { QUIET_MS = 50, RETRIES = 3 };

static void post_long(struct stage *stage, uint64_t id,
		      enum ibv_wr_opcode opcode, const struct demand *demand)
{
	struct ibv_sge sge = region_sge(&stage->setup->a_mem, 0, LONG_BYTES);
	struct ibv_send_wr wr = send_wr(id, opcode, &sge, 1);

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
	post_long(stage, 1, opcode, demand);
	good = cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) &&
	       cq_stays_empty(stage->b.recv_cq, QUIET_MS);
	close(fd);
	if (!good)
		return false;
	post_long(stage, 1, opcode, demand);
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

/* --- messages that wait -------------------------------------------------------- */

/* Some, and what counts their bytes. */
static const struct {
	enum ibv_wr_opcode opcode;
	const char *counter;
} waiting[] = {
	{ IBV_WR_RDMA_WRITE, "rdma_write_bytes" },
	{ IBV_WR_RDMA_READ, "rdma_read_bytes" },
	{ IBV_WR_SEND, "send_bytes" },
};

/* False where nobody counts: a's device is another machine's, or another driver's. */
static bool count_bytes(struct stage *stage, const char *counter,
			uint64_t *bytes)
{
	const struct device *dev = &stage->setup->a_dev;

	counter_settle();
	return !proxy_is_name(dev->name) && counter_read(dev, counter, bytes);
}

/* What has arrived is not sent again, however often the request is repeated. */
static bool moved(struct stage *stage, const char *counter, uint64_t before,
		  uint64_t expected)
{
	uint64_t after;

	return !count_bytes(stage, counter, &after) ||
	       check(after - before == expected,
		     "%s grows by %" PRIu64 " instead of %" PRIu64, counter,
		     after - before, expected);
}

/* The page comes after some repetitions, and the second message behind the first. */
static bool comes_late(struct stage *stage, unsigned int i,
		       struct demand *demand, int withheld)
{
	enum ibv_wr_opcode opcode = waiting[i].opcode;
	bool inward = opcode == IBV_WR_RDMA_READ;
	bool good = cq_stays_empty(stage->a.send_cq, QUIET_MS) &&
		    cq_stays_empty(stage->b.recv_cq, 0);

	provide(withheld, demand->addr, demand->length);
	return good &&
	       cq_expect_range(stage->a.send_cq, 1, 3, IBV_WC_SUCCESS) &&
	       (!opcode_takes_recv(opcode) ||
		cq_expect_range(stage->b.recv_cq, 1, 3, IBV_WC_SUCCESS)) &&
	       all_are(inward ? stage->setup->a_mem.addr : demand->addr,
		       LONG_BYTES, inward ? 0 : FILL_BYTE);
}

/* The request is given up, though part of its message arrives. */
static bool never_comes(struct stage *stage, unsigned int i,
			struct demand *demand, int withheld)
{
	bool good = cq_expect(stage->a.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR) &&
		    cq_expect(stage->a.send_cq, 2, IBV_WC_WR_FLUSH_ERR) &&
		    cq_stays_empty(stage->b.recv_cq, 0);

	(void)i;
	provide(withheld, demand->addr, demand->length);
	return good;
}

static const struct {
	bool (*run)(struct stage *stage, unsigned int i, struct demand *demand,
		    int withheld);
	const char *name;
	uint8_t rnr_retry;
	uint64_t bytes;
} ends[] = {
	{ comes_late, "late", 7, 2 * LONG_BYTES },
	{ never_comes, "never", RETRIES, 2 * SEGMENT_BYTES },
};

/* Two messages; of the first one's last segment a page is not there. */
static bool wait_for_page(struct stage *stage, unsigned int i, unsigned int end,
			  struct demand *demand)
{
	struct ibv_sge sge = { .addr = (uintptr_t)demand->addr,
			       .length = LONG_BYTES,
			       .lkey = demand->mr->lkey };
	uint64_t before = 0, id;
	bool counted;
	int withheld;

	withheld = withhold(demand->addr + 2 * SEGMENT_BYTES + PAGE_BYTES,
			    PAGE_BYTES);
	if (withheld < 0)
		return false;
	fill(stage->setup);
	counted = count_bytes(stage, waiting[i].counter, &before);
	for (id = 1; id < 3; id++) {
		if (opcode_takes_recv(waiting[i].opcode))
			post_recv(&stage->b, id, &sge, 1);
		post_long(stage, id, waiting[i].opcode, demand);
	}
	return ends[end].run(stage, i, demand, withheld) &&
	       (!counted ||
		moved(stage, waiting[i].counter, before, ends[end].bytes));
}

static bool wait_once(struct setup *setup, unsigned int i, unsigned int end)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct stage stage = { .setup = setup };
	struct demand demand;
	bool good;

	options.rnr_retry = ends[end].rnr_retry;
	pair_create(&stage.a, &setup->a_dev, &stage.b, &setup->b_dev, &options);
	good = demand_map(&demand, setup->b_dev.pd, LONG_BYTES, false) &&
	       check(wait_for_page(&stage, i, end, &demand), "%s, %s",
		     opcode_name(waiting[i].opcode), ends[end].name);
	pair_destroy(&stage.a, &stage.b);
	return demand_destroy(&demand) && good;
}

bool demand_waiting(struct stage *stage)
{
	bool good = true;
	unsigned int i;

	for (i = 0; i < COUNT(waiting) * COUNT(ends); i++)
		good = wait_once(stage->setup, i / COUNT(ends),
				 i % COUNT(ends)) &&
		       good;
	return good;
}
