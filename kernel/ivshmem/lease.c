// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What another node lets this one map, of its slice or in an aperture: leases.
 */
#include "path.h"

/* Nothing of it is mapped here. */
static void mic_lease_ack(struct mic_path *path, u32 slot, u32 gen)
{
	lockdep_assert_held(&mic_lease_lock);
	if (mic_ivs_term(path->ivs))
		/* the last access to the pages, then the word */
		virt_store_release(&path->leased[slot].ack, gen);
}

static void mic_lease_release(struct mic_lease *lease)
{
	struct mic_path *path = lease->priv;

	path->lease[lease->slot] = NULL;
	path->nleases--;
	mic_lease_ack(path, lease->slot, lease->gen);
	mic_share_tell(path);
}

/* Only pages of the other's slice; the rest of the region is the kernels'. */
static bool mic_lease_map_ok(const struct mic_path *path,
			     const struct mic_map *map)
{
	u64 start = mic_slice_offset(path->ivs, path->slot) + MIC_SLICE_TABLE;
	u64 end = start + path->ivs->geo.slice_size - MIC_SLICE_TABLE;

	return IS_ALIGNED(map->offset | map->length, PAGE_SIZE) &&
	       map->length && map->offset >= start && map->offset < end &&
	       map->length <= end - map->offset;
}

/**
 * mic_lease_attach - &mic_node_ops.attach
 * @node: the other node, which is live
 * @lease: out
 * @map: what it says that it has granted
 *
 * Return: 0, -ENOTCONN, -EPROTO, -ENOMEM.
 */
int mic_lease_attach(struct mic_node *node, struct mic_lease *lease,
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
	else if (!mic_lease_map_ok(path, map))
		err = -EPROTO;
	if (err)
		;
	else if (word != (map->gen << 1 | MIC_MAP_LIVE) ||
		 READ_ONCE(path->leased[slot].ack) == map->gen)
		err = -ENOTCONN;
	if (err) {
		mic_lease_ack(path, slot, map->gen);
		mic_share_tell(path);
		return err;
	}
	if (!map->extents)
		lease->phys = path->ivs->phys + map->offset;
	lease->release = mic_lease_release;
	lease->priv = path;
	lease->slot = slot;
	lease->gen = map->gen;
	path->lease[slot] = lease;
	path->nleases++;
	return 0;
}

/**
 * mic_lease_disown - nobody here waits for what the other node has granted
 * @path: path
 * @map: what it was
 *
 * Context: process context, &mic_path.rx_mutex held.
 */
void mic_lease_disown(struct mic_path *path, const struct mic_map *map)
{
	if (!map->gen || map->slot >= MIC_MAP_SLOTS)
		return;
	WRITE_ONCE(path->unwanted[map->slot], map->gen);
	mic_share_wake(path);
}

/* Nothing of a lease is mapped any more, and nothing will be. */
static void mic_lease_finish(struct mic_path *path, u32 slot)
{
	struct mic_lease *lease = path->lease[slot];

	lockdep_assert_held(&mic_lease_lock);
	lease->revoke(lease);
	lease->release = NULL;
	path->lease[slot] = NULL;
	path->nleases--;
}

/* A lease that does not stand any more is mapped by nobody else. */
static void mic_lease_heed(struct mic_path *path, u32 slot, bool up)
{
	u32 word = READ_ONCE(path->leased[slot].grant);
	struct mic_lease *lease = path->lease[slot];

	if (lease && !(up && word == (lease->gen << 1 | MIC_MAP_LIVE)))
		lease->recall(lease);
}

/* Does what the table says of a slot still hold? Return: whether it was changed. */
static bool mic_lease_obey_slot(struct mic_path *path, u32 slot, bool up)
{
	u32 word = READ_ONCE(path->leased[slot].grant), gen = word >> 1;
	struct mic_lease *lease = path->lease[slot];
	bool live = up && word & MIC_MAP_LIVE;

	if (lease && live && gen == lease->gen)
		return false;
	if (lease) {
		gen = lease->gen;
		mic_lease_finish(path, slot);
	} else if ((live && READ_ONCE(path->unwanted[slot]) != gen) ||
		   READ_ONCE(path->leased[slot].ack) == gen) {
		/* it is on its way to somebody, or all is said */
		return false;
	}
	mic_lease_ack(path, slot, gen);
	return true;
}

/**
 * mic_lease_obey - end all leases that the other node's table does not have any more
 * @path: path
 *
 * Context: mic_lease_lock is held.
 * Return: whether something was acknowledged.
 */
bool mic_lease_obey(struct mic_path *path)
{
	bool changed = false, up = READ_ONCE(path->up);
	u32 slot;

	lockdep_assert_held(&mic_lease_lock);
	/* all first: a process with much to be taken away is gone through once */
	for (slot = 0; slot < MIC_MAP_SLOTS; slot++)
		mic_lease_heed(path, slot, up);
	for (slot = 0; slot < MIC_MAP_SLOTS; slot++)
		changed |= mic_lease_obey_slot(path, slot, up);
	return changed;
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
 * mic_lease_take_away - memory of the other node can't be reached any more
 * @path: path
 * @start: where it was
 * @end: behind it
 *
 * Context: mic_lease_lock is held.
 */
void mic_lease_take_away(struct mic_path *path, phys_addr_t start,
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
		mic_lease_finish(path, slot);
		mic_lease_ack(path, slot, gen);
		changed = true;
	}
	if (changed)
		mic_share_tell(path);
}
