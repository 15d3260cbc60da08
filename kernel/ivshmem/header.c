// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The region's header, which the first node writes and every other one checks.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/log2.h>
#include <linux/module.h>

#include <mic/compat.h>

#include "ivs.h"

static unsigned int mic_nodes = 8;

static int mic_nodes_set(const char *value, const struct kernel_param *param)
{
	return param_set_uint_minmax(value, param, 2, MIC_REGION_NODES);
}

static const struct kernel_param_ops mic_nodes_ops = {
	.set = mic_nodes_set,
	.get = param_get_uint,
};
module_param_cb(nodes, &mic_nodes_ops, &mic_nodes, 0444);
MODULE_PARM_DESC(nodes, "Nodes a region has room for, if this one formats it, 2 to 16 (8)");

#define MIC_FORMAT_MS	2000	/* after that who formats is taken for dead */
#define MIC_QUIET_MS	1000	/* and so is, here, whose heart has not beaten */

/**
 * struct mic_watch - a header that others may write again
 * @hdr: what it was
 * @beat: the nodes' hearts when it was that first; where there is no header, when one
 *	of them beat last
 * @silence: since then
 * @holder: whom the lock was seen with last
 * @locked: since when that has not changed
 */
struct mic_watch {
	struct mic_region_hdr hdr;
	u64 beat[MIC_REGION_NODES];
	struct mic_silence silence;
	u32 holder;
	struct mic_silence locked;
};

/* Where things are follows from the sizes of region and lanes, and the number of nodes. */
static void mic_geometry_fill(struct mic_geometry *geo, u64 size, u32 nodes,
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
	geo->slice_size = 0;
	if (size > geo->slices)
		geo->slice_size = round_down(div_u64(size - geo->slices, nodes),
					     4096);
}

/* Half of the region for lanes, the rest for device memory. */
static int mic_geometry_choose(struct mic_geometry *geo, u64 size)
{
	u32 nodes = mic_nodes;
	u64 lane = 0;

	for (; nodes >= 2; nodes--) {
		lane = div_u64(size / 2, nodes * nodes * MIC_LANES);
		if (lane >= MIC_LANE_MIN)
			break;
	}
	if (nodes < 2)
		return -ENOSPC;
	lane = min_t(u64, rounddown_pow_of_two(lane), MIC_LANE_MAX);
	mic_geometry_fill(geo, size, nodes, lane);
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

/* One copy, which is then looked at. */
static void mic_region_read_hdr(const struct mic_region_hdr *shared,
				struct mic_region_hdr *hdr)
{
	memcpy(hdr, shared, sizeof(*hdr));
	barrier();
}

static bool mic_region_hdr_is(const struct mic_region_hdr *hdr,
			      const struct mic_region_hdr *expected)
{
	return !memcmp(hdr, expected, offsetof(struct mic_region_hdr, lock));
}

/*
 * The node table is in the same place in every region. Where one has fewer nodes, what
 * is behind it does not change unless somebody lives there, either.
 */
static u32 mic_region_possible_nodes(const struct mic_ivs *ivs)
{
	if (ivs->mem_size < MIC_REGION_HDR)
		return 0;
	return min_t(u64, div_u64(ivs->mem_size - MIC_REGION_HDR,
				  sizeof(struct mic_region_node)),
		     MIC_REGION_NODES);
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
	/* also entries that only another region here had room for */
	const u64 end = max_t(u64, geo->lanes,
			      geo->table + mic_region_possible_nodes(ivs) *
					   sizeof(struct mic_region_node));
	u32 i;

	if (READ_ONCE(hdr->lock) != token)
		return false;
	memset(ivs->mem + geo->table, 0, end - geo->table);
	for (i = 0; i < geo->nodes && mic_ivs_has_slices(ivs); i++)
		memset(ivs->mem + mic_slice_offset(ivs, i), 0, MIC_SLICE_TABLE);
	ivs->size = ivs->mem_size;
	ivs->id = mic_region_random();
	if (READ_ONCE(hdr->lock) != token)
		return false;
	mic_region_write_hdr(ivs, hdr);
	return true;
}

/* @hdr: a copy. */
static int mic_region_check(struct mic_ivs *ivs,
			    const struct mic_region_hdr *hdr)
{
	struct device *dev = &ivs->pdev->dev;
	struct mic_geometry *geo = &ivs->geo;

	if (hdr->version != MIC_REGION_VERSION) {
		dev_err(dev, "the region is of version %u, this is %u\n",
			hdr->version, MIC_REGION_VERSION);
		return -EPROTONOSUPPORT;
	}
	if (hdr->size > ivs->mem_size) {
		dev_err(dev, "the region has %llu bytes, the device %llu\n",
			hdr->size, ivs->mem_size);
		return -EOVERFLOW;
	}
	if (!mic_nodes_are_possible(hdr->nodes) ||
	    !mic_lane_is_possible(hdr->lane_size))
		goto nonsense;
	mic_geometry_fill(geo, hdr->size, hdr->nodes, hdr->lane_size);
	/* slices of another size, if only smaller, would overlap those of the others */
	if (hdr->table != geo->table || hdr->channels != geo->channels ||
	    hdr->lanes != geo->lanes || hdr->slices != geo->slices ||
	    hdr->slices > hdr->size || hdr->slice_size != geo->slice_size)
		goto nonsense;
	ivs->id = hdr->id;
	ivs->size = hdr->size;
	return 0;

nonsense:
	dev_err(dev, "the region's header makes no sense\n");
	return -EPROTO;
}

/* Nothing is behind the last field of a header. */
static bool mic_region_is_blank_behind(const struct mic_region_hdr *hdr)
{
	const size_t end = offsetofend(struct mic_region_hdr, lock);

	return !memchr_inv((const void *)hdr + end, 0, MIC_REGION_HDR - end);
}

/* Nothing is in the header but perhaps the lock. */
static bool mic_region_is_blank(const struct mic_region_hdr *hdr)
{
	return !memchr_inv(hdr, 0, offsetof(struct mic_region_hdr, lock)) &&
	       mic_region_is_blank_behind(hdr);
}

/*
 * What there is of a header without its magic is what who formats may have written by
 * now, or until he died.
 */
static bool mic_region_is_begun(const struct mic_region_hdr *shared)
{
	struct mic_region_hdr hdr;

	mic_region_read_hdr(shared, &hdr);
	if (hdr.magic)
		return hdr.magic == MIC_REGION_MAGIC;
	return mic_region_is_blank_behind(shared) &&
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
			   struct mic_silence *silence)
{
	u32 now = READ_ONCE(hdr->lock), token = mic_region_random();

	if (now != *holder) {
		*holder = now;
		mic_silence_begin(silence);
	}
	if (!mic_silence_is_over(silence, MIC_FORMAT_MS) && now)
		return 0;
	return mic_cmpxchg_shared(&hdr->lock, now, token) == now ? token : 0;
}

static void mic_region_unlock(struct mic_region_hdr *hdr, u32 token)
{
	mic_cmpxchg_shared(&hdr->lock, token, 0);
}

static const struct mic_region_node *mic_watch_node(const struct mic_ivs *ivs,
						    u32 slot)
{
	return ivs->mem + MIC_REGION_HDR +
	       slot * sizeof(struct mic_region_node);
}

/* What there is now. */
static void mic_watch_begin(struct mic_watch *watch, const struct mic_ivs *ivs)
{
	u32 i;

	for (i = 0; i < mic_region_possible_nodes(ivs); i++)
		watch->beat[i] = READ_ONCE(mic_watch_node(ivs, i)->heartbeat);
	mic_region_read_hdr(ivs->mem, &watch->hdr);
	mic_silence_begin(&watch->silence);
}

/* Is it still that? */
static bool mic_watch_stands(const struct mic_watch *watch,
			     const struct mic_ivs *ivs)
{
	struct mic_region_hdr hdr;

	mic_region_read_hdr(ivs->mem, &hdr);
	return mic_region_hdr_is(&hdr, &watch->hdr);
}

/* Is it not, or has a heart beaten? Of whom does not matter: somebody lives there. */
static bool mic_watch_is_over(const struct mic_watch *watch,
			      const struct mic_ivs *ivs)
{
	u32 i;

	for (i = 0; i < mic_region_possible_nodes(ivs); i++)
		if (READ_ONCE(mic_watch_node(ivs, i)->heartbeat) !=
		    watch->beat[i])
			return true;
	return !mic_watch_stands(watch, ivs);
}

/* Has there ever been a node? */
static bool mic_watch_any(const struct mic_ivs *ivs)
{
	u32 i;

	for (i = 0; i < mic_region_possible_nodes(ivs); i++)
		if (READ_ONCE(mic_watch_node(ivs, i)->owner) ||
		    READ_ONCE(mic_watch_node(ivs, i)->heartbeat))
			return true;
	return false;
}

/*
 * Is there nobody who is going to write a header where there is none? All are dead if
 * no heart beats for a while; a machine that died has left its entry there perhaps.
 */
static bool mic_watch_is_quiet(struct mic_watch *watch,
			       const struct mic_ivs *ivs)
{
	if (mic_watch_is_over(watch, ivs))
		mic_watch_begin(watch, ivs);
	return mic_silence_is_over(&watch->silence, MIC_QUIET_MS) ||
	       !mic_watch_any(ivs);
}

/*
 * Have those who have entries beaten twice, or are they dead? Behind the entries that
 * the header has, if it is right, is what looks like entries at times.
 */
static bool mic_watch_is_ripe(struct mic_watch *watch, const struct mic_ivs *ivs)
{
	unsigned int ms = 0;
	u32 i;

	for (i = 0; i < mic_region_possible_nodes(ivs); i++) {
		const struct mic_region_node *entry = mic_watch_node(ivs, i);

		if (!READ_ONCE(entry->owner))
			continue;
		ms = max_t(unsigned int, ms, 3 * MIC_IVS_TICK_MS);
		if (i < watch->hdr.nodes &&
		    READ_ONCE(entry->heartbeat) - watch->beat[i] < 2)
			ms = MIC_QUIET_MS;
	}
	return mic_silence_is_over(&watch->silence, ms) || !ms;
}

/*
 * Is the header what the nodes keep there? After each beat they write it again if it
 * is not what they know, and so have done it all before the second.
 */
static bool mic_watch_is_settled(struct mic_watch *watch,
				 const struct mic_ivs *ivs)
{
	bool ripe = mic_watch_is_ripe(watch, ivs);

	virt_rmb();	/* the beats, then the header */
	if (mic_watch_stands(watch, ivs))
		return ripe;
	mic_watch_begin(watch, ivs);
	return false;
}

/* Return: 0, -EAGAIN: another node is there or may be, or an error. */
static int mic_region_format_new(struct mic_ivs *ivs, struct mic_watch *watch)
{
	struct mic_region_hdr *hdr = ivs->mem;
	bool formatted;
	u32 token;
	int err;

	token = mic_region_lock(hdr, &watch->holder, &watch->locked);
	if (!token)
		return -EAGAIN;
	if (READ_ONCE(hdr->magic) == MIC_REGION_MAGIC ||
	    !mic_watch_is_quiet(watch, ivs)) {
		mic_region_unlock(hdr, token);
		return -EAGAIN;
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
		return -EAGAIN;
	dev_info(&ivs->pdev->dev, "formatted the region for %u nodes\n",
		 ivs->geo.nodes);
	return 0;
}

/* Return: 0, -EAGAIN: it is not clear yet what is there, or an error. */
static int mic_region_try(struct mic_ivs *ivs, struct mic_watch *watch)
{
	struct mic_region_hdr *hdr = ivs->mem;

	/* the magic before everything else */
	if (virt_load_acquire(&hdr->magic) == MIC_REGION_MAGIC)
		return mic_watch_is_settled(watch, ivs) ?
			       mic_region_check(ivs, &watch->hdr) : -EAGAIN;
	if (!mic_watch_is_quiet(watch, ivs))
		return -EAGAIN;
	if (mic_region_is_foreign(hdr)) {
		dev_err(&ivs->pdev->dev,
			"the region is in use by something else\n");
		return -EBUSY;
	}
	return mic_region_format_new(ivs, watch);
}

/**
 * mic_region_attach - have a region with a header that makes sense
 * @ivs: device; @mem and @mem_size are set
 *
 * Formats a blank region, unless another node is at it, or lives there: then somebody
 * has overwritten the header, and that one writes it again. Nor is a header believed
 * before those who live there have had the time to.
 *
 * Context: process context, sleeps.
 * Return: 0 or an error.
 */
int mic_region_attach(struct mic_ivs *ivs)
{
	unsigned long end = jiffies + msecs_to_jiffies(4 * MIC_FORMAT_MS);
	struct mic_watch watch = {};
	int err;

	mic_silence_begin(&watch.locked);
	mic_watch_begin(&watch, ivs);
	do {
		err = mic_region_try(ivs, &watch);
		if (err != -EAGAIN)
			return err;
		msleep(20);
	} while (time_before(jiffies, end));

	dev_err(&ivs->pdev->dev, "the region gets no header that stays\n");
	return -EBUSY;
}

/**
 * mic_region_stands - is the header what this node has attached?
 * @ivs: device
 *
 * Return: false if somebody has written there, or formatted the region anew.
 */
bool mic_region_stands(const struct mic_ivs *ivs)
{
	struct mic_region_hdr expected = {}, hdr;

	mic_region_write_hdr(ivs, &expected);
	mic_region_read_hdr(ivs->mem, &hdr);
	return mic_region_hdr_is(&hdr, &expected);
}

static bool mic_region_has_id(const struct mic_ivs *ivs, u32 *id)
{
	const struct mic_region_hdr *hdr = ivs->mem;

	*id = READ_ONCE(hdr->id);
	return READ_ONCE(hdr->magic) == MIC_REGION_MAGIC;
}

static bool mic_region_has_own_id(const struct mic_ivs *ivs)
{
	u32 id;

	return mic_region_has_id(ivs, &id) && id == ivs->id;
}

/* Who formats a region clears all entries, whatever its number of nodes. */
static bool mic_region_has_own_entry(struct mic_ivs *ivs)
{
	return READ_ONCE(mic_region_node(ivs, ivs->slot)->owner) == ivs->owner;
}

/**
 * mic_region_is_same - is it certain that the region was not formatted anew?
 * @ivs: device that has slept
 *
 * Somebody may have overwritten the header a moment ago. Those who live there write it
 * again; in a region that was formatted anew there is another one for good.
 *
 * Context: process context, sleeps for up to a second.
 * Return: true if it has the id that it had when it was attached, or this node's
 * entry is as it was.
 */
bool mic_region_is_same(struct mic_ivs *ivs)
{
	unsigned long end = jiffies + msecs_to_jiffies(MIC_QUIET_MS);

	while (!mic_region_has_own_entry(ivs) && !mic_region_has_own_id(ivs)) {
		if (time_after(jiffies, end))
			return false;
		msleep(20);
	}
	return true;
}

/**
 * mic_region_restore - write the header again that somebody has overwritten
 * @ivs: device that has its entry
 *
 * A node that still has its entry is in a region that was not formatted anew, whatever
 * is in the header.
 *
 * Context: the tick.
 */
void mic_region_restore(struct mic_ivs *ivs)
{
	struct mic_region_hdr *hdr = ivs->mem;
	u32 token;

	if (mic_region_stands(ivs))
		return;
	token = mic_region_lock(hdr, &ivs->lock_holder, &ivs->lock_silence);
	if (!token)
		return;
	if (mic_region_has_own_entry(ivs)) {
		mic_region_write_hdr(ivs, hdr);
		dev_warn_ratelimited(&ivs->pdev->dev,
				     "the region's header was overwritten\n");
	}
	mic_region_unlock(hdr, token);
}

static bool mic_region_is_another(const struct mic_ivs *ivs)
{
	u32 id;

	return mic_region_has_id(ivs, &id) && id != ivs->id;
}

/*
 * Where the region was another one only this node's entry, or a header that has the
 * known id, says that it is not: one that was overwritten says nothing.
 */
static bool mic_region_is_elsewhere(struct mic_ivs *ivs)
{
	if (mic_region_has_own_entry(ivs) || mic_region_has_own_id(ivs)) {
		ivs->elsewhere = false;
	} else if (mic_region_is_another(ivs)) {
		if (!ivs->elsewhere)
			dev_err_ratelimited(&ivs->pdev->dev,
					    "this is another region now\n");
		ivs->elsewhere = true;
	}
	return ivs->elsewhere;
}

/**
 * mic_region_take_back - take the entry back, unless the region was formatted anew
 * @ivs: device that has lost it
 *
 * With the header's lock: while somebody formats nobody can tell.
 *
 * Context: the tick, with no path that still uses the entry's channels.
 * Return: whether this node has it again; it is used once &mic_ivs.term is set.
 */
bool mic_region_take_back(struct mic_ivs *ivs)
{
	struct mic_region_hdr *hdr = ivs->mem;
	bool taken;
	u32 token;

	/* nor is anything written to what is another region */
	if (mic_region_is_elsewhere(ivs))
		return false;
	token = mic_region_lock(hdr, &ivs->lock_holder, &ivs->lock_silence);
	if (!token)
		return false;
	taken = !mic_region_is_elsewhere(ivs) && mic_region_retake(ivs);
	mic_region_unlock(hdr, token);
	return taken;
}
