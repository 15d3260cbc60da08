/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Counting what a process executes: a second one has it execute one instruction after
 * the other between two marks. What a call of the kernel does is one instruction here.
 */
#ifndef TESTS_TALLY_H
#define TESTS_TALLY_H

/* Of what was executed between two marks; memory of both processes. */
struct tally {
	volatile unsigned int
		locks; /* exchanges with memory, as locks are taken */
	volatile unsigned int instructions;
};

extern struct tally *tally;

#ifdef __x86_64__
#define TALLY_CAN_COUNT true

static inline void tally_mark(void)
{
	__asm__ volatile("int3" ::: "memory");
}
#else
#define TALLY_CAN_COUNT false

static inline void tally_mark(void)
{
}
#endif

/* Have a child run @be_counted and count. Returns what that returns. */
int tally_run(int (*be_counted)(int argc, char **argv), int argc, char **argv);

#endif /* TESTS_TALLY_H */
