/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The memory regions of a context by their lkey, so that the direct path can
 * check one as the kernel would. What is not in here is left to the kernel.
 *
 * Looking up takes no lock. An entry is valid while its key is set; a region
 * that is deregistered while a request uses it is a mistake of the program,
 * but its entry stays readable: leaves of the table that have no region are used
 * again, for other keys, and are freed with the context only. Keys are handed out in
 * turn, so there would be a leaf for each that ever was otherwise.
 */
#ifndef MIC_KEYS_H
#define MIC_KEYS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inline.h"

enum {
	MIC_KEYS_LEAF_BITS = 10,
	MIC_KEYS_LEAF = 1 << MIC_KEYS_LEAF_BITS,
	/* a key is 24 bits of index and 8 bits that vary */
	MIC_KEYS_ROOT = 1 << (24 - MIC_KEYS_LEAF_BITS),
};

struct mic_key {
	_Atomic(uint32_t) lkey; /* 0: no such region */
	uint32_t pd_handle;
	int access; /* enum ibv_access_flags */
	uint64_t iova;
	uint64_t length;
	char *addr; /* where the byte at @iova is in this process */
};

struct mic_keys {
	pthread_mutex_t lock; /* changes */
	_Atomic(struct mic_key *) leaf[MIC_KEYS_ROOT];
	uint16_t regions[MIC_KEYS_ROOT]; /* in each leaf */
	struct mic_key *spare; /* leaves without one; the next is at @addr */
};

void mic_keys_init(struct mic_keys *keys);
void mic_keys_destroy(struct mic_keys *keys);
void mic_keys_add(struct mic_keys *keys, uint32_t lkey,
		  const struct mic_key *key);
bool mic_keys_take(struct mic_keys *keys, uint32_t lkey, struct mic_key *key);

/* Has the region of this entry this key? */
static inline bool mic_key_is(const struct mic_key *key, uint32_t lkey)
{
	return atomic_load_explicit(&key->lkey, memory_order_acquire) == lkey;
}

/* An entry without a region. */
extern struct mic_key mic_no_key;

/* The entry of a region, or mic_no_key. It stays where it is. */
static inline struct mic_key *mic_keys_find(struct mic_keys *keys,
					    uint32_t lkey)
{
	struct mic_key *key;

	key = atomic_load_explicit(&keys->leaf[lkey >> 8 >> MIC_KEYS_LEAF_BITS],
				   memory_order_acquire);
	if (!key)
		return &mic_no_key;
	key += lkey >> 8 & (MIC_KEYS_LEAF - 1);
	return mic_key_is(key, lkey) ? key : &mic_no_key;
}

/*
 * Where @length bytes at @addr are, at least one, or NULL if the kernel has to decide.
 * @access: rights needed besides reading
 */
static MIC_ALWAYS_INLINE char *mic_key_resolve(const struct mic_key *key,
					       uint32_t pd_handle, int access,
					       uint64_t addr, uint32_t length)
{
	/* a region does not wrap around, so what is below it is far above it */
	const uint64_t off = addr - key->iova;

	if (key->pd_handle != pd_handle || (key->access & access) != access ||
	    length > key->length || off > key->length - length)
		return NULL;
	return key->addr + off;
}

#endif /* MIC_KEYS_H */
