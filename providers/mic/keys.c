// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The memory regions of a context by their lkey.
 */
#include <stdlib.h>

#include "keys.h"

struct mic_key mic_no_key;

void mic_keys_init(struct mic_keys *keys)
{
	pthread_mutex_init(&keys->lock, NULL);
}

static struct mic_key *take_spare(struct mic_keys *keys)
{
	struct mic_key *leaf = keys->spare;

	if (leaf)
		keys->spare = (struct mic_key *)leaf->addr;
	return leaf;
}

void mic_keys_destroy(struct mic_keys *keys)
{
	struct mic_key *leaf;
	size_t i;

	for (i = 0; i < MIC_KEYS_ROOT; i++)
		free(atomic_load(&keys->leaf[i]));
	while ((leaf = take_spare(keys)))
		free(leaf);
	pthread_mutex_destroy(&keys->lock);
}

static uint32_t leaf_index(uint32_t lkey)
{
	return lkey >> 8 >> MIC_KEYS_LEAF_BITS;
}

/* The entry for a key, or NULL if there is none and no memory for one. */
static struct mic_key *find_entry(struct mic_keys *keys, uint32_t lkey,
				  bool create)
{
	_Atomic(struct mic_key *) *leaf = &keys->leaf[leaf_index(lkey)];
	struct mic_key *first = atomic_load(leaf);

	if (!first && create) {
		first = take_spare(keys);
		if (!first)
			first = calloc(MIC_KEYS_LEAF, sizeof(*first));
		atomic_store_explicit(leaf, first, memory_order_release);
	}
	return first ? first + (lkey >> 8 & (MIC_KEYS_LEAF - 1)) : NULL;
}

/* One region less in a leaf. */
static void leave(struct mic_keys *keys, uint32_t lkey)
{
	const uint32_t index = leaf_index(lkey);
	struct mic_key *leaf;

	if (--keys->regions[index])
		return;
	leaf = atomic_load(&keys->leaf[index]);
	atomic_store(&keys->leaf[index], NULL);
	leaf->addr = (char *)keys->spare;
	keys->spare = leaf;
}

/* Without memory for the entry the kernel goes on to decide. */
void mic_keys_add(struct mic_keys *keys, uint32_t lkey,
		  const struct mic_key *key)
{
	struct mic_key *entry;

	pthread_mutex_lock(&keys->lock);
	entry = find_entry(keys, lkey, true);
	if (entry) {
		if (!atomic_load(&entry->lkey))
			keys->regions[leaf_index(lkey)]++;
		entry->pd_handle = key->pd_handle;
		entry->access = key->access;
		entry->iova = key->iova;
		entry->length = key->length;
		entry->addr = key->addr;
		atomic_store_explicit(&entry->lkey, lkey, memory_order_release);
	}
	pthread_mutex_unlock(&keys->lock);
}

/* Take an entry out. False if there is none. */
bool mic_keys_take(struct mic_keys *keys, uint32_t lkey, struct mic_key *key)
{
	struct mic_key *entry;
	bool found;

	pthread_mutex_lock(&keys->lock);
	entry = find_entry(keys, lkey, false);
	found = entry && atomic_load(&entry->lkey) == lkey;
	if (found) {
		key->pd_handle = entry->pd_handle;
		key->access = entry->access;
		key->iova = entry->iova;
		key->length = entry->length;
		key->addr = entry->addr;
		/* who still has the entry finds no byte in it, with an lkey of 0 either */
		entry->length = 0;
		atomic_store_explicit(&entry->lkey, 0, memory_order_release);
		leave(keys, lkey);
	}
	pthread_mutex_unlock(&keys->lock);
	return found;
}
