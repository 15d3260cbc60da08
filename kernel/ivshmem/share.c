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

#include "ivs.h"

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

/* grants: what is this node's */

static void mic_share_write(struct mic_path *path, u32 slot, u32 live)
{
	/* what is in the pages before the word that opens them */
	virt_store_release(&path->granted[slot].grant,
			   path->share[slot].gen << 1 | live);
}

static void mic_share_set(struct mic_path *path, u32 slot, u32 live)
{
	/* a table of an entry that another has is not ours to write to */
	if (mic_ivs_term(path->ivs))
		mic_share_write(path, slot, live);
}

static void mic_share_note_recall(struct mic_share *share)
{
	if (!share->revoked)
		share->since = jiffies;
	share->revoked = true;
	share->told = jiffies;
}

/* The pages are to be given back. */
static void mic_share_recall(struct mic_path *path, u32 slot)
{
	lockdep_assert_held(&path->share_lock);
	mic_share_note_recall(&path->share[slot]);
	mic_share_set(path, slot, 0);
}

static void mic_share_revoke(struct mic_grant *grant)
{
	struct mic_path *path = grant->priv;
	struct mic_share *share = &path->share[grant->slot];
	bool told = false;

	spin_lock(&path->share_lock);
	if (share->grant == grant && !share->revoked) {
		mic_share_recall(path, grant->slot);
		told = true;
	}
	spin_unlock(&path->share_lock);
	if (told)
		mic_share_tell(path);
}

static int mic_share_find_free(const struct mic_path *path)
{
	int slot;

	for (slot = 0; slot < MIC_MAP_SLOTS; slot++)
		if (!path->share[slot].used)
			return slot;
	return -ENOSPC;
}

/* Never 0, nor what has been acknowledged. */
static u32 mic_share_next_gen(const struct mic_path *path, u32 slot)
{
	u32 gen = path->share[slot].gen;

	do {
		gen = (gen + 1) & (U32_MAX >> 1);
	} while (!gen || gen == READ_ONCE(path->granted[slot].ack));
	return gen;
}

/**
 * mic_share_grant - let the other node map pages of this one
 * @path: path that is up
 * @grant: holder's part is set
 * @map: out: number of the grant
 *
 * Context: any but interrupts.
 * Return: 0, -EOPNOTSUPP, -ENOSPC.
 */
int mic_share_grant(struct mic_path *path, struct mic_grant *grant,
		    struct mic_map *map)
{
	struct mic_share *share;
	int slot;

	if (!path->granted ||
	    (grant->piece && grant->piece->pool != &path->ivs->pool))
		return -EOPNOTSUPP;
	spin_lock(&path->share_lock);
	slot = mic_share_find_free(path);
	if (slot >= 0) {
		share = &path->share[slot];
		share->gen = mic_share_next_gen(path, slot);
		share->used = true;
		share->revoked = false;
		share->owner = path->up_peer;
		share->grant = grant;
		share->piece = grant->piece;
		share->extents = grant->extents;
		if (grant->piece)
			refcount_inc(&grant->piece->ref);
		path->nshares++;
		path->silent = false;
		grant->revoke = mic_share_revoke;
		grant->priv = path;
		grant->slot = slot;
		map->slot = slot;
		map->gen = share->gen;
		mic_share_set(path, slot, MIC_MAP_LIVE);
	}
	spin_unlock(&path->share_lock);
	return min(slot, 0);
}

/* Who had the pages says that it has not, or is not there any more. */
static bool mic_share_is_over(const struct mic_path *path, u32 slot)
{
	const struct mic_share *share = &path->share[slot];

	/* the last access to the pages, then the word */
	return virt_load_acquire(&path->granted[slot].ack) == share->gen ||
	       READ_ONCE(path->entry->owner) != share->owner;
}

/* A node that is silent for so long is not waited for, and then for no grant. */
static bool mic_share_is_overdue(const struct mic_path *path,
				 const struct mic_share *share)
{
	return share->revoked && share->grant &&
	       (path->silent ||
		time_after(jiffies, share->since +
				    msecs_to_jiffies(mic_dead_ms)));
}

/*
 * A path that is down has no grants. Once more if there is no answer: anybody can
 * write over the recall, and over the answer.
 */
static bool mic_share_is_to_recall(const struct mic_path *path,
				   const struct mic_share *share)
{
	if (!share->revoked)
		return !READ_ONCE(path->up);
	return time_after(jiffies, share->told +
				   msecs_to_jiffies(MIC_IVS_RECALL_MS));
}

/*
 * The pages can be something else. Those of the slice also if this node leaves
 * before the other has given them back: the next owner asks. Others would be
 * anybody's; they stay what they are.
 */
static void mic_share_put_pages(struct mic_path *path,
				const struct mic_share *was, bool over)
{
	if (was->piece)
		mic_piece_put(was->piece);
	else if (!was->extents)
		atomic_dec(&path->ivs->inherited);
	else if (over)
		mic_extents_put(was->extents);
	else
		mic_extents_free(was->extents);
	if (was->extents && !over)
		dev_warn_ratelimited(&path->ivs->pdev->dev,
				     "node %u has pages that it doesn't give back\n",
				     path->slot);
}

/* What became of one grant. Return: whether the table was changed. */
static bool mic_share_reap(struct mic_path *path, u32 slot, bool all)
{
	struct mic_share *share = &path->share[slot], was = {};
	struct mic_grant *ended = NULL;
	bool over, recalled = false;

	spin_lock(&path->share_lock);
	over = share->used && mic_share_is_over(path, slot);
	if (!share->used) {
		;
	} else if (all || over) {
		was = *share;
		ended = share->grant;
		recalled = !share->revoked;
		if (recalled)
			mic_share_recall(path, slot);
		*share = (struct mic_share) { .gen = was.gen };
		path->nshares--;
		path->silent = false;
	} else if (mic_share_is_to_recall(path, share)) {
		mic_share_recall(path, slot);
		recalled = true;
	} else if (mic_share_is_overdue(path, share)) {
		/* its holder waits no longer, the pages do */
		path->silent = true;
		ended = share->grant;
		share->grant = NULL;
	}
	spin_unlock(&path->share_lock);

	if (ended)
		ended->end(ended);
	if (was.used)
		mic_share_put_pages(path, &was, over);
	return recalled;
}

/* leases: what is the other's */

/* Nothing of it is mapped here. */
static void mic_share_ack(struct mic_path *path, u32 slot, u32 gen)
{
	lockdep_assert_held(&mic_lease_lock);
	if (mic_ivs_term(path->ivs))
		/* the last access to the pages, then the word */
		virt_store_release(&path->leased[slot].ack, gen);
}

static void mic_share_release(struct mic_lease *lease)
{
	struct mic_path *path = lease->priv;

	path->lease[lease->slot] = NULL;
	path->nleases--;
	mic_share_ack(path, lease->slot, lease->gen);
	mic_share_tell(path);
}

/* Only pages of the other's slice; the rest of the region is the kernels'. */
static bool mic_share_map_ok(const struct mic_path *path,
			     const struct mic_map *map)
{
	u64 start = mic_slice_offset(path->ivs, path->slot) + MIC_SLICE_TABLE;
	u64 end = start + path->ivs->geo.slice_size - MIC_SLICE_TABLE;

	return IS_ALIGNED(map->offset | map->length, PAGE_SIZE) &&
	       map->length && map->offset >= start && map->offset < end &&
	       map->length <= end - map->offset;
}

/**
 * mic_share_attach - &mic_node_ops.attach
 * @node: the other node, which is live
 * @lease: out
 * @map: what it says that it has granted
 *
 * Return: 0, -ENOTCONN, -EPROTO, -ENOMEM.
 */
int mic_share_attach(struct mic_node *node, struct mic_lease *lease,
		     const struct mic_map *map)
{
	struct mic_path *path = node->priv;
	u32 slot = map->slot, word;
	int err = 0;

	lockdep_assert_held(&mic_lease_lock);
	if (!path->leased || slot >= MIC_MAP_SLOTS || path->lease[slot])
		return -EPROTO;
	word = READ_ONCE(path->leased[slot].grant);
	if (map->extents)
		err = mic_aperture_lease(path, lease, map);
	else if (!mic_share_map_ok(path, map))
		err = -EPROTO;
	if (err)
		;
	else if (word != (map->gen << 1 | MIC_MAP_LIVE) ||
		 READ_ONCE(path->leased[slot].ack) == map->gen)
		err = -ENOTCONN;
	if (err) {
		mic_share_ack(path, slot, map->gen);
		mic_share_tell(path);
		return err;
	}
	if (!map->extents)
		lease->phys = path->ivs->phys + map->offset;
	lease->release = mic_share_release;
	lease->priv = path;
	lease->slot = slot;
	lease->gen = map->gen;
	path->lease[slot] = lease;
	path->nleases++;
	return 0;
}

/**
 * mic_share_disown - nobody here waits for what the other node has granted
 * @path: path
 * @map: what it was
 *
 * Context: process context, &mic_path.rx_mutex held.
 */
void mic_share_disown(struct mic_path *path, const struct mic_map *map)
{
	if (!map->gen || map->slot >= MIC_MAP_SLOTS)
		return;
	WRITE_ONCE(path->unwanted[map->slot], map->gen);
	mic_share_wake(path);
}

/* Nothing of a lease is mapped any more, and nothing will be. */
static void mic_share_end_lease(struct mic_path *path, u32 slot)
{
	struct mic_lease *lease = path->lease[slot];

	lockdep_assert_held(&mic_lease_lock);
	lease->revoke(lease);
	lease->release = NULL;
	path->lease[slot] = NULL;
	path->nleases--;
}

/* A lease that does not stand any more is mapped by nobody else. */
static void mic_share_heed(struct mic_path *path, u32 slot, bool up)
{
	u32 word = READ_ONCE(path->leased[slot].grant);
	struct mic_lease *lease = path->lease[slot];

	if (lease && !(up && word == (lease->gen << 1 | MIC_MAP_LIVE)))
		lease->recall(lease);
}

/* Does what the table says of a slot still hold? Return: whether it was changed. */
static bool mic_share_obey(struct mic_path *path, u32 slot, bool up)
{
	u32 word = READ_ONCE(path->leased[slot].grant), gen = word >> 1;
	struct mic_lease *lease = path->lease[slot];
	bool live = up && word & MIC_MAP_LIVE;

	if (lease && live && gen == lease->gen)
		return false;
	if (lease) {
		gen = lease->gen;
		mic_share_end_lease(path, slot);
	} else if ((live && READ_ONCE(path->unwanted[slot]) != gen) ||
		   READ_ONCE(path->leased[slot].ack) == gen) {
		/* it is on its way to somebody, or all is said */
		return false;
	}
	mic_share_ack(path, slot, gen);
	return true;
}

static bool mic_lease_touches(const struct mic_lease *lease,
			      phys_addr_t start, phys_addr_t end)
{
	u32 i;

	for (i = 0; i < lease->nruns; i++)
		if (lease->run[i].pfn >= PHYS_PFN(start) &&
		    lease->run[i].pfn < PHYS_PFN(end))
			return true;
	return false;
}

/**
 * mic_share_take_away - memory of the other node can't be reached any more
 * @path: path
 * @start: where it was
 * @end: behind it
 *
 * Context: mic_lease_lock is held.
 */
void mic_share_take_away(struct mic_path *path, phys_addr_t start,
			 phys_addr_t end)
{
	bool changed = false;
	u32 slot, gen;

	lockdep_assert_held(&mic_lease_lock);
	for (slot = 0; slot < MIC_MAP_SLOTS; slot++)
		if (path->lease[slot] &&
		    mic_lease_touches(path->lease[slot], start, end))
			path->lease[slot]->recall(path->lease[slot]);
	for (slot = 0; slot < MIC_MAP_SLOTS; slot++) {
		if (!path->lease[slot] ||
		    !mic_lease_touches(path->lease[slot], start, end))
			continue;
		gen = path->lease[slot]->gen;
		mic_share_end_lease(path, slot);
		mic_share_ack(path, slot, gen);
		changed = true;
	}
	if (changed)
		mic_share_tell(path);
}

static void mic_share_run(struct mic_path *path, bool all)
{
	bool changed = false, up;
	u32 slot;

	for (slot = 0; slot < MIC_MAP_SLOTS; slot++)
		changed |= mic_share_reap(path, slot, all);
	mutex_lock(&mic_lease_lock);
	up = READ_ONCE(path->up);
	/* all first: a process with much to be taken away is gone through once */
	for (slot = 0; slot < MIC_MAP_SLOTS; slot++)
		mic_share_heed(path, slot, up);
	for (slot = 0; slot < MIC_MAP_SLOTS; slot++)
		changed |= mic_share_obey(path, slot, up);
	mutex_unlock(&mic_lease_lock);
	if (changed)
		mic_share_tell(path);
}

static void mic_share_work(struct work_struct *work)
{
	mic_share_run(container_of(work, struct mic_path, share_work), false);
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
		queue_work(mic_ivs_wq, &path->share_work);
}

/* Has the other node pages of this one? What another owner has granted does not count. */
static bool mic_share_lends(struct mic_path *path)
{
	const struct mic_share *share;
	bool lends = false;
	u32 slot;

	spin_lock(&path->share_lock);
	for (slot = 0; path->nshares && !lends && slot < MIC_MAP_SLOTS; slot++) {
		share = &path->share[slot];
		lends = share->used && (share->piece || share->extents);
	}
	spin_unlock(&path->share_lock);
	return lends;
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
			if (!ivs->path[i] || !mic_share_lends(ivs->path[i]))
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

/*
 * Another owner of the entry has used the slot; what this node had granted with it
 * was over before. Return: that.
 */
static struct mic_share mic_share_replace(struct mic_path *path, u32 slot,
					  u32 gen)
{
	struct mic_share *share = &path->share[slot], was = *share;

	lockdep_assert_held(&path->share_lock);
	if (was.used)
		path->nshares--;
	*share = (struct mic_share) { .gen = gen };
	share->owner = READ_ONCE(path->entry->owner);
	if (share->owner && READ_ONCE(path->granted[slot].ack) != gen) {
		share->used = true;
		path->nshares++;
		atomic_inc(&path->ivs->inherited);
	}
	return was;
}

static void mic_share_inherit_slot(struct mic_path *path, u32 slot)
{
	struct mic_share *share = &path->share[slot], was = {};
	u32 gen = READ_ONCE(path->granted[slot].grant) >> 1;

	spin_lock(&path->share_lock);
	/* no owner writes 0 */
	if (gen && gen != share->gen)
		was = mic_share_replace(path, slot, gen);
	if (share->used) {
		mic_share_note_recall(share);
		mic_share_write(path, slot, 0);
	}
	spin_unlock(&path->share_lock);

	if (was.grant)
		was.grant->end(was.grant);
	if (was.used)
		mic_share_put_pages(path, &was, true);
}

/**
 * mic_share_inherit - recall what others had granted who had this node's entry
 * @path: path that is down; the node has its entry, or has it again, but its &mic_ivs.term
 *	is 0 unless the path is new
 *
 * The other node may still have that mapped, and this node's own. It is told by
 * mic_share_tell().
 *
 * Context: process context.
 */
void mic_share_inherit(struct mic_path *path)
{
	u32 slot;

	if (!path->granted)
		return;
	/* another word than the last that was written, whoever did */
	atomic_set(&path->maps, READ_ONCE(path->tx_ch->maps));
	for (slot = 0; slot < MIC_MAP_SLOTS; slot++)
		mic_share_inherit_slot(path, slot);
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
	mic_share_inherit(path);
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
		mic_share_reap(path, slot, true);
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
	mic_share_run(path, true);
	kvfree(path->share);
}
