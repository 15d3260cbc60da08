// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Ethernet addresses that kernel consumers leave out.
 *
 * ib_core resolves the GID of a peer for user space. Kernel consumers are to have done
 * so, but SMC-R of version 2 does not on the side that listens: the other one tells the
 * Ethernet address of a GID of RoCE version 1 only. Within a network namespace none is
 * needed (mic_fabric_find()).
 */
#include <linux/completion.h>
#include <linux/etherdevice.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>

#include <mic/fabric.h>

#include "ah.h"
#include "dev.h"
#include "resolve.h"

#define MIC_RESOLVE_MS	1000	/* as ib_core */

struct mic_resolve {
	struct rdma_dev_addr addr;
	struct completion done;
	int err;
};

union mic_ip {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static void mic_resolve_done(int status, struct sockaddr *src,
			     struct rdma_dev_addr *addr, void *context)
{
	struct mic_resolve *resolve = context;

	resolve->err = status;
	complete(&resolve->done);
}

static bool mic_resolve_needed(const struct mic_dev *dev,
			       const struct rdma_ah_attr *attr)
{
	struct mic_node *node;
	struct mic_addr addr;

	if (!is_zero_ether_addr(attr->roce.dmac) ||
	    mic_addr_from_attr(&addr, attr))
		return false;
	node = mic_fabric_find(&addr, dev->node, dev->ndev);
	if (node)
		mic_node_put(node);
	return !node;
}

/**
 * mic_resolve_dmac - the Ethernet address of a peer, where a kernel consumer left it out
 * @dev: device that is to send
 * @attr: address vector; roce.dmac is set if that was 0, and is needed, and if somebody
 *	answers for the GID
 *
 * Nobody may answer: then the address stays 0, and a peer in the same network namespace can
 * still be reached when it comes.
 *
 * Context: process context, waits for the network for up to a second.
 */
void mic_resolve_dmac(const struct mic_dev *dev, struct rdma_ah_attr *attr)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(attr);
	struct mic_resolve resolve = {};
	union mic_ip src, dst;

	if (!mic_resolve_needed(dev, attr))
		return;
	rdma_gid2ip(&src.any, &grh->sgid_attr->gid);
	rdma_gid2ip(&dst.any, &grh->dgid);
	resolve.addr.net = &init_net;	/* the GID's netdev says which */
	resolve.addr.sgid_attr = grh->sgid_attr;
	init_completion(&resolve.done);
	if (rdma_resolve_ip(&src.any, &dst.any, &resolve.addr, MIC_RESOLVE_MS,
			    mic_resolve_done, true, &resolve))
		return;
	wait_for_completion(&resolve.done);
	if (!resolve.err)
		ether_addr_copy(attr->roce.dmac, resolve.addr.dst_dev_addr);
}
