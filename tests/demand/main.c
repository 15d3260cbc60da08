// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * On-demand paging: regions whose pages are looked up when they are copied,
 * which may be slow to come, not there, or gone with their owner.
 */
#include <stdlib.h>

#include "demand.h"
#include "event.h"
#include "proxy.h"
#include "tap.h"

static const struct {
	bool (*run)(struct stage *stage);
	const char *name;
	/* the peer's process or its library has a part in it (proxy.h) */
	bool one_machine;
} cases[] = {
	{ demand_advertised, "what is advertised", false },
	{ demand_explicit, "memory that comes and goes", false },
	{ demand_implicit, "the whole address space", false },
	{ demand_unmapped, "memory that is not there", false },
	{ demand_beyond_end, "what files do not have, for two at once", true },
	{ demand_unpinnable, "memory that nobody may pin", true },
	{ demand_read_only, "memory that can only be read", false },
	{ demand_withheld, "a page that nobody provides", false },
	{ demand_let_go, "pages that nobody withholds any more", true },
	{ demand_huge, "huge pages that come and go", true },
	{ demand_huge_let_go, "huge pages that nobody withholds any more",
	  true },
	{ demand_advice, "brought in beforehand", true },
	{ demand_bad_advice, "advice that makes no sense", true },
	{ demand_prefetched, "all of it, while nobody waits", true },
	{ demand_lost, "a message on UC arrives whole or not at all", true },
	{ demand_waiting, "a page in the middle of a message, late or never",
	  false },
	{ demand_killed, "who writes is killed: the memory is still good",
	  false },
	{ demand_orphaned, "the owner becomes another program", true },
	{ demand_refused, "no windows, and not registered again", true },
};

static bool run_case(struct setup *setup, unsigned int i)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct stage stage = { .setup = setup };
	bool ok;

	pair_create(&stage.a, &setup->a_dev, &stage.b, &setup->b_dev, &options);
	ok = cases[i].run(&stage);
	pair_destroy(&stage.a, &stage.b);
	return ok;
}

int main(int argc, char **argv)
{
	struct neighbours neighbours;
	struct setup setup;
	unsigned int i;

	processes_start();
	setup_open(&setup, &argc, argv, LONG_BYTES);
	events_prepare(setup.b_dev.ctx);
	neighbours_open(&neighbours, &setup);
	for (i = 0; i < COUNT(cases); i++) {
		/* in the full set only */
		if (cases[i].run == demand_lost && !getenv("MIC_TEST_FULL"))
			continue;
		if (cases[i].one_machine && proxy_is_name(setup.b_dev.name))
			continue;
		tap_ok(run_case(&setup, i) && neighbours_work(&neighbours),
		       "%s", cases[i].name);
	}
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
