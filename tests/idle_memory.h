/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Kernel memory of a queue pair that does nothing.
 */
#ifndef TESTS_IDLE_MEMORY_H
#define TESTS_IDLE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "setup.h"

/*
 * Are at most 8 KiB beside its queues kept for an RC queue pair of @sges SGEs in each
 * direction: when it is made, and when it is connected and has sent and received?
 */
bool idle_memory_is_small(struct setup *setup, uint32_t sges);

#endif /* TESTS_IDLE_MEMORY_H */
