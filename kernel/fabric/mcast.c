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
 * A node with members of a group; node and netdev outlive it. @ndev is what a
 * node of this kernel stands on, or what leads to a remote one, which is told of
 * all groups, since only it knows its members.
 */
struct mic_mcast {
	struct list_head entry;
	union ib_gid mgid;
	struct mic_node *node;
	const struct net_device *ndev;
	bool remote;
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
		if (mcast->node == node && !mcast->remote &&
		    !memcmp(&mcast->mgid, mgid, sizeof(*mgid)))
			return mcast;
	return NULL;
}

/**
 * mic_mcast_join - a node has one more member of a group
 * @node: node; stays until it has left
 * @mgid: multicast GID
 * @ndev: netdev it stands on; stays until it has left
 *
 * Context: process context.
 * Return: 0 or -ENOMEM.
 */
int mic_mcast_join(struct mic_node *node, const union ib_gid *mgid,
		   const struct net_device *ndev)
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
		mcast->ndev = ndev;
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
	mcast->remote = true;
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
		if (mcast->node == node && mcast->remote)
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

static bool mic_mcast_has_member(const struct mic_mcast *mcast,
				 const struct mic_op *op,
				 const struct net_device *ndev)
{
	return !mcast->remote && net_eq(dev_net(mcast->ndev), dev_net(ndev)) &&
	       !memcmp(&mcast->mgid, &op->addr->dgid, sizeof(mcast->mgid));
}

static bool mic_mcast_is_on(const struct net_device *ndev,
			    const struct net_device *below)
{
	bool is_on;

	rcu_read_lock();
	is_on = mic_ndev_is_on(ndev, below);
	rcu_read_unlock();
	return is_on;
}

/* A remote node hears what is sent over the netdev that leads there. */
static bool mic_mcast_hears(const struct mic_mcast *mcast,
			    const struct mic_op *op,
			    const struct net_device *ndev)
{
	return mic_mcast_has_member(mcast, op, ndev) ||
	       (mcast->remote && mic_mcast_is_on(ndev, mcast->ndev));
}

/**
 * mic_mcast_submit - deliver a datagram to all nodes with members of its group
 * @op: datagram, to a multicast GID
 * @ndev: the sender's netdev
 *
 * Context: process context, may sleep.
 */
void mic_mcast_submit(struct mic_op *op, const struct net_device *ndev)
{
	struct mic_mcast *mcast;
	int idx;

	idx = srcu_read_lock(&mic_mcasts_srcu);
	list_for_each_entry_srcu(mcast, &mic_mcasts, entry,
				 srcu_read_lock_held(&mic_mcasts_srcu)) {
		if (mic_mcast_hears(mcast, op, ndev)) {
			mic_node_submit(mcast->node, op);
			op->copies += mcast->remote;
		}
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
		if (mic_mcast_has_member(mcast, op, ndev) &&
		    mic_mcast_is_on(mcast->ndev, ndev))
			mic_node_submit(mcast->node, op);
	}
	srcu_read_unlock(&mic_mcasts_srcu, idx);
}
EXPORT_SYMBOL_GPL(mic_mcast_submit_on);
