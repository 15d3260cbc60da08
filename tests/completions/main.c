// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What completes, and in which order: signalled or not, fenced, on shared
 * queues, through rings that wrap many times.
 */
#include "completions.h"
#include "tap.h"

#define REGION_BYTES (1UL << 20)

static const struct {
	const char *name;
	bool (*run)(struct setup *setup);
} cases[] = {
	{ "signalled and unsignalled mixed, in order", case_mixed_signals },
	{ "a queue that signals all", case_signal_all },
	{ "fenced SEND after READ", case_fence_read },
	{ "fenced WRITE after fetch-and-add", case_fence_atomic },
	{ "SEND does not overtake WRITE", case_write_then_send },
	{ "READ sees WRITE", case_read_after_write },
	{ "many messages through 13 slots", case_stream_depth_13 },
	{ "many messages through 1024 slots", case_stream_depth_1024 },
	{ "many messages through 1 slot", case_stream_depth_1 },
	{ "lists of requests", case_lists },
	{ "a list that does not fit", case_overfull_list },
	{ "more receives than fit", case_overfull_receive_list },
	{ "16 queue pairs on one completion queue", case_shared_cq },
	{ "16 queue pairs add to one word", case_atomic_sum },
	{ "four threads with a queue pair each", case_threads },
	{ "three threads post to one queue pair", case_threads_one_qp },
	{ "both directions at once", case_both_directions },
	{ "a queue pair connected with itself", case_self },
};

int main(int argc, char **argv)
{
	struct setup setup;
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	for (i = 0; i < COUNT(cases); i++)
		tap_ok(cases[i].run(&setup), "%s", cases[i].name);
	setup_close(&setup);
	return tap_end();
}
