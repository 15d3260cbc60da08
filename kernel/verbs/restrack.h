/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What "rdma resource show" tells beside what ib_core knows by itself.
 */
#ifndef MIC_RESTRACK_H
#define MIC_RESTRACK_H

#include <rdma/ib_verbs.h>

struct mic_mkey;
struct mic_qp;
struct sk_buff;

/**
 * enum mic_mkey_kind - what is behind a memory key
 * @MIC_MKEY_USER: region of pinned user memory
 * @MIC_MKEY_FAST: fast registration
 * @MIC_MKEY_OTHER: any other region: a dma-buf, device memory, all of the
 *	kernel's
 * @MIC_MKEY_WINDOW: memory window
 * @MIC_MKEY_KINDS: how many kinds there are
 */
enum mic_mkey_kind {
	MIC_MKEY_USER,
	MIC_MKEY_FAST,
	MIC_MKEY_OTHER,
	MIC_MKEY_WINDOW,
	MIC_MKEY_KINDS
};

extern const char *const mic_mkey_kind_name[MIC_MKEY_KINDS];

enum mic_mkey_kind mic_mkey_kind(const struct mic_mkey *mkey);
const char *mic_req_activity(const struct mic_qp *qp);

int mic_fill_res_cq(struct sk_buff *msg, struct ib_cq *ibcq);
int mic_fill_res_mr(struct sk_buff *msg, struct ib_mr *ibmr);
int mic_fill_res_qp(struct sk_buff *msg, struct ib_qp *ibqp);
int mic_fill_res_srq(struct sk_buff *msg, struct ib_srq *ibsrq);

#endif /* MIC_RESTRACK_H */
