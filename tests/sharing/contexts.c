// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Contexts, protection domains and regions of the first process, which the second
 * one imports: what it makes of them is of the same domain, and what the first one
 * has stays when the second one lets go.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "event.h"
#include "sharing.h"
#include "tap.h"
#include "work.h"

enum { BYTES = 5000, NO_HANDLE = 0x7fff };

/* What names the first one's objects in the context. */
struct handles {
	uint32_t pd;
	uint32_t mr;
	uint64_t addr;
};

struct stage {
	struct side *side;
	/* the second one's: the first one's device as it sees it */
	struct device dev;
	struct ibv_mr *mr;
	struct handles handles;
	/* from the imported domain to a peer of the second one's own */
	struct endpoint a;
	struct endpoint b;
};

static void connect_imported(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	pair_create(&stage->a, &stage->dev, &stage->b,
		    &stage->side->setup.b_dev, &options);
}

static void import(struct stage *stage, int fd)
{
	stage->dev = stage->side->setup.a_dev;
	stage->dev.ctx = ibv_import_device(fd);
	if (!stage->dev.ctx)
		bail("ibv_import_device: %s", strerror(errno));
	stage->dev.pd = ibv_import_pd(stage->dev.ctx, stage->handles.pd);
	if (!stage->dev.pd)
		bail("ibv_import_pd: %s", strerror(errno));
	stage->mr = ibv_import_mr(stage->dev.pd, stage->handles.mr);
	if (!stage->mr)
		bail("ibv_import_mr: %s", strerror(errno));
	connect_imported(stage);
}

static void stage_open(struct stage *stage, struct side *side)
{
	struct setup *setup = &side->setup;
	struct handles mine = {
		.pd = setup->a_dev.pd->handle,
		.mr = setup->a_mem.mr->handle,
		.addr = setup->a_mem.rdma_addr,
	};
	int fd;

	memset(stage, 0, sizeof(*stage));
	stage->side = side;
	fd = pass_fd(side, setup->a_dev.ctx->cmd_fd);
	exchange(side, &mine, &stage->handles, sizeof(mine));
	if (side->second)
		import(stage, fd);
}

static void stage_close(struct stage *stage)
{
	if (!stage->dev.ctx)
		return;
	pair_destroy(&stage->a, &stage->b);
	ibv_unimport_mr(stage->mr);
	ibv_unimport_pd(stage->dev.pd);
	tap_must(!ibv_close_device(stage->dev.ctx), "ibv_close_device fails");
}

/* The first one's memory, as its region calls it. */
static struct ibv_sge imported_sge(const struct stage *stage, uint32_t length)
{
	return (struct ibv_sge){ .addr = stage->handles.addr,
				 .length = length,
				 .lkey = stage->mr->lkey };
}

static bool transfer(struct stage *stage, enum ibv_wr_opcode opcode,
		     struct ibv_sge *sge, enum ibv_wc_status status)
{
	const struct region *there = &stage->side->setup.b_mem;
	struct ibv_send_wr wr = send_wr(1, opcode, sge, 1);

	wr.wr.rdma.remote_addr = there->rdma_addr;
	wr.wr.rdma.rkey = there->mr->rkey;
	post_send(&stage->a, &wr);
	return cq_expect(stage->a.send_cq, 1, status);
}

/* Into the first one's memory, and out of it. */
static bool moves_imported(struct stage *stage)
{
	struct setup *setup = &stage->side->setup;
	struct ibv_sge sge;
	bool ok = true;

	memset(setup->a_mem.addr, 0x11, BYTES);
	if (!meet(stage->side, true))
		return false;
	if (stage->side->second) {
		sge = imported_sge(stage, BYTES);
		memset(setup->b_mem.addr, 0x22, BYTES);
		ok = transfer(stage, IBV_WR_RDMA_READ, &sge, IBV_WC_SUCCESS) &&
		     all_are(setup->a_mem.addr, BYTES, 0x11);
	}
	if (!meet(stage->side, ok))
		return false;
	if (!stage->side->second) {
		ok = all_are(setup->a_mem.addr, BYTES, 0x22);
		memset(setup->a_mem.addr, 0x33, BYTES);
	}
	if (!meet(stage->side, ok))
		return false;
	if (stage->side->second)
		ok = transfer(stage, IBV_WR_RDMA_WRITE, &sge, IBV_WC_SUCCESS) &&
		     all_are(setup->b_mem.addr, BYTES, 0x33);
	return ok;
}

/* Not beyond its end, and not as a key of another context. */
static bool imported_bounds(struct stage *stage)
{
	struct ibv_sge sge;
	bool ok;

	if (!stage->side->second)
		return true;
	sge = imported_sge(stage, 8);
	sge.addr += REGION_BYTES - 7;
	ok = transfer(stage, IBV_WR_RDMA_WRITE, &sge, IBV_WC_LOC_PROT_ERR);
	pair_destroy(&stage->a, &stage->b);
	connect_imported(stage);
	sge = region_sge(&stage->side->setup.a_mem, 0, 8);
	return transfer(stage, IBV_WR_RDMA_WRITE, &sge, IBV_WC_LOC_PROT_ERR) &&
	       ok;
}

/* The first one's connection of its own, in the domain that both are in. */
static bool first_reads(struct stage *stage, const struct ibv_sge *from,
			enum ibv_wc_status status)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct stage own = { .side = stage->side };
	struct setup *setup = &stage->side->setup;
	struct ibv_sge sge = *from;
	bool ok;

	pair_create(&own.a, &setup->a_dev, &own.b, &setup->b_dev, &options);
	memset(setup->b_mem.addr, 0, BYTES);
	ok = transfer(&own, IBV_WR_RDMA_WRITE, &sge, status);
	pair_destroy(&own.a, &own.b);
	return ok;
}

/* A region that the second one registers is one of the first one's domain. */
static bool registers_for_first(struct stage *stage)
{
	struct side *side = stage->side;
	struct ibv_sge mine = { .length = BYTES }, theirs;
	struct region region;
	bool ok = true;

	if (side->second) {
		region_create(&region, stage->dev.pd, BYTES);
		memset(region.addr, 0x44, BYTES);
		mine = region_sge(&region, 0, BYTES);
	}
	exchange(side, &mine, &theirs, sizeof(mine));
	if (!side->second)
		ok = first_reads(stage, &theirs, IBV_WC_SUCCESS) &&
		     all_are(side->setup.b_mem.addr, BYTES, 0x44);
	ok = meet(side, ok);
	if (side->second)
		region_destroy(&region);
	ok = meet(side, ok) && ok;
	if (!side->second)
		ok = first_reads(stage, &theirs, IBV_WC_LOC_PROT_ERR) && ok;
	return ok;
}

/* A region of the first one's that the second one destroys: it has no key then. */
static bool destroyed_by_second(struct stage *stage)
{
	struct side *side = stage->side;
	uint32_t mine = 0, handle;
	struct region region = { .mr = NULL };
	struct ibv_sge sge = { .addr = 0 };
	struct ibv_mr *mr;
	bool ok = true;

	if (!side->second) {
		region_create(&region, side->setup.a_dev.pd, BYTES);
		sge = region_sge(&region, 0, BYTES);
		mine = region.mr->handle;
		ok = first_reads(stage, &sge, IBV_WC_SUCCESS);
	}
	exchange(side, &mine, &handle, sizeof(mine));
	if (side->second) {
		mr = ibv_import_mr(stage->dev.pd, handle);
		ok = check(mr, "ibv_import_mr: %s", strerror(errno)) &&
		     check(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	}
	ok = meet(side, ok);
	if (!side->second) {
		ibv_unimport_mr(region.mr);
		region.mr = NULL;
		ok = first_reads(stage, &sge, IBV_WC_LOC_PROT_ERR) && ok;
		region_destroy(&region);
	}
	return ok;
}

/* Handles of nothing, and a descriptor of no device. */
static bool refuses(struct stage *stage)
{
	struct ibv_context *ctx;
	int fd;

	if (!stage->side->second)
		return true;
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	ctx = ibv_import_device(fd);
	close(fd);
	return check(!ctx, "/dev/null is a device") &&
	       check(!ibv_import_mr(stage->dev.pd, NO_HANDLE),
		     "an unknown region is imported") &&
	       check(!ibv_import_mr(stage->dev.pd, stage->handles.pd),
		     "a domain is imported as a region") &&
	       check(!ibv_import_dm(stage->dev.ctx, NO_HANDLE),
		     "unknown device memory is imported");
}

/* Whoever lets go of an import destroys nothing. */
static bool lets_go(struct stage *stage)
{
	struct setup *setup = &stage->side->setup;
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, BYTES);

	if (stage->side->second) {
		stage_close(stage);
		stage->dev.ctx = NULL;
	}
	if (!meet(stage->side, true))
		return false;
	memset(setup->a_mem.addr, 0x55, BYTES);
	return stage->side->second ||
	       (first_reads(stage, &sge, IBV_WC_SUCCESS) &&
		all_are(setup->b_mem.addr, BYTES, 0x55));
}

static const struct {
	bool (*run)(struct stage *stage);
	const char *name;
} cases[] = {
	{ moves_imported, "import: data of the other process's region" },
	{ imported_bounds, "import: no more than that region" },
	{ registers_for_first, "import: a region for the other process" },
	{ destroyed_by_second, "import: a region that the importer destroys" },
	{ refuses, "import: what is refused" },
	{ lets_go, "import: the first process keeps what it has" },
};

void run_contexts(struct side *side)
{
	struct stage stage;
	unsigned int i;
	bool ok;

	for (i = 0; i < COUNT(cases); i++) {
		stage_open(&stage, side);
		ok = meet(side, cases[i].run(&stage));
		stage_close(&stage);
		report(side, ok, cases[i].name);
	}
}
