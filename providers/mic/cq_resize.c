// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completion queues that are resized: the kernel has another ring then, which this
 * process maps as soon as it can.
 */
#include "mic.h"

struct resize_cq_resp {
	struct ib_uverbs_resize_cq_resp base;
	struct mic_resize_cq_resp mic;
};
static_assert(sizeof(struct resize_cq_resp) ==
		      sizeof(struct ib_uverbs_resize_cq_resp) +
			      sizeof(struct mic_resize_cq_resp),
	      "the driver's part follows directly");

/*
 * The kernel moves the elements that were not polled and the request for an
 * event to the new queue, and says in its control block where to go on.
 */
static void enter_ring(struct mic_cq *cq, const struct mic_map *map,
		       const struct mic_ring_info *info)
{
	struct mic_cq_ring ring = { .map = *map };

	mic_cq_ring_init(&ring, info);
	ring.consumer = mic_load_acquire(&ring.ctl->consumer);
	mic_own_rebase(&cq->own, cq->ring.consumer);
	mic_unmap_queue(&cq->ring.map);
	cq->ring = ring;
	mic_cq_forget_late(cq);
	atomic_store(&cq->behind, false);
	mic_own_resized(&cq->own, ring.entries);
}

/*
 * The kernel has a new queue, which could not be mapped. The memory of the old one is
 * nobody else's any more, so it becomes an empty queue until the other can be mapped;
 * and as who executes requests can't see what was before them, the kernel does.
 */
static void fall_behind(struct mic_cq *cq,
			const struct mic_resize_cq_resp *resp)
{
	struct mic_cq_ring *ring = &cq->ring;

	cq->moved = *resp;
	atomic_store(&cq->behind, true);
	mic_own_leave_ring(cq);
	memset(ring->elements, 0, ring->entries * sizeof(*ring->elements));
	ring->consumer = 0;
	mic_cq_publish(ring);
	/* who polls in vain looks again, see mic_cq_look() */
	ring->ctl->remote = 1;
}

static int replace_ring(struct mic_cq *cq, struct mic_map *room,
			const struct mic_resize_cq_resp *resp)
{
	struct mic_map map;
	int ret;

	ret = mic_map_reserved(&map, room, cq->doorbell_fd, &resp->map);
	if (ret)
		fall_behind(cq, resp);
	else
		enter_ring(cq, &map, &resp->ring);
	return ret;
}

/* Both locks are held. */
bool mic_cq_catch_up(struct mic_cq *cq)
{
	struct mic_map map;

	if (!atomic_load(&cq->behind) ||
	    mic_map_queue(&map, cq->doorbell_fd, &cq->moved.map))
		return false;
	enter_ring(cq, &map, &cq->moved.ring);
	return true;
}

bool mic_cq_catch_up_locked(struct mic_cq *cq)
{
	bool caught_up;

	mic_lock(&cq->lock);
	mic_lock(&cq->own.lock);
	caught_up = mic_cq_catch_up(cq);
	mic_unlock(&cq->own.lock);
	mic_unlock(&cq->lock);
	return caught_up;
}

/* Is what completes found here, or can it be from now on? */
bool mic_cq_is_here(struct ibv_cq *ibcq)
{
	struct mic_cq *cq = to_mcq(ibcq);

	return !atomic_load(&cq->behind) || mic_cq_catch_up_locked(cq) ||
	       !atomic_load(&cq->behind);
}

/* What waits has to fit, the kernel's and our own. */
static bool fits(struct mic_cq *cq, uint32_t cqe)
{
	uint32_t entries = 1;

	while (entries < cqe)
		entries *= 2;
	return mic_own_pending(cq) <= entries;
}

static int resize_cq(struct mic_cq *cq, int cqe)
{
	struct resize_cq_resp resp = {};
	struct ibv_resize_cq cmd = {};
	struct mic_map room;
	int ret;

	if (cqe < 1 << 30 && !fits(cq, cqe))
		return EINVAL;
	ret = mic_reserve_queue(&room, &cq->ring.map, cq->ring.entries, cqe,
				sizeof(struct mic_cqe));
	if (ret)
		return ret;
	/*
	 * Whoever sees room yet has the completions before his in the ring that is here:
	 * the kernel had written them.
	 */
	mic_own_close(&cq->own);
	atomic_thread_fence(memory_order_seq_cst);
	ret = ibv_cmd_resize_cq(&cq->vcq.cq, cqe, &cmd, sizeof(cmd), &resp.base,
				sizeof(resp));
	if (!ret)
		return replace_ring(cq, &room, &resp.mic);
	if (!atomic_load(&cq->behind))
		mic_own_resized(&cq->own, cq->ring.entries);
	mic_unmap_queue(&room);
	return ret;
}

int mic_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct mic_cq *cq = to_mcq(ibcq);
	int ret;

	if (cqe <= 0)
		return EINVAL;
	mic_lock(&cq->lock);
	mic_lock(&cq->own.lock);
	ret = resize_cq(cq, cqe);
	mic_unlock(&cq->own.lock);
	mic_unlock(&cq->lock);
	return ret;
}
