/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the tools share: the clock, pinning, medians and the result lines.
 */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NSEC_PER_MSEC 1000000ULL
#define NSEC_PER_SEC 1000000000ULL

/* The processors of the two sides, the same for every tool and for perftest. */
enum { SERVER_CPU = 0, CLIENT_CPU = 1 };

uint64_t now_ns(void);

/* Stay on one processor. Where there is no such processor: anywhere. */
void pin(int cpu);

/* Sorts @values. */
double median(double *values, size_t count);

/* A number of bytes: 4096, 4K, 1M. Ends the program if it is none. */
size_t parse_size(const char *text);

/* One result, as a line of JSON. */
void report(const char *test, const char *device, size_t size, double value,
	    const char *unit);

void *shared_memory(size_t size);

/* @size bytes at @offset of a file that can be mapped; ends the program if not. */
void *file_memory(const char *path, const char *offset, size_t size);

/* Run @side in a child; it never returns from it. */
pid_t start_side(void (*side)(void *), void *argument);

/* Wait for the child; end the program if it failed. */
void join_side(pid_t pid);

void fail(const char *what) __attribute__((noreturn));

#endif /* BENCH_COMMON_H */
