// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The extended interface of completion queues: one element at a time, of which
 * there is a copy. The lock is held from a successful ibv_start_poll() to
 * ibv_end_poll().
 */
#include <time.h>

#include "mic.h"

#define NSEC_PER_SEC 1000000000ull

static struct mic_cq *ex_cq(struct ibv_cq_ex *cq)
{
	return container_of(cq, struct mic_cq, vcq.cq_ex);
}

static const struct mic_cqe *current_cqe(struct ibv_cq_ex *cq)
{
	return &ex_cq(cq)->current;
}

/*
 * Its place is free at once: a program may post anew for each element it reads,
 * and what it posts may be complete before it reads on.
 */
static int advance(struct mic_cq *cq)
{
	uint32_t before = cq->ring.consumer;
	const struct mic_cqe *cqe = mic_cq_next(cq);

	if (cqe)
		cq->current = *cqe;
	if (cq->ring.consumer != before)
		mic_cq_publish(&cq->ring);
	mic_own_publish(&cq->own);
	if (!cqe)
		return ENOENT;
	cq->vcq.cq_ex.wr_id = cq->current.wr_id;
	cq->vcq.cq_ex.status = cq->current.status;
	return 0;
}

/* Leaves the lock held if there is an element. *@look: as of mic_cq_polled(). */
static int begin(struct mic_cq *cq, bool *look)
{
	int ret;

	mic_lock(&cq->lock);
	ret = advance(cq);
	*look = mic_cq_polled(cq, ret);
	if (ret)
		mic_unlock(&cq->lock);
	return ret;
}

static int start_poll(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	struct mic_cq *cq = ex_cq(ibcq);
	bool look;
	int ret;

	if (attr->comp_mask)
		return EINVAL;
	ret = begin(cq, &look);
	if (look && mic_cq_look(cq))
		ret = begin(cq, &look);
	return ret;
}

static int next_poll(struct ibv_cq_ex *cq)
{
	return advance(ex_cq(cq));
}

static void end_poll(struct ibv_cq_ex *ibcq)
{
	mic_unlock(&ex_cq(ibcq)->lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
	return current_cqe(cq)->opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq)
{
	return current_cqe(cq)->vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq)
{
	return current_cqe(cq)->byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *cq)
{
	return (__be32)current_cqe(cq)->ex;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq)
{
	return current_cqe(cq)->qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq)
{
	return current_cqe(cq)->src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq)
{
	return mic_wc_flags(current_cqe(cq));
}

/* There are no LIDs on Ethernet. */
static uint32_t read_slid(struct ibv_cq_ex *cq)
{
	(void)cq;
	return 0;
}

static uint8_t read_sl(struct ibv_cq_ex *cq)
{
	return current_cqe(cq)->sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return current_cqe(cq)->dlid_path_bits;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *cq)
{
	return current_cqe(cq)->timestamp;
}

static uint16_t read_cvlan(struct ibv_cq_ex *cq)
{
	return current_cqe(cq)->vlan_id;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* The raw clock of the completion, moved to where the wall clock is now. */
static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *cq)
{
	uint64_t age = clock_ns(CLOCK_MONOTONIC_RAW) - read_completion_ts(cq);

	return clock_ns(CLOCK_REALTIME) - age;
}

void mic_cq_set_ex_ops(struct ibv_cq_ex *cq, uint64_t wc_flags)
{
	cq->start_poll = start_poll;
	cq->next_poll = next_poll;
	cq->end_poll = end_poll;
	cq->read_opcode = read_opcode;
	cq->read_vendor_err = read_vendor_err;
	cq->read_wc_flags = read_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		cq->read_byte_len = read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		cq->read_imm_data = read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		cq->read_qp_num = read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		cq->read_src_qp = read_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		cq->read_slid = read_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		cq->read_sl = read_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		cq->read_dlid_path_bits = read_dlid_path_bits;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		cq->read_completion_ts = read_completion_ts;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		cq->read_completion_wallclock_ns = read_completion_wallclock_ns;
	if (wc_flags & IBV_WC_EX_WITH_CVLAN)
		cq->read_cvlan = read_cvlan;
}
