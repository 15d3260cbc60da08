// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Kernel memory of a queue pair that does nothing: as it is made, and connected after a
 * message in each direction. Pairs of them share a completion queue on each device.
 */
#include <stdlib.h>

#include "idle_memory.h"
#include "measure.h"
#include "tap.h"
#include "work.h"

enum { PAIRS = 1000, FIRST_PAIRS = 50, IDLE_BYTES = 8192 };

struct pair {
	struct endpoint a;
	struct endpoint b;
};

struct crowd {
	struct setup *setup;
	struct endpoint_options a_options;
	struct endpoint_options b_options;
	struct pair pair[PAIRS];
};

/* What isn't in the queues' own pages, which are no slab. */
static long kernel_kb(void)
{
	return meminfo_kb("Slab") + meminfo_kb("PageTables") +
	       meminfo_kb("KernelStack") + meminfo_kb("Percpu");
}

static struct endpoint_options options_of(struct device *dev, uint32_t sges)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	options.sges = sges;
	options.send_cq = ibv_create_cq(dev->ctx, 16, NULL, NULL, 0);
	options.recv_cq = options.send_cq;
	tap_must(options.send_cq, "no completion queue");
	return options;
}

static void make(struct crowd *crowd, unsigned int from, unsigned int to)
{
	struct pair *pair;

	for (pair = crowd->pair + from; pair < crowd->pair + to; pair++) {
		endpoint_create(&pair->a, &crowd->setup->a_dev,
				&crowd->a_options);
		endpoint_create(&pair->b, &crowd->setup->b_dev,
				&crowd->b_options);
	}
}

static bool use(struct crowd *crowd, unsigned int from, unsigned int to)
{
	struct pair *pair;

	for (pair = crowd->pair + from; pair < crowd->pair + to; pair++) {
		pair_connect(&pair->a, &pair->b);
		if (!exchange_empty(&pair->a, &pair->b, 1) ||
		    !exchange_empty(&pair->b, &pair->a, 2))
			return false;
	}
	return true;
}

static bool is_small(const struct crowd *crowd, const char *when, long kb)
{
	long bytes = kb * 1024 / (2 * (PAIRS - FIRST_PAIRS));

	tap_note(
		"%ld bytes of kernel memory for an RC queue pair of %u requests of %u SGEs each way %s, beside its queues",
		bytes, crowd->a_options.depth, crowd->a_options.sges, when);
	return check(bytes > 0 && bytes <= IDLE_BYTES, "%s: %ld bytes", when,
		     bytes);
}

/* The first ones fill what was left over in slabs. */
static bool crowd_is_small(struct crowd *crowd)
{
	long before;
	bool ok;

	make(crowd, 0, FIRST_PAIRS);
	tap_must(use(crowd, 0, FIRST_PAIRS), "no traffic");
	before = kernel_kb();
	make(crowd, FIRST_PAIRS, PAIRS);
	ok = is_small(crowd, "as it is made", kernel_kb() - before);
	return use(crowd, FIRST_PAIRS, PAIRS) &&
	       is_small(crowd, "after traffic", kernel_kb() - before) && ok;
}

bool idle_memory_is_small(struct setup *setup, uint32_t sges)
{
	struct crowd *crowd = calloc(1, sizeof(*crowd));
	unsigned int i;
	bool ok;

	tap_must(crowd, "no memory");
	crowd->setup = setup;
	crowd->a_options = options_of(&setup->a_dev, sges);
	crowd->b_options = options_of(&setup->b_dev, sges);
	ok = crowd_is_small(crowd);
	for (i = 0; i < PAIRS; i++)
		pair_destroy(&crowd->pair[i].a, &crowd->pair[i].b);
	tap_must(!ibv_destroy_cq(crowd->a_options.send_cq) &&
			 !ibv_destroy_cq(crowd->b_options.send_cq),
		 "ibv_destroy_cq fails");
	free(crowd);
	return ok;
}
