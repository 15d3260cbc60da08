// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * rdma resource show mr: regions of each kind that a process can have. (kernel-ulp has
 * those of fast registrations; one of all memory, "dma", ib_core does not list.)
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "bind.h"
#include "dmabuf.h"
#include "observe.h"
#include "tap.h"
#include "text.h"

enum { BYTES = 3 * PAGE_BYTES, BUF_IOVA = 0x1000000 };

/* A region, and what the tool has to say of it. */
struct shown {
	struct ibv_mr *mr;
	const char *kind;
	uint64_t length;
	uint64_t access;
	uint64_t mapped; /* bytes that its blocks are, at least */
};

static bool find_mr(const struct device *dev, const struct ibv_mr *mr,
		    char *line, int expected)
{
	char key[16];
	const struct filter filters[FILTERS] = { { "lkey", key } };

	snprintf(key, sizeof(key), "0x%x", mr->lkey);
	return list_is(dev, "mr", filters, line, expected);
}

static bool is_shown(const struct device *dev, const struct shown *shown)
{
	char line[LINE_BYTES];

	return check(shown->mr, "no region: %s", strerror(errno)) &&
	       find_mr(dev, shown->mr, line, 1) &&
	       word_is(line, "drv_kind", shown->kind) &&
	       number_is(line, "mrlen", shown->length) &&
	       number_is(line, "drv_valid", 1) &&
	       number_is(line, "drv_access", shown->access) &&
	       check(!strstr(line, "iova"), "anybody may see this: %s", line) &&
	       number_is(line, "drv_windows", 0) &&
	       number_is(line, "drv_mapped", 0) &&
	       check(number_after(line, "drv_blocks") *
				     number_after(line, "drv_block_size") >=
			     shown->mapped,
		     "blocks are missing: %s", line) &&
	       check(shown->mapped || !number_after(line, "drv_blocks"),
		     "blocks of nothing: %s", line);
}

/* It is there as long as it is there. */
static bool comes_and_goes(const struct device *dev, const struct shown *shown)
{
	struct ibv_mr mr;
	bool ok = is_shown(dev, shown);

	if (!shown->mr)
		return false;
	mr = *shown->mr;
	return check(!ibv_dereg_mr(shown->mr), "ibv_dereg_mr fails") &&
	       find_mr(dev, &mr, NULL, 0) && ok;
}

/* --- kinds ------------------------------------------------------------------- */

static void *map_pages(void)
{
	void *pages = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		bail("no memory");
	return pages;
}

/* Ordinary memory, under an address of its own. */
static bool ordinary(const struct device *dev)
{
	void *pages = map_pages();
	struct shown shown = {
		.mr = ibv_reg_mr_iova(dev->pd, pages, BYTES, BUF_IOVA,
				      IBV_ACCESS_REMOTE_READ),
		.kind = "user",
		.length = BYTES,
		.access = IBV_ACCESS_REMOTE_READ,
		.mapped = BYTES,
	};
	bool ok = comes_and_goes(dev, &shown);

	munmap(pages, BYTES);
	return ok;
}

static bool on_demand(const struct device *dev)
{
	const int access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE;
	void *pages = map_pages();
	struct shown shown = {
		.mr = ibv_reg_mr(dev->pd, pages, BYTES, access),
		.kind = "odp",
		.length = BYTES,
		.access = access,
	};
	bool ok = comes_and_goes(dev, &shown);

	munmap(pages, BYTES);
	return ok;
}

static bool whole_space(const struct device *dev)
{
	const int access = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE;
	struct shown shown = {
		.mr = ibv_reg_mr(dev->pd, NULL, SIZE_MAX, access),
		.kind = "odp",
		.length = SIZE_MAX,
		.access = access,
	};

	return comes_and_goes(dev, &shown);
}

static bool of_dmabuf(const struct device *dev)
{
	struct dmabuf buf;
	struct shown shown = {
		.kind = "dmabuf",
		.length = BYTES,
		.access = ACCESS_ALL,
	};
	bool ok;

	if (!dmabuf_create(&buf, BYTES))
		return check(false, "no dma-buf");
	shown.mr = ibv_reg_dmabuf_mr(dev->pd, 0, BYTES, BUF_IOVA, buf.fd,
				     ACCESS_ALL);
	ok = comes_and_goes(dev, &shown);
	dmabuf_destroy(&buf);
	return ok;
}

static bool device_memory(const struct device *dev)
{
	const int access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;
	struct ibv_alloc_dm_attr attr = { .length = BYTES };
	struct ibv_dm *dm = ibv_alloc_dm(dev->ctx, &attr);
	struct shown shown = {
		.kind = "dm",
		.length = BYTES,
		.access = IBV_ACCESS_LOCAL_WRITE,
	};
	bool ok;

	if (!dm)
		return check(false, "no device memory: %s", strerror(errno));
	shown.mr = ibv_reg_dm_mr(dev->pd, dm, 0, BYTES, access);
	ok = comes_and_goes(dev, &shown);
	return check(!ibv_free_dm(dm), "ibv_free_dm fails") && ok;
}

static bool null(const struct device *dev)
{
	struct shown shown = {
		.mr = ibv_alloc_null_mr(dev->pd),
		.kind = "null",
		.access = IBV_ACCESS_LOCAL_WRITE,
	};

	return comes_and_goes(dev, &shown);
}

/* A window is bound to the region, and then it is not. */
static bool bound(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	const int access = ACCESS_ALL | IBV_ACCESS_MW_BIND;
	const struct device *dev = &setup->a_dev;
	struct endpoint a, b;
	struct region region;
	struct ibv_mw_bind_info info;
	char line[LINE_BYTES];
	struct ibv_mw *mw;
	bool ok;

	if (!region_map(&region, MEMORY_ANON, BYTES))
		bail("no memory");
	region_register(&region, dev->pd, access);
	info = bind_info(&region, 0, BYTES, IBV_ACCESS_REMOTE_READ);
	mw = ibv_alloc_mw(dev->pd, IBV_MW_TYPE_1);
	if (!mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	pair_create(&a, &setup->a_dev, &b, &setup->b_dev, &options);
	ok = bind_type1(&a, mw, &info) && find_mr(dev, region.mr, line, 1) &&
	     number_is(line, "drv_windows", 1) && bind_type1(&a, mw, NULL) &&
	     find_mr(dev, region.mr, line, 1) &&
	     number_is(line, "drv_windows", 0);
	pair_destroy(&a, &b);
	tap_must(!ibv_dealloc_mw(mw), "ibv_dealloc_mw fails");
	region_destroy(&region);
	return ok;
}

/* One that is not valid any more, as changing it has failed half-way. */
static bool invalid(const struct device *dev)
{
	void *pages = map_pages();
	struct ibv_mr *mr = ibv_reg_mr(dev->pd, pages, BYTES,
				       IBV_ACCESS_REMOTE_READ);
	char line[LINE_BYTES];
	bool ok;

	if (!mr)
		bail("ibv_reg_mr: %s", strerror(errno));
	if (mprotect(pages, BYTES, PROT_READ))
		bail("mprotect: %s", strerror(errno));
	ok = check(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				ACCESS_ALL),
		   "memory that may not be written is registered for it") &&
	     find_mr(dev, mr, line, 1) && number_is(line, "drv_valid", 0);
	tap_must(!ibv_dereg_mr(mr), "ibv_dereg_mr fails");
	munmap(pages, BYTES);
	return ok;
}

void test_kinds(struct setup *setup)
{
	static const struct {
		const char *name;
		bool (*run)(const struct device *dev);
	} kinds[] = {
		{ "ordinary memory", ordinary },
		{ "memory on demand", on_demand },
		{ "the whole address space", whole_space },
		{ "a dma-buf", of_dmabuf },
		{ "device memory", device_memory },
		{ "a null region", null },
		{ "an invalid region", invalid },
	};
	unsigned int i;

	for (i = 0; i < COUNT(kinds); i++)
		tap_ok(kinds[i].run(&setup->a_dev), "resources: %s",
		       kinds[i].name);
	tap_ok(bound(setup), "resources: a region with a window");
}
