/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Multicast groups.
 */
#ifndef MIC_MCAST_H
#define MIC_MCAST_H

#include <rdma/ib_verbs.h>

#include <mic/op.h>

struct mic_dev;
struct mic_qp;

int mic_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int mic_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
void mic_mcast_deliver(struct mic_dev *dev, struct mic_op *op,
		       enum mic_ack (*deliver)(struct mic_qp *qp,
					       struct mic_op *op));

#endif /* MIC_MCAST_H */
