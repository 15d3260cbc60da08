/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Which key is the next one.
 */
#ifndef MIC_KEYS_H
#define MIC_KEYS_H

#include <linux/mutex.h>
#include <linux/siphash.h>
#include <linux/types.h>

struct xarray;

/**
 * struct mic_keys - the keys that were handed out
 * @lock: one is picked at a time
 * @next: where the search for a free index starts
 * @turn: how often it has started from the first one again
 * @secret: what the variants are made of
 */
struct mic_keys {
	struct mutex lock;
	u32 next;
	u32 turn;
	siphash_key_t secret;
};

void mic_keys_init(struct mic_keys *keys);
int mic_keys_pick(struct mic_keys *keys, struct xarray *used, u32 max,
		  u32 *key);

#endif /* MIC_KEYS_H */
