// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Creates, changes, uses and destroys objects of every kind in random order from
 * several threads. What is in use by another object stays.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "event.h"
#include "fuzz.h"
#include "objects.h"
#include "tap.h"

enum { THREADS = 4, PLACES = 64 };

struct device dev;
uint8_t memory[MEMORY_BYTES] __attribute__((aligned(4096)));

static struct {
	atomic_ullong addr;
	atomic_uint rkey;
} places[PLACES];

static const char *const names[KINDS] = {
	[KIND_PD] = "protection domains",
	[KIND_TD] = "thread domains",
	[KIND_PARENT] = "parent domains",
	[KIND_XRCD] = "XRC domains",
	[KIND_CHANNEL] = "channels",
	[KIND_CQ] = "completion queues",
	[KIND_SRQ] = "shared receive queues",
	[KIND_XRC_SRQ] = "XRC receive queues",
	[KIND_MR] = "regions",
	[KIND_DM] = "pieces of device memory",
	[KIND_MW] = "memory windows",
	[KIND_AH] = "address handles",
	[KIND_PAIR] = "pairs",
	[KIND_WINDOW] = "mapped windows",
	[KIND_WATCH] = "watches",
	[KIND_IMPORT] = "imports",
};

static atomic_uint made[KINDS];

static const struct kind_ops *const tables[] = {
	domain_kinds, queue_kinds, memory_kinds, pair_kinds, other_kinds,
};

static const enum kind first_of[] = {
	KIND_PD, KIND_CHANNEL, KIND_MR, KIND_AH, KIND_WINDOW,
};

uint32_t below(struct worker *worker, uint32_t limit)
{
	return random_below(&worker->random, limit);
}

bool one_of(struct worker *worker, uint32_t n)
{
	return !below(worker, n);
}

void *any(struct worker *worker, enum kind kind)
{
	return worker->objects[kind][below(worker, SLOTS)];
}

struct ibv_pd *any_pd(struct worker *worker)
{
	struct ibv_pd *pd = one_of(worker, 2) ? any(worker, KIND_PD) : NULL;

	return pd ? pd : dev.pd;
}

struct ibv_pd *any_domain(struct worker *worker)
{
	struct ibv_pd *pd = any(worker, KIND_PARENT);

	return pd ? pd : any_pd(worker);
}

void publish(struct worker *worker, uint64_t addr, uint32_t rkey)
{
	unsigned int i = below(worker, PLACES);

	atomic_store(&places[i].addr, addr);
	atomic_store(&places[i].rkey, rkey);
}

struct place any_place(struct worker *worker)
{
	unsigned int i = below(worker, PLACES);

	return (struct place){ atomic_load(&places[i].addr),
			       atomic_load(&places[i].rkey) };
}

void *zeroed(size_t bytes)
{
	void *object = calloc(1, bytes);

	if (!object)
		bail("out of memory");
	return object;
}

static const struct kind_ops *ops_of(enum kind kind)
{
	unsigned int i = COUNT(first_of) - 1;

	while (kind < first_of[i])
		i--;
	return &tables[i][kind - first_of[i]];
}

static void one_step(struct worker *worker)
{
	/* as many steps are of pairs as of all others */
	enum kind kind = one_of(worker, 2) ? KIND_PAIR : below(worker, KINDS);
	void **object = &worker->objects[kind][below(worker, SLOTS)];
	const struct kind_ops *ops = ops_of(kind);

	if (!*object) {
		*object = ops->create(worker);
		atomic_fetch_add(&made[kind], !!*object);
	} else if (ops->use && !one_of(worker, kind == KIND_PAIR ? 16 : 3)) {
		ops->use(worker, *object);
	} else if (!ops->destroy(*object)) {
		*object = NULL;
	}
	if (one_of(worker, 16))
		events_drop(dev.ctx);
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	while (worker->steps--)
		one_step(worker);
	return NULL;
}

/* Later kinds use earlier ones; a second time for what used its own kind. */
static void destroy_all(struct worker *worker)
{
	unsigned int round, slot;
	int kind, error;

	for (round = 0; round < 2; round++) {
		for (kind = KINDS - 1; kind >= 0; kind--) {
			for (slot = 0; slot < SLOTS; slot++) {
				void **object = &worker->objects[kind][slot];

				error = *object ?
						ops_of(kind)->destroy(*object) :
						0;
				if (!error)
					*object = NULL;
				else if (round)
					bail("%s: one stays: %s", names[kind],
					     strerror(error));
			}
		}
	}
}

static bool all_made(void)
{
	unsigned int kind;

	for (kind = 0; kind < KINDS; kind++)
		if (!atomic_load(&made[kind]))
			return false;
	return true;
}

/* Else nothing is said of a kind; what takes luck may take more steps. */
static void expect_all_kinds(struct worker *worker, unsigned int steps)
{
	unsigned int kind;

	while (!all_made() && steps--)
		one_step(worker);
	for (kind = 0; kind < KINDS; kind++) {
		tap_note("%u %s", atomic_load(&made[kind]), names[kind]);
		if (!atomic_load(&made[kind]))
			bail("no %s", names[kind]);
	}
}

static void objects(struct random_state *random, unsigned int steps)
{
	static struct worker workers[THREADS];
	int i;

	device_open(&dev, fuzz_device);
	events_prepare(dev.ctx);
	for (i = 0; i < THREADS; i++) {
		random_seed(&workers[i].random, random_next(random));
		workers[i].steps = steps / THREADS;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			exit(1);
	}
	/* half of the processes leave in the middle of it */
	if (random_below(random, 2)) {
		pthread_join(workers[0].thread, NULL);
		return;
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	expect_all_kinds(&workers[0], 20 * steps);
	for (i = 0; i < THREADS; i++)
		destroy_all(&workers[i]);
	device_close(&dev);
}

int main(int argc, char **argv)
{
	return fuzz_run(argc, argv, objects, 4000, FUZZ_ENDS);
}
