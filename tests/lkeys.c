// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The provider's table of regions by lkey (keys.c), without a device: what is found, and
 * that regions that come and go leave no memory behind, whatever keys they get.
 */
#include <malloc.h>
#include <stdlib.h>

#include "keys.h"
#include "tap.h"

enum {
	INDICES = 1 << 24,
	STRIDE = MIC_KEYS_LEAF / 4,
	LIVE = 64,	      /* regions at a time */
	MOST_BYTES = 4 << 20, /* of LIVE leaves, and the table itself */
};

static struct mic_keys keys;
static char memory[64];

static uint32_t lkey_of(uint32_t index)
{
	return index << 8 | (index & 0xff);
}

static void add(uint32_t index)
{
	const struct mic_key key = {
		.pd_handle = 1,
		.iova = index,
		.length = sizeof(memory),
		.addr = memory,
	};

	mic_keys_add(&keys, lkey_of(index), &key);
}

static bool take(uint32_t index)
{
	struct mic_key key = { .length = 0 };

	return check(mic_keys_take(&keys, lkey_of(index), &key), "%u is gone",
		     index) &&
	       check(key.iova == index, "%u is another's", index) &&
	       check(!mic_keys_take(&keys, lkey_of(index), &key),
		     "%u is there twice", index);
}

static bool is_found(uint32_t index)
{
	struct mic_key *key = mic_keys_find(&keys, lkey_of(index));

	return check(mic_key_resolve(key, 1, 0, index, sizeof(memory)) ==
			     memory,
		     "%u is not found", index);
}

static bool come_and_go(void)
{
	uint32_t index;
	bool ok = true;
	size_t before;

	before = mallinfo2().uordblks + mallinfo2().hblkhd;
	for (index = STRIDE; index < INDICES && ok; index += STRIDE) {
		add(index);
		ok = is_found(index);
		if (index > LIVE * STRIDE)
			ok = ok && take(index - LIVE * STRIDE);
	}
	return ok && check(mallinfo2().uordblks + mallinfo2().hblkhd <
				   before + MOST_BYTES,
			   "%zu bytes",
			   mallinfo2().uordblks + mallinfo2().hblkhd - before);
}

/* Who remembers the entry of a region that is gone. */
static bool is_no_more(void)
{
	struct mic_key *key;

	add(5);
	key = mic_keys_find(&keys, lkey_of(5));
	return take(5) &&
	       check(!mic_key_is(key, lkey_of(5)), "it has its key") &&
	       check(!mic_key_resolve(key, 1, 0, 5, 1), "it has its bytes");
}

int main(void)
{
	mic_keys_init(&keys);
	tap_ok(come_and_go(), "regions that come and go, with keys all over");
	tap_ok(is_no_more(), "the entry of a region that is gone");
	mic_keys_destroy(&keys);
	return tap_end();
}
