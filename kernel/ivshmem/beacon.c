// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Beacons: pages by which another machine finds this one's memory in an aperture.
 *
 * Offset and address differ where memory is not one piece, as on a PC above the
 * hole below 4 GiB. So there is a beacon below that and one above, if there is
 * memory above it. Each says what it is in the middle of; the rest is arithmetic.
 */
#include <linux/bitmap.h>
#include <linux/bitops.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/mm.h>
#include <linux/random.h>

#include "path.h"

static struct page *mic_beacon[MIC_REGION_BEACONS];
static u8 mic_beacon_id[16];
static DECLARE_BITMAP(mic_beacon_taken, MIC_BEACON_NODES);

static int mic_beacon_around(struct resource *res, void *arg)
{
	struct mic_beacon *beacon = arg;

	if (beacon->addr < res->start || beacon->addr > res->end)
		return 0;
	beacon->start = ALIGN(res->start, PAGE_SIZE);
	beacon->end = ALIGN_DOWN(res->end + 1, PAGE_SIZE);
	return 1;
}

static bool mic_beacon_light(struct page *page)
{
	struct mic_beacon *beacon = page_address(page);

	beacon->magic = MIC_BEACON_MAGIC;
	memcpy(beacon->id, mic_beacon_id, sizeof(beacon->id));
	beacon->addr = page_to_phys(page);
	return walk_iomem_res_desc(IORES_DESC_NONE,
				   IORESOURCE_SYSTEM_RAM | IORESOURCE_BUSY, 0,
				   -1, beacon, mic_beacon_around) == 1;
}

/**
 * mic_beacons_create - let this node's memory be found
 *
 * Without beacons, also if there is no memory for them, it isn't.
 */
void mic_beacons_create(void)
{
	static const gfp_t where[] = { GFP_KERNEL | GFP_DMA32, GFP_KERNEL };
	struct page *page;
	int i;

	if (!mic_has_apertures())
		return;
	get_random_bytes(mic_beacon_id, sizeof(mic_beacon_id));
	for (i = 0; i < ARRAY_SIZE(where); i++) {
		page = alloc_page(where[i] | __GFP_ZERO);
		if (!page)
			continue;
		if ((i && page_to_phys(page) <= U32_MAX) ||
		    !mic_beacon_light(page))
			__free_page(page);
		else
			mic_beacon[i] = page;
	}
}

/**
 * mic_beacons_destroy - the opposite
 */
void mic_beacons_destroy(void)
{
	int i;

	for (i = 0; i < MIC_REGION_BEACONS; i++) {
		if (!mic_beacon[i])
			continue;
		clear_page(page_address(mic_beacon[i]));
		__free_page(mic_beacon[i]);
		mic_beacon[i] = NULL;
	}
}

/**
 * mic_beacons_join - have a place for a region
 * @ivs: device; without a place the region's nodes don't find this one's memory
 *
 * Context: the drivers' devices come and go one at a time for each, so any.
 */
void mic_beacons_join(struct mic_ivs *ivs)
{
	for (ivs->beacon = 0; ivs->beacon < MIC_BEACON_NODES; ivs->beacon++)
		if (!test_and_set_bit(ivs->beacon, mic_beacon_taken))
			return;
}

static void mic_beacons_set(const struct mic_ivs *ivs, u32 owner)
{
	struct mic_beacon_node *node;
	struct mic_beacon *beacon;
	int i;

	for (i = 0; i < MIC_REGION_BEACONS; i++) {
		if (!mic_beacon[i] || ivs->beacon == MIC_BEACON_NODES)
			continue;
		beacon = page_address(mic_beacon[i]);
		node = &beacon->node[ivs->beacon];
		node->region = ivs->id;
		node->slot = ivs->slot;
		/* whose it is after what it is */
		virt_store_release(&node->owner, owner);
	}
}

/**
 * mic_beacons_leave - the opposite
 * @ivs: device that nobody announces any more
 */
void mic_beacons_leave(struct mic_ivs *ivs)
{
	mic_beacons_set(ivs, 0);
	if (ivs->beacon < MIC_BEACON_NODES)
		clear_bit(ivs->beacon, mic_beacon_taken);
}

/**
 * mic_beacons_announce - tell others what to look for
 * @ivs: device that has joined
 */
void mic_beacons_announce(struct mic_ivs *ivs)
{
	struct mic_region_node *entry = mic_region_node(ivs, ivs->slot);
	int i;

	mic_beacons_set(ivs, ivs->owner);

	memcpy(entry->beacon_id, mic_beacon_id, sizeof(entry->beacon_id));
	for (i = 0; i < MIC_REGION_BEACONS; i++)
		WRITE_ONCE(entry->beacon[i],
			   mic_beacon[i] ? page_to_phys(mic_beacon[i]) : 0);
}
