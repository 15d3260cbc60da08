// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Connections by rdma_cm, in each state that one can be in.
 */
#include <errno.h>
#include <string.h>

#include "../cm.h"
#include "holder.h"
#include "tap.h"

enum {
	PORT_SERVED = 7601,
	PORT_SILENT,
	RESOLVE_MS = 20000,
	/* of a side, which one that is not cm.c's to find */
	SPARE = CM_CONNECTIONS - 1,
};

static int let_go_of_side(void *side)
{
	cm_close(side);
	return 0;
}

static void hold_side(struct holder *holder, struct cm_side *side)
{
	cm_open(side);
	keep(holder, "rdma_cm ids", side, let_go_of_side);
}

static struct sockaddr_in address_of(const union ibv_gid *gid)
{
	struct sockaddr_in address = { .sin_family = AF_INET };

	memcpy(&address.sin_addr, gid->raw + 12, 4);
	return address;
}

static void expect_event(struct holder *holder, struct cm_side *side,
			 enum rdma_cm_event_type type)
{
	await(holder, side->channel->fd);
	if (!cm_expect(side, type))
		end_alone(holder);
}

struct talk {
	struct holder *holder;
	struct cm_side active;
	struct cm_side passive;
	struct cm_side silent; /* what happens there nobody looks at */
	struct sockaddr_in mine;
	struct sockaddr_in theirs;
};

static struct cm_conn *request(struct talk *talk, uint16_t port)
{
	struct cm_conn *conn;

	conn = cm_prepare(&talk->active, &talk->mine, &talk->theirs, port);
	if (!conn || !cm_request(conn, NULL, 0))
		end_alone(talk->holder);
	return conn;
}

static struct cm_conn *connect_both(struct talk *talk)
{
	struct cm_conn *conn = request(talk, PORT_SERVED);

	await(talk->holder, talk->passive.channel->fd);
	if (!cm_accept(&talk->passive))
		end_alone(talk->holder);
	expect_event(talk->holder, &talk->active, RDMA_CM_EVENT_ESTABLISHED);
	expect_event(talk->holder, &talk->passive, RDMA_CM_EVENT_ESTABLISHED);
	meet(talk->holder);
	return conn;
}

/* The id of a request, which becomes nothing more. */
static struct rdma_cm_id *take_request(struct talk *talk)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	await(talk->holder, talk->passive.channel->fd);
	event = cm_event(&talk->passive, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (!event)
		end_alone(talk->holder);
	id = event->id;
	rdma_ack_cm_event(event);
	return id;
}

/* One is rejected, and one has no answer. */
static void hold_unanswered(struct talk *talk)
{
	struct rdma_cm_id *id;

	request(talk, PORT_SERVED);
	id = take_request(talk);
	talk->passive.conns[SPARE].id = id;
	if (rdma_reject(id, NULL, 0))
		end_alone(talk->holder);
	expect_event(talk->holder, &talk->active, RDMA_CM_EVENT_REJECTED);
	meet(talk->holder);
	request(talk, PORT_SERVED);
	talk->passive.conns[SPARE - 1].id = take_request(talk);
	request(talk, PORT_SILENT);
	meet(talk->holder);
}

static struct rdma_cm_id *new_id(struct talk *talk, struct cm_conn *conn,
				 enum rdma_port_space space)
{
	if (rdma_create_id(talk->active.channel, &conn->id, NULL, space))
		bail("rdma_create_id: %s", strerror(errno));
	return conn->id;
}

/* Ids that have not asked for a connection. */
static void hold_early(struct talk *talk)
{
	struct cm_conn *spare = &talk->active.conns[SPARE];
	struct sockaddr_in any = talk->mine;

	new_id(talk, spare--, RDMA_PS_TCP);
	any.sin_port = 0;
	if (rdma_bind_addr(new_id(talk, spare--, RDMA_PS_TCP),
			   (struct sockaddr *)&any))
		bail("rdma_bind_addr: %s", strerror(errno));
	if (rdma_resolve_addr(new_id(talk, spare, RDMA_PS_UDP),
			      (struct sockaddr *)&any,
			      (struct sockaddr *)&talk->theirs, RESOLVE_MS))
		bail("rdma_resolve_addr: %s", strerror(errno));
	expect_event(talk->holder, &talk->active, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (!cm_prepare(&talk->active, &talk->mine, &talk->theirs, PORT_SERVED))
		end_alone(talk->holder);
}

/* A datagram's id in a group. */
static void hold_group(struct talk *talk)
{
	struct rdma_cm_id *id = talk->active.conns[SPARE - 2].id;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4,
			 .max_recv_wr = 4,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
	};
	struct sockaddr_in group = { .sin_family = AF_INET };

	group.sin_addr.s_addr = htonl(0xef4d0001); /* 239.77.0.1 */
	if (rdma_create_qp(id, NULL, &attr) ||
	    rdma_join_multicast(id, (struct sockaddr *)&group, NULL))
		bail("rdma_join_multicast: %s", strerror(errno));
	expect_event(talk->holder, &talk->active, RDMA_CM_EVENT_MULTICAST_JOIN);
}

void hold_connections(struct holder *holder)
{
	static struct talk talk;

	talk.holder = holder;
	talk.mine = address_of(&holder->dev.gid);
	talk.theirs = address_of(&holder->theirs.links[LINK_BUSY].gid);
	hold_side(holder, &talk.active);
	hold_side(holder, &talk.passive);
	hold_side(holder, &talk.silent);
	cm_listen(&talk.passive, &talk.mine, PORT_SERVED);
	cm_listen(&talk.silent, &talk.mine, PORT_SILENT);
	meet(holder);
	hold_early(&talk);
	hold_group(&talk);
	connect_both(&talk);
	hold_unanswered(&talk);
	/* last: its events stay where they are */
	if (!cm_disconnect(connect_both(&talk)))
		end_alone(holder);
}
