// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Scatter/gather lists: from keys and addresses to memory.
 */
#include <linux/slab.h>

#include "../verbs/dev.h"
#include "../verbs/mr.h"
#include "../verbs/odp.h"
#include "engine.h"

/**
 * mic_sges_init - make room for lists of a length
 * @sges: zeroed
 * @max: elements; there is room for one even if it is 0
 * @gfp: how to allocate it
 *
 * Return: 0 or -ENOMEM.
 */
int mic_sges_init(struct mic_sges *sges, u32 max, gfp_t gfp)
{
	u32 n = max(max, 1U);

	/* in one piece: short lists are then in one cache line */
	sges->sge = kcalloc(n, sizeof(*sges->sge) + sizeof(*sges->seg) +
			       sizeof(*sges->mkey), gfp);
	if (!sges->sge)
		return -ENOMEM;
	sges->seg = (struct mic_seg *)(sges->sge + n);
	sges->mkey = (struct mic_mkey **)(sges->seg + n);
	sges->max = max;
	return 0;
}

/**
 * mic_sges_destroy - free what mic_sges_init() allocated
 * @sges: list, also one whose initialisation failed
 */
void mic_sges_destroy(struct mic_sges *sges)
{
	kfree(sges->sge);
	memset(sges, 0, sizeof(*sges));
}

/**
 * mic_sges_bytes - length of a list
 * @sges: list
 *
 * Return: bytes.
 */
u64 mic_sges_bytes(const struct mic_sges *sges)
{
	u64 bytes = 0;
	u32 i;

	for (i = 0; i < sges->nsge; i++)
		bytes += sges->sge[i].length;
	return bytes;
}

static enum ib_wc_status mic_sge_resolve(struct mic_sges *sges,
					 struct mic_dev *dev,
					 const struct ib_pd *pd, int access,
					 const struct mic_sge *sge, u32 len,
					 u32 from, u32 to)
{
	struct mic_mkey *mkey = mic_mkey_get(dev, sge->lkey);
	struct mic_seg *seg = &sges->seg[sges->nseg];
	int err;

	if (!mkey)
		return IB_WC_LOC_PROT_ERR;
	if (mkey->window || mic_mkey_seg(mkey, sge->lkey, pd, access, sge->addr,
					 len, seg)) {
		mic_mkey_put(mkey);
		return IB_WC_LOC_PROT_ERR;
	}
	err = mic_odp_pin(mkey, seg, from, to, access & IB_ACCESS_LOCAL_WRITE,
			  &sges->pins);
	if (err) {
		mic_mkey_put(mkey);
		sges->again = err == -EAGAIN;
		return IB_WC_LOC_PROT_ERR;
	}
	sges->mkey[sges->nseg++] = mkey;
	return IB_WC_SUCCESS;
}

/**
 * mic_sges_resolve - find the memory of a list
 * @sges: list
 * @dev: device
 * @pd: protection domain the keys must be of
 * @access: rights needed besides reading: 0 or IB_ACCESS_LOCAL_WRITE
 * @bytes: how much of the list is used; the elements behind are not looked at
 * @from: first byte, counted over the list, that is going to be copied now
 * @to: first byte after
 *
 * On success the caller owes a mic_sges_release(). It has to come soon: until
 * then the regions can't be deregistered.
 *
 * Return: IB_WC_SUCCESS or IB_WC_LOC_PROT_ERR; with &mic_sges.again set it is
 * no error but has to be tried again.
 */
enum ib_wc_status mic_sges_resolve(struct mic_sges *sges, struct mic_dev *dev,
				   const struct ib_pd *pd, int access,
				   u64 bytes, u64 from, u64 to)
{
	enum ib_wc_status status;
	u64 at = 0;
	u32 i;

	sges->nseg = 0;
	sges->again = false;
	for (i = 0; i < sges->nsge && bytes; i++) {
		const struct mic_sge *sge = &sges->sge[i];
		u32 len = min_t(u64, sge->length, bytes);

		if (!len)
			continue;
		status = mic_sge_resolve(sges, dev, pd, access, sge, len,
					 clamp_t(u64, from, at, at + len) - at,
					 clamp_t(u64, to, at, at + len) - at);
		if (status) {
			mic_sges_release(sges);
			return status;
		}
		bytes -= len;
		at += len;
	}
	return IB_WC_SUCCESS;
}

/**
 * mic_sges_release - let go of the memory of a list
 * @sges: list
 */
void mic_sges_release(struct mic_sges *sges)
{
	mic_odp_unpin(&sges->pins);
	while (sges->nseg) {
		struct mic_mkey *mkey = sges->mkey[--sges->nseg];

		if (mkey)
			mic_mkey_put(mkey);
	}
}
