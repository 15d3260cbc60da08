// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory windows: allocated here, bound by the engine (engine/local.c).
 */
#include <linux/slab.h>

#include "dev.h"
#include "mw.h"
#include "uctx.h"

int mic_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct mic_mw *mw = container_of(ibmw, struct mic_mw, ibmw);
	struct mic_dev *dev = to_mic_dev(ibmw->device);
	struct mic_mw_state *state;
	int err;

	err = mic_udata_check(udata, 0);
	if (err)
		return err;
	err = mic_limit_get(&dev->nmw, MIC_MAX_MW);
	if (err)
		return err;
	state = kzalloc(sizeof(*state), GFP_KERNEL_ACCOUNT);
	if (!state) {
		err = -ENOMEM;
		goto err_count;
	}
	err = mic_mkey_alloc(dev, &state->mkey);
	if (err)
		goto err_free;
	state->type = ibmw->type;
	state->mkey.pd = ibmw->pd;
	state->mkey.revocable = true;
	state->mkey.window = true;
	mw->state = state;
	ibmw->rkey = state->mkey.key;
	mic_mkey_publish(dev, &state->mkey);
	return 0;

err_free:
	kfree(state);
err_count:
	atomic_dec(&dev->nmw);
	return err;
}

/**
 * mic_mw_unbind - a window shows nothing any more
 * @mw: window; the caller holds the lock of its key
 *
 * Context: process context; waits for copies under way.
 */
void mic_mw_unbind(struct mic_mw_state *mw)
{
	struct mic_mr *mr = mw->mr;

	mic_mkey_revoke(&mw->mkey);
	WRITE_ONCE(mw->mkey.qp, 0);
	if (!mr)
		return;
	mw->mr = NULL;
	/* bound, it stays; then only until its lock is let go of */
	refcount_inc(&mr->mkey.ref);
	mutex_lock_nested(&mr->mkey.lock, SINGLE_DEPTH_NESTING);
	mr->bound--;
	mutex_unlock(&mr->mkey.lock);
	mic_mkey_put(&mr->mkey);
}

int mic_dealloc_mw(struct ib_mw *ibmw)
{
	struct mic_mw_state *state = container_of(ibmw, struct mic_mw,
						  ibmw)->state;
	struct mic_dev *dev = to_mic_dev(ibmw->device);

	mic_mkey_destroy(dev, &state->mkey);
	mutex_lock(&state->mkey.lock);
	mic_mw_unbind(state);
	mutex_unlock(&state->mkey.lock);
	kfree_rcu(state, mkey.rcu);
	atomic_dec(&dev->nmw);
	return 0;
}
