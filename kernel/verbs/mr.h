/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory keys and memory regions.
 */
#ifndef MIC_MR_H
#define MIC_MR_H

#include <linux/completion.h>
#include <linux/iosys-map.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>

#include <mic/compat.h>
#include <mic/window.h>

struct mic_dev;
struct mic_fault;
struct mic_piece;

/**
 * struct mic_mkey - what an lkey or rkey stands for
 *
 * The fields from @key on change only while nobody can find the key, or, if it
 * is @revocable, while it is not @valid and has no @users.
 *
 * @ref: one for the owner while the key exists, one for each user under way
 * @gone: the last reference was dropped
 * @rcu: look-ups run under RCU
 * @key: index << 8 | variant; it is handed out again with the 256th turn of the
 *	indices (keys.c), but a window's owner and who registers fast choose variants
 * @revocable: the key can be invalidated without being destroyed
 * @users: revocable keys: copies under way on behalf of others
 * @lock: serialises changes of revocable keys, and binding to a region with
 *	deregistering it; a window's is taken before its region's
 * @window: it is the key of a memory window, no lkey
 * @qp: type 2 windows: number of the only QP that may use it, otherwise 0
 * @imports: windows of it that others have mapped, under mic_import_lock
 * @nimports: how many, likewise
 * @grants: what other nodes may map by means of it, likewise
 * @ngrants: how many, likewise
 * @mapped: there may have been one; set by a user of the key, likewise
 * @valid: the key grants access
 * @access: enum ib_access_flags
 * @pd: protection domain
 * @iova: address of the first byte
 * @length: bytes
 * @win: memory; NULL where it has to be pinned for each access
 * @win_off: where @iova is in @win
 * @mm: pages are looked up at each access in this address space, where @win_off
 *	is the address of the first byte; NULL if they are pinned
 */
struct mic_mkey {
	refcount_t ref;
	struct completion gone;
	struct rcu_head rcu;
	bool revocable;
	bool window;
	bool valid;
	atomic_t users;
	struct mutex lock;
	struct list_head imports;
	u32 nimports;
	struct list_head grants;
	u32 ngrants;
	bool mapped;
	u32 key;
	u32 qp;
	int access;
	struct ib_pd *pd;
	u64 iova;
	u64 length;
	const struct mic_window *win;
	u64 win_off;
	struct mm_struct *mm;
};

/**
 * enum mic_mkey_kind - what is behind a memory key
 * @MIC_MKEY_USER: region of pinned user memory
 * @MIC_MKEY_ODP: region of user memory whose pages are looked up each time
 * @MIC_MKEY_FAST: fast registration
 * @MIC_MKEY_DMABUF: region of a dma-buf
 * @MIC_MKEY_DM: region of device memory
 * @MIC_MKEY_NULL: region without memory
 * @MIC_MKEY_DMA: the kernel's region of everything
 * @MIC_MKEY_WINDOW: memory window
 * @MIC_MKEY_KINDS: how many kinds there are
 */
enum mic_mkey_kind {
	MIC_MKEY_USER,
	MIC_MKEY_ODP,
	MIC_MKEY_FAST,
	MIC_MKEY_DMABUF,
	MIC_MKEY_DM,
	MIC_MKEY_NULL,
	MIC_MKEY_DMA,
	MIC_MKEY_WINDOW,
	MIC_MKEY_KINDS
};

/**
 * struct mic_mr - memory region
 * @ibmr: ib_core's part
 * @kind: what is behind it
 * @mkey: its key
 * @win: its memory
 * @umem: pinned user memory, NULL for kernel regions
 * @owner: process whose memory @umem is
 * @dmabuf: buffer whose memory it is, or NULL
 * @attach: keeps @dmabuf where it is
 * @map: the kernel's mapping of @dmabuf
 * @piece: device memory that nodes share, whose it is, or NULL
 * @max_pages: fast registration: entries &mic_window.block has room for
 * @bound: memory windows bound to it, under &mic_mkey.lock
 * @user: on demand: who registered it
 * @fault_lock: on demand: protects @fault, @failed and @advised
 * @fault: on demand: pages that were asked for, or NULL
 * @failed: on demand: those that were not to be had, until who asked hears of it
 * @advised: on demand: pages that will be asked for, as its owner says, or NULL
 */
struct mic_mr {
	struct ib_mr ibmr;
	enum mic_mkey_kind kind;
	struct mic_mkey mkey;
	struct mic_window win;
	struct ib_umem *umem;
	struct pid *owner;
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attach;
	struct iosys_map map;
	struct mic_piece *piece;
	u32 max_pages;
	u32 bound;
	kuid_t user;
	spinlock_t fault_lock;
	struct mic_fault *fault;
	struct mic_fault *failed;
	struct mic_fault *advised;
};

/* The device memory behind a key that other nodes can map, or NULL. */
static inline struct mic_piece *mic_mkey_piece(struct mic_mkey *mkey)
{
	return mkey->window ? NULL :
			      container_of(mkey, struct mic_mr, mkey)->piece;
}

/* Is ordinary memory of a process behind a key, with its pages pinned? */
static inline bool mic_mkey_is_pinned(struct mic_mkey *mkey)
{
	return !mkey->window && container_of(mkey, struct mic_mr, mkey)->umem;
}

static inline struct mic_mr *to_mic_mr(struct ib_mr *ibmr)
{
	return container_of(ibmr, struct mic_mr, ibmr);
}

/* mkey.c */
int mic_mkey_alloc(struct mic_dev *dev, struct mic_mkey *mkey);
void mic_mkey_publish(struct mic_dev *dev, struct mic_mkey *mkey);
void mic_mkey_hide(struct mic_dev *dev, struct mic_mkey *mkey);
void mic_mkey_destroy(struct mic_dev *dev, struct mic_mkey *mkey);
struct mic_mkey *mic_mkey_get(struct mic_dev *dev, u32 key);
void mic_mkey_put(struct mic_mkey *mkey);
struct mic_mkey *mic_mkey_get_remote(struct mic_dev *dev, u32 key);
void mic_mkey_put_remote(struct mic_mkey *mkey);
void mic_mkey_stop(struct mic_mkey *mkey);
void mic_mkey_revoke(struct mic_mkey *mkey);
void mic_mkey_enable(struct mic_mkey *mkey);
int mic_mkey_seg(const struct mic_mkey *mkey, u32 key, const struct ib_pd *pd,
		 int access, u64 addr, u64 len, struct mic_seg *seg);

/* mr.c */
struct ib_mr *mic_get_dma_mr(struct ib_pd *ibpd, int access);
struct ib_mr *mic_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
			      u64 iova, int access, struct ib_udata *udata);
struct ib_mr *mic_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start,
				u64 length, u64 iova, int access,
				struct ib_pd *ibpd, struct ib_udata *udata);
int mic_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);
struct mic_mr *mic_mr_create(struct ib_pd *ibpd, enum mic_mkey_kind kind,
			     int access);
void mic_mr_destroy(struct mic_mr *mr);

/* dmabuf.c */
struct ib_mr *mic_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset,
				     u64 length, u64 iova, int fd, int access,
				     struct MIC_REG_DMABUF_ARG *arg);
void mic_dmabuf_unmap(struct mic_mr *mr);

/* fastreg.c */
struct ib_mr *mic_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
			   u32 max_sg);
int mic_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int nents,
		  unsigned int *offset);

#endif /* MIC_MR_H */
