// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Runs the numbered cases between two nodes.
 * usage: scif_behaviour NODES OWN PEER [NUMBER...]
 *   NODES  as in SCIF_NODES
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "behaviour.h"
#include "peer.h"
#include "tap.h"

static bool is_wanted(int number, int argc, char **argv)
{
	int i;

	for (i = 4; i < argc; i++)
		if (atoi(argv[i]) == number)
			return true;
	return argc <= 4;
}

static void run_all(const struct behaviour *cases, int argc, char **argv)
{
	for (; cases->name; cases++)
		if (is_wanted(cases->number, argc, argv))
			tap_ok(cases->run(), "%02d %s", cases->number,
			       cases->name);
}

/* @dm: device memory, or one's own node, is enough. */
static void run_if_mapped(const struct behaviour *cases, int argc, char **argv,
			  bool dm)
{
	if (getenv("SCIF_TEST_MAPS") || (dm && getenv("SCIF_TEST_MAPS_DM"))) {
		run_all(cases, argc, argv);
		return;
	}
	for (; cases->name; cases++)
		if (is_wanted(cases->number, argc, argv))
			tap_skip("the device maps nothing", "%02d %s",
				 cases->number, cases->name);
}

int main(int argc, char **argv)
{
	if (argc < 4)
		bail("usage: %s NODES OWN PEER [NUMBER...]", argv[0]);
	setenv("SCIF_NODES", argv[1], 1);
	setenv("SCIF_NODE", argv[2], 1);
	own_node = atoi(argv[2]);
	peer_node = atoi(argv[3]);
	peer_start();
	run_all(connection_cases, argc, argv);
	run_all(port_cases, argc, argv);
	run_all(accept_cases, argc, argv);
	run_all(waiting_cases, argc, argv);
	run_all(oneself_cases, argc, argv);
	run_if_mapped(mapped_oneself_cases, argc, argv, false);
	run_all(message_cases, argc, argv);
	run_all(hot_cases, argc, argv);
	run_if_mapped(mapped_hot_cases, argc, argv, true);
	run_all(readiness_cases, argc, argv);
	run_all(number_cases, argc, argv);
	run_all(window_cases, argc, argv);
	run_all(copy_cases, argc, argv);
	run_all(order_cases, argc, argv);
	run_all(unwatched_cases, argc, argv);
	run_if_mapped(watched_cases, argc, argv, false);
	run_if_mapped(handed_cases, argc, argv, false);
	run_all(mapping_cases, argc, argv);
	run_if_mapped(mapped_cases, argc, argv, false);
	run_if_mapped(unmapping_cases, argc, argv, false);
	run_all(fence_cases, argc, argv);
	run_all(lifetime_cases, argc, argv);
	run_all(closing_cases, argc, argv);
	run_all(under_way_cases, argc, argv);
	run_if_mapped(own_under_way_cases, argc, argv, false);
	run_if_mapped(holding_cases, argc, argv, false);
	run_if_mapped(credential_cases, argc, argv, false);
	run_all(device_cases, argc, argv);
	run_if_mapped(mapped_device_cases, argc, argv, true);
	peer_end();
	return tap_end();
}
