/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Ethernet addresses that kernel consumers leave out.
 */
#ifndef MIC_RESOLVE_H
#define MIC_RESOLVE_H

struct mic_dev;
struct rdma_ah_attr;

void mic_resolve_dmac(const struct mic_dev *dev, struct rdma_ah_attr *attr);

#endif /* MIC_RESOLVE_H */
