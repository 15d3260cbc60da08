// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * On-demand paging.
 *
 * Such a region is an address space and a range of it. Nothing is pinned while
 * nothing is copied: each segment of a message looks its pages up, brings in
 * what is not there, and lets go of them when it is done. So there is nothing
 * to be told when the owner unmaps or moves them, and a region may be larger
 * than the memory, up to the whole address space.
 *
 * Whose pages they are is somebody else than who copies, with the locks of two
 * queue pairs held, so nothing here waits for the owner: not for its mmap lock,
 * nor for a device or a program that has to provide a page. What is not at hand
 * is asked for (odp_fault.c), and the access is told to come again: the responder
 * answers RNR, the requester rests.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <rdma/uverbs_ioctl.h>

#include <mic/compat.h>

#include "dev.h"
#include "mr.h"
#include "odp.h"

#define MIC_ODP_RC_CAPS (IB_ODP_SUPPORT_SEND | IB_ODP_SUPPORT_RECV |	\
			 IB_ODP_SUPPORT_WRITE | IB_ODP_SUPPORT_READ |	\
			 IB_ODP_SUPPORT_ATOMIC | IB_ODP_SUPPORT_SRQ_RECV)

/* What is brought in at a time when a program asks for it beforehand. */
#define MIC_ODP_PREFETCH_BYTES	SZ_256K

/* Whoever is to flush a piece waits so long. */
#define MIC_ODP_FLUSH_HZ	(5 * HZ)

static struct mic_pin *mic_pin_alloc(u32 npages, bool write)
{
	struct mic_pin *pin;

	pin = kvzalloc(struct_size(pin, page, 2UL * npages), GFP_KERNEL);
	if (!pin)
		return NULL;
	pin->write = write;
	pin->win.block = (void **)&pin->page[npages];
	pin->win.nblocks = npages;
	pin->win.shift = PAGE_SHIFT;
	return pin;
}

/**
 * mic_odp_pin_pages - mic_odp_pin() for a region that needs it
 * @mkey: key of the region, held by the caller
 * @seg: piece, from mic_mkey_seg(); its window is that of the pages afterwards
 * @from: first byte of the piece that is going to be copied
 * @to: first byte after
 * @write: it is going to be written
 * @pins: list of what mic_odp_unpin() has to let go
 *
 * Return: 0, -EFAULT or -EAGAIN.
 */
int mic_odp_pin_pages(struct mic_mkey *mkey, struct mic_seg *seg,
		      u32 from, u32 to, bool write, struct mic_pin **pins)
{
	u64 first = (seg->off + from) & PAGE_MASK;
	u64 last = (seg->off + to - 1) & PAGE_MASK;
	struct mic_pin *pin;
	struct mic_mr *mr;
	u32 i;
	int err;

	if (from >= to)
		return 0;
	pin = mic_pin_alloc(((last - first) >> PAGE_SHIFT) + 1, write);
	if (!pin)
		return -EAGAIN;
	/* a memory window has no address space, it is a region */
	mr = container_of(mkey, struct mic_mr, mkey);
	err = mic_pin_fill(mr, pin, first);
	if (err) {
		mic_pin_free(pin);
		return err;
	}
	for (i = 0; i < pin->npages; i++)
		pin->win.block[i] = page_address(pin->page[i]);
	/* wraps for a piece that begins before its pages, and back */
	seg->off -= first;
	seg->win = &pin->win;
	pin->next = *pins;
	*pins = pin;
	return 0;
}

/**
 * mic_odp_unpin_pages - mic_odp_unpin() for a list that is not empty
 * @pins: list
 */
void mic_odp_unpin_pages(struct mic_pin **pins)
{
	struct mic_pin *pin;

	while ((pin = *pins)) {
		*pins = pin->next;
		mic_pin_free(pin);
	}
}

/**
 * mic_odp_reg_mr - register a range, or all, of the caller's address space
 * @ibpd: protection domain
 * @start: first byte; 0 for all
 * @length: bytes; U64_MAX for all
 * @iova: what consumers call the first byte
 * @access: enum ib_access_flags
 *
 * Return: the region, or an ERR_PTR.
 */
struct ib_mr *mic_odp_reg_mr(struct ib_pd *ibpd, u64 start, u64 length,
			     u64 iova, int access)
{
	struct mic_mr *mr;

	start = untagged_addr(start);
	if (!length || start + length < start || iova + length < iova)
		return ERR_PTR(-EINVAL);
	mr = mic_mr_create(ibpd, MIC_MKEY_ODP, access);
	if (IS_ERR(mr))
		return ERR_CAST(mr);
	spin_lock_init(&mr->fault_lock);
	mmgrab(current->mm);
	mr->mkey.mm = current->mm;
	mr->user = mic_fault_user();
	mr->mkey.win = NULL;	/* until it is pinned there is none */
	mr->mkey.win_off = start;
	mr->mkey.iova = iova;
	mr->mkey.length = length;
	mr->ibmr.iova = iova;
	mr->ibmr.length = length;
	mr->ibmr.page_size = PAGE_SIZE;
	mr->mkey.valid = true;
	mic_mkey_publish(to_mic_dev(ibpd->device), &mr->mkey);
	return &mr->ibmr;
}

/**
 * mic_odp_release - let go of a region's address space
 * @mr: region whose key is unknown by now
 */
void mic_odp_release(struct mic_mr *mr)
{
	mic_fault_forget(mr);
	if (mr->mkey.mm)
		mmdrop(mr->mkey.mm);
	mr->mkey.mm = NULL;
}

/**
 * mic_odp_caps - what can be done with such regions
 * @attr: out
 */
void mic_odp_caps(struct ib_device_attr *attr)
{
	struct ib_odp_caps *caps = &attr->odp_caps;

	attr->kernel_cap_flags |= IBK_ON_DEMAND_PAGING;
	caps->general_caps = IB_ODP_SUPPORT | IB_ODP_SUPPORT_IMPLICIT;
	caps->per_transport_caps.rc_odp_caps = MIC_ODP_RC_CAPS;
	caps->per_transport_caps.xrc_odp_caps = MIC_ODP_RC_CAPS;
	caps->per_transport_caps.uc_odp_caps = IB_ODP_SUPPORT_SEND |
					       IB_ODP_SUPPORT_RECV |
					       IB_ODP_SUPPORT_WRITE |
					       IB_ODP_SUPPORT_SRQ_RECV;
	caps->per_transport_caps.ud_odp_caps = IB_ODP_SUPPORT_SEND |
					       IB_ODP_SUPPORT_RECV |
					       IB_ODP_SUPPORT_SRQ_RECV;
}

/* Have two domains the same context? The kernel's have none. */
static bool mic_same_context(const struct ib_pd *pd, const struct ib_pd *other)
{
	return pd->uobject && other->uobject &&
	       pd->uobject->context == other->uobject->context;
}

/*
 * As ibv_advise_mr(3) has it. Of another context's key nobody hears that there is one:
 * he could find all of them out.
 */
static int mic_advise_check(const struct mic_mkey *mkey, struct ib_pd *ibpd,
			    bool write, const struct ib_sge *sge,
			    struct mic_seg *seg)
{
	int err;

	if (READ_ONCE(mkey->key) != sge->lkey)
		return -ENOENT;
	if (mkey->pd != ibpd)
		return mic_same_context(mkey->pd, ibpd) ? -EPERM : -ENOENT;
	/* a window, or a region that needs no advice */
	if (!mkey->mm)
		return -EINVAL;
	err = mic_mkey_seg(mkey, sge->lkey, ibpd,
			   write ? IB_ACCESS_LOCAL_WRITE : 0, sge->addr,
			   sge->length, seg);
	switch (err) {
	case -EACCES:
		return -EPERM;
	case -ERANGE:
		return -EFAULT;
	default:
		return err;
	}
}

static struct mic_mkey *mic_advise_get(struct ib_pd *ibpd, bool write,
				       const struct ib_sge *sge,
				       struct mic_seg *seg)
{
	struct mic_mkey *mkey;
	int err;

	mkey = mic_mkey_get(to_mic_dev(ibpd->device), sge->lkey);
	if (!mkey)
		return ERR_PTR(-ENOENT);
	err = mic_advise_check(mkey, ibpd, write, sge, seg);
	if (!err)
		return mkey;
	mic_mkey_put(mkey);
	return ERR_PTR(err);
}

/* Bring pages in, and let them go again. */
static int mic_prefetch(struct ib_pd *ibpd, bool write,
			const struct ib_sge *sge)
{
	struct mic_pin *pins = NULL;
	struct mic_mkey *mkey;
	struct mic_seg seg;
	int err;

	mkey = mic_advise_get(ibpd, write, sge, &seg);
	if (IS_ERR(mkey))
		return PTR_ERR(mkey);
	err = mic_odp_pin(mkey, &seg, 0, seg.len, write, &pins);
	mic_odp_unpin(&pins);
	mic_mkey_put(mkey);
	return err;
}

/*
 * Until the pages are there; but whoever has to provide them may never do so, or slowly,
 * and meanwhile the device can't go.
 */
static int mic_prefetch_wait(struct ib_pd *ibpd, bool write,
			     const struct ib_sge *sge)
{
	unsigned long end = jiffies + MIC_ODP_FLUSH_HZ;
	int err;

	while ((err = mic_prefetch(ibpd, write, sge)) == -EAGAIN) {
		if (READ_ONCE(to_mic_dev(ibpd->device)->leaving))
			return -EIO;
		if (time_after(jiffies, end))
			return -ETIMEDOUT;
		if (msleep_interruptible(1))
			return -EINTR;
	}
	return err;
}

/* Leave the rest, of which some is not at hand, to a worker. */
static int mic_prefetch_later(struct ib_pd *ibpd, bool write,
			      const struct ib_sge *sge)
{
	struct mic_mkey *mkey;
	struct mic_seg seg;
	u64 first, last;

	mkey = mic_advise_get(ibpd, write, sge, &seg);
	if (IS_ERR(mkey))
		return PTR_ERR(mkey);
	first = seg.off & PAGE_MASK;
	last = (seg.off + seg.len - 1) & PAGE_MASK;
	mic_fault_advise(container_of(mkey, struct mic_mr, mkey), first,
			 ((last - first) >> PAGE_SHIFT) + 1, write);
	mic_mkey_put(mkey);
	return 0;
}

/* In pieces: whoever wants to deregister the memory need not wait for all. */
static int mic_prefetch_range(struct ib_pd *ibpd, bool write, bool flush,
			      const struct ib_sge *sge)
{
	struct ib_sge piece = *sge;
	u32 done;
	int err = 0;

	for (done = 0; done < sge->length && !err; done += piece.length) {
		piece.addr = sge->addr + done;
		piece.length = min_t(u32, sge->length - done,
				     MIC_ODP_PREFETCH_BYTES);
		err = flush ? mic_prefetch_wait(ibpd, write, &piece) :
			      mic_prefetch(ibpd, write, &piece);
		if (fatal_signal_pending(current))
			return -EINTR;
		if (READ_ONCE(to_mic_dev(ibpd->device)->leaving))
			return -EIO;
		cond_resched();
		/* the first piece again: its pages need not have been asked for */
		if (err == -EAGAIN && sge->length - done > piece.length) {
			piece.length = sge->length - done;
			return mic_prefetch_later(ibpd, write, &piece);
		}
	}
	return err;
}

static int mic_advise_sge(struct ib_pd *ibpd,
			  enum ib_uverbs_advise_mr_advice advice, bool flush,
			  const struct ib_sge *sge)
{
	bool write = advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	struct mic_mkey *mkey;
	struct mic_seg seg;
	int err;

	mkey = mic_advise_get(ibpd, write, sge, &seg);
	if (IS_ERR(mkey))
		return PTR_ERR(mkey);
	mic_mkey_put(mkey);
	if (advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return 0;
	err = mic_prefetch_range(ibpd, write, flush, sge);
	/* then it is only advice */
	return (err == -EFAULT || err == -EAGAIN) && !flush ? 0 : err;
}

/* Without IB_UVERBS_ADVISE_MR_FLAG_FLUSH pages need not come. */
int mic_advise_mr(struct ib_pd *ibpd, enum ib_uverbs_advise_mr_advice advice,
		  u32 flags, struct ib_sge *sg_list, u32 num_sge,
		  struct uverbs_attr_bundle *attrs)
{
	bool flush = flags & IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
	int err = 0;
	u32 i;

	switch (advice) {
	case IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH:
	case IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE:
	case IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT:
		break;
	default:
		return -EOPNOTSUPP;
	}
	for (i = 0; i < num_sge && !err; i++)
		err = mic_advise_sge(ibpd, advice, flush, &sg_list[i]);
	return err;
}
