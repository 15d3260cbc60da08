// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue memory, and device memory of this kernel.
 *
 * Pages, not a user mapping of a vmalloc area: they are charged to the memory
 * cgroup of the process that creates the queue. A mapping may outlive the queue,
 * its context and the device. The pages are there, and count, as long as it does.
 */
#include <linux/gfp.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "dev.h"
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

/*
 * A queue can't be swapped, as if it were memory of the process that is pinned, which
 * it is on other devices; so it counts with that.
 */
static int mic_buf_charge(struct mic_buf *buf)
{
	struct mm_struct *mm = current->mm;
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (atomic64_add_return(buf->npages, &mm->pinned_vm) > limit &&
	    !capable(CAP_IPC_LOCK)) {
		atomic64_sub(buf->npages, &mm->pinned_vm);
		return -ENOMEM;
	}
	mmgrab(mm);
	buf->mm = mm;
	return 0;
}

static void mic_buf_uncharge(struct mic_buf *buf)
{
	if (buf->mm) {
		atomic64_sub(buf->npages, &buf->mm->pinned_vm);
		mmdrop(buf->mm);
	}
	if (buf->dev) {
		atomic_long_sub((long)buf->npages << PAGE_SHIFT,
				&buf->dev->dm_bytes);
		put_device(&buf->dev->ibdev.dev);
	}
}

static int mic_buf_fill(struct mic_buf *buf)
{
	int err;

	err = mic_buf_alloc_pages(buf);
	if (err)
		return err;
	buf->va = mic_buf_map(buf);
	if (!buf->va) {
		err = -ENOMEM;
		goto err_pages;
	}
	if (buf->uctx) {
		err = mic_uctx_add_buf(buf->uctx, buf);
		if (err)
			goto err_vmap;
	}
	return 0;

err_vmap:
	mic_buf_unmap(buf);
err_pages:
	mic_buf_free_pages(buf);
	return err;
}

static struct mic_buf *mic_buf_new(struct mic_uctx *uctx, size_t size,
				   bool charge)
{
	struct mic_buf *buf;
	int err = 0;

	buf = kzalloc(sizeof(*buf), GFP_KERNEL_ACCOUNT);
	if (!buf)
		return ERR_PTR(-ENOMEM);
	refcount_set(&buf->ref, 1);
	buf->uctx = uctx;
	buf->npages = PAGE_ALIGN(size) >> PAGE_SHIFT;
	if (charge)
		err = mic_buf_charge(buf);
	if (err)
		goto err_free;
	err = mic_buf_fill(buf);
	if (err)
		goto err_charge;
	return buf;

err_charge:
	mic_buf_uncharge(buf);
err_free:
	kfree(buf);
	return ERR_PTR(err);
}

/**
 * mic_queue_buf_create - allocate memory for a queue
 * @uctx: user context that will map it; NULL for a kernel consumer
 * @size: bytes
 *
 * What a process has of it counts towards its RLIMIT_MEMLOCK, like memory that it
 * registers, until mic_buf_destroy(), and as long as it is mapped.
 *
 * Context: process context; with a @uctx, of the process that is charged.
 * Return: zeroed memory, or an ERR_PTR (-ENOMEM).
 */
struct mic_buf *mic_queue_buf_create(struct mic_uctx *uctx, size_t size)
{
	return mic_buf_new(uctx, size, uctx);
}

/**
 * mic_dm_buf_create - allocate device memory
 * @uctx: user context that will map it
 * @size: bytes, whose pages the caller has added to &mic_dev.dm_bytes
 *
 * They are subtracted there when the memory is neither in use nor mapped any more; if
 * this fails, the caller does so.
 *
 * Context: process context.
 * Return: zeroed memory, or an ERR_PTR (-ENOMEM).
 */
struct mic_buf *mic_dm_buf_create(struct mic_uctx *uctx, size_t size)
{
	struct mic_buf *buf = mic_buf_new(uctx, size, false);

	if (IS_ERR(buf))
		return buf;
	buf->dev = to_mic_dev(uctx->ibuctx.device);
	get_device(&buf->dev->ibdev.dev);
	return buf;
}

/**
 * mic_buf_get - one more maps a buffer
 * @buf: buffer that the caller knows to be there
 */
void mic_buf_get(struct mic_buf *buf)
{
	refcount_inc(&buf->ref);
}

/**
 * mic_buf_put - one less does
 * @buf: buffer; neither its context nor, but for the structure, its device need be there
 *
 * Context: process context, may sleep; also under any mmap_lock.
 */
void mic_buf_put(struct mic_buf *buf)
{
	if (!refcount_dec_and_test(&buf->ref))
		return;
	mic_buf_free_pages(buf);
	mic_buf_uncharge(buf);
	kfree(buf);
}

/**
 * mic_buf_destroy - free the memory of a queue, or device memory
 * @buf: buffer no engine code uses any more
 *
 * A user mapping of it stays valid, but leads nowhere. The pages are freed, and count
 * no more, with the last one.
 */
void mic_buf_destroy(struct mic_buf *buf)
{
	if (buf->uctx)
		mic_uctx_del_buf(buf->uctx, buf);
	mic_buf_unmap(buf);
	mic_buf_put(buf);
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
