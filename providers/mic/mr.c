// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions. All of the work is the kernel's.
 */
#include <stdlib.h>

#include "mic.h"

/* Hand out @vmr, or free it where the command has failed. */
static struct ibv_mr *finish_mr(struct verbs_mr *vmr, int err)
{
	if (!err)
		return &vmr->ibv_mr;
	free(vmr);
	errno = err;
	return NULL;
}

struct ibv_mr *mic_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  uint64_t iova, int access)
{
	struct verbs_mr *vmr = calloc(1, sizeof(*vmr));
	struct ib_uverbs_reg_mr_resp resp;
	struct ibv_reg_mr cmd;

	if (!vmr)
		return NULL;
	return finish_mr(vmr, ibv_cmd_reg_mr(pd, addr, length, iova, access,
					     vmr, &cmd, sizeof(cmd), &resp,
					     sizeof(resp)));
}

struct ibv_mr *mic_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				 size_t length, uint64_t iova, int fd,
				 int access)
{
	struct verbs_mr *vmr = calloc(1, sizeof(*vmr));

	if (!vmr)
		return NULL;
	return finish_mr(vmr, mic_cmd_reg_dmabuf_mr(pd, offset, length, iova,
						    fd, access, vmr));
}

struct ibv_mr *mic_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm,
			     uint64_t offset, size_t length,
			     unsigned int access)
{
	struct verbs_mr *vmr = calloc(1, sizeof(*vmr));

	if (!vmr)
		return NULL;
	return finish_mr(vmr, ibv_cmd_reg_dm_mr(pd, &to_mdm(dm)->vdm, offset,
						length, access, vmr, NULL));
}

struct ibv_mr *mic_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct verbs_mr *vmr = calloc(1, sizeof(*vmr));

	if (!vmr)
		return NULL;
	return finish_mr(vmr, ibv_cmd_query_mr(pd, vmr, handle));
}

void mic_unimport_mr(struct ibv_mr *mr)
{
	free(container_of(mr, struct verbs_mr, ibv_mr));
}

int mic_rereg_mr(struct verbs_mr *vmr, int flags, struct ibv_pd *pd, void *addr,
		 size_t length, int access)
{
	struct ib_uverbs_rereg_mr_resp resp;
	struct ibv_rereg_mr cmd;

	return ibv_cmd_rereg_mr(vmr, flags, addr, length, (uintptr_t)addr,
				access, pd, &cmd, sizeof(cmd), &resp,
				sizeof(resp));
}

int mic_dereg_mr(struct verbs_mr *vmr)
{
	int ret = ibv_cmd_dereg_mr(vmr);

	if (!ret)
		free(vmr);
	return ret;
}
