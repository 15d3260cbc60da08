/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MIC_REPLY_H
#define MIC_REPLY_H

struct mic_op;
struct mic_qp;

void mic_reply_expect(struct mic_qp *qp, struct mic_op *op);
void mic_reply_note(struct mic_qp *qp);
void mic_reply_forget(struct mic_qp *qp);

#endif /* MIC_REPLY_H */
