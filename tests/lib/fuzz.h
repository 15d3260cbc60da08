/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A process that misbehaves, beside a connection that must not notice.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdint.h>

#include "pattern.h"

/* What the process does: @steps of it, with numbers from @random, and fuzz_step() each. */
typedef void (*fuzz_main)(struct random_state *random, unsigned int steps);

/* What such a process may bring on itself. */
enum fuzz_fate {
	FUZZ_ENDS = 0,
	FUZZ_MAY_CRASH = 1 << 0, /* a signal */
	FUZZ_MAY_HANG = 1 << 1,	 /* for what it spoiled, not in the kernel */
};

/*
 * What has to be done, or the test says nothing: at least @least times by each
 * process, on average, if it makes the program's own number of steps.
 */
struct fuzz_goal {
	const char *name;
	unsigned int least;
};

/* Another one of the goal of this index; children of the process may call it. */
void fuzz_count(unsigned int goal);
/* As many more. */
void fuzz_add(unsigned int goal, unsigned int n);

/* Another step is made: the process does not hang. Its children may call it, too. */
void fuzz_step(void);

/*
 * Run @main in processes of their own, one after the other, each with its own
 * seed, and report a case for each: it must end, well or as @fate allows, and
 * neighbours have to work all the while. Options: "--steps N", "--processes N"
 * and "--minutes N", as many processes as there is time for; MIC_TEST_SEED is
 * the first seed. A case for each of the @goals follows; they end with one without
 * a name, or are NULL. Returns the program's exit status.
 */
int fuzz_run(int argc, char **argv, fuzz_main main, unsigned int steps,
	     unsigned int fate, const struct fuzz_goal *goals);

/* The device names the program was given. */
extern const char *fuzz_device, *fuzz_peer;

/* A number that is often at the edge of something. */
uint64_t fuzz_number(struct random_state *random);

/* The doorbell file of this process's context, or -1. */
int fuzz_doorbell_fd(void);

#endif /* TESTS_FUZZ_H */
