/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Threads that create, change, use and destroy objects of every kind.
 */
#ifndef TESTS_FUZZ_OBJECTS_H
#define TESTS_FUZZ_OBJECTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "endpoint.h"
#include "pattern.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { SLOTS = 6, MEMORY_BYTES = 1 << 16 };

enum kind {
	KIND_PD,
	KIND_TD,
	KIND_PARENT,
	KIND_XRCD,
	KIND_CHANNEL,
	KIND_CQ,
	KIND_SRQ,
	KIND_XRC_SRQ,
	KIND_MR,
	KIND_DM,
	KIND_MW,
	KIND_AH,
	KIND_PAIR,
	KIND_WINDOW,
	KIND_WATCH,
	KIND_IMPORT,
	KINDS
};

/* Its objects are its own; what they access is everybody's. */
struct worker {
	pthread_t thread;
	struct random_state random;
	unsigned int steps;
	void *objects[KINDS][SLOTS];
};

struct kind_ops {
	/* NULL if there is none now */
	void *(*create)(struct worker *worker);
	/* not 0 if it is in use */
	int (*destroy)(void *object);
	/* may be missing; change it, or have it do something */
	void (*use)(struct worker *worker, void *object);
};

extern const struct kind_ops domain_kinds[]; /* up to KIND_XRCD */
extern const struct kind_ops queue_kinds[];  /* KIND_CHANNEL and on */
extern const struct kind_ops memory_kinds[]; /* KIND_MR and on */
extern const struct kind_ops pair_kinds[];   /* KIND_AH and on */
extern const struct kind_ops other_kinds[];  /* KIND_WINDOW and on */

/* A region, and what there is to access. */
struct area {
	struct ibv_mr *mr;
	uint64_t addr;
	size_t length;
};

/* Two queue pairs that are connected, or were. */
struct pair {
	struct endpoint ends[2];
};

struct place {
	uint64_t addr;
	uint32_t rkey;
};

extern const char *const kind_names[KINDS];
/* How many were created. */
extern atomic_uint made[KINDS];

const struct kind_ops *ops_of(enum kind kind);
/* Create, change, use or destroy an object of some kind. */
void one_step(struct worker *worker);

extern struct device dev;
extern uint8_t memory[MEMORY_BYTES];

uint32_t below(struct worker *worker, uint32_t limit);
bool one_of(struct worker *worker, uint32_t n);
/* One that the thread has, or NULL. */
void *any(struct worker *worker, enum kind kind);
struct ibv_pd *any_pd(struct worker *worker);
/* For queues. */
struct ibv_pd *any_domain(struct worker *worker);

/* Keys of all threads, some of which are gone. */
void publish(struct worker *worker, uint64_t addr, uint32_t rkey);
struct place any_place(struct worker *worker);

/* Memory for a thread's object. */
void *zeroed(size_t bytes);

/* Some bytes of a region, or none. */
struct ibv_sge any_sge(struct worker *worker);

#endif /* TESTS_FUZZ_OBJECTS_H */
