// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <string.h>

#include "bind.h"
#include "tap.h"
#include "work.h"

struct ibv_mw_bind_info bind_info(const struct region *memory, size_t offset,
				  size_t length, unsigned int access)
{
	return (struct ibv_mw_bind_info){
		.mr = memory->mr,
		.addr = memory->rdma_addr + offset,
		.length = length,
		.mw_access_flags = access,
	};
}

bool bind_type1(struct endpoint *ep, struct ibv_mw *mw,
		const struct ibv_mw_bind_info *info)
{
	struct ibv_mw_bind bind = {
		.wr_id = BIND_ID,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_wc wc;
	int error;

	if (info)
		bind.bind_info = *info;
	error = ibv_bind_mw(ep->qp, mw, &bind);
	return check(!error, "ibv_bind_mw: %s", strerror(error)) &&
	       cq_success(ep->send_cq, BIND_ID, &wc) &&
	       check(wc.opcode == IBV_WC_BIND_MW, "opcode %d", wc.opcode);
}

bool bind_type2(struct endpoint *ep, struct ibv_mw *mw, uint32_t rkey,
		const struct ibv_mw_bind_info *info, enum ibv_wc_status status)
{
	struct ibv_send_wr wr = send_wr(BIND_ID, IBV_WR_BIND_MW, NULL, 0);

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = *info;
	post_send(ep, &wr);
	return cq_expect(ep->send_cq, BIND_ID, status);
}
