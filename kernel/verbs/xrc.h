/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * XRC: a target QP that serves the SRQs of many processes.
 */
#ifndef MIC_XRC_H
#define MIC_XRC_H

#include <rdma/ib_verbs.h>

struct mic_qp;
struct mic_srq;

struct mic_xrcd {
	struct ib_xrcd ibxrcd;
};

int mic_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);
int mic_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);

int mic_xrc_srq_number(struct mic_srq *srq);
void mic_xrc_srq_publish(struct mic_srq *srq);
void mic_xrc_srq_unnumber(struct mic_srq *srq);
void mic_xrc_srq_hide(struct mic_srq *srq);
bool mic_xrc_enter(struct mic_qp *qp, u32 srqn);
void mic_xrc_leave(struct mic_qp *qp);

#endif /* MIC_XRC_H */
