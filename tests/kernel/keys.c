// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Which memory key is the next one, with so few indices that all of them have many
 * turns. Loading the module runs one case; that fails if the case does, and the log
 * says why.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/random.h>
#include <linux/xarray.h>

#include "cases.h"

/* The driver's own; it needs nothing else of the driver. */
#include "../../kernel/verbs/keys.c"

#define TEST_INDICES	15	/* from 1 on */
#define TEST_SLOTS	(TEST_INDICES + 1)
#define TEST_VARIANTS	256
/* A key may come again with this turn after it. */
#define TEST_TURNS	256

/**
 * struct bench - what a case works with
 * @keys: the keys
 * @used: what stands for those that there are
 * @last: index of the one before
 * @turn: how often the indices have begun anew
 * @when: turn of each index and variant, from 1 on; 0: never
 */
struct bench {
	struct mic_keys keys;
	struct xarray used;
	u32 last;
	u32 turn;
	u32 when[TEST_SLOTS][TEST_VARIANTS];
};

static int bench_open(struct bench *bench, const char *device,
		      const char *peer)
{
	mic_keys_init(&bench->keys);
	xa_init_flags(&bench->used, XA_FLAGS_ALLOC);
	bench->turn = 1;
	return 0;
}

static void bench_close(struct bench *bench)
{
	xa_destroy(&bench->used);
}

/* One more key, which must not be one of the last turns. */
static int pick(struct bench *bench, u32 *index)
{
	u32 key, *when;
	int err = mic_keys_pick(&bench->keys, &bench->used, TEST_INDICES, &key);

	if (err)
		return err;
	*index = key >> 8;
	if (!*index || *index > TEST_INDICES) {
		pr_err("index %u\n", *index);
		return -ERANGE;
	}
	bench->turn += *index <= bench->last;
	bench->last = *index;
	when = &bench->when[*index][key & 0xff];
	if (*when && bench->turn - *when < TEST_TURNS) {
		pr_err("key %#x is that of %u turns before\n", key,
		       bench->turn - *when);
		return -EEXIST;
	}
	*when = bench->turn;
	return 0;
}

/* --- cases ------------------------------------------------------------------- */

/* Each is gone before the next: all variants have their turn, then again. */
static int test_turns(struct bench *bench)
{
	u32 i, index, variant;
	int err = 0;

	for (i = 0; i < 3 * TEST_TURNS * TEST_INDICES && !err; i++) {
		err = pick(bench, &index);
		xa_erase(&bench->used, index);
	}
	for (index = 1; index <= TEST_INDICES && !err; index++)
		for (variant = 0; variant < TEST_VARIANTS; variant++)
			if (bench->when[index][variant] <= 2 * TEST_TURNS) {
				pr_err("variant %u of %u is missing\n", variant,
				       index);
				return -ENOENT;
			}
	return err;
}

/* Some stay for long, so that others are picked several times meanwhile. */
static int test_held(struct bench *bench)
{
	u32 i, index, other;
	int err = 0;

	for (i = 0; i < 20 * TEST_TURNS * TEST_INDICES && !err; i++) {
		err = pick(bench, &index);
		if (err == -ENOMEM)
			err = 0;
		other = 1 + get_random_u32() % TEST_INDICES;
		if (get_random_u32() % 8)
			xa_erase(&bench->used, other);
	}
	return err;
}

/* With all in use there is none, and then the one that is free. */
static int test_full(struct bench *bench)
{
	u32 i, index, key;
	int err = 0;

	for (i = 0; i < TEST_INDICES && !err; i++)
		err = pick(bench, &index);
	if (err)
		return err;
	err = mic_keys_pick(&bench->keys, &bench->used, TEST_INDICES, &key);
	if (err != -ENOMEM) {
		pr_err("one more: %d\n", err);
		return -EIO;
	}
	for (i = 0; i < 2 * TEST_TURNS; i++) {
		xa_erase(&bench->used, 7);
		err = pick(bench, &index);
		if (err || index != 7)
			return err ?: -EIO;
	}
	return 0;
}

static const struct test_case tests[] = {
	{ "turns", test_turns },
	{ "held", test_held },
	{ "full", test_full },
};

const struct cases cases = {
	.of = tests,
	.count = ARRAY_SIZE(tests),
	.bench_size = sizeof(struct bench),
	.open = bench_open,
	.close = bench_close,
};

MODULE_DESCRIPTION("Which memory key is the next one");
MODULE_LICENSE("Dual BSD/GPL");
