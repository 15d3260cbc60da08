/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Protection domains. They hold no state: the engine compares pointers.
 */
#ifndef MIC_PD_H
#define MIC_PD_H

#include <rdma/ib_verbs.h>

struct mic_pd {
	struct ib_pd ibpd;
};

int mic_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int mic_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);

#endif /* MIC_PD_H */
