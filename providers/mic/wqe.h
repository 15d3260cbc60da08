/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Filling in work queue elements. They are in shared memory: these functions
 * write, in one pass, and never read back.
 */
#ifndef MIC_WQE_H
#define MIC_WQE_H

#include <string.h>

#include "mic.h"

static_assert(sizeof(struct mic_send_wqe) == MIC_SEND_WQE_HDR,
	      "one cache line before the data");
static_assert(sizeof(struct mic_sge) == sizeof(struct ibv_sge) &&
		      offsetof(struct mic_sge, addr) ==
			      offsetof(struct ibv_sge, addr) &&
		      offsetof(struct mic_sge, length) ==
			      offsetof(struct ibv_sge, length) &&
		      offsetof(struct mic_sge, lkey) ==
			      offsetof(struct ibv_sge, lkey),
	      "lists of elements are copied as they are");
static_assert((int)MIC_WQE_FENCE == (int)IBV_SEND_FENCE &&
		      (int)MIC_WQE_SIGNALED == (int)IBV_SEND_SIGNALED &&
		      (int)MIC_WQE_SOLICITED == (int)IBV_SEND_SOLICITED &&
		      (int)MIC_WQE_INLINE == (int)IBV_SEND_INLINE,
	      "flags need no translation");
static_assert((int)MIC_WR_RDMA_WRITE == (int)IBV_WR_RDMA_WRITE &&
		      (int)MIC_WR_RDMA_WRITE_WITH_IMM ==
			      (int)IBV_WR_RDMA_WRITE_WITH_IMM &&
		      (int)MIC_WR_SEND == (int)IBV_WR_SEND &&
		      (int)MIC_WR_SEND_WITH_IMM == (int)IBV_WR_SEND_WITH_IMM &&
		      (int)MIC_WR_RDMA_READ == (int)IBV_WR_RDMA_READ &&
		      (int)MIC_WR_ATOMIC_CMP_AND_SWP ==
			      (int)IBV_WR_ATOMIC_CMP_AND_SWP &&
		      (int)MIC_WR_ATOMIC_FETCH_AND_ADD ==
			      (int)IBV_WR_ATOMIC_FETCH_AND_ADD &&
		      (int)MIC_WR_LOCAL_INV == (int)IBV_WR_LOCAL_INV &&
		      (int)MIC_WR_BIND_MW == (int)IBV_WR_BIND_MW &&
		      (int)MIC_WR_SEND_WITH_INV == (int)IBV_WR_SEND_WITH_INV &&
		      (int)MIC_WR_ATOMIC_WRITE == (int)IBV_WR_ATOMIC_WRITE,
	      "opcodes need no translation");

/* IBA 10.3.1: requests are taken from RTS on, also in error, to be flushed. */
static inline bool mic_may_send(const struct ibv_qp *qp)
{
	return qp->state >= IBV_QPS_RTS;
}

/* The bytes after the header. */
static inline void *mic_wqe_data(struct mic_send_wqe *wqe)
{
	return wqe + 1;
}

static inline void mic_wqe_sges(void *to, const struct ibv_sge *from, size_t n)
{
	struct ibv_sge *sge = to;
	size_t i;

	for (i = 0; i < n; i++)
		sge[i] = from[i];
}

static inline void mic_wqe_rdma(struct mic_send_wqe *wqe, uint32_t rkey,
				uint64_t remote_addr)
{
	wqe->rdma.remote_addr = remote_addr;
	wqe->rdma.rkey = rkey;
}

static inline void mic_wqe_atomic(struct mic_send_wqe *wqe, uint32_t rkey,
				  uint64_t remote_addr, uint64_t compare_add,
				  uint64_t swap)
{
	wqe->atomic.remote_addr = remote_addr;
	wqe->atomic.compare_add = compare_add;
	wqe->atomic.swap = swap;
	wqe->atomic.rkey = rkey;
}

static inline void mic_wqe_ud(struct mic_send_wqe *wqe, struct ibv_ah *ah,
			      uint32_t remote_qpn, uint32_t remote_qkey)
{
	wqe->ud.ah = to_mah(ah)->handle;
	wqe->ud.remote_qpn = remote_qpn;
	wqe->ud.remote_qkey = remote_qkey;
}

/* A window is bound to nothing where there is no region. */
static inline void mic_wqe_bind(struct mic_send_wqe *wqe,
				const struct ibv_mw *mw, uint32_t new_rkey,
				const struct ibv_mw_bind_info *info)
{
	wqe->bind.addr = info->addr;
	wqe->bind.length = info->mr ? info->length : 0;
	wqe->bind.mr_lkey = info->mr ? info->mr->lkey : 0;
	wqe->bind.mw_rkey = mw->rkey;
	wqe->bind.new_rkey = new_rkey;
	wqe->bind.access = info->mw_access_flags;
}

#endif /* MIC_WQE_H */
