/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What loading one of these modules does: the case that its parameter "test" names,
 * between the devices "device" and "peer". The module stays if it passes.
 */
#ifndef TESTS_KERNEL_CASES_H
#define TESTS_KERNEL_CASES_H

#include <linux/types.h>

/* What a case works with; each module has its own. */
struct bench;

struct test_case {
	const char *name;
	/* Return: 0, an error, or the status of a completion. */
	int (*run)(struct bench *bench);
};

/**
 * struct cases - a module's
 * @of: the cases
 * @count: how many
 * @bench_size: bytes of a struct bench, all 0 at first
 * @open: prepares one
 * @close: the opposite, also after that has failed
 */
struct cases {
	const struct test_case *of;
	unsigned int count;
	size_t bench_size;
	int (*open)(struct bench *bench, const char *device, const char *peer);
	void (*close)(struct bench *bench);
};

/* Each module has one. */
extern const struct cases cases;

#endif /* TESTS_KERNEL_CASES_H */
