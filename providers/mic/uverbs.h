/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Methods of the uverbs interface that carry attributes of this driver and
 * that libibverbs has no function for.
 */
#ifndef MIC_UVERBS_H
#define MIC_UVERBS_H

#include "mic.h"

int mic_uverbs_query_context(struct verbs_context *vctx, int *doorbell_fd);

#endif /* MIC_UVERBS_H */
