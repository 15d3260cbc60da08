/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Operations: what a requester asks of a responder, independent of how the
 * two nodes are joined.
 */
#ifndef MIC_OP_H
#define MIC_OP_H

#include <linux/if_ether.h>
#include <linux/list.h>
#include <linux/sizes.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include <mic/share.h>
#include <mic/window.h>

struct mic_node;

enum mic_op_code {
	MIC_OP_SEND,
	MIC_OP_WRITE,
	MIC_OP_READ,
	MIC_OP_CMP_SWAP,
	MIC_OP_FETCH_ADD,
	MIC_OP_ATOMIC_WRITE,
	MIC_OP_MAP,	/* let the sender's process map memory */
};

enum mic_op_limits {
	/* bytes moved without looking whether the key still stands */
	MIC_SEGMENT = SZ_256K,
	MIC_MAX_MSG = SZ_1G,	/* bytes */
};

/* &mic_op.ex of MIC_OP_MAP: memory can be mapped wherever it is. */
#define MIC_MAP_EXTENTS		1U

enum mic_op_flags {
	MIC_OP_FIRST = 1 << 0,		/* the message begins with this segment */
	MIC_OP_LAST = 1 << 1,		/* and ends with it */
	MIC_OP_IMM = 1 << 2,		/* @ex is immediate data */
	MIC_OP_INV = 1 << 3,		/* @ex is an rkey to invalidate */
	MIC_OP_SOLICITED = 1 << 4,
};

/**
 * enum mic_ack - the responder's answer to a segment
 * @MIC_ACK_OK: done
 * @MIC_ACK_RNR: no receive posted; &mic_op.rnr_timer says when to try again
 * @MIC_ACK_NAK_INV_REQ: remote invalid request
 * @MIC_ACK_NAK_ACCESS: remote access error
 * @MIC_ACK_NAK_OP: remote operational error
 * @MIC_ACK_NONE: no answer at all: there is no such QP, it is not ready, not
 *	connected to the sender or the node is gone. The requester's transport
 *	timer decides.
 * @MIC_ACK_PENDING: from submit: the answer comes later, by &mic_op.done
 * @MIC_ACK_AGAIN: from submit: the operation found no room on its way, and
 *	&mic_op.done says the same when there is some
 */
enum mic_ack {
	MIC_ACK_OK,
	MIC_ACK_RNR,
	MIC_ACK_NAK_INV_REQ,
	MIC_ACK_NAK_ACCESS,
	MIC_ACK_NAK_OP,
	MIC_ACK_NONE,
	MIC_ACK_PENDING,
	MIC_ACK_AGAIN,
};

/**
 * struct mic_addr - the network address part of an address vector
 * @sgid: GID of the sender
 * @dgid: GID of the destination
 * @dmac: Ethernet address that @dgid resolved to
 * @smac: Ethernet address of the sender
 * @vlan_id: VLAN of the sender's netdev, 0xffff if none
 * @sl: service level
 * @traffic_class: GRH traffic class
 * @hop_limit: GRH hop limit
 * @flow_label: GRH flow label
 * @ipv4: the GIDs are IPv4-mapped
 */
struct mic_addr {
	union ib_gid sgid;
	union ib_gid dgid;
	u8 dmac[ETH_ALEN];
	u8 smac[ETH_ALEN];
	u16 vlan_id;
	u8 sl;
	u8 traffic_class;
	u8 hop_limit;
	bool ipv4;
	u32 flow_label;
};

/**
 * struct mic_op - one segment of a request message
 * @src: node that asks
 * @code: enum mic_op_code
 * @flags: enum mic_op_flags
 * @service: transport service (RC, UC, UD, XRC, GSI) of the sender
 * @src_qpn: sender's QP number
 * @dst_qpn: destination QP number
 * @psn: packet sequence number of the message's first packet (24 bits)
 * @npsn: packets the whole message takes at the sender's MTU, at least 1
 * @xrc_srqn: XRC: the destination's SRQ number
 * @raddr: address of the message's first byte at the destination
 * @rkey: remote key
 * @length: bytes in the whole message
 * @seg_off: where this segment begins in the message
 * @seg_len: bytes in this segment
 * @ex: immediate data as sent, or rkey to invalidate; MIC_OP_MAP: MIC_MAP_EXTENTS,
 *	set by the backend whose aperture the memory is in
 * @qkey: UD: the destination's key
 * @pkey_index: UD: index of the partition key
 * @addr: UD: addresses for the receiver's GRH
 * @compare_add: atomics
 * @swap: atomics
 * @result: atomics, out: the value before the operation
 * @copies: multicast, out: QPs of this kernel and other nodes it was handed to
 * @rnr_timer: out with MIC_ACK_RNR: IBA encoding, 0 to 31
 * @reply_ns: how long the answer may wait for a request to the node that asked; 0: not
 *	at all
 * @reply_likely: out: such a request is likely to follow (WRITE)
 * @data: the requester's memory, one byte for each of the message: source of
 *	SEND and WRITE, target of READ. A node behind a wire reads it in submit
 *	only
 * @land: takes data of a READ from a node behind a wire, before @done: some bytes
 *	and where they are in the message; called in process context. MIC_OP_MAP:
 *	takes the extents
 * @grant: MIC_OP_MAP, from a backend whose nodes share memory: let the sender map
 *	what is at @offset of a piece, so many bytes of whole pages, or what the
 *	grant's extents are. Sets all of @map but @addr and @access. Does not wait
 * @map: MIC_OP_MAP, out: what may be mapped, if @result is 0. Asked for are
 *	@compare_add bytes from @raddr (0: all that @rkey has), with the rights
 *	@swap. Otherwise @result is an error number
 * @done: takes an answer that comes later: called once, in atomic context
 * @entry: the backend's, while the answer is pending
 * @slot: the backend's, while the answer is pending
 */
struct mic_op {
	struct mic_node *src;
	u8 code;
	u8 flags;
	u8 service;
	u8 rnr_timer;
	u32 src_qpn;
	u32 dst_qpn;
	u32 psn;
	u32 npsn;
	u32 xrc_srqn;
	u32 rkey;
	u64 raddr;
	u32 length;
	u32 seg_off;
	u32 seg_len;
	u32 ex;
	u32 qkey;
	u16 pkey_index;
	bool reply_likely;
	u32 copies;
	u64 reply_ns;
	const struct mic_addr *addr;
	u64 compare_add;
	u64 swap;
	u64 result;
	const struct mic_sgl *data;
	void (*land)(struct mic_op *op, u32 off, const void *from, u32 len);
	int (*grant)(struct mic_op *op, struct mic_grant *grant, u64 offset,
		     u64 bytes);
	struct mic_map *map;
	void (*done)(struct mic_op *op, enum mic_ack ack);
	struct list_head entry;
	u32 slot;
};

/* The number of all QPs of a multicast group (IBA 10.5.2). */
#define MIC_MCAST_QPN	0xffffff

/**
 * mic_op_is_mcast - whether a request is a datagram to a group
 * @op: request
 *
 * To other services MIC_MCAST_QPN is a number that no QP has.
 */
static inline bool mic_op_is_mcast(const struct mic_op *op)
{
	return op->dst_qpn == MIC_MCAST_QPN &&
	       (op->service == IB_QPT_UD || op->service == IB_QPT_GSI);
}

#endif /* MIC_OP_H */
