// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory that nodes share: who has some, and the leases of what others have.
 */
#include <linux/export.h>
#include <linux/if_macvlan.h>
#include <linux/if_vlan.h>
#include <linux/netdevice.h>
#include <linux/pfn.h>
#include <linux/sched.h>
#include <linux/sizes.h>

#include <mic/fabric.h>
#include <mic/share.h>

static LIST_HEAD(mic_pools);
static DEFINE_MUTEX(mic_pools_lock);

/*
 * Held while a lease begins or ends, so that one side can end it while the other
 * one is about to. Nothing is held by who takes it.
 */
DEFINE_MUTEX(mic_lease_lock);
EXPORT_SYMBOL_GPL(mic_lease_lock);

/**
 * mic_pool_add - device memory can be had from a pool
 * @pool: complete but for its list entry
 */
void mic_pool_add(struct mic_pool *pool)
{
	mutex_lock(&mic_pools_lock);
	list_add_tail(&pool->entry, &mic_pools);
	mutex_unlock(&mic_pools_lock);
}
EXPORT_SYMBOL_GPL(mic_pool_add);

/**
 * mic_pool_del - no memory can be had from a pool any more
 * @pool: pool; what is still allocated of it can be freed
 */
void mic_pool_del(struct mic_pool *pool)
{
	mutex_lock(&mic_pools_lock);
	list_del(&pool->entry);
	mutex_unlock(&mic_pools_lock);
}
EXPORT_SYMBOL_GPL(mic_pool_del);

/* What @ndev goes away with, or NULL. */
static struct net_device *mic_ndev_base(const struct net_device *ndev)
{
	if (is_vlan_dev(ndev))
		return vlan_dev_real_dev(ndev);
	if (netif_is_macvlan(ndev))
		return macvlan_dev_real_dev(ndev);
	return NULL;
}

/*
 * Memory of a pool must not be in use when its interface goes away. Then the VLANs
 * and macvlans on that go, too, and their devices; bridges and bonds stay.
 */
static bool mic_pool_serves(const struct mic_pool *pool,
			    const struct net_device *ndev)
{
	while (ndev && ndev != pool->ndev)
		ndev = mic_ndev_base(ndev);
	return ndev;
}

/* It may be all of a slice. */
static void mic_piece_clear(struct mic_piece *piece)
{
	u64 done, length;

	for (done = 0; done < piece->size; done += length) {
		length = min_t(u64, piece->size - done, SZ_1M);
		memset(piece->va + done, 0, length);
		cond_resched();
	}
}

/**
 * mic_piece_alloc - memory for a device that other nodes can map
 * @ndev: what the device stands on
 * @size: bytes
 *
 * Context: process context, sleeps.
 * Return: whole pages, all zero, or NULL if there is no such memory.
 */
struct mic_piece *mic_piece_alloc(const struct net_device *ndev, u64 size)
{
	struct mic_piece *piece = NULL;
	struct mic_pool *pool;

	mutex_lock(&mic_pools_lock);
	list_for_each_entry(pool, &mic_pools, entry) {
		if (!mic_pool_serves(pool, ndev))
			continue;
		piece = pool->ops->alloc(pool, size);
		break;
	}
	mutex_unlock(&mic_pools_lock);
	/* The pool stays as long as the device that its caller has. */
	if (piece)
		mic_piece_clear(piece);
	return piece;
}
EXPORT_SYMBOL_GPL(mic_piece_alloc);

/**
 * mic_piece_put - drop a reference
 * @piece: piece; free if it was the last
 *
 * Context: process context, may sleep.
 */
void mic_piece_put(struct mic_piece *piece)
{
	if (refcount_dec_and_test(&piece->ref))
		piece->pool->ops->free(piece);
}
EXPORT_SYMBOL_GPL(mic_piece_put);

/**
 * mic_lease_end - give a lease back
 * @lease: lease of which nothing is mapped any more; on return it is not used
 *
 * Context: process context, sleeps.
 */
void mic_lease_end(struct mic_lease *lease)
{
	mutex_lock(&mic_lease_lock);
	if (lease->release)
		lease->release(lease);
	lease->release = NULL;
	mutex_unlock(&mic_lease_lock);
}
EXPORT_SYMBOL_GPL(mic_lease_end);

/**
 * mic_lease_pfn - find a page
 * @lease: lease that has not ended
 * @page: its number, within bounds
 *
 * Return: where it is.
 */
unsigned long mic_lease_pfn(const struct mic_lease *lease, unsigned long page)
{
	u32 low = 0, high = lease->nruns, middle;

	if (!lease->run)
		return PHYS_PFN(lease->phys) + page;
	/* the first run that ends behind it */
	while (high - low > 1) {
		middle = low + (high - low) / 2;
		if (page < lease->run[middle - 1].end)
			high = middle;
		else
			low = middle;
	}
	return lease->run[low].pfn +
	       (page - (low ? lease->run[low - 1].end : 0));
}
EXPORT_SYMBOL_GPL(mic_lease_pfn);
