// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Revoking windows: what a process has mapped of a peer's memory is out of its
 * reach.
 *
 * First the window's state word says so, and no fault maps it any more. Then it is
 * taken out of the mappings, and only then it leaves the lists of both queue pairs
 * and of the key. So who finds a list empty, with the lock held, knows that no
 * process reaches anything through what was in it.
 *
 * Taking pages out of mappings takes as long as the process that has them makes
 * it, within bounds. So nothing is held meanwhile that others need who have
 * nothing to do with that process.
 */
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/sched.h>

#include "dev.h"
#include "mr.h"
#include "qp.h"
#include "windows.h"

/*
 * So many windows of a file are taken out of its mappings one by one. Of more, all
 * that is mapped of the file is; what is still granted comes back by faults.
 */
#define MIC_ZAP_EACH	16

static void mic_import_remove(struct mic_import *imp)
{
	list_del_init(&imp->qp_entry);
	list_del_init(&imp->peer_entry);
	list_del_init(&imp->mkey_entry);
	list_del_init(&imp->dead_entry);
	WRITE_ONCE(imp->qp->nimports, imp->qp->nimports - 1);
	if (!imp->peer)
		return;
	WRITE_ONCE(imp->peer->nexports, imp->peer->nexports - 1);
	WRITE_ONCE(imp->mkey->nimports, imp->mkey->nimports - 1);
}

/* From here on no fault maps the window; one that is at it may still. */
static void mic_import_end(struct mic_import *imp)
{
	lockdep_assert_held(&mic_import_lock);
	if (!list_empty(&imp->dead_entry))
		return;
	mic_windows_set_state(imp->ws, imp->slot, MIC_WINDOW_REVOKED);
	/* the word, then the flag: a fault that sees it adds to the word */
	smp_store_release(&imp->live, false);
	list_add_tail(&imp->dead_entry, &imp->ws->dead);
}

/* Whoever sends to one of the queue pairs would wait for the process that maps. */
static void mic_import_assert_unlocked(const struct mic_import *imp)
{
	lockdep_assert_not_held(&imp->qp->resp.lock);
	if (imp->peer)
		lockdep_assert_not_held(&imp->peer->resp.lock);
}

/* Take the pages of dead windows out of all mappings of their file. */
static void mic_imports_zap(struct mic_windows *ws, struct list_head *dead)
{
	struct mic_import *imp;
	unsigned int n = 0;

	/* faults that saw them alive are over then */
	down_write(&ws->lock);
	up_write(&ws->lock);

	list_for_each_entry(imp, dead, dead_entry) {
		mic_import_assert_unlocked(imp);
		if (++n > MIC_ZAP_EACH) {
			mic_windows_zap_all(ws);
			return;
		}
	}
	list_for_each_entry(imp, dead, dead_entry) {
		mic_windows_zap(ws, imp);
		cond_resched();
	}
}

/*
 * On return all windows of the file that were dead before the call are out of
 * the mappings and the lists, whoever did it.
 */
static void mic_imports_bury(struct mic_windows *ws)
{
	struct mic_import *imp, *next;
	LIST_HEAD(dead);

	mutex_lock(&ws->bury_lock);
	mutex_lock(&mic_import_lock);
	list_splice_init(&ws->dead, &dead);
	mutex_unlock(&mic_import_lock);
	if (!list_empty(&dead)) {
		mic_imports_zap(ws, &dead);
		mutex_lock(&mic_import_lock);
		list_for_each_entry_safe(imp, next, &dead, dead_entry)
			mic_import_remove(imp);
		mutex_unlock(&mic_import_lock);
	}
	mutex_unlock(&ws->bury_lock);
}

/**
 * mic_import_mark - no fault maps a window any more
 * @imp: window; what is mapped of it stays until mic_import_revoke()
 *
 * Of a file all that are marked are taken out of its mappings at once.
 *
 * Context: process context; &mic_import_lock is held.
 */
void mic_import_mark(struct mic_import *imp)
{
	if (!list_empty(&imp->qp_entry))
		mic_import_end(imp);
}

/**
 * mic_import_revoke - take a window away
 * @imp: window, revoked before or not; its file stays
 *
 * Context: process context; takes as long as the memory is large.
 */
void mic_import_revoke(struct mic_import *imp)
{
	bool listed;

	mutex_lock(&mic_import_lock);
	listed = !list_empty(&imp->qp_entry);
	mic_import_mark(imp);
	mutex_unlock(&mic_import_lock);
	if (listed)
		mic_imports_bury(imp->ws);
}

/* The file of a window, with a reference; NULL for none. */
static struct mic_windows *mic_import_file(const struct mic_import *imp)
{
	lockdep_assert_held(&mic_import_lock);
	if (!imp)
		return NULL;
	refcount_inc(&imp->ws->ref);
	return imp->ws;
}

static bool mic_imports_bury_put(struct mic_windows *ws)
{
	if (!ws)
		return false;
	mic_imports_bury(ws);
	mic_windows_put(ws);
	return true;
}

/* Bury the windows of one file, if there is one. */
static bool mic_imports_bury_qp(struct mic_qp *qp)
{
	struct mic_import *imp;
	struct mic_windows *ws;

	mutex_lock(&mic_import_lock);
	imp = list_first_entry_or_null(&qp->imports, struct mic_import,
				       qp_entry);
	if (!imp)
		imp = list_first_entry_or_null(&qp->exports, struct mic_import,
					       peer_entry);
	ws = mic_import_file(imp);
	mutex_unlock(&mic_import_lock);
	return mic_imports_bury_put(ws);
}

static bool mic_imports_bury_mkey(struct mic_mkey *mkey)
{
	struct mic_windows *ws;

	mutex_lock(&mic_import_lock);
	ws = mic_import_file(list_first_entry_or_null(&mkey->imports,
						      struct mic_import,
						      mkey_entry));
	mutex_unlock(&mic_import_lock);
	return mic_imports_bury_put(ws);
}

/**
 * mic_imports_mark_qp - no fault maps the windows of a queue pair any more
 * @qp: queue pair whose state or attributes don't stand any more, so that none
 *	is added: what it imported, and what its peer did
 *
 * What is mapped stays until mic_imports_revoke_qp(), which takes as long as the
 * process makes it: whoever holds a lock that others want leaves that to later.
 *
 * Context: process context; the queue pair's locks may be held.
 */
void mic_imports_mark_qp(struct mic_qp *qp)
{
	struct mic_import *imp;
	struct mic_export *exp;

	smp_mb();	/* the state, then the flag; pairs with mic_import_link() */
	if (!READ_ONCE(qp->mapped))
		return;
	mutex_lock(&mic_import_lock);
	list_for_each_entry(imp, &qp->imports, qp_entry)
		mic_import_end(imp);
	list_for_each_entry(imp, &qp->exports, peer_entry)
		mic_import_end(imp);
	list_for_each_entry(exp, &qp->grants, qp_entry) {
		WRITE_ONCE(qp->nrecalled, qp->nrecalled + !exp->recalled);
		exp->recalled = true;
		exp->grant.revoke(&exp->grant);
	}
	mutex_unlock(&mic_import_lock);
}

/**
 * mic_imports_revoke_qp - take away the windows of a queue pair
 * @qp: as for mic_imports_mark_qp()
 *
 * What a process of another node has mapped is only told to be given back;
 * mic_exports_wait() waits for that.
 *
 * Context: process context; &mic_req.lock may be held, not &mic_resp.lock, which
 * whoever sends to the queue pair wants, from other machines, too.
 */
void mic_imports_revoke_qp(struct mic_qp *qp)
{
	mic_imports_mark_qp(qp);
	if (!READ_ONCE(qp->mapped))
		return;
	while (mic_imports_bury_qp(qp))
		;
}

/**
 * mic_imports_revoke_mkey - take away the windows of a key
 * @mkey: key that nobody can get any more, or that is not valid and has no
 *	users, so that no window is being added
 *
 * Context: process context; the key's lock may be held.
 */
void mic_imports_revoke_mkey(struct mic_mkey *mkey)
{
	struct mic_import *imp;
	struct mic_export *exp;

	/* set before the reference or the use was dropped that we waited for */
	if (!READ_ONCE(mkey->mapped))
		return;
	mutex_lock(&mic_import_lock);
	list_for_each_entry(imp, &mkey->imports, mkey_entry)
		mic_import_end(imp);
	list_for_each_entry(exp, &mkey->grants, mkey_entry)
		exp->grant.revoke(&exp->grant);
	mutex_unlock(&mic_import_lock);
	while (mic_imports_bury_mkey(mkey))
		;
	/* only of device memory and pinned memory, whose keys change in verbs alone */
	if (READ_ONCE(mkey->ngrants))
		mic_exports_wait(&mkey->ngrants);
}

/*
 * The first window of a key, if it is the sender's. All of a key for one queue pair are of
 * its peer, and none is added while that sends.
 */
static struct mic_import *mic_imports_first_of(struct mic_mkey *mkey,
					       const struct mic_qp *qp,
					       const struct mic_op *op)
{
	struct mic_import *imp;

	lockdep_assert_held(&mic_import_lock);
	imp = list_first_entry_or_null(&mkey->imports, struct mic_import,
				       mkey_entry);
	if (!imp || imp->peer != qp || imp->qp->qpn != op->src_qpn ||
	    imp->qp->dev->node != op->src)
		return NULL;
	lockdep_assert_held(&imp->qp->req.lock);
	return imp;
}

static bool mic_imports_bury_peer(struct mic_mkey *mkey, const struct mic_qp *qp,
				  const struct mic_op *op)
{
	struct mic_windows *ws;

	mutex_lock(&mic_import_lock);
	ws = mic_import_file(mic_imports_first_of(mkey, qp, op));
	mutex_unlock(&mic_import_lock);
	return mic_imports_bury_put(ws);
}

/**
 * mic_imports_revoke_peer - take away the windows that a sender has of a key
 * @mkey: key of a type 2 memory window; a reference is held
 * @qp: queue pair that it is for
 * @op: what is sent to that from a queue pair of this kernel, whose &mic_req.lock
 *	is held
 *
 * Context: process context; &mic_resp.lock of @qp is not held.
 */
void mic_imports_revoke_peer(struct mic_mkey *mkey, const struct mic_qp *qp,
			     const struct mic_op *op)
{
	struct mic_import *imp;

	if (!READ_ONCE(mkey->mapped))
		return;
	mutex_lock(&mic_import_lock);
	if (mic_imports_first_of(mkey, qp, op))
		list_for_each_entry(imp, &mkey->imports, mkey_entry)
			mic_import_end(imp);
	mutex_unlock(&mic_import_lock);
	while (mic_imports_bury_peer(mkey, qp, op))
		;
}
