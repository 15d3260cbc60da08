/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The private provider interface of libibverbs: in an rdma-core tree its own
 * header, elsewhere our declarations of it.
 */
#ifndef MIC_VERBS_PRIVATE_H
#define MIC_VERBS_PRIVATE_H

#ifdef MIC_IN_RDMA_CORE
#include <infiniband/driver.h>
#else
#include <pabi.h>
#endif

#include <rdma/mic-abi.h>

#endif /* MIC_VERBS_PRIVATE_H */
