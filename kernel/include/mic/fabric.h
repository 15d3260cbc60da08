/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The fabric: nodes and how they reach each other.
 *
 * A node is an end of the fabric: an RDMA device of this kernel, or a peer
 * behind shared PCI memory. The engine hands operations to a node and does
 * not know which of the two it is.
 */
#ifndef MIC_FABRIC_H
#define MIC_FABRIC_H

#include <linux/kref.h>
#include <linux/percpu-refcount.h>
#include <linux/completion.h>
#include <linux/types.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>

#include <mic/op.h>

struct mic_gid_entry;
struct mic_node;

/**
 * struct mic_node_ops - what a backend provides
 * @submit: carry out a segment of a request at @node and return the
 *	responder's answer. Called in process context, may sleep. The node
 *	stays live for the duration of the call.
 */
struct mic_node_ops {
	enum mic_ack (*submit)(struct mic_node *node, struct mic_op *op);
};

/**
 * struct mic_node - an end of the fabric
 * @ops: backend
 * @priv: the backend's own
 * @id: number, unique in this kernel since boot
 * @live: held for each submit under way; dead once the node leaves
 * @ref: lifetime of the structure
 * @drained: @live has no holder left
 * @rcu: look-ups may still see the node when its last reference goes
 */
struct mic_node {
	const struct mic_node_ops *ops;
	void *priv;
	u32 id;
	struct percpu_ref live;
	struct kref ref;
	struct completion drained;
	struct rcu_head rcu;
};

struct mic_node *mic_node_create(const struct mic_node_ops *ops, void *priv);
void mic_node_leave(struct mic_node *node);
void mic_node_put(struct mic_node *node);

struct mic_gid_entry *mic_node_add_gid(struct mic_node *node,
				       const union ib_gid *gid,
				       struct net_device *ndev);
void mic_node_del_gid(struct mic_gid_entry *entry);

int mic_mcast_join(struct mic_node *node, const union ib_gid *mgid,
		   struct net *net);
void mic_mcast_leave(struct mic_node *node, const union ib_gid *mgid);
void mic_mcast_submit(struct mic_op *op, struct net *net);

struct mic_node *mic_fabric_find(const struct mic_addr *addr,
				 struct net *net);

/**
 * mic_node_is_live - whether a node still takes operations
 * @node: node
 *
 * The answer may be out of date at once; mic_node_submit() is what counts.
 *
 * Return: true until mic_node_leave().
 */
static inline bool mic_node_is_live(const struct mic_node *node)
{
	return !percpu_ref_is_dying((struct percpu_ref *)&node->live);
}

/**
 * mic_node_submit - have a node carry out a segment of a request
 * @node: destination; the caller holds a reference
 * @op: segment
 *
 * Context: process context, may sleep.
 * Return: the responder's answer; MIC_ACK_NONE if the node has left.
 */
static inline enum mic_ack mic_node_submit(struct mic_node *node,
					   struct mic_op *op)
{
	enum mic_ack ack;

	if (!percpu_ref_tryget_live(&node->live))
		return MIC_ACK_NONE;
	ack = node->ops->submit(node, op);
	percpu_ref_put(&node->live);
	return ack;
}

#endif /* MIC_FABRIC_H */
