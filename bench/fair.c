// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What an 8-byte RDMA WRITE costs while another queue pair moves a mebibyte at
 * a time: alone; beside it, that is in another process on the other processor;
 * and behind it, that is posted by the same thread right after it. The engine
 * gives way after a budget of one mebibyte; what that takes is the first row.
 *
 * usage: bench-fair NAME DEVICE GID-INDEX PEER GID-INDEX
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ends.h"

enum {
	SMALL = 8,
	LARGE = 1 << 20,
	UNDER_WAY = 4,
	SAMPLES = 20000,
	SAMPLES_BEHIND = 2000,
	WARM_UP = 500,
	SMALL_ID = 1,
	LARGE_ID = 2,
};

static char **names;
static double samples[SAMPLES];

struct side {
	struct end local, remote;
	struct ibv_qp *small, *large, *peers[2];
};

static void open_side(struct side *side)
{
	open_end(&side->local, names[2], names[3], LARGE, 64);
	open_end(&side->remote, names[4], names[5], LARGE, 64);
	create_pair(&side->local, &side->remote, 16, &side->small,
		    &side->peers[0]);
	create_pair(&side->local, &side->remote, 16, &side->large,
		    &side->peers[1]);
}

/* Wait for a completion with @id; @others counts those without. */
static void await(const struct side *side, uint64_t id, int *others)
{
	struct ibv_wc wc;

	while (1) {
		if (!poll_writes(&side->local, &wc, 1))
			continue;
		if (wc.wr_id == id)
			return;
		++*others;
	}
}

/* Large messages without end, and a flag that says that they run. */
static void load(void *argument)
{
	atomic_int *running = argument;
	struct side side;
	struct ibv_wc wc[UNDER_WAY];
	int i, n = UNDER_WAY;

	pin(SERVER_CPU);
	open_side(&side);
	while (1) {
		for (i = 0; i < n; i++)
			post_write(side.large, &side.local, &side.remote, LARGE,
				   LARGE_ID);
		n = poll_writes(&side.local, wc, UNDER_WAY);
		if (n)
			atomic_fetch_add(running, n);
	}
}

static void report_samples(const char *test, size_t count)
{
	char name[64];
	double middle = median(samples, count);

	snprintf(name, sizeof(name), "%s_p50", test);
	report(name, names[1], SMALL, middle / 1000, "us");
	snprintf(name, sizeof(name), "%s_p99", test);
	report(name, names[1], SMALL, samples[count * 99 / 100] / 1000, "us");
}

static void measure_budget(struct side *side)
{
	int i, others = 0;

	for (i = 0; i < 200; i++) {
		uint64_t start = now_ns();

		post_write(side->large, &side->local, &side->remote, LARGE,
			   LARGE_ID);
		await(side, LARGE_ID, &others);
		samples[i] = now_ns() - start;
	}
	report("fair_budget", names[1], LARGE, median(samples, 200) / 1000,
	       "us");
}

static void measure_small(struct side *side, const char *test)
{
	int i, others = 0;

	for (i = -WARM_UP; i < SAMPLES; i++) {
		uint64_t start = now_ns();

		post_write(side->small, &side->local, &side->remote, SMALL,
			   SMALL_ID);
		await(side, SMALL_ID, &others);
		if (i >= 0)
			samples[i] = now_ns() - start;
	}
	report_samples(test, SAMPLES);
}

static void measure_behind(struct side *side)
{
	int i, done;

	for (i = 0; i < SAMPLES_BEHIND; i++) {
		uint64_t start = now_ns();

		done = 0;
		post_write(side->large, &side->local, &side->remote, LARGE,
			   LARGE_ID);
		post_write(side->small, &side->local, &side->remote, SMALL,
			   SMALL_ID);
		await(side, SMALL_ID, &done);
		samples[i] = now_ns() - start;
		if (!done)
			await(side, LARGE_ID, &done);
	}
	report_samples("fair_behind", SAMPLES_BEHIND);
}

int main(int argc, char **argv)
{
	atomic_int *running = shared_memory(sizeof(*running));
	struct side side;

	if (argc != 6) {
		fprintf(stderr,
			"usage: bench-fair NAME DEVICE GID-INDEX PEER GID-INDEX\n");
		return 2;
	}
	names = argv;
	pin(CLIENT_CPU);
	open_side(&side);
	measure_budget(&side);
	measure_small(&side, "fair_alone");
	measure_behind(&side);
	/* it opens the devices for itself, and ends with this process */
	start_side(load, running);
	while (!atomic_load(running))
		usleep(1000);
	measure_small(&side, "fair_beside");
	return 0;
}
