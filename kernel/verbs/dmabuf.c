// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions of dma-bufs.
 *
 * The engine copies with the CPU, so the exporter has to map the buffer into
 * the kernel. With some exporters that does not pin it: to be attached does, for
 * who cannot be told that it moves. Exporters that can't, and buffers in I/O memory,
 * are refused.
 */
#include <linux/dma-buf.h>
#include <linux/iosys-map.h>
#include <linux/module.h>

#include <mic/compat.h>

#include "dev.h"
#include "mr.h"

static int mic_dmabuf_map(struct mic_mr *mr, int fd, u64 offset, u64 length)
{
	struct device *dev = &mr->ibmr.device->dev;
	struct dma_buf *dmabuf = dma_buf_get(fd);
	int err;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	err = -EINVAL;
	if (!length || offset > dmabuf->size || length > dmabuf->size - offset)
		goto err_put;
	mr->attach = dma_buf_attach(dmabuf, dev);
	if (IS_ERR(mr->attach)) {
		err = PTR_ERR(mr->attach);
		goto err_put;
	}
	err = mic_dma_buf_vmap(dmabuf, &mr->map);
	if (err)
		goto err_detach;
	if (mr->map.is_iomem) {
		mic_dma_buf_vunmap(dmabuf, &mr->map);
		err = -EOPNOTSUPP;
		goto err_detach;
	}
	mr->dmabuf = dmabuf;
	return 0;

err_detach:
	dma_buf_detach(dmabuf, mr->attach);
err_put:
	dma_buf_put(dmabuf);
	return err;
}

/**
 * mic_dmabuf_unmap - let go of a region's buffer
 * @mr: region, of a dma-buf or not
 */
void mic_dmabuf_unmap(struct mic_mr *mr)
{
	if (!mr->dmabuf)
		return;
	mic_dma_buf_vunmap(mr->dmabuf, &mr->map);
	dma_buf_detach(mr->dmabuf, mr->attach);
	dma_buf_put(mr->dmabuf);
	mr->dmabuf = NULL;
}

struct ib_mr *mic_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset,
				     u64 length, u64 iova, int fd, int access,
				     struct MIC_REG_DMABUF_ARG *arg)
{
	struct mic_mr *mr;
	int err;

	if (access & IB_ACCESS_ON_DEMAND || iova + length < iova)
		return ERR_PTR(-EINVAL);
	mr = mic_mr_create(ibpd, MIC_MKEY_DMABUF, access);
	if (IS_ERR(mr))
		return ERR_CAST(mr);
	err = mic_dmabuf_map(mr, fd, offset, length);
	if (err) {
		mic_mr_destroy(mr);
		return ERR_PTR(err);
	}
	/* linear: an offset in the window is an address */
	mr->mkey.win_off = (uintptr_t)mr->map.vaddr + offset;
	mr->mkey.iova = iova;
	mr->mkey.length = length;
	mr->mkey.valid = true;
	mr->ibmr.iova = iova;
	mr->ibmr.length = length;
	mic_mkey_publish(to_mic_dev(ibpd->device), &mr->mkey);
	return &mr->ibmr;
}

MODULE_IMPORT_NS(DMA_BUF);
