/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the receiver of a datagram learns of its sender.
 */
#ifndef MIC_GRH_H
#define MIC_GRH_H

#include <linux/types.h>

struct mic_cqe;
struct mic_op;
struct mic_sgl;

#define MIC_GRH_BYTES	40	/* in front of every datagram, IBA 11.4.1.2 */

void mic_grh_write(const struct mic_sgl *dst, const struct mic_op *op);
void mic_grh_cqe(struct mic_cqe *cqe, const struct mic_op *op);

#endif /* MIC_GRH_H */
