// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * This node's slice of the region, behind the table that it begins with: pages for
 * device memory.
 */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "ivs.h"

static struct mic_ivs *mic_pool_ivs(struct mic_pool *pool)
{
	return container_of(pool, struct mic_ivs, pool);
}

/* Where the pages begin. */
static u64 mic_pool_start(const struct mic_ivs *ivs)
{
	return mic_slice_offset(ivs, ivs->slot) + MIC_SLICE_TABLE;
}

static u32 mic_pool_take(struct mic_ivs *ivs, u32 n)
{
	u32 at;

	mutex_lock(&ivs->pool_lock);
	at = bitmap_find_next_zero_area(ivs->pool_used, ivs->pool_pages, 0, n,
					0);
	if (at < ivs->pool_pages)
		bitmap_set(ivs->pool_used, at, n);
	mutex_unlock(&ivs->pool_lock);
	return at;
}

/*
 * A slice with pages that somebody had mapped of another owner of this node's entry, and
 * may still have, is not used.
 */
static bool mic_pool_may_alloc(struct mic_ivs *ivs)
{
	if (!mic_ivs_term(ivs))
		return false;
	smp_rmb();	/* the term, then what was counted before there was one */
	return !atomic_read(&ivs->inherited);
}

static struct mic_piece *mic_pool_alloc(struct mic_pool *pool, u64 size)
{
	struct mic_ivs *ivs = mic_pool_ivs(pool);
	struct mic_piece *piece;
	u32 at;

	if (!size || size > (u64)ivs->pool_pages << PAGE_SHIFT ||
	    !mic_pool_may_alloc(ivs))
		return NULL;
	piece = kzalloc(sizeof(*piece), GFP_KERNEL_ACCOUNT);
	if (!piece)
		return NULL;
	at = mic_pool_take(ivs, PAGE_ALIGN(size) >> PAGE_SHIFT);
	if (at >= ivs->pool_pages) {
		kfree(piece);
		return NULL;
	}
	piece->pool = pool;
	refcount_set(&piece->ref, 1);
	piece->size = PAGE_ALIGN(size);
	piece->offset = mic_pool_start(ivs) + ((u64)at << PAGE_SHIFT);
	piece->va = ivs->mem + piece->offset;
	piece->phys = ivs->phys + piece->offset;
	return piece;
}

static void mic_pool_free(struct mic_piece *piece)
{
	struct mic_ivs *ivs = mic_pool_ivs(piece->pool);

	mutex_lock(&ivs->pool_lock);
	bitmap_clear(ivs->pool_used,
		     (piece->offset - mic_pool_start(ivs)) >> PAGE_SHIFT,
		     piece->size >> PAGE_SHIFT);
	mutex_unlock(&ivs->pool_lock);
	kfree(piece);
}

static const struct mic_pool_ops mic_pool_ops = {
	.alloc = mic_pool_alloc,
	.free = mic_pool_free,
};

/* Where pages are larger than 4 KiB they need not begin where the slice's do. */
static u32 mic_pool_count(const struct mic_ivs *ivs)
{
	if (!mic_ivs_has_slices(ivs) ||
	    !PAGE_ALIGNED(ivs->phys + mic_pool_start(ivs)))
		return 0;
	return min_t(u64, INT_MAX,
		     (ivs->geo.slice_size - MIC_SLICE_TABLE) >> PAGE_SHIFT);
}

/**
 * mic_pool_create - let devices on the interface have memory of the slice
 * @ivs: device that has joined, with its interface
 *
 * Return: 0 or -ENOMEM.
 */
int mic_pool_create(struct mic_ivs *ivs)
{
	mutex_init(&ivs->pool_lock);
	ivs->pool.ops = &mic_pool_ops;
	ivs->pool.ndev = ivs->ndev;
	ivs->pool_pages = mic_pool_count(ivs);
	ivs->pool_used = bitmap_zalloc(max(ivs->pool_pages, 1U), GFP_KERNEL);
	if (!ivs->pool_used)
		return -ENOMEM;
	mic_pool_add(&ivs->pool);
	return 0;
}

/**
 * mic_pool_destroy - the end of it
 * @ivs: device, of whose slice nothing is allocated any more
 */
void mic_pool_destroy(struct mic_ivs *ivs)
{
	mic_pool_del(&ivs->pool);
	WARN_ON(!bitmap_empty(ivs->pool_used, ivs->pool_pages));
	bitmap_free(ivs->pool_used);
}
