// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Work requests that change a key of one's own: bind a memory window,
 * register fast, invalidate. And the invalidation another asks for.
 *
 * All take effect in their place in the send queue: requests before them are
 * complete, and what they revoke is no longer being copied when they are.
 */
#include "../verbs/dev.h"
#include "../verbs/mr.h"
#include "../verbs/mw.h"
#include "../verbs/srq.h"
#include "../verbs/windows.h"
#include "engine.h"

/* A consumer may choose the low 8 bits of a key, the rest says which. */
static bool mic_same_index(u32 key1, u32 key2)
{
	return !((key1 ^ key2) >> 8);
}

static enum ib_wc_status mic_reg_mr_locked(struct mic_mr *mr, u32 key,
					   int access)
{
	struct mic_mkey *mkey = &mr->mkey;

	if (mkey->valid || !mr->max_pages)
		return IB_WC_MW_BIND_ERR;
	mic_mkey_revoke(mkey);
	mkey->key = key;
	mkey->access = access;
	mkey->iova = mr->ibmr.iova;
	mkey->length = mr->ibmr.length;
	mkey->win_off = mr->ibmr.iova & (mr->ibmr.page_size - 1);
	mic_mkey_enable(mkey);
	return IB_WC_SUCCESS;
}

static enum ib_wc_status mic_reg_mr(struct mic_qp *qp)
{
	u32 key = qp->req.wqe.reg.key;
	enum ib_wc_status status = IB_WC_MW_BIND_ERR;
	struct mic_mkey *mkey;

	/* the page list is the kernel's, only the kernel may name it */
	if (qp->user)
		return IB_WC_LOC_QP_OP_ERR;
	mkey = mic_mkey_get(qp->dev, key);
	if (!mkey)
		return status;
	mutex_lock(&mkey->lock);
	if (!mkey->window && mkey->revocable && mkey->pd == qp->ibqp->pd)
		status = mic_reg_mr_locked(container_of(mkey, struct mic_mr,
							mkey), key,
					   qp->req.wqe.reg.access);
	mutex_unlock(&mkey->lock);
	mic_mkey_put(mkey);
	return status;
}

/*
 * Of a kind, and in a domain, which stay as they are. Type 1 windows, which are never of
 * a queue pair, are unbound by binding them, IBA 10.6.7.2.4.
 */
static bool mic_may_be_invalidated(const struct mic_qp *qp,
				   const struct mic_mkey *mkey)
{
	return mkey->revocable && mkey->pd == mic_qp_pd(qp) &&
	       (!mkey->window || READ_ONCE(mkey->qp) == qp->qpn);
}

static bool mic_invalidate_fastreg(struct mic_mkey *mkey, u32 key)
{
	bool done;

	mutex_lock(&mkey->lock);
	done = mkey->key == key;
	if (done)
		mic_mkey_revoke(mkey);
	mutex_unlock(&mkey->lock);
	return done;
}

/* No copy by a type 2 window is under way any more, and it is not bound anew yet. */
static bool mic_mw_begin_end(struct mic_qp *qp, struct mic_mw_state *mw, u32 key)
{
	struct mic_mkey *mkey = &mw->mkey;
	bool done;

	mutex_lock(&mkey->lock);
	done = mkey->key == key && mkey->valid && mkey->qp == qp->qpn;
	if (done) {
		mw->ending = true;
		mic_mkey_stop(mkey);
	}
	mutex_unlock(&mkey->lock);
	return done;
}

/*
 * What is mapped is taken away without the lock, which whoever invalidates for a peer
 * waits for, with that of the responder.
 */
static bool mic_invalidate_mw(struct mic_qp *qp, struct mic_mw_state *mw, u32 key)
{
	if (!mic_mw_begin_end(qp, mw, key))
		return false;
	mic_imports_revoke_mkey(&mw->mkey);
	mutex_lock(&mw->mkey.lock);
	mic_mw_unbind(mw);
	mw->ending = false;
	mutex_unlock(&mw->mkey.lock);
	return true;
}

/**
 * mic_invalidate - a key grants nothing any more
 * @qp: queue pair whose owner or peer asks; the rules are the same
 * @key: fast registration or type 2 window
 *
 * Who asks for the peer, with &mic_resp.lock held, calls mic_invalidate_ahead() before.
 *
 * Context: process context; waits for copies under way by that key.
 * Return: whether the key could be invalidated.
 */
bool mic_invalidate(struct mic_qp *qp, u32 key)
{
	struct mic_mkey *mkey = mic_mkey_get(qp->dev, key);
	bool done = false;

	if (!mkey)
		return false;
	/* without the lock, which may be held for long: whoever sends may name any key */
	if (mic_may_be_invalidated(qp, mkey))
		done = mkey->window ?
			       mic_invalidate_mw(qp, mic_mkey_to_mw(mkey), key) :
			       mic_invalidate_fastreg(mkey, key);
	mic_mkey_put(mkey);
	return done;
}

/**
 * mic_invalidate_ahead - what the peer has mapped by a key that it asks to invalidate
 * @qp: queue pair; a reference is held, and neither of its locks
 * @op: message with the invalidation; its sender's &mic_req.lock is held if that is
 *	of this kernel
 *
 * By a type 2 window only the peer of its queue pair has mapped anything, and while it
 * sends it maps nothing more: that needs the same lock. So there is nothing left to take
 * away when the message is carried out, with the lock of the responder. If it is not
 * carried out, the peer may map anew what it has wanted to give up.
 *
 * Context: process context; takes as long as the sender has made it.
 */
void mic_invalidate_ahead(struct mic_qp *qp, const struct mic_op *op)
{
	struct mic_mkey *mkey;

	/* by means of windows other machines map nothing */
	if (mic_node_is_remote(op->src))
		return;
	mkey = mic_mkey_get(qp->dev, op->ex);
	if (!mkey)
		return;
	if (READ_ONCE(mkey->key) == op->ex && READ_ONCE(mkey->qp) == qp->qpn)
		mic_imports_revoke_peer(mkey, qp, op);
	mic_mkey_put(mkey);
}

/* The rights a window may not give if its region does not, IBA 10.6.7.2.1. */
static bool mic_bind_rights_ok(const struct mic_mr *mr, int access)
{
	/* local write says nothing about a window, but is often given */
	if (access & ~(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE |
		       IB_ACCESS_REMOTE_ATOMIC | IB_ZERO_BASED))
		return false;
	if (!(mr->mkey.access & IB_ACCESS_MW_BIND))
		return false;
	if (access & (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC))
		return mr->mkey.access & IB_ACCESS_LOCAL_WRITE;
	return true;
}

static bool mic_bind_range_ok(const struct mic_mr *mr, u64 addr, u64 len)
{
	return addr >= mr->mkey.iova && len <= mr->mkey.length &&
	       addr - mr->mkey.iova <= mr->mkey.length - len;
}

/* Show @mr's memory through @mw, which is locked and has no users. @mr counts it. */
static void mic_bind(struct mic_qp *qp, struct mic_mw_state *mw,
		     struct mic_mr *mr, u32 key)
{
	const struct mic_send_wqe *wqe = &qp->req.wqe;
	struct mic_mkey *mkey = &mw->mkey;

	mw->mr = mr;
	mkey->key = key;
	mkey->access = wqe->bind.access & ~IB_ZERO_BASED;
	mkey->iova = wqe->bind.access & IB_ZERO_BASED ? 0 : wqe->bind.addr;
	mkey->length = wqe->bind.length;
	mkey->win = &mr->win;
	mkey->win_off = mr->mkey.win_off + wqe->bind.addr - mr->mkey.iova;
	WRITE_ONCE(mkey->qp, mw->type == IB_MW_TYPE_2 ? qp->qpn : 0);
	mic_mkey_enable(mkey);
}

static bool mic_bind_key_ok(struct mic_qp *qp, const struct mic_mw_state *mw)
{
	const struct mic_send_wqe *wqe = &qp->req.wqe;

	if (mw->mkey.pd != qp->ibqp->pd ||
	    !mic_same_index(wqe->bind.new_rkey, wqe->bind.mw_rkey))
		return false;
	/*
	 * Type 1: its owner names it by any key it had. Who posted a bind that was
	 * flushed goes on with the key that this would have led to.
	 */
	if (mw->type == IB_MW_TYPE_1)
		return true;
	/*
	 * A type 2 window has to be invalidated first. Its owner chooses the
	 * key and need not say which one it had.
	 */
	return !mw->mkey.valid && !mw->ending;
}

/*
 * Is the region in uverbs' list? Before it is its registration may still fail, and then
 * it must be possible to deregister it, which a window would prevent. Its owner knows no
 * key of it then, unless he reads it while the answer is written.
 */
static bool mic_bind_is_committed(const struct mic_mr *mr)
{
	const struct ib_uobject *uobject = READ_ONCE(mr->ibmr.uobject);

	return uobject && !list_empty_careful(&uobject->list);
}

/* A region that counts a window stays, and as it is. */
static bool mic_bind_reserve(struct mic_qp *qp, const struct mic_mw_state *mw,
			     struct mic_mr *mr)
{
	const struct mic_send_wqe *wqe = &qp->req.wqe;
	bool ok;

	mutex_lock_nested(&mr->mkey.lock, SINGLE_DEPTH_NESTING);
	ok = mr->umem && mic_bind_is_committed(mr) && mr->mkey.valid &&
	     mr->mkey.key == wqe->bind.mr_lkey &&
	     mr->mkey.pd == qp->ibqp->pd &&
	     mic_bind_rights_ok(mr, wqe->bind.access) &&
	     /* IBA o10-36.2.2 */
	     !(mw->type == IB_MW_TYPE_1 && wqe->bind.access & IB_ZERO_BASED) &&
	     mic_bind_range_ok(mr, wqe->bind.addr, wqe->bind.length);
	if (ok)
		mr->bound++;
	mutex_unlock(&mr->mkey.lock);
	return ok;
}

/* What it was bound to it stays bound to if that is refused. */
static enum ib_wc_status mic_bind_mr(struct mic_qp *qp,
				     struct mic_mw_state *mw,
				     struct mic_mr *mr)
{
	if (!mic_bind_reserve(qp, mw, mr))
		return IB_WC_MW_BIND_ERR;
	mic_mw_unbind(mw);
	mic_bind(qp, mw, mr, qp->req.wqe.bind.new_rkey);
	return IB_WC_SUCCESS;
}

/* Length 0 unbinds a type 1 window, whose key changes all the same. */
static enum ib_wc_status mic_bind_locked(struct mic_qp *qp,
					 struct mic_mw_state *mw)
{
	const struct mic_send_wqe *wqe = &qp->req.wqe;
	enum ib_wc_status status = IB_WC_MW_BIND_ERR;
	struct mic_mkey *mkey;

	if (!mic_bind_key_ok(qp, mw))
		return status;
	if (!wqe->bind.length) {
		/* IBA o10-37.2.40 */
		if (mw->type == IB_MW_TYPE_2)
			return status;
		mic_mw_unbind(mw);
		mw->mkey.key = wqe->bind.new_rkey;
		return IB_WC_SUCCESS;
	}
	mkey = mic_mkey_get(qp->dev, wqe->bind.mr_lkey);
	if (!mkey)
		return status;
	if (!mkey->window)
		status = mic_bind_mr(qp, mw, container_of(mkey, struct mic_mr,
							  mkey));
	mic_mkey_put(mkey);
	return status;
}

static enum ib_wc_status mic_bind_mw(struct mic_qp *qp)
{
	struct mic_mkey *mkey;
	enum ib_wc_status status = IB_WC_MW_BIND_ERR;

	mkey = mic_mkey_get(qp->dev, qp->req.wqe.bind.mw_rkey);
	if (!mkey)
		return status;
	mutex_lock(&mkey->lock);
	if (mkey->window)
		status = mic_bind_locked(qp, mic_mkey_to_mw(mkey));
	mutex_unlock(&mkey->lock);
	mic_mkey_put(mkey);
	return status;
}

/**
 * mic_req_local - carry out a request that needs no peer
 * @qp: queue pair; the caller holds &mic_req.lock
 *
 * Return: the status it completes with.
 */
enum ib_wc_status mic_req_local(struct mic_qp *qp)
{
	switch (qp->req.wqe.opcode) {
	case MIC_WR_LOCAL_INV:
		return mic_invalidate(qp, qp->req.wqe.ex) ?
			       IB_WC_SUCCESS : IB_WC_LOC_QP_OP_ERR;
	case MIC_WR_BIND_MW:
		return mic_bind_mw(qp);
	case MIC_WR_REG_MR:
		return mic_reg_mr(qp);
	default:
		return IB_WC_LOC_QP_OP_ERR;
	}
}
