// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Domains: protection, thread, parent and XRC.
 *
 * A parent domain is a protection domain with the kernel's handle of the one
 * it was made from. With a thread domain in it, what is created there needs no
 * locks. Queue memory comes from the kernel, so its allocators have nothing to
 * allocate.
 */
#include <stdlib.h>

#include "mic.h"

static struct ibv_pd *new_pd(struct ibv_context *context, uint32_t handle)
{
	struct mic_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->pd.context = context;
	pd->pd.handle = handle;
	return &pd->pd;
}

struct ibv_pd *mic_alloc_pd(struct ibv_context *context)
{
	struct ib_uverbs_alloc_pd_resp resp;
	struct ibv_alloc_pd cmd;
	struct ibv_pd *pd;
	int ret;

	pd = new_pd(context, 0);
	if (!pd)
		return NULL;
	ret = ibv_cmd_alloc_pd(context, pd, &cmd, sizeof(cmd), &resp,
			       sizeof(resp));
	if (ret) {
		free(pd);
		errno = ret;
		return NULL;
	}
	return pd;
}

struct ibv_pd *mic_import_pd(struct ibv_context *context, uint32_t handle)
{
	return new_pd(context, handle);
}

void mic_unimport_pd(struct ibv_pd *pd)
{
	free(to_mpd(pd));
}

static int dealloc_parent_domain(struct mic_pd *pd)
{
	atomic_fetch_sub(&pd->parent_of->refs, 1);
	if (pd->td)
		atomic_fetch_sub(&pd->td->refs, 1);
	free(pd);
	return 0;
}

int mic_dealloc_pd(struct ibv_pd *ibpd)
{
	struct mic_pd *pd = to_mpd(ibpd);
	int ret;

	if (atomic_load(&pd->refs))
		return EBUSY;
	if (pd->parent_of)
		return dealloc_parent_domain(pd);

	ret = ibv_cmd_dealloc_pd(ibpd);
	if (ret)
		return ret;
	free(pd);
	return 0;
}

struct ibv_td *mic_alloc_td(struct ibv_context *context,
			    struct ibv_td_init_attr *attr)
{
	struct mic_td *td;

	if (attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;
	td->td.context = context;
	return &td->td;
}

int mic_dealloc_td(struct ibv_td *ibtd)
{
	struct mic_td *td = container_of(ibtd, struct mic_td, td);

	if (atomic_load(&td->refs))
		return EBUSY;
	free(td);
	return 0;
}

struct ibv_pd *mic_alloc_parent_domain(struct ibv_context *context,
				       struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			       IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	struct ibv_pd *ibpd;
	struct mic_pd *pd;

	if (!attr->pd || attr->pd->context != context ||
	    (attr->td && attr->td->context != context)) {
		errno = EINVAL;
		return NULL;
	}
	if (attr->comp_mask & ~known) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	ibpd = new_pd(context, attr->pd->handle);
	if (!ibpd)
		return NULL;

	pd = to_mpd(ibpd);
	pd->parent_of = to_mpd(attr->pd);
	atomic_fetch_add(&pd->parent_of->refs, 1);
	if (attr->td) {
		pd->td = container_of(attr->td, struct mic_td, td);
		atomic_fetch_add(&pd->td->refs, 1);
	}
	return ibpd;
}

struct ibv_xrcd *mic_open_xrcd(struct ibv_context *context,
			       struct ibv_xrcd_init_attr *attr)
{
	struct ib_uverbs_open_xrcd_resp resp;
	struct ibv_open_xrcd cmd;
	struct verbs_xrcd *xrcd;
	int ret;

	xrcd = calloc(1, sizeof(*xrcd));
	if (!xrcd)
		return NULL;
	ret = ibv_cmd_open_xrcd(context, xrcd, sizeof(*xrcd), attr, &cmd,
				sizeof(cmd), &resp, sizeof(resp));
	if (ret) {
		free(xrcd);
		errno = ret;
		return NULL;
	}
	return &xrcd->xrcd;
}

int mic_close_xrcd(struct ibv_xrcd *ibxrcd)
{
	struct verbs_xrcd *xrcd = container_of(ibxrcd, struct verbs_xrcd, xrcd);
	int ret;

	ret = ibv_cmd_close_xrcd(xrcd);
	if (!ret)
		free(xrcd);
	return ret;
}
