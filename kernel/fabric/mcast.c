// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Multicast: which nodes have members of a group.
 */
#include <linux/export.h>
#include <linux/hashtable.h>
#include <linux/jhash.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/once.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/srcu.h>

#include <mic/fabric.h>

/* A node with members of a group. Node and netdev, which it stands on, outlive it. */
struct mic_mcast {
	struct hlist_node entry;
	union ib_gid mgid;
	struct mic_node *node;
	const struct net_device *ndev;
	u32 members;
};

/*
 * A remote node, and the netdev that leads there. It is told of all groups, since
 * only it knows its members.
 */
struct mic_mcast_remote {
	struct list_head entry;
	struct mic_node *node;
	const struct net_device *ndev;
};

static DEFINE_HASHTABLE(mic_mcasts, MIC_MCAST_HASH_BITS);
static LIST_HEAD(mic_mcast_remotes);
static DEFINE_MUTEX(mic_mcasts_lock);	/* serialises changes of both */
DEFINE_STATIC_SRCU(mic_mcasts_srcu);

/**
 * mic_mgid_hash - hash value of a group
 * @mgid: multicast GID
 *
 * Programs choose groups, so they should not be able to tell it.
 *
 * Return: 32 bits.
 */
u32 mic_mgid_hash(const union ib_gid *mgid)
{
	static u32 seed __read_mostly;
	u32 words[sizeof(*mgid) / sizeof(u32)];

	get_random_once(&seed, sizeof(seed));
	memcpy(words, mgid, sizeof(words));
	return jhash2(words, ARRAY_SIZE(words), seed);
}
EXPORT_SYMBOL_GPL(mic_mgid_hash);

static struct hlist_head *mic_mcasts_of(const union ib_gid *mgid)
{
	return &mic_mcasts[hash_min(mic_mgid_hash(mgid),
				    HASH_BITS(mic_mcasts))];
}

static struct mic_mcast *mic_mcast_lookup(const struct mic_node *node,
					  const union ib_gid *mgid)
{
	struct mic_mcast *mcast;

	lockdep_assert_held(&mic_mcasts_lock);
	hlist_for_each_entry(mcast, mic_mcasts_of(mgid), entry)
		if (mcast->node == node &&
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
		hlist_add_head_rcu(&mcast->entry, mic_mcasts_of(mgid));
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
		hlist_del_rcu(&mcast->entry);
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
	struct mic_mcast_remote *remote = kzalloc(sizeof(*remote), GFP_KERNEL);

	if (!remote)
		return -ENOMEM;
	remote->node = node;
	remote->ndev = ndev;
	mutex_lock(&mic_mcasts_lock);
	list_add_tail_rcu(&remote->entry, &mic_mcast_remotes);
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
	struct mic_mcast_remote *remote, *found = NULL;

	mutex_lock(&mic_mcasts_lock);
	list_for_each_entry(remote, &mic_mcast_remotes, entry)
		if (remote->node == node)
			found = remote;
	if (found)
		list_del_rcu(&found->entry);
	mutex_unlock(&mic_mcasts_lock);
	if (found) {
		synchronize_srcu(&mic_mcasts_srcu);
		kfree(found);
	}
}
EXPORT_SYMBOL_GPL(mic_mcast_leave_all);

static bool mic_mcast_is_on(const struct net_device *ndev,
			    const struct net_device *below)
{
	bool is_on;

	rcu_read_lock();
	is_on = mic_ndev_is_on(ndev, below);
	rcu_read_unlock();
	return is_on;
}

/*
 * To the nodes of this kernel with members of the group that hear @ndev: those in its
 * network namespace, or if @below is not NULL those that stand on that, wherever.
 */
static void mic_mcast_submit_here(struct mic_op *op,
				  const struct net_device *ndev,
				  const struct net_device *below)
{
	const union ib_gid *mgid = &op->addr->dgid;
	struct mic_mcast *mcast;

	hlist_for_each_entry_srcu(mcast, mic_mcasts_of(mgid), entry,
				  srcu_read_lock_held(&mic_mcasts_srcu)) {
		if (memcmp(&mcast->mgid, mgid, sizeof(*mgid)))
			continue;
		if (below ? mic_mcast_is_on(mcast->ndev, below) :
			    net_eq(dev_net(mcast->ndev), dev_net(ndev)))
			mic_node_submit(mcast->node, op);
	}
}

/* A remote node hears what is sent over the netdev that leads there. */
static void mic_mcast_submit_remote(struct mic_op *op,
				    const struct net_device *ndev)
{
	struct mic_mcast_remote *remote;

	list_for_each_entry_srcu(remote, &mic_mcast_remotes, entry,
				 srcu_read_lock_held(&mic_mcasts_srcu)) {
		if (!mic_mcast_is_on(ndev, remote->ndev))
			continue;
		mic_node_submit(remote->node, op);
		op->copies++;
	}
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
	int idx;

	idx = srcu_read_lock(&mic_mcasts_srcu);
	mic_mcast_submit_here(op, ndev, NULL);
	mic_mcast_submit_remote(op, ndev);
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
	int idx;

	idx = srcu_read_lock(&mic_mcasts_srcu);
	mic_mcast_submit_here(op, ndev, ndev);
	srcu_read_unlock(&mic_mcasts_srcu, idx);
}
EXPORT_SYMBOL_GPL(mic_mcast_submit_on);
