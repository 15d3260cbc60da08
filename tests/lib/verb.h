/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Verbs whose allocations and copies fail (fail.h), one after the other.
 */
#ifndef TESTS_VERB_H
#define TESTS_VERB_H

#include <stdbool.h>

/* Creating returns an object or NULL with errno; undoing 0, or it failed. */
struct verb {
	const char *name;
	void *(*create)(void);
	int (*destroy)(void *object);
};

enum { VERB_MOST = 20000 };

/*
 * Which of a verb's failures there are in one run: the first @each, and of the others
 * only some, @step apart, and others in the next run.
 */
struct failures {
	unsigned int each;
	unsigned int step;
	/* what the verb may say then */
	bool (*expected)(const struct verb *verb, int error);
};

/* Is that what a verb says when memory is short, or user memory is not there? */
bool verb_is_short(const struct verb *verb, int error);

/*
 * The verb works, with each of the failures fails or does without, and works afterwards;
 * nothing of it is left open. False, too, if nothing has failed.
 */
bool verb_survives(const struct verb *verb, const struct failures *failures);

/* For verbs without an object: a pointer stands for success, and is nothing. */
void *done(int error);
int nothing(void *object);

#endif /* TESTS_VERB_H */
