// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Which key is the next one.
 *
 * A key is 24 bits of index and 8 bits of variant. Indices are handed out in turn,
 * so that one is not reused soon, and each turn has another variant of it: a key
 * comes again with the 256th turn. What variant an index begins with and how it goes
 * on from turn to turn is nothing that other keys tell.
 */
#include <linux/random.h>
#include <linux/xarray.h>

#include "keys.h"

/**
 * mic_keys_init - nothing was handed out so far
 * @keys: keys
 */
void mic_keys_init(struct mic_keys *keys)
{
	mutex_init(&keys->lock);
	keys->next = 0;
	keys->turn = 0;
	get_random_bytes(&keys->secret, sizeof(keys->secret));
}

static u8 mic_keys_variant(const struct mic_keys *keys, u32 index, u32 turn)
{
	u64 hash = siphash_1u32(index, &keys->secret);

	/* with an odd step all 256 of them have their turn */
	return hash + turn * (u32)(hash >> 8 | 1);
}

/**
 * mic_keys_pick - hand out a key
 * @keys: keys
 * @used: what they stand for, by index; the index is reserved in there
 * @max: last index
 * @key: out
 *
 * Context: process context, sleeps.
 * Return: 0 or -ENOMEM.
 */
int mic_keys_pick(struct mic_keys *keys, struct xarray *used, u32 max,
		  u32 *key)
{
	u32 from, index, turn;
	int err;

	/* the array lets go of its own lock when it needs memory */
	mutex_lock(&keys->lock);
	from = keys->next;
	err = xa_alloc_cyclic(used, &index, NULL, XA_LIMIT(1, max),
			      &keys->next, GFP_KERNEL);
	if (err >= 0 && index < from)
		keys->turn++;
	turn = keys->turn;
	mutex_unlock(&keys->lock);
	if (err < 0)
		return -ENOMEM;
	*key = index << 8 | mic_keys_variant(keys, index, turn);
	return 0;
}
