// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Exporting windows: which memory of this node processes of another may map.
 *
 * The memory is device memory, in this node's slice of what nodes share; for a node
 * that has all of this one's memory in an aperture, it may also be pinned memory of
 * a process. What is checked is what import.c checks for a process of this kernel
 * that its peer has no other rights over: whole pages, which can be read if they can
 * be written. An export hangs on the queue pair and the key, and ends with either
 * (revoke.c).
 */
#include <linux/errno.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>

#include "../engine/engine.h"
#include "mr.h"
#include "qp.h"
#include "srq.h"
#include "windows.h"

/* Take it out of the lists, if it is in them. */
static void mic_export_unlink(struct mic_export *exp)
{
	struct mic_mkey *mkey = exp->mkey;
	struct mic_qp *qp = exp->qp;

	lockdep_assert_held(&mic_import_lock);
	list_del(&exp->qp_entry);
	list_del(&exp->mkey_entry);
	WRITE_ONCE(qp->ngrants, qp->ngrants - 1);
	WRITE_ONCE(mkey->ngrants, mkey->ngrants - 1);
	if (exp->recalled)
		WRITE_ONCE(qp->nrecalled, qp->nrecalled - 1);
	smp_mb();	/* before the look at who waits, which has no barrier */
	wake_up_var(&qp->ngrants);
	wake_up_var(&qp->nrecalled);
	wake_up_var(&mkey->ngrants);
}

/* The other node has given the pages back, or has been silent for too long. */
static void mic_export_end(struct mic_grant *grant)
{
	struct mic_export *exp = container_of(grant, struct mic_export, grant);

	mutex_lock(&mic_import_lock);
	mic_export_unlink(exp);
	mutex_unlock(&mic_import_lock);
	kfree(exp);
}

/*
 * The same states as in mic_import_connected(). What is not from the peer is found with
 * the responder's lock or without.
 */
static bool mic_export_connected(const struct mic_qp *qp,
				 const struct mic_op *op)
{
	int state = READ_ONCE(qp->state);

	if (state != IB_QPS_RTS && state != IB_QPS_SQD &&
	    !(state == IB_QPS_RTR && qp->comm_est))
		return false;
	return qp->user && qp->type == IB_QPT_RC && !READ_ONCE(qp->changing) &&
	       op->service == IB_QPT_RC && op->psn == qp->resp.epsn &&
	       op->src_qpn == qp->attr.dest_qp_num &&
	       !memcmp(&op->addr->sgid, &qp->addr.dgid, sizeof(union ib_gid));
}

/* Hang it on what it depends on, and let the other node know; see import.c. */
static int mic_export_link(struct mic_export *exp, struct mic_op *op,
			   u64 offset, u64 bytes)
{
	struct mic_mkey *mkey = exp->mkey;
	struct mic_qp *qp = exp->qp;
	int err;

	mutex_lock(&mic_import_lock);
	WRITE_ONCE(qp->mapped, true);
	WRITE_ONCE(mkey->mapped, true);
	smp_mb();	/* pairs with mic_imports_revoke_qp() */
	err = -ENOTCONN;
	if (mic_export_connected(qp, op))
		err = op->grant(op, &exp->grant, offset, bytes);
	if (!err) {
		list_add_tail(&exp->qp_entry, &qp->grants);
		list_add_tail(&exp->mkey_entry, &mkey->grants);
		WRITE_ONCE(qp->ngrants, qp->ngrants + 1);
		WRITE_ONCE(mkey->ngrants, mkey->ngrants + 1);
	}
	mutex_unlock(&mic_import_lock);
	return err;
}

/* What is granted: some of a piece, or pages that are listed. */
static int mic_export_memory(struct mic_export *exp, u64 offset, u64 bytes)
{
	struct mic_extents *extents;
	struct mem_cgroup *before;

	exp->grant.piece = mic_mkey_piece(exp->mkey);
	if (exp->grant.piece)
		return 0;
	before = set_active_memcg(exp->qp->memcg);
	extents = mic_extents_get(exp->mkey->win, offset, bytes);
	set_active_memcg(before);
	if (IS_ERR(extents))
		return PTR_ERR(extents);
	exp->grant.extents = extents;
	return 0;
}

static int mic_export_create(struct mic_qp *qp, struct mic_mkey *mkey,
			     struct mic_op *op, u64 offset, u64 bytes)
{
	struct mic_export *exp;
	int err;

	exp = mic_qp_zalloc(qp, sizeof(*exp));
	if (!exp)
		return -ENOMEM;
	exp->qp = qp;
	exp->mkey = mkey;
	exp->grant.end = mic_export_end;
	err = mic_export_memory(exp, offset, bytes);
	if (err)
		goto err_free;
	err = mic_export_link(exp, op, offset, bytes);
	if (err)
		goto err_memory;
	return 0;

err_memory:
	if (exp->grant.extents)
		mic_extents_put(exp->grant.extents);
err_free:
	kfree(exp);
	return err;
}

/* Can the node that asks map what is behind the key at all? */
static bool mic_export_is_reachable(struct mic_mkey *mkey,
				    const struct mic_op *op)
{
	return mic_mkey_piece(mkey) ||
	       (op->ex & MIC_MAP_EXTENTS && mic_mkey_is_pinned(mkey));
}

/* What may be done through a mapping, or an error. */
static int mic_export_rights(const struct mic_qp *qp,
			     const struct mic_mkey *mkey, int wanted)
{
	int rights = mic_window_rights(qp, mkey);

	if (!rights || wanted & ~rights)
		return -EACCES;
	if (!(rights & IB_ACCESS_REMOTE_READ))
		return -EPERM;
	if (!(rights & IB_ACCESS_REMOTE_WRITE))
		rights = IB_ACCESS_REMOTE_READ;
	return wanted & ~rights ? -EPERM : rights;
}

/* The key is used as by the responder, so it stays. */
static int mic_export_key(struct mic_qp *qp, struct mic_mkey *mkey,
			  struct mic_op *op)
{
	u64 length = op->compare_add ?: mkey->length;
	u64 addr = op->compare_add ? op->raddr : mkey->iova;
	struct mic_piece *piece;
	struct mic_seg seg;
	u64 from, to, off;
	int err;

	err = mic_mkey_seg(mkey, op->rkey, mic_qp_pd(qp), 0, addr, length,
			   &seg);
	if (err == -EACCES)
		return -ENOKEY;
	if (err)
		return err;
	if (!mic_export_is_reachable(mkey, op))
		return -EOPNOTSUPP;
	piece = mic_mkey_piece(mkey);
	err = mic_export_rights(qp, mkey, op->swap);
	if (err < 0)
		return err;
	op->map->access = err;

	off = seg.off - (piece ? (uintptr_t)piece->va : 0);
	from = round_up(off, PAGE_SIZE);
	to = round_down(off + length, PAGE_SIZE);
	if (from >= to || (op->compare_add && to - from != length))
		return -EPERM;
	op->map->addr = addr + from - off;
	return mic_export_create(qp, mkey, op, from, to - from);
}

static int mic_export_find(struct mic_qp *qp, struct mic_op *op)
{
	struct mic_mkey *mkey;
	int err = -ENOKEY;

	lockdep_assert_held(&qp->resp.lock);
	/* it may have changed */
	if (!mic_export_connected(qp, op))
		return -ENOTCONN;
	if (!op->grant)
		return -EOPNOTSUPP;
	if (qp->guesses == MIC_WINDOW_GUESSES)
		return -EACCES;
	mkey = mic_mkey_get_remote(qp->dev, op->rkey);
	if (mkey) {
		err = mic_export_key(qp, mkey, op);
		mic_mkey_put_remote(mkey);
	}
	if (err != -ENOKEY)
		return err;
	qp->guesses++;
	return -EACCES;
}

/**
 * mic_export - carry out MIC_OP_MAP
 * @qp: queue pair; a reference is held
 * @op: operation
 *
 * As with requests, only the connected peer waits for the responder's lock.
 *
 * Context: process context, may sleep.
 * Return: MIC_ACK_OK; &mic_op.result tells whether anything was granted.
 */
enum mic_ack mic_export(struct mic_qp *qp, struct mic_op *op)
{
	op->result = ENOTCONN;
	if (!mic_export_connected(qp, op))
		return MIC_ACK_OK;
	mutex_lock(&qp->resp.lock);
	op->result = -mic_export_find(qp, op);
	mutex_unlock(&qp->resp.lock);
	return MIC_ACK_OK;
}

/**
 * mic_exports_wait - until no other node has mapped anything, or what was recalled
 * @count: &mic_qp.ngrants or &mic_mkey.ngrants, all were revoked, and none is added;
 *	or &mic_qp.nrecalled
 *
 * Context: process context, without locks that a path's thread takes.
 */
void mic_exports_wait(u32 *count)
{
	wait_var_event(count, !READ_ONCE(*count));
	/* who has dropped the last is done with the lists */
	mutex_lock(&mic_import_lock);
	mutex_unlock(&mic_import_lock);
}
