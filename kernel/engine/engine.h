/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The engine: takes requests from send queues and carries them out.
 *
 * Lock order: mic_qp.modify_lock, then mic_req.lock of the sender, then
 * mic_resp.lock of the receiver, then the locks of SRQs, then those of CQs. A
 * responder never takes a requester's lock, so two QPs that send to each other
 * can't wait for each other.
 */
#ifndef MIC_ENGINE_H
#define MIC_ENGINE_H

#include <linux/kernel.h>
#include <linux/nospec.h>
#include <linux/sizes.h>

#include <mic/op.h>

#include "../verbs/qp.h"

struct mic_dev;

enum mic_engine_limits {
	/* what one run does before it gives way to others */
	MIC_BUDGET_WQES = 64,
	MIC_BUDGET_BYTES = SZ_1M,
};

/* What a run may still do. */
struct mic_budget {
	s32 wqes;
	s64 bytes;
};

static inline bool mic_budget_left(const struct mic_budget *budget)
{
	return budget->wqes > 0 && budget->bytes > 0;
}

/* How a run of a send queue ended. */
enum mic_run {
	MIC_RUN_IDLE,		/* nothing to do until someone kicks */
	MIC_RUN_WAIT,		/* the timer or an answer will kick */
	MIC_RUN_MORE,		/* the budget is used up */
};

/* run.c: who runs a queue, and when */
void mic_qp_kick(struct mic_qp *qp);
void mic_qp_kick_deferred(struct mic_qp *qp);
void mic_qp_work(struct work_struct *work);
void mic_qp_lock(struct mic_qp *qp);
void mic_qp_unlock(struct mic_qp *qp, bool now);
void mic_qp_news(struct mic_qp *qp);
enum hrtimer_restart mic_req_timeout(struct hrtimer *timer);

/* requester.c: the send queue */
enum mic_run mic_req_run(struct mic_qp *qp, struct mic_budget *budget);
void mic_req_complete(struct mic_qp *qp, enum ib_wc_status status);
void mic_req_tell(struct mic_qp *qp, const struct mic_send_wqe *wqe,
		  u32 length, enum ib_wc_status status);
void mic_req_answer(struct mic_qp *qp, enum mic_ack ack,
		    struct mic_budget *budget);
void mic_req_fail(struct mic_qp *qp, enum ib_wc_status status);

/* pending.c: answers that come later */
enum mic_ack mic_req_submit_to(struct mic_qp *qp, struct mic_node *node);
void mic_req_cancel(struct mic_qp *qp);
void mic_req_forget_node(struct mic_qp *qp);

/* The flag, after what it stands for, and whoever waits for it. */
static inline void mic_answer(bool *answered)
{
	/* the answer before the flag, pairs with who acquires it */
	smp_store_release(answered, true);
	smp_mb();	/* before the look at who waits, which has no barrier */
	wake_up_var(answered);
}

static inline bool mic_req_has_answer(const struct mic_req *req)
{
	/* the flag before the answer */
	return smp_load_acquire(&req->answered);
}

/* window.c: several segments on their way at once */
bool mic_window_admits(const struct mic_qp *qp);
bool mic_window_is_open(const struct mic_qp *qp);
bool mic_window_submit(struct mic_qp *qp, struct mic_node *node);
bool mic_window_reap(struct mic_qp *qp, struct mic_budget *budget);
void mic_window_cancel(struct mic_qp *qp);
void mic_window_idle(struct mic_qp *qp);
void mic_window_destroy(struct mic_qp *qp);

/* request.c: a request, from its queue element to an operation */
enum mic_kind {
	MIC_KIND_SEND,
	MIC_KIND_RDMA,
	MIC_KIND_ATOMIC,
	MIC_KIND_LOCAL,
};

/**
 * struct mic_opcode - what a work request asks for
 * @types: QP types that have it, a bit for each enum ib_qp_type
 * @kind: which part of the queue element holds its parameters
 * @op: enum mic_op_code
 * @op_flags: enum mic_op_flags, given with the last segment
 * @wc: enum mic_wc_opcode
 * @length: bytes the message must have, 0 if any will do
 * @counter: counts it
 * @local_access: rights needed on the local memory
 */
struct mic_opcode {
	u32 types;
	enum mic_kind kind;
	u8 op;
	u8 op_flags;
	u8 wc;
	u8 length;
	u8 counter;
	int local_access;
};

extern const struct mic_opcode mic_opcodes[MIC_WR_REG_MR + 1];

/**
 * mic_opcode - what a work request opcode means on a QP
 * @qp: queue pair
 * @wr_opcode: enum mic_wr_opcode, unchecked
 *
 * Return: its description, NULL if the QP's type does not have it.
 */
static inline const struct mic_opcode *mic_opcode(const struct mic_qp *qp,
						  u8 wr_opcode)
{
	const struct mic_opcode *oc;

	if (wr_opcode >= ARRAY_SIZE(mic_opcodes))
		return NULL;
	oc = &mic_opcodes[array_index_nospec(wr_opcode,
					     ARRAY_SIZE(mic_opcodes))];
	return oc->types & BIT(qp->type) ? oc : NULL;
}

enum ib_wc_status mic_req_start(struct mic_qp *qp);

/* local.c: requests that change a key of one's own */
enum ib_wc_status mic_req_local(struct mic_qp *qp);
bool mic_invalidate(struct mic_qp *qp, u32 key);
void mic_invalidate_ahead(struct mic_qp *qp, const struct mic_op *op);

/* responder.c: the other side of a request */
enum mic_ack mic_resp_submit(struct mic_node *node, struct mic_op *op);
bool mic_resp_is_peer(struct mic_qp *qp, const struct mic_node *node);

/* duplicate.c: requests that come again */
void mic_dup_forget(struct mic_qp *qp);

/* receive.c: the receive queue as the responder uses it */
void mic_recv_copy(const struct mic_ring *ring, struct mic_sges *sges,
		   u64 *wr_id);
enum mic_ack mic_recv_take(struct mic_qp *qp);
void mic_recv_complete(struct mic_qp *qp, struct mic_cqe *cqe,
		       bool solicited);

/* flush.c: queues in error */
void mic_qp_enter_error(struct mic_qp *qp);
void mic_qp_error(struct mic_qp *qp);
enum mic_run mic_req_flush(struct mic_qp *qp, struct mic_budget *budget);
enum mic_run mic_resp_flush(struct mic_qp *qp, struct mic_budget *budget);

/* sges.c: scatter/gather lists */
int mic_sges_init(struct mic_sges *sges, u32 max, gfp_t gfp);
void mic_sges_destroy(struct mic_sges *sges);
enum ib_wc_status mic_sges_resolve(struct mic_sges *sges, struct mic_dev *dev,
				   const struct ib_pd *pd, int access,
				   u64 bytes, u64 from, u64 to);
void mic_sges_release(struct mic_sges *sges);
u64 mic_sges_bytes(const struct mic_sges *sges);

#endif /* MIC_ENGINE_H */
