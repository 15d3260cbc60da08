/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Device memory.
 */
#ifndef MIC_DM_H
#define MIC_DM_H

#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

struct mic_buf;
struct mic_piece;

/**
 * struct mic_dm_map - how the owner maps memory that nodes share
 * @entry: ib_core's part, one reference for each mapping
 * @piece: memory, with a reference
 * @length: bytes that it counts as
 */
struct mic_dm_map {
	struct rdma_user_mmap_entry entry;
	struct mic_piece *piece;
	u64 length;
};

/**
 * struct mic_dm - a piece of device memory
 * @ibdm: ib_core's part
 * @buf: the memory, mappable by its owner; NULL if it is shared with nodes
 * @piece: the memory then, with a reference
 * @map: how it is mapped then
 */
struct mic_dm {
	struct ib_dm ibdm;
	struct mic_buf *buf;
	struct mic_piece *piece;
	struct mic_dm_map *map;
};

extern const struct uapi_definition mic_dm_defs[];

struct ib_dm *mic_alloc_dm(struct ib_device *ibdev, struct ib_ucontext *ibuctx,
			   struct ib_dm_alloc_attr *attr,
			   struct uverbs_attr_bundle *attrs);
int mic_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs);
struct ib_mr *mic_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm,
			    struct ib_dm_mr_attr *attr,
			    struct uverbs_attr_bundle *attrs);

int mic_mmap(struct ib_ucontext *ibuctx, struct vm_area_struct *vma);
void mic_mmap_free(struct rdma_user_mmap_entry *entry);

#endif /* MIC_DM_H */
