// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "dev.h"
#include "pd.h"

int mic_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	return mic_limit_get(&to_mic_dev(ibpd->device)->npd, MIC_MAX_PD);
}

int mic_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	atomic_dec(&to_mic_dev(ibpd->device)->npd);
	return 0;
}
