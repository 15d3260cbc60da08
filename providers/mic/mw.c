// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory windows.
 */
#include <errno.h>
#include <stdlib.h>

#include "mic.h"

struct ibv_mw *mic_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ib_uverbs_alloc_mw_resp resp;
	struct ibv_alloc_mw cmd;
	struct ibv_mw *mw;
	int ret;

	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return NULL;
	ret = ibv_cmd_alloc_mw(pd, type, mw, &cmd, sizeof(cmd), &resp,
			       sizeof(resp));
	if (ret) {
		free(mw);
		errno = ret;
		return NULL;
	}
	return mw;
}

int mic_dealloc_mw(struct ibv_mw *mw)
{
	int ret = ibv_cmd_dealloc_mw(mw);

	if (!ret)
		free(mw);
	return ret;
}

/* Those that can't have windows; without the right to have any it is the kernel's. */
static bool has_windows(struct ibv_mr *mr)
{
	const struct verbs_mr *vmr = container_of(mr, struct verbs_mr, ibv_mr);

	return vmr->mr_type == IBV_MR_TYPE_MR ||
	       vmr->mr_type == IBV_MR_TYPE_IMPORTED_MR;
}

/*
 * Bind a type 1 window: a work request like any other, except that the window
 * has its new key as soon as this returns.
 */
int mic_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = {
			.mw = mw,
			.rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = bind->bind_info,
		},
	};
	struct ibv_send_wr *bad_wr;
	int ret;

	if (bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED)
		return EINVAL; /* of type 1 there are none, IBA o10-36.2.2 */
	if (bind->bind_info.mr && !has_windows(bind->bind_info.mr))
		return EOPNOTSUPP;
	ret = mic_post_send(qp, &wr, &bad_wr);
	if (!ret)
		mw->rkey = wr.bind_mw.rkey;
	return ret;
}
