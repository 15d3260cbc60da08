// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What datagrams of a proxied device need: address handles, GIDs and groups.
 */
#include "proxy.h"
#include "proxy_client.h"

WRAPPED(ibv_create_ah);
WRAPPED(ibv_create_ah_from_wc);
WRAPPED(ibv_destroy_ah);
WRAPPED(_ibv_query_gid_ex);
WRAPPED(ibv_attach_mcast);
WRAPPED(ibv_detach_mcast);

static struct ibv_ah *create_ah(struct ibv_pd *pd, struct proxy_call *call)
{
	struct ibv_ah *ah;

	call->parent = pd->handle;
	proxy_do(call);
	ah = proxy_made(call, sizeof(*ah));
	if (!ah)
		return NULL;
	ah->context = pd->context;
	ah->pd = pd;
	ah->handle = call->object;
	return ah;
}

struct ibv_ah *__wrap_ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct proxy_call call = { .op = PROXY_CREATE_AH };

	if (!proxy_is(pd->context))
		return __real_ibv_create_ah(pd, attr);
	call.ah = *attr;
	return create_ah(pd, &call);
}

struct ibv_ah *__wrap_ibv_create_ah_from_wc(struct ibv_pd *pd,
					    struct ibv_wc *wc,
					    struct ibv_grh *grh, uint8_t port)
{
	struct proxy_call call = { .op = PROXY_CREATE_AH_FROM_WC };

	if (!proxy_is(pd->context))
		return __real_ibv_create_ah_from_wc(pd, wc, grh, port);
	call.from.wc = *wc;
	call.from.grh = *grh;
	call.from.port = port;
	return create_ah(pd, &call);
}

int __wrap_ibv_destroy_ah(struct ibv_ah *ah)
{
	if (!proxy_is(ah->context))
		return __real_ibv_destroy_ah(ah);
	return proxy_end(PROXY_DESTROY_AH, ah->handle, ah);
}

int __wrap__ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port,
			     uint32_t index, struct ibv_gid_entry *entry,
			     uint32_t flags, size_t size)
{
	struct proxy_call call = { .op = PROXY_QUERY_GID };

	if (!proxy_is(ctx))
		return __real__ibv_query_gid_ex(ctx, port, index, entry, flags,
						size);
	call.object = proxy_context_of(ctx)->number;
	call.mask = flags;
	call.gid.port = port;
	call.gid.index = index;
	proxy_do(&call);
	*entry = call.gid.entry;
	return call.ret;
}

static int change_group(enum proxy_op op, const struct ibv_qp *qp,
			const union ibv_gid *gid, uint16_t lid)
{
	struct proxy_call call = {
		.op = op,
		.object = qp->handle,
		.group = { .gid = *gid, .lid = lid },
	};

	return proxy_do(&call);
}

int __wrap_ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid,
			    uint16_t lid)
{
	if (!proxy_is(qp->context))
		return __real_ibv_attach_mcast(qp, gid, lid);
	return change_group(PROXY_ATTACH_MCAST, qp, gid, lid);
}

int __wrap_ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid,
			    uint16_t lid)
{
	if (!proxy_is(qp->context))
		return __real_ibv_detach_mcast(qp, gid, lid);
	return change_group(PROXY_DETACH_MCAST, qp, gid, lid);
}
