// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completion queues. Polling and arming are loads and stores on shared memory;
 * the kernel is only called to create, resize, modify and destroy, and by who polls in
 * vain for what other machines send.
 */
#include <stdlib.h>
#include <sys/ioctl.h>

#include "mic.h"

struct create_cq_resp {
	struct ib_uverbs_ex_create_cq_resp base;
	struct mic_create_cq_resp mic;
};
static_assert(sizeof(struct create_cq_resp) ==
		      sizeof(struct ib_uverbs_ex_create_cq_resp) +
			      sizeof(struct mic_create_cq_resp),
	      "the driver's part follows directly");

static_assert((int)MIC_WC_SEND == (int)IBV_WC_SEND &&
		      (int)MIC_WC_RDMA_WRITE == (int)IBV_WC_RDMA_WRITE &&
		      (int)MIC_WC_RDMA_READ == (int)IBV_WC_RDMA_READ &&
		      (int)MIC_WC_COMP_SWAP == (int)IBV_WC_COMP_SWAP &&
		      (int)MIC_WC_FETCH_ADD == (int)IBV_WC_FETCH_ADD &&
		      (int)MIC_WC_BIND_MW == (int)IBV_WC_BIND_MW &&
		      (int)MIC_WC_LOCAL_INV == (int)IBV_WC_LOCAL_INV &&
		      (int)MIC_WC_ATOMIC_WRITE == (int)IBV_WC_ATOMIC_WRITE &&
		      (int)MIC_WC_RECV == (int)IBV_WC_RECV &&
		      (int)MIC_WC_RECV_RDMA_WITH_IMM ==
			      (int)IBV_WC_RECV_RDMA_WITH_IMM,
	      "opcodes need no translation");
static_assert((int)MIC_WC_GRH == (int)IBV_WC_GRH &&
		      (int)MIC_WC_WITH_IMM == (int)IBV_WC_WITH_IMM &&
		      MIC_WC_WITH_INV << 1 == (int)IBV_WC_WITH_INV,
	      "mic_wc_flags() translates flags by shifting");
static_assert(sizeof(struct mic_cqe) == 64, "one cache line per element");

static bool has_flag(const struct ibv_cq_init_attr_ex *attr, uint32_t flag)
{
	return (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
	       (attr->flags & flag);
}

static bool one_thread(const struct ibv_cq_init_attr_ex *attr)
{
	if (has_flag(attr, IBV_CREATE_CQ_ATTR_SINGLE_THREADED))
		return true;
	return (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) &&
	       mic_pd_one_thread(attr->parent_domain);
}

/* Create the kernel's part and map it. Returns 0 or an errno value. */
static int init_cq(struct mic_cq *cq, struct ibv_context *context,
		   struct ibv_cq_init_attr_ex *attr)
{
	struct create_cq_resp resp = {};
	struct ibv_create_cq_ex cmd = {};
	int ret;

	mic_lock_init(&cq->lock, one_thread(attr));
	cq->doorbell_fd = to_mctx(context)->doorbell_fd;
	cq->timestamps = attr->wc_flags &
			 (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			  IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
	cq->ignore_overrun = has_flag(attr, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
	mic_own_init(&cq->own, !cq->timestamps && !attr->channel);
	ret = mic_cmd_create_cq_ex(context, attr, &cq->vcq, &cmd, sizeof(cmd),
				   &resp.base, sizeof(resp), 0);
	if (ret)
		return ret;
	ret = mic_map_queue(&cq->ring.map, cq->doorbell_fd, &resp.mic.map);
	if (ret) {
		ibv_cmd_destroy_cq(&cq->vcq.cq);
		return ret;
	}
	mic_cq_ring_init(&cq->ring, &resp.mic.ring);
	return 0;
}

static struct mic_cq *new_cq(struct ibv_context *context,
			     struct ibv_cq_init_attr_ex *attr)
{
	struct mic_cq *cq;
	int ret;

	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	ret = init_cq(cq, context, attr);
	if (ret) {
		free(cq);
		errno = ret;
		return NULL;
	}
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD)
		cq->parent = mic_parent_get(attr->parent_domain);
	return cq;
}

struct ibv_cq *mic_create_cq(struct ibv_context *context, int cqe,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe,
		.channel = channel,
		.comp_vector = comp_vector,
	};
	struct mic_cq *cq;

	if (cqe <= 0) {
		errno = EINVAL;
		return NULL;
	}
	cq = new_cq(context, &attr);
	return cq ? &cq->vcq.cq : NULL;
}

/* What is named as a parent domain has to be one, of this context. */
static bool parent_is_one(const struct ibv_context *context,
			  const struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_pd *pd = attr->parent_domain;

	if (!(attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD))
		return true;
	return pd && pd->context == context && to_mpd(pd)->parent_of;
}

struct ibv_cq_ex *mic_create_cq_ex(struct ibv_context *context,
				   struct ibv_cq_init_attr_ex *attr)
{
	const uint64_t known = IBV_WC_STANDARD_FLAGS |
			       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK |
			       IBV_WC_EX_WITH_CVLAN;
	const uint32_t flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED |
			       IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	struct mic_cq *cq;

	if ((attr->wc_flags & ~known) ||
	    ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
	     (attr->flags & ~flags))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!parent_is_one(context, attr)) {
		errno = EINVAL;
		return NULL;
	}
	cq = new_cq(context, attr);
	if (!cq)
		return NULL;
	mic_cq_set_ex_ops(&cq->vcq.cq_ex, attr->wc_flags);
	return &cq->vcq.cq_ex;
}

int mic_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	struct ibv_modify_cq cmd = {};

	return ibv_cmd_modify_cq(cq, attr, &cmd, sizeof(cmd));
}

int mic_destroy_cq(struct ibv_cq *ibcq)
{
	struct mic_cq *cq = to_mcq(ibcq);
	int ret;

	ret = ibv_cmd_destroy_cq(ibcq);
	if (ret)
		return ret;
	mic_unmap_queue(&cq->ring.map);
	mic_cq_forget_no_more(cq);
	mic_own_destroy(&cq->own);
	mic_parent_put(cq->parent);
	free(cq);
	return 0;
}

unsigned int mic_wc_flags(const struct mic_cqe *cqe)
{
	unsigned int flags = cqe->wc_flags;

	return (flags & (MIC_WC_GRH | MIC_WC_WITH_IMM)) |
	       (flags & MIC_WC_WITH_INV) << 1;
}

/* Take the next element, or NULL. The caller holds the lock and publishes. */
struct mic_cqe *mic_cq_next(struct mic_cq *cq)
{
	struct mic_cqe *cqe, *ring;

	/*
	 * In this order: of what is our own and comes before an element of the ring,
	 * all is there when the element is.
	 */
	ring = mic_cq_peek(&cq->ring, cq->ring.consumer);
	cqe = mic_own_next(&cq->own, cq->ring.consumer);
	if (!cqe && ring) {
		cqe = ring;
		cq->ring.consumer++;
	}
	return cqe;
}

static void fill_wc(struct ibv_wc *wc, const struct mic_cqe *cqe)
{
	wc->wr_id = cqe->wr_id;
	wc->status = cqe->status;
	wc->opcode = cqe->opcode;
	wc->vendor_err = cqe->vendor_err;
	wc->byte_len = cqe->byte_len;
	wc->invalidated_rkey = cqe->ex;
	wc->qp_num = cqe->qp_num;
	wc->src_qp = cqe->src_qp;
	wc->wc_flags = mic_wc_flags(cqe);
	wc->pkey_index = cqe->pkey_index;
	wc->slid = 0;
	wc->sl = cqe->sl;
	wc->dlid_path_bits = cqe->dlid_path_bits;
}

/*
 * The queue was polled. Returns whether it is time to look what other machines
 * have sent, or what is in a ring that could not be mapped. The caller holds the lock.
 */
bool mic_cq_polled(struct mic_cq *cq, bool in_vain)
{
	if (mic_load_relaxed(&cq->ring.ctl->overrun))
		mic_own_lose(&cq->own);
	if (!in_vain || !mic_load_relaxed(&cq->ring.ctl->remote)) {
		cq->in_vain = 0;
		return false;
	}
	if (cq->in_vain < MIC_IN_VAIN)
		cq->in_vain++;
	return cq->in_vain == MIC_IN_VAIN || atomic_load(&cq->behind);
}

/*
 * Have the kernel look what other machines have sent. Returns whether there was
 * something; if it can't, it will find out by itself.
 */
bool mic_cq_look(struct mic_cq *cq)
{
	if (atomic_load(&cq->behind))
		return mic_cq_catch_up_locked(cq);
	return ioctl(cq->doorbell_fd, MIC_IOC_POLL, 0) > 0;
}

/*
 * One of this process's own, if that comes next whatever the kernel's ring has. What
 * such an element does not have is 0.
 */
static MIC_ALWAYS_INLINE bool poll_own(struct mic_cq *cq, struct ibv_wc *wc)
{
	struct mic_own *own = &cq->own;
	const struct mic_cqe *cqe = mic_own_peek(own, cq->ring.consumer);

	if (!cqe)
		return false;
	own->consumer++;
	*wc = (struct ibv_wc){
		.wr_id = cqe->wr_id,
		.opcode = cqe->opcode,
		.byte_len = cqe->byte_len,
		.qp_num = cqe->qp_num,
	};
	return true;
}

/* Of both kinds. Returns the number of elements. The lock is held. */
static int poll_rings(struct mic_cq *cq, int num_entries, struct ibv_wc *wc)
{
	const uint32_t before = cq->ring.consumer;
	const struct mic_cqe *cqe;
	int n;

	for (n = 0; n < num_entries; n++) {
		if (poll_own(cq, &wc[n]))
			continue;
		cqe = mic_cq_next(cq);
		if (!cqe)
			break;
		fill_wc(&wc[n], cqe);
	}
	if (cq->ring.consumer != before)
		mic_cq_publish(&cq->ring);
	mic_own_publish(&cq->own);
	return n;
}

/* *@look: it is time to look at the wire. */
static int poll_locked(struct mic_cq *cq, int num_entries, struct ibv_wc *wc,
		       bool *look)
{
	int n;

	mic_lock(&cq->lock);
	n = poll_rings(cq, num_entries, wc);
	*look = mic_cq_polled(cq, num_entries && !n);
	mic_unlock(&cq->lock);
	return n;
}

static __attribute__((noinline)) int poll_any(struct mic_cq *cq,
					      int num_entries,
					      struct ibv_wc *wc)
{
	bool look;
	int n;

	n = poll_locked(cq, num_entries, wc, &look);
	if (look && mic_cq_look(cq))
		n = poll_locked(cq, num_entries, wc, &look);
	return n;
}

static inline bool poll_one(struct mic_cq *cq, struct ibv_wc *wc)
{
	if (!poll_own(cq, wc))
		return false;
	mic_own_publish(&cq->own);
	cq->in_vain = 0;
	return true;
}

static __attribute__((noinline)) int poll_one_locked(struct mic_cq *cq,
						     struct ibv_wc *wc)
{
	bool found;

	mic_lock(&cq->lock);
	found = poll_one(cq, wc);
	mic_unlock(&cq->lock);
	return found ? 1 : poll_any(cq, 1, wc);
}

/* The shortest way is that of a program with one thread for what it has executed. */
int mic_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct mic_cq *cq = to_mcq(ibcq);

	if (num_entries != 1)
		return poll_any(cq, num_entries, wc);
	if (!mic_one_thread())
		return poll_one_locked(cq, wc);
	return poll_one(cq, wc) ? 1 : poll_any(cq, 1, wc);
}

/* Whoever polls the queue meanwhile finds out himself. */
static void catch_up_if_free(struct mic_cq *cq)
{
	if (!mic_lock_if_free(&cq->lock))
		return;
	mic_lock(&cq->own.lock);
	mic_cq_catch_up(cq);
	mic_unlock(&cq->own.lock);
	mic_unlock(&cq->lock);
}

int mic_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct mic_cq *cq = to_mcq(ibcq);
	int ret = 0;

	/* who is between start_poll and end_poll has the other lock */
	if (atomic_load(&cq->behind))
		catch_up_if_free(cq);
	mic_lock(&cq->own.lock);
	if (atomic_load(&cq->behind))
		ret = ENOMEM;
	else
		mic_cq_arm(&cq->ring, solicited_only);
	mic_unlock(&cq->own.lock);
	return ret;
}
