// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Many queue pairs, all of them busy: a process on each of two processors
 * keeps its half of them going with 8-byte RDMA WRITEs. Prints the rate, in
 * millions a second, of one process alone with all of them, then of both.
 *
 * usage: bench-busy NAME DEVICE GID-INDEX PEER GID-INDEX QPS MILLISECONDS
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ends.h"

enum { SMALL = 8, DEPTH = 16, AT_ONCE = 32, MOST = 1024 };

static char **names;
static uint64_t duration;

struct share {
	int cpu;
	int qps;
	atomic_int *ready; /* how many are, and when it is negative: go */
	atomic_ullong *writes;
};

static void run(const struct share *share, struct end *local,
		struct end *remote, struct ibv_qp **qp)
{
	uint64_t end, done = 0;
	struct ibv_wc wc[AT_ONCE];
	int i, n, k;

	atomic_fetch_add(share->ready, 1);
	while (atomic_load(share->ready) >= 0)
		;
	end = now_ns() + duration;
	for (k = 0; k < DEPTH / 2; k++)
		for (i = 0; i < share->qps; i++)
			post_write(qp[i], local, remote, SMALL, i);
	while (now_ns() < end) {
		n = poll_writes(local, wc, AT_ONCE);
		for (i = 0; i < n; i++)
			post_write(qp[wc[i].wr_id], local, remote, SMALL,
				   wc[i].wr_id);
		done += n;
	}
	atomic_fetch_add(share->writes, done);
}

static void side(void *argument)
{
	const struct share *share = argument;
	struct ibv_qp *qp[MOST], *peer;
	struct end local, remote;
	int i;

	pin(share->cpu);
	open_end(&local, names[2], names[3], PAGE, MOST * DEPTH);
	open_end(&remote, names[4], names[5], PAGE, 1);
	for (i = 0; i < share->qps; i++)
		create_pair(&local, &remote, DEPTH, &qp[i], &peer);
	run(share, &local, &remote, qp);
}

/* Millions of writes a second by @processes that share @qps. */
static double measure(int processes, int qps)
{
	atomic_int *ready = shared_memory(sizeof(*ready));
	atomic_ullong *writes = shared_memory(sizeof(*writes));
	struct share share[2];
	pid_t pids[2];
	int i;

	for (i = 0; i < processes; i++) {
		share[i] = (struct share){ i, qps / processes, ready, writes };
		pids[i] = start_side(side, &share[i]);
	}
	while (atomic_load(ready) < processes)
		usleep(1000);
	atomic_store(ready, -1000);
	for (i = 0; i < processes; i++)
		join_side(pids[i]);
	return atomic_load(writes) * 1000.0 / duration;
}

int main(int argc, char **argv)
{
	int qps = argc == 8 ? atoi(argv[6]) : 0;

	if (qps < 2 || qps > MOST) {
		fprintf(stderr,
			"usage: bench-busy NAME DEVICE GID-INDEX PEER GID-INDEX QPS MILLISECONDS\n");
		return 2;
	}
	names = argv;
	duration = atoi(argv[7]) * NSEC_PER_MSEC;
	report("busy_one", names[1], qps, measure(1, qps), "Mmsg/s");
	report("busy_two", names[1], qps, measure(2, qps), "Mmsg/s");
	return 0;
}
