// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * What a process has once: the devices in use, and two threads. One, for
 * progress, handles control messages and keeps descriptors up to date. It waits
 * for completions; when a peer is slow, another one takes its place.
 * The other handles connections and descriptors that come and go, and never
 * waits for a completion: when a peer is gone, it ends the waits of all others.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "direct.h"
#include "internal.h"
#include "region.h"
#include "rma.h"

enum {
	TICK_MS = 2,
	LONG_TICK_MS = 200,
	BATCH = 32,
	MAX_REQUEST = 1 << 30,
	ACK_TIMEOUT = 17, /* half a second, and so often: link.c */
	RXE_VENDOR = 0xffffff,
	RXE_PACKETS = 32
};

/* What there is to do for an endpoint, and that a thread does it. */
enum { DUE_EVENT = 1, DUE_TICK = 2, BUSY = 4 };

/* What epoll says about a descriptor; endpoints are known by inode. */
enum { EVENT_ENDPOINT, EVENT_KICK, EVENT_CM, EVENT_DEVICE, EVENT_ENDING };

struct scif_process scif_process = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.cm_lock = PTHREAD_MUTEX_INITIALIZER,
	.epoll = -1,
	.epoll_cm = -1,
	.kick = -1,
};

/* Of this thread; 0 if it was never the progress thread. */
static __thread unsigned int generation;

static int watch(int epoll, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = { .events = events, .data.u64 = data };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

int scif_watch_endpoint(struct scif_endpoint *ep)
{
	return watch(scif_process.epoll_cm, ep->steer.fd, EPOLLET,
		     ep->inode << 3 | EVENT_ENDPOINT);
}

int scif_watch_ending(int fd)
{
	return watch(scif_process.epoll_cm, fd, EPOLLIN, EVENT_ENDING);
}

static int set_nonblocking(int fd)
{
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/*
 * The requester of rxe stops when too much is under way (128 packets that are
 * not acknowledged, 64 that are not sent, reads before a fence), and sets the
 * flag that wakes it only after it has looked. What it waits for may have come
 * in between, on another processor; then nobody wakes it before the next
 * request is posted. So rxe never gets so much that it would stop: one
 * request, of half of those packets.
 *
 * Nor does it get a reason to send again what is not lost. Its timer runs from one
 * request into the next; what it then sends again may be answered at the same
 * time, on another processor, after which the two sides count differently: a
 * write is acknowledged and not carried out, and a read never ends.
 */
static void set_limits(struct scif_device *dev,
		       const struct ibv_device_attr *attr,
		       const struct ibv_port_attr *port)
{
	const bool rxe = attr->vendor_id == RXE_VENDOR;
	uint32_t most = rxe ? RXE_PACKETS << (port->active_mtu + 7) :
			      MAX_REQUEST;

	dev->max_request = port->max_msg_sz < most ? port->max_msg_sz : most;
	dev->depth = rxe ? 1 : SCIF_RMA_DEPTH;
	dev->ack_timeout = rxe ? 0 : ACK_TIMEOUT;
	if (rxe && !atomic_exchange(&scif_process.patient, true))
		scif_process_kick();
	dev->max_reads = attr->max_qp_rd_atom < attr->max_qp_init_rd_atom ?
				 attr->max_qp_rd_atom :
				 attr->max_qp_init_rd_atom;
}

struct scif_device *scif_device_get(struct ibv_context *ctx)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct scif_device *dev;

	pthread_mutex_lock(&scif_process.lock);
	for (dev = scif_process.devices; dev; dev = dev->next)
		if (dev->ctx == ctx)
			goto unlock;
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		goto unlock;
	dev->ctx = ctx;
	pthread_mutex_init(&dev->cache.lock, NULL);
	if (ibv_query_device(ctx, &attr) || ibv_query_port(ctx, 1, &port))
		goto fail;
	set_limits(dev, &attr, &port);
	dev->direct = scif_direct_find(ctx);
	dev->channel = ibv_create_comp_channel(ctx);
	if (!dev->channel)
		goto fail;
	set_nonblocking(dev->channel->fd);
	if (watch(scif_process.epoll, dev->channel->fd, EPOLLIN,
		  (uintptr_t)dev | EVENT_DEVICE))
		goto fail_channel;
	dev->next = scif_process.devices;
	scif_process.devices = dev;
	goto unlock;

fail_channel:
	ibv_destroy_comp_channel(dev->channel);
fail:
	free(dev);
	dev = NULL;
	errno = ENODEV;
unlock:
	pthread_mutex_unlock(&scif_process.lock);
	return dev;
}

void scif_process_kick(void)
{
	uint64_t one = 1;

	if (write(scif_process.kick, &one, sizeof(one)) < 0)
		return; /* It is awake anyway. */
}

/* With the connections' lock: whom an event is for. */
static struct scif_endpoint *owner_of(const struct rdma_cm_event *event)
{
	return event->event == RDMA_CM_EVENT_CONNECT_REQUEST ?
		       event->listen_id->context :
		       event->id->context;
}

/* scif_refresh() may wait for completions, which is not for the connections thread. */
void scif_refresh_soon(struct scif_endpoint *ep)
{
	atomic_store(&ep->dirty, true);
	scif_process_kick();
}

/*
 * This thread's credentials are not what they were when rdma_cm was opened, as after
 * setuid(): from then on the kernel tells it nothing. So nobody can be accepted, and
 * who is connected has to be asked if it is there. None that is connecting becomes
 * connected, as this thread would do that.
 */
static void forget_cm(void)
{
	struct scif_endpoint *ep;

	epoll_ctl(scif_process.epoll_cm, EPOLL_CTL_DEL, scif_process.cm->fd,
		  NULL);
	for (ep = scif_get_next(NULL); ep; ep = scif_get_next(ep)) {
		atomic_store(&ep->removed, true);
		if (scif_state(ep) == SCIF_CONNECTED)
			scif_link_ask(&ep->link);
		atomic_store(&ep->dirty, true);
	}
	scif_process_kick();
}

static void handle_cm_event(void)
{
	struct scif_hello hello = { 0 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	enum rdma_cm_event_type type;
	struct scif_endpoint *ep = NULL;
	bool keep = true;
	int err;

	pthread_mutex_lock(&scif_process.cm_lock);
	err = rdma_get_cm_event(scif_process.cm, &event) ? errno : 0;
	if (!err)
		ep = owner_of(event);
	pthread_mutex_unlock(&scif_process.cm_lock);
	if (err == EACCES)
		forget_cm();
	if (err)
		return;
	id = event->id;
	type = event->event;
	if (event->param.conn.private_data_len >= sizeof(hello) &&
	    (type == RDMA_CM_EVENT_CONNECT_REQUEST ||
	     type == RDMA_CM_EVENT_ESTABLISHED))
		memcpy(&hello, event->param.conn.private_data, sizeof(hello));
	if (ep && !scif_try_get(ep))
		ep = NULL;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		keep = ep && scif_request_event(ep, id, &hello);
	else if (ep)
		scif_connect_event(ep, id, type, &hello);
	/* Whoever destroys an id waits for this. */
	rdma_ack_cm_event(event);
	if (!keep)
		scif_end_id(id); /* A peer that waits is told. */
	if (ep)
		scif_put(ep);
}

static bool is_progress(void)
{
	return generation == atomic_load(&scif_process.generation);
}

/* One of the two sees the other: who begins here, and who is slow. */
static void begin(struct scif_endpoint *ep)
{
	if (!is_progress())
		return;
	atomic_store(&scif_process.served, ep);
	if (atomic_load(&ep->link.slow))
		scif_process_go_on(ep);
}

static void end(struct scif_endpoint *ep)
{
	struct scif_endpoint *served = ep;

	atomic_compare_exchange_strong(&scif_process.served, &served, NULL);
}

/* What makes it dirty from now on comes with a kick of its own. */
static void handle_event(struct scif_endpoint *ep)
{
	bool dirty = atomic_exchange(&ep->dirty, false);

	scif_control_event(ep);
	if (dirty)
		scif_refresh(ep, -1);
}

/* Was it busy, and isn't any more? And what else takes its time. */
static void tick(struct scif_endpoint *ep)
{
	if (atomic_load(&ep->hot) && atomic_fetch_add(&ep->ticks, 1) > 0)
		scif_cool(ep, -1);
	if (atomic_load(&ep->warm) && !atomic_exchange(&ep->copied, false))
		scif_chill(ep);
	scif_connect_tick(ep);
	scif_map_tick(ep);
	scif_rma_tick(ep);
}

/* By one thread at a time: that one does what others come for, too. */
static void serve(struct scif_endpoint *ep, unsigned int what)
{
	unsigned int due;

	if (atomic_fetch_or(&ep->due, what | BUSY) & BUSY)
		return;
	do {
		begin(ep);
		due = atomic_exchange(&ep->due, BUSY);
		if (due & DUE_EVENT)
			handle_event(ep);
		if (due & DUE_TICK)
			tick(ep);
		end(ep);
		due = BUSY;
	} while (!atomic_compare_exchange_strong(&ep->due, &due, 0));
}

/* It was removed: its descriptor would be ready for ever. What uses it keeps it. */
static void forget_device(struct scif_device *gone)
{
	struct scif_device **link;

	atomic_store(&gone->gone, true);
	pthread_mutex_lock(&scif_process.lock);
	for (link = &scif_process.devices; *link && *link != gone;
	     link = &(*link)->next)
		;
	if (*link) {
		*link = gone->next;
		epoll_ctl(scif_process.epoll, EPOLL_CTL_DEL, gone->channel->fd,
			  NULL);
	}
	pthread_mutex_unlock(&scif_process.lock);
}

/* Some at a time: if peers ask always there are always more, and other things to do. */
static void handle_device(struct scif_device *dev, uint32_t events)
{
	struct scif_endpoint *ep;
	struct ibv_cq *cq;
	void *owner;
	bool alive;
	int i;

	for (i = 0; i < BATCH && is_progress(); i++) {
		if (ibv_get_cq_event(dev->channel, &cq, &owner)) {
			if (events & (EPOLLERR | EPOLLHUP))
				forget_device(dev);
			return;
		}
		ep = owner;
		alive = scif_try_get(ep);
		ibv_ack_cq_events(cq, 1);
		if (!alive)
			continue;
		serve(ep, DUE_EVENT);
		scif_put(ep);
	}
}

static void handle_endpoint(uint64_t inode)
{
	struct scif_endpoint *ep = scif_get_by_inode(inode);

	if (!ep)
		return;
	if (scif_steer_is_closed(&ep->steer))
		scif_endpoint_shutdown(ep);
	scif_put(ep);
}

static void handle_kick(void)
{
	struct scif_endpoint *ep;
	uint64_t count;

	if (read(scif_process.kick, &count, sizeof(count)) < 0)
		return;
	for (ep = scif_get_next(NULL); ep; ep = scif_get_next(ep))
		if (atomic_load(&ep->dirty))
			serve(ep, DUE_EVENT);
}

static void handle_tick(void)
{
	struct scif_endpoint *ep;

	scif_table_doubt();
	for (ep = scif_get_next(NULL); ep; ep = scif_get_next(ep)) {
		scif_queue_tick(ep);
		scif_link_tick(ep);
		/* Also while another one serves it, which its peer may keep for ever. */
		scif_windows_tick(ep);
		serve(ep, DUE_TICK);
	}
}

/* How long the thread may sleep. */
static int nap(void)
{
	if (atomic_load(&scif_process.hot))
		return TICK_MS;
	return atomic_load(&scif_process.connecting) ||
			       atomic_load(&scif_process.mapped) ||
			       atomic_load(&scif_process.awaited) ||
			       atomic_load(&scif_process.patient) ?
		       LONG_TICK_MS :
		       -1;
}

static void handle(const struct epoll_event *event)
{
	uint64_t data = event->data.u64;

	switch (data & 7) {
	case EVENT_KICK:
		handle_kick();
		break;
	case EVENT_CM:
		handle_cm_event();
		break;
	case EVENT_ENDING:
		scif_ending_event();
		break;
	case EVENT_DEVICE:
		handle_device((void *)(uintptr_t)(data & ~7ULL), event->events);
		break;
	default:
		handle_endpoint(data >> 3);
	}
}

static void *progress(void *number)
{
	struct epoll_event events[BATCH];
	uint64_t ticked = 0, now;
	int i, count, wait;

	/* Until who started it has said so. */
	pthread_mutex_lock(&scif_process.lock);
	generation = (uintptr_t)number;
	pthread_mutex_unlock(&scif_process.lock);
	while (is_progress()) {
		count = epoll_wait(scif_process.epoll, events, BATCH, nap());
		for (i = 0; i < count && is_progress(); i++)
			handle(&events[i]);
		wait = nap();
		now = scif_now_ms();
		if (wait < 0 || now < ticked + wait || !is_progress())
			continue;
		handle_tick();
		ticked = now;
	}
	return NULL;
}

static void *connections(void *unused)
{
	struct epoll_event event;

	(void)unused;
	scif_ending_here();
	for (;;)
		if (epoll_wait(scif_process.epoll_cm, &event, 1, -1) == 1)
			handle(&event);
	return NULL;
}

static int start_thread(void *(*run)(void *), void *argument)
{
	sigset_t all, old;
	pthread_t thread;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, NULL, run, argument);
	if (!err)
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

/* With the process's lock. The one before it, if any, ends soon. */
static int start_progress(void)
{
	unsigned int next = atomic_load(&scif_process.generation) + 1;
	int err = start_thread(progress, (void *)(uintptr_t)next);

	if (!err)
		atomic_store(&scif_process.generation, next);
	return err;
}

void scif_process_go_on(struct scif_endpoint *ep)
{
	pthread_mutex_lock(&scif_process.lock);
	if (atomic_load(&scif_process.served) == ep && !start_progress()) {
		atomic_store(&scif_process.served, NULL);
		/* For what the other one has not come to. */
		scif_process_kick();
	}
	pthread_mutex_unlock(&scif_process.lock);
}

/*
 * The child of a fork has none of this. It closes its copies of the
 * descriptors, so that the parent's end is the connections' end.
 */
static void forget(void)
{
	struct scif_device *dev;

	for (dev = scif_process.devices; dev; dev = dev->next) {
		close(dev->channel->fd);
		close(dev->ctx->cmd_fd);
		close(dev->ctx->async_fd);
	}
	scif_process.devices = NULL;
	if (scif_process.running) {
		close(scif_process.epoll);
		close(scif_process.epoll_cm);
		close(scif_process.kick);
		close(scif_process.cm->fd);
	}
	scif_process.running = false;
	scif_process.forked = true;
	atomic_store(&scif_process.served, NULL);
	atomic_store(&scif_process.hot, 0);
	atomic_store(&scif_process.connecting, 0);
	atomic_store(&scif_process.mapped, 0);
	atomic_store(&scif_process.awaited, 0);
	atomic_store(&scif_process.patient, false);
	pthread_mutex_init(&scif_process.lock, NULL);
	pthread_mutex_init(&scif_process.cm_lock, NULL);
	scif_nodes_abandon();
	scif_ending_abandon();
	scif_map_abandon();
	scif_memory_abandon();
	scif_table_abandon();
}

/* librdmacm finds no device, and says that there is none, if it can open no file. */
static int no_channel(void)
{
	int fd = eventfd(0, EFD_CLOEXEC);

	if (fd < 0)
		return errno;
	close(fd);
	return ENODEV;
}

static int start(void)
{
	static bool registered;
	int err;

	scif_process.cm = rdma_create_event_channel();
	if (!scif_process.cm)
		return no_channel();
	scif_process.epoll = epoll_create1(EPOLL_CLOEXEC);
	scif_process.epoll_cm = epoll_create1(EPOLL_CLOEXEC);
	scif_process.kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	set_nonblocking(scif_process.cm->fd);
	fcntl(scif_process.cm->fd, F_SETFD, FD_CLOEXEC);
	if (scif_process.epoll < 0 || scif_process.epoll_cm < 0 ||
	    scif_process.kick < 0 ||
	    watch(scif_process.epoll, scif_process.kick, EPOLLIN, EVENT_KICK) ||
	    watch(scif_process.epoll_cm, scif_process.cm->fd, EPOLLIN,
		  EVENT_CM)) {
		err = errno;
		goto fail;
	}
	err = start_progress();
	if (err)
		goto fail;
	err = start_thread(connections, NULL);
	if (err) {
		atomic_fetch_add(&scif_process.generation, 1); /* it ends */
		goto fail;
	}
	if (!registered)
		pthread_atfork(scif_table_begin, scif_table_end, forget);
	registered = true;
	scif_process.running = true;
	return 0;

fail:
	if (scif_process.epoll >= 0)
		close(scif_process.epoll);
	if (scif_process.epoll_cm >= 0)
		close(scif_process.epoll_cm);
	if (scif_process.kick >= 0)
		close(scif_process.kick);
	rdma_destroy_event_channel(scif_process.cm);
	return err;
}

int scif_process_start(void)
{
	int err = 0;

	pthread_mutex_lock(&scif_process.lock);
	/* librdmacm's devices are the parent's, too. */
	if (scif_process.forked)
		err = ENODEV;
	else if (!scif_process.running)
		err = start();
	pthread_mutex_unlock(&scif_process.lock);
	return err;
}
