// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions of user memory, and the kernel's region of everything.
 */
#include <linux/slab.h>
#include <rdma/ib_umem.h>
#include <rdma/iter.h>

#include "dev.h"
#include "mr.h"

/* A new region with a key that nobody can find yet. */
static struct mic_mr *mic_mr_create(struct ib_pd *ibpd, int access)
{
	struct mic_dev *dev = to_mic_dev(ibpd->device);
	struct mic_mr *mr;
	int err;

	err = mic_limit_get(&dev->nmr, MIC_MAX_MR);
	if (err)
		return ERR_PTR(err);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr) {
		err = -ENOMEM;
		goto err_count;
	}
	err = mic_mkey_alloc(dev, &mr->mkey);
	if (err)
		goto err_free;
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

static void mic_mr_destroy(struct mic_mr *mr)
{
	struct mic_dev *dev = to_mic_dev(mr->ibmr.device);

	mic_mkey_destroy(dev, &mr->mkey);
	kvfree(mr->win.block);
	if (mr->umem)
		ib_umem_release(mr->umem);
	atomic_dec(&dev->nmr);
	kfree_rcu(mr, mkey.rcu);
}

struct ib_mr *mic_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct mic_mr *mr = mic_mr_create(ibpd, access);

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
				       GFP_KERNEL_ACCOUNT);
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

struct ib_mr *mic_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
			      u64 iova, int access, struct ib_udata *udata)
{
	struct mic_mr *mr;
	int err;

	if (!length || iova + length < iova)
		return ERR_PTR(-EINVAL);

	mr = mic_mr_create(ibpd, access);
	if (IS_ERR(mr))
		return ERR_CAST(mr);
	mr->umem = ib_umem_get(ibpd->device, start, length, access);
	if (IS_ERR(mr->umem)) {
		err = PTR_ERR(mr->umem);
		mr->umem = NULL;
		goto err_mr;
	}
	err = mic_mr_map_umem(mr);
	if (err)
		goto err_mr;
	mr->mkey.iova = iova;
	mr->mkey.length = length;
	mr->mkey.valid = true;
	mr->ibmr.iova = iova;
	mr->ibmr.length = length;
	mr->ibmr.page_size = 1U << mr->win.shift;
	mic_mkey_publish(to_mic_dev(ibpd->device), &mr->mkey);
	return &mr->ibmr;

err_mr:
	mic_mr_destroy(mr);
	return ERR_PTR(err);
}

int mic_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	mic_mr_destroy(to_mic_mr(ibmr));
	return 0;
}
