/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A process that misbehaves, beside a connection that must not notice.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdint.h>

#include "pattern.h"

/* What the process does: @steps of it, with numbers from @random. */
typedef void (*fuzz_main)(struct random_state *random, unsigned int steps);

/* What such a process may bring on itself. */
enum fuzz_fate {
	FUZZ_ENDS = 0,
	FUZZ_MAY_CRASH = 1 << 0, /* a signal */
	FUZZ_MAY_HANG = 1 << 1,	 /* it waits for what it spoiled */
};

/*
 * Run @main in processes of their own, one after the other, each with its own
 * seed, and report a case for each: it must end, well or as @fate allows, and
 * neighbours have to work all the while. Options: "--steps N", "--processes N"
 * and "--minutes N", as many processes as there is time for; MIC_TEST_SEED is
 * the first seed. Returns the program's exit status.
 */
int fuzz_run(int argc, char **argv, fuzz_main main, unsigned int steps,
	     unsigned int fate);

/* The device names the program was given. */
extern const char *fuzz_device, *fuzz_peer;

/* A number that is often at the edge of something. */
uint64_t fuzz_number(struct random_state *random);

/* The doorbell file of this process's context, or -1. */
int fuzz_doorbell_fd(void);

#endif /* TESTS_FUZZ_H */
