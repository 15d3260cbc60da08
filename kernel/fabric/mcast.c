// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Multicast: which nodes have members of a group.
 */
#include <linux/export.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/srcu.h>

#include <mic/fabric.h>

/*
 * A node with members of a group; the node outlives it. A remote node is told
 * of all groups, since only it knows its members: @ndev leads there, and is
 * NULL for a node of this kernel.
 */
struct mic_mcast {
	struct list_head entry;
	union ib_gid mgid;
	struct mic_node *node;
	struct net_device *ndev;
	possible_net_t net;
	u32 members;
};

static LIST_HEAD(mic_mcasts);
static DEFINE_MUTEX(mic_mcasts_lock);	/* serialises changes of mic_mcasts */
DEFINE_STATIC_SRCU(mic_mcasts_srcu);

static struct mic_mcast *mic_mcast_lookup(const struct mic_node *node,
					  const union ib_gid *mgid)
{
	struct mic_mcast *mcast;

	lockdep_assert_held(&mic_mcasts_lock);
	list_for_each_entry(mcast, &mic_mcasts, entry)
		if (mcast->node == node && !mcast->ndev &&
		    !memcmp(&mcast->mgid, mgid, sizeof(*mgid)))
			return mcast;
	return NULL;
}

/**
 * mic_mcast_join - a node has one more member of a group
 * @node: node; stays until it has left
 * @mgid: multicast GID
 * @net: network namespace in which the group is heard
 *
 * Context: process context.
 * Return: 0 or -ENOMEM.
 */
int mic_mcast_join(struct mic_node *node, const union ib_gid *mgid,
		   struct net *net)
{
	struct mic_mcast *mcast;
	int err = 0;

	mutex_lock(&mic_mcasts_lock);
	mcast = mic_mcast_lookup(node, mgid);
	if (!mcast) {
		mcast = kzalloc(sizeof(*mcast), GFP_KERNEL);
		if (!mcast) {
			err = -ENOMEM;
			goto unlock;
		}
		mcast->node = node;
		mcast->mgid = *mgid;
		write_pnet(&mcast->net, net);
		list_add_tail_rcu(&mcast->entry, &mic_mcasts);
	}
	mcast->members++;
unlock:
	mutex_unlock(&mic_mcasts_lock);
	return err;
}
EXPORT_SYMBOL_GPL(mic_mcast_join);

/**
 * mic_mcast_leave - a node has one member of a group less
 * @node: node
 * @mgid: multicast GID
 *
 * Context: process context; waits for datagrams under way.
 */
void mic_mcast_leave(struct mic_node *node, const union ib_gid *mgid)
{
	struct mic_mcast *mcast;

	mutex_lock(&mic_mcasts_lock);
	mcast = mic_mcast_lookup(node, mgid);
	if (!mcast || --mcast->members)
		mcast = NULL;
	else
		list_del_rcu(&mcast->entry);
	mutex_unlock(&mic_mcasts_lock);
	if (mcast) {
		synchronize_srcu(&mic_mcasts_srcu);
		kfree(mcast);
	}
}
EXPORT_SYMBOL_GPL(mic_mcast_leave);

/**
 * mic_mcast_join_all - a remote node is told of all groups
 * @node: remote node
 * @ndev: netdev that leads there; stays until mic_mcast_leave_all()
 *
 * Context: process context.
 * Return: 0 or -ENOMEM.
 */
int mic_mcast_join_all(struct mic_node *node, struct net_device *ndev)
{
	struct mic_mcast *mcast = kzalloc(sizeof(*mcast), GFP_KERNEL);

	if (!mcast)
		return -ENOMEM;
	mcast->node = node;
	mcast->ndev = ndev;
	mutex_lock(&mic_mcasts_lock);
	list_add_tail_rcu(&mcast->entry, &mic_mcasts);
	mutex_unlock(&mic_mcasts_lock);
	return 0;
}
EXPORT_SYMBOL_GPL(mic_mcast_join_all);

/**
 * mic_mcast_leave_all - a remote node is going
 * @node: node that mic_mcast_join_all() was called for
 *
 * Context: process context; waits for datagrams under way.
 */
void mic_mcast_leave_all(struct mic_node *node)
{
	struct mic_mcast *mcast, *found = NULL;

	mutex_lock(&mic_mcasts_lock);
	list_for_each_entry(mcast, &mic_mcasts, entry)
		if (mcast->node == node && mcast->ndev)
			found = mcast;
	if (found)
		list_del_rcu(&found->entry);
	mutex_unlock(&mic_mcasts_lock);
	if (found) {
		synchronize_srcu(&mic_mcasts_srcu);
		kfree(found);
	}
}
EXPORT_SYMBOL_GPL(mic_mcast_leave_all);

static bool mic_mcast_hears(const struct mic_mcast *mcast,
			    const struct mic_op *op, struct net *net)
{
	return !mcast->ndev && net_eq(read_pnet(&mcast->net), net) &&
	       !memcmp(&mcast->mgid, &op->addr->dgid, sizeof(mcast->mgid));
}

/**
 * mic_mcast_submit - deliver a datagram to all nodes with members of its group
 * @op: datagram, to a multicast GID
 * @net: network namespace of the sender
 *
 * Context: process context, may sleep.
 */
void mic_mcast_submit(struct mic_op *op, struct net *net)
{
	struct mic_mcast *mcast;
	int idx;

	idx = srcu_read_lock(&mic_mcasts_srcu);
	list_for_each_entry_srcu(mcast, &mic_mcasts, entry,
				 srcu_read_lock_held(&mic_mcasts_srcu)) {
		if (mic_mcast_hears(mcast, op, net) ||
		    (mcast->ndev && net_eq(dev_net(mcast->ndev), net)))
			mic_node_submit(mcast->node, op);
	}
	srcu_read_unlock(&mic_mcasts_srcu, idx);
}
EXPORT_SYMBOL_GPL(mic_mcast_submit);

/**
 * mic_mcast_submit_on - deliver a datagram that came from a remote node
 * @op: datagram, to a multicast GID
 * @ndev: netdev that leads to its sender
 *
 * Context: process context, may sleep.
 */
void mic_mcast_submit_on(struct mic_op *op, const struct net_device *ndev)
{
	struct mic_mcast *mcast;
	int idx;

	idx = srcu_read_lock(&mic_mcasts_srcu);
	list_for_each_entry_srcu(mcast, &mic_mcasts, entry,
				 srcu_read_lock_held(&mic_mcasts_srcu)) {
		if (mic_mcast_hears(mcast, op, dev_net(ndev)))
			mic_node_submit(mcast->node, op);
	}
	srcu_read_unlock(&mic_mcasts_srcu, idx);
}
EXPORT_SYMBOL_GPL(mic_mcast_submit_on);
