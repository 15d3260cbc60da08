// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "dev.h"
#include "pd.h"
#include "uctx.h"

int mic_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	int err = mic_udata_check(udata, 0);

	return err ?: mic_limit_get(&to_mic_dev(ibpd->device)->npd, MIC_MAX_PD);
}

int mic_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	atomic_dec(&to_mic_dev(ibpd->device)->npd);
	return 0;
}
