// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The kinds of objects, and one step of a thread with one of them.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "event.h"
#include "fuzz.h"
#include "objects.h"
#include "tap.h"

enum { PLACES = 64 };

struct device dev;
uint8_t memory[MEMORY_BYTES] __attribute__((aligned(4096)));

static struct {
	atomic_ullong addr;
	atomic_uint rkey;
} places[PLACES];

const char *const kind_names[KINDS] = {
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

atomic_uint made[KINDS];

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

const struct kind_ops *ops_of(enum kind kind)
{
	unsigned int i = COUNT(first_of) - 1;

	while (kind < first_of[i])
		i--;
	return &tables[i][kind - first_of[i]];
}

void one_step(struct worker *worker)
{
	/* as many steps are of pairs as of all others */
	enum kind kind = one_of(worker, 2) ? KIND_PAIR : below(worker, KINDS);
	void **object = &worker->objects[kind][below(worker, SLOTS)];
	const struct kind_ops *ops = ops_of(kind);

	fuzz_step();
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
