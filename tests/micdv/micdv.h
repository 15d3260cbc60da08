/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MICDV_TEST_H
#define MICDV_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <infiniband/micdv.h>

#include "setup.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { BYTES = 4 * PAGE_BYTES, RW = PROT_READ | PROT_WRITE };

/* A connection, whose peer is @b. */
struct pair {
	struct endpoint a;
	struct endpoint b;
};

/* main.c */
extern struct setup setup;
void open_pair(struct pair *pair, enum ibv_qp_type type, unsigned int access);
void close_pair(struct pair *pair);
bool is_error(int error, int expected);
/* No more address space, until what is in @before is set again. */
void limit_memory(struct rlimit *before);

/* dm.c */
void run_dm(void);

/* map.c */

/* Map, and end it: returns 0 or the error. */
int map(struct ibv_qp *qp, uint64_t addr, uint32_t rkey, size_t length,
	int prot);
void run_map(void);

#endif /* MICDV_TEST_H */
