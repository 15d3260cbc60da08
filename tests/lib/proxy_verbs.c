// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The verbs of a proxied device. Those that a library exports are found before that
 * library's (the linker's --wrap); the others are found by the context.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory.h"
#include "proxy.h"
#include "proxy_client.h"
#include "tap.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

WRAPPED(ibv_close_device);
WRAPPED(ibv_alloc_pd);
WRAPPED(ibv_dealloc_pd);
WRAPPED(ibv_reg_mr);
WRAPPED(ibv_reg_mr_iova);
WRAPPED(ibv_reg_mr_iova2);
WRAPPED(ibv_rereg_mr);
WRAPPED(ibv_dereg_mr);
WRAPPED(munmap);
WRAPPED(madvise);
WRAPPED(mprotect);
WRAPPED(ibv_create_cq);
WRAPPED(ibv_destroy_cq);
WRAPPED(ibv_create_srq);
WRAPPED(ibv_modify_srq);
WRAPPED(ibv_query_srq);
WRAPPED(ibv_destroy_srq);
WRAPPED(ibv_create_qp);
WRAPPED(ibv_modify_qp);
WRAPPED(ibv_query_qp);
WRAPPED(ibv_destroy_qp);

/* An XRC domain has no place for its number. */
struct proxy_xrcd {
	struct ibv_xrcd xrcd;
	uint32_t handle;
};

/* Ours, by the number of theirs. */
static void **objects;
static uint32_t object_room;

void *proxy_object(uint32_t object)
{
	return object < object_room ? objects[object] : NULL;
}

static void make_room(uint32_t room)
{
	void **more = realloc(objects, room * sizeof(*objects));

	if (!more)
		bail("out of memory");
	memset(more + object_room, 0, (room - object_room) * sizeof(*more));
	objects = more;
	object_room = room;
}

void *proxy_made(const struct proxy_call *call, size_t size)
{
	void *object;

	if (!call->object)
		return NULL;
	object = calloc(1, size);
	if (!object)
		bail("out of memory");
	if (call->object >= object_room)
		make_room(call->object + 64);
	objects[call->object] = object;
	return object;
}

int proxy_end(enum proxy_op op, uint32_t handle, void *object)
{
	struct proxy_call call = { .op = op, .object = handle };
	int ret = proxy_do(&call);

	if (!ret)
		free(object);
	return ret;
}

static uint32_t context_number(const struct ibv_context *ctx)
{
	return proxy_context_of(ctx)->number;
}

/* --- domains and memory ------------------------------------------------------- */

int __wrap_ibv_close_device(struct ibv_context *ctx)
{
	if (!proxy_is(ctx))
		return __real_ibv_close_device(ctx);
	close(ctx->async_fd);
	return proxy_end(PROXY_CLOSE, context_number(ctx),
			 proxy_context_of(ctx));
}

struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *ctx)
{
	struct proxy_call call = { .op = PROXY_ALLOC_PD };
	struct ibv_pd *pd;

	if (!proxy_is(ctx))
		return __real_ibv_alloc_pd(ctx);
	call.parent = context_number(ctx);
	proxy_do(&call);
	pd = proxy_made(&call, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->context = ctx;
	pd->handle = call.object;
	return pd;
}

int __wrap_ibv_dealloc_pd(struct ibv_pd *pd)
{
	if (!proxy_is(pd->context))
		return __real_ibv_dealloc_pd(pd);
	return proxy_end(PROXY_DEALLOC_PD, pd->handle, pd);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			     uint64_t iova, int access)
{
	struct proxy_call call = {
		.op = PROXY_REG_MR,
		.parent = pd->handle,
		.memory = {
			.addr = (uintptr_t)addr,
			.length = length,
			.iova = iova,
			.access = access,
		},
	};
	struct ibv_mr *mr;

	if (addr)
		proxy_share(pd, addr, length);
	proxy_do(&call);
	mr = proxy_made(&call, sizeof(*mr));
	if (!mr)
		return NULL;
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->handle = call.object;
	mr->lkey = call.memory.lkey;
	mr->rkey = call.memory.rkey;
	return mr;
}

struct ibv_mr *__wrap_ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
				 int access)
{
	if (!proxy_is(pd->context))
		return __real_ibv_reg_mr(pd, addr, length, access);
	return reg_mr(pd, addr, length, (uintptr_t)addr, access);
}

struct ibv_mr *__wrap_ibv_reg_mr_iova(struct ibv_pd *pd, void *addr,
				      size_t length, uint64_t iova, int access)
{
	if (!proxy_is(pd->context))
		return __real_ibv_reg_mr_iova(pd, addr, length, iova, access);
	return reg_mr(pd, addr, length, iova, access);
}

struct ibv_mr *__wrap_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr,
				       size_t length, uint64_t iova,
				       unsigned int access)
{
	if (!proxy_is(pd->context))
		return __real_ibv_reg_mr_iova2(pd, addr, length, iova, access);
	return reg_mr(pd, addr, length, iova, (int)access);
}

/* What is no memory here is none there: nothing can be mapped to be the same. */
static bool is_memory(void *addr, size_t length)
{
	uintptr_t page = (uintptr_t)addr & ~(PAGE_BYTES - 1);

	return !msync((void *)page, (uintptr_t)addr + length - page, MS_ASYNC);
}

int __wrap_ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
			void *addr, size_t length, int access)
{
	struct proxy_call call = {
		.op = PROXY_REREG_MR,
		.object = mr->handle,
		.parent = pd ? pd->handle : 0,
		.mask = flags,
		.memory = {
			.addr = (uintptr_t)addr,
			.length = length,
			.access = access,
		},
	};
	int ret;

	if (!proxy_is(mr->context))
		return __real_ibv_rereg_mr(mr, flags, pd, addr, length, access);
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION && is_memory(addr, length))
		proxy_share(mr->pd, addr, length);
	ret = proxy_do(&call);
	mr->lkey = call.memory.lkey;
	mr->rkey = call.memory.rkey;
	if (!ret && flags & IBV_REREG_MR_CHANGE_PD)
		mr->pd = pd;
	if (!ret && flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->addr = addr;
		mr->length = length;
	}
	return ret;
}

int __wrap_ibv_dereg_mr(struct ibv_mr *mr)
{
	if (!proxy_is(mr->context))
		return __real_ibv_dereg_mr(mr);
	return proxy_end(PROXY_DEREG_MR, mr->handle, mr);
}

static int change_memory(enum proxy_op op, void *addr, size_t length, int how)
{
	struct proxy_call call = {
		.op = op,
		.memory = {
			.addr = (uintptr_t)addr,
			.length = length,
			.access = how,
		},
	};

	return proxy_do(&call);
}

void proxy_share(struct ibv_pd *pd, void *addr, size_t length)
{
	if (!proxy_is(pd->context))
		return;
	if (change_memory(PROXY_SHARE, addr, length, 0))
		bail("%p is taken on the other machine: %s", addr,
		     strerror(errno));
	mirror_add((uintptr_t)addr, length);
}

int proxy_withhold(void *addr, size_t length)
{
	return change_memory(PROXY_WITHHOLD, addr, length, 0);
}

int __wrap_munmap(void *addr, size_t length)
{
	if (proxy_shares(addr, length)) {
		change_memory(PROXY_UNMAP, addr, length, 0);
		mirror_drop((uintptr_t)addr, length);
	}
	return __real_munmap(addr, length);
}

int __wrap_madvise(void *addr, size_t length, int advice)
{
	if (proxy_shares(addr, length)) {
		if (change_memory(PROXY_ADVISE, addr, length, advice))
			return -1;
		if (advice == MADV_DONTNEED)
			mirror_cleared((uintptr_t)addr, length);
	}
	return __real_madvise(addr, length, advice);
}

int __wrap_mprotect(void *addr, size_t length, int protection)
{
	if (proxy_shares(addr, length) &&
	    change_memory(PROXY_PROTECT, addr, length, protection))
		return -1;
	return __real_mprotect(addr, length, protection);
}

/* --- windows ------------------------------------------------------------------ */

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct proxy_call call = {
		.op = PROXY_ALLOC_MW,
		.parent = pd->handle,
		.mw = { .type = type },
	};
	struct ibv_mw *mw;

	proxy_do(&call);
	mw = proxy_made(&call, sizeof(*mw));
	if (!mw)
		return NULL;
	mw->context = pd->context;
	mw->pd = pd;
	mw->handle = call.object;
	mw->rkey = call.mw.rkey;
	mw->type = type;
	return mw;
}

static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw,
		   struct ibv_mw_bind *bind)
{
	struct proxy_call call = {
		.op = PROXY_BIND_MW,
		.object = mw->handle,
		.parent = qp->handle,
		.mw = { .bind = *bind },
	};

	call.mw.bind.bind_info.mr = NUMBER(bind->bind_info.mr);
	proxy_do(&call);
	mw->rkey = call.mw.rkey;
	return call.ret;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	return proxy_end(PROXY_DEALLOC_MW, mw->handle, mw);
}

/* --- completion queues, XRC domains, shared receive queues ---------------------- */

struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *ctx, int cqe,
				    void *context,
				    struct ibv_comp_channel *channel,
				    int vector)
{
	struct proxy_call call = { .op = PROXY_CREATE_CQ, .count = cqe };
	struct ibv_cq *cq;

	if (!proxy_is(ctx))
		return __real_ibv_create_cq(ctx, cqe, context, channel, vector);
	if (channel)
		bail("a completion channel can't be had of another machine");
	call.parent = context_number(ctx);
	proxy_do(&call);
	cq = proxy_made(&call, sizeof(*cq));
	if (!cq)
		return NULL;
	cq->context = ctx;
	cq->cq_context = context;
	cq->handle = call.object;
	cq->cqe = call.count;
	return cq;
}

int __wrap_ibv_destroy_cq(struct ibv_cq *cq)
{
	if (!proxy_is(cq->context))
		return __real_ibv_destroy_cq(cq);
	return proxy_end(PROXY_DESTROY_CQ, cq->handle, cq);
}

static struct ibv_xrcd *open_xrcd(struct ibv_context *ctx,
				  struct ibv_xrcd_init_attr *attr)
{
	struct proxy_call call = {
		.op = PROXY_OPEN_XRCD,
		.parent = context_number(ctx),
		.xrcd = *attr,
	};
	struct proxy_xrcd *xrcd;

	proxy_do(&call);
	xrcd = proxy_made(&call, sizeof(*xrcd));
	if (!xrcd)
		return NULL;
	xrcd->xrcd.context = ctx;
	xrcd->handle = call.object;
	return &xrcd->xrcd;
}

static uint32_t xrcd_number(struct ibv_xrcd *xrcd)
{
	return ((struct proxy_xrcd *)xrcd)->handle;
}

static int close_xrcd(struct ibv_xrcd *xrcd)
{
	return proxy_end(PROXY_CLOSE_XRCD, xrcd_number(xrcd), xrcd);
}

static struct ibv_srq *create_srq_ex(struct ibv_context *ctx,
				     struct ibv_srq_init_attr_ex *attr)
{
	struct proxy_call call = {
		.op = PROXY_CREATE_SRQ,
		.parent = context_number(ctx),
		.srq = *attr,
	};
	struct ibv_srq *srq;

	call.srq.pd = NUMBER(attr->pd);
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD)
		call.srq.xrcd = proxy_number(xrcd_number(attr->xrcd));
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ)
		call.srq.cq = NUMBER(attr->cq);
	proxy_do(&call);
	srq = proxy_made(&call, sizeof(*srq));
	if (!srq)
		return NULL;
	attr->attr = call.srq.attr;
	srq->context = ctx;
	srq->srq_context = attr->srq_context;
	srq->pd = attr->pd;
	srq->handle = call.object;
	return srq;
}

struct ibv_srq *__wrap_ibv_create_srq(struct ibv_pd *pd,
				      struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex = {
		.srq_context = attr->srq_context,
		.attr = attr->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_srq *srq;

	if (!proxy_is(pd->context))
		return __real_ibv_create_srq(pd, attr);
	srq = create_srq_ex(pd->context, &ex);
	attr->attr = ex.attr;
	return srq;
}

static int get_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	struct proxy_call call = {
		.op = PROXY_SRQ_NUM,
		.object = srq->handle,
	};

	proxy_do(&call);
	*num = call.count;
	return call.ret;
}

int __wrap_ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr,
			  int mask)
{
	struct proxy_call call = { .op = PROXY_MODIFY_SRQ, .mask = mask };

	if (!proxy_is(srq->context))
		return __real_ibv_modify_srq(srq, attr, mask);
	call.object = srq->handle;
	call.srq_attr = *attr;
	return proxy_do(&call);
}

int __wrap_ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct proxy_call call = { .op = PROXY_QUERY_SRQ };

	if (!proxy_is(srq->context))
		return __real_ibv_query_srq(srq, attr);
	call.object = srq->handle;
	proxy_do(&call);
	*attr = call.srq_attr;
	return call.ret;
}

int __wrap_ibv_destroy_srq(struct ibv_srq *srq)
{
	if (!proxy_is(srq->context))
		return __real_ibv_destroy_srq(srq);
	return proxy_end(PROXY_DESTROY_SRQ, srq->handle, srq);
}

/* --- queue pairs ---------------------------------------------------------------- */

static struct ibv_qp *create_qp_ex(struct ibv_context *ctx,
				   struct ibv_qp_init_attr_ex *attr)
{
	struct proxy_call call = {
		.op = PROXY_CREATE_QP,
		.parent = context_number(ctx),
		.qp = *attr,
	};
	struct ibv_qp *qp;

	call.qp.send_cq = NUMBER(attr->send_cq);
	call.qp.recv_cq = NUMBER(attr->recv_cq);
	call.qp.srq = NUMBER(attr->srq);
	call.qp.pd = NUMBER(attr->pd);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD)
		call.qp.xrcd = proxy_number(xrcd_number(attr->xrcd));
	proxy_do(&call);
	qp = proxy_made(&call, sizeof(*qp));
	if (!qp)
		return NULL;
	attr->cap = call.qp.cap;
	qp->context = ctx;
	qp->qp_context = attr->qp_context;
	qp->pd = attr->pd;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->srq = attr->srq;
	qp->handle = call.object;
	qp->qp_num = call.count;
	qp->qp_type = attr->qp_type;
	return qp;
}

struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *pd,
				    struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp;

	if (!proxy_is(pd->context))
		return __real_ibv_create_qp(pd, attr);
	qp = create_qp_ex(pd->context, &ex);
	attr->cap = ex.cap;
	return qp;
}

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct proxy_call call = { .op = PROXY_MODIFY_QP, .mask = mask };

	if (!proxy_is(qp->context))
		return __real_ibv_modify_qp(qp, attr, mask);
	call.object = qp->handle;
	call.qp_attr = *attr;
	if (!proxy_do(&call) && mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	return call.ret;
}

int __wrap_ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init)
{
	struct proxy_call call = { .op = PROXY_QUERY_QP, .mask = mask };

	if (!proxy_is(qp->context))
		return __real_ibv_query_qp(qp, attr, mask, init);
	call.object = qp->handle;
	proxy_do(&call);
	*attr = call.qp_attr;
	*init = (struct ibv_qp_init_attr){
		.qp_context = qp->qp_context,
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.srq = qp->srq,
		.cap = attr->cap,
		.qp_type = qp->qp_type,
	};
	return call.ret;
}

int __wrap_ibv_destroy_qp(struct ibv_qp *qp)
{
	if (!proxy_is(qp->context))
		return __real_ibv_destroy_qp(qp);
	return proxy_end(PROXY_DESTROY_QP, qp->handle, qp);
}

void proxy_set_verbs(struct verbs_context *verbs)
{
	verbs->context.ops.alloc_mw = alloc_mw;
	verbs->context.ops.bind_mw = bind_mw;
	verbs->context.ops.dealloc_mw = dealloc_mw;
	verbs->open_xrcd = open_xrcd;
	verbs->close_xrcd = close_xrcd;
	verbs->create_srq_ex = create_srq_ex;
	verbs->get_srq_num = get_srq_num;
	verbs->create_qp_ex = create_qp_ex;
	proxy_set_requests(&verbs->context.ops);
}
