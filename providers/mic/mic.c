// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * libmic: the device, its contexts and the table of operations.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mic.h"
#include "uverbs.h"

struct get_context_resp {
	struct ib_uverbs_get_context_resp base;
	struct mic_alloc_ucontext_resp mic;
};
static_assert(sizeof(struct get_context_resp) ==
		      sizeof(struct ib_uverbs_get_context_resp) +
			      sizeof(struct mic_alloc_ucontext_resp),
	      "the driver's part follows directly");

/* Atomics hold against everything that accesses the memory, 8 bytes of it. */
static void mic_set_pci_atomic_caps(struct ibv_device_attr_ex *attr,
				    size_t attr_size)
{
	struct ibv_pci_atomic_caps *caps = &attr->pci_atomic_caps;

	if (attr_size < offsetof(struct ibv_device_attr_ex, pci_atomic_caps) +
				sizeof(*caps))
		return;
	caps->fetch_add = IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP;
	caps->compare_swap = IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP;
}

static int mic_query_device_ex(struct ibv_context *context,
			       const struct ibv_query_device_ex_input *input,
			       struct ibv_device_attr_ex *attr,
			       size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp resp = {};
	size_t resp_size = sizeof(resp);
	uint64_t version;
	int ret;

	ret = ibv_cmd_query_device_any(context, input, attr, attr_size, &resp,
				       &resp_size);
	if (ret)
		return ret;
	version = resp.base.fw_ver;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver),
		 "%u.%u.%u", (unsigned int)(version >> 32) & 0xffff,
		 (unsigned int)(version >> 16) & 0xffff,
		 (unsigned int)version & 0xffff);
	mic_set_pci_atomic_caps(attr, attr_size);
	return 0;
}

static int mic_query_port(struct ibv_context *context, uint8_t port_num,
			  struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd;

	return ibv_cmd_query_port(context, port_num, attr, &cmd, sizeof(cmd));
}

/*
 * The device's clock is CLOCK_MONOTONIC_RAW in nanoseconds, as in completion
 * timestamps: a count, so all of it is in tv_nsec.
 */
static int mic_query_rt_values(struct ibv_context *context,
			       struct ibv_values_ex *values)
{
	struct timespec now;

	(void)context;
	if (values->comp_mask & ~IBV_VALUES_MASK_RAW_CLOCK)
		return EINVAL;
	if (!(values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK))
		return 0;
	if (clock_gettime(CLOCK_MONOTONIC_RAW, &now))
		return errno;
	values->raw_clock.tv_sec = 0;
	values->raw_clock.tv_nsec = now.tv_sec * 1000000000L + now.tv_nsec;
	return 0;
}

static void mic_free_context(struct ibv_context *context)
{
	struct mic_context *ctx = to_mctx(context);

	mic_windows_put(ctx->windows);
	mic_keys_destroy(&ctx->keys);
	pthread_mutex_destroy(&ctx->lock);
	if (ctx->doorbell_fd >= 0)
		close(ctx->doorbell_fd);
	verbs_uninit_context(&ctx->vctx);
	free(ctx);
}

static const struct verbs_context_ops mic_ops = {
	.advise_mr = ibv_cmd_advise_mr,
	.alloc_dm = mic_alloc_dm,
	.alloc_mw = mic_alloc_mw,
	.alloc_null_mr = mic_alloc_null_mr,
	.alloc_parent_domain = mic_alloc_parent_domain,
	.alloc_pd = mic_alloc_pd,
	.alloc_td = mic_alloc_td,
	.attach_mcast = ibv_cmd_attach_mcast,
	.bind_mw = mic_bind_mw,
	.close_xrcd = mic_close_xrcd,
	.create_ah = mic_create_ah,
	.create_cq = mic_create_cq,
	.create_cq_ex = mic_create_cq_ex,
	.create_qp = mic_create_qp,
	.create_qp_ex = mic_create_qp_ex,
	.create_srq = mic_create_srq,
	.create_srq_ex = mic_create_srq_ex,
	.dealloc_mw = mic_dealloc_mw,
	.dealloc_pd = mic_dealloc_pd,
	.dealloc_td = mic_dealloc_td,
	.dereg_mr = mic_dereg_mr,
	.destroy_ah = mic_destroy_ah,
	.destroy_cq = mic_destroy_cq,
	.destroy_qp = mic_destroy_qp,
	.destroy_srq = mic_destroy_srq,
	.detach_mcast = ibv_cmd_detach_mcast,
	.free_context = mic_free_context,
	.free_dm = mic_free_dm,
	.get_srq_num = mic_get_srq_num,
	.import_dm = mic_import_dm,
	.import_mr = mic_import_mr,
	.import_pd = mic_import_pd,
	.modify_cq = mic_modify_cq,
	.modify_qp = mic_modify_qp,
	.modify_srq = mic_modify_srq,
	.open_qp = mic_open_qp,
	.open_xrcd = mic_open_xrcd,
	.poll_cq = mic_poll_cq,
	.post_recv = mic_post_recv,
	.post_send = mic_post_send,
	.post_srq_recv = mic_post_srq_recv,
	.query_device_ex = mic_query_device_ex,
	.query_port = mic_query_port,
	.query_qp = mic_query_qp,
	.query_rt_values = mic_query_rt_values,
	.query_srq = mic_query_srq,
	.reg_dm_mr = mic_reg_dm_mr,
	.reg_dmabuf_mr = mic_reg_dmabuf_mr,
	.reg_mr = mic_reg_mr,
	.req_notify_cq = mic_req_notify_cq,
	.rereg_mr = mic_rereg_mr,
	.resize_cq = mic_resize_cq,
	.unimport_dm = mic_unimport_dm,
	.unimport_mr = mic_unimport_mr,
	.unimport_pd = mic_unimport_pd,
};

/*
 * libibverbs distributes the table to public fields. When its idea of the
 * private interface is not ours, an operation is in the wrong place, and it
 * must not be called.
 */
static bool operations_in_place(const struct verbs_context *vctx)
{
	const struct ibv_context_ops *ops = &vctx->context.ops;
	const struct {
		const void *is, *should_be;
	} fields[] = {
		{ vctx->alloc_null_mr, mic_alloc_null_mr },
		{ vctx->alloc_parent_domain, mic_alloc_parent_domain },
		{ vctx->alloc_td, mic_alloc_td },
		{ ops->_compat_attach_mcast, ibv_cmd_attach_mcast },
		{ ops->bind_mw, mic_bind_mw },
		{ ops->_compat_create_ah, mic_create_ah },
		{ ops->_compat_create_cq, mic_create_cq },
		{ ops->_compat_create_qp, mic_create_qp },
		{ vctx->create_qp_ex, mic_create_qp_ex },
		{ ops->_compat_create_srq, mic_create_srq },
		{ ops->_compat_destroy_cq, mic_destroy_cq },
		{ ops->_compat_detach_mcast, ibv_cmd_detach_mcast },
		{ vctx->get_srq_num, mic_get_srq_num },
		{ vctx->modify_cq, mic_modify_cq },
		{ ops->_compat_modify_qp, mic_modify_qp },
		{ ops->_compat_modify_srq, mic_modify_srq },
		{ vctx->open_qp, mic_open_qp },
		{ ops->poll_cq, mic_poll_cq },
		{ ops->post_recv, mic_post_recv },
		{ ops->post_send, mic_post_send },
		{ ops->post_srq_recv, mic_post_srq_recv },
		{ vctx->query_device_ex, mic_query_device_ex },
		{ ops->_compat_query_qp, mic_query_qp },
		{ vctx->query_rt_values, mic_query_rt_values },
		{ ops->_compat_reg_mr, mic_reg_mr },
		{ ops->req_notify_cq, mic_req_notify_cq },
		{ ops->_compat_resize_cq, mic_resize_cq },
	};
	size_t i;

	for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (fields[i].is != fields[i].should_be)
			return false;
	return true;
}

/*
 * Nor must its objects differ from ours: ibv_qp_ex, which is in front of the mask of
 * a queue pair, became longer with rdma-core 45, while the interface kept its number.
 * So nothing but the mask is set, then all else, and the library says what it finds.
 */
static bool objects_in_place(void)
{
	struct verbs_qp qp[2];
	bool yes, no;

	memset(qp, 0, sizeof(qp));
	qp->comp_mask = VERBS_QP_EX;
	yes = ibv_qp_to_qp_ex(&qp->qp) == &qp->qp_ex;
	memset(qp, 0xff, sizeof(qp));
	qp->comp_mask = ~(uint32_t)VERBS_QP_EX;
	no = !ibv_qp_to_qp_ex(&qp->qp);
	return yes && no;
}

/* Open a context on @cmd_fd, which it owns from here on. */
static struct mic_context *new_context(struct ibv_device *device, int cmd_fd)
{
	struct mic_context *ctx;

	ctx = verbs_init_and_alloc_context(device, cmd_fd, ctx, vctx,
					   MIC_DRIVER_ID);
	if (!ctx)
		return NULL;
	ctx->doorbell_fd = -1;
	ctx->path = mic_direct_default_path();
	pthread_mutex_init(&ctx->lock, NULL);
	mic_keys_init(&ctx->keys);
	verbs_set_ops(&ctx->vctx, &mic_ops);
	if (!operations_in_place(&ctx->vctx) || !objects_in_place()) {
		fprintf(stderr,
			"libmic: was not built for this release of libibverbs; build it again with the libibverbs-dev that is installed\n");
		mic_free_context(&ctx->vctx.context);
		errno = ENOSYS;
		return NULL;
	}
	return ctx;
}

/* The context is ready if @ret is 0; else it is taken down. */
static struct verbs_context *finish_context(struct mic_context *ctx, int ret)
{
	if (!ret)
		return &ctx->vctx;
	mic_free_context(&ctx->vctx.context);
	errno = ret;
	return NULL;
}

static struct verbs_context *mic_alloc_context(struct ibv_device *device,
					       int cmd_fd, void *private_data)
{
	struct get_context_resp resp = {};
	struct ibv_get_context cmd = {};
	struct mic_context *ctx;
	int ret;

	(void)private_data;
	ctx = new_context(device, cmd_fd);
	if (!ctx)
		return NULL;
	ret = mic_cmd_get_context(&ctx->vctx, &cmd, sizeof(cmd), &resp.base,
				  sizeof(resp));
	if (!ret)
		ctx->doorbell_fd = resp.mic.doorbell_fd;
	return finish_context(ctx, ret);
}

static struct verbs_context *mic_import_context(struct ibv_device *device,
						int cmd_fd)
{
	struct mic_context *ctx;
	int ret;

	ctx = new_context(device, cmd_fd);
	if (!ctx)
		return NULL;
	ret = mic_uverbs_query_context(&ctx->vctx, &ctx->doorbell_fd);
	return finish_context(ctx, ret);
}

static struct verbs_device *mic_alloc_device(struct verbs_sysfs_dev *sysfs_dev)
{
	struct verbs_device *device;

	if (sysfs_dev->driver_id != MIC_DRIVER_ID)
		return NULL;
	device = calloc(1, sizeof(*device));
	return device;
}

static void mic_uninit_device(struct verbs_device *device)
{
	free(device);
}

static const struct verbs_match_ent match_table[] = {
	VERBS_DRIVER_ID(MIC_DRIVER_ID),
	{},
};

static const struct verbs_device_ops mic_device_ops = {
	.name = "mic",
	.match_min_abi_version = MIC_UVERBS_ABI_VERSION,
	.match_max_abi_version = MIC_UVERBS_ABI_VERSION,
	.match_table = match_table,
	.alloc_context = mic_alloc_context,
	.import_context = mic_import_context,
	.alloc_device = mic_alloc_device,
	.uninit_device = mic_uninit_device,
};
PROVIDER_DRIVER(mic, mic_device_ops);

bool mic_is_device(struct ibv_device *device)
{
	return verbs_get_device(device)->ops == &mic_device_ops;
}
