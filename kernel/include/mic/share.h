/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory that nodes share: where a device is on such memory, its device memory
 * is a piece of this node's part of it, and processes of other nodes may map it.
 * A node that has all memory of this one in an aperture can map any of it, by
 * extents.
 *
 * The node that has the memory grants, and keeps a struct mic_grant; the other one
 * has a struct mic_lease. Either can end it. The pages of a piece are not used for
 * anything else before all leases of it are over.
 */
#ifndef MIC_SHARE_H
#define MIC_SHARE_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/types.h>

struct mic_grant;
struct mic_lease;
struct mic_piece;
struct mic_pool;
struct mic_window;
struct net_device;

/**
 * struct mic_pool_ops - what a backend provides
 * @alloc: some pages, whatever is in them; NULL if there are none. May sleep
 * @free: takes them back. May sleep
 */
struct mic_pool_ops {
	struct mic_piece *(*alloc)(struct mic_pool *pool, u64 size);
	void (*free)(struct mic_piece *piece);
};

/**
 * struct mic_pool - this node's part of shared memory
 * @ops: backend
 * @ndev: network interface that leads to those who share it
 * @entry: in the fabric's list
 */
struct mic_pool {
	const struct mic_pool_ops *ops;
	struct net_device *ndev;
	struct list_head entry;
};

/**
 * struct mic_piece - pages of a pool
 * @pool: pool
 * @ref: one for each who may have them mapped
 * @va: where the kernel has them
 * @phys: their address
 * @offset: where they are in the shared memory
 * @size: bytes
 */
struct mic_piece {
	struct mic_pool *pool;
	refcount_t ref;
	void *va;
	phys_addr_t phys;
	u64 offset;
	u64 size;
};

void mic_pool_add(struct mic_pool *pool);
void mic_pool_del(struct mic_pool *pool);
struct mic_piece *mic_piece_alloc(const struct net_device *ndev, u64 size);
void mic_piece_put(struct mic_piece *piece);

/* Extents that a grant can have; what is in more pieces is not granted. */
#define MIC_EXTENTS_MAX		2048U

/**
 * struct mic_extent - some of a node's memory, as one node tells another
 * @addr: that node's address of it
 * @length: bytes
 *
 * Both are of whole pages, unless the other node lies.
 */
struct mic_extent {
	u64 addr;
	u64 length;
};

/**
 * struct mic_extents - a list of them
 * @n: how many, 1 to MIC_EXTENTS_MAX
 * @at: extents
 */
struct mic_extents {
	u32 n;
	struct mic_extent at[];
};

struct mic_extents *mic_extents_get(const struct mic_window *win, u64 off,
				    u64 bytes);
void mic_extents_put(struct mic_extents *list);
struct mic_extents *mic_extents_copy(const void *from, u32 bytes);
void mic_extents_free(struct mic_extents *list);

/**
 * struct mic_map - what a node may map of another's memory
 * @addr: first byte, in terms of the key
 * @length: bytes, whole pages
 * @offset: of the first byte in the shared memory
 * @extents: where it is instead, if it is anywhere; NULL: it isn't
 * @access: enum ib_access_flags, remote ones
 * @slot: number of the grant among those to this node
 * @gen: tells the users of the slot apart; not 0
 */
struct mic_map {
	u64 addr;
	u64 length;
	u64 offset;
	const struct mic_extents *extents;
	u32 access;
	u32 slot;
	u32 gen;
};

/**
 * struct mic_grant - pages that another node may map
 * @piece: piece that they are of; the backend has a reference of its own. Or NULL
 * @extents: where they are then, from mic_extents_get(); the backend's once it is
 *	granted
 * @revoke: the backend's: take them away; does not wait, may be called again.
 *	Context: any but interrupts, up to when @end is called
 * @end: the holder's: nobody has them mapped any more, or the other node does
 *	not say; called once, in process context
 * @priv: the backend's
 * @slot: the backend's
 */
struct mic_grant {
	struct mic_piece *piece;
	struct mic_extents *extents;
	void (*revoke)(struct mic_grant *grant);
	void (*end)(struct mic_grant *grant);
	void *priv;
	u32 slot;
};

/**
 * struct mic_lease_run - where some of the pages of a lease are
 * @end: number of the first page behind them, in the lease
 * @pfn: the first
 */
struct mic_lease_run {
	unsigned long end;
	unsigned long pfn;
};

/**
 * struct mic_lease - pages of another node that processes here may map
 * @phys: address of the first, if all follow it
 * @run: where they are otherwise; the holder frees it with kvfree()
 * @nruns: how many there are of them
 * @recall: the holder's: from now on no process maps them; before a number of
 *	@revoke, which then takes away together what it can
 * @revoke: the holder's: on return no process has them mapped, nor will have;
 *	called at most once, under mic_lease_lock, in process context
 * @release: the backend's: nothing is mapped any more; called under
 *	mic_lease_lock; NULL once the lease is over
 * @priv: the backend's
 * @slot: the backend's
 * @gen: the backend's
 */
struct mic_lease {
	phys_addr_t phys;
	struct mic_lease_run *run;
	u32 nruns;
	void (*recall)(struct mic_lease *lease);
	void (*revoke)(struct mic_lease *lease);
	void (*release)(struct mic_lease *lease);
	void *priv;
	u32 slot;
	u32 gen;
};

extern struct mutex mic_lease_lock;

void mic_lease_end(struct mic_lease *lease);
unsigned long mic_lease_pfn(const struct mic_lease *lease, unsigned long page);

#endif /* MIC_SHARE_H */
