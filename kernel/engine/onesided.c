// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The responder's one-sided requests: WRITEs, READs and atomics on memory that a
 * key names.
 */
#include <linux/compiler.h>

#include <mic/compat.h>

#include "../verbs/dev.h"
#include "../verbs/mr.h"
#include "../verbs/odp.h"
#include "../verbs/srq.h"
#include "../verbs/windows.h"
#include "engine.h"
#include "responder.h"

/* Memory that a one-sided request names, while it is copied. */
struct mic_target {
	struct mic_mkey *mkey;
	struct mic_seg seg;	/* the whole message's */
	struct mic_pin *pins;
};

/**
 * mic_resp_find - find the memory a one-sided request names
 * @qp: queue pair
 * @op: request
 * @access: right the key must give
 * @target: out
 *
 * Return: 0, and the caller owes a mic_resp_target_put(); -EACCES: the key does not
 * give that; -EAGAIN: the memory is not at hand.
 */
static int mic_resp_find(struct mic_qp *qp, const struct mic_op *op,
			 int access, struct mic_target *target)
{
	struct mic_mkey *mkey = mic_mkey_get_remote(qp->dev, op->rkey);
	int err = -EACCES;

	target->mkey = mkey;
	target->pins = NULL;
	if (mkey && !mic_mkey_seg(mkey, op->rkey, mic_qp_pd(qp), access,
				  op->raddr, op->length, &target->seg) &&
	    (!mkey->qp || mkey->qp == qp->qpn))
		err = mic_odp_pin(mkey, &target->seg, op->seg_off,
				  op->seg_off + op->seg_len,
				  access != IB_ACCESS_REMOTE_READ,
				  &target->pins);
	if (err && mkey)
		mic_mkey_put_remote(mkey);
	return err;
}

/* The same with an answer: what is not MIC_ACK_OK ends the request. */
static enum mic_ack mic_resp_target(struct mic_qp *qp, struct mic_op *op,
				    int access, struct mic_target *target)
{
	switch (mic_resp_find(qp, op, access, target)) {
	case 0:
		return MIC_ACK_OK;
	case -EAGAIN:
		return mic_resp_again(qp, op);
	default:
		return mic_resp_nak(qp, MIC_ACK_NAK_ACCESS);
	}
}

static void mic_resp_target_put(struct mic_target *target)
{
	mic_odp_unpin(&target->pins);
	mic_mkey_put_remote(target->mkey);
}

/* What the QP does not do at all is an invalid request, IBA 9.7.4.1.4. */
static bool mic_resp_enabled(const struct mic_qp *qp, int access)
{
	if (access != IB_ACCESS_REMOTE_WRITE && !qp->attr.max_dest_rd_atomic)
		return false;
	return qp->attr.qp_access_flags & access;
}

/* The immediate data comes with the last segment, and so does the need. */
static enum mic_ack mic_resp_take_imm(struct mic_qp *qp, struct mic_op *op)
{
	return op->flags & MIC_OP_IMM ? mic_resp_take(qp, op) : MIC_ACK_OK;
}

/*
 * A key is not looked at for 0 bytes, IBA 9.7.4.1.5. If it is, then before a receive
 * is taken: a message of several segments has its key refused with the first, too.
 */
static enum mic_ack mic_resp_write_data(struct mic_qp *qp, struct mic_op *op)
{
	struct mic_target target;
	const struct mic_sgl dst = { .seg = &target.seg, .nseg = 1 };
	enum mic_ack ack;

	if (!op->length)
		return mic_resp_take_imm(qp, op);
	ack = mic_resp_target(qp, op, IB_ACCESS_REMOTE_WRITE, &target);
	if (ack)
		return ack;
	ack = mic_resp_take_imm(qp, op);
	if (!ack)
		mic_sgl_copy(&dst, op->seg_off, op->data, op->seg_off,
			     op->seg_len);
	mic_resp_target_put(&target);
	return ack;
}

enum mic_ack mic_resp_write(struct mic_qp *qp, struct mic_op *op)
{
	enum mic_ack ack;

	if (!mic_resp_enabled(qp, IB_ACCESS_REMOTE_WRITE))
		return mic_resp_nak(qp, MIC_ACK_NAK_INV_REQ);
	ack = mic_resp_write_data(qp, op);
	if (!ack && op->flags & MIC_OP_IMM)
		mic_resp_receive_done(qp, op, MIC_WC_RECV_RDMA_WITH_IMM);
	return ack;
}

/* Copy a segment of a READ, and let its memory go. */
static void mic_resp_read_data(const struct mic_op *op,
			       struct mic_target *target)
{
	const struct mic_sgl src = { .seg = &target->seg, .nseg = 1 };

	mic_sgl_copy(op->data, op->seg_off, &src, op->seg_off, op->seg_len);
	mic_resp_target_put(target);
}

enum mic_ack mic_resp_read(struct mic_qp *qp, struct mic_op *op)
{
	struct mic_target target;
	enum mic_ack ack;

	if (!mic_resp_enabled(qp, IB_ACCESS_REMOTE_READ))
		return mic_resp_nak(qp, MIC_ACK_NAK_INV_REQ);
	if (!op->length)
		return MIC_ACK_OK;
	ack = mic_resp_target(qp, op, IB_ACCESS_REMOTE_READ, &target);
	if (!ack)
		mic_resp_read_data(op, &target);
	return ack;
}

/* Once more. What has changed meanwhile is nobody's error: it gets no answer. */
enum mic_ack mic_resp_read_again(struct mic_qp *qp, struct mic_op *op)
{
	struct mic_target target;
	int err;

	if (!mic_resp_enabled(qp, IB_ACCESS_REMOTE_READ))
		return MIC_ACK_NONE;
	if (!op->length)
		return MIC_ACK_OK;
	err = mic_resp_find(qp, op, IB_ACCESS_REMOTE_READ, &target);
	if (err)
		return err == -EAGAIN ? mic_resp_again(qp, op) : MIC_ACK_NONE;
	mic_resp_read_data(op, &target);
	return MIC_ACK_OK;
}

/* The target of an atomic, or NULL if it is not an aligned 8-byte word. */
static void *mic_resp_word(const struct mic_op *op, const struct mic_seg *seg)
{
	size_t len = sizeof(u64);
	void *word;

	if (op->length != sizeof(u64) || !IS_ALIGNED(op->raddr, sizeof(u64)))
		return NULL;
	word = mic_window_at(seg->win, seg->off, &len);
	return IS_ALIGNED((uintptr_t)word, sizeof(u64)) ? word : NULL;
}

/* The 8 bytes of an atomic write. */
static u64 mic_resp_gather_word(const struct mic_op *op)
{
	u64 word;
	const struct mic_seg seg = mic_linear_seg(&word, sizeof(word));
	const struct mic_sgl dst = { .seg = &seg, .nseg = 1 };

	mic_sgl_copy(&dst, 0, op->data, 0, sizeof(word));
	return word;
}

static u64 mic_resp_fetch_add(u64 *word, u64 add)
{
	u64 now = READ_ONCE(*word), old;

	do {
		old = now;
		now = mic_cmpxchg_shared(word, old, old + add);
	} while (now != old);
	return old;
}

/*
 * These are the CPU's own atomic instructions: they hold against everything
 * that accesses the memory, not only against this device. That may be a process of
 * another machine, which has it mapped, so they are those for several processors
 * wherever the kernel runs.
 */
static void mic_resp_atomic_execute(struct mic_op *op, void *word)
{
	switch (op->code) {
	case MIC_OP_CMP_SWAP:
		op->result = mic_cmpxchg_shared((u64 *)word, op->compare_add,
						op->swap);
		break;
	case MIC_OP_FETCH_ADD:
		op->result = mic_resp_fetch_add(word, op->compare_add);
		break;
	case MIC_OP_ATOMIC_WRITE:
		/* what was written before it is visible before it, IBA A19 */
		smp_store_release((u64 *)word, mic_resp_gather_word(op));
		break;
	}
}

enum mic_ack mic_resp_atomic(struct mic_qp *qp, struct mic_op *op)
{
	int access = op->code == MIC_OP_ATOMIC_WRITE ?
			     IB_ACCESS_REMOTE_WRITE : IB_ACCESS_REMOTE_ATOMIC;
	struct mic_target target;
	enum mic_ack ack;
	void *word;

	if (!mic_resp_enabled(qp, access) ||
	    !IS_ALIGNED(op->raddr, sizeof(u64)))
		return mic_resp_nak(qp, MIC_ACK_NAK_INV_REQ);
	if (!mic_dup_prepare(qp, op))
		return mic_resp_again(qp, op);
	ack = mic_resp_target(qp, op, access, &target);
	if (ack)
		return ack;
	word = mic_resp_word(op, &target.seg);
	if (word) {
		mic_resp_atomic_execute(op, word);
		mic_dup_save(qp, op);
	} else {
		ack = mic_resp_nak(qp, MIC_ACK_NAK_INV_REQ);
	}
	mic_resp_target_put(&target);
	return ack;
}
