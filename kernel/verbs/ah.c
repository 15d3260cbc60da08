// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Address handles.
 *
 * Kernel consumers create and destroy them in atomic context, and ib_core
 * frees the handle at once. So what the engine reads is separate, and freed
 * after a grace period.
 */
#include <linux/etherdevice.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include <rdma/mic-abi.h>
#include <rdma/uverbs_ioctl.h>

#include "ah.h"
#include "dev.h"
#include "uctx.h"

/**
 * struct mic_av - address vector
 * @rcu: readers run under RCU
 * @pd: protection domain
 * @sgid_attr: the GID that it sends from, only to be compared, and unless @gone
 * @gone: the device has that GID no more
 * @smac: Ethernet address of that GID's netdev, as a number; may change
 * @addr: where it leads, but for the source's Ethernet address
 */
struct mic_av {
	struct rcu_head rcu;
	struct ib_pd *pd;
	const struct ib_gid_attr *sgid_attr;
	bool gone;
	u64 smac;
	struct mic_addr addr;
};

/**
 * mic_addr_from_attr - the engine's form of an address vector
 * @addr: out
 * @attr: resolved by ib_core: GIDs, destination MAC
 *
 * Return: 0, or -ENODEV if the GID that it sends from is gone; then @addr has no VLAN
 * and no source's Ethernet address.
 */
int mic_addr_from_attr(struct mic_addr *addr, const struct rdma_ah_attr *attr)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(attr);
	const struct ib_gid_attr *sgid_attr = grh->sgid_attr;
	int err;

	memset(addr, 0, sizeof(*addr));
	addr->dgid = grh->dgid;
	addr->sgid = sgid_attr->gid;
	addr->sl = rdma_ah_get_sl(attr);
	addr->traffic_class = grh->traffic_class;
	addr->hop_limit = grh->hop_limit;
	addr->flow_label = grh->flow_label;
	addr->ipv4 = ipv6_addr_v4mapped((const struct in6_addr *)&grh->dgid);
	memcpy(addr->dmac, attr->roce.dmac, ETH_ALEN);
	err = rdma_read_gid_l2_fields(sgid_attr, &addr->vlan_id, addr->smac);
	if (err)
		addr->vlan_id = 0xffff;
	return err;
}

/*
 * One after the other: datagrams that are posted when their handle is destroyed fail,
 * and must not go where the next one leads.
 */
static int mic_ah_alloc_handle(struct mic_dev *dev, struct mic_ah *ah,
			       gfp_t gfp)
{
	unsigned long flags;
	int err;

	if (gfpflags_allow_blocking(gfp)) {
		err = xa_alloc_cyclic_irq(&dev->ahs, &ah->handle, ah->av,
					  xa_limit_31b, &dev->next_ah, gfp);
	} else {
		xa_lock_irqsave(&dev->ahs, flags);
		err = __xa_alloc_cyclic(&dev->ahs, &ah->handle, ah->av,
					xa_limit_31b, &dev->next_ah, gfp);
		xa_unlock_irqrestore(&dev->ahs, flags);
	}
	return err < 0 ? err : 0;
}

static void mic_ah_free_handle(struct mic_dev *dev, const struct mic_ah *ah)
{
	unsigned long flags;

	xa_lock_irqsave(&dev->ahs, flags);
	__xa_erase(&dev->ahs, ah->handle);
	xa_unlock_irqrestore(&dev->ahs, flags);
}

/*
 * ib_core marks a GID's entry, then says that it is gone: mic_ah_del_gid(). When the
 * netdev is taken off it depends on the kernel's version. The GID may have come back
 * since, as another entry, which has not been told to this handle either.
 *
 * Return: 0, or -ENODEV.
 */
static int mic_av_check(const struct ib_gid_attr *attr)
{
	struct net_device *ndev;

	smp_mb();	/* the handle can be found, or its GID is seen to be gone */
	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(attr);
	rcu_read_unlock();
	return PTR_ERR_OR_ZERO(ndev);
}

/* Return: 0, or -ENODEV if the GID that it sends from is gone. */
static int mic_av_init(struct mic_av *av, struct ib_pd *pd,
		       const struct rdma_ah_attr *attr)
{
	int err = mic_addr_from_attr(&av->addr, attr);

	av->smac = ether_addr_to_u64(av->addr.smac);
	av->sgid_attr = rdma_ah_read_grh(attr)->sgid_attr;
	av->pd = pd;
	return err;
}

int mic_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		  struct ib_udata *udata)
{
	gfp_t gfp = init->flags & RDMA_CREATE_AH_SLEEPABLE ? GFP_KERNEL :
							     GFP_ATOMIC;
	struct mic_dev *dev = to_mic_dev(ibah->device);
	struct mic_create_ah_resp resp = {};
	struct mic_ah *ah = to_mic_ah(ibah);
	int err;

	if (!(rdma_ah_get_ah_flags(init->ah_attr) & IB_AH_GRH))
		return -EINVAL;
	err = mic_udata_check(udata, 0);
	if (err)
		return err;
	if (udata && udata->outlen < sizeof(resp))
		return -EINVAL;
	err = mic_limit_get(&dev->nah, MIC_MAX_AH);
	if (err)
		return err;
	ah->av = kzalloc(sizeof(*ah->av), gfp);
	if (!ah->av) {
		err = -ENOMEM;
		goto err_count;
	}
	err = mic_av_init(ah->av, ibah->pd, init->ah_attr);
	if (!err)
		err = mic_ah_alloc_handle(dev, ah, gfp);
	if (err)
		goto err_free;
	/* the caller's entry: that of the handle may be another one now, and gone */
	err = mic_av_check(rdma_ah_read_grh(init->ah_attr)->sgid_attr);
	if (err)
		goto err_handle;
	ah->static_rate = rdma_ah_get_static_rate(init->ah_attr);
	if (udata) {
		resp.ah_handle = ah->handle;
		err = ib_copy_to_udata(udata, &resp, sizeof(resp));
		if (err)
			goto err_handle;
	}
	return 0;

err_handle:
	mic_ah_free_handle(dev, ah);
err_free:
	kfree_rcu(ah->av, rcu);
err_count:
	atomic_dec(&dev->nah);
	return err;
}

int mic_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	struct mic_dev *dev = to_mic_dev(ibah->device);
	struct mic_ah *ah = to_mic_ah(ibah);

	mic_ah_free_handle(dev, ah);
	kfree_rcu(ah->av, rcu);
	atomic_dec(&dev->nah);
	return 0;
}

int mic_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr)
{
	const struct mic_addr *addr = &to_mic_ah(ibah)->av->addr;

	memset(attr, 0, sizeof(*attr));
	attr->type = ibah->type;
	rdma_ah_set_port_num(attr, 1);
	rdma_ah_set_sl(attr, addr->sl);
	rdma_ah_set_static_rate(attr, to_mic_ah(ibah)->static_rate);
	rdma_ah_set_grh(attr, (union ib_gid *)&addr->dgid, addr->flow_label,
			ibah->sgid_attr ? ibah->sgid_attr->index : 0,
			addr->hop_limit, addr->traffic_class);
	memcpy(attr->roce.dmac, addr->dmac, ETH_ALEN);
	return 0;
}

/**
 * mic_ah_del_gid - nothing more is sent from a GID
 * @attr: the GID, which ib_core takes off its device
 *
 * Context: process context.
 */
void mic_ah_del_gid(const struct ib_gid_attr *attr)
{
	struct mic_dev *dev = to_mic_dev(attr->device);
	unsigned long handle;
	struct mic_av *av;

	smp_mb();	/* pairs with mic_av_check() */
	rcu_read_lock();
	xa_for_each(&dev->ahs, handle, av) {
		if (av->sgid_attr == attr)
			WRITE_ONCE(av->gone, true);
	}
	rcu_read_unlock();
}

/**
 * mic_ah_add_gid - what was sent from a GID when it went is sent again
 * @attr: the GID, which ib_core has put on its device
 *
 * Context: process context; ib_core serialises it with mic_ah_del_gid().
 */
void mic_ah_add_gid(const struct ib_gid_attr *attr)
{
	struct mic_dev *dev = to_mic_dev(attr->device);
	unsigned long handle;
	struct mic_av *av;
	u8 smac[ETH_ALEN];
	u16 vlan_id;

	if (rdma_read_gid_l2_fields(attr, &vlan_id, smac))
		return;
	rcu_read_lock();
	xa_for_each(&dev->ahs, handle, av) {
		if (!READ_ONCE(av->gone) || av->addr.vlan_id != vlan_id ||
		    memcmp(&av->addr.sgid, &attr->gid, sizeof(attr->gid)))
			continue;
		av->sgid_attr = attr;
		/* all GIDs go and come when the netdev gets another one */
		WRITE_ONCE(av->smac, ether_addr_to_u64(smac));
		WRITE_ONCE(av->gone, false);
	}
	rcu_read_unlock();
}

/**
 * mic_av_get - where an address handle leads
 * @dev: device
 * @handle: number, unchecked
 * @pd: protection domain it has to be of; NULL for kernel consumers
 * @addr: out
 *
 * Return: 0, -ENOENT if there is no such handle, or -EADDRNOTAVAIL if the GID that
 * it sends from is gone; then @addr is set, too.
 */
int mic_av_get(struct mic_dev *dev, u32 handle, const struct ib_pd *pd,
	       struct mic_addr *addr)
{
	struct mic_av *av;
	int err = -ENOENT;

	rcu_read_lock();
	av = xa_load(&dev->ahs, handle);
	if (av && (!pd || av->pd == pd)) {
		*addr = av->addr;
		u64_to_ether_addr(READ_ONCE(av->smac), addr->smac);
		err = READ_ONCE(av->gone) ? -EADDRNOTAVAIL : 0;
	}
	rcu_read_unlock();
	return err;
}
