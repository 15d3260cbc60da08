// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Importing windows of a peer on another node that shares memory with this one.
 *
 * The peer's kernel decides (export.c); it is asked by an operation, in the order
 * of the queue pair's requests. What it lends ends when either kernel says so: this
 * one's reasons are those of any window, the other's come by the lease.
 */
#include <linux/completion.h>
#include <linux/errno.h>
#include <linux/etherdevice.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "../engine/engine.h"
#include "dev.h"
#include "qp.h"
#include "windows.h"

/* A process that posts a request waits no longer for the peer's node than this. */
#define MIC_IMPORT_BRIEF_MS	100

/**
 * struct mic_import_call - the peer is asked
 * @op: operation
 * @addr: where it goes
 * @map: answer
 * @extents: came with it, or NULL
 * @memcg: which they are charged to, as all that the queue pair has; or NULL
 * @answered: it is there
 * @ack: whether
 */
struct mic_import_call {
	struct mic_op op;
	struct mic_addr addr;
	struct mic_map map;
	struct mic_extents *extents;
	struct mem_cgroup *memcg;
	struct completion answered;
	enum mic_ack ack;
};

static void mic_import_answered(struct mic_op *op, enum mic_ack ack)
{
	struct mic_import_call *call =
		container_of(op, struct mic_import_call, op);

	call->ack = ack;
	complete(&call->answered);
}

/* Comes once, if at all, to whoever receives: another program that polls, say. */
static void mic_import_land(struct mic_op *op, u32 off, const void *from,
			    u32 len)
{
	struct mic_import_call *call =
		container_of(op, struct mic_import_call, op);
	struct mem_cgroup *before = set_active_memcg(call->memcg);

	call->extents = mic_extents_copy(from, len);
	set_active_memcg(before);
}

/* Are requests still sent, and to whom they were when the peer was asked? */
static bool mic_import_stands(const struct mic_qp *qp,
			      const struct mic_import_call *call)
{
	return READ_ONCE(qp->state) == IB_QPS_RTS && !READ_ONCE(qp->changing) &&
	       qp->attr.dest_qp_num == call->op.dst_qpn &&
	       !memcmp(&qp->addr.dgid, &call->addr.dgid,
		       sizeof(call->addr.dgid)) &&
	       ether_addr_equal(qp->addr.dmac, call->addr.dmac);
}

static int mic_import_prepare(struct mic_import_call *call, struct mic_qp *qp,
			      const struct mic_addr *addr,
			      const struct mic_window_import *req)
{
	bool stands;

	call->addr = *addr;
	call->memcg = qp->memcg;
	mutex_lock(&qp->req.lock);
	call->op = (struct mic_op) {
		.src = qp->dev->node,
		.code = MIC_OP_MAP,
		.flags = MIC_OP_FIRST | MIC_OP_LAST,
		.service = IB_QPT_RC,
		.src_qpn = qp->qpn,
		.dst_qpn = qp->attr.dest_qp_num,
		.psn = qp->req.psn,
		.rkey = req->rkey,
		.raddr = req->addr,
		.compare_add = req->length,
		.swap = req->access,
		.addr = &call->addr,
		.map = &call->map,
		.land = mic_import_land,
		.done = mic_import_answered,
	};
	stands = mic_import_stands(qp, call);
	mic_import_unlock_req(qp);
	return stands ? 0 : -ENOTCONN;
}

/*
 * Of an operation that gets no answer the other node hears nothing; what it may
 * grant is given back by the path. All answers come in time or are lost.
 */
static int mic_import_wait(struct mic_import_call *call, struct mic_node *node,
			   bool brief)
{
	unsigned long limit = brief ? msecs_to_jiffies(MIC_IMPORT_BRIEF_MS) :
				      MAX_SCHEDULE_TIMEOUT;
	long left;

	left = wait_for_completion_killable_timeout(&call->answered, limit);
	if (left <= 0) {
		if (mic_node_cancel(node, &call->op))
			return left ? -EINTR : -ETIMEDOUT;
		wait_for_completion(&call->answered);
	}
	return call->ack == MIC_ACK_OK ? 0 : -ENOTCONN;
}

static int mic_import_ask(struct mic_import_call *call, struct mic_node *node,
			  bool brief)
{
	enum mic_ack ack;

	init_completion(&call->answered);
	ack = mic_node_submit(node, &call->op);
	if (ack == MIC_ACK_PENDING)
		return mic_import_wait(call, node, brief);
	/* no room now; who asks does without, and asks again */
	if (ack == MIC_ACK_AGAIN && !mic_node_cancel(node, &call->op))
		wait_for_completion(&call->answered);
	return -ENOTCONN;
}

/* The other kernel's errors, as far as there can be such. */
static int mic_import_verdict(u64 result)
{
	switch (result) {
	case 0:
	case ENOTCONN:
	case EACCES:
	case ERANGE:
	case EPERM:
	case ENOSPC:
	case ENOMEM:
		return -(int)result;
	default:
		return -EOPNOTSUPP;
	}
}

/* The other kernel wants its pages back. */
static void mic_import_recall(struct mic_lease *lease)
{
	struct mic_import *imp = container_of(lease, struct mic_import, lease);

	mutex_lock(&mic_import_lock);
	imp->recalled = true;
	mic_import_mark(imp);
	mutex_unlock(&mic_import_lock);
}

static void mic_import_take_away(struct mic_lease *lease)
{
	mic_import_recall(lease);
	mic_import_revoke(container_of(lease, struct mic_import, lease));
}

/* Is it what was asked for? The other kernel may say anything. */
static bool mic_import_map_ok(const struct mic_map *map,
			      const struct mic_window_import *req)
{
	if (map->access & ~MIC_REMOTE_RIGHTS || req->access & ~map->access ||
	    map->addr + map->length < map->addr)
		return false;
	return !req->length ||
	       (map->addr == req->addr && map->length == req->length);
}

static int mic_import_link_lease(struct mic_import *imp, struct mic_qp *qp,
				 const struct mic_import_call *call)
{
	int err = 0;

	mutex_lock(&qp->req.lock);
	mutex_lock(&mic_import_lock);
	WRITE_ONCE(qp->mapped, true);
	smp_mb();	/* pairs with mic_imports_revoke_qp() */
	if (imp->recalled || !mic_import_stands(qp, call)) {
		err = -ENOTCONN;
	} else if (qp->nimports >= MIC_WINDOW_SLOTS) {
		err = -ENOSPC;
	} else {
		imp->qp = qp;
		WRITE_ONCE(imp->live, true);
		list_add_tail(&imp->qp_entry, &qp->imports);
		WRITE_ONCE(qp->nimports, qp->nimports + 1);
	}
	mutex_unlock(&mic_import_lock);
	mic_import_unlock_req(qp);
	return err;
}

/* The lease holds, unless it has been recalled already. */
static int mic_import_leased(struct mic_import *imp, struct mic_qp *qp,
			     const struct mic_import_call *call,
			     struct mic_window_import *req)
{
	const struct mic_map *map = &call->map;
	bool write = map->access & ~IB_ACCESS_REMOTE_READ;
	int err;

	if (!mic_import_map_ok(map, req))
		return -EOPNOTSUPP;
	imp->addr = map->addr;
	imp->length = map->length;
	imp->access = map->access;
	err = mic_import_place(imp, write, req);
	return err ?: mic_import_link_lease(imp, qp, call);
}

/**
 * mic_import_from_node - grant a process a window of a peer on another node
 * @imp: window
 * @qp: queue pair of that process
 * @node: the peer's, whose memory can be mapped
 * @addr: what led there
 * @req: what is wanted; out: what is granted
 *
 * Context: process context, without locks; waits for the other node's answer.
 * Return: 0 or an error; who frees the window ends its lease, if there is one.
 */
int mic_import_from_node(struct mic_import *imp, struct mic_qp *qp,
			 struct mic_node *node, const struct mic_addr *addr,
			 struct mic_window_import *req)
{
	struct mic_import_call *call;
	int err;

	if (qp->type != IB_QPT_RC)
		return -EOPNOTSUPP;
	call = kzalloc(sizeof(*call), GFP_KERNEL_ACCOUNT);
	if (!call)
		return -ENOMEM;
	err = mic_import_prepare(call, qp, addr, req);
	if (!err)
		err = mic_import_ask(call, node, imp->brief);
	if (!err)
		err = mic_import_verdict(call->op.result);
	if (err)
		goto out;
	imp->lease.recall = mic_import_recall;
	imp->lease.revoke = mic_import_take_away;
	call->map.extents = call->extents;
	err = mic_node_attach(node, &imp->lease, &call->map);
	if (err) {
		err = err == -ENOTCONN ? err : -EOPNOTSUPP;
		goto out;
	}
	err = mic_import_leased(imp, qp, call, req);
out:
	mic_extents_free(call->extents);
	kfree(call);
	return err;
}
