/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Everything that differs between the supported kernels, 6.1 and later.
 */
#ifndef MIC_COMPAT_H
#define MIC_COMPAT_H

#include <linux/atomic.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/version.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

/* 6.3 made vm_flags read-only outside these helpers. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static inline void vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/* 6.7 lets a driver tell more of its SRQs. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)
#define MIC_FILL_RES_SRQ(fill)
#else
#define MIC_FILL_RES_SRQ(fill)	.fill_res_srq_entry = (fill),
#endif

/* 6.5 dropped the list of areas. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
#define mic_pin_user_pages_remote(mm, start, n, flags, pages, locked)	\
	pin_user_pages_remote(mm, start, n, flags, pages, NULL, locked)
#else
#define mic_pin_user_pages_remote(mm, start, n, flags, pages, locked)	\
	pin_user_pages_remote(mm, start, n, flags, pages, locked)
#endif

/* Before 6.6 pages of hugetlbfs are faulted in, whatever the flags of who pins say. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 6, 0)
#define MIC_HUGETLB_FAULTS	1
#else
#define MIC_HUGETLB_FAULTS	0
#endif

/* 6.11 passes the attribute bundle instead of the udata to create_cq. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
#define MIC_CREATE_CQ_ARG	ib_udata

static inline struct ib_udata *
mic_create_cq_udata(struct MIC_CREATE_CQ_ARG *arg)
{
	return arg;
}
#else
#define MIC_CREATE_CQ_ARG	uverbs_attr_bundle

static inline struct ib_udata *
mic_create_cq_udata(struct MIC_CREATE_CQ_ARG *arg)
{
	return arg ? &arg->driver_udata : NULL;
}
#endif

/* 6.2 made the caller of dma_buf_vmap() hold the reservation lock. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define mic_dma_buf_vmap	dma_buf_vmap
#define mic_dma_buf_vunmap	dma_buf_vunmap
#else
#define mic_dma_buf_vmap	dma_buf_vmap_unlocked
#define mic_dma_buf_vunmap	dma_buf_vunmap_unlocked
#endif

/* 6.2 has a name for it. */
#define MIC_DEVICE_ATOMIC_WRITE		BIT_ULL(40)

/* 6.2, and the later ones of 6.1, have this. */
#ifndef DEV_STATS_INC
#define DEV_STATS_INC(ndev, field)	\
	atomic_long_inc((atomic_long_t *)&(ndev)->stats.field)
#endif

/* 6.12 passes the attribute bundle instead of the udata here, too. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#define MIC_REG_DMABUF_ARG	ib_udata
#else
#define MIC_REG_DMABUF_ARG	uverbs_attr_bundle
#endif

/*
 * Compare and swap in memory that other machines have, too. A kernel for x86 that finds
 * one processor removes the lock prefix of its atomic instructions, in modules as well,
 * but not of this one. Other architectures leave theirs as they are.
 */
#ifdef CONFIG_X86_64
#define mic_cmpxchg_shared	sync_cmpxchg
#else
#define mic_cmpxchg_shared	cmpxchg
#endif

#endif /* MIC_COMPAT_H */
