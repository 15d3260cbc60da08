// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions of user memory, and the kernel's region of everything.
 */
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <rdma/ib_umem.h>
#include <rdma/iter.h>
#include <rdma/mic-abi.h>
#include <rdma/uverbs_ioctl.h>

#include "dev.h"
#include "mr.h"
#include "odp.h"
#include "uctx.h"

/**
 * mic_mr_create - make a region with a key that nobody can find yet
 * @ibpd: protection domain
 * @kind: what will be behind it
 * @access: enum ib_access_flags
 *
 * Return: the region, or an ERR_PTR (-ENOMEM).
 */
struct mic_mr *mic_mr_create(struct ib_pd *ibpd, enum mic_mkey_kind kind,
			     int access)
{
	struct mic_dev *dev = to_mic_dev(ibpd->device);
	struct mic_mr *mr;
	int err;

	err = mic_limit_get(&dev->nmr, MIC_MAX_MR);
	if (err)
		return ERR_PTR(err);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr) {
		err = -ENOMEM;
		goto err_count;
	}
	err = mic_mkey_alloc(dev, &mr->mkey);
	if (err)
		goto err_free;
	mr->kind = kind;
	mr->mkey.pd = ibpd;
	mr->mkey.access = access;
	mr->mkey.win = &mr->win;
	mr->ibmr.lkey = mr->mkey.key;
	mr->ibmr.rkey = mr->mkey.key;
	mr->ibmr.device = ibpd->device;
	return mr;

err_free:
	kfree(mr);
err_count:
	atomic_dec(&dev->nmr);
	return ERR_PTR(err);
}

static void mic_mr_unmap(struct mic_mr *mr)
{
	kvfree(mr->win.block);
	mr->win.block = NULL;
	if (mr->umem)
		ib_umem_release(mr->umem);
	mr->umem = NULL;
	put_pid(mr->owner);
	mr->owner = NULL;
}

/**
 * mic_mr_destroy - free a region, and let go of its memory
 * @mr: region, published or not
 */
void mic_mr_destroy(struct mic_mr *mr)
{
	struct mic_dev *dev = to_mic_dev(mr->ibmr.device);

	mic_mkey_destroy(dev, &mr->mkey);
	mic_mr_unmap(mr);
	mic_dmabuf_unmap(mr);
	mic_odp_release(mr);
	atomic_dec(&dev->nmr);
	kfree_rcu(mr, mkey.rcu);
}

struct ib_mr *mic_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct mic_mr *mr = mic_mr_create(ibpd, MIC_MKEY_DMA, access);

	if (IS_ERR(mr))
		return ERR_CAST(mr);
	/* DMA addresses of this device are kernel addresses */
	mr->mkey.length = U64_MAX;
	mr->mkey.valid = true;
	mic_mkey_publish(to_mic_dev(ibpd->device), &mr->mkey);
	return &mr->ibmr;
}

/*
 * Build the block table of pinned memory. The blocks are as large as the
 * memory's layout allows: a region of huge pages has few.
 */
static int mic_mr_map_umem(struct mic_mr *mr)
{
	struct ib_umem *umem = mr->umem;
	struct ib_block_iter biter;
	unsigned long size;
	size_t n;
	u32 i = 0;

	size = ib_umem_find_best_pgsz(umem, GENMASK(30, PAGE_SHIFT),
				      umem->address);
	if (!size)
		return -EINVAL;
	n = ib_umem_num_dma_blocks(umem, size);
	mr->win.block = kvmalloc_array(n, sizeof(*mr->win.block),
				       GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!mr->win.block)
		return -ENOMEM;
	rdma_umem_for_each_dma_block(umem, &biter, size) {
		if (WARN_ON(i >= n))
			return -EINVAL;
		mr->win.block[i++] =
			(void *)(uintptr_t)rdma_block_iter_dma_address(&biter);
	}
	mr->win.nblocks = i;
	mr->win.shift = ilog2(size);
	mr->mkey.win_off = umem->address & (size - 1);
	return 0;
}

/* Pin user memory and make it the region's. */
static int mic_mr_pin(struct mic_mr *mr, u64 start, u64 length, u64 iova,
		      int access)
{
	int err;

	if (!length || iova + length < iova)
		return -EINVAL;
	mr->umem = ib_umem_get(mr->ibmr.device, start, length, access);
	if (IS_ERR(mr->umem)) {
		err = PTR_ERR(mr->umem);
		mr->umem = NULL;
		return err;
	}
	mr->owner = get_pid(task_tgid(current));
	err = mic_mr_map_umem(mr);
	if (err) {
		mic_mr_unmap(mr);
		return err;
	}
	mr->mkey.iova = iova;
	mr->mkey.length = length;
	mr->ibmr.iova = iova;
	mr->ibmr.length = length;
	mr->ibmr.page_size = 1U << mr->win.shift;
	return 0;
}

/* The driver's part of the command, which may be left out. */
static int mic_reg_mr_cmd(struct ib_udata *udata, struct mic_reg_mr_cmd *cmd)
{
	int err;

	memset(cmd, 0, sizeof(*cmd));
	/* kernel consumers have none */
	if (!udata || !udata->inlen)
		return 0;
	if (udata->inlen < sizeof(*cmd))
		return -EINVAL;
	err = mic_udata_check(udata, sizeof(*cmd));
	if (err)
		return err;
	err = ib_copy_from_udata(cmd, udata, sizeof(*cmd));
	if (err)
		return err;
	if (cmd->flags & ~MIC_REG_MR_NULL || cmd->reserved)
		return -EOPNOTSUPP;
	return 0;
}

/* A region without memory. It has no rights that a peer could use. */
static struct ib_mr *mic_reg_null_mr(struct ib_pd *ibpd, u64 start, u64 length,
				     u64 iova, int access)
{
	struct mic_mr *mr;

	if (start || length || iova || access & ~IB_ACCESS_LOCAL_WRITE)
		return ERR_PTR(-EINVAL);
	mr = mic_mr_create(ibpd, MIC_MKEY_NULL, IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(mr))
		return ERR_CAST(mr);
	mr->win.null = true;
	mr->mkey.length = U64_MAX;
	mr->mkey.valid = true;
	mic_mkey_publish(to_mic_dev(ibpd->device), &mr->mkey);
	return &mr->ibmr;
}

static struct ib_mr *mic_reg_mr(struct ib_pd *ibpd, u64 start, u64 length,
				u64 iova, int access, struct ib_udata *udata)
{
	struct mic_reg_mr_cmd cmd;
	struct mic_mr *mr;
	int err;

	err = mic_reg_mr_cmd(udata, &cmd);
	if (err)
		return ERR_PTR(err);
	if (cmd.flags & MIC_REG_MR_NULL)
		return mic_reg_null_mr(ibpd, start, length, iova, access);
	if (!current->mm)
		return ERR_PTR(-EINVAL);
	if (access & IB_ZERO_BASED)
		iova = 0;
	if (access & IB_ACCESS_ON_DEMAND)
		return mic_odp_reg_mr(ibpd, start, length, iova, access);

	mr = mic_mr_create(ibpd, MIC_MKEY_USER, access);
	if (IS_ERR(mr))
		return ERR_CAST(mr);
	err = mic_mr_pin(mr, start, length, iova, access);
	if (err) {
		mic_mr_destroy(mr);
		return ERR_PTR(err);
	}
	mr->mkey.valid = true;
	mic_mkey_publish(to_mic_dev(ibpd->device), &mr->mkey);
	return &mr->ibmr;
}

struct ib_mr *mic_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
			      u64 iova, int access, struct ib_udata *udata)
{
	struct ib_mr *ibmr = mic_reg_mr(ibpd, start, length, iova, access,
					udata);

	if (IS_ERR(ibmr))
		ibdev_dbg(ibpd->device,
			  "reg_mr: length %llu access %#x: %pe\n", length,
			  access, ibmr);
	return ibmr;
}

/*
 * From now on no window can be bound to the region. One that is would show
 * memory that is gone, IBA 11.2.8.4.
 */
static int mic_mr_close(struct mic_mr *mr)
{
	int err = 0;

	mutex_lock(&mr->mkey.lock);
	if (mr->bound)
		err = -EBUSY;
	else
		WRITE_ONCE(mr->mkey.valid, false);
	mutex_unlock(&mr->mkey.lock);
	return err;
}

/*
 * Changed in place: the key is unknown meanwhile, and stays so if the new
 * memory can't be had (IBA 11.2.8.5: the region is then invalid).
 */
struct ib_mr *mic_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start,
				u64 length, u64 iova, int access,
				struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct mic_dev *dev = to_mic_dev(ibmr->device);
	struct mic_mr *mr = to_mic_mr(ibmr);
	bool repin;
	int err;

	err = mic_udata_check(udata, 0);
	if (err)
		return ERR_PTR(err);
	if (flags & ~IB_MR_REREG_SUPPORTED)
		return ERR_PTR(-EOPNOTSUPP);
	if (flags & IB_MR_REREG_ACCESS && access & IB_ACCESS_ON_DEMAND)
		return ERR_PTR(-EOPNOTSUPP);
	if (mr->kind != MIC_MKEY_USER)
		return ERR_PTR(-EOPNOTSUPP);
	if (!mr->umem)
		return ERR_PTR(-EINVAL);
	/* more rights may need pages that were pinned for reading only */
	repin = flags & IB_MR_REREG_ACCESS && !(flags & IB_MR_REREG_TRANS) &&
		ib_access_writable(access) && !mr->umem->writable;
	/* at this address another process has something else */
	if (repin && mr->umem->owning_mm != current->mm)
		return ERR_PTR(-EINVAL);
	err = mic_mr_close(mr);
	if (err)
		return ERR_PTR(err);

	mic_mkey_hide(dev, &mr->mkey);
	if ((flags & IB_MR_REREG_ACCESS ? access : mr->mkey.access) &
	    IB_ZERO_BASED)
		iova = 0;
	if (repin) {
		flags |= IB_MR_REREG_TRANS;
		start = mr->umem->address;
		length = mr->umem->length;
		iova = mr->mkey.iova;
	}
	if (flags & IB_MR_REREG_TRANS) {
		mic_mr_unmap(mr);
		err = mic_mr_pin(mr, start, length, iova,
				 flags & IB_MR_REREG_ACCESS ? access :
							      mr->mkey.access);
	}
	if (err)
		goto err_invalid;
	if (flags & IB_MR_REREG_ACCESS)
		mr->mkey.access = access;
	if (flags & IB_MR_REREG_PD)
		mr->mkey.pd = ibpd;
	mic_mkey_enable(&mr->mkey);
	mic_mkey_publish(dev, &mr->mkey);
	return NULL;

err_invalid:
	mic_mkey_publish(dev, &mr->mkey);
	return ERR_PTR(err);
}

int mic_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct mic_mr *mr = to_mic_mr(ibmr);

	int err = mic_mr_close(mr);

	if (err)
		return err;
	mic_mr_destroy(mr);
	return 0;
}
