// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * proxy_server PORT [--device NAME]: has verbs carried out on this machine's device
 * by tests that run on another machine (lib/proxy.h). A process for each test: what
 * it has made ends with it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device.h"
#include "event.h"
#include "memory.h"
#include "process.h"
#include "proxy_call.h"
#include "tap.h"
#include "withhold.h"

/* As many pieces of memory that are withheld can be provided again. */
enum { WITHHELD = 64 };

static const char *device_name;

static void **objects;
static uint32_t object_count = 1;

static uint32_t add_object(void *object)
{
	if (!object)
		return 0;
	objects = realloc(objects, (object_count + 1) * sizeof(*objects));
	if (!objects)
		bail("out of memory");
	objects[object_count] = object;
	return object_count++;
}

static void *object_of(uint32_t number)
{
	if (number >= object_count)
		bail("there is no object %u", number);
	return number ? objects[number] : NULL;
}

/* A number in the place of a pointer. */
static void *resolved(const void *number)
{
	return object_of((uintptr_t)number);
}

static uint32_t number_of(const void *object)
{
	uint32_t i;

	for (i = 1; i < object_count; i++)
		if (objects[i] == object)
			return i;
	return 0;
}

/* It was made, or it was not. */
static int made(struct proxy_call *call, void *object)
{
	call->object = add_object(object);
	return object ? 0 : -1;
}

/* It has gone: another one may be at its address. */
static int ended(struct proxy_call *call, int ret)
{
	if (!ret)
		objects[call->object] = NULL;
	return ret;
}

/* --- devices, domains and memory ------------------------------------------------ */

static int do_sync(struct proxy_call *call)
{
	(void)call;
	return 0;
}

static int do_open(struct proxy_call *call)
{
	struct device dev;

	device_open(&dev, device_name);
	if (ibv_dealloc_pd(dev.pd))
		bail("ibv_dealloc_pd fails");
	events_prepare(dev.ctx);
	call->device.attr = dev.attr;
	call->device.port = dev.port;
	call->device.gid = dev.gid;
	call->device.gid_index = dev.gid_index;
	return made(call, dev.ctx);
}

static int do_close(struct proxy_call *call)
{
	return ended(call, ibv_close_device(object_of(call->object)));
}

static int do_alloc_pd(struct proxy_call *call)
{
	return made(call, ibv_alloc_pd(object_of(call->parent)));
}

static int do_dealloc_pd(struct proxy_call *call)
{
	return ended(call, ibv_dealloc_pd(object_of(call->object)));
}

static void *address_of(const struct proxy_call *call)
{
	return (void *)(uintptr_t)call->memory.addr;
}

static int do_reg_mr(struct proxy_call *call)
{
	struct proxy_memory *memory = &call->memory;
	struct ibv_pd *pd = object_of(call->parent);
	struct ibv_mr *mr;

	if (memory->iova == memory->addr)
		mr = ibv_reg_mr(pd, address_of(call), memory->length,
				memory->access);
	else
		mr = ibv_reg_mr_iova(pd, address_of(call), memory->length,
				     memory->iova, memory->access);
	if (mr) {
		memory->lkey = mr->lkey;
		memory->rkey = mr->rkey;
	}
	return made(call, mr);
}

static int do_rereg_mr(struct proxy_call *call)
{
	struct proxy_memory *memory = &call->memory;
	struct ibv_pd *pd = call->parent ? object_of(call->parent) : NULL;
	struct ibv_mr *mr = object_of(call->object);
	int ret = ibv_rereg_mr(mr, (int)call->mask, pd, address_of(call),
			       memory->length, memory->access);

	memory->lkey = mr->lkey;
	memory->rkey = mr->rkey;
	return ret;
}

static int do_dereg_mr(struct proxy_call *call)
{
	return ended(call, ibv_dereg_mr(object_of(call->object)));
}

/* The first page of the call's memory, and where it ends. */
static uint64_t first_page(const struct proxy_call *call)
{
	return call->memory.addr & ~(PAGE_BYTES - 1);
}

static uint64_t memory_end(const struct proxy_call *call)
{
	return call->memory.addr + call->memory.length;
}

static int share_page(void *page)
{
	void *at = mmap(page, PAGE_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			0);

	return at == page ? 0 : -1;
}

static int do_share(struct proxy_call *call)
{
	uint64_t page;

	for (page = first_page(call); page < memory_end(call);
	     page += PAGE_BYTES)
		if (!mirror_has_page(page) &&
		    share_page((void *)(uintptr_t)page))
			return -1;
	mirror_add(call->memory.addr, call->memory.length);
	return 0;
}

/* Only pages that are shared: behind them may be what is this process's. */
static int change_pages(const struct proxy_call *call,
			int (*change)(void *page, int how))
{
	uint64_t page;
	int ret = 0;

	for (page = first_page(call); !ret && page < memory_end(call);
	     page += PAGE_BYTES)
		if (mirror_has_page(page))
			ret = change((void *)(uintptr_t)page,
				     call->memory.access);
	return ret;
}

static int unmap_page(void *page, int unused)
{
	(void)unused;
	return munmap(page, PAGE_BYTES);
}

static int advise_page(void *page, int advice)
{
	return madvise(page, PAGE_BYTES, advice);
}

static int protect_page(void *page, int protection)
{
	return mprotect(page, PAGE_BYTES, protection);
}

static int do_unmap(struct proxy_call *call)
{
	int ret = change_pages(call, unmap_page);

	mirror_drop(call->memory.addr, call->memory.length);
	return ret;
}

static int do_advise(struct proxy_call *call)
{
	int ret = change_pages(call, advise_page);

	if (call->memory.access == MADV_DONTNEED)
		mirror_cleared(call->memory.addr, call->memory.length);
	return ret;
}

static int do_protect(struct proxy_call *call)
{
	return change_pages(call, protect_page);
}

/* Most of it for good, as far as this process is concerned. */
static int withheld[WITHHELD];
static int withheld_count;

static int do_withhold(struct proxy_call *call)
{
	int fd = withhold(address_of(call), call->memory.length);

	if (fd >= 0 && withheld_count < WITHHELD)
		withheld[withheld_count++] = fd;
	return fd < 0 ? -1 : 0;
}

static int do_provide(struct proxy_call *call)
{
	(void)call;
	while (withheld_count)
		close(withheld[--withheld_count]);
	return 0;
}

/* --- windows -------------------------------------------------------------------- */

static int do_alloc_mw(struct proxy_call *call)
{
	struct ibv_mw *mw = ibv_alloc_mw(object_of(call->parent),
					 call->mw.type);

	call->mw.rkey = mw ? mw->rkey : 0;
	return made(call, mw);
}

static int do_bind_mw(struct proxy_call *call)
{
	struct ibv_mw_bind *bind = &call->mw.bind;
	struct ibv_mw *mw = object_of(call->object);
	int ret;

	bind->bind_info.mr = resolved(bind->bind_info.mr);
	ret = ibv_bind_mw(object_of(call->parent), mw, bind);
	call->mw.rkey = mw->rkey;
	return ret;
}

static int do_dealloc_mw(struct proxy_call *call)
{
	return ended(call, ibv_dealloc_mw(object_of(call->object)));
}

/* --- queues --------------------------------------------------------------------- */

static int do_create_cq(struct proxy_call *call)
{
	struct ibv_cq *cq = ibv_create_cq(object_of(call->parent),
					  (int)call->count, NULL, NULL, 0);

	call->count = cq ? cq->cqe : 0;
	return made(call, cq);
}

static int do_poll_cq(struct proxy_call *call)
{
	return ibv_poll_cq(object_of(call->object), (int)call->count, call->wc);
}

static int do_destroy_cq(struct proxy_call *call)
{
	return ended(call, ibv_destroy_cq(object_of(call->object)));
}

static int do_open_xrcd(struct proxy_call *call)
{
	return made(call, ibv_open_xrcd(object_of(call->parent), &call->xrcd));
}

static int do_close_xrcd(struct proxy_call *call)
{
	return ended(call, ibv_close_xrcd(object_of(call->object)));
}

static int do_create_srq(struct proxy_call *call)
{
	call->srq.pd = resolved(call->srq.pd);
	call->srq.xrcd = resolved(call->srq.xrcd);
	call->srq.cq = resolved(call->srq.cq);
	return made(call,
		    ibv_create_srq_ex(object_of(call->parent), &call->srq));
}

static int do_srq_num(struct proxy_call *call)
{
	return ibv_get_srq_num(object_of(call->object), &call->count);
}

static int do_modify_srq(struct proxy_call *call)
{
	return ibv_modify_srq(object_of(call->object), &call->srq_attr,
			      (int)call->mask);
}

static int do_query_srq(struct proxy_call *call)
{
	return ibv_query_srq(object_of(call->object), &call->srq_attr);
}

static int do_destroy_srq(struct proxy_call *call)
{
	return ended(call, ibv_destroy_srq(object_of(call->object)));
}

static int do_create_qp(struct proxy_call *call)
{
	struct ibv_qp_init_attr_ex *attr = &call->qp;
	struct ibv_qp *qp;

	attr->send_cq = resolved(attr->send_cq);
	attr->recv_cq = resolved(attr->recv_cq);
	attr->srq = resolved(attr->srq);
	attr->pd = resolved(attr->pd);
	attr->xrcd = resolved(attr->xrcd);
	qp = ibv_create_qp_ex(object_of(call->parent), attr);
	call->count = qp ? qp->qp_num : 0;
	return made(call, qp);
}

static int do_modify_qp(struct proxy_call *call)
{
	return ibv_modify_qp(object_of(call->object), &call->qp_attr,
			     (int)call->mask);
}

static int do_query_qp(struct proxy_call *call)
{
	struct ibv_qp_init_attr init;

	return ibv_query_qp(object_of(call->object), &call->qp_attr,
			    (int)call->mask, &init);
}

static int do_destroy_qp(struct proxy_call *call)
{
	return ended(call, ibv_destroy_qp(object_of(call->object)));
}

static int do_create_ah(struct proxy_call *call)
{
	return made(call, ibv_create_ah(object_of(call->parent), &call->ah));
}

static int do_create_ah_from_wc(struct proxy_call *call)
{
	return made(call, ibv_create_ah_from_wc(object_of(call->parent),
						&call->from.wc, &call->from.grh,
						call->from.port));
}

static int do_destroy_ah(struct proxy_call *call)
{
	return ended(call, ibv_destroy_ah(object_of(call->object)));
}

static int do_query_gid(struct proxy_call *call)
{
	return ibv_query_gid_ex(object_of(call->object), call->gid.port,
				call->gid.index, &call->gid.entry, call->mask);
}

static int do_attach_mcast(struct proxy_call *call)
{
	return ibv_attach_mcast(object_of(call->object), &call->group.gid,
				call->group.lid);
}

static int do_detach_mcast(struct proxy_call *call)
{
	return ibv_detach_mcast(object_of(call->object), &call->group.gid,
				call->group.lid);
}

/* --- requests and events -------------------------------------------------------- */

static void resolve_send(struct ibv_send_wr *wr, const struct ibv_qp *qp)
{
	if (wr->opcode == IBV_WR_BIND_MW) {
		wr->bind_mw.mw = resolved(wr->bind_mw.mw);
		wr->bind_mw.bind_info.mr = resolved(wr->bind_mw.bind_info.mr);
	} else if (qp->qp_type == IBV_QPT_UD) {
		wr->wr.ud.ah = resolved(wr->wr.ud.ah);
	}
}

static int do_post_send(struct proxy_call *call)
{
	struct ibv_qp *qp = object_of(call->object);
	struct ibv_sge *sge = call->list.sges;
	struct ibv_send_wr *wr = call->list.send, *bad = NULL;
	uint32_t i;
	int ret;

	for (i = 0; i < call->count; i++) {
		wr[i].next = i + 1 < call->count ? &wr[i + 1] : NULL;
		wr[i].sg_list = sge;
		sge += wr[i].num_sge;
		resolve_send(&wr[i], qp);
	}
	ret = ibv_post_send(qp, wr, &bad);
	call->count = ret ? (uint32_t)(bad - wr) : 0;
	return ret;
}

static void link_receives(struct proxy_call *call)
{
	struct ibv_recv_wr *wr = call->list.recv;
	struct ibv_sge *sge = call->list.sges;
	uint32_t i;

	for (i = 0; i < call->count; i++) {
		wr[i].next = i + 1 < call->count ? &wr[i + 1] : NULL;
		wr[i].sg_list = sge;
		sge += wr[i].num_sge;
	}
}

static int do_post_recv(struct proxy_call *call)
{
	struct ibv_recv_wr *wr = call->list.recv, *bad = NULL;
	int ret;

	link_receives(call);
	ret = ibv_post_recv(object_of(call->object), wr, &bad);
	call->count = ret ? (uint32_t)(bad - wr) : 0;
	return ret;
}

static int do_post_srq_recv(struct proxy_call *call)
{
	struct ibv_recv_wr *wr = call->list.recv, *bad = NULL;
	int ret;

	link_receives(call);
	ret = ibv_post_srq_recv(object_of(call->object), wr, &bad);
	call->count = ret ? (uint32_t)(bad - wr) : 0;
	return ret;
}

static int do_get_event(struct proxy_call *call)
{
	struct ibv_async_event event;

	if (ibv_get_async_event(object_of(call->object), &event))
		return -1;
	call->event = event.event_type;
	/* whichever it is, all are pointers at the same place */
	call->object = number_of(event.element.qp);
	ibv_ack_async_event(&event);
	return 0;
}

static int do_run(struct proxy_call *call)
{
	setenv("DEVICE", device_name, 1);
	return system(call->command);
}

static int (*const ops[PROXY_OPS])(struct proxy_call *call) = {
	[PROXY_SYNC] = do_sync,
	[PROXY_OPEN] = do_open,
	[PROXY_CLOSE] = do_close,
	[PROXY_ALLOC_PD] = do_alloc_pd,
	[PROXY_DEALLOC_PD] = do_dealloc_pd,
	[PROXY_REG_MR] = do_reg_mr,
	[PROXY_REREG_MR] = do_rereg_mr,
	[PROXY_DEREG_MR] = do_dereg_mr,
	[PROXY_ALLOC_MW] = do_alloc_mw,
	[PROXY_BIND_MW] = do_bind_mw,
	[PROXY_DEALLOC_MW] = do_dealloc_mw,
	[PROXY_CREATE_CQ] = do_create_cq,
	[PROXY_POLL_CQ] = do_poll_cq,
	[PROXY_DESTROY_CQ] = do_destroy_cq,
	[PROXY_OPEN_XRCD] = do_open_xrcd,
	[PROXY_CLOSE_XRCD] = do_close_xrcd,
	[PROXY_CREATE_SRQ] = do_create_srq,
	[PROXY_SRQ_NUM] = do_srq_num,
	[PROXY_MODIFY_SRQ] = do_modify_srq,
	[PROXY_QUERY_SRQ] = do_query_srq,
	[PROXY_DESTROY_SRQ] = do_destroy_srq,
	[PROXY_CREATE_QP] = do_create_qp,
	[PROXY_MODIFY_QP] = do_modify_qp,
	[PROXY_QUERY_QP] = do_query_qp,
	[PROXY_DESTROY_QP] = do_destroy_qp,
	[PROXY_POST_SEND] = do_post_send,
	[PROXY_POST_RECV] = do_post_recv,
	[PROXY_POST_SRQ_RECV] = do_post_srq_recv,
	[PROXY_CREATE_AH] = do_create_ah,
	[PROXY_CREATE_AH_FROM_WC] = do_create_ah_from_wc,
	[PROXY_DESTROY_AH] = do_destroy_ah,
	[PROXY_QUERY_GID] = do_query_gid,
	[PROXY_ATTACH_MCAST] = do_attach_mcast,
	[PROXY_DETACH_MCAST] = do_detach_mcast,
	[PROXY_GET_EVENT] = do_get_event,
	[PROXY_SHARE] = do_share,
	[PROXY_UNMAP] = do_unmap,
	[PROXY_ADVISE] = do_advise,
	[PROXY_PROTECT] = do_protect,
	[PROXY_WITHHOLD] = do_withhold,
	[PROXY_PROVIDE] = do_provide,
	[PROXY_RUN] = do_run,
};

static int serve(int socket, void *unused)
{
	struct proxy_call call;

	(void)unused;
	while (proxy_receive(socket, &call)) {
		if (call.op >= PROXY_OPS)
			bail("unknown call %d", call.op);
		errno = 0;
		call.ret = ops[call.op](&call);
		call.error = errno;
		if (!proxy_send(socket, &call))
			break;
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *peer;

	device_names(&argc, argv, &device_name, &peer);
	if (argc != 2)
		bail("usage: proxy_server PORT [--device NAME]");
	process_serve(argv[1], serve, NULL);
}
