// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Regions of every kind, device memory, and memory windows.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dmabuf.h"
#include "memory.h"
#include "objects.h"

#define DM_BYTES (4 * PAGE_BYTES)
#define IOVA 0x5a5a00000000ULL
#define BIND_ACCESS (ACCESS_ALL | IBV_ACCESS_MW_BIND)

/* --- regions ------------------------------------------------------------------ */

static int any_access(struct worker *worker)
{
	switch (below(worker, 4)) {
	case 0:
		return IBV_ACCESS_REMOTE_READ;
	case 1:
		return ACCESS_ALL;
	default:
		return BIND_ACCESS;
	}
}

static uint64_t any_address(struct worker *worker, size_t *length)
{
	size_t offset = below(worker, MEMORY_BYTES / 2);

	*length = 1 + below(worker, MEMORY_BYTES / 2);
	return (uintptr_t)memory + offset;
}

static struct ibv_mr *reg_dm(struct worker *worker)
{
	struct ibv_dm *dm = any(worker, KIND_DM);

	return dm ? ibv_reg_dm_mr(any_pd(worker), dm, 0, DM_BYTES,
				  ACCESS_ALL | IBV_ACCESS_ZERO_BASED) :
		    NULL;
}

static struct dmabuf buf;
static pthread_once_t buf_once = PTHREAD_ONCE_INIT;

static void create_buf(void)
{
	if (!dmabuf_create(&buf, MEMORY_BYTES))
		buf.fd = -1;
}

static struct ibv_mr *reg_dmabuf(struct worker *worker)
{
	pthread_once(&buf_once, create_buf);
	return buf.fd < 0 ? NULL :
			    ibv_reg_dmabuf_mr(any_pd(worker), 0, MEMORY_BYTES,
					      IOVA, buf.fd, ACCESS_ALL);
}

/* All that it names, its region has, and nobody else's memory. */
static struct ibv_mr *reg(struct worker *worker, struct area *area)
{
	struct ibv_pd *pd = any_pd(worker);
	uint64_t addr = any_address(worker, &area->length);
	void *start = (void *)(uintptr_t)addr;

	area->addr = addr;
	switch (below(worker, 10)) {
	case 0:
		return ibv_alloc_null_mr(pd);
	case 1:
		area->addr = 0;
		area->length = DM_BYTES;
		return reg_dm(worker);
	case 2:
		area->addr = IOVA;
		area->length = MEMORY_BYTES;
		return reg_dmabuf(worker);
	case 3:
		return ibv_reg_mr(pd, start, area->length,
				  ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	case 4:
		return ibv_reg_mr(pd, NULL, SIZE_MAX,
				  ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	case 5:
		area->addr = IOVA | addr % PAGE_BYTES;
		return ibv_reg_mr_iova(pd, start, area->length, area->addr,
				       any_access(worker));
	default:
		return ibv_reg_mr(pd, start, area->length, any_access(worker));
	}
}

static void *new_mr(struct worker *worker)
{
	struct area *area = zeroed(sizeof(*area));

	area->mr = reg(worker, area);
	if (!area->mr) {
		free(area);
		return NULL;
	}
	publish(worker, area->addr, area->mr->rkey);
	return area;
}

static int end_mr(void *object)
{
	struct area *area = object;
	int error = ibv_dereg_mr(area->mr);

	if (!error)
		free(area);
	return error;
}

static void rereg(struct worker *worker, struct area *area)
{
	int flags = 1 + below(worker, 7);
	size_t length;
	uint64_t addr = any_address(worker, &length);

	if (ibv_rereg_mr(area->mr, flags, any_pd(worker),
			 (void *)(uintptr_t)addr, length, any_access(worker)))
		return;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		area->addr = addr;
		area->length = length;
	}
	publish(worker, area->addr, area->mr->rkey);
}

static void use_mr(struct worker *worker, void *object)
{
	struct area *area = object;
	struct ibv_sge sge = { .addr = area->addr,
			       .length = area->length,
			       .lkey = area->mr->lkey };
	size_t page = below(worker, MEMORY_BYTES / PAGE_BYTES) * PAGE_BYTES;

	switch (below(worker, 4)) {
	case 0:
		ibv_advise_mr(area->mr->pd, below(worker, 3), below(worker, 2),
			      &sge, 1);
		break;
	case 1:
		/* what is on demand comes anew, what is pinned stays */
		madvise(memory + page, PAGE_BYTES, MADV_DONTNEED);
		break;
	default:
		rereg(worker, area);
		break;
	}
}

struct ibv_sge any_sge(struct worker *worker)
{
	const struct area *area = any(worker, KIND_MR);

	if (!area)
		return (struct ibv_sge){ .length = 0 };
	return (struct ibv_sge){ .addr = area->addr,
				 .length = 1 + below(worker, area->length),
				 .lkey = area->mr->lkey };
}

/* --- device memory ------------------------------------------------------------ */

static void *new_dm(struct worker *worker)
{
	struct ibv_alloc_dm_attr attr = { .length = DM_BYTES };

	(void)worker;
	return ibv_alloc_dm(dev.ctx, &attr);
}

static int end_dm(void *dm)
{
	return ibv_free_dm(dm);
}

static void use_dm(struct worker *worker, void *dm)
{
	uint8_t bytes[64];
	uint64_t offset = 4 * below(worker, DM_BYTES / 4);

	ibv_memcpy_from_dm(bytes, dm, offset, sizeof(bytes));
	ibv_memcpy_to_dm(dm, offset, bytes, sizeof(bytes));
}

/* --- memory windows ------------------------------------------------------------ */

static void *new_mw(struct worker *worker)
{
	return ibv_alloc_mw(any_pd(worker),
			    one_of(worker, 2) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
}

static int end_mw(void *mw)
{
	return ibv_dealloc_mw(mw);
}

static void bind_type1(struct worker *worker, struct endpoint *ep,
		       struct ibv_mw *mw, const struct ibv_mw_bind_info *info)
{
	struct ibv_mw_bind bind = { .wr_id = 2, .bind_info = *info };

	if (!ibv_bind_mw(ep->qp, mw, &bind))
		publish(worker, info->addr, mw->rkey);
}

static void bind_type2(struct worker *worker, struct endpoint *ep,
		       struct ibv_mw *mw, const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr wr = {
		.wr_id = 2,
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = { .mw = mw,
			     .rkey = ibv_inc_rkey(mw->rkey),
			     .bind_info = *info },
	};
	struct ibv_send_wr *bad;

	if (ibv_post_send(ep->qp, &wr, &bad))
		return;
	/* whether it will be bound is not known yet */
	mw->rkey = wr.bind_mw.rkey;
	publish(worker, info->addr, mw->rkey);
}

static void use_mw(struct worker *worker, void *object)
{
	struct pair *pair = any(worker, KIND_PAIR);
	struct area *area = any(worker, KIND_MR);
	struct ibv_mw_bind_info info;
	struct ibv_mw *mw = object;
	struct endpoint *ep;

	if (!pair || !area)
		return;
	info = (struct ibv_mw_bind_info){
		.mr = area->mr,
		.addr = area->addr,
		.length = below(worker, area->length + 1),
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	ep = &pair->ends[below(worker, 2)];
	if (mw->type == IBV_MW_TYPE_1)
		bind_type1(worker, ep, mw, &info);
	else
		bind_type2(worker, ep, mw, &info);
}

const struct kind_ops memory_kinds[] = {
	{ new_mr, end_mr, use_mr },
	{ new_dm, end_dm, use_dm },
	{ new_mw, end_mw, use_mw },
};
