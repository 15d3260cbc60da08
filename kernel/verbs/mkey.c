// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory keys: look-up, check, revocation. (Which one is next: keys.c.)
 */
#include <linux/wait_bit.h>

#include "dev.h"
#include "mr.h"
#include "windows.h"

#define MIC_MKEY_INDEX_MAX	((1U << 24) - 1)

/**
 * mic_mkey_alloc - reserve a key
 * @dev: device
 * @mkey: zeroed; its key is set, the rest is for the caller to fill in
 *
 * The key can't be found before mic_mkey_publish().
 *
 * Return: 0, -ENOMEM.
 */
int mic_mkey_alloc(struct mic_dev *dev, struct mic_mkey *mkey)
{
	int err;

	err = mic_keys_pick(&dev->keys, &dev->mkeys, MIC_MKEY_INDEX_MAX,
			    &mkey->key);
	if (err)
		return err;
	refcount_set(&mkey->ref, 1);
	init_completion(&mkey->gone);
	atomic_set(&mkey->users, 0);
	mutex_init(&mkey->lock);
	INIT_LIST_HEAD(&mkey->imports);
	INIT_LIST_HEAD(&mkey->grants);
	return 0;
}

/**
 * mic_mkey_publish - a key can be looked up from now on
 * @dev: device
 * @mkey: complete but for &mic_mkey.valid, which is set if it is to be used
 */
void mic_mkey_publish(struct mic_dev *dev, struct mic_mkey *mkey)
{
	/* the slot was reserved by mic_mkey_alloc(), nothing to allocate */
	xa_store(&dev->mkeys, mkey->key >> 8, mkey, GFP_KERNEL);
}

/**
 * mic_mkey_hide - a key can't be looked up any more
 * @dev: device
 * @mkey: key
 *
 * On return nothing uses the key or its memory, and no process has it mapped
 * by means of the key; its index stays reserved, and
 * mic_mkey_publish() makes it known again.
 *
 * Context: process context; waits for copies under way, whose length the
 * engine bounds.
 */
void mic_mkey_hide(struct mic_dev *dev, struct mic_mkey *mkey)
{
	xa_store(&dev->mkeys, mkey->key >> 8, XA_ZERO_ENTRY, GFP_KERNEL);
	mic_mkey_put(mkey);
	wait_for_completion(&mkey->gone);
	mic_imports_revoke_mkey(mkey);
	reinit_completion(&mkey->gone);
	refcount_set(&mkey->ref, 1);
}

/**
 * mic_mkey_destroy - a key exists no more
 * @dev: device
 * @mkey: key
 *
 * On return nothing uses the key or its memory, and no process has it mapped
 * by means of the key. The structure has to be freed with kfree_rcu().
 *
 * Context: as mic_mkey_hide().
 */
void mic_mkey_destroy(struct mic_dev *dev, struct mic_mkey *mkey)
{
	xa_erase(&dev->mkeys, mkey->key >> 8);
	mic_mkey_put(mkey);
	wait_for_completion(&mkey->gone);
	mic_imports_revoke_mkey(mkey);
}

/**
 * mic_mkey_get - look a key up by its index
 * @dev: device
 * @key: lkey or rkey; mic_mkey_seg() checks the rest of it
 *
 * Context: any.
 * Return: the key with a reference, or NULL.
 */
struct mic_mkey *mic_mkey_get(struct mic_dev *dev, u32 key)
{
	struct mic_mkey *mkey;

	rcu_read_lock();
	mkey = mic_xa_load(&dev->mkeys, key >> 8);
	if (mkey && !refcount_inc_not_zero(&mkey->ref))
		mkey = NULL;
	/* mic_mkey_hide() may have set it anew: the count, then what it counts for */
	smp_acquire__after_ctrl_dep();
	rcu_read_unlock();
	return mkey;
}

/**
 * mic_mkey_put - drop a reference
 * @mkey: key
 */
void mic_mkey_put(struct mic_mkey *mkey)
{
	if (refcount_dec_and_test(&mkey->ref))
		complete(&mkey->gone);
}

/**
 * mic_mkey_get_remote - look a key up to copy on behalf of another QP
 * @dev: device
 * @key: rkey
 *
 * mic_mkey_revoke() waits for such users. They must not wait for anything
 * before mic_mkey_put_remote().
 *
 * Return: the key with a reference, or NULL.
 */
struct mic_mkey *mic_mkey_get_remote(struct mic_dev *dev, u32 key)
{
	struct mic_mkey *mkey = mic_mkey_get(dev, key);

	if (mkey && mkey->revocable) {
		atomic_inc(&mkey->users);
		smp_mb__after_atomic();	/* before mic_mkey_seg() */
	}
	return mkey;
}

/**
 * mic_mkey_put_remote - the copy is done
 * @mkey: key from mic_mkey_get_remote()
 */
void mic_mkey_put_remote(struct mic_mkey *mkey)
{
	if (mkey->revocable && atomic_dec_and_test(&mkey->users))
		wake_up_var(&mkey->users);
	mic_mkey_put(mkey);
}

/**
 * mic_mkey_stop - a revocable key is not used any more
 * @mkey: key; the caller holds &mic_mkey.lock
 *
 * On return no copy on behalf of another QP is under way, and no process gets the
 * memory mapped by means of the key; what has it mapped mic_imports_revoke_mkey()
 * takes away.
 *
 * Context: process context; waits for copies under way.
 */
void mic_mkey_stop(struct mic_mkey *mkey)
{
	lockdep_assert_held(&mkey->lock);
	WRITE_ONCE(mkey->valid, false);
	smp_mb();	/* pairs with mic_mkey_get_remote() */
	wait_var_event(&mkey->users, !atomic_read(&mkey->users));
	smp_mb();	/* no users, then no windows they have added */
}

/**
 * mic_mkey_revoke - a revocable key grants nothing any more
 * @mkey: key; the caller holds &mic_mkey.lock
 *
 * On return no copy on behalf of another QP is under way, no process has the
 * memory mapped by means of the key, and the caller may change the key. What it
 * then stores becomes effective with a store release to &mic_mkey.valid.
 *
 * Context: process context; waits for copies under way.
 */
void mic_mkey_revoke(struct mic_mkey *mkey)
{
	mic_mkey_stop(mkey);
	mic_imports_revoke_mkey(mkey);
}

/**
 * mic_mkey_enable - a key grants what its fields say
 * @mkey: key that nobody else changes
 */
void mic_mkey_enable(struct mic_mkey *mkey)
{
	/* the fields before the flag, pairs with mic_mkey_seg() */
	smp_store_release(&mkey->valid, true);
}

/**
 * mic_mkey_seg - check an access and say where the memory is
 * @mkey: key
 * @key: what the consumer named it
 * @pd: protection domain of the queue that uses it
 * @access: rights that are needed, enum ib_access_flags
 * @addr: address of the first byte
 * @len: bytes
 * @seg: out; valid while the caller holds its reference
 *
 * Return: 0, -EACCES (invalid, domain or rights), -ERANGE (bounds).
 */
int mic_mkey_seg(const struct mic_mkey *mkey, u32 key, const struct ib_pd *pd,
		 int access, u64 addr, u64 len, struct mic_seg *seg)
{
	u64 off;

	/* the flag before the fields, pairs with who sets it */
	if (!smp_load_acquire(&mkey->valid) || mkey->key != key ||
	    mkey->pd != pd || (mkey->access & access) != access)
		return -EACCES;
	off = addr - mkey->iova;
	if (addr < mkey->iova || len > mkey->length ||
	    off > mkey->length - len)
		return -ERANGE;
	seg->win = mkey->win;
	seg->off = mkey->win_off + off;
	seg->len = len;
	return 0;
}
