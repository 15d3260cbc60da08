/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Methods of the uverbs interface that carry attributes of this driver and
 * that libibverbs has no function for.
 */
#ifndef MIC_UVERBS_H
#define MIC_UVERBS_H

#include "mic.h"

int mic_uverbs_query_context(struct verbs_context *vctx, int *doorbell_fd);
int mic_uverbs_alloc_dm(struct ibv_context *context,
			const struct ibv_alloc_dm_attr *attr, uint32_t *handle,
			struct mic_mmap_info *map);
int mic_uverbs_query_dm(struct ibv_context *context, uint32_t handle,
			struct mic_dm_query_resp *resp);

#endif /* MIC_UVERBS_H */
