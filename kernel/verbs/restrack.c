// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What "rdma resource show" tells beside what ib_core knows by itself.
 *
 * Whoever looks keeps what ib_core has allocated, but not what is behind it: some
 * kernels take an object off their list, and wait for those who look at it, before
 * they have it destroyed, others afterwards. So each object says itself whether it
 * is still there; of one that is not EAGAIN is told, and nldev passes it over. It
 * may change under our eyes: a value is true by itself, two of them need not fit.
 */
#include <net/netlink.h>
#include <rdma/rdma_netlink.h>
#include <rdma/restrack.h>

#include "cq.h"
#include "mr.h"
#include "qp.h"
#include "restrack.h"
#include "srq.h"

const char *const mic_mkey_kind_name[MIC_MKEY_KINDS] = {
	[MIC_MKEY_USER] = "user",
	[MIC_MKEY_ODP] = "odp",
	[MIC_MKEY_FAST] = "fast",
	[MIC_MKEY_DMABUF] = "dmabuf",
	[MIC_MKEY_DM] = "dm",
	[MIC_MKEY_NULL] = "null",
	[MIC_MKEY_DMA] = "dma",
	[MIC_MKEY_WINDOW] = "window",
};

/**
 * mic_mkey_kind - what is behind a memory key
 * @mkey: key; the caller holds a reference, or found it under RCU and still is
 *
 * Return: enum mic_mkey_kind.
 */
enum mic_mkey_kind mic_mkey_kind(const struct mic_mkey *mkey)
{
	if (mkey->window)
		return MIC_MKEY_WINDOW;
	return container_of(mkey, struct mic_mr, mkey)->kind;
}

/**
 * mic_req_activity - what a send queue is doing
 * @qp: queue pair
 *
 * Return: one word.
 */
const char *mic_req_activity(const struct mic_qp *qp)
{
	const struct mic_req *req = &qp->req;

	if (!req->ring.ctl)
		return "none";
	if (READ_ONCE(req->broken))
		return "broken";
	if (READ_ONCE(req->deadline))
		return "waiting";
	if (READ_ONCE(req->active))
		return "active";
	return "idle";
}

/* A driver's values go into an attribute of their own. */
static int mic_fill_end(struct sk_buff *msg, struct nlattr *table, int err)
{
	if (err) {
		nla_nest_cancel(msg, table);
		return -EMSGSIZE;
	}
	nla_nest_end(msg, table);
	return 0;
}

/*
 * Anybody may ask, also whose the region is not, so nothing here tells where memory is:
 * the IOVA of what a kernel registers fast is an address of the kernel's.
 */
static int mic_put_mr(struct sk_buff *msg, const struct mic_mr *mr)
{
	const struct mic_mkey *mkey = &mr->mkey;
	u32 nblocks = READ_ONCE(mr->win.nblocks);

	return rdma_nl_put_driver_string(msg, "kind",
			mic_mkey_kind_name[mic_mkey_kind(mkey)]) ?:
	       rdma_nl_put_driver_u32(msg, "valid", READ_ONCE(mkey->valid)) ?:
	       rdma_nl_put_driver_u32_hex(msg, "access",
					  READ_ONCE(mkey->access)) ?:
	       rdma_nl_put_driver_u32(msg, "blocks", nblocks) ?:
	       rdma_nl_put_driver_u32(msg, "block_size", nblocks ?
				      1U << READ_ONCE(mr->win.shift) : 0) ?:
	       rdma_nl_put_driver_u32(msg, "windows", READ_ONCE(mr->bound)) ?:
	       rdma_nl_put_driver_u32(msg, "mapped",
				      READ_ONCE(mkey->nimports));
}

int mic_fill_res_mr(struct sk_buff *msg, struct ib_mr *ibmr)
{
	struct nlattr *table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);

	if (!table)
		return -EMSGSIZE;
	return mic_fill_end(msg, table, mic_put_mr(msg, to_mic_mr(ibmr)));
}

struct mic_cq_view {
	u32 entries;
	u32 producer;
	u32 consumer;
	u32 arm;
	bool overflow;
};

/* Under the lock, for resize_cq exchanges the ring, and destroy_cq frees it. */
static bool mic_cq_look(struct mic_cq *cq, struct mic_cq_view *view)
{
	unsigned long flags;
	bool there;

	spin_lock_irqsave(&cq->lock, flags);
	there = cq->ctl;
	if (there) {
		view->entries = cq->entries;
		view->producer = cq->producer;
		view->consumer = READ_ONCE(cq->ctl->consumer);
		view->arm = READ_ONCE(cq->ctl->arm);
		view->overflow = cq->overflow;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	return there;
}

static const char *mic_arm_name(u32 arm)
{
	switch (arm) {
	case MIC_CQ_ARM_NONE:
		return "no";
	case MIC_CQ_ARM_SOLICITED:
		return "solicited";
	case MIC_CQ_ARM_NEXT:
		return "next";
	default:
		return "invalid";
	}
}

static int mic_put_cq(struct sk_buff *msg, const struct mic_cq_view *view)
{
	return rdma_nl_put_driver_u32(msg, "entries", view->entries) ?:
	       rdma_nl_put_driver_u32(msg, "producer", view->producer) ?:
	       rdma_nl_put_driver_u32(msg, "consumer", view->consumer) ?:
	       rdma_nl_put_driver_string(msg, "armed",
					 mic_arm_name(view->arm)) ?:
	       rdma_nl_put_driver_u32(msg, "overflow", view->overflow);
}

int mic_fill_res_cq(struct sk_buff *msg, struct ib_cq *ibcq)
{
	struct mic_cq_view view;
	struct nlattr *table;

	if (!mic_cq_look(to_mic_cq(ibcq), &view))
		return -EAGAIN;
	table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!table)
		return -EMSGSIZE;
	return mic_fill_end(msg, table, mic_put_cq(msg, &view));
}

static int mic_put_sq(struct sk_buff *msg, const struct mic_req *req)
{
	if (!req->ring.ctl)
		return 0;
	return rdma_nl_put_driver_u32(msg, "sq_entries",
				      req->ring.info.entries) ?:
	       rdma_nl_put_driver_u32(msg, "sq_producer",
				      READ_ONCE(req->ring.ctl->producer)) ?:
	       rdma_nl_put_driver_u32(msg, "sq_consumer",
				      READ_ONCE(req->ring.consumer)) ?:
	       rdma_nl_put_driver_u32(msg, "retries_left",
				      READ_ONCE(req->retry_left)) ?:
	       rdma_nl_put_driver_u32(msg, "rnr_retries_left",
				      READ_ONCE(req->rnr_left)) ?:
	       rdma_nl_put_driver_u32(msg, "in_flight",
				      READ_ONCE(req->nflight));
}

static int mic_put_rq(struct sk_buff *msg, const struct mic_ring *ring)
{
	if (!ring->ctl)
		return 0;
	return rdma_nl_put_driver_u32(msg, "rq_entries", ring->info.entries) ?:
	       rdma_nl_put_driver_u32(msg, "rq_producer",
				      READ_ONCE(ring->ctl->producer)) ?:
	       rdma_nl_put_driver_u32(msg, "rq_consumer",
				      READ_ONCE(ring->consumer));
}

static int mic_put_qp(struct sk_buff *msg, const struct mic_qp *qp)
{
	return rdma_nl_put_driver_string(msg, "requester",
					 mic_req_activity(qp)) ?:
	       mic_put_sq(msg, &qp->req) ?:
	       mic_put_rq(msg, &qp->resp.ring) ?:
	       rdma_nl_put_driver_u32(msg, "windows_imported",
				      READ_ONCE(qp->nimports)) ?:
	       rdma_nl_put_driver_u32(msg, "windows_exported",
				      READ_ONCE(qp->nexports));
}

int mic_fill_res_qp(struct sk_buff *msg, struct ib_qp *ibqp)
{
	struct mic_qp *qp = mic_qp_get_listed(ibqp);
	struct nlattr *table;
	int err = -EMSGSIZE;

	if (!qp)
		return -EAGAIN;
	table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (table)
		err = mic_fill_end(msg, table, mic_put_qp(msg, qp));
	mic_qp_put(qp);
	return err;
}

static int mic_put_srq(struct sk_buff *msg, const struct mic_srq_view *view)
{
	return rdma_nl_put_driver_u32(msg, "entries", view->entries) ?:
	       rdma_nl_put_driver_u32(msg, "producer", view->producer) ?:
	       rdma_nl_put_driver_u32(msg, "consumer", view->consumer) ?:
	       rdma_nl_put_driver_u32(msg, "limit", view->limit) ?:
	       rdma_nl_put_driver_u32(msg, "broken", view->broken);
}

int mic_fill_res_srq(struct sk_buff *msg, struct ib_srq *ibsrq)
{
	struct mic_srq_view view;
	struct nlattr *table;

	if (!mic_srq_look(to_mic_srq(ibsrq), &view))
		return -EAGAIN;
	table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!table)
		return -EMSGSIZE;
	return mic_fill_end(msg, table, mic_put_srq(msg, &view));
}
