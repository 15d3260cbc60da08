/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Shared receive queues.
 */
#ifndef MIC_SRQ_H
#define MIC_SRQ_H

#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>

#include <mic/op.h>

#include "qp.h"
#include "ring.h"
#include "unread.h"

struct mic_sges;
struct mic_xrc_entry;

/**
 * struct mic_srq - shared receive queue
 * @ibsrq: ib_core's part
 * @modify_lock: one modify at a time, taken before @lock
 * @lock: serialises taking, arming of the limit and kernel posting; irq-safe
 * @buf: memory
 * @ring: the queue; without &mic_ring.ctl once it is destroyed
 * @max_wr: elements granted
 * @max_sge: scatter/gather elements per receive
 * @limit: an event is due when fewer receives are left; 0 if none is due
 * @broken: the indices made no sense; it is not looked at again
 * @unread: events
 * @xrc: XRC: what target QPs find, and hold
 */
struct mic_srq {
	struct ib_srq ibsrq;
	struct mutex modify_lock;
	spinlock_t lock;
	struct mic_buf *buf;
	struct mic_ring ring;
	u32 max_wr;
	u32 max_sge;
	u32 limit;
	bool broken;
	struct mic_unread unread;
	struct mic_xrc_entry *xrc;
};

/**
 * struct mic_srq_view - a shared receive queue as it was at one moment
 * @entries: elements of the ring
 * @producer: receives posted, modulo 2^32; as user space says
 * @consumer: receives taken, modulo 2^32
 * @limit: an event is due when fewer receives are left; 0 if none is due
 * @broken: the indices made no sense
 */
struct mic_srq_view {
	u32 entries;
	u32 producer;
	u32 consumer;
	u32 limit;
	bool broken;
};

static inline struct mic_srq *to_mic_srq(struct ib_srq *ibsrq)
{
	return container_of(ibsrq, struct mic_srq, ibsrq);
}

int mic_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
		   struct ib_udata *udata);
int mic_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		   enum ib_srq_attr_mask mask, struct ib_udata *udata);
int mic_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int mic_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);
int mic_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad_wr);

bool mic_srq_look(struct mic_srq *srq, struct mic_srq_view *view);
bool mic_srq_try_look(struct mic_srq *srq, struct mic_srq_view *view);

/* The protection domain remote keys have to be of. */
static inline struct ib_pd *mic_qp_pd(const struct mic_qp *qp)
{
	return qp->type == IB_QPT_XRC_TGT ? qp->srq->ibsrq.pd : qp->ibqp->pd;
}

/* The protection domain the keys of receives have to be of. */
static inline struct ib_pd *mic_qp_recv_pd(const struct mic_qp *qp)
{
	return qp->srq ? qp->srq->ibsrq.pd : qp->ibqp->pd;
}

enum mic_ack mic_srq_take(struct mic_srq *srq, struct mic_sges *sges,
			  u64 *wr_id);

#endif /* MIC_SRQ_H */
