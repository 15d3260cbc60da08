// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Device memory, which its owner maps and copies to and from, and others reach
 * through a region. Where the device is on memory that nodes share, it is a piece
 * of that, else kernel memory out of a bounded pool.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <rdma/uverbs_ioctl.h>
#define UVERBS_MODULE_NAME ib_mic
#include <rdma/uverbs_named_ioctl.h>

#include <mic/compat.h>
#include <mic/share.h>

#include "dev.h"
#include "dm.h"
#include "mr.h"
#include "ring.h"
#include "uctx.h"

/* The pool is of pages, so each piece counts as many bytes as its pages have. */
static int mic_dm_charge(struct mic_dev *dev, u64 length)
{
	if (length > MIC_MAX_DM)
		return -ENOMEM;
	if (atomic_long_add_return(PAGE_ALIGN(length), &dev->dm_bytes) >
	    MIC_MAX_DM) {
		atomic_long_sub(PAGE_ALIGN(length), &dev->dm_bytes);
		return -ENOMEM;
	}
	return 0;
}

static void mic_dm_uncharge(struct mic_dev *dev, u64 length)
{
	atomic_long_sub(PAGE_ALIGN(length), &dev->dm_bytes);
}

/* The last mapping of the memory is gone, and so is the memory for its owner. */
void mic_mmap_free(struct rdma_user_mmap_entry *entry)
{
	struct mic_dm_map *map = container_of(entry, struct mic_dm_map, entry);

	mic_piece_put(map->piece);
	mic_dm_uncharge(to_mic_dev(entry->ucontext->device), map->length);
	kfree(map);
}

/* Queues are mapped by the doorbell file; this is device memory. */
int mic_mmap(struct ib_ucontext *ibuctx, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry;
	struct mic_dm_map *map;
	int err;

	entry = rdma_user_mmap_entry_get(ibuctx, vma);
	if (!entry)
		return -EINVAL;
	map = container_of(entry, struct mic_dm_map, entry);
	vm_flags_set(vma, VM_DONTCOPY);	/* as what the doorbell file maps */
	err = rdma_user_mmap_io(ibuctx, vma, PHYS_PFN(map->piece->phys),
				map->piece->size, vma->vm_page_prot, entry);
	rdma_user_mmap_entry_put(entry);
	return err;
}

/* Memory that nodes share, and a place in the context's file to map it. */
static int mic_dm_take_piece(struct mic_dm *dm, struct mic_piece *piece,
			     struct ib_ucontext *ibuctx, u64 length)
{
	struct mic_dm_map *map;
	int err;

	map = kzalloc(sizeof(*map), GFP_KERNEL_ACCOUNT);
	if (!map)
		return -ENOMEM;
	map->piece = piece;
	map->length = length;
	err = rdma_user_mmap_entry_insert(ibuctx, &map->entry, piece->size);
	if (err) {
		kfree(map);
		return err;
	}
	refcount_inc(&piece->ref);
	dm->piece = piece;
	dm->map = map;
	return 0;
}

static int mic_dm_find_memory(struct mic_dm *dm, struct ib_ucontext *ibuctx,
			      u64 length)
{
	struct mic_dev *dev = to_mic_dev(ibuctx->device);
	struct mic_piece *piece = mic_piece_alloc(dev->ndev, length);
	int err;

	if (piece) {
		err = mic_dm_take_piece(dm, piece, ibuctx, length);
		if (err)
			mic_piece_put(piece);
		return err;
	}
	dm->buf = mic_dm_buf_create(to_mic_uctx(ibuctx), length);
	return PTR_ERR_OR_ZERO(dm->buf);
}

/* It counts until it is neither in use nor mapped any more. */
static int mic_dm_get_memory(struct mic_dm *dm, struct ib_ucontext *ibuctx,
			     u64 length)
{
	struct mic_dev *dev = to_mic_dev(ibuctx->device);
	int err;

	err = mic_dm_charge(dev, length);
	if (err)
		return err;
	err = mic_dm_find_memory(dm, ibuctx, length);
	if (err)
		mic_dm_uncharge(dev, length);
	return err;
}

static void mic_dm_put_memory(struct mic_dm *dm)
{
	if (!dm->piece) {
		mic_buf_destroy(dm->buf);
		return;
	}
	rdma_user_mmap_entry_remove(&dm->map->entry);
	mic_piece_put(dm->piece);
}

static void mic_dm_info(const struct mic_dm *dm, struct mic_mmap_info *info)
{
	if (!dm->piece) {
		mic_buf_info(dm->buf, info);
		return;
	}
	info->offset = MIC_MMAP_CONTEXT |
		       rdma_user_mmap_get_offset(&dm->map->entry);
	info->size = dm->piece->size;
}

struct ib_dm *mic_alloc_dm(struct ib_device *ibdev, struct ib_ucontext *ibuctx,
			   struct ib_dm_alloc_attr *attr,
			   struct uverbs_attr_bundle *attrs)
{
	struct mic_mmap_info map;
	struct mic_dm *dm;
	int err;

	if (!attr->length || attr->alignment > PAGE_SHIFT)
		return ERR_PTR(-EINVAL);
	dm = kzalloc(sizeof(*dm), GFP_KERNEL_ACCOUNT);
	if (!dm)
		return ERR_PTR(-ENOMEM);
	err = mic_dm_get_memory(dm, ibuctx, attr->length);
	if (err)
		goto err_free;
	mic_dm_info(dm, &map);
	err = uverbs_copy_to(attrs, MIC_IB_ATTR_ALLOC_DM_MAP, &map,
			     sizeof(map));
	if (err)
		goto err_memory;
	dm->ibdm.length = attr->length;
	return &dm->ibdm;

err_memory:
	mic_dm_put_memory(dm);
err_free:
	kfree(dm);
	return ERR_PTR(err);
}

int mic_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs)
{
	struct mic_dm *dm = container_of(ibdm, struct mic_dm, ibdm);

	mic_dm_put_memory(dm);
	kfree(dm);
	return 0;
}

/* ib_core has checked the range, and keeps the memory while it has regions. */
struct ib_mr *mic_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm,
			    struct ib_dm_mr_attr *attr,
			    struct uverbs_attr_bundle *attrs)
{
	struct mic_dm *dm = container_of(ibdm, struct mic_dm, ibdm);
	struct mic_mr *mr;

	if (!(attr->access_flags & IB_ZERO_BASED))
		return ERR_PTR(-EINVAL);
	/* no window is bound to it, and it is always there */
	if (attr->access_flags & (IB_ACCESS_MW_BIND | IB_ACCESS_ON_DEMAND))
		return ERR_PTR(-EOPNOTSUPP);
	mr = mic_mr_create(ibpd, MIC_MKEY_DM,
			   attr->access_flags & ~IB_ZERO_BASED);
	if (IS_ERR(mr))
		return ERR_CAST(mr);
	mr->mkey.length = attr->length;
	/* linear: an offset in the window is an address */
	mr->mkey.win_off = attr->offset +
		(uintptr_t)(dm->piece ? dm->piece->va : dm->buf->va);
	mr->piece = dm->piece;
	mr->mkey.valid = true;
	mr->ibmr.length = attr->length;
	mic_mkey_publish(to_mic_dev(ibpd->device), &mr->mkey);
	return &mr->ibmr;
}

/* Another process imports the memory: where it can map it, and its size. */
static int UVERBS_HANDLER(MIC_IB_METHOD_DM_QUERY)(struct uverbs_attr_bundle *attrs)
{
	const struct ib_dm *ibdm =
		uverbs_attr_get_obj(attrs, MIC_IB_ATTR_DM_QUERY_HANDLE);
	struct mic_dm_query_resp resp = { .length = ibdm->length };

	mic_dm_info(container_of(ibdm, struct mic_dm, ibdm), &resp.map);
	return uverbs_copy_to(attrs, MIC_IB_ATTR_DM_QUERY_RESP, &resp,
			      sizeof(resp));
}

DECLARE_UVERBS_NAMED_METHOD(MIC_IB_METHOD_DM_QUERY,
			    UVERBS_ATTR_IDR(MIC_IB_ATTR_DM_QUERY_HANDLE,
					    UVERBS_OBJECT_DM,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(MIC_IB_ATTR_DM_QUERY_RESP,
						UVERBS_ATTR_TYPE(struct mic_dm_query_resp),
						UA_MANDATORY));

ADD_UVERBS_METHODS(mic_dm_methods, UVERBS_OBJECT_DM,
		   &UVERBS_METHOD(MIC_IB_METHOD_DM_QUERY));

ADD_UVERBS_ATTRIBUTES_SIMPLE(mic_alloc_dm_attrs, UVERBS_OBJECT_DM,
			     UVERBS_METHOD_DM_ALLOC,
			     UVERBS_ATTR_PTR_OUT(MIC_IB_ATTR_ALLOC_DM_MAP,
						 UVERBS_ATTR_TYPE(struct mic_mmap_info),
						 UA_MANDATORY));

const struct uapi_definition mic_dm_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &mic_alloc_dm_attrs),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &mic_dm_methods),
	{},
};
