// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Device memory: the kernel's, or a piece of what nodes share, mapped here so that
 * copying to and from it needs no system call.
 */
#include <stdlib.h>
#include <string.h>

#include "mic.h"
#include "uverbs.h"

/* Device memory is accessed in words elsewhere; what fails there fails here. */
#define DM_UNIT 4

static bool access_ok(const struct mic_dm *dm, uint64_t offset, size_t length)
{
	return !(offset % DM_UNIT) && !(length % DM_UNIT) &&
	       length <= dm->length && offset <= dm->length - length;
}

static int memcpy_to_dm(struct ibv_dm *ibdm, uint64_t offset, const void *from,
			size_t length)
{
	struct mic_dm *dm = to_mdm(ibdm);

	if (!access_ok(dm, offset, length))
		return EINVAL;
	memcpy(dm->map.addr + offset, from, length);
	return 0;
}

static int memcpy_from_dm(void *to, struct ibv_dm *ibdm, uint64_t offset,
			  size_t length)
{
	struct mic_dm *dm = to_mdm(ibdm);

	if (!access_ok(dm, offset, length))
		return EINVAL;
	memcpy(to, dm->map.addr + offset, length);
	return 0;
}

/* Map what has @handle and make it usable. */
static int map_dm(struct mic_dm *dm, struct ibv_context *context,
		  uint32_t handle, const struct mic_mmap_info *map,
		  size_t length)
{
	struct mic_mmap_info at = *map;
	int ret, fd = to_mctx(context)->doorbell_fd;

	if (at.offset & MIC_MMAP_CONTEXT) {
		at.offset &= ~MIC_MMAP_CONTEXT;
		fd = context->cmd_fd;
	}
	ret = mic_map_queue(&dm->map, fd, &at);
	if (ret)
		return ret;
	dm->length = length;
	dm->vdm.handle = handle;
	dm->vdm.dm.context = context;
	dm->vdm.dm.handle = handle;
	dm->vdm.dm.comp_mask = IBV_DM_MASK_HANDLE;
	dm->vdm.dm.memcpy_to_dm = memcpy_to_dm;
	dm->vdm.dm.memcpy_from_dm = memcpy_from_dm;
	return 0;
}

static int init_dm(struct mic_dm *dm, struct ibv_context *context,
		   const struct ibv_alloc_dm_attr *attr)
{
	struct mic_mmap_info map = {};
	int ret;

	ret = mic_uverbs_alloc_dm(context, attr, &dm->vdm.handle, &map);
	if (ret)
		return ret;
	dm->vdm.dm.context = context;
	ret = map_dm(dm, context, dm->vdm.handle, &map, attr->length);
	if (ret)
		ibv_cmd_free_dm(&dm->vdm);
	return ret;
}

static struct ibv_dm *finish_dm(struct mic_dm *dm, int err)
{
	if (!err)
		return &dm->vdm.dm;
	free(dm);
	errno = err;
	return NULL;
}

struct ibv_dm *mic_alloc_dm(struct ibv_context *context,
			    struct ibv_alloc_dm_attr *attr)
{
	struct mic_dm *dm;

	if (attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	dm = calloc(1, sizeof(*dm));
	if (!dm)
		return NULL;
	return finish_dm(dm, init_dm(dm, context, attr));
}

/* What another process that shares the context has allocated. */
struct ibv_dm *mic_import_dm(struct ibv_context *context, uint32_t handle)
{
	struct mic_dm_query_resp resp = {};
	struct mic_dm *dm;
	int ret;

	dm = calloc(1, sizeof(*dm));
	if (!dm)
		return NULL;
	ret = mic_uverbs_query_dm(context, handle, &resp);
	if (!ret)
		ret = map_dm(dm, context, handle, &resp.map, resp.length);
	dm->imported = true;
	return finish_dm(dm, ret);
}

void mic_unimport_dm(struct ibv_dm *ibdm)
{
	struct mic_dm *dm = to_mdm(ibdm);

	mic_unmap_queue(&dm->map);
	free(dm);
}

int mic_free_dm(struct ibv_dm *ibdm)
{
	struct mic_dm *dm = to_mdm(ibdm);
	int ret;

	ret = ibv_cmd_free_dm(&dm->vdm);
	if (ret)
		return ret;
	mic_unmap_queue(&dm->map);
	free(dm);
	return 0;
}
