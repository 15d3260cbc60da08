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

/* From release 54 on a driver may add attributes; we have none. */
#if MIC_RDMA_CORE_VERSION >= 54
#define mic_cmd_reg_dmabuf_mr(...) ibv_cmd_reg_dmabuf_mr(__VA_ARGS__, NULL)
#else
#define mic_cmd_reg_dmabuf_mr(...) ibv_cmd_reg_dmabuf_mr(__VA_ARGS__)
#endif

#include <rdma/mic-abi.h>

#endif /* MIC_VERBS_PRIVATE_H */
