// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completion queues: creation, resizing, destruction.
 */
#include <linux/log2.h>
#include <linux/slab.h>
#include <rdma/uverbs_ioctl.h>

#include "cq.h"
#include "dev.h"
#include "uctx.h"

#define MIC_CQ_RING_OFFSET	sizeof(struct mic_cq_ctl)

static struct mic_buf *mic_cq_buf_create(struct mic_uctx *uctx, u32 entries)
{
	return mic_buf_create(uctx, MIC_CQ_RING_OFFSET +
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

	if (attr->flags & ~IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > MIC_MAX_CQE)
		return -EINVAL;
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
	spin_lock_init(&cq->lock);
	mic_cq_moderation_init(cq);
	cq->timestamps = attr->flags &
			 IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION;
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
	mic_buf_destroy(cq->buf);
	atomic_dec(&to_mic_dev(ibcq->device)->ncq);
	return 0;
}

/*
 * Move what was not polled yet to the start of the new ring. Elements in
 * shared memory are copied as they are: user space can only spoil its own.
 */
static int mic_cq_move(struct mic_cq *cq, struct mic_buf *buf, u32 entries)
{
	u32 tail = READ_ONCE(cq->ctl->consumer);
	u32 pending = cq->producer - tail;
	u32 mask = cq->entries - 1, arm = READ_ONCE(cq->ctl->arm);
	struct mic_cqe *to = buf->va + MIC_CQ_RING_OFFSET;
	u32 i;

	if (pending > cq->entries || pending > entries)
		return -EINVAL;
	for (i = 0; i < pending; i++) {
		to[i] = cq->ring[(tail + i) & mask];
		to[i].owner = 1;
	}
	mic_cq_attach(cq, buf, entries);
	cq->producer = pending;
	WRITE_ONCE(cq->ctl->arm, arm);
	return 0;
}

int mic_resize_cq(struct ib_cq *ibcq, int cqe, struct ib_udata *udata)
{
	struct mic_uctx *uctx = mic_udata_uctx(udata);
	struct mic_cq *cq = to_mic_cq(ibcq);
	struct mic_resize_cq_resp resp = {};
	struct mic_buf *buf, *old;
	unsigned long flags;
	u32 entries;
	int err;

	if (!uctx || udata->outlen < sizeof(resp))
		return -EINVAL;
	if (cqe < 1 || cqe > MIC_MAX_CQE)
		return -EINVAL;

	entries = roundup_pow_of_two(cqe);
	buf = mic_cq_buf_create(uctx, entries);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	mic_cq_info(buf, entries, &resp.map, &resp.ring);
	err = ib_copy_to_udata(udata, &resp, sizeof(resp));
	if (err)
		goto err_buf;

	spin_lock_irqsave(&cq->lock, flags);
	old = cq->buf;
	err = mic_cq_move(cq, buf, entries);
	spin_unlock_irqrestore(&cq->lock, flags);
	if (err)
		goto err_buf;

	ibcq->cqe = entries;
	mic_buf_destroy(old);
	return 0;

err_buf:
	mic_buf_destroy(buf);
	return err;
}
