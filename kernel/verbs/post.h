/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Posting by kernel consumers.
 */
#ifndef MIC_POST_H
#define MIC_POST_H

#include <linux/align.h>
#include <rdma/ib_verbs.h>

#include "ring.h"

/* Bytes an element of a receive queue takes. */
static inline u32 mic_recv_stride(u32 max_sge)
{
	return sizeof(struct mic_recv_wqe) + max_sge * sizeof(struct mic_sge);
}

int mic_recv_put(struct mic_ring *ring, u32 max_sge,
		 const struct ib_recv_wr *wr);

#endif /* MIC_POST_H */
