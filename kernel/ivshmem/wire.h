/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The numbers in records that have their names elsewhere, in the engine's and the
 * kernel's enums. Two nodes need not have the same version of these: who changes one
 * changes what goes through the region, and finds out here.
 *
 * Documentation/fabric.md has the same list.
 */
#ifndef MIC_IVSHMEM_WIRE_H
#define MIC_IVSHMEM_WIRE_H

#include <linux/build_bug.h>
#include <rdma/ib_verbs.h>

#include <mic/op.h>
#include <mic/share.h>

#include "layout.h"

/* &mic_rec.type */
static_assert(MIC_REC_PAD == 0);
static_assert(MIC_REC_REQUEST == 1);
static_assert(MIC_REC_RESPONSE == 2);
static_assert(MIC_REC_FRAME == 3);
static_assert(MIC_REC_PING == 4);
static_assert(MIC_REC_PONG == 5);

/* &mic_rec.flags */
static_assert(MIC_REC_FIRST == 1);
static_assert(MIC_REC_LAST == 2);
static_assert(MIC_REC_ACK == 4);

/* &mic_rec_request.code */
static_assert(MIC_OP_SEND == 0);
static_assert(MIC_OP_WRITE == 1);
static_assert(MIC_OP_READ == 2);
static_assert(MIC_OP_CMP_SWAP == 3);
static_assert(MIC_OP_FETCH_ADD == 4);
static_assert(MIC_OP_ATOMIC_WRITE == 5);
static_assert(MIC_OP_MAP == 6);

/* &mic_rec_request.flags */
static_assert(MIC_OP_FIRST == 1);
static_assert(MIC_OP_LAST == 2);
static_assert(MIC_OP_IMM == 4);
static_assert(MIC_OP_INV == 8);
static_assert(MIC_OP_SOLICITED == 16);

/* &mic_rec_request.service */
static_assert(IB_QPT_GSI == 1);
static_assert(IB_QPT_RC == 2);
static_assert(IB_QPT_UC == 3);
static_assert(IB_QPT_UD == 4);
static_assert(IB_QPT_XRC_INI == 9);

/* &mic_rec_request.ex of MIC_OP_MAP */
static_assert(MIC_MAP_EXTENTS == 1);

/* &mic_rec_response.ack; who answers has no others */
static_assert(MIC_ACK_OK == 0);
static_assert(MIC_ACK_RNR == 1);
static_assert(MIC_ACK_NAK_INV_REQ == 2);
static_assert(MIC_ACK_NAK_ACCESS == 3);
static_assert(MIC_ACK_NAK_OP == 4);
static_assert(MIC_ACK_NONE == 5);

/* &mic_rec_response.map_access, and &mic_rec_request.swap of MIC_OP_MAP */
static_assert(IB_ACCESS_REMOTE_WRITE == 2);
static_assert(IB_ACCESS_REMOTE_READ == 4);
static_assert(IB_ACCESS_REMOTE_ATOMIC == 8);

/* Behind the header of an answer to MIC_OP_MAP. */
static_assert(sizeof(struct mic_extent) == 16);
static_assert(offsetof(struct mic_extent, length) == 8);

#endif /* MIC_IVSHMEM_WIRE_H */
