// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * On-demand paging: letting go of pages, without waiting for anybody.
 *
 * A page that was written has to be marked, under its lock, which a file system
 * may hold for as long as it likes. Who has copied holds locks of others, so such
 * a page is left to a worker, and that tries again until it gets the lock.
 */
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "odp.h"

#define MIC_UNPIN_RETRY		msecs_to_jiffies(10)

static void mic_unpin_work(struct work_struct *work);

static DEFINE_SPINLOCK(mic_unpin_lock);
static struct mic_pin *mic_unpin_list;
static DECLARE_DELAYED_WORK(mic_unpin_dwork, mic_unpin_work);

static bool mic_page_mark(struct page *page)
{
	if (PageDirty(page))
		return true;
	if (!trylock_page(page))
		return false;
	set_page_dirty(page);
	unlock_page(page);
	return true;
}

/* Let go of what can be marked. Return: whether that was all. */
static bool mic_pin_release(struct mic_pin *pin)
{
	u32 i, left = 0;

	for (i = 0; pin->write && i < pin->npages; i++) {
		if (mic_page_mark(pin->page[i]))
			continue;
		/* swap() takes its arguments twice */
		swap(pin->page[left], pin->page[i]);
		left++;
	}
	unpin_user_pages(pin->page + left, pin->npages - left);
	pin->npages = left;
	return !left;
}

static void mic_unpin_later(struct mic_pin *pin)
{
	spin_lock(&mic_unpin_lock);
	pin->next = mic_unpin_list;
	mic_unpin_list = pin;
	spin_unlock(&mic_unpin_lock);
	schedule_delayed_work(&mic_unpin_dwork, MIC_UNPIN_RETRY);
}

static struct mic_pin *mic_unpin_take(void)
{
	struct mic_pin *pins;

	spin_lock(&mic_unpin_lock);
	pins = mic_unpin_list;
	mic_unpin_list = NULL;
	spin_unlock(&mic_unpin_lock);
	return pins;
}

static void mic_unpin_work(struct work_struct *work)
{
	struct mic_pin *pins = mic_unpin_take(), *pin;

	while ((pin = pins)) {
		pins = pin->next;
		mic_pin_free(pin);
		cond_resched();
	}
}

/**
 * mic_pin_free - let go of pages
 * @pin: pages; not the caller's any more
 *
 * Context: process context; does not wait for whoever has a page locked.
 */
void mic_pin_free(struct mic_pin *pin)
{
	if (mic_pin_release(pin))
		kvfree(pin);
	else
		mic_unpin_later(pin);
}

/**
 * mic_unpin_exit - wait for the locks of pages that are still to be let go
 *
 * Context: nobody makes pins any more.
 */
void mic_unpin_exit(void)
{
	struct mic_pin *pins, *pin;

	cancel_delayed_work_sync(&mic_unpin_dwork);
	pins = mic_unpin_take();
	while ((pin = pins)) {
		pins = pin->next;
		unpin_user_pages_dirty_lock(pin->page, pin->npages, true);
		kvfree(pin);
	}
}
