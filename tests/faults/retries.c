// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * How often a request was repeated before it was given up, as the port counts it.
 */
#include <inttypes.h>
#include <stdio.h>

#include "clock.h"
#include "faults.h"
#include "proxy.h"
#include "tap.h"

/* What sysfs shows is as old as this, at most. */
enum { AGE_MS = 20 };

/* Other devices than mic have other counters: then 0, and false. */
static bool read_counter(const struct device *dev, const char *name,
			 uint64_t *value)
{
	char path[256];
	FILE *file;
	bool ok;

	*value = 0;
	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/%s/ports/1/hw_counters/%s", dev->name,
		 name);
	file = fopen(path, "re");
	if (!file)
		return false;
	ok = fscanf(file, "%" SCNu64, value) == 1;
	fclose(file);
	return ok;
}

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
	sleep_ms(AGE_MS);
	scene->counted = read_counter(dev, "rnr_retries",
				      &scene->rnr_retries) &&
			 read_counter(dev, "retries", &scene->retries);
}

static bool grew(const struct scene *scene, const char *name, uint64_t before,
		 uint64_t expected)
{
	uint64_t after;

	return read_counter(&scene->setup->a_dev, name, &after) &&
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
	sleep_ms(AGE_MS);
	return grew(scene, "rnr_retries", scene->rnr_retries,
		    not_ready ? options->rnr_retry : 0) &&
	       grew(scene, "retries", scene->retries,
		    not_ready ? 0 : options->retry_count);
}
