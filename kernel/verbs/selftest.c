// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The device's part in the self-test of the interface it stands on: a datagram
 * of a queue pair to itself, by the verbs that any consumer in the kernel uses.
 *
 * All of it runs under the RTNL, so the destination is not resolved: it is known.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#include "dev.h"

#define MIC_SELFTEST_PORT	1
#define MIC_SELFTEST_QKEY	0x1d1c
#define MIC_SELFTEST_MS		2000
#define MIC_SELFTEST_BYTES	256	/* a datagram by the smallest MTU */
#define MIC_SELFTEST_HOPS	64

/**
 * struct mic_selftest - what one run has
 * @pd: protection domain
 * @cq: completions of @qp
 * @qp: queue pair
 * @to: where @qp is
 * @ah: the same, as an address handle
 * @sent: message
 * @grh: the receive begins with it
 * @got: what was received
 */
struct mic_selftest {
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct rdma_ah_attr to;
	struct ib_ah *ah;
	u8 sent[MIC_SELFTEST_BYTES];
	struct ib_grh grh;
	u8 got[MIC_SELFTEST_BYTES];
};

/* The first GID there is. */
static int mic_selftest_address(struct mic_selftest *test,
				struct ib_device *ibdev)
{
	const struct ib_gid_attr *attr;
	union ib_gid gid;
	int i;

	for (i = 0; i < MIC_MAX_GID; i++) {
		attr = rdma_get_gid_attr(ibdev, MIC_SELFTEST_PORT, i);
		if (!IS_ERR(attr))
			break;
	}
	if (i == MIC_MAX_GID)
		return -EADDRNOTAVAIL;
	gid = attr->gid;
	test->to.type = rdma_ah_find_type(ibdev, MIC_SELFTEST_PORT);
	rdma_ah_set_port_num(&test->to, MIC_SELFTEST_PORT);
	rdma_move_grh_sgid_attr(&test->to, &gid, 0, MIC_SELFTEST_HOPS, 0, attr);
	return rdma_read_gid_l2_fields(attr, NULL, test->to.roce.dmac);
}

static int mic_selftest_start(struct ib_qp *qp)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = MIC_SELFTEST_PORT,
		.qkey = MIC_SELFTEST_QKEY,
	};
	int err;

	err = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			   IB_QP_PORT | IB_QP_QKEY);
	attr.qp_state = IB_QPS_RTR;
	err = err ?: ib_modify_qp(qp, &attr, IB_QP_STATE);
	attr.qp_state = IB_QPS_RTS;
	return err ?: ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN);
}

static int mic_selftest_open(struct mic_selftest *test, struct ib_device *ibdev)
{
	struct ib_qp_init_attr init = {
		.qp_type = IB_QPT_UD,
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	int err;

	err = mic_selftest_address(test, ibdev);
	if (err)
		return err;
	test->pd = ib_alloc_pd(ibdev, 0);
	if (IS_ERR(test->pd))
		return PTR_ERR(test->pd);
	test->ah = rdma_create_ah(test->pd, &test->to, RDMA_CREATE_AH_SLEEPABLE);
	if (IS_ERR(test->ah))
		return PTR_ERR(test->ah);
	test->cq = ib_alloc_cq(ibdev, NULL, 2, 0, IB_POLL_DIRECT);
	if (IS_ERR(test->cq))
		return PTR_ERR(test->cq);
	init.send_cq = test->cq;
	init.recv_cq = test->cq;
	test->qp = ib_create_qp(test->pd, &init);
	if (IS_ERR(test->qp))
		return PTR_ERR(test->qp);
	return mic_selftest_start(test->qp);
}

static void mic_selftest_close(struct mic_selftest *test)
{
	if (!IS_ERR_OR_NULL(test->qp))
		ib_destroy_qp(test->qp);
	if (!IS_ERR_OR_NULL(test->cq))
		ib_free_cq(test->cq);
	if (!IS_ERR_OR_NULL(test->ah))
		rdma_destroy_ah(test->ah, RDMA_DESTROY_AH_SLEEPABLE);
	if (!IS_ERR_OR_NULL(test->pd))
		ib_dealloc_pd(test->pd);
	rdma_destroy_ah_attr(&test->to);
}

static int mic_selftest_post(struct mic_selftest *test)
{
	/* a device without DMA: addresses are the kernel's */
	struct ib_sge to = {
		.addr = (uintptr_t)&test->grh,
		.length = sizeof(test->grh) + sizeof(test->got),
		.lkey = test->pd->local_dma_lkey,
	};
	struct ib_sge from = {
		.addr = (uintptr_t)test->sent,
		.length = sizeof(test->sent),
		.lkey = test->pd->local_dma_lkey,
	};
	struct ib_recv_wr recv = { .sg_list = &to, .num_sge = 1 };
	struct ib_ud_wr send = {
		.wr = { .opcode = IB_WR_SEND, .sg_list = &from, .num_sge = 1 },
		.ah = test->ah,
		.remote_qpn = test->qp->qp_num,
		.remote_qkey = MIC_SELFTEST_QKEY,
	};

	static_assert(offsetof(struct mic_selftest, got) ==
		      offsetof(struct mic_selftest, grh) + sizeof(struct ib_grh));
	return ib_post_recv(test->qp, &recv, NULL) ?:
	       ib_post_send(test->qp, &send.wr, NULL);
}

/* One completion; neither of the two may have failed. */
static int mic_selftest_take(struct mic_selftest *test, unsigned long end)
{
	struct ib_wc wc;
	int n;

	while (!(n = ib_poll_cq(test->cq, 1, &wc))) {
		if (time_after(jiffies, end))
			return -ETIMEDOUT;
		usleep_range(50, 100);
	}
	if (n < 0 || wc.status != IB_WC_SUCCESS)
		return -EIO;
	if (wc.opcode & IB_WC_RECV &&
	    wc.byte_len != sizeof(test->grh) + sizeof(test->got))
		return -EIO;
	return 0;
}

static int mic_selftest_run(struct mic_selftest *test, struct ib_device *ibdev)
{
	unsigned long end;
	int err;

	get_random_bytes(test->sent, sizeof(test->sent));
	err = mic_selftest_open(test, ibdev) ?: mic_selftest_post(test);
	if (err)
		return err;
	end = jiffies + msecs_to_jiffies(MIC_SELFTEST_MS);
	err = mic_selftest_take(test, end) ?: mic_selftest_take(test, end);
	if (!err && memcmp(test->sent, test->got, sizeof(test->sent)))
		err = -EIO;
	return err;
}

/**
 * mic_selftest - send a datagram from the device to itself, and compare it
 * @node: the device's node, which is kept live
 *
 * What deletes the device meanwhile waits for the end.
 *
 * Context: process context, under the RTNL, sleeps, for a few seconds at most.
 * Return: 0; -ENODEV: the device is about to go; -ENETDOWN: its port is not
 * active; -ETIMEDOUT: nothing has arrived; -EIO: not what was sent, or a
 * completion with an error; or why there is no queue pair.
 */
int mic_selftest(struct mic_node *node)
{
	struct mic_dev *dev = node->priv;
	struct ib_port_attr port;
	struct mic_selftest *test;
	int err;

	if (!ib_device_try_get(&dev->ibdev))
		return -ENODEV;
	err = ib_query_port(&dev->ibdev, MIC_SELFTEST_PORT, &port);
	if (!err && port.state != IB_PORT_ACTIVE)
		err = -ENETDOWN;
	if (err)
		goto put;
	test = kzalloc(sizeof(*test), GFP_KERNEL);
	if (!test) {
		err = -ENOMEM;
		goto put;
	}
	err = mic_selftest_run(test, &dev->ibdev);
	mic_selftest_close(test);
	kfree(test);
put:
	ib_device_put(&dev->ibdev);
	return err;
}
