// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What this node lets another map, of its slice, or of all its memory if the other
 * has it in an aperture: grants.
 */
#include <linux/jiffies.h>

#include "path.h"

static void mic_grant_write(struct mic_path *path, u32 slot, u32 live)
{
	/* what is in the pages before the word that opens them */
	virt_store_release(&path->granted[slot].grant,
			   path->share[slot].gen << 1 | live);
}

static void mic_grant_set(struct mic_path *path, u32 slot, u32 live)
{
	/* a table of an entry that another has is not ours to write to */
	if (mic_ivs_term(path->ivs))
		mic_grant_write(path, slot, live);
}

static void mic_grant_note_recall(struct mic_share *share)
{
	if (!share->revoked)
		share->since = jiffies;
	share->revoked = true;
	share->told = jiffies;
}

/* The pages are to be given back. */
static void mic_grant_recall(struct mic_path *path, u32 slot)
{
	lockdep_assert_held(&path->share_lock);
	mic_grant_note_recall(&path->share[slot]);
	mic_grant_set(path, slot, 0);
}

static void mic_grant_revoke(struct mic_grant *grant)
{
	struct mic_path *path = grant->priv;
	struct mic_share *share = &path->share[grant->slot];
	bool told = false;

	spin_lock(&path->share_lock);
	if (share->grant == grant && !share->revoked) {
		mic_grant_recall(path, grant->slot);
		told = true;
	}
	spin_unlock(&path->share_lock);
	if (told)
		mic_share_tell(path);
}

static int mic_grant_find_free(const struct mic_path *path)
{
	int slot;

	for (slot = 0; slot < MIC_MAP_SLOTS; slot++)
		if (!path->share[slot].used)
			return slot;
	return -ENOSPC;
}

/* Never 0, nor what has been acknowledged. */
static u32 mic_grant_next_gen(const struct mic_path *path, u32 slot)
{
	u32 gen = path->share[slot].gen;

	do {
		gen = (gen + 1) & (U32_MAX >> 1);
	} while (!gen || gen == READ_ONCE(path->granted[slot].ack));
	return gen;
}

/**
 * mic_grant_open - let the other node map pages of this one
 * @path: path that is up
 * @grant: holder's part is set
 * @map: out: number of the grant
 *
 * Context: any but interrupts.
 * Return: 0, -EOPNOTSUPP, -ENOSPC.
 */
int mic_grant_open(struct mic_path *path, struct mic_grant *grant,
		   struct mic_map *map)
{
	struct mic_share *share;
	int slot;

	if (!path->granted ||
	    (grant->piece && grant->piece->pool != &path->ivs->pool))
		return -EOPNOTSUPP;
	spin_lock(&path->share_lock);
	slot = mic_grant_find_free(path);
	if (slot >= 0) {
		share = &path->share[slot];
		share->gen = mic_grant_next_gen(path, slot);
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
		grant->revoke = mic_grant_revoke;
		grant->priv = path;
		grant->slot = slot;
		map->slot = slot;
		map->gen = share->gen;
		mic_grant_set(path, slot, MIC_MAP_LIVE);
	}
	spin_unlock(&path->share_lock);
	return min(slot, 0);
}

/* Who had the pages says that it has not, or is not there any more. */
static bool mic_grant_is_over(const struct mic_path *path, u32 slot)
{
	const struct mic_share *share = &path->share[slot];

	/* the last access to the pages, then the word */
	return virt_load_acquire(&path->granted[slot].ack) == share->gen ||
	       READ_ONCE(path->entry->owner) != share->owner;
}

/* A node that is silent for so long is not waited for, and then for no grant. */
static bool mic_grant_is_overdue(const struct mic_path *path,
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
static bool mic_grant_is_to_recall(const struct mic_path *path,
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
static void mic_grant_put_pages(struct mic_path *path,
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

/**
 * mic_grant_reap - see what became of a grant
 * @path: path
 * @slot: of the grant, or of none
 * @reap: which ones end
 *
 * Context: process context.
 * Return: whether the table was changed.
 */
bool mic_grant_reap(struct mic_path *path, u32 slot, enum mic_reap reap)
{
	struct mic_share *share = &path->share[slot], was = {};
	struct mic_grant *ended = NULL;
	bool over, recalled = false;

	spin_lock(&path->share_lock);
	over = share->used && reap != MIC_REAP_LOST &&
	       mic_grant_is_over(path, slot);
	if (!share->used) {
		;
	} else if (over || reap != MIC_REAP_OVER) {
		was = *share;
		ended = share->grant;
		recalled = !share->revoked && reap != MIC_REAP_LOST;
		if (recalled)
			mic_grant_recall(path, slot);
		*share = (struct mic_share) { .gen = was.gen };
		path->nshares--;
		path->silent = false;
	} else if (mic_grant_is_to_recall(path, share)) {
		mic_grant_recall(path, slot);
		recalled = true;
	} else if (mic_grant_is_overdue(path, share)) {
		/* its holder waits no longer, the pages do */
		path->silent = true;
		ended = share->grant;
		share->grant = NULL;
	}
	spin_unlock(&path->share_lock);

	if (ended)
		ended->end(ended);
	if (was.used)
		mic_grant_put_pages(path, &was, over);
	return recalled;
}

/**
 * mic_grant_any - has the other node pages of this one?
 * @path: path
 *
 * What another owner of this node's entry has granted does not count.
 *
 * Context: any but interrupts.
 */
bool mic_grant_any(struct mic_path *path)
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

/*
 * Another owner of the entry has used the slot; what this node had granted with it
 * was over before. Return: that.
 */
static struct mic_share mic_grant_replace(struct mic_path *path, u32 slot,
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

static void mic_grant_inherit_slot(struct mic_path *path, u32 slot)
{
	struct mic_share *share = &path->share[slot], was = {};
	u32 gen = READ_ONCE(path->granted[slot].grant) >> 1;

	spin_lock(&path->share_lock);
	/* no owner writes 0 */
	if (gen && gen != share->gen)
		was = mic_grant_replace(path, slot, gen);
	if (share->used) {
		mic_grant_note_recall(share);
		mic_grant_write(path, slot, 0);
	}
	spin_unlock(&path->share_lock);

	if (was.grant)
		was.grant->end(was.grant);
	if (was.used)
		mic_grant_put_pages(path, &was, true);
}

/**
 * mic_grant_inherit - recall what others had granted who had this node's entry
 * @path: path that is down; the node has its entry, or has it again, but its &mic_ivs.term
 *	is 0 unless the path is new
 *
 * The other node may still have that mapped, and this node's own. It is told by
 * mic_share_tell().
 *
 * Context: process context.
 */
void mic_grant_inherit(struct mic_path *path)
{
	u32 slot;

	if (!path->granted)
		return;
	/* another word than the last that was written, whoever did */
	atomic_set(&path->maps, READ_ONCE(path->tx_ch->maps));
	for (slot = 0; slot < MIC_MAP_SLOTS; slot++)
		mic_grant_inherit_slot(path, slot);
}
