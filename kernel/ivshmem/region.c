// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The region's node table, in which each node has an entry.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/random.h>

#include <mic/compat.h>

#include "ivs.h"

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

/**
 * mic_region_random - what tells one node, or region, from others
 *
 * Return: a random number, but not 0.
 */
u32 mic_region_random(void)
{
	return get_random_u32() ?: 1;
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
	u32 i, ms;

	for (i = 0; i < ivs->geo.nodes; i++) {
		owner[i] = READ_ONCE(mic_region_node(ivs, i)->owner);
		heartbeat[i] = READ_ONCE(mic_region_node(ivs, i)->heartbeat);
	}
	/* a beat's time each, of which one counts as such if all machines stand still */
	for (ms = 0; ms < mic_dead_ms; ms += MIC_IVS_TICK_MS)
		msleep(MIC_IVS_TICK_MS);
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
	ivs->owner = mic_region_random();
	/* at last those of who has left meanwhile */
	if (mic_region_take_free(ivs) || mic_region_take_dead(ivs) ||
	    mic_region_take_free(ivs)) {
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
		mic_silence_begin(&ivs->other_silence);
	}
	if (!mic_silence_is_over(&ivs->other_silence, mic_dead_ms) && owner &&
	    owner != ivs->owner)
		return false;
	ivs->owner = mic_region_random();
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
