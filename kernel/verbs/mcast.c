// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Multicast groups: which QPs of a device are members.
 */
#include <linux/list.h>
#include <linux/slab.h>

#include "dev.h"
#include "mcast.h"
#include "qp.h"

/*
 * A QP in a group. ib_core detaches a QP from all groups before it goes, as often
 * as it was attached: to ib_core a group with another LID is another group.
 */
struct mic_member {
	struct list_head entry;
	union ib_gid mgid;
	struct mic_qp *qp;
	unsigned int attached;
};

static struct mic_member *mic_member_lookup(struct mic_dev *dev,
					    const struct mic_qp *qp,
					    const union ib_gid *mgid)
{
	struct mic_member *member;

	list_for_each_entry(member, &dev->members, entry)
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
	int err = 0;

	member = kzalloc(sizeof(*member), GFP_KERNEL_ACCOUNT);
	if (!member)
		return -ENOMEM;
	member->mgid = *gid;
	member->qp = qp;
	member->attached = 1;

	down_write(&dev->members_lock);
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
	list_add_tail(&member->entry, &dev->members);
	dev->nmembers++;
	member = NULL;
free:
	up_write(&dev->members_lock);
	kfree(member);
	return err;
}

int mic_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct mic_dev *dev = to_mic_dev(ibqp->device);
	struct mic_member *member;
	bool last;

	down_write(&dev->members_lock);
	member = mic_member_lookup(dev, to_mic_qp(ibqp), gid);
	last = member && !--member->attached;
	if (last) {
		list_del(&member->entry);
		dev->nmembers--;
	}
	up_write(&dev->members_lock);
	if (!member)
		return -EINVAL;
	if (!last)
		return 0;
	mic_mcast_leave(dev->node, gid);
	kfree(member);
	return 0;
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
	struct mic_member *member;

	down_read(&dev->members_lock);
	list_for_each_entry(member, &dev->members, entry) {
		if (memcmp(&member->mgid, &op->addr->dgid,
			   sizeof(member->mgid)))
			continue;
		deliver(member->qp, op);
		op->copies++;
	}
	up_read(&dev->members_lock);
}
