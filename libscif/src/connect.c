// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Connecting, and what rdma_cm says about a connection.
 *
 * The id that holds the endpoint's port stays; each attempt has an id of its
 * own, so that an attempt can fail without the port being free in between.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "rma.h"

/* Source ports of attempts, out of the way of what scif_bind() chooses. */
enum {
	SOURCES = 4500,
	READS = 16,
	RETRIES = 7,
	RNR_RETRIES = 3,
	LINGER_MS = 200
};

static void fill_param(struct scif_endpoint *ep, struct rdma_conn_param *param,
		       struct scif_hello *hello)
{
	uint8_t reads = ep->link.dev->max_reads;

	scif_link_hello(&ep->link, hello);
	hello->node = scif_own_node()->number;
	hello->port = ep->port;
	memset(param, 0, sizeof(*param));
	param->private_data = hello;
	param->private_data_len = sizeof(*hello);
	param->responder_resources = reads < READS ? reads : READS;
	param->initiator_depth = param->responder_resources;
	param->retry_count = RETRIES;
	param->rnr_retry_count = RNR_RETRIES;
}

/* Also for the side that accepts. 0 or an errno. */
int scif_connect_answer(struct scif_endpoint *ep)
{
	struct rdma_conn_param param;
	struct scif_hello hello;

	fill_param(ep, &param, &hello);
	return rdma_accept(ep->link.id, &param) ? errno : 0;
}

/* With the endpoint's lock. */
void scif_connect_done(struct scif_endpoint *ep, int error)
{
	int connecting = SCIF_CONNECTING;

	if (error)
		ep->connect_error = error;
	else
		ep->connect_untold = true;
	if (!atomic_compare_exchange_strong(&ep->state, &connecting,
					    error ? SCIF_BOUND :
						    SCIF_CONNECTED))
		return;
	atomic_fetch_sub(&scif_process.connecting, 1);
	if (error) {
		scif_link_break(&ep->link, true);
		scif_refresh(ep, -1);
	} else {
		scif_refresh_soon(ep);
	}
}

/*
 * A request that is taken back at once may be forgotten: the other side's kernel
 * handles what it gets on several processors, and looks for the request before
 * there is one. Who accepts it later waits for nobody. So the request is left
 * alone for a moment, with the connecting count, and then a tick ends it.
 */
bool scif_connect_linger(struct scif_endpoint *ep)
{
	if (!ep->asked || scif_now_ms() > ep->asked + LINGER_MS) {
		atomic_fetch_sub(&scif_process.connecting, 1);
		return false;
	}
	atomic_store(&ep->lingers, true);
	return true;
}

static void linger_tick(struct scif_endpoint *ep)
{
	if (scif_now_ms() <= ep->asked + LINGER_MS ||
	    !atomic_exchange(&ep->lingers, false))
		return;
	atomic_fetch_sub(&scif_process.connecting, 1);
	scif_table_remove(ep);
}

/*
 * What is left of an attempt that failed. With the endpoint's lock, which others may
 * have in between.
 */
static void clear(struct scif_endpoint *ep)
{
	struct scif_link old = ep->link;

	memset(&ep->link, 0, offsetof(struct scif_link, lock));
	pthread_mutex_unlock(&ep->lock);
	scif_link_close(&old); /* waits for its events to be taken */
	pthread_mutex_lock(&ep->lock);
}

/* The request is taken back: who accepted it would wait for an answer. */
static void give_up(struct scif_endpoint *ep)
{
	scif_connect_done(ep, ENODEV);
	clear(ep);
}

void scif_connect_tick(struct scif_endpoint *ep)
{
	if (atomic_load(&ep->lingers))
		linger_tick(ep);
	if (scif_state(ep) != SCIF_CONNECTING)
		return;
	pthread_mutex_lock(&ep->lock);
	if (scif_state(ep) == SCIF_CONNECTING &&
	    scif_now_ms() > ep->connect_ends)
		give_up(ep);
	pthread_mutex_unlock(&ep->lock);
}

static void ask(struct scif_endpoint *ep)
{
	struct rdma_conn_param param;
	struct scif_hello hello;
	int err;

	err = scif_link_open(&ep->link, ep->link.id, ep);
	if (!err)
		err = scif_rma_open(ep);
	if (!err) {
		fill_param(ep, &param, &hello);
		ep->asked = scif_now_ms();
		if (rdma_connect(ep->link.id, &param))
			err = errno;
	}
	if (err)
		scif_connect_done(ep, err);
}

static void established(struct scif_endpoint *ep,
			const struct scif_hello *hello)
{
	int err = 0;

	/* The side that accepts has joined before it answered. */
	if (!ep->link.peer_rkey) {
		if (hello->magic != SCIF_MAGIC ||
		    hello->protocol != SCIF_PROTOCOL)
			err = ECONNREFUSED;
		else
			err = scif_link_join(&ep->link, hello, ep->peer.node);
	}
	/* The peer was there, and what it has sent counts, as in is_overtaken(). */
	if (err == ECONNRESET) {
		scif_connect_done(ep, 0);
		scif_lost(ep);
	} else {
		scif_connect_done(ep, err);
	}
	/* Who has accepted does not wait for what never comes. */
	if (err && err != ECONNRESET)
		rdma_disconnect(ep->link.id);
}

static void connect_event(struct scif_endpoint *ep,
			  enum rdma_cm_event_type type,
			  const struct scif_hello *hello)
{
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(ep->link.id, SCIF_RESOLVE_MS))
			scif_connect_done(ep, ENODEV);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		ask(ep);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		established(ep, hello);
		break;
	case RDMA_CM_EVENT_REJECTED:
		scif_connect_done(ep, ECONNREFUSED);
		break;
	default:
		scif_connect_done(ep, ENODEV);
	}
}

/*
 * Whom this side has accepted was there, and has gone before that was heard: the message
 * that ends the connection can overtake the one that begins it. What it has sent counts.
 */
static bool is_overtaken(struct scif_endpoint *ep, enum rdma_cm_event_type type)
{
	return scif_state(ep) == SCIF_CONNECTING &&
	       type == RDMA_CM_EVENT_DISCONNECTED && ep->link.peer_rkey;
}

/*
 * A peer that goes before its kernel has heard that it is connected rejects what is
 * connected here.
 */
static bool is_end(enum rdma_cm_event_type type)
{
	return type == RDMA_CM_EVENT_DISCONNECTED ||
	       type == RDMA_CM_EVENT_REJECTED ||
	       type == RDMA_CM_EVENT_DEVICE_REMOVAL;
}

/* With the endpoint's lock. */
static void own_event(struct scif_endpoint *ep, struct rdma_cm_id *id,
		      enum rdma_cm_event_type type,
		      const struct scif_hello *hello)
{
	if (is_overtaken(ep, type))
		scif_connect_done(ep, 0);
	if (scif_state(ep) == SCIF_CONNECTING) {
		connect_event(ep, type, hello);
	} else if (is_end(type)) {
		if (type == RDMA_CM_EVENT_DEVICE_REMOVAL)
			atomic_store(&ep->link.gone, true);
		scif_lost(ep);
		rdma_disconnect(id); /* The peer waits for it. */
	}
}

/* The kernel tells nothing of a request's id before that is accepted. */
void scif_connect_event(struct scif_endpoint *ep, struct rdma_cm_id *id,
			enum rdma_cm_event_type type,
			const struct scif_hello *hello)
{
	pthread_mutex_lock(&ep->lock);
	if (ep->link.id == id) {
		own_event(ep, id, type, hello);
	} else if (ep->holder == id && type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
		atomic_store(&ep->removed, true);
		scif_refresh_soon(ep);
	}
	pthread_mutex_unlock(&ep->lock);
}

static int bind_source(struct rdma_cm_id *id)
{
	struct sockaddr_storage source = scif_own_node()->address;
	uint32_t i, start = scif_random() % SOURCES;

	for (i = 0; i < SOURCES; i++) {
		scif_set_port(&source,
			      SCIF_FIRST_SOURCE + (start + i) % SOURCES);
		if (!rdma_bind_addr(id, (struct sockaddr *)&source))
			return 0;
		if (errno != EADDRINUSE)
			return -1;
	}
	scif_set_port(&source, 0);
	return rdma_bind_addr(id, (struct sockaddr *)&source);
}

/* With the endpoint's lock; 0 or an errno. */
static int start(struct scif_endpoint *ep, const struct scif_node *node,
		 uint16_t port)
{
	struct sockaddr_storage address = node->address;
	struct rdma_cm_id *id;

	scif_set_port(&address, port);
	if (rdma_create_id(scif_process.cm, &id, ep, RDMA_PS_TCP))
		return errno;
	ep->link.id = id;
	if (bind_source(id) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)&address,
			      SCIF_RESOLVE_MS))
		return ENODEV;
	return 0;
}

/* With the endpoint's lock: its state is CONNECTING from now on. */
void scif_connect_begin(struct scif_endpoint *ep, unsigned int ms)
{
	ep->connect_ends = scif_now_ms() + ms;
	atomic_store(&ep->state, SCIF_CONNECTING);
	if (!atomic_fetch_add(&scif_process.connecting, 1))
		scif_process_kick();
}

/* With the endpoint's lock. EINPROGRESS if it began. */
static int begin(struct scif_endpoint *ep, scif_epd_t epd,
		 const struct scif_node *node, uint16_t port)
{
	int err = 0;

	if (scif_state(ep) == SCIF_UNBOUND)
		err = scif_hold_port(ep, 0);
	if (err)
		return err;
	scif_connect_begin(ep, SCIF_CONNECT_MS);
	ep->asked = 0;
	if (ep->link.id)
		clear(ep);
	if (scif_state(ep) == SCIF_CLOSED)
		return EBADF;
	err = start(ep, node, port);
	if (err) {
		scif_connect_done(ep, err);
		ep->connect_error = 0;
	}
	scif_refresh(ep, epd);
	return err ? err : EINPROGRESS;
}

/* With the endpoint's lock: 0, EINPROGRESS, or an errno. */
static int result(struct scif_endpoint *ep, scif_epd_t epd)
{
	int err;

	switch (scif_state(ep)) {
	case SCIF_LISTENING:
		return EOPNOTSUPP;
	case SCIF_CONNECTING:
		return EINPROGRESS;
	case SCIF_CONNECTED:
		err = ep->connect_untold ? 0 : EISCONN;
		ep->connect_untold = false;
		return err;
	case SCIF_DISCONNECTED:
		/* The peer may be gone before the result is asked for. */
		err = ep->connect_untold ? 0 : EINVAL;
		ep->connect_untold = false;
		return err;
	case SCIF_CLOSED:
		return EBADF;
	default:
		err = ep->connect_error;
		ep->connect_error = 0;
		if (err)
			scif_refresh(ep, epd);
		return err;
	}
}

/* Wait while it is under way; 0, EINTR, or EBADF if @epd was closed. */
int scif_connect_wait(struct scif_endpoint *ep, scif_epd_t epd)
{
	int err;

	while (scif_state(ep) == SCIF_CONNECTING) {
		err = scif_sleep(ep, epd, POLLOUT);
		if (err)
			return err;
		/* Awake for another's close: sleep again. */
		if (scif_state(ep) == SCIF_CONNECTING)
			scif_refresh(ep, epd);
	}
	return 0;
}

/* Does the node's address answer, or is it not known? Waits for that. */
static bool answers(const struct scif_node *node)
{
	struct sockaddr_storage address = node->address;
	struct rdma_cm_id *id;
	bool is_there;

	/* An id with events of its own, for which rdma_cm waits itself. */
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		return true;
	is_there = bind_source(id) ||
		   !rdma_resolve_addr(id, NULL, (struct sockaddr *)&address,
				      SCIF_RESOLVE_MS);
	rdma_destroy_id(id);
	return is_there;
}

/* Not one that another thread has closed just now. */
static bool is_nonblocking(scif_epd_t epd)
{
	int flags = fcntl(epd, F_GETFL);

	return flags >= 0 && flags & O_NONBLOCK;
}

/* Port 0: nobody has it, but a node that is unknown or dead is told first. */
static int refuse_no_port(const struct scif_node *node, scif_epd_t epd)
{
	if (!scif_is_there(node))
		return ENODEV;
	if (node->device[0] || is_nonblocking(epd))
		return EINVAL;
	return answers(node) ? EINVAL : ENODEV;
}

static int do_connect(struct scif_endpoint *ep, scif_epd_t epd,
		      const struct scif_port_id *dst)
{
	const struct scif_node *node;
	int err, state;

	if (!dst)
		return EINVAL;
	node = scif_node(dst->node);
	if (!node)
		return ENODEV;
	if (!dst->port)
		return refuse_no_port(node, epd);
	scif_signals_hold();
	pthread_mutex_lock(&ep->lock);
	state = scif_state(ep);
	err = result(ep, epd);
	if (!err && (state == SCIF_UNBOUND || state == SCIF_BOUND)) {
		ep->peer = *dst;
		err = begin(ep, epd, node, dst->port);
	}
	pthread_mutex_unlock(&ep->lock);
	if (err != EINPROGRESS || is_nonblocking(epd))
		return err;
	if (scif_connect_wait(ep, epd))
		return EINTR;
	pthread_mutex_lock(&ep->lock);
	err = result(ep, epd);
	/* Another thread has been told why not. */
	if (!err && scif_state(ep) != SCIF_CONNECTED &&
	    scif_state(ep) != SCIF_DISCONNECTED)
		err = ENODEV;
	pthread_mutex_unlock(&ep->lock);
	if (!err)
		scif_refresh(ep, epd);
	return err == EBADF ? EINTR : err;
}

SCIF_EXPORT int scif_connect(scif_epd_t epd, struct scif_port_id *dst)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = scif_get(epd);
	int err, port;

	if (!ep)
		return -1;
	err = do_connect(ep, epd, dst);
	port = ep->port;
	scif_put(ep);
	return err ? scif_fail(err) : port;
}
