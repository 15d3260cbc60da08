// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * uverbs methods with attributes of this driver, through the public ioctl.
 */
#include <sys/ioctl.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "uverbs.h"

#define MAX_ATTRS 4

struct request {
	union {
		struct ib_uverbs_ioctl_hdr hdr;
		char bytes[sizeof(struct ib_uverbs_ioctl_hdr) +
			   MAX_ATTRS * sizeof(struct ib_uverbs_attr)];
	};
};

static struct ib_uverbs_attr *add_attr(struct request *req, uint16_t id,
				       uint16_t len, uint64_t data)
{
	struct ib_uverbs_attr *attr = &req->hdr.attrs[req->hdr.num_attrs++];

	*attr = (struct ib_uverbs_attr){
		.attr_id = id,
		.len = len,
		.flags = UVERBS_ATTR_F_MANDATORY,
		.data = data,
	};
	return attr;
}

static void add_out(struct request *req, uint16_t id, void *data, uint16_t len)
{
	add_attr(req, id, len, (uintptr_t)data);
}

static int execute(struct ibv_context *context, struct request *req)
{
	req->hdr.driver_id = MIC_DRIVER_ID;
	req->hdr.length = sizeof(req->hdr) +
			  req->hdr.num_attrs * sizeof(req->hdr.attrs[0]);
	return ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &req->hdr) ? errno : 0;
}

/*
 * Fill in a context that another process has opened; this one gets a doorbell
 * file of its own. Returns 0 or an errno value.
 */
int mic_uverbs_query_context(struct verbs_context *vctx, int *doorbell_fd)
{
	struct ibv_context *context = &vctx->context;
	struct mic_alloc_ucontext_resp resp = {};
	uint32_t num_comp_vectors = 0;
	uint64_t core_support = 0;
	struct request req = {
		.hdr.object_id = UVERBS_OBJECT_DEVICE,
		.hdr.method_id = UVERBS_METHOD_QUERY_CONTEXT,
	};
	int ret;

	add_out(&req, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS,
		&num_comp_vectors, sizeof(num_comp_vectors));
	add_out(&req, UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, &core_support,
		sizeof(core_support));
	add_out(&req, MIC_IB_ATTR_QUERY_CONTEXT_RESP, &resp, sizeof(resp));
	ret = execute(context, &req);
	if (ret)
		return ret;
	context->num_comp_vectors = num_comp_vectors;
	verbs_get_device(context->device)->core_support = core_support;
	*doorbell_fd = resp.doorbell_fd;
	return 0;
}

/* Returns 0 or an errno value. */
int mic_uverbs_alloc_dm(struct ibv_context *context,
			const struct ibv_alloc_dm_attr *attr, uint32_t *handle,
			struct mic_mmap_info *map)
{
	const struct ib_uverbs_attr *object;
	struct request req = {
		.hdr.object_id = UVERBS_OBJECT_DM,
		.hdr.method_id = UVERBS_METHOD_DM_ALLOC,
	};
	int ret;

	object = add_attr(&req, UVERBS_ATTR_ALLOC_DM_HANDLE, 0, 0);
	add_attr(&req, UVERBS_ATTR_ALLOC_DM_LENGTH, sizeof(uint64_t),
		 attr->length);
	add_attr(&req, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, sizeof(uint32_t),
		 attr->log_align_req);
	add_out(&req, MIC_IB_ATTR_ALLOC_DM_MAP, map, sizeof(*map));
	ret = execute(context, &req);
	if (!ret)
		*handle = object->data;
	return ret;
}

/* Returns 0 or an errno value. */
int mic_uverbs_query_dm(struct ibv_context *context, uint32_t handle,
			struct mic_dm_query_resp *resp)
{
	struct request req = {
		.hdr.object_id = UVERBS_OBJECT_DM,
		.hdr.method_id = MIC_IB_METHOD_DM_QUERY,
	};

	add_attr(&req, MIC_IB_ATTR_DM_QUERY_HANDLE, 0, handle);
	add_out(&req, MIC_IB_ATTR_DM_QUERY_RESP, resp, sizeof(*resp));
	return execute(context, &req);
}
