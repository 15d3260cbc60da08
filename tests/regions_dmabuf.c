// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions of dma-bufs.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "dmabuf.h"
#include "pattern.h"
#include "regions.h"
#include "tap.h"
#include "work.h"

#define DMABUF_BYTES (8 * PAGE_BYTES)

#define DMABUF_IOVA 0x1000000UL

static struct dmabuf buf;

/* Its RDMA address is as far into a page as @offset, as uverbs wants it. */
static struct ibv_mr *dmabuf_mr_of(struct stage *stage, int fd, uint64_t offset,
				   size_t length)
{
	return ibv_reg_dmabuf_mr(stage->setup->a_dev.pd, offset, length,
				 DMABUF_IOVA + offset % PAGE_BYTES, fd,
				 ACCESS_ALL);
}

static struct ibv_mr *dmabuf_mr(struct stage *stage, uint64_t offset,
				size_t length)
{
	return dmabuf_mr_of(stage, buf.fd, offset, length);
}

/* What is written arrives in the buffer, and what is read comes from it. */
static bool dmabuf_traffic(struct stage *stage)
{
	const size_t offset = 4096 + 40, length = 3 * 4096;
	struct ibv_mr *mr = dmabuf_mr(stage, offset, length);
	const uint8_t *bytes = pattern_bytes(4, length);
	struct ibv_sge sge = { .addr = DMABUF_IOVA + 40, .length = length };
	bool ok;

	if (!check(mr, "ibv_reg_dmabuf_mr: %s", strerror(errno)))
		return false;
	sge.lkey = mr->lkey;
	memset(buf.addr, FILL_BYTE, buf.length);
	memcpy(stage->setup->b_mem.addr, bytes, length);
	ok = succeeds(access_b(stage, IBV_WR_RDMA_READ, &sge, 1, 0)) &&
	     check(!memcmp(buf.addr + offset, bytes, length), "read") &&
	     all_are(buf.addr, offset, FILL_BYTE) &&
	     all_are(buf.addr + offset + length, buf.length - offset - length,
		     FILL_BYTE);
	memset(buf.addr + offset, 0x11, length);
	ok = ok && succeeds(access_b(stage, IBV_WR_RDMA_WRITE, &sge, 1, 0)) &&
	     all_are(stage->setup->b_mem.addr, length, 0x11);
	return check(!ibv_dereg_mr(mr), "ibv_dereg_mr fails") && ok;
}

/* The peer writes to the buffer, and reads from it. */
static bool dmabuf_of_peer(struct stage *stage)
{
	const size_t length = 3 * PAGE_BYTES + 40;
	struct region *memory = &stage->setup->b_mem;
	struct ibv_mr *mr = dmabuf_mr(stage, 0, DMABUF_BYTES);
	struct ibv_sge sge = region_sge(memory, 0, length);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);
	bool ok;

	if (!check(mr, "ibv_reg_dmabuf_mr: %s", strerror(errno)))
		return false;
	wr.wr.rdma.remote_addr = DMABUF_IOVA + 100;
	wr.wr.rdma.rkey = mr->rkey;
	memset(buf.addr, FILL_BYTE, buf.length);
	memcpy(memory->addr, pattern_bytes(5, length), length);
	ok = succeeds(try_request(stage->setup, true, wr)) &&
	     check(!memcmp(buf.addr + 100, pattern_bytes(5, length), length),
		   "written") &&
	     all_are(buf.addr, 100, FILL_BYTE) &&
	     all_are(buf.addr + 100 + length, buf.length - 100 - length,
		     FILL_BYTE);
	memset(memory->addr, 0, length);
	wr.opcode = IBV_WR_RDMA_READ;
	ok = ok && succeeds(try_request(stage->setup, true, wr)) &&
	     check(!memcmp(memory->addr, pattern_bytes(5, length), length),
		   "read");
	/* nothing behind its end, nor when it is gone */
	wr.wr.rdma.remote_addr = DMABUF_IOVA + DMABUF_BYTES - length + 1;
	ok = ok && ends_with(try_request(stage->setup, true, wr),
			     IBV_WC_REM_ACCESS_ERR);
	wr.wr.rdma.remote_addr = DMABUF_IOVA;
	return check(!ibv_dereg_mr(mr), "ibv_dereg_mr fails") &&
	       ends_with(try_request(stage->setup, true, wr),
			 IBV_WC_REM_ACCESS_ERR) &&
	       ok;
}

/* The region keeps the buffer when its descriptor goes. */
static bool dmabuf_outlives_fd(struct stage *stage)
{
	struct ibv_mr *mr = dmabuf_mr(stage, 0, DMABUF_BYTES);
	struct ibv_sge sge = { .addr = DMABUF_IOVA, .length = 4096 };
	bool ok;

	if (!check(mr, "ibv_reg_dmabuf_mr: %s", strerror(errno)))
		return false;
	sge.lkey = mr->lkey;
	close(buf.fd);
	buf.fd = -1;
	memset(stage->setup->b_mem.addr, 0x22, 4096);
	ok = succeeds(access_b(stage, IBV_WR_RDMA_READ, &sge, 1, 0)) &&
	     all_are(buf.addr, 4096, 0x22);
	return check(!ibv_dereg_mr(mr), "ibv_dereg_mr fails") && ok;
}

static bool dmabuf_refused(struct stage *stage)
{
	int other_fd = stage->setup->a_dev.ctx->cmd_fd;

	return check(!dmabuf_mr(stage, 0, 0), "no bytes") &&
	       check(!dmabuf_mr(stage, 0, DMABUF_BYTES + 1),
		     "beyond the end") &&
	       check(!dmabuf_mr(stage, DMABUF_BYTES, 1), "behind it") &&
	       check(!dmabuf_mr(stage, UINT64_MAX, 4096), "wraps") &&
	       check(!dmabuf_mr_of(stage, other_fd, 0, 4096), "no dma-buf");
}

/* No window can be bound to it. */
static bool dmabuf_no_windows(struct stage *stage)
{
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(stage->setup->a_dev.pd, 0,
					      DMABUF_BYTES, DMABUF_IOVA, buf.fd,
					      ACCESS_ALL | IBV_ACCESS_MW_BIND);

	if (mr)
		ibv_dereg_mr(mr);
	return check(!mr, "a region for windows") &&
	       check(errno == EOPNOTSUPP, "%s", strerror(errno));
}

/* The library has no way to say which buffer it would be. */
static bool dmabuf_again(struct stage *stage)
{
	struct ibv_mr *mr = dmabuf_mr(stage, 0, DMABUF_BYTES);
	struct ibv_sge sge = { .addr = DMABUF_IOVA, .length = 4096 };
	bool ok;

	if (!check(mr, "ibv_reg_dmabuf_mr: %s", strerror(errno)))
		return false;
	sge.lkey = mr->lkey;
	errno = 0;
	ok = check(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				IBV_ACCESS_LOCAL_WRITE) &&
			   errno == EINVAL,
		   "ibv_rereg_mr: %s", strerror(errno)) &&
	     succeeds(access_b(stage, IBV_WR_RDMA_READ, &sge, 1, 0));
	return check(!ibv_dereg_mr(mr), "ibv_dereg_mr fails") && ok;
}

static bool dmabuf_bounds(struct stage *stage)
{
	struct ibv_mr *mr = dmabuf_mr(stage, 4096, 4096);
	struct ibv_sge sge = { .addr = DMABUF_IOVA + 1, .length = 4096 };
	bool ok;

	if (!check(mr, "ibv_reg_dmabuf_mr: %s", strerror(errno)))
		return false;
	sge.lkey = mr->lkey;
	ok = ends_with(access_b(stage, IBV_WR_RDMA_READ, &sge, 1, 0),
		       IBV_WC_LOC_PROT_ERR);
	return check(!ibv_dereg_mr(mr), "ibv_dereg_mr fails") && ok;
}

static const struct region_case cases[] = {
	{ dmabuf_traffic, "dma-buf: data in both directions", true },
	{ dmabuf_of_peer, "dma-buf: a peer reads and writes", true },
	{ dmabuf_outlives_fd, "dma-buf: its descriptor is closed", true },
	{ dmabuf_refused, "dma-buf: what is refused", true },
	{ dmabuf_no_windows, "dma-buf: no region for windows", true },
	{ dmabuf_bounds, "dma-buf: out of bounds", true },
	{ dmabuf_again, "dma-buf: registered again", true },
};

void run_dmabufs(struct setup *setup, struct neighbours *neighbours)
{
	unsigned int i;

	for (i = 0; i < COUNT(cases); i++) {
		if (cases[i].one_machine && setup_is_remote(setup))
			continue;
		if (!dmabuf_create(&buf, DMABUF_BYTES)) {
			tap_ok(false, "%s: there is neither a heap nor vgem",
			       cases[i].name);
			continue;
		}
		run_case(setup, neighbours, &cases[i]);
		tap_note("the buffer is from %s", buf.exporter);
		dmabuf_destroy(&buf);
	}
}
