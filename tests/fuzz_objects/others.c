// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Mapped windows of what other threads have registered, watches, and contexts
 * that are imported.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <infiniband/micdv.h>

#include "memory.h"
#include "objects.h"

/* --- mapped windows ----------------------------------------------------------- */

/* Most pairs are of types that map nothing. */
static struct pair *pair_that_maps(struct worker *worker)
{
	struct pair *pair = NULL;
	unsigned int i;

	for (i = 0; i < SLOTS; i++) {
		pair = any(worker, KIND_PAIR);
		if (pair && pair->ends[0].options.type == IBV_QPT_RC)
			break;
	}
	return pair;
}

/* And most regions are of other domains. */
static struct area *area_for(struct worker *worker, const struct pair *pair)
{
	struct area *area = NULL;
	unsigned int i;

	for (i = 0; i < SLOTS; i++) {
		area = any(worker, KIND_MR);
		if (area && area->mr->pd == pair->ends[1].qp->pd)
			break;
	}
	return area;
}

static void *new_window(struct worker *worker)
{
	struct pair *pair = pair_that_maps(worker);
	struct area *area;
	struct place place = any_place(worker);
	uint32_t length = 1 + below(worker, MEMORY_BYTES / 2);

	if (!pair)
		return NULL;
	area = area_for(worker, pair);
	/* most of them inside: what has to match besides is rare enough */
	if (area && !one_of(worker, 4)) {
		place = (struct place){ area->addr, area->mr->rkey };
		length = 1 + below(worker, area->length);
	}
	return micdv_map_window(
		pair->ends[0].qp, place.addr, place.rkey, length,
		one_of(worker, 2) ? PROT_READ : PROT_READ | PROT_WRITE);
}

static int end_window(void *window)
{
	return micdv_unmap_window(window);
}

static void use_window(struct worker *worker, void *object)
{
	struct micdv_window *window = object;
	volatile uint8_t *byte = (uint8_t *)window->addr +
				 below(worker, window->length);
	uint8_t value = *byte;

	if (window->prot & PROT_WRITE)
		*byte = value + 1;
	micdv_window_valid(window);
}

/* --- watches ------------------------------------------------------------------ */

static void *new_watch(struct worker *worker)
{
	size_t offset = below(worker, MEMORY_BYTES / 2);

	return micdv_watch_memory(dev.ctx, memory + offset,
				  1 + below(worker, MEMORY_BYTES / 2));
}

static int end_watch(void *watch)
{
	micdv_unwatch(watch);
	return 0;
}

static void use_watch(struct worker *worker, void *watch)
{
	(void)worker;
	micdv_watch_state(watch);
}

/* --- imports ------------------------------------------------------------------ */

struct import {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	struct ibv_mr *own; /* registered in it */
};

static void *new_import(struct worker *worker)
{
	struct import *import = zeroed(sizeof(*import));
	struct area *area = any(worker, KIND_MR);
	struct ibv_dm *dm = any(worker, KIND_DM);

	import->ctx = ibv_import_device(dup(dev.ctx->cmd_fd));
	if (!import->ctx) {
		free(import);
		return NULL;
	}
	import->pd = ibv_import_pd(import->ctx, dev.pd->handle);
	if (import->pd && area)
		import->mr = ibv_import_mr(import->pd, area->mr->handle);
	if (dm)
		import->dm = ibv_import_dm(import->ctx, dm->handle);
	return import;
}

static int end_import(void *object)
{
	struct import *import = object;

	if (import->own)
		ibv_dereg_mr(import->own);
	if (import->dm)
		ibv_unimport_dm(import->dm);
	if (import->mr)
		ibv_unimport_mr(import->mr);
	if (import->pd)
		ibv_unimport_pd(import->pd);
	ibv_close_device(import->ctx);
	free(import);
	return 0;
}

static void use_import(struct worker *worker, void *object)
{
	struct import *import = object;
	uint32_t word;

	if (import->dm)
		ibv_memcpy_from_dm(&word, import->dm, 0, sizeof(word));
	if (!import->pd)
		return;
	if (!import->own)
		import->own = ibv_reg_mr(import->pd, memory, MEMORY_BYTES,
					 ACCESS_ALL);
	else if (!ibv_dereg_mr(import->own))
		import->own = NULL;
	if (import->own)
		publish(worker, (uintptr_t)memory, import->own->rkey);
}

const struct kind_ops other_kinds[] = {
	{ new_window, end_window, use_window },
	{ new_watch, end_watch, use_watch },
	{ new_import, end_import, use_import },
};
