// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Hardware counters. Counted per CPU, added up when someone looks.
 */
#include <linux/build_bug.h>
#include <rdma/ib_verbs.h>

#include <mic/op.h>

#include "counters.h"
#include "dev.h"
#include "qp.h"

static const struct rdma_stat_desc mic_stat_descs[] = {
	[MIC_CNT_SEND] = { .name = "sends" },
	[MIC_CNT_SEND_BYTES] = { .name = "send_bytes" },
	[MIC_CNT_WRITE] = { .name = "rdma_writes" },
	[MIC_CNT_WRITE_BYTES] = { .name = "rdma_write_bytes" },
	[MIC_CNT_READ] = { .name = "rdma_reads" },
	[MIC_CNT_READ_BYTES] = { .name = "rdma_read_bytes" },
	[MIC_CNT_ATOMIC] = { .name = "atomics" },
	[MIC_CNT_ATOMIC_BYTES] = { .name = "atomic_bytes" },
	[MIC_CNT_LOCAL_OP] = { .name = "local_operations" },
	[MIC_CNT_RECV] = { .name = "receives" },
	[MIC_CNT_RECV_BYTES] = { .name = "receive_bytes" },
	[MIC_CNT_RNR_SENT] = { .name = "rnr_nak_sent" },
	[MIC_CNT_RNR_RETRY] = { .name = "rnr_retries" },
	[MIC_CNT_RNR_EXCEEDED] = { .name = "rnr_retries_exceeded" },
	[MIC_CNT_RETRY] = { .name = "retries" },
	[MIC_CNT_RETRY_EXCEEDED] = { .name = "retries_exceeded" },
	[MIC_CNT_DUPLICATE] = { .name = "duplicate_requests" },
	[MIC_CNT_REMOTE_ACCESS_ERR] = { .name = "resp_access_errors" },
	[MIC_CNT_REMOTE_INV_REQ_ERR] = { .name = "resp_invalid_requests" },
	[MIC_CNT_REMOTE_OP_ERR] = { .name = "resp_operation_errors" },
	[MIC_CNT_REQ_LOCAL_ERR] = { .name = "req_local_errors" },
	[MIC_CNT_REQ_ACCESS_ERR] = { .name = "req_remote_access_errors" },
	[MIC_CNT_REQ_INV_REQ_ERR] = { .name = "req_remote_invalid_requests" },
	[MIC_CNT_REQ_OP_ERR] = { .name = "req_remote_operation_errors" },
	[MIC_CNT_DROPPED] = { .name = "messages_dropped" },
	[MIC_CNT_FLUSHED] = { .name = "flushed" },
	[MIC_CNT_CQ_OVERFLOW] = { .name = "cq_overflows" },
	[MIC_CNT_CQ_EVENT] = { .name = "cq_events" },
	[MIC_CNT_ASYNC_EVENT] = { .name = "async_events" },
	[MIC_CNT_RUN] = { .name = "engine_runs" },
	[MIC_CNT_RUN_WORKER] = { .name = "engine_worker_runs" },
	[MIC_CNT_BUDGET] = { .name = "engine_budget_exhausted" },
	[MIC_CNT_DOORBELL] = { .name = "engine_doorbells" },
	[MIC_CNT_POLL] = { .name = "engine_polls" },
	[MIC_CNT_DIRECT + MIC_DIRECT_WRITES] = { .name = "direct_writes" },
	[MIC_CNT_DIRECT + MIC_DIRECT_WRITE_BYTES] = {
		.name = "direct_write_bytes" },
	[MIC_CNT_DIRECT + MIC_DIRECT_READS] = { .name = "direct_reads" },
	[MIC_CNT_DIRECT + MIC_DIRECT_READ_BYTES] = {
		.name = "direct_read_bytes" },
	[MIC_CNT_DIRECT + MIC_DIRECT_ATOMICS] = { .name = "direct_atomics" },
	[MIC_CNT_DIRECT + MIC_DIRECT_ATOMIC_BYTES] = {
		.name = "direct_atomic_bytes" },
};

static_assert(ARRAY_SIZE(mic_stat_descs) == MIC_CNT_MAX);

/**
 * mic_bytes_counter - which counter the bytes of an operation belong to
 * @op: enum mic_op_code
 *
 * Return: enum mic_counter.
 */
enum mic_counter mic_bytes_counter(u8 op)
{
	switch (op) {
	case MIC_OP_SEND:
		return MIC_CNT_SEND_BYTES;
	case MIC_OP_WRITE:
		return MIC_CNT_WRITE_BYTES;
	case MIC_OP_READ:
		return MIC_CNT_READ_BYTES;
	default:
		return MIC_CNT_ATOMIC_BYTES;
	}
}

/**
 * mic_count_req_error - count a request that failed, by the kind of failure
 * @qp: queue pair of the request
 * @status: what the request completes with
 */
void mic_count_req_error(struct mic_qp *qp, enum ib_wc_status status)
{
	switch (status) {
	case IB_WC_REM_ACCESS_ERR:
		mic_qp_count(qp, MIC_CNT_REQ_ACCESS_ERR);
		break;
	case IB_WC_REM_INV_REQ_ERR:
		mic_qp_count(qp, MIC_CNT_REQ_INV_REQ_ERR);
		break;
	case IB_WC_REM_OP_ERR:
		mic_qp_count(qp, MIC_CNT_REQ_OP_ERR);
		break;
	case IB_WC_RETRY_EXC_ERR:
		mic_qp_count(qp, MIC_CNT_RETRY_EXCEEDED);
		break;
	case IB_WC_RNR_RETRY_EXC_ERR:
		mic_qp_count(qp, MIC_CNT_RNR_EXCEEDED);
		break;
	default:
		mic_qp_count(qp, MIC_CNT_REQ_LOCAL_ERR);
		break;
	}
}

/**
 * mic_count_add_direct - what a process says of its QP, and no sum has yet
 * @sum: MIC_DIRECT_COUNTS sums
 * @qp: queue pair with its memory; the caller holds &mic_dev.direct_lock
 *
 * Any number, which may change at any time: sums are modulo 2^64.
 */
void mic_count_add_direct(u64 *sum, const struct mic_qp *qp)
{
	int i;

	lockdep_assert_held(&qp->dev->direct_lock);
	if (!qp->user || !qp->req.ring.ctl)
		return;
	for (i = 0; i < MIC_DIRECT_COUNTS; i++)
		sum[i] += READ_ONCE(qp->req.ring.ctl->direct[i]) -
			  qp->direct_taken[i];
}

/**
 * mic_count_take_direct - the same, and from now on this sum has it
 * @sum: MIC_DIRECT_COUNTS sums
 * @qp: queue pair with its memory; the caller holds &mic_dev.direct_lock
 */
void mic_count_take_direct(u64 *sum, struct mic_qp *qp)
{
	u64 news[MIC_DIRECT_COUNTS] = {};
	int i;

	mic_count_add_direct(news, qp);
	for (i = 0; i < MIC_DIRECT_COUNTS; i++) {
		sum[i] += news[i];
		qp->direct_taken[i] += news[i];
	}
}

/**
 * mic_count_unlink_qp - a QP can't be looked up any more; its counts stay
 * @qp: queue pair with its memory, bound to no counter
 *
 * Context: process context, without locks.
 */
void mic_count_unlink_qp(struct mic_qp *qp)
{
	struct mic_dev *dev = qp->dev;

	mutex_lock(&dev->direct_lock);
	xa_erase(&dev->qps, qp->qpn);
	mic_count_take_direct(dev->direct, qp);
	mutex_unlock(&dev->direct_lock);
}

/* Of the queue pairs there were, and of those there are, but for those bound. */
static void mic_count_sum_direct(struct mic_dev *dev, u64 *sum)
{
	struct mic_qp *qp;
	unsigned long qpn;

	mutex_lock(&dev->direct_lock);
	memcpy(sum, dev->direct, sizeof(dev->direct));
	xa_for_each(&dev->qps, qpn, qp) {
		if (list_empty(&qp->counter_entry))
			mic_count_add_direct(sum, qp);
		cond_resched();
	}
	mutex_unlock(&dev->direct_lock);
}

/**
 * mic_count_add_cpus - add up what all processors have counted
 * @sum: MIC_CNT_DIRECT sums
 * @counters: of each processor
 */
void mic_count_add_cpus(u64 *sum, const struct mic_counters __percpu *counters)
{
	int cpu, i;

	for_each_possible_cpu(cpu) {
		const struct mic_counters *one = per_cpu_ptr(counters, cpu);

		for (i = 0; i < MIC_CNT_DIRECT; i++)
			sum[i] += READ_ONCE(one->value[i]);
	}
}

/**
 * mic_count_sum - all counters of a device, without queue pairs that are bound
 * @dev: device
 * @value: where the MIC_CNT_MAX of them go
 *
 * Context: process context, without locks.
 */
void mic_count_sum(struct mic_dev *dev, u64 *value)
{
	memset(value, 0, MIC_CNT_DIRECT * sizeof(*value));
	mic_count_add_cpus(value, dev->counters);
	mic_count_sum_direct(dev, &value[MIC_CNT_DIRECT]);
}

/**
 * mic_alloc_stats - room for all counters
 *
 * Return: what ib_core frees, or NULL.
 */
struct rdma_hw_stats *mic_alloc_stats(void)
{
	return rdma_alloc_hw_stats_struct(mic_stat_descs, MIC_CNT_MAX,
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

struct rdma_hw_stats *mic_alloc_hw_port_stats(struct ib_device *ibdev,
					      u32 port)
{
	return mic_alloc_stats();
}

/* ib_core adds what is bound, and what was. */
int mic_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		     u32 port, int index)
{
	if (!port)
		return -EINVAL;
	mic_count_sum(to_mic_dev(ibdev), stats->value);
	return MIC_CNT_MAX;
}
