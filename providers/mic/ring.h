/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Queues in memory shared with the kernel; <rdma/mic-abi.h> has the layout and
 * who writes what.
 *
 * What user space writes it also remembers in private memory and never reads
 * back. Of what the kernel writes, the last value seen is kept, so that the
 * shared cache line is only read when the private copy says the queue is full.
 */
#ifndef MIC_RING_H
#define MIC_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "inline.h"
#include "lock.h"
#include "verbs_private.h"

/* Memory of a queue, mapped through the doorbell file. */
struct mic_map {
	char *addr;
	size_t size;
	uint32_t owner; /* a child of fork() does not have it, see process.h */
};

int mic_map_queue(struct mic_map *map, int fd,
		  const struct mic_mmap_info *info);
void mic_unmap_queue(struct mic_map *map);
/* Is it mapped in this process, and not in its parent only? */
bool mic_map_is_own(const struct mic_map *map);
/* For a queue that replaces another: what may fail comes first. */
int mic_reserve_queue(struct mic_map *room, const struct mic_map *map,
		      uint32_t entries, uint32_t n, size_t stride);
int mic_map_reserved(struct mic_map *map, struct mic_map *room, int fd,
		     const struct mic_mmap_info *info);

static MIC_ALWAYS_INLINE uint32_t mic_load_relaxed(__u32 *p)
{
	return atomic_load_explicit((_Atomic(__u32) *)p, memory_order_relaxed);
}

static MIC_ALWAYS_INLINE uint32_t mic_load_acquire(__u32 *p)
{
	return atomic_load_explicit((_Atomic(__u32) *)p, memory_order_acquire);
}

static inline void mic_store_release(__u32 *p, uint32_t value)
{
	atomic_store_explicit((_Atomic(__u32) *)p, value, memory_order_release);
}

/*
 * The producer's side of a send, receive or shared receive queue. Every
 * function wants @lock held.
 */
struct mic_wq {
	struct mic_lock lock;
	char *slots;
	struct mic_ring_ctl *ctl;
	uint32_t stride;
	uint32_t entries;
	uint32_t producer; /* what user space last published */
	uint32_t consumer; /* what the kernel was last seen to have published */
	uint32_t max_sge;
	bool busy; /* the kernel may be at work on what was published */
};

/* The queue is in @map; the kernel may have put something in it. */
static inline void mic_wq_attach(struct mic_wq *wq, const struct mic_map *map,
				 const struct mic_ring_info *info)
{
	wq->entries = info->entries;
	wq->stride = info->stride;
	wq->producer = 0;
	wq->consumer = 0;
	wq->busy = false;
	if (!info->entries)
		return;
	wq->slots = map->addr + info->offset;
	wq->ctl = (struct mic_ring_ctl *)(map->addr + info->ctl_offset);
	wq->producer = mic_load_acquire(&wq->ctl->producer);
	wq->consumer = mic_load_acquire(&wq->ctl->consumer);
}

static inline void mic_wq_init(struct mic_wq *wq, const struct mic_map *map,
			       const struct mic_ring_info *info,
			       uint32_t max_sge, bool one_thread)
{
	mic_lock_init(&wq->lock, one_thread);
	wq->max_sge = max_sge;
	mic_wq_attach(wq, map, info);
}

static inline void *mic_wq_slot(const struct mic_wq *wq, uint32_t index)
{
	return wq->slots + (size_t)(index & (wq->entries - 1)) * wq->stride;
}

/* Is there no free slot for element @index? */
static inline bool mic_wq_full(struct mic_wq *wq, uint32_t index)
{
	if (index - wq->consumer < wq->entries)
		return false;
	if (!wq->entries)
		return true;
	wq->consumer = mic_load_acquire(&wq->ctl->consumer);
	return index - wq->consumer >= wq->entries;
}

/* The slots up to @producer are filled: let the kernel have them. */
static inline void mic_wq_publish(struct mic_wq *wq, uint32_t producer)
{
	wq->producer = producer;
	wq->busy = true;
	mic_store_release(&wq->ctl->producer, producer);
}

/*
 * After publishing: does the kernel sleep, or wait for answers only? It sets
 * need_kick, executes a full barrier and looks at the producer index; this is the
 * other half. A queue that it polls needs no kick.
 */
static inline bool mic_wq_needs_kick(struct mic_wq *wq)
{
	atomic_thread_fence(memory_order_seq_cst);
	return mic_load_relaxed(&wq->ctl->need_kick) &
	       (MIC_KICK_ASLEEP | MIC_KICK_MORE);
}

/*
 * Is the kernel done with a send queue, and are the completions of all that was
 * in it where they belong? It sets need_kick after it has written them. While it
 * is at work need_kick is 0, from before it takes an element, so the order of
 * the two looks matters.
 */
static MIC_ALWAYS_INLINE bool mic_wq_idle(struct mic_wq *wq)
{
	if (!wq->busy)
		return true;
	if (mic_load_acquire(&wq->ctl->consumer) != wq->producer ||
	    !(mic_load_acquire(&wq->ctl->need_kick) &
	      (MIC_KICK_ASLEEP | MIC_KICK_POLLED)))
		return false;
	wq->busy = false;
	return true;
}

/* The queue pair was reset: what was posted and not taken is gone. */
static inline void mic_wq_reset(struct mic_wq *wq)
{
	if (!wq->entries)
		return;
	wq->consumer = mic_load_acquire(&wq->ctl->consumer);
	mic_wq_publish(wq, wq->consumer);
}

/*
 * The consumer's side of a completion queue. Every function wants the queue's
 * lock held.
 */
struct mic_cq_ring {
	struct mic_map map;
	struct mic_cqe *elements;
	struct mic_cq_ctl *ctl;
	uint32_t entries;
	uint32_t consumer;
};

static inline void mic_cq_ring_init(struct mic_cq_ring *ring,
				    const struct mic_ring_info *info)
{
	ring->elements = (struct mic_cqe *)(ring->map.addr + info->offset);
	ring->ctl = (struct mic_cq_ctl *)(ring->map.addr + info->ctl_offset);
	ring->entries = info->entries;
	ring->consumer = 0;
}

/* The element at @index, or NULL if the kernel has not written it yet. */
static MIC_ALWAYS_INLINE struct mic_cqe *mic_cq_peek(
	const struct mic_cq_ring *ring, uint32_t index)
{
	struct mic_cqe *cqe = &ring->elements[index & (ring->entries - 1)];
	uint32_t owner = mic_load_acquire(&cqe->owner);

	return (owner & 1) == !(index & ring->entries) ? cqe : NULL;
}

static inline void mic_cq_publish(struct mic_cq_ring *ring)
{
	mic_store_release(&ring->ctl->consumer, ring->consumer);
}

/* Ask for an event; a request for any completion stays one. */
static inline void mic_cq_arm(struct mic_cq_ring *ring, bool solicited_only)
{
	_Atomic(__u32) *arm = (_Atomic(__u32) *)&ring->ctl->arm;
	__u32 none = MIC_CQ_ARM_NONE;

	if (solicited_only)
		atomic_compare_exchange_strong(arm, &none,
					       MIC_CQ_ARM_SOLICITED);
	else
		atomic_exchange(arm, MIC_CQ_ARM_NEXT);
	atomic_thread_fence(memory_order_seq_cst);
}

#endif /* MIC_RING_H */
