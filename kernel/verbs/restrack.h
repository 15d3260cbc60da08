/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What "rdma resource show" tells beside what ib_core knows by itself.
 */
#ifndef MIC_RESTRACK_H
#define MIC_RESTRACK_H

#include <rdma/ib_verbs.h>

#include "mr.h"

struct mic_qp;
struct sk_buff;

extern const char *const mic_mkey_kind_name[MIC_MKEY_KINDS];

enum mic_mkey_kind mic_mkey_kind(const struct mic_mkey *mkey);
const char *mic_req_activity(const struct mic_qp *qp);

int mic_fill_res_cq(struct sk_buff *msg, struct ib_cq *ibcq);
int mic_fill_res_mr(struct sk_buff *msg, struct ib_mr *ibmr);
int mic_fill_res_qp(struct sk_buff *msg, struct ib_qp *ibqp);
int mic_fill_res_srq(struct sk_buff *msg, struct ib_srq *ibsrq);

#endif /* MIC_RESTRACK_H */
