/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Connections by rdma_cm, each with a receive posted and a text to send.
 */
#ifndef TESTS_CM_H
#define TESTS_CM_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/rdma_cma.h>

enum { CM_TEXT_BYTES = 64, CM_CONNECTIONS = 64 };

/* A connection, or one in the making. */
struct cm_conn {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	/* what arrives, what is sent */
	char text[2][CM_TEXT_BYTES];
};

/* A process's events, its listener, and its connections. */
struct cm_side {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct cm_conn conns[CM_CONNECTIONS];
};

void cm_open(struct cm_side *side);
/* Destroys all connections, too. */
void cm_close(struct cm_side *side);

/* Wait for an event; NULL, with a remark, if another one or none comes. */
struct rdma_cm_event *cm_event(struct cm_side *side,
			       enum rdma_cm_event_type type);
bool cm_expect(struct cm_side *side, enum rdma_cm_event_type type);

void cm_listen(struct cm_side *side, const struct sockaddr_in *address,
	       uint16_t port);
/* Take a request and accept it; NULL, with a remark, if none comes. */
struct cm_conn *cm_accept(struct cm_side *side);
/* Accept all, answer each message with the same, until @stop is readable. */
void cm_serve(struct cm_side *side, int stop);

/* Find the way to a server; NULL, with a remark, if there is none. */
struct cm_conn *cm_prepare(struct cm_side *side, const struct sockaddr_in *from,
			   const struct sockaddr_in *to, uint16_t port);
bool cm_request(struct cm_conn *conn, const void *data, uint8_t bytes);
struct cm_conn *cm_connect(struct cm_side *side, const struct sockaddr_in *from,
			   const struct sockaddr_in *to, uint16_t port);
bool cm_disconnect(struct cm_conn *conn);

/* A message with the peer's or the own text, and its completion. */
bool cm_send(struct cm_conn *conn);
bool cm_receive(struct cm_conn *conn);
/* Send, and have it back. */
bool cm_ping(struct cm_conn *conn);
/* Does the receive that is posted flush, and a new send, too? */
bool cm_flushes(struct cm_conn *conn);

#endif /* TESTS_CM_H */
