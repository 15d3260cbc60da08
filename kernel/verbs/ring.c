// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue memory.
 *
 * Pages, not a user mapping of a vmalloc area: they are charged to the memory
 * cgroup of the process that creates the queue, and a mapping that outlives
 * the queue holds its pages itself, so nothing has to track mappings.
 */
#include <linux/gfp.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "ring.h"
#include "uctx.h"

static void mic_buf_free_pages(struct mic_buf *buf)
{
	u32 i;

	for (i = 0; i < buf->npages && buf->page[i]; i++)
		__free_page(buf->page[i]);
	kvfree(buf->page);
}

static int mic_buf_alloc_pages(struct mic_buf *buf)
{
	u32 i;

	buf->page = kvcalloc(buf->npages, sizeof(*buf->page),
			     GFP_KERNEL_ACCOUNT);
	if (!buf->page)
		return -ENOMEM;
	for (i = 0; i < buf->npages; i++) {
		buf->page[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO |
					  __GFP_NOWARN);
		if (!buf->page[i]) {
			mic_buf_free_pages(buf);
			return -ENOMEM;
		}
		if (!(i % 1024))
			cond_resched();
	}
	return 0;
}

/* A page alone has an address already; small queues are made and gone fast. */
static void *mic_buf_map(const struct mic_buf *buf)
{
	return buf->npages == 1 ? page_address(buf->page[0]) :
		vmap(buf->page, buf->npages, VM_MAP, PAGE_KERNEL);
}

static void mic_buf_unmap(const struct mic_buf *buf)
{
	if (buf->npages > 1)
		vunmap(buf->va);
}

/**
 * mic_buf_create - allocate memory for a queue
 * @uctx: user context that will map it, or NULL
 * @size: bytes
 *
 * Context: process context.
 * Return: zeroed memory, or an ERR_PTR (-ENOMEM).
 */
struct mic_buf *mic_buf_create(struct mic_uctx *uctx, size_t size)
{
	struct mic_buf *buf;
	int err;

	buf = kzalloc(sizeof(*buf), GFP_KERNEL_ACCOUNT);
	if (!buf)
		return ERR_PTR(-ENOMEM);
	buf->uctx = uctx;
	buf->npages = PAGE_ALIGN(size) >> PAGE_SHIFT;

	err = mic_buf_alloc_pages(buf);
	if (err)
		goto err_free;
	buf->va = mic_buf_map(buf);
	if (!buf->va) {
		err = -ENOMEM;
		goto err_pages;
	}
	if (uctx) {
		err = mic_uctx_add_buf(uctx, buf);
		if (err)
			goto err_vmap;
	}
	return buf;

err_vmap:
	mic_buf_unmap(buf);
err_pages:
	mic_buf_free_pages(buf);
err_free:
	kfree(buf);
	return ERR_PTR(err);
}

/**
 * mic_buf_destroy - free the memory of a queue
 * @buf: buffer no engine code uses any more
 *
 * A user mapping of it stays valid, but leads nowhere.
 */
void mic_buf_destroy(struct mic_buf *buf)
{
	if (buf->uctx)
		mic_uctx_del_buf(buf->uctx, buf);
	mic_buf_unmap(buf);
	mic_buf_free_pages(buf);
	kfree(buf);
}

/**
 * mic_buf_info - what user space needs to map a buffer
 * @buf: buffer of a user context
 * @info: out
 */
void mic_buf_info(const struct mic_buf *buf, struct mic_mmap_info *info)
{
	info->offset = (u64)buf->mmap_id << PAGE_SHIFT;
	info->size = (u64)buf->npages << PAGE_SHIFT;
}

void mic_ring_layout(struct mic_ring *ring, u32 entries, u32 stride,
		     size_t *size)
{
	ring->info.ctl_offset = *size;
	ring->info.offset = *size + sizeof(struct mic_ring_ctl);
	ring->info.stride = stride;
	ring->info.entries = roundup_pow_of_two(entries);
	*size = ALIGN(ring->info.offset + (size_t)ring->info.entries * stride,
		      sizeof(struct mic_ring_ctl));
}

/**
 * mic_ring_attach - bind a ring to its memory
 * @ring: ring that was laid out
 * @buf: memory of at least the size it was laid out for
 */
void mic_ring_attach(struct mic_ring *ring, struct mic_buf *buf)
{
	ring->ctl = buf->va + ring->info.ctl_offset;
	ring->base = buf->va + ring->info.offset;
}

/**
 * mic_ring_reset - empty a ring
 * @ring: ring; the caller excludes the engine
 *
 * Both indices go back to 0; user space does the same with its own copies
 * when modify_qp to RESET returns.
 */
void mic_ring_reset(struct mic_ring *ring)
{
	ring->consumer = 0;
	ring->producer = 0;
	WRITE_ONCE(ring->ctl->producer, 0);
	WRITE_ONCE(ring->ctl->consumer, 0);
}
