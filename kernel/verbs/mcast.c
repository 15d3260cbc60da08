// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Multicast groups: which QPs of a device are members.
 */
#include <linux/hashtable.h>
#include <linux/rculist.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/srcu.h>

#include "dev.h"
#include "mcast.h"
#include "qp.h"

/*
 * A QP in a group. ib_core detaches a QP from all groups before it goes, as often
 * as it was attached: to ib_core a group with another LID is another group.
 */
struct mic_member {
	struct hlist_node entry;
	union ib_gid mgid;
	struct mic_qp *qp;
	unsigned int attached;
};

/* Deliveries, which may have to wait; who attaches, or attaches another, does not. */
DEFINE_STATIC_SRCU(mic_members_srcu);

static struct hlist_head *mic_members_of(struct mic_dev *dev,
					 const union ib_gid *mgid)
{
	return &dev->members[hash_min(mic_mgid_hash(mgid),
				      HASH_BITS(dev->members))];
}

static struct mic_member *mic_member_lookup(struct mic_dev *dev,
					    const struct mic_qp *qp,
					    const union ib_gid *mgid)
{
	struct mic_member *member;

	lockdep_assert_held(&dev->members_lock);
	hlist_for_each_entry(member, mic_members_of(dev, mgid), entry)
		if (member->qp == qp &&
		    !memcmp(&member->mgid, mgid, sizeof(*mgid)))
			return member;
	return NULL;
}

int mic_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct mic_dev *dev = to_mic_dev(ibqp->device);
	struct mic_qp *qp = to_mic_qp(ibqp);
	struct mic_member *member, *known;
	unsigned int noio;
	int err = 0;

	member = kzalloc(sizeof(*member), GFP_KERNEL_ACCOUNT);
	if (!member)
		return -ENOMEM;
	member->mgid = *gid;
	member->qp = qp;
	member->attached = 1;

	/* a path's thread waits for the fabric's lock, and storage for the path */
	noio = memalloc_noio_save();
	mutex_lock(&dev->members_lock);
	known = mic_member_lookup(dev, qp, gid);
	if (known) {
		known->attached++;
		goto free;
	}
	if (dev->nmembers == MIC_MAX_MCAST_ATTACH) {
		err = -ENOMEM;
		goto free;
	}
	err = mic_mcast_join(dev->node, gid, dev->ndev);
	if (err)
		goto free;
	hlist_add_head_rcu(&member->entry, mic_members_of(dev, gid));
	dev->nmembers++;
	member = NULL;
free:
	mutex_unlock(&dev->members_lock);
	memalloc_noio_restore(noio);
	kfree(member);
	return err;
}

int mic_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct mic_dev *dev = to_mic_dev(ibqp->device);
	struct mic_member *member;
	bool last;

	mutex_lock(&dev->members_lock);
	member = mic_member_lookup(dev, to_mic_qp(ibqp), gid);
	last = member && !--member->attached;
	if (last) {
		hlist_del_rcu(&member->entry);
		dev->nmembers--;
	}
	mutex_unlock(&dev->members_lock);
	if (!member)
		return -EINVAL;
	if (!last)
		return 0;
	synchronize_srcu(&mic_members_srcu);
	mic_mcast_leave(dev->node, gid);
	kfree(member);
	return 0;
}

static bool mic_member_wants(const struct mic_member *member, const struct mic_dev *dev,
			     const struct mic_op *op)
{
	return !member->qp->no_loopback || op->src != dev->node ||
	       op->src_qpn != member->qp->qpn;
}

/**
 * mic_mcast_deliver - hand a datagram to all members of its group
 * @dev: device
 * @op: datagram
 * @deliver: hands it to one QP
 *
 * Context: process context, may sleep.
 */
void mic_mcast_deliver(struct mic_dev *dev, struct mic_op *op,
		       enum mic_ack (*deliver)(struct mic_qp *qp,
					       struct mic_op *op))
{
	const union ib_gid *mgid = &op->addr->dgid;
	struct mic_member *member;
	int idx;

	idx = srcu_read_lock(&mic_members_srcu);
	hlist_for_each_entry_srcu(member, mic_members_of(dev, mgid), entry,
				  srcu_read_lock_held(&mic_members_srcu)) {
		if (memcmp(&member->mgid, mgid, sizeof(*mgid)) ||
		    !mic_member_wants(member, dev, op))
			continue;
		deliver(member->qp, op);
		op->copies++;
	}
	srcu_read_unlock(&mic_members_srcu, idx);
}
