// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Nodes: coming, going and being found.
 *
 * A node has two counts. @ref keeps the structure; whoever stores a pointer
 * to a node holds one. @live keeps the node working; it is held only while an
 * operation or a test runs, so mic_node_leave() waits for a bounded time.
 */
#include <linux/etherdevice.h>
#include <linux/if_macvlan.h>
#include <linux/if_vlan.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/rhashtable.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include <mic/fabric.h>

#include "poll.h"

/*
 * One GID of a node on one netdev. The same GID may exist in several netns. A
 * remote one is on the netdev that leads there.
 */
struct mic_gid_entry {
	struct rhlist_head hash;
	struct list_head list;
	union ib_gid gid;
	bool remote;
	u8 mac[ETH_ALEN];		/* remote: its owner's */
	struct mic_node *node;		/* the node outlives its entries */
	struct net_device *ndev;	/* held by whoever added the entry */
	struct rcu_head rcu;
};

static const struct rhashtable_params mic_gid_params = {
	.key_len = sizeof(union ib_gid),
	.key_offset = offsetof(struct mic_gid_entry, gid),
	.head_offset = offsetof(struct mic_gid_entry, hash),
	.automatic_shrinking = true,
};

static struct rhltable mic_gids;
static LIST_HEAD(mic_local_gids);	/* those of this kernel's devices */
static DEFINE_MUTEX(mic_gids_lock);	/* serialises changes of both */
static BLOCKING_NOTIFIER_HEAD(mic_gids_changed);
static atomic_t mic_next_id = ATOMIC_INIT(0);

static void mic_node_free(struct kref *ref)
{
	struct mic_node *node = container_of(ref, struct mic_node, ref);

	percpu_ref_exit(&node->live);
	kfree_rcu(node, rcu);
}

static void mic_node_drained(struct percpu_ref *live)
{
	struct mic_node *node = container_of(live, struct mic_node, live);

	complete(&node->drained);
}

/**
 * mic_node_create - a new node joins the fabric
 * @ops: backend
 * @priv: the backend's own
 *
 * Context: process context.
 * Return: the node with one reference, or an ERR_PTR (-ENOMEM).
 */
struct mic_node *mic_node_create(const struct mic_node_ops *ops, void *priv)
{
	struct mic_node *node;
	int err;

	node = kzalloc(sizeof(*node), GFP_KERNEL);
	if (!node)
		return ERR_PTR(-ENOMEM);

	err = percpu_ref_init(&node->live, mic_node_drained, 0, GFP_KERNEL);
	if (err) {
		kfree(node);
		return ERR_PTR(err);
	}
	kref_init(&node->ref);
	init_completion(&node->drained);
	node->ops = ops;
	node->priv = priv;
	node->remote = ops->cancel;
	node->id = atomic_inc_return(&mic_next_id);
	if (ops->poll)
		mic_polled_add(node);
	return node;
}
EXPORT_SYMBOL_GPL(mic_node_create);

/**
 * mic_node_put - drop a reference
 * @node: node
 */
void mic_node_put(struct mic_node *node)
{
	kref_put(&node->ref, mic_node_free);
}
EXPORT_SYMBOL_GPL(mic_node_put);

/**
 * mic_node_leave - take a node off the fabric
 * @node: node whose GIDs were removed
 *
 * On return no operation or test runs at the node, nobody polls it, and none will
 * start. Consumes the reference of mic_node_create().
 *
 * Context: process context, sleeps.
 */
void mic_node_leave(struct mic_node *node)
{
	if (node->ops->poll)
		mic_polled_del(node);
	percpu_ref_kill(&node->live);
	wait_for_completion(&node->drained);
	mic_node_put(node);
}
EXPORT_SYMBOL_GPL(mic_node_leave);

static int mic_gid_insert(struct mic_gid_entry *entry)
{
	int err;

	mutex_lock(&mic_gids_lock);
	err = rhltable_insert(&mic_gids, &entry->hash, mic_gid_params);
	if (!err && !entry->remote)
		list_add_tail(&entry->list, &mic_local_gids);
	mutex_unlock(&mic_gids_lock);
	if (!err && !entry->remote)
		blocking_notifier_call_chain(&mic_gids_changed, 0, NULL);
	return err;
}

static struct mic_gid_entry *mic_gid_create(struct mic_node *node,
					    const struct mic_gid_entry *from)
{
	struct mic_gid_entry *entry;
	int err;

	entry = kmemdup(from, sizeof(*from), GFP_KERNEL);
	if (!entry)
		return ERR_PTR(-ENOMEM);
	entry->node = node;
	INIT_LIST_HEAD(&entry->list);
	err = mic_gid_insert(entry);
	if (err) {
		kfree(entry);
		return ERR_PTR(err);
	}
	return entry;
}

/**
 * mic_node_add_gid - a node of this kernel can be reached under a GID
 * @node: node
 * @gid: GID
 * @ndev: netdev the GID belongs to; stays until mic_node_del_gid()
 *
 * Context: process context.
 * Return: what mic_node_del_gid() takes, or an ERR_PTR (-ENOMEM).
 */
struct mic_gid_entry *mic_node_add_gid(struct mic_node *node,
				       const union ib_gid *gid,
				       struct net_device *ndev)
{
	const struct mic_gid_entry from = { .gid = *gid, .ndev = ndev };

	return mic_gid_create(node, &from);
}
EXPORT_SYMBOL_GPL(mic_node_add_gid);

/**
 * mic_node_add_remote_gid - a node behind a wire can be reached under a GID
 * @node: node
 * @info: GID and Ethernet address
 * @ndev: netdev that leads there; stays until mic_node_del_gid()
 *
 * Context: process context.
 * Return: what mic_node_del_gid() takes, or an ERR_PTR (-ENOMEM).
 */
struct mic_gid_entry *mic_node_add_remote_gid(struct mic_node *node,
					      const struct mic_gid_info *info,
					      struct net_device *ndev)
{
	struct mic_gid_entry from = {
		.gid = info->gid,
		.remote = true,
		.ndev = ndev,
	};

	memcpy(from.mac, info->mac, sizeof(from.mac));
	return mic_gid_create(node, &from);
}
EXPORT_SYMBOL_GPL(mic_node_add_remote_gid);

/**
 * mic_node_del_gid - a GID of a node is gone
 * @entry: what mic_node_add_gid() or mic_node_add_remote_gid() returned
 *
 * Context: process context.
 */
void mic_node_del_gid(struct mic_gid_entry *entry)
{
	bool remote = entry->remote;

	mutex_lock(&mic_gids_lock);
	rhltable_remove(&mic_gids, &entry->hash, mic_gid_params);
	list_del(&entry->list);
	mutex_unlock(&mic_gids_lock);
	kfree_rcu(entry, rcu);
	if (!remote)
		blocking_notifier_call_chain(&mic_gids_changed, 0, NULL);
}
EXPORT_SYMBOL_GPL(mic_node_del_gid);

/**
 * mic_fabric_register_notifier - be told when GIDs of this kernel's devices
 *	come or go
 * @nb: called in process context; mic_fabric_gids_on() tells which there are
 *
 * Return: 0 or an error.
 */
int mic_fabric_register_notifier(struct notifier_block *nb)
{
	return blocking_notifier_chain_register(&mic_gids_changed, nb);
}
EXPORT_SYMBOL_GPL(mic_fabric_register_notifier);

/**
 * mic_fabric_unregister_notifier - hear no more of them
 * @nb: what was registered; on return it is not called any more
 */
void mic_fabric_unregister_notifier(struct notifier_block *nb)
{
	blocking_notifier_chain_unregister(&mic_gids_changed, nb);
}
EXPORT_SYMBOL_GPL(mic_fabric_unregister_notifier);

/* A device stands on a netdev if that, or one stacked on it, has its GID. */
static bool mic_gid_is_on(const struct mic_gid_entry *entry,
			  const struct net_device *ndev)
{
	return !entry->remote && mic_ndev_is_on(entry->ndev, ndev);
}

/**
 * mic_fabric_gids_on - the GIDs of this kernel's devices on a netdev
 * @ndev: netdev
 * @info: out
 * @max: room in @info; what is more is left out
 *
 * Context: process context.
 * Return: how many.
 */
int mic_fabric_gids_on(const struct net_device *ndev,
		       struct mic_gid_info *info, int max)
{
	struct mic_gid_entry *entry;
	int n = 0;

	mutex_lock(&mic_gids_lock);
	rcu_read_lock();
	list_for_each_entry(entry, &mic_local_gids, list) {
		if (n == max)
			break;
		if (!mic_gid_is_on(entry, ndev))
			continue;
		info[n].gid = entry->gid;
		memcpy(info[n].mac, entry->ndev->dev_addr, ETH_ALEN);
		n++;
	}
	rcu_read_unlock();
	mutex_unlock(&mic_gids_lock);
	return n;
}
EXPORT_SYMBOL_GPL(mic_fabric_gids_on);

/* As an address has it, but for a bridge on a VLAN. */
static u16 mic_ndev_vlan_id(const struct net_device *ndev)
{
	if (netif_is_macvlan(ndev))
		ndev = macvlan_dev_real_dev(ndev);
	return is_vlan_dev(ndev) ? vlan_dev_vlan_id(ndev) : 0xffff;
}

/*
 * On the VLAN of an address? A VLAN's netdev has the Ethernet address of the one
 * below, so two devices may have the same link-local GID.
 */
static bool mic_gid_is_of_vlan(const struct mic_gid_entry *entry,
			       const struct mic_addr *addr)
{
	return mic_ndev_vlan_id(entry->ndev) == addr->vlan_id;
}

/*
 * Has a node of this kernel a GID that one on @on could meet: in its network
 * namespace, or on the same wire @ndev and VLAN? What the sender says of his VLAN
 * doesn't count.
 */
static bool mic_gid_is_local(const union ib_gid *gid,
			     const struct net_device *on,
			     const struct net_device *ndev)
{
	struct rhlist_head *list, *pos;
	struct mic_gid_entry *entry;

	list = rhltable_lookup(&mic_gids, gid, mic_gid_params);
	rhl_for_each_entry_rcu(entry, pos, list, hash) {
		if (entry->remote)
			continue;
		if (net_eq(dev_net(entry->ndev), dev_net(on)) ||
		    (mic_gid_is_on(entry, ndev) &&
		     mic_ndev_vlan_id(entry->ndev) == mic_ndev_vlan_id(on)))
			return true;
	}
	return false;
}

/**
 * mic_fabric_is_local - whether a GID is one of this kernel's
 * @gid: GID
 * @ndev: netdev
 *
 * Context: any.
 * Return: true if a device of this kernel has it on the netdev, or in the network
 * namespace of that.
 */
bool mic_fabric_is_local(const union ib_gid *gid, const struct net_device *ndev)
{
	bool is_local;

	rcu_read_lock();
	is_local = mic_gid_is_local(gid, ndev, ndev);
	rcu_read_unlock();
	return is_local;
}
EXPORT_SYMBOL_GPL(mic_fabric_is_local);

/**
 * mic_fabric_find_on - find the node of this kernel that a remote one asks
 * @ndev: netdev it has to stand on
 * @addr: address vector, as the other side says
 *
 * Who says that he has a GID of this kernel is not listened to: nobody else can
 * speak for a node of it.
 *
 * Context: any.
 * Return: the node with a reference for the caller, or NULL.
 */
struct mic_node *mic_fabric_find_on(const struct net_device *ndev,
				    const struct mic_addr *addr)
{
	struct mic_gid_entry *entry, *found = NULL;
	struct mic_node *node = NULL;
	struct rhlist_head *list, *pos;

	rcu_read_lock();
	list = rhltable_lookup(&mic_gids, &addr->dgid, mic_gid_params);
	rhl_for_each_entry_rcu(entry, pos, list, hash) {
		if (mic_gid_is_on(entry, ndev) &&
		    (!found || mic_gid_is_of_vlan(entry, addr)))
			found = entry;
	}
	if (found &&
	    !mic_gid_is_local(&addr->sgid, found->ndev, ndev) &&
	    kref_get_unless_zero(&found->node->ref))
		node = found->node;
	rcu_read_unlock();
	return node;
}
EXPORT_SYMBOL_GPL(mic_fabric_find_on);

/* The next node of this kernel on a netdev, by its number; with a reference. */
static struct mic_node *mic_node_next_on(const struct net_device *ndev, u32 id)
{
	struct mic_gid_entry *entry;
	struct mic_node *next = NULL;

	mutex_lock(&mic_gids_lock);
	rcu_read_lock();
	list_for_each_entry(entry, &mic_local_gids, list) {
		if (entry->node->id <= id ||
		    (next && entry->node->id >= next->id))
			continue;
		if (mic_gid_is_on(entry, ndev))
			next = entry->node;
	}
	if (next)
		kref_get(&next->ref);
	rcu_read_unlock();
	mutex_unlock(&mic_gids_lock);
	return next;
}

static int mic_node_test(struct mic_node *node)
{
	int err;

	if (!percpu_ref_tryget_live(&node->live))
		return -ENODEV;
	err = node->ops->test(node);
	percpu_ref_put(&node->live);
	return err;
}

/**
 * mic_fabric_test_on - have each device on a netdev send a message to itself
 * @ndev: netdev; a device on one stacked on it counts, too
 *
 * Context: process context, under the RTNL, sleeps. Devices may come and go.
 * Return: 0; -ENODEV: there is none; -EINTR: who asks is killed, which spares the RTNL the
 * rest; or the error of the first that fails.
 */
int mic_fabric_test_on(const struct net_device *ndev)
{
	struct mic_node *node;
	int ret = -ENODEV;
	u32 id = 0;
	int err;

	while ((node = mic_node_next_on(ndev, id))) {
		id = node->id;
		err = fatal_signal_pending(current) ? -EINTR : mic_node_test(node);
		mic_node_put(node);
		if (err == -EINTR)
			return err;
		if (err != -ENODEV && (!ret || ret == -ENODEV))
			ret = err;
	}
	return ret;
}
EXPORT_SYMBOL_GPL(mic_fabric_test_on);

/*
 * Within a network namespace a GID is as good as an IP address. From another
 * namespace the network must have let the neighbour discovery through: then
 * the resolved Ethernet address is that of the owner of the GID. A remote node
 * can be reached over the netdev that leads there, and over no other one: on
 * another wire somebody else may say that he has the GID.
 */
static bool mic_gid_reachable(const struct mic_gid_entry *entry,
			      const struct mic_addr *addr,
			      const struct net_device *ndev)
{
	const u8 *mac = entry->remote ? entry->mac : entry->ndev->dev_addr;

	if (entry->remote && !mic_ndev_is_on(ndev, entry->ndev))
		return false;
	return net_eq(dev_net(entry->ndev), dev_net(ndev)) ||
	       ether_addr_equal(mac, addr->dmac);
}

/*
 * Which of several entries of a GID is meant: nobody else can take the place of a
 * node of this kernel; who sends to his own GID means himself.
 */
static int mic_gid_rank(const struct mic_gid_entry *entry,
			const struct mic_addr *addr,
			const struct mic_node *from)
{
	if (entry->remote)
		return 0;
	if (entry->node == from &&
	    !memcmp(&addr->sgid, &addr->dgid, sizeof(addr->dgid)))
		return 3;
	return mic_gid_is_of_vlan(entry, addr) ? 2 : 1;
}

/**
 * mic_fabric_find - find the node an address leads to
 * @addr: address vector
 * @from: the sender
 * @ndev: the sender's netdev
 *
 * Context: any.
 * Return: the node with a reference for the caller, or NULL.
 */
struct mic_node *mic_fabric_find(const struct mic_addr *addr,
				 const struct mic_node *from,
				 const struct net_device *ndev)
{
	struct mic_gid_entry *entry, *found = NULL;
	struct rhlist_head *list, *pos;
	struct mic_node *node = NULL;
	int rank, best = -1;

	rcu_read_lock();
	list = rhltable_lookup(&mic_gids, &addr->dgid, mic_gid_params);
	rhl_for_each_entry_rcu(entry, pos, list, hash) {
		if (!mic_gid_reachable(entry, addr, ndev))
			continue;
		rank = mic_gid_rank(entry, addr, from);
		if (rank <= best)
			continue;
		best = rank;
		found = entry;
	}
	if (found && kref_get_unless_zero(&found->node->ref))
		node = found->node;
	rcu_read_unlock();
	return node;
}
EXPORT_SYMBOL_GPL(mic_fabric_find);

static int __init mic_fabric_init(void)
{
	return rhltable_init(&mic_gids, &mic_gid_params);
}

static void __exit mic_fabric_exit(void)
{
	rhltable_destroy(&mic_gids);
	rcu_barrier();
}

module_init(mic_fabric_init);
module_exit(mic_fabric_exit);

MODULE_DESCRIPTION("Memory fabric for RDMA devices");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION(MIC_VERSION);
