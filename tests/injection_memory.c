// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory on demand, what another process shares, windows of a peer's memory and
 * watches of one's own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <infiniband/micdv.h>
#include <rdma/mic-abi.h>

#include "dmabuf.h"
#include "fuzz.h"
#include "injection.h"
#include "tap.h"

enum {
	DEMAND_PAGES = 64,
	DEMAND_ACCESS = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE |
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
};

#define DEMAND_BYTES (DEMAND_PAGES * PAGE_BYTES)
#define BUF_BYTES (4 * PAGE_BYTES)

static struct endpoint a, b; /* connected all the time */
static struct ibv_mr *demand;
static void *demand_memory;
static struct dmabuf buf;
static struct ibv_mr *keeps_buf;

static void *reg_demand(void)
{
	return ibv_reg_mr(bench.pd, demand_memory, DEMAND_BYTES, DEMAND_ACCESS);
}

static void *reg_implicit(void)
{
	return ibv_reg_mr(bench.pd, NULL, SIZE_MAX, DEMAND_ACCESS);
}

static int dereg_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

/*
 * A second region of the buffer: dma_buf_vmap() itself warns when the exporter has no
 * memory to map it for the first one.
 */
static void *reg_dmabuf(void)
{
	return ibv_reg_dmabuf_mr(bench.pd, 0, BUF_BYTES, 0, buf.fd, ACCESS_ALL);
}

/* Brought in, and out again afterwards. */
static void *advise(void)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)demand_memory,
		.length = DEMAND_BYTES,
		.lkey = demand->lkey,
	};

	return done(ibv_advise_mr(bench.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
				  IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
}

static int bring_out(void *object)
{
	(void)object;
	return madvise(demand_memory, DEMAND_BYTES, MADV_DONTNEED);
}

static void *import_mr(void)
{
	return ibv_import_mr(bench.pd, bench.setup->a_mem.mr->handle);
}

static int unimport_mr(void *mr)
{
	ibv_unimport_mr(mr);
	return 0;
}

static void *import_dm(void)
{
	return ibv_import_dm(bench.ctx, bench.dm->handle);
}

static int unimport_dm(void *dm)
{
	ibv_unimport_dm(dm);
	return 0;
}

/* --- windows and watches ------------------------------------------------------ */

static void *open_windows(void)
{
	static int fd;

	fd = ioctl(fuzz_doorbell_fd(), MIC_IOC_WINDOWS, 0);
	return fd < 0 ? NULL : &fd;
}

static int close_windows(void *fd)
{
	return close(*(int *)fd);
}

static void *map_window(void)
{
	return micdv_map_window(a.qp, bench.setup->b_mem.rdma_addr,
				bench.setup->b_mem.mr->rkey, 2 * PAGE_BYTES,
				PROT_READ | PROT_WRITE);
}

static int unmap_window(void *window)
{
	return micdv_unmap_window(window);
}

static void *watch(void)
{
	return micdv_watch_memory(bench.ctx, demand_memory, DEMAND_BYTES);
}

static int unwatch(void *object)
{
	micdv_unwatch(object);
	return 0;
}

/* ibv_import_pd() does not ask the kernel. */
const struct verb memory_verbs[] = {
	{ "ibv_reg_mr, on demand", reg_demand, dereg_mr },
	{ "ibv_reg_mr, the whole address space", reg_implicit, dereg_mr },
	{ "ibv_reg_dmabuf_mr", reg_dmabuf, dereg_mr },
	{ "ibv_advise_mr", advise, bring_out },
	{ "ibv_import_mr", import_mr, unimport_mr },
	{ "ibv_import_dm", import_dm, unimport_dm },
	{ "MIC_IOC_WINDOWS", open_windows, close_windows },
	{ "micdv_map_window", map_window, unmap_window },
	{ "micdv_watch_memory", watch, unwatch },
	{ NULL, NULL, NULL },
};

void memory_verbs_open(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	pair_create(&a, &bench.setup->a_dev, &b, &bench.setup->b_dev, &options);
	demand_memory = mmap(NULL, DEMAND_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (demand_memory == MAP_FAILED)
		bail("no memory: %s", strerror(errno));
	demand = reg_demand();
	if (!demand)
		bail("no region on demand: %s", strerror(errno));
	keeps_buf = dmabuf_create(&buf, BUF_BYTES) ? reg_dmabuf() : NULL;
	if (!keeps_buf)
		bail("no region of a dma-buf: %s", strerror(errno));
}

void memory_verbs_close(void)
{
	tap_must(!ibv_dereg_mr(keeps_buf), "ibv_dereg_mr");
	dmabuf_destroy(&buf);
	tap_must(!ibv_dereg_mr(demand), "ibv_dereg_mr");
	munmap(demand_memory, DEMAND_BYTES);
	pair_destroy(&a, &b);
}
