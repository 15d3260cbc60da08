// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Watches: a process is told when memory of its own is not what it was.
 *
 * A region that was registered keeps the pages it was made of, whatever the
 * process maps in their place. Who keeps regions to use them again, or copies
 * without asking us, has to know whether they are still the same. A watch tells
 * it in a state word of the windows file, so that looking costs no system call.
 *
 * A word may say that memory has changed where it has not: the kernel also
 * announces attempts. It never says less: it is written before the page tables
 * change. What was pinned after a watch was made, and has the word 0, is what
 * is mapped.
 */
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "windows.h"

/**
 * struct mic_watch - a range of memory and its state word
 * @notifier: tells what becomes of it
 * @ws: file with the word
 * @slot: index of the word
 */
struct mic_watch {
	struct mmu_interval_notifier notifier;
	struct mic_windows *ws;
	u32 slot;
};

static u32 mic_watch_meaning(enum mmu_notifier_event event)
{
	switch (event) {
	case MMU_NOTIFY_PROTECTION_VMA:
		return MIC_WATCH_PROTECTED;
	case MMU_NOTIFY_PROTECTION_PAGE:	/* fork, writeback: same page */
	case MMU_NOTIFY_SOFT_DIRTY:
		return 0;
	default:
		return MIC_WATCH_CHANGED;
	}
}

static bool mic_watch_invalidate(struct mmu_interval_notifier *notifier,
				 const struct mmu_notifier_range *range,
				 unsigned long seq)
{
	struct mic_watch *watch = container_of(notifier, struct mic_watch,
					       notifier);

	mmu_interval_set_seq(notifier, seq);
	mic_windows_add_state(watch->ws, watch->slot,
			      mic_watch_meaning(range->event));
	return true;
}

static const struct mmu_interval_notifier_ops mic_watch_ops = {
	.invalidate = mic_watch_invalidate,
};

static struct mic_watch *mic_watch_create(struct mic_windows *ws, u64 addr,
					  u64 length)
{
	struct mic_watch *watch;
	int err;

	watch = kzalloc(sizeof(*watch), GFP_KERNEL_ACCOUNT);
	if (!watch)
		return ERR_PTR(-ENOMEM);
	watch->ws = ws;
	err = mic_windows_take_slot(ws, &watch->slot);
	if (err)
		goto err_free;
	err = mmu_interval_notifier_insert(&watch->notifier, ws->mm, addr,
					   length, &mic_watch_ops);
	if (err)
		goto err_slot;
	/* a change that is under way is not told; let it end */
	mmu_interval_read_begin(&watch->notifier);
	return watch;

err_slot:
	mic_windows_give_slot(ws, watch->slot);
err_free:
	kfree(watch);
	return ERR_PTR(err);
}

static void mic_watch_free(struct mic_watch *watch)
{
	mmu_interval_notifier_remove(&watch->notifier);
	mic_windows_give_slot(watch->ws, watch->slot);
	kfree(watch);
}

/**
 * mic_watch_add - watch a range of the caller's memory
 * @ws: windows file of the caller
 * @ureq: range; out: slot
 *
 * Context: process context, without locks.
 * Return: 0 or an error.
 */
long mic_watch_add(struct mic_windows *ws, struct mic_memory_watch __user *ureq)
{
	struct mic_memory_watch req;
	struct mic_watch *watch;
	u32 slot;
	int err;

	if (copy_from_user(&req, ureq, sizeof(req)))
		return -EFAULT;
	req.addr = untagged_addr(req.addr);
	if (req.reserved || !req.length ||
	    req.addr + req.length - 1 < req.addr)
		return -EINVAL;
	watch = mic_watch_create(ws, req.addr, req.length);
	if (IS_ERR(watch))
		return PTR_ERR(watch);
	slot = watch->slot;
	req.slot = slot;
	err = copy_to_user(ureq, &req, sizeof(req)) ? -EFAULT : 0;
	if (!err)
		err = xa_err(xa_store(&ws->watches, slot, watch,
				      GFP_KERNEL_ACCOUNT));
	if (err)
		mic_watch_free(watch);
	return err;
}

/**
 * mic_watch_drop - end a watch
 * @ws: windows file of the caller
 * @slot: what mic_watch_add() gave
 *
 * Context: process context, without locks.
 * Return: 0 or -EINVAL.
 */
long mic_watch_drop(struct mic_windows *ws, unsigned long slot)
{
	struct mic_watch *watch = NULL;

	if (slot < MIC_WINDOW_SLOTS)
		watch = xa_erase(&ws->watches, slot);
	if (!watch)
		return -EINVAL;
	mic_watch_free(watch);
	return 0;
}

/**
 * mic_watch_drop_all - end all watches of a file that nobody has any more
 * @ws: windows file
 */
void mic_watch_drop_all(struct mic_windows *ws)
{
	unsigned long slot;
	void *watch;

	xa_for_each(&ws->watches, slot, watch) {
		mic_watch_drop(ws, slot);
		cond_resched();
	}
	xa_destroy(&ws->watches);
}
