/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The private provider interface of libibverbs: in an rdma-core tree its own
 * header, elsewhere our declarations of it.
 */
#ifndef MIC_VERBS_PRIVATE_H
#define MIC_VERBS_PRIVATE_H

#ifdef MIC_RDMA_CORE_VERSION
#include <infiniband/driver.h>
#else
#include <pabi.h>
#define MIC_RDMA_CORE_VERSION PABI_RDMA_CORE_VERSION
#endif

/*
 * What later releases let a driver add: attributes of a region (54), descriptors
 * of a context (57), the memory of a CQ (59), attributes of a QP (64). We add
 * nothing.
 */
#if MIC_RDMA_CORE_VERSION >= 54
#define mic_cmd_reg_dmabuf_mr(...) ibv_cmd_reg_dmabuf_mr(__VA_ARGS__, NULL)
#else
#define mic_cmd_reg_dmabuf_mr(...) ibv_cmd_reg_dmabuf_mr(__VA_ARGS__)
#endif
#if MIC_RDMA_CORE_VERSION >= 57
#define mic_cmd_get_context(vctx, cmd, size, ...)                              \
	ibv_cmd_get_context(vctx, cmd, size, NULL, __VA_ARGS__)
#else
#define mic_cmd_get_context(...) ibv_cmd_get_context(__VA_ARGS__)
#endif
#if MIC_RDMA_CORE_VERSION >= 59
#define mic_cmd_create_cq_ex(context, attr, ...)                               \
	ibv_cmd_create_cq_ex(context, attr, NULL, __VA_ARGS__)
#else
#define mic_cmd_create_cq_ex(...) ibv_cmd_create_cq_ex(__VA_ARGS__)
#endif
#if MIC_RDMA_CORE_VERSION >= 64
#define mic_cmd_create_qp_ex2(...) ibv_cmd_create_qp_ex2(__VA_ARGS__, NULL)
#else
#define mic_cmd_create_qp_ex2(...) ibv_cmd_create_qp_ex2(__VA_ARGS__)
#endif

#include <rdma/mic-abi.h>

#endif /* MIC_VERBS_PRIVATE_H */
