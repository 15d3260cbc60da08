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
#include <linux/netdevice.h>
#include <linux/notifier.h>
#include <linux/percpu-refcount.h>
#include <linux/sched/mm.h>
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
 * @cancel: only of nodes behind a wire, whose @submit may return
 *	MIC_ACK_PENDING or MIC_ACK_AGAIN: take such an operation back. On return its done() has
 *	been called (false), or will not be (true), and its data is not
 *	touched any more. A node that leaves first answers all its operations.
 * @attach: only of nodes that share memory with this one: begin a lease of what
 *	was granted with MIC_OP_MAP. Whether or not it does, what was granted is
 *	taken care of. Called under mic_lease_lock
 * @poll: only of nodes behind a wire: receive what has come, if nobody does
 *	already, and return how many records that was. Called in process context, may
 *	sleep. On return of mic_node_leave() it is not called any more
 * @test: only of devices of this kernel: send a message to itself and compare it.
 *	0, an error, or -ENODEV: the device is about to go. Called in process
 *	context, under the RTNL; the node stays live for the duration of the call,
 *	which is bounded
 */
struct mic_node_ops {
	enum mic_ack (*submit)(struct mic_node *node, struct mic_op *op);
	bool (*cancel)(struct mic_node *node, struct mic_op *op);
	int (*attach)(struct mic_node *node, struct mic_lease *lease,
		      const struct mic_map *map);
	int (*poll)(struct mic_node *node);
	int (*test)(struct mic_node *node);
};

/**
 * struct mic_node - an end of the fabric
 * @ops: backend; of a module that may go once the node has left, so they are read by
 *	who holds @live, or polls it, only
 * @priv: the backend's own
 * @remote: behind a wire, which shares memory
 * @id: number, unique in this kernel since boot
 * @live: held for each submit and each test under way; dead once the node leaves
 * @ref: lifetime of the structure
 * @drained: @live has no holder left
 * @polled: in the list of nodes that can be polled
 * @rcu: look-ups may still see the node when its last reference goes
 */
struct mic_node {
	const struct mic_node_ops *ops;
	void *priv;
	bool remote;
	u32 id;
	struct percpu_ref live;
	struct kref ref;
	struct completion drained;
	struct list_head polled;
	struct rcu_head rcu;
};

struct mic_node *mic_node_create(const struct mic_node_ops *ops, void *priv);
void mic_node_leave(struct mic_node *node);
void mic_node_put(struct mic_node *node);

struct mic_gid_entry *mic_node_add_gid(struct mic_node *node,
				       const union ib_gid *gid,
				       struct net_device *ndev);
void mic_node_del_gid(struct mic_gid_entry *entry);

/**
 * struct mic_gid_info - a GID of a device of this kernel
 * @gid: GID
 * @mac: Ethernet address of its netdev
 */
struct mic_gid_info {
	union ib_gid gid;
	u8 mac[ETH_ALEN];
};

struct mic_gid_entry *mic_node_add_remote_gid(struct mic_node *node,
					      const struct mic_gid_info *info,
					      struct net_device *ndev);
int mic_fabric_gids_on(const struct net_device *ndev,
		       struct mic_gid_info *info, int max);
bool mic_fabric_is_local(const union ib_gid *gid,
			 const struct net_device *ndev);
struct mic_node *mic_fabric_find_on(const struct net_device *ndev,
				    const struct mic_addr *addr);
int mic_fabric_test_on(const struct net_device *ndev);
int mic_fabric_poll(void);
int mic_fabric_register_notifier(struct notifier_block *nb);
void mic_fabric_unregister_notifier(struct notifier_block *nb);

/* of tables of groups: some eight entries of each of 8192 memberships */
#define MIC_MCAST_HASH_BITS 10

u32 mic_mgid_hash(const union ib_gid *mgid);
int mic_mcast_join_all(struct mic_node *node, struct net_device *ndev);
void mic_mcast_leave_all(struct mic_node *node);
void mic_mcast_submit_on(struct mic_op *op, const struct net_device *ndev);

int mic_mcast_join(struct mic_node *node, const union ib_gid *mgid,
		   const struct net_device *ndev);
void mic_mcast_leave(struct mic_node *node, const union ib_gid *mgid);
void mic_mcast_submit(struct mic_op *op, const struct net_device *ndev);

struct mic_node *mic_fabric_find(const struct mic_addr *addr,
				 const struct mic_node *from,
				 const struct net_device *ndev);

/**
 * mic_ndev_is_on - is a netdev another one, or stacked on it?
 * @ndev: netdev
 * @below: the other one
 *
 * Context: any, under RCU.
 */
static inline bool mic_ndev_is_on(const struct net_device *ndev,
				  const struct net_device *below)
{
	return ndev == below ||
	       netdev_has_upper_dev_all_rcu((struct net_device *)below,
					    (struct net_device *)ndev);
}

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
 * mic_node_is_remote - whether a node's answers may come later
 * @node: node
 *
 * Return: true for a node behind a wire.
 */
static inline bool mic_node_is_remote(const struct mic_node *node)
{
	return node->remote;
}

/**
 * mic_node_cancel - take back an operation whose answer is pending
 * @node: node it was submitted to; the caller holds a reference
 * @op: operation
 *
 * Context: process context, may sleep.
 * Return: true: done() will not be called. false: it was, or will be very soon
 * because the node is leaving.
 */
static inline bool mic_node_cancel(struct mic_node *node, struct mic_op *op)
{
	bool cancelled;

	if (!percpu_ref_tryget_live(&node->live))
		return false;
	cancelled = node->ops->cancel(node, op);
	percpu_ref_put(&node->live);
	return cancelled;
}

/**
 * mic_node_attach - begin a lease of another node's memory
 * @node: node that shares memory; the caller holds a reference
 * @lease: out; &mic_lease.revoke is set
 * @map: what was granted, which the other node may have made up
 *
 * Context: process context, sleeps.
 * Return: 0; -ENOTCONN: it was revoked, or the node has left; -EPROTO: it makes
 * no sense.
 */
static inline int mic_node_attach(struct mic_node *node,
				  struct mic_lease *lease,
				  const struct mic_map *map)
{
	unsigned int noio = memalloc_noio_save();
	int err = -ENOTCONN;

	/*
	 * The lock may be held for long, so a node that leaves does not wait for it.
	 * Paths wait for it, and storage for them.
	 */
	mutex_lock(&mic_lease_lock);
	if (percpu_ref_tryget_live(&node->live)) {
		err = node->ops->attach(node, lease, map);
		percpu_ref_put(&node->live);
	}
	mutex_unlock(&mic_lease_lock);
	memalloc_noio_restore(noio);
	return err;
}

/**
 * mic_node_submit - have a node carry out a segment of a request
 * @node: destination; the caller holds a reference
 * @op: segment
 *
 * Context: process context, may sleep.
 * Return: the responder's answer, from a remote node also MIC_ACK_PENDING
 * or MIC_ACK_AGAIN; MIC_ACK_NONE if the node has left.
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
