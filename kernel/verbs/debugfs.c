// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * State for those who debug: /sys/kernel/debug/ib_mic/DEVICE/{qps,mkeys,windows}.
 *
 * Nothing here waits for a lock of the engine, so the files can be read when it
 * is stuck, and reading them changes nothing; windows are listed under the lock
 * of their lists, under which nothing waits. The price: a value is true by
 * itself, two of them need not fit. A QP is held while its own lines are
 * formatted and no longer; what waits to destroy it waits that long.
 *
 * The folders are made by a client of ib_core, which is told of devices that
 * come, go and change their names. Before a device goes, removing its folder
 * waits for those who read.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <rdma/ib_verbs.h>
#include <rdma/mic-abi.h>

#include "debugfs.h"
#include "dev.h"
#include "mr.h"
#include "qp.h"
#include "restrack.h"
#include "srq.h"
#include "windows.h"

static struct dentry *mic_debugfs_root;

static const char *mic_qp_type_name(u8 type)
{
	switch (type) {
	case IB_QPT_GSI:
		return "GSI";
	case IB_QPT_RC:
		return "RC";
	case IB_QPT_UC:
		return "UC";
	case IB_QPT_UD:
		return "UD";
	case IB_QPT_XRC_INI:
		return "XRC_INI";
	case IB_QPT_XRC_TGT:
		return "XRC_TGT";
	default:
		return "?";
	}
}

static const char *mic_qp_state_name(int state)
{
	static const char *const name[] = {
		[IB_QPS_RESET] = "RESET",
		[IB_QPS_INIT] = "INIT",
		[IB_QPS_RTR] = "RTR",
		[IB_QPS_RTS] = "RTS",
		[IB_QPS_SQD] = "SQD",
		[IB_QPS_SQE] = "SQE",
		[IB_QPS_ERR] = "ERR",
	};

	return state >= 0 && state < ARRAY_SIZE(name) ? name[state] : "?";
}

/* The opcode comes from user space, it may be anything. */
static const char *mic_wr_opcode_name(u8 opcode)
{
	static const char *const name[] = {
		[MIC_WR_RDMA_WRITE] = "WRITE",
		[MIC_WR_RDMA_WRITE_WITH_IMM] = "WRITE_IMM",
		[MIC_WR_SEND] = "SEND",
		[MIC_WR_SEND_WITH_IMM] = "SEND_IMM",
		[MIC_WR_RDMA_READ] = "READ",
		[MIC_WR_ATOMIC_CMP_AND_SWP] = "CMP_SWAP",
		[MIC_WR_ATOMIC_FETCH_AND_ADD] = "FETCH_ADD",
		[MIC_WR_LOCAL_INV] = "LOCAL_INV",
		[MIC_WR_BIND_MW] = "BIND_MW",
		[MIC_WR_SEND_WITH_INV] = "SEND_INV",
		[MIC_WR_ATOMIC_WRITE] = "ATOMIC_WRITE",
		[MIC_WR_REG_MR] = "REG_MR",
	};

	return opcode < ARRAY_SIZE(name) && name[opcode] ? name[opcode] : "?";
}

/* An XRC target has an SRQ and a receive CQ only now and then: left out. */
static void mic_show_queues(struct seq_file *m, const struct mic_qp *qp)
{
	if (qp->type == IB_QPT_XRC_TGT)
		return;
	seq_printf(m, " send_cqn %u", qp->send_cq->ibcq.res.id);
	if (qp->recv_cq)
		seq_printf(m, " recv_cqn %u", qp->recv_cq->ibcq.res.id);
	if (qp->srq)
		seq_printf(m, " srqn %u", qp->srq->ibsrq.res.id);
}

static void mic_show_objects(struct seq_file *m, const struct mic_qp *qp)
{
	seq_printf(m, "qp %u type %s state %s owner %s", qp->qpn,
		   mic_qp_type_name(qp->type),
		   mic_qp_state_name(READ_ONCE(qp->state)),
		   qp->user ? "user" : "kernel");
	if (qp->ibqp->pd)
		seq_printf(m, " pdn %u", qp->ibqp->pd->res.id);
	mic_show_queues(m, qp);
	seq_putc(m, '\n');
}

static void mic_show_peer(struct seq_file *m, const struct mic_qp *qp)
{
	if (mic_qp_is_ud(qp))
		return;
	seq_printf(m, "  peer %u gid %pI6c mac %pM mtu %d access 0x%x\n",
		   READ_ONCE(qp->attr.dest_qp_num), &qp->addr.dgid,
		   qp->addr.dmac,
		   ib_mtu_enum_to_int(READ_ONCE(qp->attr.path_mtu)),
		   READ_ONCE(qp->attr.qp_access_flags));
}

static void mic_show_ring(struct seq_file *m, const char *name,
			  const struct mic_ring *ring, bool broken)
{
	if (!ring->ctl)
		return;
	seq_printf(m, "  %s entries %u producer %u consumer %u need_kick %u%s\n",
		   name, ring->info.entries, READ_ONCE(ring->ctl->producer),
		   READ_ONCE(ring->consumer), READ_ONCE(ring->ctl->need_kick),
		   broken ? " broken" : "");
}

/*
 * Of all queue pairs that have it, each shows it. It can't be destroyed before
 * they are. An XRC target's is another one with each message: left out.
 */
static void mic_show_srq(struct seq_file *m, struct mic_srq *srq)
{
	struct mic_srq_view view;

	if (!mic_srq_try_look(srq, &view)) {
		seq_puts(m, "  srq busy\n");
		return;
	}
	seq_printf(m, "  srq entries %u producer %u consumer %u limit %u%s\n",
		   view.entries, view.producer, view.consumer, view.limit,
		   view.broken ? " broken" : "");
}

static void mic_show_request(struct seq_file *m, const struct mic_qp *qp)
{
	const struct mic_req *req = &qp->req;
	ktime_t deadline = READ_ONCE(req->deadline);

	seq_printf(m, "  requester %s psn %u", mic_req_activity(qp),
		   READ_ONCE(req->psn));
	if (deadline)
		seq_printf(m, " due_in_us %lld",
			   ktime_us_delta(deadline, ktime_get()));
	if (READ_ONCE(req->active))
		seq_printf(m, " request %s wr_id 0x%llx done %u of %u retries_left %u rnr_retries_left %u",
			   mic_wr_opcode_name(READ_ONCE(req->wqe.opcode)),
			   READ_ONCE(req->wqe.wr_id), READ_ONCE(req->done),
			   READ_ONCE(req->length), READ_ONCE(req->retry_left),
			   READ_ONCE(req->rnr_left));
	seq_putc(m, '\n');
}

static void mic_show_responder(struct seq_file *m, const struct mic_qp *qp)
{
	const struct mic_resp *resp = &qp->resp;

	seq_printf(m, "  responder expected_psn %u", READ_ONCE(resp->epsn));
	if (READ_ONCE(resp->active))
		seq_printf(m, " receive wr_id 0x%llx", READ_ONCE(resp->wr_id));
	seq_putc(m, '\n');
}

static void mic_show_qp(struct seq_file *m, const struct mic_qp *qp)
{
	mic_show_objects(m, qp);
	mic_show_peer(m, qp);
	mic_show_ring(m, "sq", &qp->req.ring, READ_ONCE(qp->req.broken));
	mic_show_ring(m, "rq", &qp->resp.ring, READ_ONCE(qp->resp.broken));
	if (qp->srq && qp->type != IB_QPT_XRC_TGT)
		mic_show_srq(m, qp->srq);
	if (qp->req.ring.ctl)
		mic_show_request(m, qp);
	mic_show_responder(m, qp);
}

/* The position in the file is the number of the QP, which is never 0. */
static void *mic_qps_find(struct mic_dev *dev, loff_t *pos)
{
	unsigned long qpn = *pos;

	if (!xa_find(&dev->qps, &qpn, U32_MAX, XA_PRESENT))
		return NULL;
	*pos = qpn;
	return (void *)qpn;
}

static void *mic_qps_start(struct seq_file *m, loff_t *pos)
{
	return mic_qps_find(m->private, pos);
}

static void *mic_qps_next(struct seq_file *m, void *v, loff_t *pos)
{
	++*pos;
	return mic_qps_find(m->private, pos);
}

static void mic_qps_stop(struct seq_file *m, void *v)
{
}

static int mic_qps_show(struct seq_file *m, void *v)
{
	struct mic_qp *qp = mic_qp_get(m->private, (unsigned long)v);

	if (!qp)
		return SEQ_SKIP;
	mic_show_qp(m, qp);
	mic_qp_put(qp);
	return 0;
}

static const struct seq_operations mic_qps_sops = {
	.start = mic_qps_start,
	.next = mic_qps_next,
	.stop = mic_qps_stop,
	.show = mic_qps_show,
};

DEFINE_SEQ_ATTRIBUTE(mic_qps);

/* Sums over the keys of a kind. */
struct mic_mkey_sum {
	u32 keys;
	u32 valid;
	u64 bytes;
	u64 blocks;
};

static void mic_mkey_add(struct mic_mkey_sum *sum, const struct mic_mkey *mkey)
{
	sum->keys++;
	if (!READ_ONCE(mkey->valid))
		return;
	sum->valid++;
	/* the kernel's region of everything would drown the others */
	if (READ_ONCE(mkey->length) != U64_MAX)
		sum->bytes += READ_ONCE(mkey->length);
	/* a window's memory is its region's, which may be gone */
	if (!mkey->window)
		sum->blocks += READ_ONCE(container_of(mkey, struct mic_mr,
						      mkey)->win.nblocks);
}

/* There may be millions, so others get their turn. */
static void mic_mkeys_sum(struct mic_dev *dev, struct mic_mkey_sum *sum)
{
	XA_STATE(xas, &dev->mkeys, 0);
	const struct mic_mkey *mkey;
	u32 n = 0;

	rcu_read_lock();
	xas_for_each(&xas, mkey, ULONG_MAX) {
		if (xas_retry(&xas, mkey))	/* or reserved */
			continue;
		mic_mkey_add(&sum[mic_mkey_kind(mkey)], mkey);
		if (++n % 1024)
			continue;
		xas_pause(&xas);
		rcu_read_unlock();
		cond_resched();
		rcu_read_lock();
	}
	rcu_read_unlock();
}

static int mic_mkeys_show(struct seq_file *m, void *v)
{
	struct mic_mkey_sum sum[MIC_MKEY_KINDS] = {};
	int i;

	mic_mkeys_sum(m->private, sum);
	for (i = 0; i < MIC_MKEY_KINDS; i++)
		seq_printf(m, "%s keys %u valid %u bytes %llu blocks %llu\n",
			   mic_mkey_kind_name[i], sum[i].keys, sum[i].valid,
			   sum[i].bytes, sum[i].blocks);
	return 0;
}

DEFINE_SHOW_ATTRIBUTE(mic_mkeys);

static int mic_imports_line(struct seq_file *m, void *v)
{
	struct mic_qp *qp = mic_qp_get(m->private, (unsigned long)v);

	if (!qp)
		return SEQ_SKIP;
	mic_imports_show(m, qp);
	mic_qp_put(qp);
	return 0;
}

static const struct seq_operations mic_imports_sops = {
	.start = mic_qps_start,
	.next = mic_qps_next,
	.stop = mic_qps_stop,
	.show = mic_imports_line,
};

DEFINE_SEQ_ATTRIBUTE(mic_imports);

static void mic_debugfs_make(struct mic_dev *dev)
{
	struct dentry *dir = debugfs_create_dir(dev->ibdev.name,
						mic_debugfs_root);

	debugfs_create_file("qps", 0400, dir, dev, &mic_qps_fops);
	debugfs_create_file("mkeys", 0400, dir, dev, &mic_mkeys_fops);
	debugfs_create_file("windows", 0400, dir, dev, &mic_imports_fops);
	dev->debugfs = dir;
}

static int mic_debugfs_add(struct ib_device *ibdev)
{
	if (ibdev->ops.driver_id != MIC_DRIVER_ID)
		return -EOPNOTSUPP;
	WRITE_ONCE(to_mic_dev(ibdev)->leaving, false);
	mic_debugfs_make(to_mic_dev(ibdev));
	return 0;
}

/* Before uverbs, which this module needs, so which is an older client. */
static void mic_debugfs_remove(struct ib_device *ibdev, void *client_data)
{
	WRITE_ONCE(to_mic_dev(ibdev)->leaving, true);
	debugfs_remove_recursive(to_mic_dev(ibdev)->debugfs);
}

/* A new folder: who has a file of the old one open finds it gone. */
static void mic_debugfs_rename(struct ib_device *ibdev, void *client_data)
{
	debugfs_remove_recursive(to_mic_dev(ibdev)->debugfs);
	mic_debugfs_make(to_mic_dev(ibdev));
}

static struct ib_client mic_debugfs_client = {
	.name = "ib_mic_debugfs",
	.add = mic_debugfs_add,
	.remove = mic_debugfs_remove,
	.rename = mic_debugfs_rename,
};

/**
 * mic_debugfs_init - make the folder, and one in it for each device to come
 *
 * Without debugfs in the kernel, or if it refuses, there are no files, which
 * is no error.
 *
 * Return: 0 or an error.
 */
int mic_debugfs_init(void)
{
	int err;

	mic_debugfs_root = debugfs_create_dir("ib_mic", NULL);
	err = ib_register_client(&mic_debugfs_client);
	if (err)
		debugfs_remove_recursive(mic_debugfs_root);
	return err;
}

/**
 * mic_debugfs_exit - remove the folder; there are no devices any more
 */
void mic_debugfs_exit(void)
{
	ib_unregister_client(&mic_debugfs_client);
	debugfs_remove_recursive(mic_debugfs_root);
}
