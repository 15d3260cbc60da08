// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * IBA's counters of a port: how much they have to grow by some operations.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "observe.h"
#include "tap.h"
#include "text.h"

/* A file of ports/1/counters. */
static uint64_t port_counter(const struct device *dev, const char *name)
{
	char path[256], *text;
	uint64_t value;

	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/%s/ports/1/counters/%s", dev->name,
		 name);
	text = text_of_file(path);
	if (!text)
		bail("%s: %s", path, strerror(errno));
	value = strtoull(text, NULL, 10);
	free(text);
	return value;
}

static const char *const traffic_names[] = {
	"port_xmit_data",
	"port_rcv_data",
	"port_xmit_packets",
	"port_rcv_packets",
};

enum { TRAFFIC = COUNT(traffic_names) };

static void read_traffic(const struct device *dev, uint64_t *values)
{
	int i;

	for (i = 0; i < TRAFFIC; i++)
		values[i] = port_counter(dev, traffic_names[i]);
}

/* It may take a moment, as with the others. */
static bool traffic_grows(const struct device *dev, const uint64_t *before,
			  const uint64_t *by)
{
	uint64_t end = deadline(), after[TRAFFIC];
	int i;

	do {
		read_traffic(dev, after);
		for (i = 0; i < TRAFFIC; i++)
			if (after[i] - before[i] != by[i])
				break;
		if (i == TRAFFIC)
			return true;
		sleep_ms(10);
	} while (now_ms() < end && after[i] - before[i] < by[i]);
	return check(false, "%s: %s grows by %" PRIu64 ", expected %" PRIu64,
		     dev->name, traffic_names[i], after[i] - before[i], by[i]);
}

/*
 * IBA's counters, of words and messages: 5 SENDs of 64 bytes, 3 WRITEs of 1000, 4
 * READs of 300 and 2 atomics.
 */
static bool port_counters_grow(struct setup *setup)
{
	const uint64_t a_by[] = { 80 + 750 + 4, 300 + 4, 14, 6 };
	const uint64_t b_by[] = { 0, 80, 0, 5 };
	struct endpoint_options options = impatient_options();
	uint64_t a[TRAFFIC], b[TRAFFIC];
	bool ok;

	read_traffic(&setup->a_dev, a);
	read_traffic(&setup->b_dev, b);
	pair_create(&setup->a, &setup->a_dev, &setup->b, &setup->b_dev,
		    &options);
	ok = exchange(setup, IBV_WR_SEND, 64, 5) &&
	     exchange(setup, IBV_WR_RDMA_WRITE, 1000, 3) &&
	     exchange(setup, IBV_WR_RDMA_READ, 300, 4) &&
	     exchange(setup, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 2) &&
	     traffic_grows(&setup->a_dev, a, a_by) &&
	     traffic_grows(&setup->b_dev, b, b_by);
	pair_destroy(&setup->a, &setup->b);
	return ok;
}

/* There is no wire that could fail. */
static bool port_has_no_errors(const struct device *dev)
{
	static const char *const names[] = {
		"symbol_error",	      "link_downed",  "port_rcv_errors",
		"port_xmit_discards", "VL15_dropped",
	};
	unsigned int i;

	for (i = 0; i < COUNT(names); i++)
		if (!check(!port_counter(dev, names[i]), "%s is not 0",
			   names[i]))
			return false;
	return true;
}

void test_port(struct setup *setup)
{
	tap_ok(port_counters_grow(setup) && port_has_no_errors(&setup->a_dev) &&
		       port_has_no_errors(&setup->b_dev),
	       "counters: those of the port that IBA has");
}
