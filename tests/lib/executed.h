/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Who executes requests: for programs that link with libmic.
 */
#ifndef TESTS_EXECUTED_H
#define TESTS_EXECUTED_H

#include <stdint.h>
#include <infiniband/micdv.h>

#include "endpoint.h"
#include "tap.h"

/* How many requests of @ep this process has executed itself. */
static inline uint64_t executed_here(const struct endpoint *ep)
{
	struct micdv_qp_attr attr = { .comp_mask = 0 };

	tap_must(!micdv_query_qp(ep->qp, &attr), "micdv_query_qp fails");
	return attr.direct;
}

#endif /* TESTS_EXECUTED_H */
