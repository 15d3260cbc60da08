/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory of queues, and of the device, and the kernel's view of a work queue in it.
 */
#ifndef MIC_RING_H
#define MIC_RING_H

#include <linux/refcount.h>
#include <linux/types.h>
#include <rdma/mic-abi.h>

struct mic_dev;
struct mic_uctx;
struct mm_struct;
struct page;

/**
 * struct mic_buf - memory a queue lives in, or device memory
 * @ref: one for the queue, one for each area of an address space that maps it
 * @va: kernel mapping, while there is the queue
 * @page: its pages
 * @npages: number of pages
 * @uctx: context that can map it, NULL for a kernel consumer
 * @mm: address space it is charged to, or NULL
 * @dev: device whose memory it counts as, with a reference to the structure, or NULL
 * @mmap_id: index in &mic_uctx.bufs
 */
struct mic_buf {
	refcount_t ref;
	void *va;
	struct page **page;
	u32 npages;
	struct mic_uctx *uctx;
	struct mm_struct *mm;
	struct mic_dev *dev;
	u32 mmap_id;
};

struct mic_buf *mic_queue_buf_create(struct mic_uctx *uctx, size_t size);
struct mic_buf *mic_dm_buf_create(struct mic_uctx *uctx, size_t size);
void mic_buf_get(struct mic_buf *buf);
void mic_buf_put(struct mic_buf *buf);
void mic_buf_destroy(struct mic_buf *buf);
void mic_buf_info(const struct mic_buf *buf, struct mic_mmap_info *info);

/**
 * struct mic_ring - the kernel's side of a work queue
 * @ctl: control block in shared memory
 * @base: first element in shared memory
 * @info: geometry, the kernel's copy
 * @consumer: the kernel's own consumer index
 * @producer: kernel consumers: the kernel's own producer index
 *
 * The holder of the queue's lock may use the ring.
 */
struct mic_ring {
	struct mic_ring_ctl *ctl;
	u8 *base;
	struct mic_ring_info info;
	u32 consumer;
	u32 producer;
};

/**
 * mic_ring_layout - place a ring in a buffer to be created
 * @ring: out: geometry
 * @entries: elements wanted, rounded up to a power of two
 * @stride: bytes an element takes, a multiple of 16
 * @size: in: bytes already used, out: bytes used
 */
void mic_ring_layout(struct mic_ring *ring, u32 entries, u32 stride,
		     size_t *size);
void mic_ring_attach(struct mic_ring *ring, struct mic_buf *buf);
void mic_ring_reset(struct mic_ring *ring);

/**
 * mic_ring_pending - how many elements wait
 * @ring: ring
 *
 * Return: the number of elements, or -EINVAL if the producer index makes no
 * sense.
 */
static inline int mic_ring_pending(const struct mic_ring *ring)
{
	/* acquire: the index, then the elements it covers */
	u32 n = smp_load_acquire(&ring->ctl->producer) - ring->consumer;

	return n <= ring->info.entries ? (int)n : -EINVAL;
}

/* The element so many after that which the consumer is at. Shared memory. */
static inline const void *mic_ring_ahead(const struct mic_ring *ring, u32 ahead)
{
	u32 slot = (ring->consumer + ahead) & (ring->info.entries - 1);

	return ring->base + (size_t)slot * ring->info.stride;
}

/* The element the consumer is at. Shared memory: copy it, then look at it. */
static inline const void *mic_ring_head(const struct mic_ring *ring)
{
	return mic_ring_ahead(ring, 0);
}

/* Give the consumer's slot back to the producer. */
static inline void mic_ring_advance(struct mic_ring *ring)
{
	/* release: done reading, the producer may overwrite */
	smp_store_release(&ring->ctl->consumer, ++ring->consumer);
}

/* Kernel producers: the slot to fill, or NULL if the ring is full. */
static inline void *mic_ring_slot(const struct mic_ring *ring)
{
	/* acquire: the consumer has read the slots it gives back */
	u32 used = ring->producer - smp_load_acquire(&ring->ctl->consumer);

	if (used >= ring->info.entries)
		return NULL;
	return ring->base + (size_t)(ring->producer & (ring->info.entries - 1)) *
			    ring->info.stride;
}

/* Kernel producers: publish the slot just filled. */
static inline void mic_ring_produce(struct mic_ring *ring)
{
	/* release: the element, then the index that covers it */
	smp_store_release(&ring->ctl->producer, ++ring->producer);
}

#endif /* MIC_RING_H */
