/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the parts of queues share.
 */
#ifndef TESTS_QUEUES_H
#define TESTS_QUEUES_H

#include "setup.h"

/* queues_forgotten.c: completions of queue pairs that are destroyed or reset */
void run_forgotten(struct setup *setup);
/* queues_moved.c: resized queues whose new memory can't be mapped, or is larger */
void run_moved(struct setup *setup);

#endif /* TESTS_QUEUES_H */
