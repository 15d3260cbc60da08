// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the receiver of a datagram learns of its sender: a GRH, or for RoCE v2
 * over IPv4 an IPv4 header in its last 20 bytes (IBA annex A17.4.5.2), and the
 * completion's fields.
 */
#include <linux/ip.h>
#include <linux/string.h>
#include <net/ip.h>
#include <rdma/ib_pack.h>
#include <rdma/ib_verbs.h>

#include <rdma/mic-abi.h>

#include <mic/op.h>

#include "grh.h"

#define MIC_IP_DEFAULT_TTL	64

/* What follows the IP header in the packet that it would be: IBA A17.4.5. */
static u16 mic_grh_payload(const struct mic_op *op)
{
	u32 immediate = op->flags & MIC_OP_IMM ? sizeof(__be32) : 0;

	return IB_UDP_BYTES + IB_BTH_BYTES + IB_DETH_BYTES + immediate +
	       ALIGN(op->length, 4) + IB_ICRC_BYTES;
}

static void mic_grh_ipv4(const struct mic_op *op, struct iphdr *ip)
{
	const struct mic_addr *addr = op->addr;

	ip->version = 4;
	ip->ihl = 5;
	ip->tos = addr->traffic_class;
	ip->tot_len = cpu_to_be16(sizeof(*ip) + mic_grh_payload(op));
	ip->ttl = addr->hop_limit ?: MIC_IP_DEFAULT_TTL;
	ip->protocol = IPPROTO_UDP;
	memcpy(&ip->saddr, addr->sgid.raw + 12, 4);
	memcpy(&ip->daddr, addr->dgid.raw + 12, 4);
	ip->check = ip_fast_csum(ip, ip->ihl);
}

static void mic_grh_ipv6(const struct mic_op *op, struct ib_grh *grh)
{
	const struct mic_addr *addr = op->addr;

	grh->version_tclass_flow = cpu_to_be32(6 << 28 |
					       addr->traffic_class << 20 |
					       (addr->flow_label & 0xfffff));
	grh->paylen = cpu_to_be16(mic_grh_payload(op));
	grh->next_hdr = IPPROTO_UDP;
	grh->hop_limit = addr->hop_limit ?: MIC_IP_DEFAULT_TTL;
	grh->sgid = addr->sgid;
	grh->dgid = addr->dgid;
}

/**
 * mic_grh_write - write the header in front of a datagram
 * @dst: the receive's memory, at least MIC_GRH_BYTES
 * @op: datagram
 */
void mic_grh_write(const struct mic_sgl *dst, const struct mic_op *op)
{
	union rdma_network_hdr hdr = {};
	const struct mic_seg seg = mic_linear_seg(&hdr, MIC_GRH_BYTES);
	const struct mic_sgl src = { .seg = &seg, .nseg = 1 };

	if (op->addr->ipv4)
		mic_grh_ipv4(op, &hdr.roce4grh);
	else
		mic_grh_ipv6(op, &hdr.ibgrh);
	mic_sgl_copy(dst, 0, &src, 0, MIC_GRH_BYTES);
}

/**
 * mic_grh_cqe - fill in the fields only datagrams have
 * @cqe: completion of the receive
 * @op: datagram
 *
 * RoCE has no service level of its own; as other RoCE devices do, @sl tells
 * which kind of packet it was (2: IPv4, 1: IPv6), and UCX relies on that.
 */
void mic_grh_cqe(struct mic_cqe *cqe, const struct mic_op *op)
{
	const struct mic_addr *addr = op->addr;

	cqe->byte_len += MIC_GRH_BYTES;
	cqe->wc_flags |= MIC_WC_GRH | MIC_WC_WITH_SMAC;
	cqe->pkey_index = op->pkey_index;
	cqe->sl = addr->ipv4 ? 2 : 1;
	if (addr->ipv4)
		cqe->wc_flags |= MIC_WC_IPV4;
	memcpy(cqe->smac, addr->smac, ETH_ALEN);
	if (addr->vlan_id < 0x1000) {
		cqe->wc_flags |= MIC_WC_WITH_VLAN;
		cqe->vlan_id = addr->vlan_id;
	}
}
