// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Importing windows: which memory of a peer a process may map.
 *
 * What is checked is what the engine would check for a request, and what a
 * page table can't express on top: a mapping is of whole pages, and of pages
 * that can be written one can also read. Where the key doesn't cover that, the
 * process must be allowed to access its peer's memory anyway. Device memory is no
 * process's, so nobody is.
 *
 * A window hangs on three things, both queue pairs and the key. Whatever
 * happens to one of them ends the window (revoke.c).
 */
#include <linux/etherdevice.h>
#include <linux/mm.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "../engine/engine.h"
#include "dev.h"
#include "mr.h"
#include "mw.h"
#include "pd.h"
#include "qp.h"
#include "windows.h"

#define MIC_REMOTE_CHANGES \
	(IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC)

/*
 * Protects the lists of windows of all queue pairs, keys and files. The innermost
 * mutex; nothing waits under it.
 */
DEFINE_MUTEX(mic_import_lock);

/*
 * What an import is about. References are held, also to the peer's device. @addr
 * is what led there.
 */
struct mic_import_target {
	struct mic_qp *qp;
	struct mic_addr addr;
	struct mic_node *node;
	struct mic_qp *peer;
	struct mic_mkey *mkey;
};

/* Is the peer that was found still the one that requests go to? */
static bool mic_import_is_peer(const struct mic_import_target *t)
{
	const struct mic_qp *qp = t->qp;

	return qp->attr.dest_qp_num == t->peer->qpn &&
	       !memcmp(&qp->addr.dgid, &t->addr.dgid, sizeof(t->addr.dgid)) &&
	       ether_addr_equal(qp->addr.dmac, t->addr.dmac);
}

/* Would the peer carry out a request of the QP right now? Both are locked. */
static bool mic_import_connected(const struct mic_import_target *t)
{
	const struct mic_qp *qp = t->qp;
	struct mic_qp *peer = t->peer;
	int state = READ_ONCE(peer->state);

	if (READ_ONCE(qp->state) != IB_QPS_RTS || !mic_import_is_peer(t))
		return false;
	if (READ_ONCE(qp->changing) || READ_ONCE(peer->changing))
		return false;
	/* the first request makes an event, so it has to be the engine's */
	if (state != IB_QPS_RTS && state != IB_QPS_SQD &&
	    !(state == IB_QPS_RTR && peer->comm_est))
		return false;
	if (peer->type != qp->type || peer->attr.dest_qp_num != qp->qpn ||
	    memcmp(&qp->addr.sgid, &peer->addr.dgid, sizeof(union ib_gid)) ||
	    !mic_resp_is_peer(peer, qp->dev->node))
		return false;
	return !mic_qp_is_reliable(qp) || qp->req.psn == peer->resp.epsn;
}

/**
 * mic_window_rights - what the engine would let a peer do with a key
 * @qp: queue pair that carries out what the peer asks
 * @mkey: key
 *
 * Return: enum ib_access_flags, remote ones.
 */
int mic_window_rights(const struct mic_qp *qp, const struct mic_mkey *mkey)
{
	int rights = mkey->access & qp->attr.qp_access_flags &
		     MIC_REMOTE_RIGHTS;

	if (qp->type == IB_QPT_UC || !qp->attr.max_dest_rd_atomic)
		rights &= IB_ACCESS_REMOTE_WRITE;
	return rights;
}

/* The region behind a key; a window's stays while it is used. */
static struct mic_mr *mic_mkey_region(struct mic_mkey *mkey)
{
	return mkey->window ? mic_mkey_to_mw(mkey)->mr :
			      container_of(mkey, struct mic_mr, mkey);
}

/*
 * Find what the key stands for and cut it to what was asked for. The offsets
 * in @imp are in bytes here.
 *
 * Return: 0, -ENOKEY if the peer may not know such a key, -ERANGE.
 */
static int mic_import_range(struct mic_import *imp,
			    const struct mic_import_target *t,
			    const struct mic_window_import *req)
{
	struct mic_mkey *mkey = t->mkey;
	u64 addr = req->length ? req->addr : mkey->iova;
	u64 length = req->length ?: mkey->length;
	struct mic_seg seg;
	int err;

	err = mic_mkey_seg(mkey, req->rkey, t->peer->ibqp->pd, 0, addr, length,
			   &seg);
	if (err == -EACCES || (mkey->qp && mkey->qp != t->peer->qpn))
		return -ENOKEY;
	if (err)
		return err;
	imp->addr = addr;
	imp->length = length;
	imp->win = seg.win;
	imp->win_off = seg.off;
	return 0;
}

/* Cut the range to the pages that are in it as a whole. */
static int mic_import_whole_pages(struct mic_import *imp,
				  const struct mic_window_import *req)
{
	u64 from = round_up(imp->win_off, PAGE_SIZE);
	u64 to = round_down(imp->win_off + imp->length, PAGE_SIZE);
	u64 skip = from - imp->win_off;

	if (from >= to)
		return -EPERM;
	if (req->length && to - from != imp->length)
		return -EPERM;
	imp->addr += skip;
	imp->win_off = from;
	imp->length = to - from;
	return 0;
}

/* Device memory that nodes share has no struct page; its address tells where it is. */
static void mic_import_piece(struct mic_import *imp,
			     const struct mic_piece *piece)
{
	imp->lease.phys = piece->phys + imp->win_off - (uintptr_t)piece->va;
	imp->win = NULL;
}

/*
 * Decide what is granted. @trusted: the process could access the memory of the
 * region's owner anyway.
 *
 * Return: whether the window may be mapped to write, or an error.
 */
static int mic_import_grant(struct mic_import *imp,
			    const struct mic_import_target *t,
			    const struct mic_window_import *req, bool trusted)
{
	const struct mic_mr *mr = mic_mkey_region(t->mkey);
	int rights = mic_window_rights(t->peer, t->mkey), needed, err;
	bool write;

	if (!mr || (!mr->umem && mr->kind != MIC_MKEY_DM) ||
	    t->mkey->length == U64_MAX)
		return -EOPNOTSUPP;
	if (!rights || (req->access & ~rights))
		return -EACCES;
	write = rights & MIC_REMOTE_CHANGES &&
		(!mr->umem || mr->umem->writable);
	if (!trusted) {
		needed = IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE;
		if (!(rights & IB_ACCESS_REMOTE_READ))
			return -EPERM;
		write = write && (rights & needed) == needed;
		err = mic_import_whole_pages(imp, req);
		if (err)
			return err;
	}
	if (mr->piece)
		mic_import_piece(imp, mr->piece);
	if (!write)
		rights &= IB_ACCESS_REMOTE_READ;
	if (!rights || (req->access & ~rights))
		return -EPERM;
	imp->access = rights;
	return write;
}

/**
 * mic_import_place - from bytes to pages, and into the file
 * @imp: window with a slot; offsets and length are in bytes
 * @write: it may be mapped to write
 * @req: out: what is granted
 *
 * Return: 0 or an error.
 */
int mic_import_place(struct mic_import *imp, bool write,
		     struct mic_window_import *req)
{
	u64 in_page = imp->win_off & ~PAGE_MASK;
	int err;

	imp->win_off -= in_page;
	imp->npages = PAGE_ALIGN(in_page + imp->length) >> PAGE_SHIFT;
	err = mic_windows_add(imp->ws, imp, write);
	if (err)
		return err;
	req->addr = imp->addr;
	req->length = imp->length;
	req->access = imp->access;
	req->slot = imp->slot;
	req->offset = ((u64)imp->pgoff << PAGE_SHIFT) + in_page;
	return 0;
}

static void mic_import_add(struct mic_import *imp,
			   const struct mic_import_target *t)
{
	imp->qp = t->qp;
	imp->peer = t->peer;
	imp->mkey = t->mkey;
	list_add_tail(&imp->qp_entry, &imp->qp->imports);
	list_add_tail(&imp->peer_entry, &imp->peer->exports);
	list_add_tail(&imp->mkey_entry, &imp->mkey->imports);
	WRITE_ONCE(imp->qp->nimports, imp->qp->nimports + 1);
	WRITE_ONCE(imp->peer->nexports, imp->peer->nexports + 1);
	WRITE_ONCE(imp->mkey->nimports, imp->mkey->nimports + 1);
}

/* Lists are walked as a whole, so they have an end. */
static bool mic_import_has_room(const struct mic_import_target *t)
{
	return t->qp->nimports < MIC_WINDOW_SLOTS &&
	       t->peer->nexports < MIC_WINDOW_SLOTS &&
	       t->mkey->nimports < MIC_WINDOW_SLOTS;
}

/*
 * Hang the window on what it depends on. A queue pair may fail at any time,
 * under one of its own locks: either we see its state here, or it sees that it
 * may have a window.
 */
static int mic_import_link(struct mic_import *imp,
			   const struct mic_import_target *t)
{
	int err = 0;

	mutex_lock(&mic_import_lock);
	WRITE_ONCE(t->qp->mapped, true);
	WRITE_ONCE(t->peer->mapped, true);
	WRITE_ONCE(t->mkey->mapped, true);
	smp_mb();	/* pairs with mic_imports_revoke_qp() */
	if (!mic_import_connected(t)) {
		err = -ENOTCONN;
	} else if (!mic_import_has_room(t)) {
		err = -ENOSPC;
	} else {
		WRITE_ONCE(imp->live, true);
		mic_import_add(imp, t);
	}
	mutex_unlock(&mic_import_lock);
	return err;
}

/* Is it memory of who asks, and where? The offset in @imp is in bytes here. */
static u32 mic_import_own(const struct mic_import *imp,
			  const struct mic_import_target *t)
{
	const struct mic_mr *mr = mic_mkey_region(t->mkey);

	if (!mr->umem || mr->umem->owning_mm != imp->ws->mm)
		return 0;
	if (imp->addr - imp->win_off == mr->umem->address - mr->mkey.win_off)
		return MIC_WINDOW_OWN;
	return MIC_WINDOW_OWN | MIC_WINDOW_RENAMED;
}

static int mic_import_fill(struct mic_import *imp,
			   const struct mic_import_target *t,
			   struct mic_window_import *req, bool trusted)
{
	int err, write;
	u32 own;

	err = mic_import_range(imp, t, req);
	if (err)
		return err;
	write = mic_import_grant(imp, t, req, trusted);
	if (write < 0)
		return write;
	own = mic_import_own(imp, t);
	err = mic_import_place(imp, write, req);
	if (err)
		return err;
	req->access |= own;
	return mic_import_link(imp, t);
}

/*
 * The key is used as by the responder: while it is, it can't be changed or
 * destroyed, so on return the window is seen by who does that.
 */
static int mic_import_locked(struct mic_import *imp,
			     struct mic_import_target *t,
			     struct mic_window_import *req,
			     const struct mm_struct *trusted_mm)
{
	const struct mic_mr *mr;
	bool trusted;
	int err = -ENOKEY;

	t->mkey = mic_mkey_get_remote(t->peer->dev, req->rkey);
	if (!t->mkey)
		return err;
	/* pairs with who sets the flag; the region of a window is behind it */
	if (smp_load_acquire(&t->mkey->valid)) {
		mr = mic_mkey_region(t->mkey);
		trusted = mr && mr->umem && trusted_mm &&
			  mr->umem->owning_mm == trusted_mm;
		err = mic_import_fill(imp, t, req, trusted);
	}
	mic_mkey_put_remote(t->mkey);
	return err;
}

/* Whether a key is right is told to the peer only, and not as often as it likes. */
static int mic_import_checked(struct mic_import *imp,
			      struct mic_import_target *t,
			      struct mic_window_import *req,
			      const struct mm_struct *trusted_mm)
{
	int err;

	if (!mic_import_connected(t))
		return -ENOTCONN;
	if (t->peer->guesses == MIC_WINDOW_GUESSES)
		return -EACCES;
	err = mic_import_locked(imp, t, req, trusted_mm);
	if (err != -ENOKEY)
		return err;
	t->peer->guesses++;
	return -EACCES;
}

/**
 * mic_import_unlock_req - drop a requester's lock
 * @qp: queue pair, whose &mic_req.lock is held
 *
 * Who drops that lock looks whether somebody wanted it meanwhile.
 */
void mic_import_unlock_req(struct mic_qp *qp)
{
	mutex_unlock(&qp->req.lock);
	smp_mb();	/* unlock, then look at the bit */
	if (test_bit(MIC_REQ_PENDING, &qp->req.flags))
		mic_qp_kick_deferred(qp);
}

/*
 * In the order in which the engine takes these locks. Whoever sends to the peer waits
 * for the second, so nothing is allocated under it, nor taken out of the file again.
 */
static int mic_import_try(struct mic_import *imp, struct mic_import_target *t,
			  struct mic_window_import *req,
			  const struct mm_struct *trusted_mm)
{
	int err;

	mutex_lock(&t->qp->req.lock);
	mutex_lock(&t->peer->resp.lock);
	err = mic_import_checked(imp, t, req, trusted_mm);
	mutex_unlock(&t->peer->resp.lock);
	mic_import_unlock_req(t->qp);
	return err;
}

static int mic_import_find_node(struct mic_import_target *t, u32 *qpn)
{
	mutex_lock(&t->qp->req.lock);
	t->addr = t->qp->addr;
	*qpn = t->qp->attr.dest_qp_num;
	mic_import_unlock_req(t->qp);

	t->node = mic_fabric_find(&t->addr, t->qp->dev->node,
				  t->qp->dev->ndev);
	return t->node ? 0 : -ENOTCONN;
}

/* Of this kernel; on failure the reference to the node is dropped. */
static int mic_import_get_peer(struct mic_import_target *t, u32 qpn)
{
	if (t->node->remote) {
		mic_node_put(t->node);
		return -EOPNOTSUPP;
	}
	if (!percpu_ref_tryget_live(&t->node->live)) {
		mic_node_put(t->node);
		return -ENOTCONN;
	}
	t->peer = mic_qp_get(t->node->priv, qpn);
	if (t->peer)
		return 0;
	percpu_ref_put(&t->node->live);
	mic_node_put(t->node);
	return -ENOTCONN;
}

static void mic_import_put_peer(struct mic_import_target *t)
{
	mic_qp_put(t->peer);
	percpu_ref_put(&t->node->live);
	mic_node_put(t->node);
}

/* The process whose memory is behind a key that the caller holds, or NULL. */
static struct pid *mic_import_key_owner(struct mic_mkey *mkey,
					struct mm_struct **mm)
{
	const struct mic_mr *mr = mic_mkey_region(mkey);

	if (!mr || !mr->umem)
		return NULL;
	*mm = mr->umem->owning_mm;
	mmgrab(*mm);
	return get_pid(mr->owner);
}

/*
 * The key as the peer's responder would look at it; nobody else learns whose it is. A
 * wrong one counts here: what is wrong with the request beside it must not make the
 * guess free, as who asks can see whether this goes on to ask about somebody.
 */
static struct pid *mic_import_owner_locked(struct mic_import_target *t, u32 rkey,
					   struct mm_struct **mm)
{
	struct mic_qp *peer = t->peer;
	struct pid *pid = NULL;
	struct mic_seg seg;
	int err = -EACCES;

	if (!mic_import_connected(t) || peer->guesses == MIC_WINDOW_GUESSES)
		return NULL;
	t->mkey = mic_mkey_get_remote(peer->dev, rkey);
	if (t->mkey) {
		/* that the key is valid, then the region */
		err = mic_mkey_seg(t->mkey, rkey, peer->ibqp->pd, 0,
				   t->mkey->iova, 0, &seg);
		if (!err && t->mkey->qp && t->mkey->qp != peer->qpn)
			err = -EACCES;
		if (!err)
			pid = mic_import_key_owner(t->mkey, mm);
		mic_mkey_put_remote(t->mkey);
	}
	if (!err)
		return pid;
	peer->guesses++;
	return ERR_PTR(-EACCES);
}

/**
 * mic_import_owner - whose memory a key shows
 * @qp: queue pair that would use the key
 * @rkey: key of its peer
 * @mm: out: the memory; a reference to the structure
 *
 * Return: the process with a reference; NULL, also if the peer is not connected; or an
 * ERR_PTR with -EACCES: the peer has no such key, which was counted.
 */
struct pid *mic_import_owner(struct mic_qp *qp, u32 rkey, struct mm_struct **mm)
{
	struct mic_import_target t = { .qp = qp };
	struct pid *pid = NULL;
	u32 qpn;

	if (mic_import_find_node(&t, &qpn) || mic_import_get_peer(&t, qpn))
		return NULL;
	if (t.peer->user) {
		mutex_lock(&qp->req.lock);
		mutex_lock(&t.peer->resp.lock);
		pid = mic_import_owner_locked(&t, rkey, mm);
		mutex_unlock(&t.peer->resp.lock);
		mic_import_unlock_req(qp);
	}
	mic_import_put_peer(&t);
	return pid;
}

/* A kernel consumer's memory is none of our business. */
static int mic_import_from_peer(struct mic_import *imp,
				struct mic_import_target *t,
				struct mic_window_import *req,
				const struct mm_struct *trusted_mm)
{
	int err;
	u32 qpn;

	err = mic_import_find_node(t, &qpn);
	if (err)
		return err;
	if (t->node->remote) {
		err = mic_import_from_node(imp, t->qp, t->node, &t->addr,
					   req);
		mic_node_put(t->node);
		return err;
	}
	err = mic_import_get_peer(t, qpn);
	if (err)
		return err;
	err = t->peer->user ? mic_import_try(imp, t, req, trusted_mm) :
			      -EOPNOTSUPP;
	mic_import_put_peer(t);
	return err;
}

/**
 * mic_import_create - grant a process a window of a peer's memory
 * @ws: the process's windows file
 * @qp: queue pair of that process; a reference is held
 * @req: what is wanted; out: what is granted
 * @trusted_mm: memory that the process could access anyway, or NULL
 *
 * Context: process context, without locks.
 * Return: the window, which may be revoked already; or an ERR_PTR, see
 * mic-abi.h.
 */
struct mic_import *mic_import_create(struct mic_windows *ws, struct mic_qp *qp,
				     struct mic_window_import *req,
				     const struct mm_struct *trusted_mm)
{
	struct mic_import_target t = { .qp = qp };
	bool brief = req->access & MIC_WINDOW_BRIEF;
	struct mic_import *imp;
	int err;

	req->access &= ~MIC_WINDOW_BRIEF;
	if (qp->type != IB_QPT_RC && qp->type != IB_QPT_UC)
		return ERR_PTR(-EOPNOTSUPP);
	if (req->access & ~MIC_REMOTE_RIGHTS)
		return ERR_PTR(-EINVAL);
	imp = kzalloc(sizeof(*imp), GFP_KERNEL_ACCOUNT);
	if (!imp)
		return ERR_PTR(-ENOMEM);
	imp->ws = ws;
	imp->busy = true;
	imp->brief = brief;
	imp->qpn = qp->qpn;
	imp->rkey = req->rkey;
	INIT_LIST_HEAD(&imp->qp_entry);
	INIT_LIST_HEAD(&imp->peer_entry);
	INIT_LIST_HEAD(&imp->mkey_entry);
	INIT_LIST_HEAD(&imp->dead_entry);
	err = mic_windows_take_slot(ws, &imp->slot);
	if (err) {
		kfree(imp);
		return ERR_PTR(err);
	}
	err = mic_import_from_peer(imp, &t, req, trusted_mm);
	if (err) {
		mic_window_free(ws, imp);
		return ERR_PTR(err);
	}
	return imp;
}

/**
 * mic_imports_show - list what a queue pair has imported
 * @m: file in debugfs
 * @qp: queue pair; a reference is held
 *
 * There may be many: where the file's buffer is full, which is then made larger, the rest
 * is left out at once, for others wait for the lock.
 */
void mic_imports_show(struct seq_file *m, struct mic_qp *qp)
{
	struct mic_import *imp;

	mutex_lock(&mic_import_lock);
	list_for_each_entry(imp, &qp->imports, qp_entry) {
		seq_printf(m, "qp %u rkey 0x%x addr 0x%llx length %llu access 0x%x pages %lu slot %u\n",
			   imp->qpn, imp->rkey, imp->addr, imp->length,
			   imp->access, imp->npages, imp->slot);
		if (seq_has_overflowed(m))
			break;
	}
	mutex_unlock(&mic_import_lock);
}
