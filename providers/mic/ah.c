// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Address handles. The kernel resolves the address; a send request refers to
 * the result by number.
 */
#include <stdlib.h>

#include "mic.h"

struct create_ah_resp {
	struct ib_uverbs_create_ah_resp base;
	struct mic_create_ah_resp mic;
};
static_assert(sizeof(struct create_ah_resp) ==
		      sizeof(struct ib_uverbs_create_ah_resp) +
			      sizeof(struct mic_create_ah_resp),
	      "the driver's part follows directly");

struct ibv_ah *mic_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct create_ah_resp resp = {};
	struct mic_ah *ah;
	int ret;

	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	ret = ibv_cmd_create_ah(pd, &ah->ah, attr, &resp.base, sizeof(resp));
	if (ret) {
		free(ah);
		errno = ret;
		return NULL;
	}
	ah->handle = resp.mic.ah_handle;
	return &ah->ah;
}

int mic_destroy_ah(struct ibv_ah *ibah)
{
	int ret = ibv_cmd_destroy_ah(ibah);

	if (!ret)
		free(to_mah(ibah));
	return ret;
}
