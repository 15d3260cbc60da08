/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * User contexts and their doorbell files.
 */
#ifndef MIC_UCTX_H
#define MIC_UCTX_H

#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

struct mic_buf;
struct mic_busy;
struct mic_doorbell;
struct mic_qp;

/**
 * struct mic_uctx - what a process has open on a device
 * @ibuctx: ib_core's part
 * @bufs: queue memory that may be mapped, by &mic_buf.mmap_id
 * @db: state shared with the open doorbell files
 */
struct mic_uctx {
	struct ib_ucontext ibuctx;
	struct xarray bufs;
	struct mic_doorbell *db;
};

static inline struct mic_uctx *to_mic_uctx(struct ib_ucontext *ibuctx)
{
	return container_of(ibuctx, struct mic_uctx, ibuctx);
}

struct mic_uctx *mic_udata_uctx(struct ib_udata *udata);
int mic_udata_check(struct ib_udata *udata, size_t known);
struct mic_busy *mic_uctx_busy(struct mic_uctx *uctx);
int mic_uctx_add_buf(struct mic_uctx *uctx, struct mic_buf *buf);
void mic_uctx_del_buf(struct mic_uctx *uctx, struct mic_buf *buf);
struct mic_doorbell *mic_doorbell_get(struct mic_doorbell *db);
void mic_doorbell_put(struct mic_doorbell *db);
struct mic_qp *mic_doorbell_qp(struct mic_doorbell *db, u32 qpn);

int mic_alloc_ucontext(struct ib_ucontext *ibuctx, struct ib_udata *udata);
void mic_dealloc_ucontext(struct ib_ucontext *ibuctx);
void mic_disassociate_ucontext(struct ib_ucontext *ibuctx);
int mic_query_ucontext(struct ib_ucontext *ibuctx,
		       struct uverbs_attr_bundle *attrs);
extern const struct uapi_definition mic_uctx_defs[];

#endif /* MIC_UCTX_H */
