/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the parts of states share.
 */
#ifndef TESTS_STATES_H
#define TESTS_STATES_H

#include <stdbool.h>

#include "setup.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct pair {
	struct setup *setup;
	struct endpoint a;
	struct endpoint b;
};

/* Is the queue pair in this state? With a remark, if it is not. */
bool expect_state(const struct endpoint *ep, enum ibv_qp_state state);

/* states_kernel.c: asked without libmic, which refuses things before */
bool kernel_refuses_attributes(struct pair *pair);

#endif /* TESTS_STATES_H */
