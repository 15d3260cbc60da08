/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the parts of the responder have in common. All with &mic_resp.lock held.
 */
#ifndef MIC_RESPONDER_H
#define MIC_RESPONDER_H

#include "engine.h"

/* responder.c: answers, and the receive that some requests take */
enum mic_ack mic_resp_nak(struct mic_qp *qp, enum mic_ack ack);
enum mic_ack mic_resp_again(struct mic_qp *qp, struct mic_op *op);
enum mic_ack mic_resp_take(struct mic_qp *qp, struct mic_op *op);
void mic_resp_receive_done(struct mic_qp *qp, const struct mic_op *op,
			   u8 opcode);

/* onesided.c: WRITEs, READs and atomics */
enum mic_ack mic_resp_write(struct mic_qp *qp, struct mic_op *op);
enum mic_ack mic_resp_read(struct mic_qp *qp, struct mic_op *op);
enum mic_ack mic_resp_read_again(struct mic_qp *qp, struct mic_op *op);
enum mic_ack mic_resp_atomic(struct mic_qp *qp, struct mic_op *op);

/* duplicate.c: requests that come again */
bool mic_dup_is_one(const struct mic_qp *qp, const struct mic_op *op);
void mic_dup_note(struct mic_qp *qp, const struct mic_op *op);
bool mic_dup_prepare(struct mic_qp *qp, const struct mic_op *op);
void mic_dup_save(struct mic_qp *qp, const struct mic_op *op);
enum mic_ack mic_dup_result(struct mic_qp *qp, struct mic_op *op);

#endif /* MIC_RESPONDER_H */
