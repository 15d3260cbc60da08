// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What nodes let each other map: of this node's slice, or of all its memory if the
 * other has it in an aperture, by grants; and of the other's, by leases.
 *
 * They agree on it in the table that a slice begins with. A grant is a number that
 * the slice's node writes there, with a bit that says whether it holds. The other
 * node acknowledges the number when nothing is mapped any more, because the bit was
 * cleared or of its own accord; only then the pages can be something else. Whoever
 * wrote to the table rings the other, whose worker looks at all of it: taking
 * pages out of mappings takes its time, and the path's thread does not wait.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>

#include "path.h"

/* A table of the slice of @owner: what it lets @peer map. */
static struct mic_region_map *mic_share_table(struct mic_ivs *ivs, u32 owner,
					      u32 peer)
{
	struct mic_region_map *table = ivs->mem + mic_slice_offset(ivs, owner);

	return table + peer * MIC_MAP_SLOTS;
}

/**
 * mic_share_tell - let the other node know that a table has changed
 * @path: path; nothing happens while another node has this one's entry
 *
 * Context: any.
 */
void mic_share_tell(struct mic_path *path)
{
	if (!mic_ivs_term(path->ivs))
		return;
	/* the table, then the word that says so; each time another one */
	virt_store_release(&path->tx_ch->maps, atomic_inc_return(&path->maps));
	mic_path_ring_always(path);
}

static void mic_share_run(struct mic_path *path, enum mic_reap reap)
{
	bool changed = false;
	u32 slot;

	for (slot = 0; slot < MIC_MAP_SLOTS; slot++)
		changed |= mic_grant_reap(path, slot, reap);
	mutex_lock(&mic_lease_lock);
	changed |= mic_lease_obey(path);
	mutex_unlock(&mic_lease_lock);
	if (changed)
		mic_share_tell(path);
}

static void mic_share_work(struct work_struct *work)
{
	mic_share_run(container_of(work, struct mic_path, share_work),
		      MIC_REAP_OVER);
}

/**
 * mic_share_wake - have the worker look at the tables
 * @path: path
 *
 * Context: any.
 */
void mic_share_wake(struct mic_path *path)
{
	if (path->granted)
		queue_work(mic_share_wq, &path->share_work);
}

/**
 * mic_share_await - wait until nobody has pages of this node any more
 * @ivs: device whose paths are down, and stay down
 *
 * At most &mic_dead_ms.
 *
 * Context: process context, sleeps.
 */
void mic_share_await(struct mic_ivs *ivs)
{
	unsigned long end = jiffies + msecs_to_jiffies(mic_dead_ms);
	bool any;
	u32 i;

	do {
		any = false;
		for (i = 0; i < ivs->geo.nodes; i++) {
			if (!ivs->path[i] || !mic_grant_any(ivs->path[i]))
				continue;
			mic_share_wake(ivs->path[i]);
			any = true;
		}
		if (any)
			msleep(20);
	} while (any && time_before(jiffies, end));
}

/**
 * mic_share_flush - wait until all is done that a path's end leads to
 * @path: path that is down, and that nobody wakes the worker for
 */
void mic_share_flush(struct mic_path *path)
{
	if (path->granted)
		flush_work(&path->share_work);
}

/**
 * mic_share_look - has the other node changed a table?
 * @path: path
 *
 * Context: the path's thread.
 */
void mic_share_look(struct mic_path *path)
{
	/* the word, then the table */
	u32 maps = virt_load_acquire(&path->rx_ch->maps);

	if (maps == path->maps_seen)
		return;
	path->maps_seen = maps;
	mic_share_wake(path);
	/* more at once is nothing that helps either side */
	if (time_before(jiffies, path->maps_at + 1))
		usleep_range(100, 200);
	path->maps_at = jiffies;
}

/**
 * mic_share_init - a path that has no grants and no leases
 * @path: path; the node has joined the region
 *
 * Return: 0 or -ENOMEM.
 */
int mic_share_init(struct mic_path *path)
{
	struct mic_ivs *ivs = path->ivs;

	spin_lock_init(&path->share_lock);
	INIT_WORK(&path->share_work, mic_share_work);
	if (!mic_ivs_has_slices(ivs))
		return 0;
	path->share = kvcalloc(MIC_MAP_SLOTS, sizeof(*path->share), GFP_KERNEL);
	if (!path->share)
		return -ENOMEM;
	path->granted = mic_share_table(ivs, ivs->slot, path->slot);
	path->leased = mic_share_table(ivs, path->slot, ivs->slot);
	mic_grant_inherit(path);
	/* nobody looks for what a machine that is gone had granted until he is told */
	if (path->nshares)
		mic_share_tell(path);
	return 0;
}

/**
 * mic_share_abandon - end all grants, without the other node
 * @path: parked path; what is still mapped keeps its pages
 */
void mic_share_abandon(struct mic_path *path)
{
	u32 slot;

	for (slot = 0; path->granted && slot < MIC_MAP_SLOTS; slot++)
		mic_grant_reap(path, slot, MIC_REAP_LOST);
}

/**
 * mic_share_exit - the end of all grants and leases
 * @path: path without thread, whose node has left
 */
void mic_share_exit(struct mic_path *path)
{
	if (!path->granted)
		return;
	cancel_work_sync(&path->share_work);
	mic_share_run(path, MIC_REAP_ALL);
	kvfree(path->share);
}
