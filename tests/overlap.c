// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Requests whose source and target overlap: in one process, which has the memory of its
 * peer mapped twice if it executes them itself. What arrives is what was there before.
 */
#include <errno.h>
#include <string.h>
#include <infiniband/micdv.h>

#include "executed.h"
#include "pattern.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { ROOM = 4 * PAGE_BYTES, LITTLE = 64, ID = 1, PIECES = 3 };

/* The same memory as a's and as b's. */
struct stage {
	struct setup setup;
	struct endpoint a;
	struct endpoint b;
	uint8_t *memory;
	struct ibv_mr *local;
	struct ibv_mr *remote;
	uint64_t iova; /* what peers call the first byte */
	enum micdv_path path;
};

static void stage_open(struct stage *stage, uint64_t iova, enum micdv_path path)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	options.sges = PIECES;
	pair_create(&stage->a, &stage->setup.a_dev, &stage->b,
		    &stage->setup.b_dev, &options);
	stage->iova = iova;
	stage->path = path;
	stage->local = ibv_reg_mr(stage->setup.a_dev.pd, stage->memory, ROOM,
				  ACCESS_ALL);
	stage->remote = ibv_reg_mr_iova(stage->setup.b_dev.pd, stage->memory,
					ROOM, iova, ACCESS_ALL);
	if (!stage->local || !stage->remote ||
	    micdv_set_path(stage->a.qp, path))
		bail("no regions, or no path: %s", strerror(errno));
}

static void stage_close(struct stage *stage)
{
	pair_destroy(&stage->a, &stage->b);
	tap_must(!ibv_dereg_mr(stage->local) && !ibv_dereg_mr(stage->remote),
		 "ibv_dereg_mr fails");
}

/* One request, whose local memory is in @n pieces that follow each other. */
static bool copies(struct stage *stage, enum ibv_wr_opcode opcode, size_t local,
		   size_t remote, uint32_t length, uint32_t n)
{
	const bool read = opcode == IBV_WR_RDMA_READ;
	const size_t from = read ? remote : local, to = read ? local : remote;
	static uint8_t expected[ROOM];
	struct ibv_sge sges[PIECES];
	struct ibv_send_wr wr = send_wr(ID, opcode, sges, (int)n);
	uint32_t i, piece = length / n;

	memcpy(stage->memory, pattern_bytes(length, ROOM), ROOM);
	memcpy(expected, stage->memory, ROOM);
	memmove(expected + to, expected + from, length);
	for (i = 0; i < n; i++) {
		sges[i].addr = (uintptr_t)stage->memory + local + i * piece;
		sges[i].length = i < n - 1 ? piece : length - i * piece;
		sges[i].lkey = stage->local->lkey;
	}
	send_wr_aim(&wr, stage->iova + remote, stage->remote->rkey);
	post_send(&stage->a, &wr);
	return cq_expect(stage->a.send_cq, ID, IBV_WC_SUCCESS) &&
	       check(!memcmp(stage->memory, expected, ROOM),
		     "%s of %u bytes in %u pieces, local at %zu, remote at %zu",
		     opcode_name(opcode), length, n, local, remote);
}

/* Up and down, by @distance. */
static bool moves(struct stage *stage, size_t at, size_t distance,
		  uint32_t length, uint32_t n)
{
	const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE,
					       IBV_WR_RDMA_READ };
	bool ok = true;
	size_t i;

	for (i = 0; i < COUNT(opcodes); i++)
		ok = copies(stage, opcodes[i], at, at + distance, length, n) &&
		     copies(stage, opcodes[i], at + distance, at, length, n) &&
		     ok;
	return ok;
}

/* Within a page, and from one to the next. */
static bool little_moves(struct stage *stage, uint32_t n)
{
	const size_t places[] = { 64, PAGE_BYTES - 20, 2 * PAGE_BYTES - 48 };
	const size_t distances[] = { 0, 1, 3, 8, 16, 24, 40 };
	uint32_t length;
	size_t i, k;

	for (i = 0; i < COUNT(places); i++)
		for (k = 0; k < COUNT(distances); k++)
			for (length = n; length <= LITTLE; length++)
				if (!moves(stage, places[i], distances[k],
					   length, n))
					return false;
	return true;
}

/* Within a page: of more than one the kernel copies one after the other. */
static bool large_moves(struct stage *stage, uint32_t n)
{
	const uint32_t lengths[] = { 65, 100, 128, 200, 1000, 2000 };
	const size_t distances[] = { 0, 1, 8, 32, 40, 64, 500 };
	size_t i, k;

	for (i = 0; i < COUNT(lengths); i++)
		for (k = 0; k < COUNT(distances); k++)
			if (!moves(stage, 64, distances[k], lengths[i], n))
				return false;
	return true;
}

/* The process executes what it did before. */
static bool is_executed_here(struct stage *stage, uint32_t length,
			     size_t distance)
{
	uint64_t before = executed_here(&stage->a);

	return moves(stage, 64, distance, length, 1) &&
	       check(executed_here(&stage->a) - before == 4,
		     "%u bytes: the process executes %u of 4 requests", length,
		     (unsigned int)(executed_here(&stage->a) - before));
}

static bool little(struct stage *stage)
{
	return little_moves(stage, 1) && little_moves(stage, PIECES);
}

static bool large(struct stage *stage)
{
	/* in pieces nobody promises it */
	return large_moves(stage, 1);
}

static void run_path(struct stage *stage, const char *name, uint64_t iova,
		     enum micdv_path path)
{
	stage_open(stage, iova, path);
	tap_ok(little(stage), "%s: up to %d bytes", name, LITTLE);
	tap_ok(large(stage), "%s: more", name);
	if (path == MICDV_PATH_DIRECT) {
		tap_ok(is_executed_here(stage, LITTLE, 8),
		       "%s: little is not left to the kernel", name);
		tap_ok(iova != (uintptr_t)stage->memory ||
			       is_executed_here(stage, 1000, 1000),
		       "%s: nor is what does not overlap", name);
	}
	stage_close(stage);
}

int main(int argc, char **argv)
{
	struct region region;
	struct stage stage = { .iova = 0 };

	setup_open(&stage.setup, &argc, argv, PAGE_BYTES);
	if (!region_map(&region, MEMORY_ANON, ROOM + PAGE_BYTES))
		bail("cannot map memory");
	/* it begins within a page */
	stage.memory = region.addr + PAGE_BYTES -
		       (uintptr_t)region.addr % PAGE_BYTES;
	run_path(&stage, "by the process", (uintptr_t)stage.memory,
		 MICDV_PATH_DIRECT);
	run_path(&stage, "by the process, at other addresses", PAGE_BYTES,
		 MICDV_PATH_DIRECT);
	run_path(&stage, "by the kernel", (uintptr_t)stage.memory,
		 MICDV_PATH_ENGINE);
	region_destroy(&region);
	setup_close(&stage.setup);
	return tap_end();
}
