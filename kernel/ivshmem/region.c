// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The region's header, which the first node writes and every other one checks,
 * and the node table, in which each node has an entry.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/random.h>

#include <mic/compat.h>

#include "ivs.h"

static uint mic_nodes = 8;
module_param_named(nodes, mic_nodes, uint, 0444);
MODULE_PARM_DESC(nodes, "Nodes a region has room for, if this one formats it");

/* five beats of a heart, and an hour */
#define MIC_DEAD_MS_MIN	500
#define MIC_DEAD_MS_MAX	3600000

uint mic_dead_ms = 5000;

static int mic_dead_ms_set(const char *value, const struct kernel_param *param)
{
	return param_set_uint_minmax(value, param, MIC_DEAD_MS_MIN,
				     MIC_DEAD_MS_MAX);
}

static const struct kernel_param_ops mic_dead_ms_ops = {
	.set = mic_dead_ms_set,
	.get = param_get_uint,
};

module_param_cb(dead_ms, &mic_dead_ms_ops, &mic_dead_ms, 0644);
MODULE_PARM_DESC(dead_ms,
		 "Milliseconds without a heartbeat until a node is lost, 500 to 3600000 (5000)");

#define MIC_FORMAT_MS	2000	/* after that who formats is taken for dead */

static u32 mic_random_id(void)
{
	return get_random_u32() ?: 1;
}

/* Where things are follows from the number of nodes and the lanes' size. */
static void mic_geometry_fill(struct mic_geometry *geo, u32 nodes,
			      u32 lane_size)
{
	geo->nodes = nodes;
	geo->lane_size = lane_size;
	geo->table = MIC_REGION_HDR;
	geo->channels = ALIGN(geo->table +
			      nodes * sizeof(struct mic_region_node), 4096);
	geo->lanes = ALIGN(geo->channels + nodes * nodes *
			   sizeof(struct mic_region_channel), 4096);
	geo->slices = geo->lanes + (u64)nodes * nodes * MIC_LANES * lane_size;
}

/* Half of the region for lanes, the rest for device memory. */
static int mic_geometry_choose(struct mic_geometry *geo, u64 size)
{
	u32 nodes = clamp_t(u32, mic_nodes, 2, MIC_REGION_NODES);
	u64 lane = 0;

	for (; nodes >= 2; nodes--) {
		lane = div_u64(size / 2, nodes * nodes * MIC_LANES);
		if (lane >= MIC_LANE_MIN)
			break;
	}
	if (nodes < 2)
		return -ENOSPC;
	lane = min_t(u64, rounddown_pow_of_two(lane), MIC_LANE_MAX);
	mic_geometry_fill(geo, nodes, lane);
	geo->slice_size = round_down(div_u64(size - geo->slices, nodes), 4096);
	return 0;
}

static bool mic_nodes_are_possible(u32 nodes)
{
	return nodes >= 2 && nodes <= MIC_REGION_NODES;
}

static bool mic_lane_is_possible(u32 size)
{
	return size >= MIC_LANE_MIN && size <= MIC_LANE_MAX &&
	       is_power_of_2(size);
}

static void mic_region_write_hdr(const struct mic_ivs *ivs,
				 struct mic_region_hdr *hdr)
{
	const struct mic_geometry *geo = &ivs->geo;

	hdr->version = MIC_REGION_VERSION;
	hdr->nodes = geo->nodes;
	hdr->size = ivs->size;
	hdr->lane_size = geo->lane_size;
	hdr->id = ivs->id;
	hdr->table = geo->table;
	hdr->channels = geo->channels;
	hdr->lanes = geo->lanes;
	hdr->slices = geo->slices;
	hdr->slice_size = geo->slice_size;
	/* everything before the magic */
	virt_store_release(&hdr->magic, MIC_REGION_MAGIC);
}

/*
 * Return: false if another node has taken the lock: it took this one for dead, and
 * what it has formatted others may use already. (Who is stopped between the look and
 * what follows writes there nevertheless.)
 */
static bool mic_region_format(struct mic_ivs *ivs, struct mic_region_hdr *hdr,
			      u32 token)
{
	const struct mic_geometry *geo = &ivs->geo;
	u32 i;

	if (READ_ONCE(hdr->lock) != token)
		return false;
	memset(ivs->mem + geo->table, 0, geo->lanes - geo->table);
	for (i = 0; i < geo->nodes && mic_ivs_has_slices(ivs); i++)
		memset(ivs->mem + mic_slice_offset(ivs, i), 0, MIC_SLICE_TABLE);
	ivs->size = ivs->mem_size;
	ivs->id = mic_random_id();
	if (READ_ONCE(hdr->lock) != token)
		return false;
	mic_region_write_hdr(ivs, hdr);
	return true;
}

static int mic_region_check(struct mic_ivs *ivs,
			    const struct mic_region_hdr *shared)
{
	struct device *dev = &ivs->pdev->dev;
	struct mic_geometry *geo = &ivs->geo;
	struct mic_region_hdr hdr;

	memcpy(&hdr, shared, sizeof(hdr));
	barrier();
	if (hdr.version != MIC_REGION_VERSION) {
		dev_err(dev, "the region is of version %u, this is %u\n",
			hdr.version, MIC_REGION_VERSION);
		return -EPROTONOSUPPORT;
	}
	if (hdr.size > ivs->mem_size) {
		dev_err(dev, "the region has %llu bytes, the device %llu\n",
			hdr.size, ivs->mem_size);
		return -EOVERFLOW;
	}
	if (!mic_nodes_are_possible(hdr.nodes) ||
	    !mic_lane_is_possible(hdr.lane_size))
		goto nonsense;
	mic_geometry_fill(geo, hdr.nodes, hdr.lane_size);
	geo->slice_size = hdr.slice_size;
	if (hdr.table != geo->table || hdr.channels != geo->channels ||
	    hdr.lanes != geo->lanes || hdr.slices != geo->slices ||
	    hdr.slices > hdr.size || !IS_ALIGNED(hdr.slice_size, 4096) ||
	    hdr.slice_size > div_u64(hdr.size - hdr.slices, hdr.nodes))
		goto nonsense;
	ivs->id = hdr.id;
	ivs->size = hdr.size;
	return 0;

nonsense:
	dev_err(dev, "the region's header makes no sense\n");
	return -EPROTO;
}

/* Nothing is in the header but perhaps the lock. */
static bool mic_region_is_blank(const struct mic_region_hdr *hdr)
{
	return !memchr_inv(hdr, 0, offsetof(struct mic_region_hdr, lock)) &&
	       !memchr_inv(hdr + 1, 0, MIC_REGION_HDR - sizeof(*hdr));
}

/*
 * What there is of a header without its magic is what who formats may have written by
 * now, or until he died.
 */
static bool mic_region_is_begun(const struct mic_region_hdr *shared)
{
	struct mic_region_hdr hdr;

	memcpy(&hdr, shared, sizeof(hdr));
	barrier();
	if (hdr.magic)
		return hdr.magic == MIC_REGION_MAGIC;
	return !memchr_inv(shared + 1, 0, MIC_REGION_HDR - sizeof(hdr)) &&
	       (!hdr.version || hdr.version == MIC_REGION_VERSION) &&
	       (!hdr.nodes || mic_nodes_are_possible(hdr.nodes)) &&
	       (!hdr.lane_size || mic_lane_is_possible(hdr.lane_size)) &&
	       (!hdr.table || hdr.table == MIC_REGION_HDR) &&
	       IS_ALIGNED(hdr.size | hdr.channels | hdr.lanes | hdr.slices |
			  hdr.slice_size, 4096);
}

/* Neither blank nor ours: what somebody else keeps there. */
static bool mic_region_is_foreign(const struct mic_region_hdr *hdr)
{
	if (mic_region_is_blank(hdr))
		return false;
	/* who formats has the lock before he writes, and the magic before he leaves */
	virt_rmb();
	if (READ_ONCE(hdr->lock))
		return !mic_region_is_begun(hdr);
	virt_rmb();	/* the lock before the magic */
	return READ_ONCE(hdr->magic) != MIC_REGION_MAGIC;
}

/*
 * Take the lock, from a node that died with it if need be. Return: the word to
 * unlock it with, or 0.
 */
static u32 mic_region_lock(struct mic_region_hdr *hdr, u32 *holder,
			   unsigned long *since)
{
	u32 now = READ_ONCE(hdr->lock), token = mic_random_id();

	if (now != *holder) {
		*holder = now;
		*since = jiffies;
	}
	if (now && time_before(jiffies,
			       *since + msecs_to_jiffies(MIC_FORMAT_MS)))
		return 0;
	return mic_cmpxchg_shared(&hdr->lock, now, token) == now ? token : 0;
}

static void mic_region_unlock(struct mic_region_hdr *hdr, u32 token)
{
	mic_cmpxchg_shared(&hdr->lock, token, 0);
}

/**
 * mic_region_attach - have a region with a header that makes sense
 * @ivs: device; @mem and @mem_size are set
 *
 * Formats a blank region, unless another node is at it.
 *
 * Context: process context, sleeps.
 * Return: 0 or an error.
 */
int mic_region_attach(struct mic_ivs *ivs)
{
	unsigned long end = jiffies + msecs_to_jiffies(4 * MIC_FORMAT_MS);
	struct mic_region_hdr *hdr = ivs->mem;
	unsigned long since = jiffies;
	u32 holder = 0, token;
	bool formatted;
	int err;

	do {
		/* the magic before everything else */
		if (virt_load_acquire(&hdr->magic) == MIC_REGION_MAGIC)
			return mic_region_check(ivs, hdr);
		if (mic_region_is_foreign(hdr))
			break;
		token = mic_region_lock(hdr, &holder, &since);
		if (!token) {
			msleep(20);
			continue;
		}
		if (READ_ONCE(hdr->magic) == MIC_REGION_MAGIC) {
			mic_region_unlock(hdr, token);
			continue;
		}
		err = mic_geometry_choose(&ivs->geo, ivs->mem_size);
		if (err) {
			dev_err(&ivs->pdev->dev, "the region is too small\n");
			mic_region_unlock(hdr, token);
			return err;
		}
		formatted = mic_region_format(ivs, hdr, token);
		mic_region_unlock(hdr, token);
		if (!formatted)
			continue;
		dev_info(&ivs->pdev->dev, "formatted the region for %u nodes\n",
			 ivs->geo.nodes);
		return 0;
	} while (time_before(jiffies, end));

	dev_err(&ivs->pdev->dev, "the region is in use by something else\n");
	return -EBUSY;
}

/**
 * mic_region_stands - is this the region that was attached?
 * @ivs: device
 *
 * Return: false if somebody has written there, or formatted it anew.
 */
bool mic_region_stands(const struct mic_ivs *ivs)
{
	const struct mic_region_hdr *hdr = ivs->mem;

	return READ_ONCE(hdr->magic) == MIC_REGION_MAGIC &&
	       READ_ONCE(hdr->version) == MIC_REGION_VERSION &&
	       READ_ONCE(hdr->id) == ivs->id &&
	       READ_ONCE(hdr->nodes) == ivs->geo.nodes &&
	       READ_ONCE(hdr->lane_size) == ivs->geo.lane_size;
}

/**
 * mic_region_restore - write the header again that somebody has overwritten
 * @ivs: device that has its entry
 *
 * Who formats a region clears all entries. So a node that still has its own is in a
 * region that was not formatted anew, whatever is in the header.
 *
 * Context: the tick.
 */
void mic_region_restore(struct mic_ivs *ivs)
{
	struct mic_region_hdr *hdr = ivs->mem;
	u32 token;

	if (mic_region_stands(ivs))
		return;
	token = mic_region_lock(hdr, &ivs->lock_holder, &ivs->lock_since);
	if (!token)
		return;
	if (READ_ONCE(mic_region_node(ivs, ivs->slot)->owner) == ivs->owner) {
		mic_region_write_hdr(ivs, hdr);
		dev_warn_ratelimited(&ivs->pdev->dev,
				     "the region's header was overwritten\n");
	}
	mic_region_unlock(hdr, token);
}

/**
 * mic_region_is_another - was the region formatted anew?
 * @ivs: device that has lost its entry
 *
 * Return: true if there is a header, and not the one that was attached.
 */
bool mic_region_is_another(const struct mic_ivs *ivs)
{
	const struct mic_region_hdr *hdr = ivs->mem;

	return READ_ONCE(hdr->magic) == MIC_REGION_MAGIC &&
	       !mic_region_stands(ivs);
}

static bool mic_region_take(struct mic_ivs *ivs, u32 slot, u32 from)
{
	struct mic_region_node *entry = mic_region_node(ivs, slot);

	if (mic_cmpxchg_shared(&entry->owner, from, ivs->owner) != from)
		return false;
	ivs->slot = slot;
	/* who had it is not reached here any more */
	WRITE_ONCE(entry->vectors, 0);
	entry->generation++;
	entry->gid_seq = 0;
	entry->ngid = 0;
	return true;
}

static bool mic_region_take_free(struct mic_ivs *ivs)
{
	u32 i;

	for (i = 0; i < ivs->geo.nodes; i++)
		if (mic_region_take(ivs, i, 0))
			return true;
	return false;
}

/* No entry is free; take that of a node whose heart does not beat. */
static bool mic_region_take_dead(struct mic_ivs *ivs)
{
	u64 heartbeat[MIC_REGION_NODES];
	u32 owner[MIC_REGION_NODES];
	u32 i;

	for (i = 0; i < ivs->geo.nodes; i++) {
		owner[i] = READ_ONCE(mic_region_node(ivs, i)->owner);
		heartbeat[i] = READ_ONCE(mic_region_node(ivs, i)->heartbeat);
	}
	msleep(mic_dead_ms);
	for (i = 0; i < ivs->geo.nodes; i++)
		if (READ_ONCE(mic_region_node(ivs, i)->heartbeat) ==
			    heartbeat[i] && mic_region_take(ivs, i, owner[i]))
			return true;
	return false;
}

/**
 * mic_region_join - get an entry in the node table
 * @ivs: device with a region
 *
 * The node counts as alive only when mic_region_beat() is called.
 *
 * Context: process context, sleeps.
 * Return: 0, or -ENOSPC: all entries have living owners.
 */
int mic_region_join(struct mic_ivs *ivs)
{
	ivs->owner = mic_random_id();
	if (mic_region_take_free(ivs) || mic_region_take_dead(ivs)) {
		WRITE_ONCE(ivs->term, ++ivs->terms);
		return 0;
	}
	dev_err(&ivs->pdev->dev, "the region has room for %u nodes only\n",
		ivs->geo.nodes);
	return -ENOSPC;
}

/**
 * mic_region_announce - say how this node is reached
 * @ivs: device that has joined
 *
 * Now and then again: somebody else may have written there.
 */
void mic_region_announce(struct mic_ivs *ivs)
{
	struct mic_region_node *entry = mic_region_node(ivs, ivs->slot);

	memcpy(entry->mac, ivs->ndev->dev_addr, ETH_ALEN);
	WRITE_ONCE(entry->doorbell, ivs->doorbell);
	WRITE_ONCE(entry->vectors, ivs->vectors);
	mic_beacons_announce(ivs);
}

/**
 * mic_region_leave - give the entry up
 * @ivs: device that has joined
 */
void mic_region_leave(struct mic_ivs *ivs)
{
	struct mic_region_node *entry = mic_region_node(ivs, ivs->slot);

	/* or the server takes who has the entry next for this one, when it ends */
	if (READ_ONCE(entry->owner) == ivs->owner)
		WRITE_ONCE(entry->vectors, 0);
	mic_cmpxchg_shared(&entry->owner, ivs->owner, 0);
}

/**
 * mic_region_beat - say that this node is alive
 * @ivs: device that has joined
 *
 * Return: false if the entry has another owner now.
 */
bool mic_region_beat(struct mic_ivs *ivs)
{
	struct mic_region_node *entry = mic_region_node(ivs, ivs->slot);

	if (READ_ONCE(entry->owner) != ivs->owner)
		return false;
	/* what was announced before the first beat */
	virt_store_release(&entry->heartbeat, entry->heartbeat + 1);
	return true;
}

/**
 * mic_region_retake - take the entry back that another has taken
 * @ivs: device that has lost it
 *
 * At once if nobody has it or it was only asleep, or when the heart of who has does
 * not beat: it was somebody who writes what he likes, or has died since.
 *
 * Context: the tick, with no path that still uses the entry's channels.
 * Return: whether this node has it again; it is used once &mic_ivs.term is set.
 */
bool mic_region_retake(struct mic_ivs *ivs)
{
	struct mic_region_node *entry = mic_region_node(ivs, ivs->slot);
	u64 heartbeat = READ_ONCE(entry->heartbeat);
	u32 owner = READ_ONCE(entry->owner);

	if (owner != ivs->other || heartbeat != ivs->other_beat) {
		ivs->other = owner;
		ivs->other_beat = heartbeat;
		ivs->other_since = jiffies;
	}
	if (owner && owner != ivs->owner && time_before(jiffies, ivs->other_since +
				 msecs_to_jiffies(mic_dead_ms)))
		return false;
	ivs->owner = mic_random_id();
	return mic_region_take(ivs, ivs->slot, owner);
}

static void mic_region_list_gids(struct mic_ivs *ivs)
{
	struct mic_gid_info *info = ivs->gid_info;
	int i;

	ivs->ngid = mic_fabric_gids_on(ivs->ndev, info, MIC_REGION_GIDS);
	memset(ivs->gids, 0, sizeof(ivs->gids));
	for (i = 0; i < ivs->ngid; i++) {
		memcpy(ivs->gids[i].gid, info[i].gid.raw, sizeof(info->gid));
		memcpy(ivs->gids[i].mac, info[i].mac, sizeof(info->mac));
	}
}

/**
 * mic_region_publish_gids - tell others the GIDs of this node's devices
 * @ivs: device that has joined
 *
 * Context: process context.
 */
void mic_region_publish_gids(struct mic_ivs *ivs)
{
	struct mic_region_node *entry = mic_region_node(ivs, ivs->slot);

	mic_region_list_gids(ivs);
	/* another than before, also if somebody else has written there */
	ivs->gid_seq = (READ_ONCE(entry->gid_seq) & ~1U) + 2;
	WRITE_ONCE(entry->gid_seq, ivs->gid_seq - 1);
	virt_wmb();	/* odd before the change */
	memcpy(entry->gid, ivs->gids, sizeof(entry->gid));
	WRITE_ONCE(entry->ngid, ivs->ngid);
	/* the change before even */
	virt_store_release(&entry->gid_seq, ivs->gid_seq);
}

/**
 * mic_region_gids_stand - are the GIDs as they were published?
 * @ivs: device that has joined
 *
 * Return: false if somebody else has written there.
 */
bool mic_region_gids_stand(struct mic_ivs *ivs)
{
	const struct mic_region_node *entry = mic_region_node(ivs, ivs->slot);

	return READ_ONCE(entry->gid_seq) == ivs->gid_seq &&
	       READ_ONCE(entry->ngid) == ivs->ngid &&
	       !memcmp(entry->gid, ivs->gids, sizeof(ivs->gids));
}

/**
 * mic_region_read_gids - read another node's GIDs
 * @entry: its entry
 * @seq: in: of the GIDs that are known; out: of those read
 * @info: out: room for MIC_REGION_GIDS
 *
 * Return: how many, or -EAGAIN if there is nothing new, or not yet.
 */
int mic_region_read_gids(const struct mic_region_node *entry, u32 *seq,
			 struct mic_gid_info *info)
{
	/* even before the GIDs */
	u32 before = virt_load_acquire(&entry->gid_seq);
	int n, i;

	if (before & 1 || before == *seq)
		return -EAGAIN;
	n = min_t(u32, READ_ONCE(entry->ngid), MIC_REGION_GIDS);
	for (i = 0; i < n; i++) {
		memcpy(info[i].gid.raw, entry->gid[i].gid, sizeof(info->gid));
		memcpy(info[i].mac, entry->gid[i].mac, sizeof(info->mac));
	}
	virt_rmb();	/* the GIDs before the second look */
	if (READ_ONCE(entry->gid_seq) != before)
		return -EAGAIN;
	*seq = before;
	return n;
}
