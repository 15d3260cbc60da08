// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completion queues: creation, resizing, destruction.
 */
#include <linux/log2.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <rdma/uverbs_ioctl.h>

#include "cq.h"
#include "dev.h"
#include "uctx.h"

#define MIC_CQ_RING_OFFSET	sizeof(struct mic_cq_ctl)

static struct mic_buf *mic_cq_buf_create(struct mic_uctx *uctx, u32 entries)
{
	return mic_queue_buf_create(uctx, MIC_CQ_RING_OFFSET +
				    (size_t)entries * sizeof(struct mic_cqe));
}

/* Point the queue at an empty ring in @buf. */
static void mic_cq_attach(struct mic_cq *cq, struct mic_buf *buf, u32 entries)
{
	cq->buf = buf;
	cq->ctl = buf->va;
	cq->ring = buf->va + MIC_CQ_RING_OFFSET;
	cq->entries = entries;
	cq->producer = 0;
	cq->consumer = 0;
}

static void mic_cq_info(const struct mic_buf *buf, u32 entries,
			struct mic_mmap_info *map, struct mic_ring_info *ring)
{
	mic_buf_info(buf, map);
	ring->ctl_offset = 0;
	ring->offset = MIC_CQ_RING_OFFSET;
	ring->stride = sizeof(struct mic_cqe);
	ring->entries = entries;
}

static int mic_cq_check_attr(const struct ib_cq_init_attr *attr)
{
	if (attr->flags & ~(IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION |
			    IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN))
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > MIC_MAX_CQE)
		return -EINVAL;
	return 0;
}

int mic_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		  struct MIC_CREATE_CQ_ARG *arg)
{
	struct ib_udata *udata = mic_create_cq_udata(arg);
	struct mic_uctx *uctx = mic_udata_uctx(udata);
	struct mic_dev *dev = to_mic_dev(ibcq->device);
	struct mic_cq *cq = to_mic_cq(ibcq);
	struct mic_create_cq_resp resp = {};
	struct mic_buf *buf;
	u32 entries;
	int err;

	err = mic_cq_check_attr(attr);
	if (err) {
		ibdev_dbg(ibcq->device,
			  "create_cq: %u entries flags %#x: %pe\n", attr->cqe,
			  attr->flags, ERR_PTR(err));
		return err;
	}
	err = mic_udata_check(udata, 0);
	if (err)
		return err;
	if (uctx && udata->outlen < sizeof(resp))
		return -EINVAL;
	err = mic_limit_get(&dev->ncq, MIC_MAX_CQ);
	if (err)
		return err;

	entries = roundup_pow_of_two(attr->cqe);
	buf = mic_cq_buf_create(uctx, entries);
	if (IS_ERR(buf)) {
		err = PTR_ERR(buf);
		goto err_count;
	}
	mutex_init(&cq->resize_lock);
	spin_lock_init(&cq->lock);
	mic_cq_events_init(cq);
	cq->timestamps = attr->flags &
			 IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION;
	cq->ignore_overrun = attr->flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
	mic_cq_attach(cq, buf, entries);
	ibcq->cqe = entries;
	if (uctx) {
		mic_cq_info(buf, entries, &resp.map, &resp.ring);
		err = ib_copy_to_udata(udata, &resp, sizeof(resp));
		if (err)
			goto err_buf;
	}
	return 0;

err_buf:
	mic_buf_destroy(buf);
err_count:
	atomic_dec(&dev->ncq);
	return err;
}

int mic_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct mic_cq *cq = to_mic_cq(ibcq);

	hrtimer_cancel(&cq->timer);
	/* who lists objects may still look */
	spin_lock_irq(&cq->lock);
	cq->ctl = NULL;
	spin_unlock_irq(&cq->lock);
	mic_buf_destroy(cq->buf);
	atomic_dec(&to_mic_dev(ibcq->device)->ncq);
	return 0;
}

/* How many elements are there from @tail on; an index may make no sense. */
static int mic_cq_pending(const struct mic_cq *cq, u32 tail, u32 entries)
{
	u32 pending = cq->producer - tail;

	return pending > cq->entries || pending > entries ? -EINVAL : pending;
}

/*
 * Elements in shared memory are copied as they are: user space can only spoil
 * its own.
 */
static void mic_cq_copy(const struct mic_cq *cq, struct mic_cqe *to, u32 tail,
			u32 from, u32 end)
{
	u32 i;

	for (i = from; i < end; i++) {
		to[i] = cq->ring[(tail + i) & (cq->entries - 1)];
		to[i].owner = 1;
	}
}

/* What is copied at a time, and with the lock held at most. */
#define MIC_CQ_PIECE	1024

/* Most of it without the lock, in pieces, for there may be millions. */
static int mic_cq_copy_early(struct mic_cq *cq, struct mic_cqe *to, u32 tail,
			     int done, int n)
{
	while (done < n) {
		int end = min(n, done + MIC_CQ_PIECE);

		mic_cq_copy(cq, to, tail, done, end);
		done = end;
		cond_resched();
	}
	return done;
}

/*
 * Move what was not polled yet to the start of the ring in *@buf; the memory
 * to free is then there.
 */
static int mic_cq_move(struct mic_cq *cq, struct mic_buf **buf, u32 entries)
{
	struct mic_cqe *to = (*buf)->va + MIC_CQ_RING_OFFSET;
	u32 tail = READ_ONCE(cq->ctl->consumer);
	struct mic_buf *old = cq->buf;
	int done = 0, n;
	u32 arm;

	spin_lock_irq(&cq->lock);
	n = mic_cq_pending(cq, tail, entries);
	/* more may come meanwhile, but no more than there is room for */
	while (n - done > MIC_CQ_PIECE) {
		spin_unlock_irq(&cq->lock);
		done = mic_cq_copy_early(cq, to, tail, done, n);
		spin_lock_irq(&cq->lock);
		n = mic_cq_pending(cq, tail, entries);
	}
	if (n >= 0) {
		mic_cq_copy(cq, to, tail, done, n);
		arm = READ_ONCE(cq->ctl->arm);
		mic_cq_attach(cq, *buf, entries);
		cq->producer = n;
		WRITE_ONCE(cq->ctl->arm, arm);
		WRITE_ONCE(cq->ctl->remote, cq->remote);
		WRITE_ONCE(cq->ctl->overrun, cq->overflow);
		*buf = old;
	}
	spin_unlock_irq(&cq->lock);
	return n < 0 ? n : 0;
}

int mic_resize_cq(struct ib_cq *ibcq, int cqe, struct ib_udata *udata)
{
	struct mic_uctx *uctx = mic_udata_uctx(udata);
	struct mic_cq *cq = to_mic_cq(ibcq);
	struct mic_resize_cq_resp resp = {};
	struct mic_buf *buf;
	u32 entries;
	int err;

	if (!uctx)
		return -EOPNOTSUPP;
	err = mic_udata_check(udata, 0);
	if (err)
		return err;
	if (udata->outlen < sizeof(resp))
		return -EINVAL;
	if (cqe < 1 || cqe > MIC_MAX_CQE)
		return -EINVAL;

	entries = roundup_pow_of_two(cqe);
	buf = mic_cq_buf_create(uctx, entries);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	mic_cq_info(buf, entries, &resp.map, &resp.ring);
	err = ib_copy_to_udata(udata, &resp, sizeof(resp));
	if (!err) {
		mutex_lock(&cq->resize_lock);
		err = mic_cq_move(cq, &buf, entries);
		if (!err)
			ibcq->cqe = entries;
		mutex_unlock(&cq->resize_lock);
	}
	mic_buf_destroy(buf);
	return err;
}
