// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Requests that the process executes by itself are in the counters of the
 * device, also when their queue pair is gone; and so are those to another machine,
 * which the process executes only if there is an "aperture".
 */
#include <inttypes.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "counter.h"
#include "endpoint.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

enum { WRITES = 7, READS = 5, ATOMICS = 3, BYTES = 100, WORD = 8 };

/* It begins within a page, and another machine grants whole ones only. */
#define MEMORY_BYTES (4 * PAGE_BYTES)

static struct setup setup;
static struct endpoint a, b;
static bool mapped; /* the process can reach the memory */

static uint64_t counter(const char *name)
{
	return counter_now(&setup.a_dev, name);
}

static const struct {
	const char *direct;
	const char *engine;
	uint64_t expected;
} counted[] = {
	{ "direct_writes", "rdma_writes", WRITES },
	{ "direct_write_bytes", "rdma_write_bytes", WRITES *BYTES },
	{ "direct_reads", "rdma_reads", READS },
	{ "direct_read_bytes", "rdma_read_bytes", READS *BYTES },
	{ "direct_atomics", "atomics", ATOMICS },
	{ "direct_atomic_bytes", "atomic_bytes", ATOMICS *WORD },
};

#define COUNTERS (sizeof(counted) / sizeof(counted[0]))

static uint64_t before[COUNTERS], direct_before;

static void remember(void)
{
	size_t i;

	counter_settle();
	for (i = 0; i < COUNTERS; i++)
		before[i] = counter(counted[i].direct) +
			    counter(counted[i].engine);
	direct_before = counter("direct_writes");
}

static bool grew(void)
{
	uint64_t now;
	size_t i;

	counter_settle();
	for (i = 0; i < COUNTERS; i++) {
		now = counter(counted[i].direct) + counter(counted[i].engine);
		if (!check(now - before[i] == counted[i].expected,
			   "%s and %s grow by %" PRIu64 " instead of %" PRIu64,
			   counted[i].direct, counted[i].engine,
			   now - before[i], counted[i].expected))
			return false;
	}
	now = counter("direct_writes");
	return check((now > direct_before) == mapped,
		     "the process has executed %" PRIu64, now - direct_before);
}

static bool requests(enum ibv_wr_opcode opcode, unsigned int n, uint32_t bytes)
{
	struct ibv_sge sge = region_sge(&setup.a_mem, 0, bytes);
	struct ibv_send_wr wr = send_wr(1, opcode, &sge, 1);
	uint64_t page = (setup.b_mem.rdma_addr + PAGE_BYTES - 1) &
			~(PAGE_BYTES - 1);

	if (opcode_is_atomic(opcode)) {
		wr.wr.atomic.remote_addr = page;
		wr.wr.atomic.rkey = setup.b_mem.mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = page;
		wr.wr.rdma.rkey = setup.b_mem.mr->rkey;
	}
	while (n--) {
		post_send(&a, &wr);
		if (!cq_expect(a.send_cq, 1, IBV_WC_SUCCESS))
			return false;
	}
	return true;
}

/*
 * The peer's kernel may be late with the window, and then it is not asked for
 * each request.
 */
static bool begins_to_execute(void)
{
	const uint64_t limit = deadline(), start = counter("direct_writes");

	while (counter("direct_writes") == start) {
		if (!check(now_ms() < limit, "the process executes nothing") ||
		    !requests(IBV_WR_RDMA_WRITE, 100, WORD))
			return false;
		sleep_ms(20);
	}
	return true;
}

int main(int argc, char **argv)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	bool ok;

	setup_open(&setup, &argc, argv, MEMORY_BYTES);
	mapped = !setup_is_remote(&setup) || argc == 2;
	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	if (micdv_set_path(a.qp, MICDV_PATH_DIRECT))
		bail("micdv_set_path fails");
	ok = !mapped || begins_to_execute();
	remember();
	ok = ok && requests(IBV_WR_RDMA_WRITE, WRITES, BYTES) &&
	     requests(IBV_WR_RDMA_READ, READS, BYTES) &&
	     requests(IBV_WR_ATOMIC_FETCH_AND_ADD, ATOMICS, WORD);
	tap_ok(ok && grew(), "what is executed is counted");
	pair_destroy(&a, &b);
	tap_ok(ok && grew(), "and stays so when the queue pair is gone");
	setup_close(&setup);
	return tap_end();
}
