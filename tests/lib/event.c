// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "clock.h"
#include "event.h"
#include "tap.h"

void events_prepare(struct ibv_context *ctx)
{
	int flags = fcntl(ctx->async_fd, F_GETFL);

	if (flags < 0 || fcntl(ctx->async_fd, F_SETFL, flags | O_NONBLOCK))
		bail("fcntl: %s", strerror(errno));
}

static const void *event_object(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp;
	default:
		return NULL;
	}
}

/* The next event that counts; false if there is none now. */
static bool take_event(struct ibv_context *ctx, enum ibv_event_type *type,
		       const void **object)
{
	struct ibv_async_event event;

	while (!ibv_get_async_event(ctx, &event)) {
		*type = event.event_type;
		*object = event_object(&event);
		ibv_ack_async_event(&event);
		if (*type != IBV_EVENT_COMM_EST)
			return true;
	}
	return false;
}

bool event_expect(struct ibv_context *ctx, enum ibv_event_type type,
		  const void *object)
{
	enum ibv_event_type found;
	const void *found_object;
	uint64_t end = deadline();

	do {
		if (!becomes_readable(ctx->async_fd) || now_ms() > end)
			return check(false, "the event '%s' does not come",
				     ibv_event_type_str(type));
	} while (!take_event(ctx, &found, &found_object));
	return check(found == type && found_object == object,
		     "event '%s'%s, expected '%s'", ibv_event_type_str(found),
		     found_object == object ? "" : " of another object",
		     ibv_event_type_str(type));
}

bool events_none(struct ibv_context *ctx)
{
	enum ibv_event_type type;
	const void *object;
	bool none = true;

	while (take_event(ctx, &type, &object))
		none = check(false, "unexpected event '%s'",
			     ibv_event_type_str(type));
	return none;
}

void events_drop(struct ibv_context *ctx)
{
	enum ibv_event_type type;
	const void *object;

	while (take_event(ctx, &type, &object))
		;
}
