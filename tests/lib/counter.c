// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "clock.h"
#include "counter.h"
#include "tap.h"

/* Longer than sysfs remembers them. */
enum { AGE_MS = 20 };

bool counter_read(const struct device *dev, const char *name, uint64_t *value)
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

uint64_t counter_now(const struct device *dev, const char *name)
{
	uint64_t value;

	if (!counter_read(dev, name, &value))
		bail("%s has no counter %s", dev->name, name);
	return value;
}

/* As the kernel's ticks have it, which may be late on a busy host. */
static uint64_t ticks_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void counter_settle(void)
{
	uint64_t end = ticks_ms() + AGE_MS;

	do
		sleep_ms(AGE_MS);
	while (ticks_ms() < end);
}
