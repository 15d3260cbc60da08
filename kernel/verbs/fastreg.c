// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Fast registration: regions of kernel consumers whose memory is set by
 * map_mr_sg and takes effect with a work request.
 */
#include <linux/log2.h>
#include <linux/slab.h>

#include "dev.h"
#include "mr.h"

struct ib_mr *mic_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type, u32 max_sg)
{
	struct mic_mr *mr;

	if (type != IB_MR_TYPE_MEM_REG)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_sg || max_sg > MIC_MAX_FAST_REG_PAGES)
		return ERR_PTR(-EINVAL);

	mr = mic_mr_create(ibpd, MIC_MKEY_FAST, 0);
	if (IS_ERR(mr))
		return ERR_CAST(mr);
	mr->win.block = kvcalloc(max_sg, sizeof(*mr->win.block), GFP_KERNEL);
	if (!mr->win.block) {
		mic_mr_destroy(mr);
		return ERR_PTR(-ENOMEM);
	}
	mr->win.shift = PAGE_SHIFT;
	mr->max_pages = max_sg;
	mr->mkey.revocable = true;
	mic_mkey_publish(to_mic_dev(ibpd->device), &mr->mkey);
	return &mr->ibmr;
}

static int mic_set_page(struct ib_mr *ibmr, u64 addr)
{
	struct mic_mr *mr = to_mic_mr(ibmr);

	if (mr->win.nblocks == mr->max_pages)
		return -ENOMEM;
	mr->win.block[mr->win.nblocks++] = (void *)(uintptr_t)addr;
	return 0;
}

/*
 * The consumer may not map a region that is in use (IBA 10.6.4.4), so the
 * window is changed in place.
 */
int mic_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int nents,
		  unsigned int *offset)
{
	struct mic_mr *mr = to_mic_mr(ibmr);

	mr->win.nblocks = 0;
	mr->win.shift = ilog2(ibmr->page_size);
	return ib_sg_to_pages(ibmr, sg, nents, offset, mic_set_page);
}
