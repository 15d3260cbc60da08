// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Requests, completions and events of a proxied device.
 */
#include <errno.h>
#include <string.h>

#include "proxy.h"
#include "proxy_client.h"
#include "tap.h"

WRAPPED(ibv_get_async_event);
WRAPPED(ibv_ack_async_event);

static int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	struct proxy_call call = {
		.op = PROXY_POLL_CQ,
		.object = cq->handle,
		.count = count < PROXY_WCS ? count : PROXY_WCS,
	};

	proxy_do(&call);
	if (call.ret > 0)
		memcpy(wc, call.wc, call.ret * sizeof(*wc));
	return call.ret;
}

bool proxy_is(const struct ibv_context *ctx)
{
	return ctx->ops.poll_cq == poll_cq;
}

static void add_sges(struct proxy_list *list, uint32_t *sges,
		     const struct ibv_sge *from, int count)
{
	if (*sges + count > PROXY_SGES)
		bail("a list with more than %d SGEs", PROXY_SGES);
	if (count)
		memcpy(list->sges + *sges, from, count * sizeof(*from));
	*sges += count;
}

static void add_send(struct proxy_list *list, uint32_t at,
		     const struct ibv_send_wr *wr, const struct ibv_qp *qp)
{
	struct ibv_send_wr *to = &list->send[at];

	*to = *wr;
	if (wr->opcode == IBV_WR_BIND_MW) {
		to->bind_mw.mw = NUMBER(wr->bind_mw.mw);
		to->bind_mw.bind_info.mr = NUMBER(wr->bind_mw.bind_info.mr);
	} else if (qp->qp_type == IBV_QPT_UD) {
		to->wr.ud.ah = NUMBER(wr->wr.ud.ah);
	}
}

static void check_room(uint32_t count)
{
	if (count == PROXY_WRS)
		bail("a list of more than %d requests", PROXY_WRS);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *first,
		     struct ibv_send_wr **bad)
{
	struct proxy_call call = {
		.op = PROXY_POST_SEND,
		.object = qp->handle,
	};
	struct ibv_send_wr *wr;
	uint32_t sges = 0;

	for (wr = first; wr; wr = wr->next) {
		check_room(call.count);
		add_send(&call.list, call.count++, wr, qp);
		add_sges(&call.list, &sges, wr->sg_list, wr->num_sge);
	}
	proxy_do(&call);
	for (wr = first; wr && call.count; call.count--)
		wr = wr->next;
	*bad = call.ret ? wr : NULL;
	return call.ret;
}

static int post_receives(enum proxy_op op, uint32_t object,
			 struct ibv_recv_wr *first, struct ibv_recv_wr **bad)
{
	struct proxy_call call = { .op = op, .object = object };
	struct ibv_recv_wr *wr;
	uint32_t sges = 0;

	for (wr = first; wr; wr = wr->next) {
		check_room(call.count);
		call.list.recv[call.count++] = *wr;
		add_sges(&call.list, &sges, wr->sg_list, wr->num_sge);
	}
	proxy_do(&call);
	for (wr = first; wr && call.count; call.count--)
		wr = wr->next;
	*bad = call.ret ? wr : NULL;
	return call.ret;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	return post_receives(PROXY_POST_RECV, qp->handle, wr, bad);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	return post_receives(PROXY_POST_SRQ_RECV, srq->handle, wr, bad);
}

/* The last event that was of the other machine. */
static const struct ibv_async_event *acknowledged;

static void set_element(struct ibv_async_event *event, void *object)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		event->element.cq = object;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		event->element.srq = object;
		break;
	default:
		event->element.qp = object;
	}
}

int __wrap_ibv_get_async_event(struct ibv_context *ctx,
			       struct ibv_async_event *event)
{
	struct proxy_call call = { .op = PROXY_GET_EVENT };

	if (!proxy_is(ctx))
		return __real_ibv_get_async_event(ctx, event);
	call.object = proxy_context_of(ctx)->number;
	if (proxy_do(&call))
		return -1;
	event->event_type = call.event;
	set_element(event, proxy_object(call.object));
	acknowledged = event;
	return 0;
}

void __wrap_ibv_ack_async_event(struct ibv_async_event *event)
{
	/* one of the other machine was acknowledged there */
	if (event != acknowledged)
		__real_ibv_ack_async_event(event);
	acknowledged = NULL;
}

void proxy_set_requests(struct ibv_context_ops *ops)
{
	ops->poll_cq = poll_cq;
	ops->post_send = post_send;
	ops->post_recv = post_recv;
	ops->post_srq_recv = post_srq_recv;
}
