/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The counters of a device's port, in sysfs.
 */
#ifndef TESTS_COUNTER_H
#define TESTS_COUNTER_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"

/*
 * What hw_counters/@name says now. False if the device has no such counter: those of
 * other drivers have other names. What sysfs shows may be as old as ib_core remembers
 * it, 10 ms; counter_settle() waits for longer than that.
 */
bool counter_read(const struct device *dev, const char *name, uint64_t *value);

/* The same, or the test ends. */
uint64_t counter_now(const struct device *dev, const char *name);

void counter_settle(void);

#endif /* TESTS_COUNTER_H */
