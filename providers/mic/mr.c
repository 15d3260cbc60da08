// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions. The kernel does the work; the direct path remembers those of
 * this process's memory.
 */
#include <stdlib.h>

#include "mic.h"

struct reg_null_mr {
	struct ibv_reg_mr base;
	struct mic_reg_mr_cmd mic;
};
static_assert(sizeof(struct reg_null_mr) ==
		      sizeof(struct ibv_reg_mr) + sizeof(struct mic_reg_mr_cmd),
	      "the driver's part follows directly");

/* Hand out @vmr, or free it where the command has failed. */
static struct ibv_mr *finish_mr(struct verbs_mr *vmr, int err)
{
	if (!err)
		return &vmr->ibv_mr;
	free(vmr);
	errno = err;
	return NULL;
}

/* The kernel would call it an invalid argument. */
static bool on_demand(int access)
{
	return access & IBV_ACCESS_ON_DEMAND;
}

static struct mic_keys *mr_keys(const struct verbs_mr *vmr)
{
	return &to_mctx(vmr->ibv_mr.context)->keys;
}

/* What the first byte is called. */
static uint64_t base_of(uint64_t iova, int access)
{
	return access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
}

struct ibv_mr *mic_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  uint64_t iova, int access)
{
	struct ib_uverbs_reg_mr_resp resp;
	const struct mic_key key = {
		.pd_handle = pd->handle,
		.access = access,
		.iova = base_of(iova, access),
		.length = length,
		.addr = addr,
	};
	struct ibv_reg_mr cmd;
	struct verbs_mr *vmr;
	int ret;

	vmr = calloc(1, sizeof(*vmr));
	if (!vmr)
		return NULL;
	ret = ibv_cmd_reg_mr(pd, addr, length, iova, access, vmr, &cmd,
			     sizeof(cmd), &resp, sizeof(resp));
	/* pages that may not be there are not for the direct path */
	if (!ret && !on_demand(access))
		mic_keys_add(&to_mctx(pd->context)->keys, vmr->ibv_mr.lkey,
			     &key);
	return finish_mr(vmr, ret);
}

/* All addresses there are; only the lkey is of use. */
struct ibv_mr *mic_alloc_null_mr(struct ibv_pd *pd)
{
	struct verbs_mr *vmr = calloc(1, sizeof(*vmr));
	struct reg_null_mr cmd = { .mic.flags = MIC_REG_MR_NULL };
	struct ib_uverbs_reg_mr_resp resp;
	int ret;

	if (!vmr)
		return NULL;
	ret = ibv_cmd_reg_mr(pd, NULL, 0, 0, IBV_ACCESS_LOCAL_WRITE, vmr,
			     &cmd.base, sizeof(cmd), &resp, sizeof(resp));
	/* the library leaves the pages of other types alone */
	vmr->mr_type = IBV_MR_TYPE_NULL_MR;
	vmr->ibv_mr.pd = pd;
	vmr->ibv_mr.length = SIZE_MAX;
	return finish_mr(vmr, ret);
}

struct ibv_mr *mic_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				 size_t length, uint64_t iova, int fd,
				 int access)
{
	struct verbs_mr *vmr;

	/* nor is a window bound to it; uverbs would call that invalid, too */
	if (on_demand(access) || access & IBV_ACCESS_MW_BIND) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	vmr = calloc(1, sizeof(*vmr));
	if (!vmr)
		return NULL;
	return finish_mr(vmr, mic_cmd_reg_dmabuf_mr(pd, offset, length, iova,
						    fd, access, vmr));
}

struct ibv_mr *mic_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibdm,
			     uint64_t offset, size_t length,
			     unsigned int access)
{
	struct verbs_mr *vmr = calloc(1, sizeof(*vmr));
	struct mic_dm *dm = to_mdm(ibdm);
	const struct mic_key key = {
		.pd_handle = pd->handle,
		.access = access,
		.length = length,
		.addr = dm->map.addr + offset,
	};
	int ret;

	if (!vmr)
		return NULL;
	ret = ibv_cmd_reg_dm_mr(pd, &dm->vdm, offset, length, access, vmr,
				NULL);
	/* while it has regions it can't be freed, but what is imported can go */
	if (!ret && !dm->imported)
		mic_keys_add(mr_keys(vmr), vmr->ibv_mr.lkey, &key);
	return finish_mr(vmr, ret);
}

struct ibv_mr *mic_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct verbs_mr *vmr = calloc(1, sizeof(*vmr));

	if (!vmr)
		return NULL;
	return finish_mr(vmr, ibv_cmd_query_mr(pd, vmr, handle));
}

/* Who has imported it may have destroyed it, and this is who registered it. */
void mic_unimport_mr(struct ibv_mr *mr)
{
	struct verbs_mr *vmr = container_of(mr, struct verbs_mr, ibv_mr);
	struct mic_key key;

	if (vmr->mr_type != IBV_MR_TYPE_IMPORTED_MR)
		mic_keys_take(mr_keys(vmr), mr->lkey, &key);
	free(vmr);
}

/*
 * Has the kernel refused the change at once, so that the region is what it was? It says
 * that an argument is invalid, or not supported, also of memory that it can't have, and
 * then the region is of nothing (IBA 11.2.8.5).
 */
static bool left_alone(int err, int flags)
{
	return err == EBUSY || ((err == EINVAL || err == EOPNOTSUPP) &&
				!(flags & IBV_REREG_MR_CHANGE_TRANSLATION));
}

int mic_rereg_mr(struct verbs_mr *vmr, int flags, struct ibv_pd *pd, void *addr,
		 size_t length, int access)
{
	const uint32_t lkey = vmr->ibv_mr.lkey;
	struct ib_uverbs_rereg_mr_resp resp;
	struct ibv_rereg_mr cmd;
	struct mic_key key;
	bool known;
	int ret;

	if ((flags & IBV_REREG_MR_CHANGE_ACCESS) && on_demand(access)) {
		errno = EOPNOTSUPP; /* the library does not set it here */
		return errno;
	}
	/* the kernel would take its number for a domain of the region's context */
	if ((flags & IBV_REREG_MR_CHANGE_PD) &&
	    (!pd || pd->context != vmr->ibv_mr.context)) {
		errno = EINVAL;
		return errno;
	}
	known = mic_keys_take(mr_keys(vmr), lkey, &key);
	ret = ibv_cmd_rereg_mr(vmr, flags, addr, length, (uintptr_t)addr,
			       access, pd, &cmd, sizeof(cmd), &resp,
			       sizeof(resp));
	if (!known)
		return ret;
	if (ret) {
		/* else whatever is left of the region is the kernel's */
		if (left_alone(ret, flags))
			mic_keys_add(mr_keys(vmr), lkey, &key);
		return ret;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		key.access = access;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		key.addr = addr;
		key.iova = base_of((uintptr_t)addr, key.access);
		key.length = length;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD)
		key.pd_handle = pd->handle;
	mic_keys_add(mr_keys(vmr), vmr->ibv_mr.lkey, &key);
	return 0;
}

int mic_dereg_mr(struct verbs_mr *vmr)
{
	const uint32_t lkey = vmr->ibv_mr.lkey;
	struct mic_keys *keys = mr_keys(vmr);
	struct mic_key key;
	bool known;
	int ret;

	known = mic_keys_take(keys, lkey, &key);
	ret = ibv_cmd_dereg_mr(vmr);
	if (!ret)
		free(vmr);
	else if (known)
		mic_keys_add(keys, lkey, &key);
	return ret;
}
