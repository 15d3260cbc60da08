// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Nodes: coming, going and being found.
 *
 * A node has two counts. @ref keeps the structure; whoever stores a pointer
 * to a node holds one. @live keeps the node working; it is held only while an
 * operation runs, so mic_node_leave() waits for a bounded time.
 */
#include <linux/etherdevice.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rhashtable.h>
#include <linux/slab.h>

#include <mic/fabric.h>

/* One GID of a node on one netdev. The same GID may exist in several netns. */
struct mic_gid_entry {
	struct rhlist_head hash;
	union ib_gid gid;
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
static DEFINE_MUTEX(mic_gids_lock);	/* serialises changes of mic_gids */
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
	node->id = atomic_inc_return(&mic_next_id);
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
 * On return no operation runs at the node and none will start. Consumes the
 * reference of mic_node_create().
 *
 * Context: process context, sleeps.
 */
void mic_node_leave(struct mic_node *node)
{
	percpu_ref_kill(&node->live);
	wait_for_completion(&node->drained);
	mic_node_put(node);
}
EXPORT_SYMBOL_GPL(mic_node_leave);

/**
 * mic_node_add_gid - a node can be reached under a GID
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
	struct mic_gid_entry *entry;
	int err;

	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry)
		return ERR_PTR(-ENOMEM);
	entry->gid = *gid;
	entry->node = node;
	entry->ndev = ndev;

	mutex_lock(&mic_gids_lock);
	err = rhltable_insert(&mic_gids, &entry->hash, mic_gid_params);
	mutex_unlock(&mic_gids_lock);
	if (err) {
		kfree(entry);
		return ERR_PTR(err);
	}
	return entry;
}
EXPORT_SYMBOL_GPL(mic_node_add_gid);

/**
 * mic_node_del_gid - a GID of a node is gone
 * @entry: what mic_node_add_gid() returned
 *
 * Context: process context.
 */
void mic_node_del_gid(struct mic_gid_entry *entry)
{
	mutex_lock(&mic_gids_lock);
	rhltable_remove(&mic_gids, &entry->hash, mic_gid_params);
	mutex_unlock(&mic_gids_lock);
	kfree_rcu(entry, rcu);
}
EXPORT_SYMBOL_GPL(mic_node_del_gid);

/*
 * Within a network namespace a GID is as good as an IP address. From another
 * namespace the network must have let the neighbour discovery through: then
 * the resolved Ethernet address is that of the owner of the GID.
 */
static bool mic_gid_reachable(const struct mic_gid_entry *entry,
			      const struct mic_addr *addr, struct net *net)
{
	return net_eq(dev_net(entry->ndev), net) ||
	       ether_addr_equal(entry->ndev->dev_addr, addr->dmac);
}

/**
 * mic_fabric_find - find the node an address leads to
 * @addr: address vector
 * @net: network namespace of the sender's netdev
 *
 * Context: any.
 * Return: the node with a reference for the caller, or NULL.
 */
struct mic_node *mic_fabric_find(const struct mic_addr *addr, struct net *net)
{
	struct mic_node *node = NULL;
	struct rhlist_head *list, *pos;
	struct mic_gid_entry *entry;

	rcu_read_lock();
	list = rhltable_lookup(&mic_gids, &addr->dgid, mic_gid_params);
	rhl_for_each_entry_rcu(entry, pos, list, hash) {
		if (!mic_gid_reachable(entry, addr, net))
			continue;
		if (kref_get_unless_zero(&entry->node->ref)) {
			node = entry->node;
			break;
		}
	}
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
