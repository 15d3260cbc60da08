// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * How often a request was repeated before it was given up, as the port counts it.
 */
#include <inttypes.h>

#include "counter.h"
#include "faults.h"
#include "proxy.h"
#include "tap.h"

/* Only here, and only where somebody gives up. */
static bool is_counted(const struct scene *scene, const struct fault *fault)
{
	enum ibv_wc_status status =
		fault_outcome(fault, scene->service)->status;

	return !proxy_is_name(scene->setup->a_dev.name) &&
	       (status == IBV_WC_RNR_RETRY_EXC_ERR ||
		status == IBV_WC_RETRY_EXC_ERR);
}

void retries_begin(struct scene *scene, const struct fault *fault)
{
	const struct device *dev = &scene->setup->a_dev;

	if (!is_counted(scene, fault))
		return;
	counter_settle();
	/* those of other devices have other names */
	scene->counted = counter_read(dev, "rnr_retries",
				      &scene->rnr_retries) &&
			 counter_read(dev, "retries", &scene->retries);
}

static bool grew(const struct scene *scene, const char *name, uint64_t before,
		 uint64_t expected)
{
	uint64_t after;

	return counter_read(&scene->setup->a_dev, name, &after) &&
	       check(after - before == expected,
		     "%s grows by %" PRIu64 ", expected %" PRIu64, name,
		     after - before, expected);
}

bool retries_end(const struct scene *scene, const struct fault *fault)
{
	const struct endpoint_options *options = &scene->a.options;
	bool not_ready = fault_outcome(fault, scene->service)->status ==
			 IBV_WC_RNR_RETRY_EXC_ERR;

	if (!scene->counted)
		return true;
	counter_settle();
	return grew(scene, "rnr_retries", scene->rnr_retries,
		    not_ready ? options->rnr_retry : 0) &&
	       grew(scene, "retries", scene->retries,
		    not_ready ? 0 : options->retry_count);
}
