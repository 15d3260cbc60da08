/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory windows.
 */
#ifndef MIC_MW_H
#define MIC_MW_H

#include <rdma/ib_verbs.h>

#include "mr.h"

/**
 * struct mic_mw_state - memory window, the engine's part
 * @mkey: its key
 * @mr: region it is bound to, whose &mic_mr.bound it counts in; NULL if not
 *	bound; changes under &mic_mkey.lock
 * @type: enum ib_mw_type
 * @ending: it is being invalidated, without the lock; likewise
 */
struct mic_mw_state {
	struct mic_mkey mkey;
	struct mic_mr *mr;
	enum ib_mw_type type;
	bool ending;
};

/* What ib_core allocates, and frees without a grace period. */
struct mic_mw {
	struct ib_mw ibmw;
	struct mic_mw_state *state;
};

static inline struct mic_mw_state *mic_mkey_to_mw(struct mic_mkey *mkey)
{
	return container_of(mkey, struct mic_mw_state, mkey);
}

int mic_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
int mic_dealloc_mw(struct ib_mw *ibmw);
void mic_mw_unbind(struct mic_mw_state *mw);

#endif /* MIC_MW_H */
