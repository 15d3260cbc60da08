/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Binding memory windows.
 */
#ifndef TESTS_BIND_H
#define TESTS_BIND_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "endpoint.h"
#include "memory.h"

enum { BIND_ID = 50 };

struct ibv_mw_bind_info bind_info(const struct region *memory, size_t offset,
				  size_t length, unsigned int access);

/* Type 1, on @ep; without @info it is unbound. */
bool bind_type1(struct endpoint *ep, struct ibv_mw *mw,
		const struct ibv_mw_bind_info *info);

/* Type 2, with a key of the caller's: it completes with @status. */
bool bind_type2(struct endpoint *ep, struct ibv_mw *mw, uint32_t rkey,
		const struct ibv_mw_bind_info *info, enum ibv_wc_status status);

#endif /* TESTS_BIND_H */
