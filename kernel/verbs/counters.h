/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Hardware counters, in the sense of rdma statistic.
 */
#ifndef MIC_COUNTERS_H
#define MIC_COUNTERS_H

#include <linux/percpu.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/mic-abi.h>

struct mic_dev;
struct mic_qp;
struct rdma_counter;

enum mic_counter {
	MIC_CNT_SEND,			/* requests that succeeded, and their */
	MIC_CNT_SEND_BYTES,		/* bytes as they are moved */
	MIC_CNT_WRITE,
	MIC_CNT_WRITE_BYTES,
	MIC_CNT_READ,
	MIC_CNT_READ_BYTES,
	MIC_CNT_ATOMIC,
	MIC_CNT_ATOMIC_BYTES,
	MIC_CNT_LOCAL_OP,		/* bind, register, invalidate */
	MIC_CNT_RECV,			/* receives that succeeded */
	MIC_CNT_RECV_BYTES,		/* those of SENDs: their payload */
	MIC_CNT_RNR_SENT,		/* RNR NAKs given as responder */
	MIC_CNT_RNR_RETRY,		/* requests repeated after RNR NAK */
	MIC_CNT_RNR_EXCEEDED,		/* requests given up */
	MIC_CNT_RETRY,			/* requests repeated for want of answer */
	MIC_CNT_RETRY_EXCEEDED,
	MIC_CNT_DUPLICATE,		/* requests answered once more */
	MIC_CNT_REMOTE_ACCESS_ERR,	/* NAKs given as responder */
	MIC_CNT_REMOTE_INV_REQ_ERR,
	MIC_CNT_REMOTE_OP_ERR,
	MIC_CNT_REQ_LOCAL_ERR,		/* requests refused at the requester */
	MIC_CNT_REQ_ACCESS_ERR,		/* requests that got such a NAK */
	MIC_CNT_REQ_INV_REQ_ERR,
	MIC_CNT_REQ_OP_ERR,
	MIC_CNT_DROPPED,		/* UC, UD: messages nobody took */
	MIC_CNT_FLUSHED,		/* requests and receives */
	MIC_CNT_CQ_OVERFLOW,		/* queues that overflowed */
	MIC_CNT_CQ_EVENT,
	MIC_CNT_ASYNC_EVENT,
	MIC_CNT_RUN,			/* engine runs */
	MIC_CNT_RUN_WORKER,		/* times the worker was called */
	MIC_CNT_BUDGET,			/* runs that ended with their budget */
	MIC_CNT_DOORBELL,		/* doorbells that user space rang */
	MIC_CNT_POLL,			/* runs because the poller saw news */
	MIC_CNT_DIRECT,			/* enum mic_direct_count, from here on */
	MIC_CNT_DIRECT_LAST = MIC_CNT_DIRECT + MIC_DIRECT_COUNTS - 1,
	MIC_CNT_MAX
};

struct mic_counters {
	u64 value[MIC_CNT_MAX];
};

#define mic_count_add(dev, id, n) \
	this_cpu_add((dev)->counters->value[id], n)
#define mic_count(dev, id)	mic_count_add(dev, id, 1)

/*
 * Of a queue pair: its device's counters, or those that it is bound to. The caller holds
 * the lock of its requester or that of its responder.
 */
#define mic_qp_count_add(qp, id, n)					\
	this_cpu_add((qp)->counters->value[id], n)
#define mic_qp_count(qp, id)	mic_qp_count_add(qp, id, 1)

enum mic_counter mic_bytes_counter(u8 op);
void mic_count_add_cpus(u64 *sum, const struct mic_counters __percpu *counters);
void mic_count_take_direct(u64 *sum, struct mic_qp *qp);
void mic_count_add_direct(u64 *sum, const struct mic_qp *qp);
void mic_count_unlink_qp(struct mic_qp *qp);
void mic_count_sum(struct mic_dev *dev, u64 *value);
struct rdma_hw_stats *mic_alloc_stats(void);
void mic_count_req_error(struct mic_qp *qp, enum ib_wc_status status);

struct rdma_hw_stats *mic_alloc_hw_port_stats(struct ib_device *ibdev,
					      u32 port);
int mic_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		     u32 port, int index);

/* qp_counters.c */
void mic_count_add_bound(struct mic_dev *dev, u64 *value);
int mic_counter_bind_qp(struct rdma_counter *counter, struct ib_qp *ibqp);
int mic_counter_unbind_qp(struct ib_qp *ibqp);
void mic_counter_forget_qp(struct mic_qp *qp);
int mic_counter_dealloc(struct rdma_counter *counter);
struct rdma_hw_stats *mic_counter_alloc_stats(struct rdma_counter *counter);
int mic_counter_update_stats(struct rdma_counter *counter);

/* pma.c */
int mic_process_mad(struct ib_device *ibdev, int flags, u32 port,
		    const struct ib_wc *wc, const struct ib_grh *grh,
		    const struct ib_mad *in, struct ib_mad *out,
		    size_t *out_size, u16 *out_pkey_index);

#endif /* MIC_COUNTERS_H */
