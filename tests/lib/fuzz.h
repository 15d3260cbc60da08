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

/*
 * Run @main in processes of their own, one after the other, each with its own
 * seed, and report a case for each: it must end, by itself or by a signal it
 * brought on itself, and neighbours have to work all the while. Options:
 * "--steps N" and "--processes N"; MIC_TEST_SEED is the first seed. Returns
 * the program's exit status.
 */
int fuzz_run(int argc, char **argv, fuzz_main main, unsigned int steps);

/* The device names the program was given. */
extern const char *fuzz_device, *fuzz_peer;

/* A number that is often at the edge of something. */
uint64_t fuzz_number(struct random_state *random);

/* The doorbell file of this process's context, or -1. */
int fuzz_doorbell_fd(void);

#endif /* TESTS_FUZZ_H */
