// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * micnet: Ethernet over the fabric, so that nodes have addresses.
 *
 * A frame is copied into the frame lane of each path that it is for. Checksums
 * and segmentation are left to the receiver, who needs neither unless the frame
 * goes on to somewhere else. Each node has a transmit queue, so that one that
 * does not read keeps nobody else waiting; this node's own queue is for what goes
 * to all.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/jiffies.h>
#include <linux/netdevice.h>
#include <linux/random.h>
#include <linux/virtio_net.h>

#include <mic/compat.h>

#include "path.h"

#define MIC_NET_MTU		65520
#define MIC_NET_FRAME_MAX	(SZ_64K + VLAN_ETH_HLEN)
#define MIC_NET_HEAD		256	/* bytes of a frame that lie linear */
#define MIC_NET_ROOM		\
	(2 * mic_rec_size(sizeof(struct mic_rec_frame), MIC_NET_FRAME_MAX))
#define MIC_NET_FULL_MS		200	/* after that frames are dropped */

static int mic_net_write(struct mic_path *path, const struct sk_buff *skb)
{
	struct mic_lane_tx *lane = &path->tx[MIC_LANE_FRAME];
	u32 size = mic_rec_size(sizeof(struct mic_rec_frame), skb->len);
	struct mic_rec_frame frame = {
		.rec.size = size,
		.rec.type = MIC_REC_FRAME,
		.rec.payload = skb->len,
	};
	void *at;

	static_assert(sizeof(frame.vnet) >= sizeof(struct virtio_net_hdr));
	if (virtio_net_hdr_from_skb(skb, (struct virtio_net_hdr *)frame.vnet,
				    true, false, 0))
		return -EINVAL;
	at = mic_lane_reserve(lane, size);
	memcpy(at, &frame, sizeof(frame));
	if (skb_copy_bits(skb, 0, at + sizeof(frame), skb->len))
		return -EINVAL;
	mic_lane_commit(lane, size);
	mic_path_count(path, MIC_STAT_FRAME_TX, 1);
	return 0;
}

/* Return: 0, -ENOBUFS if there was no room, or an errno if it can't be sent at all. */
static int mic_net_send(struct mic_path *path, const struct sk_buff *skb)
{
	int room, err = -ENETDOWN;

	spin_lock(&path->net_lock);
	if (mic_path_may_send(path)) {
		room = mic_path_room(path, &path->tx[MIC_LANE_FRAME],
				     MIC_NET_ROOM);
		if (room > 0)
			err = mic_net_write(path, skb);
		else if (!room)
			err = -ENOBUFS;
	}
	spin_unlock(&path->net_lock);
	if (!err)
		mic_path_ring(path);
	return err;
}

static struct mic_path *mic_net_path_to(struct mic_ivs *ivs, const u8 *mac)
{
	u32 i;

	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i] && READ_ONCE(ivs->path[i]->up) &&
		    ether_addr_equal(ivs->path[i]->mac, mac))
			return ivs->path[i];
	return NULL;
}

static u16 mic_net_select_queue(struct net_device *ndev, struct sk_buff *skb,
				struct net_device *upper)
{
	struct mic_ivs *ivs = mic_net_ivs(ndev);
	const u8 *to = ((const struct ethhdr *)skb->data)->h_dest;
	struct mic_path *path = NULL;

	if (!is_multicast_ether_addr(to))
		path = mic_net_path_to(ivs, to);
	return path ? path->slot : ivs->slot;
}

static struct netdev_queue *mic_net_queue(const struct mic_path *path)
{
	return netdev_get_tx_queue(path->ivs->ndev, path->slot);
}

/* A frame, or one node's copy of it, was not sent; @err is why. */
static void mic_net_count(struct net_device *ndev, int err)
{
	DEV_STATS_INC(ndev, tx_errors);		/* all kinds, see if_link.h */
	if (err == -ENOBUFS)
		DEV_STATS_INC(ndev, tx_fifo_errors);
	else if (err == -ENETDOWN)
		DEV_STATS_INC(ndev, tx_carrier_errors);
}

/* To all nodes; who has no room misses it. */
static void mic_net_flood(struct mic_ivs *ivs, const struct sk_buff *skb)
{
	int err;
	u32 i;

	for (i = 0; i < ivs->geo.nodes; i++) {
		if (!ivs->path[i] || !READ_ONCE(ivs->path[i]->up))
			continue;
		err = mic_net_send(ivs->path[i], skb);
		if (err)
			mic_net_count(ivs->ndev, err);
	}
}

static bool mic_net_has_room(struct mic_path *path)
{
	bool room = true;

	spin_lock_bh(&path->net_lock);
	if (mic_path_may_send(path))
		room = mic_path_room(path, &path->tx[MIC_LANE_FRAME],
				     MIC_NET_ROOM);
	spin_unlock_bh(&path->net_lock);
	return room;
}

/*
 * No room: wait for some, but not for long: what is in the queue has senders that
 * wait for other nodes, too. Return: whether to wait.
 */
static bool mic_net_wait(struct mic_path *path)
{
	if (!path->net_stopped) {
		path->net_stopped = true;
		path->net_full = jiffies;
	}
	if (time_after(jiffies, path->net_full +
		       msecs_to_jiffies(MIC_NET_FULL_MS)))
		return false;
	netif_tx_stop_queue(mic_net_queue(path));
	/* it may have been the last word that came meanwhile */
	mic_path_wake(path);
	/* or the thread has taken the word that there is room, before the stop */
	if (mic_net_has_room(path))
		netif_tx_wake_queue(mic_net_queue(path));
	return true;
}

static netdev_tx_t mic_net_xmit(struct sk_buff *skb, struct net_device *ndev)
{
	struct mic_ivs *ivs = mic_net_ivs(ndev);
	/* not eth_hdr(): who writes past the queueing layer may not have set it */
	const u8 *to = ((const struct ethhdr *)skb->data)->h_dest;
	struct mic_path *path = NULL;
	bool own;
	int err;

	if (skb->len > MIC_NET_FRAME_MAX) {
		err = -EMSGSIZE;
		goto drop;
	}
	if (!is_multicast_ether_addr(to))
		path = mic_net_path_to(ivs, to);
	if (path) {
		err = mic_net_send(path, skb);
		/* a queue chosen by somebody else is not woken for this path */
		own = skb_get_queue_mapping(skb) == path->slot;
		if (err == -ENOBUFS && own && mic_net_wait(path))
			return NETDEV_TX_BUSY;
		/* the path's own queue may wait while another has found room */
		if (err != -ENOBUFS && own)
			WRITE_ONCE(path->net_stopped, false);
		if (err)
			goto drop;
	} else {
		mic_net_flood(ivs, skb);
	}
	dev_sw_netstats_tx_add(ndev, 1, skb->len);
	skb_tx_timestamp(skb);
	dev_consume_skb_any(skb);
	return NETDEV_TX_OK;

drop:
	mic_net_count(ndev, err);
	DEV_STATS_INC(ndev, tx_dropped);
	dev_kfree_skb_any(skb);
	return NETDEV_TX_OK;
}

/**
 * mic_net_wake - let the interface try again
 * @path: path that its queue waits for
 */
void mic_net_wake(struct mic_path *path)
{
	netif_tx_wake_queue(mic_net_queue(path));
}

/**
 * mic_net_room - let the interface try again if there is room
 * @path: path that is up
 *
 * Context: process context, &mic_path.rx_mutex held.
 */
void mic_net_room(struct mic_path *path)
{
	bool overdue, room;

	if (!READ_ONCE(path->net_stopped))
		return;
	room = mic_net_has_room(path);
	overdue = time_after(jiffies, path->net_full +
			     msecs_to_jiffies(MIC_NET_FULL_MS));
	if (room || overdue)
		mic_net_wake(path);
}

/*
 * Without waiting for memory: what frees it may be an answer of the other node's,
 * which the same thread receives, and a frame may get lost.
 */
static struct sk_buff *mic_net_alloc(u32 len)
{
	u32 head = min_t(u32, len, MIC_NET_HEAD);
	struct sk_buff *skb;
	int err;

	skb = alloc_skb_with_frags(NET_IP_ALIGN + head, len - head, 3, &err,
				   GFP_NOWAIT | __GFP_NOWARN);
	if (!skb)
		return NULL;
	skb_reserve(skb, NET_IP_ALIGN);
	skb_put(skb, head);
	skb->data_len = len - head;
	skb->len += len - head;
	return skb;
}

/*
 * Where a checksum begins is counted from the Ethernet header, and later from behind it:
 * what virtio_net_hdr_to_skb() does not ask, as its host can be trusted.
 */
static bool mic_net_may_sum(const struct virtio_net_hdr *vnet)
{
	return !(vnet->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) ||
	       __virtio16_to_cpu(true, vnet->csum_start) >= ETH_HLEN;
}

/*
 * The frame is ours: what its header says about offloads is checked here. Who takes
 * the interface down, or to another namespace, waits for RCU afterwards, so that is
 * looked at under it.
 */
static void mic_net_deliver(struct net_device *ndev, struct sk_buff *skb,
			    const struct virtio_net_hdr *vnet)
{
	u32 len = skb->len;

	if (!mic_net_may_sum(vnet) || virtio_net_hdr_to_skb(skb, vnet, true)) {
		DEV_STATS_INC(ndev, rx_frame_errors);
		DEV_STATS_INC(ndev, rx_errors);
		kfree_skb(skb);
		return;
	}
	skb->protocol = eth_type_trans(skb, ndev);
	local_bh_disable();
	rcu_read_lock();
	if (netif_running(ndev)) {
		dev_sw_netstats_rx_add(ndev, len);
		netif_receive_skb(skb);
	} else {
		DEV_STATS_INC(ndev, rx_dropped);
		kfree_skb(skb);
	}
	rcu_read_unlock();
	local_bh_enable();
}

/**
 * mic_net_receive - a frame has arrived
 * @path: from there
 * @rec: copy of the record's beginning, bounds checked
 * @at: the record
 *
 * What makes no sense is dropped, as a network does.
 *
 * Context: process context, &mic_path.rx_mutex held.
 */
void mic_net_receive(struct mic_path *path, const struct mic_rec *rec,
		     const void *at)
{
	struct net_device *ndev = path->ivs->ndev;
	struct mic_rec_frame frame;
	struct sk_buff *skb;

	if (!netif_running(ndev))
		return;
	memcpy(&frame, at, sizeof(frame));
	barrier();
	if (rec->type != MIC_REC_FRAME || rec->payload < ETH_HLEN ||
	    rec->payload > MIC_NET_FRAME_MAX ||
	    rec->payload > rec->size - sizeof(frame)) {
		DEV_STATS_INC(ndev, rx_length_errors);
		DEV_STATS_INC(ndev, rx_errors);
		return;
	}
	skb = mic_net_alloc(rec->payload);
	if (!skb || skb_store_bits(skb, 0, at + sizeof(frame), rec->payload)) {
		DEV_STATS_INC(ndev, rx_dropped);
		kfree_skb(skb);
		return;
	}
	mic_path_count(path, MIC_STAT_FRAME_RX, 1);
	mic_net_deliver(ndev, skb, (struct virtio_net_hdr *)frame.vnet);
}

static int mic_net_open(struct net_device *ndev)
{
	struct mic_ivs *ivs = mic_net_ivs(ndev);
	u32 i;

	/* what waited has been dropped */
	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i])
			WRITE_ONCE(ivs->path[i]->net_stopped, false);
	netif_tx_start_all_queues(ndev);
	return 0;
}

static int mic_net_stop(struct net_device *ndev)
{
	netif_tx_stop_all_queues(ndev);
	return 0;
}

/* From here on its references are waited for: see mic_net_set_carrier(). */
static void mic_net_uninit(struct net_device *ndev)
{
	struct mic_net *net = netdev_priv(ndev);

	spin_lock(&net->lock);
	net->gone = true;
	spin_unlock(&net->lock);
}

static const struct net_device_ops mic_net_ops = {
	.ndo_uninit = mic_net_uninit,
	.ndo_open = mic_net_open,
	.ndo_stop = mic_net_stop,
	.ndo_start_xmit = mic_net_xmit,
	.ndo_select_queue = mic_net_select_queue,
	.ndo_get_stats64 = dev_get_tstats64,
	.ndo_validate_addr = eth_validate_addr,
};

static void mic_net_setup(struct net_device *ndev)
{
	ether_setup(ndev);
	ndev->netdev_ops = &mic_net_ops;
	ndev->ethtool_ops = &mic_net_ethtool_ops;
	ndev->min_mtu = ETH_MIN_MTU;
	ndev->max_mtu = ETH_MAX_MTU;
	ndev->mtu = MIC_NET_MTU;
	ndev->priv_flags &= ~IFF_TX_SKB_SHARING;
	/* no netconsole: what is printed about a path would go through it */
	ndev->priv_flags |= IFF_DISABLE_NETPOLL;
	ndev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO |
			    NETIF_F_TSO6 | NETIF_F_TSO_ECN | NETIF_F_HIGHDMA;
	ndev->features = ndev->hw_features;
	ndev->vlan_features = ndev->hw_features;
}

/* Local, and the same whenever the node has this entry of this region. */
static void mic_net_set_mac(struct mic_ivs *ivs, struct net_device *ndev)
{
	u32 id = ivs->id;
	const u8 mac[ETH_ALEN] = {
		0x02, 'm', id >> 16, id >> 8, id, ivs->slot + 1,
	};

	eth_hw_addr_set(ndev, mac);
}

/**
 * mic_net_create - a network interface for a region
 * @ivs: device that has joined
 *
 * Return: 0 or an error.
 */
int mic_net_create(struct mic_ivs *ivs)
{
	struct net_device *ndev;
	struct mic_net *net;
	int err;

	/* udev shall not name it by where the PCI device is */
	ndev = alloc_netdev_mqs(sizeof(struct mic_net), "micnet%d",
				NET_NAME_PREDICTABLE, mic_net_setup,
				ivs->geo.nodes, 1);
	if (!ndev)
		return -ENOMEM;
	net = netdev_priv(ndev);
	net->ivs = ivs;
	spin_lock_init(&net->lock);
	ndev->tstats = netdev_alloc_pcpu_stats(struct pcpu_sw_netstats);
	if (!ndev->tstats) {
		free_netdev(ndev);
		return -ENOMEM;
	}
	SET_NETDEV_DEV(ndev, &ivs->pdev->dev);
	mic_net_set_mac(ivs, ndev);
	ivs->ndev = ndev;
	err = register_netdev(ndev);
	if (err)
		mic_net_free(ivs);
	return err;
}

/**
 * mic_net_set_carrier - say whether the interface leads anywhere
 * @ivs: device with an interface, which may be unregistered meanwhile
 * @on: does it?
 *
 * The kernel queues a change with a reference to the interface. There must be no more
 * of these when they have been waited for.
 *
 * Context: process context.
 */
void mic_net_set_carrier(struct mic_ivs *ivs, bool on)
{
	struct mic_net *net = netdev_priv(ivs->ndev);

	spin_lock(&net->lock);
	if (!net->gone && on)
		netif_carrier_on(ivs->ndev);
	else if (!net->gone)
		netif_carrier_off(ivs->ndev);
	spin_unlock(&net->lock);
}

/**
 * mic_net_unregister - take the interface away from its users
 * @ivs: device
 */
void mic_net_unregister(struct mic_ivs *ivs)
{
	unregister_netdev(ivs->ndev);
}

/**
 * mic_net_free - nobody refers to the interface any more
 * @ivs: device whose paths are gone
 */
void mic_net_free(struct mic_ivs *ivs)
{
	synchronize_rcu();	/* look-ups of GIDs see it */
	free_percpu(ivs->ndev->tstats);
	free_netdev(ivs->ndev);
}
