// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <rdma/rdma_verbs.h>

#include "clock.h"
#include "cm.h"
#include "tap.h"

enum { RESOLVE_MS = 20000, BACKLOG = CM_CONNECTIONS, IN = 0, OUT = 1 };

void cm_open(struct cm_side *side)
{
	memset(side, 0, sizeof(*side));
	side->channel = rdma_create_event_channel();
	if (!side->channel)
		bail("no event channel: %s", strerror(errno));
}

static void conn_close(struct cm_conn *conn)
{
	if (!conn->id)
		return;
	if (conn->id->qp)
		rdma_destroy_qp(conn->id);
	if (conn->mr)
		rdma_dereg_mr(conn->mr);
	rdma_destroy_id(conn->id);
	memset(conn, 0, sizeof(*conn));
}

void cm_close(struct cm_side *side)
{
	int i;

	for (i = 0; i < CM_CONNECTIONS; i++)
		conn_close(&side->conns[i]);
	if (side->listener)
		rdma_destroy_id(side->listener);
	rdma_destroy_event_channel(side->channel);
}

struct rdma_cm_event *cm_event(struct cm_side *side,
			       enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	if (!check(becomes_readable(side->channel->fd), "no event; expected %s",
		   rdma_event_str(type)) ||
	    !check(!rdma_get_cm_event(side->channel, &event), "no event: %s",
		   strerror(errno)))
		return NULL;
	if (check(event->event == type, "%s, status %d; expected %s",
		  rdma_event_str(event->event), event->status,
		  rdma_event_str(type)))
		return event;
	rdma_ack_cm_event(event);
	return NULL;
}

bool cm_expect(struct cm_side *side, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = cm_event(side, type);

	if (event)
		rdma_ack_cm_event(event);
	return event;
}

static struct cm_conn *conn_new(struct cm_side *side)
{
	int i;

	for (i = 0; i < CM_CONNECTIONS; i++)
		if (!side->conns[i].id)
			return &side->conns[i];
	bail("more than %d connections", CM_CONNECTIONS);
}

static struct cm_conn *conn_of(struct cm_side *side,
			       const struct rdma_cm_id *id)
{
	int i;

	for (i = 0; i < CM_CONNECTIONS; i++)
		if (side->conns[i].id == id)
			return &side->conns[i];
	return NULL;
}

static bool conn_receive(struct cm_conn *conn)
{
	return check(!rdma_post_recv(conn->id, NULL, conn->text[IN],
				     CM_TEXT_BYTES, conn->mr),
		     "receive: %s", strerror(errno));
}

/* Queue pair, memory, and a receive. */
static bool conn_equip(struct cm_conn *conn)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4,
			 .max_recv_wr = 4,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	if (!check(!rdma_create_qp(conn->id, NULL, &attr), "queue pair: %s",
		   strerror(errno)))
		return false;
	conn->mr = rdma_reg_msgs(conn->id, conn->text, sizeof(conn->text));
	return check(conn->mr, "memory region: %s", strerror(errno)) &&
	       conn_receive(conn);
}

void cm_listen(struct cm_side *side, const struct sockaddr_in *address,
	       uint16_t port)
{
	struct sockaddr_in own = *address;

	own.sin_port = htons(port);
	if (rdma_create_id(side->channel, &side->listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(side->listener, (struct sockaddr *)&own) ||
	    rdma_listen(side->listener, BACKLOG))
		bail("cannot listen: %s", strerror(errno));
}

static struct cm_conn *accept_one(struct cm_side *side, struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	struct cm_conn *conn = conn_new(side);

	conn->id = id;
	if (conn_equip(conn) &&
	    check(!rdma_accept(id, &param), "accept: %s", strerror(errno)))
		return conn;
	return NULL;
}

struct cm_conn *cm_accept(struct cm_side *side)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	event = cm_event(side, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (!event)
		return NULL;
	id = event->id;
	rdma_ack_cm_event(event);
	return accept_one(side, id);
}

struct cm_conn *cm_prepare(struct cm_side *side, const struct sockaddr_in *from,
			   const struct sockaddr_in *to, uint16_t port)
{
	struct sockaddr_in own = *from, other = *to;
	struct cm_conn *conn = conn_new(side);
	bool good;

	other.sin_port = htons(port);
	good = check(!rdma_create_id(side->channel, &conn->id, NULL,
				     RDMA_PS_TCP) &&
			     !rdma_resolve_addr(
				     conn->id, (struct sockaddr *)&own,
				     (struct sockaddr *)&other, RESOLVE_MS),
		     "address: %s", strerror(errno)) &&
	       cm_expect(side, RDMA_CM_EVENT_ADDR_RESOLVED) &&
	       check(!rdma_resolve_route(conn->id, RESOLVE_MS), "route: %s",
		     strerror(errno)) &&
	       cm_expect(side, RDMA_CM_EVENT_ROUTE_RESOLVED) &&
	       conn_equip(conn);
	return good ? conn : NULL;
}

bool cm_request(struct cm_conn *conn, const void *data, uint8_t bytes)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = bytes,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	return check(!rdma_connect(conn->id, &param), "connect: %s",
		     strerror(errno));
}

struct cm_conn *cm_connect(struct cm_side *side, const struct sockaddr_in *from,
			   const struct sockaddr_in *to, uint16_t port)
{
	struct cm_conn *conn = cm_prepare(side, from, to, port);

	return conn && cm_request(conn, NULL, 0) &&
			       cm_expect(side, RDMA_CM_EVENT_ESTABLISHED) ?
		       conn :
		       NULL;
}

bool cm_disconnect(struct cm_conn *conn)
{
	return check(!rdma_disconnect(conn->id), "disconnect: %s",
		     strerror(errno));
}

static bool completes(struct ibv_cq *cq, enum ibv_wc_status status)
{
	uint64_t end = deadline();
	unsigned int round = 0;
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc)) {
		if (!check(now_ms() < end, "no completion"))
			return false;
		relax(round++);
	}
	return check(wc.status == status, "%s instead of %s",
		     ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

static bool conn_send(struct cm_conn *conn, enum ibv_wc_status status)
{
	return check(!rdma_post_send(conn->id, NULL, conn->text[OUT],
				     CM_TEXT_BYTES, conn->mr, 0),
		     "send: %s", strerror(errno)) &&
	       completes(conn->id->send_cq, status);
}

bool cm_send(struct cm_conn *conn)
{
	static unsigned int number;

	snprintf(conn->text[OUT], CM_TEXT_BYTES, "message %u of port %u",
		 number++, ntohs(rdma_get_src_port(conn->id)));
	return conn_send(conn, IBV_WC_SUCCESS);
}

bool cm_receive(struct cm_conn *conn)
{
	return completes(conn->id->recv_cq, IBV_WC_SUCCESS);
}

bool cm_ping(struct cm_conn *conn)
{
	return cm_send(conn) && cm_receive(conn) &&
	       check(!memcmp(conn->text[IN], conn->text[OUT], CM_TEXT_BYTES),
		     "'%.*s' came back for '%.*s'", CM_TEXT_BYTES,
		     conn->text[IN], CM_TEXT_BYTES, conn->text[OUT]) &&
	       conn_receive(conn);
}

bool cm_flushes(struct cm_conn *conn)
{
	return completes(conn->id->recv_cq, IBV_WC_WR_FLUSH_ERR) &&
	       conn_send(conn, IBV_WC_WR_FLUSH_ERR);
}

/* Answer what has arrived. */
static void serve_conn(struct cm_conn *conn)
{
	struct ibv_wc wc;

	if (!conn->id || !conn->id->qp ||
	    ibv_poll_cq(conn->id->recv_cq, 1, &wc) < 1 || wc.status)
		return;
	memcpy(conn->text[OUT], conn->text[IN], CM_TEXT_BYTES);
	if (conn_receive(conn))
		conn_send(conn, IBV_WC_SUCCESS);
}

static void serve_event(struct cm_side *side)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;
	struct cm_conn *conn;

	if (rdma_get_cm_event(side->channel, &event))
		return;
	type = event->event;
	id = event->id;
	rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		accept_one(side, id);
	} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
		conn = conn_of(side, id);
		if (conn)
			conn_close(conn);
	}
}

void cm_serve(struct cm_side *side, int stop)
{
	struct pollfd fds[] = {
		{ .fd = stop, .events = POLLIN },
		{ .fd = side->channel->fd, .events = POLLIN },
	};
	unsigned int round = 0;
	int i;

	do {
		for (i = 0; i < CM_CONNECTIONS; i++)
			serve_conn(&side->conns[i]);
		if (poll(fds, 2, 0) < 0)
			return;
		if (fds[1].revents) {
			serve_event(side);
			round = 0;
		} else {
			relax(round++);
		}
	} while (!fds[0].revents);
}
