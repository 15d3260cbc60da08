// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Domains, regions of each kind, device memory, and windows that are not bound.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <infiniband/micdv.h>

#include "holder.h"
#include "tap.h"

#define READ_ONLY IBV_ACCESS_REMOTE_READ
#define READ_WRITE (ACCESS_ALL & ~IBV_ACCESS_REMOTE_ATOMIC)
#define BUF_IOVA 0x1000000UL

/* --- how each goes ---------------------------------------------------------- */

/* What another process has made in the domain goes with the context. */
static int let_go_of_device(void *object)
{
	struct device *dev = object;
	int error = ibv_dealloc_pd(dev->pd);

	return error && error != EBUSY ? error : ibv_close_device(dev->ctx);
}

int let_go_of_pd(void *pd)
{
	return ibv_dealloc_pd(pd);
}

static int let_go_of_td(void *td)
{
	return ibv_dealloc_td(td);
}

int let_go_of_xrcd(void *xrcd)
{
	return ibv_close_xrcd(xrcd);
}

int let_go_of_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

static int let_go_of_mw(void *mw)
{
	return ibv_dealloc_mw(mw);
}

static int let_go_of_dm(void *dm)
{
	return ibv_free_dm(dm);
}

static int let_go_of_region(void *region)
{
	region_destroy(region);
	return 0;
}

static int let_go_of_buf(void *buf)
{
	dmabuf_destroy(buf);
	return 0;
}

static int let_go_of_watch(void *watch)
{
	micdv_unwatch(watch);
	return 0;
}

static void offer(struct holder *holder, enum target target, uint64_t addr,
		  uint32_t rkey)
{
	holder->mine.targets[target] = (struct place){ addr, rkey };
}

/* --- domains ---------------------------------------------------------------- */

static struct ibv_xrcd *open_xrcd(struct holder *holder, int fd)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = O_CREAT,
	};

	return keep(holder, "XRC domain", ibv_open_xrcd(holder->dev.ctx, &attr),
		    let_go_of_xrcd);
}

void hold_domains(struct holder *holder)
{
	struct ibv_context *ctx = holder->dev.ctx;
	struct ibv_td_init_attr td_attr = { .comp_mask = 0 };
	struct ibv_parent_domain_init_attr attr = { .pd = holder->dev.pd };
	int fd;

	keep(holder, "device", &holder->dev, let_go_of_device);
	keep(holder, "protection domain", ibv_alloc_pd(ctx), let_go_of_pd);
	attr.td = keep(holder, "thread domain", ibv_alloc_td(ctx, &td_attr),
		       let_go_of_td);
	holder->domain = keep(holder, "parent domain",
			      ibv_alloc_parent_domain(ctx, &attr),
			      let_go_of_pd);
	open_xrcd(holder, -1);
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	holder->xrcd = open_xrcd(holder, fd);
	close(fd);
}

/* --- regions ---------------------------------------------------------------- */

static void hold_region(struct holder *holder, struct region *region,
			enum memory_kind kind, int access)
{
	if (!region_map(region, kind, REGION_BYTES))
		bail("no memory: %s", memory_name(kind));
	region_register(region, holder->dev.pd, access);
	keep(holder, memory_name(kind), region, let_go_of_region);
}

/* Memory that may not be written is registered for it, and then for nothing. */
static void hold_invalid_region(struct holder *holder)
{
	static struct region region;

	if (!region_map(&region, MEMORY_ANON, PAGE_BYTES) ||
	    mprotect(region.map, region.map_length, PROT_READ))
		bail("no memory that is read only");
	region_register(&region, holder->dev.pd, READ_ONLY);
	keep(holder, "an invalid region", &region, let_go_of_region);
	if (!ibv_rereg_mr(region.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			  READ_WRITE))
		bail("memory that may not be written is registered for it");
}

struct ibv_mr *hold_missing_page(struct holder *holder, struct ibv_pd *pd)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	/* open, and mapped, until the process ends */
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	range.range.start = (uintptr_t)page;
	range.range.len = PAGE_BYTES;
	if (page == MAP_FAILED || fd < 0 || ioctl(fd, UFFDIO_API, &api) ||
	    ioctl(fd, UFFDIO_REGISTER, &range))
		bail("userfaultfd: %s", strerror(errno));
	return keep(holder, "region of a page that never comes",
		    ibv_reg_mr(pd, page, PAGE_BYTES,
			       READ_WRITE | IBV_ACCESS_ON_DEMAND),
		    let_go_of_mr);
}

static void hold_on_demand(struct holder *holder)
{
	struct ibv_pd *pd = holder->dev.pd;

	hold_region(holder, &holder->on_demand, MEMORY_ANON,
		    ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	keep(holder, "the whole address space",
	     ibv_reg_mr(pd, NULL, SIZE_MAX, READ_WRITE | IBV_ACCESS_ON_DEMAND),
	     let_go_of_mr);
	holder->never = hold_missing_page(holder, pd);
	offer(holder, TARGET_ON_DEMAND, holder->on_demand.rdma_addr,
	      holder->on_demand.mr->rkey);
	offer(holder, TARGET_NEVER, (uintptr_t)holder->never->addr,
	      holder->never->rkey);
}

static void hold_dmabuf(struct holder *holder)
{
	if (!dmabuf_create(&holder->buf, REGION_BYTES))
		bail("there is neither a heap nor vgem");
	keep(holder, "dma-buf", &holder->buf, let_go_of_buf);
	holder->buf_mr = keep(holder, "region of a dma-buf",
			      ibv_reg_dmabuf_mr(holder->dev.pd, 0, REGION_BYTES,
						BUF_IOVA, holder->buf.fd,
						ACCESS_ALL),
			      let_go_of_mr);
	offer(holder, TARGET_DMABUF, BUF_IOVA, holder->buf_mr->rkey);
}

static void hold_dm(struct holder *holder)
{
	struct ibv_alloc_dm_attr attr = { .length = DM_BYTES };

	holder->dm = keep(holder, "device memory",
			  ibv_alloc_dm(holder->dev.ctx, &attr), let_go_of_dm);
	holder->dm_mr = keep(holder, "region of device memory",
			     ibv_reg_dm_mr(holder->dev.pd, holder->dm, 0,
					   DM_BYTES,
					   ACCESS_ALL | IBV_ACCESS_ZERO_BASED),
			     let_go_of_mr);
	offer(holder, TARGET_DM, 0, holder->dm_mr->rkey);
}

static void hold_windows(struct holder *holder)
{
	struct ibv_pd *pd = holder->dev.pd;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		enum ibv_mw_type type = i ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1;

		keep(holder, "window", ibv_alloc_mw(pd, type), let_go_of_mw);
		holder->mw[i] = keep(holder, "window", ibv_alloc_mw(pd, type),
				     let_go_of_mw);
	}
}

void hold_memory(struct holder *holder)
{
	static struct region others[MEMORY_KINDS];
	unsigned int kind;

	hold_region(holder, &holder->region, MEMORY_ANON,
		    ACCESS_ALL | IBV_ACCESS_MW_BIND);
	offer(holder, TARGET_ORDINARY, holder->region.rdma_addr,
	      holder->region.mr->rkey);
	/* no memory is set aside for huge pages */
	for (kind = MEMORY_THP; kind < MEMORY_KINDS; kind++)
		hold_region(holder, &others[kind], kind, ACCESS_ALL);
	hold_invalid_region(holder);
	hold_on_demand(holder);
	hold_dmabuf(holder);
	hold_dm(holder);
	keep(holder, "null region", ibv_alloc_null_mr(holder->dev.pd),
	     let_go_of_mr);
	hold_windows(holder);
	keep(holder, "watch",
	     micdv_watch_memory(holder->dev.ctx, holder->region.map,
				holder->region.map_length),
	     let_go_of_watch);
}
