/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Hardware counters, in the sense of rdma statistic.
 */
#ifndef MIC_COUNTERS_H
#define MIC_COUNTERS_H

#include <linux/percpu.h>
#include <linux/types.h>

struct ib_device;
struct rdma_hw_stats;

enum mic_counter {
	MIC_CNT_SEND,			/* requests executed, by opcode */
	MIC_CNT_WRITE,
	MIC_CNT_READ,
	MIC_CNT_ATOMIC,
	MIC_CNT_LOCAL_OP,		/* bind, register, invalidate */
	MIC_CNT_TX_BYTES,		/* SEND and WRITE payload */
	MIC_CNT_RX_BYTES,		/* READ payload */
	MIC_CNT_RECV,			/* receives completed */
	MIC_CNT_RNR_SENT,		/* RNR NAKs given as responder */
	MIC_CNT_RNR_RETRY,		/* requests repeated after RNR NAK */
	MIC_CNT_RNR_EXCEEDED,
	MIC_CNT_RETRY,			/* requests repeated for want of answer */
	MIC_CNT_RETRY_EXCEEDED,
	MIC_CNT_REMOTE_ACCESS_ERR,	/* NAKs given as responder */
	MIC_CNT_REMOTE_INV_REQ_ERR,
	MIC_CNT_REMOTE_OP_ERR,
	MIC_CNT_LOCAL_ERR,		/* requests refused at the requester */
	MIC_CNT_UD_DROPPED,		/* datagrams without receive, wrong key */
	MIC_CNT_FLUSHED,
	MIC_CNT_CQ_OVERFLOW,
	MIC_CNT_CQ_EVENT,
	MIC_CNT_RUN,			/* engine runs */
	MIC_CNT_RUN_WORKER,		/* of these, by the worker */
	MIC_CNT_BUDGET,			/* runs that ended with their budget */
	MIC_CNT_MAX
};

struct mic_counters {
	u64 value[MIC_CNT_MAX];
};

#define mic_count_add(dev, id, n) \
	this_cpu_add((dev)->counters->value[id], n)
#define mic_count(dev, id)	mic_count_add(dev, id, 1)

struct rdma_hw_stats *mic_alloc_hw_port_stats(struct ib_device *ibdev,
					      u32 port);
int mic_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		     u32 port, int index);

#endif /* MIC_COUNTERS_H */
