// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * The life of an endpoint: open, bind, listen, close.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hot.h"
#include "internal.h"
#include "rma.h"

enum {
	CM_BACKLOG = 1024,
	PORT_TRIES = 64,
	LEAVE_MS = 500,
	CHOSEN_PORTS = SCIF_FIRST_SOURCE - SCIF_PORT_RSVD - 1
};

uint64_t scif_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ULL + now.tv_nsec / 1000000;
}

uint32_t scif_random(void)
{
	struct timespec now;
	uint32_t value;

	if (getrandom(&value, sizeof(value), GRND_NONBLOCK) == sizeof(value))
		return value;
	/* Soon after the machine's start. */
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint32_t)now.tv_nsec * 2654435761U ^ (uint32_t)getpid();
}

int scif_check_connected(struct scif_endpoint *ep)
{
	switch (scif_state(ep)) {
	case SCIF_CONNECTED:
		return 0;
	case SCIF_DISCONNECTED:
		return ECONNRESET;
	case SCIF_CLOSED:
		return EBADF;
	default:
		return ENOTCONN;
	}
}

static void init_lock(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

static scif_epd_t make(struct scif_endpoint **result)
{
	struct scif_endpoint *ep = scif_table_make();
	scif_epd_t epd;
	int err;

	if (!ep)
		return scif_fail(ENOMEM);
	epd = scif_steer_open(&ep->steer, &ep->inode);
	if (epd < 0) {
		err = errno;
		scif_table_free(ep);
		return scif_fail(err);
	}
	init_lock(&ep->lock);
	init_lock(&ep->link.lock);
	atomic_store(&ep->refs, 1);
	if (scif_table_add(ep, epd)) {
		errno = ENOMEM;
		goto fail;
	}
	if (scif_watch_endpoint(ep))
		goto fail_table;
	*result = ep;
	return epd;

fail_table:
	scif_table_remove(ep);
fail:
	err = errno;
	close(epd);
	scif_put(ep);
	return scif_fail(err);
}

/* A descriptor and an endpoint with a reference for the caller. */
scif_epd_t scif_endpoint_new(struct scif_endpoint **result)
{
	scif_epd_t epd;

	scif_table_begin();
	epd = make(result);
	scif_table_end();
	return epd;
}

/* Nothing refers to it any more. */
void scif_endpoint_free(struct scif_endpoint *ep)
{
	scif_hot_keep_out(ep);
	scif_rma_close(ep);
	scif_link_close(&ep->link);
	scif_steer_close(&ep->steer);
	pthread_mutex_destroy(&ep->lock);
	pthread_mutex_destroy(&ep->link.lock);
	if (ep->leaves)
		atomic_fetch_sub(&scif_process.leaving, 1);
	scif_table_free(ep);
}

/*
 * rdma_cm tells the peer nothing, as this process has changed its credentials. Nor has it
 * anything for the thread for connections, which may wait here.
 */
static void say_end(struct scif_endpoint *ep)
{
	const struct scif_message message = { .type = SCIF_END };

	scif_link_send(&ep->link, &message); /* or it has gone, too */
}

/* The descriptor is closed: let go of everything that others can see. */
void scif_endpoint_shutdown(struct scif_endpoint *ep)
{
	struct rdma_cm_id *holder;
	bool lingers = false;
	int state;

	pthread_mutex_lock(&ep->lock);
	state = atomic_exchange(&ep->state, SCIF_CLOSED);
	holder = ep->holder;
	ep->holder = NULL;
	pthread_mutex_unlock(&ep->lock);
	if (state == SCIF_CLOSED)
		return;
	if (state == SCIF_CONNECTING)
		lingers = scif_connect_linger(ep);
	if (atomic_exchange(&ep->hot, false))
		scif_process_untick();
	scif_chill(ep);
	if (ep->link.id && state >= SCIF_CONNECTED) {
		if (!scif_end_connection(ep->link.id))
			say_end(ep);
		scif_link_break(&ep->link, !atomic_load(&ep->maps));
	}
	if (holder)
		scif_end_id(holder);
	scif_pending_clear(ep);
	atomic_store(&ep->ended, true);
	scif_refresh(ep, -1); /* wakes those who wait */
	scif_steer_end(&ep->steer);
	/* Where the ticks find it. */
	if (!lingers && !atomic_load(&ep->maps))
		scif_table_remove(ep);
}

SCIF_EXPORT scif_epd_t scif_open(void)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep;
	scif_epd_t epd;
	int err;

	err = scif_process_start();
	if (err)
		return scif_fail(err);
	if (!scif_own_node())
		return scif_fail(ENODEV);
	epd = scif_endpoint_new(&ep);
	if (epd < 0)
		return epd;
	scif_refresh(ep, epd);
	scif_put(ep);
	return epd;
}

/*
 * The connections thread may have been faster, and not be done yet. It waits for no
 * completion there, nor for whoever closes.
 */
static void end(struct scif_endpoint *ep)
{
	unsigned int round = 0;

	scif_endpoint_shutdown(ep);
	while (!atomic_load(&ep->ended))
		scif_relax(round++);
}

/*
 * Those who sleep in calls hold the file for a moment; another descriptor of it would
 * for ever, and who sleeps on that one need not leave.
 */
static void wait_for_sleepers(struct scif_endpoint *ep)
{
	uint64_t until = scif_now_ms() + LEAVE_MS;
	unsigned int round = 0;

	while (atomic_load(&ep->sleepers) && scif_now_ms() < until)
		scif_relax(round++);
}

/* Copies of other threads: then the program may unmap what its windows have shown. */
static void wait_for_copies(struct scif_endpoint *ep)
{
	struct scif_rma *rma;

	pthread_mutex_lock(&ep->lock);
	rma = ep->rma;
	pthread_mutex_unlock(&ep->lock);
	if (rma)
		scif_operations_wait(rma);
}

SCIF_EXPORT int scif_close(scif_epd_t epd)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = scif_get(epd);
	int ret;

	if (!ep)
		return -1;
	scif_table_doubt();
	ret = close(epd);
	/* Somebody may have looked in between. */
	scif_table_doubt();
	if (!scif_steer_is_closed(&ep->steer)) {
		scif_wake_sleepers(ep);
		wait_for_sleepers(ep);
	}
	/*
	 * Its file may still be there: a child has it until it has run the library's
	 * handler for that, or another program, and a thread that polls it.
	 */
	if (scif_steer_is_closed(&ep->steer) || !scif_table_has_number(ep)) {
		end(ep);
		wait_for_copies(ep);
	}
	scif_put(ep);
	return ret;
}

SCIF_EXPORT int scif_get_fd(scif_epd_t epd)
{
	return epd;
}

bool scif_has_capability(int capability)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3
	};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &head, data))
		return geteuid() == 0;
	return data[CAP_TO_INDEX(capability)].effective &
	       CAP_TO_MASK(capability);
}

void scif_set_port(struct sockaddr_storage *address, uint16_t port)
{
	/* The port is at the same place in both families. */
	((struct sockaddr_in *)address)->sin_port = htons(port);
}

/*
 * A child of fork() has to close the device, which librdmacm has opened by now; so it has
 * to be known which. Else its copy would keep what the parent has there.
 */
static bool knows_device(const struct rdma_cm_id *id)
{
	return !id->verbs || scif_device_get(id->verbs);
}

/*
 * Until the port is held, nobody is told of what happens to it: the device may go, and
 * who hears of that wants the endpoint's lock, and rdma_destroy_id() waits for him.
 */
static int hold(struct scif_endpoint *ep, uint16_t port)
{
	struct sockaddr_storage address = scif_own_node()->address;
	int err;

	if (rdma_create_id(scif_process.cm, &ep->holder, NULL, RDMA_PS_TCP)) {
		ep->holder = NULL;
		return errno;
	}
	scif_set_port(&address, port);
	if (!rdma_bind_addr(ep->holder, (struct sockaddr *)&address)) {
		ep->port = ntohs(rdma_get_src_port(ep->holder));
		if (ep->port <= SCIF_PORT_RSVD && !port) {
			errno = EADDRINUSE; /* Not one that may be chosen. */
		} else if (knows_device(ep->holder)) {
			pthread_mutex_lock(&scif_process.cm_lock);
			ep->holder->context = ep;
			pthread_mutex_unlock(&scif_process.cm_lock);
			return 0;
		}
	}
	err = errno;
	rdma_destroy_id(ep->holder);
	ep->holder = NULL;
	ep->port = 0;
	return err == EADDRINUSE ? EINVAL : err == EADDRNOTAVAIL ? ENODEV : err;
}

/*
 * The kernel's choice, which may be one that may not be chosen. It says the same when its
 * range is used up as when there is no such address (ENODEV): then it is asked for others,
 * of which it says the truth.
 */
static int hold_any(struct scif_endpoint *ep)
{
	int i, err = hold(ep, 0);

	if (err == ENODEV)
		err = EINVAL;
	for (i = 0; err == EINVAL && i < PORT_TRIES; i++)
		err = hold(ep,
			   SCIF_PORT_RSVD + 1 + scif_random() % CHOSEN_PORTS);
	return err == EINVAL ? ENOSPC : err;
}

/* With the endpoint's lock; 0 or an errno. */
int scif_hold_port(struct scif_endpoint *ep, uint16_t port)
{
	int err = port ? hold(ep, port) : hold_any(ep);

	if (!err)
		atomic_store(&ep->state, SCIF_BOUND);
	return err;
}

static int do_bind(struct scif_endpoint *ep, uint16_t port)
{
	switch (scif_state(ep)) {
	case SCIF_UNBOUND:
		return scif_hold_port(ep, port);
	case SCIF_BOUND:
		return EINVAL;
	case SCIF_CLOSED:
		return EBADF;
	default:
		return EISCONN;
	}
}

SCIF_EXPORT int scif_bind(scif_epd_t epd, uint16_t pn)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = scif_get(epd);
	int err, port;

	if (!ep)
		return -1;
	if (pn && pn < SCIF_ADMIN_PORT_END &&
	    !scif_has_capability(CAP_NET_BIND_SERVICE)) {
		scif_put(ep);
		return scif_fail(EACCES);
	}
	pthread_mutex_lock(&ep->lock);
	err = do_bind(ep, pn);
	port = ep->port;
	pthread_mutex_unlock(&ep->lock);
	scif_put(ep);
	return err ? scif_fail(err) : port;
}

static int do_listen(struct scif_endpoint *ep, int backlog)
{
	switch (scif_state(ep)) {
	case SCIF_BOUND:
		break;
	case SCIF_LISTENING:
	case SCIF_CONNECTING:
	case SCIF_CONNECTED:
		return EISCONN;
	case SCIF_CLOSED:
		return EBADF;
	default:
		return EINVAL;
	}
	ep->backlog = backlog;
	if (rdma_listen(ep->holder, CM_BACKLOG))
		return errno == EADDRINUSE ? EINVAL : errno;
	ep->connect_error = 0;
	atomic_store(&ep->state, SCIF_LISTENING);
	return 0;
}

SCIF_EXPORT int scif_listen(scif_epd_t epd, int backlog)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = scif_get(epd);
	int err;

	if (!ep)
		return -1;
	if (backlog <= 0) {
		scif_put(ep);
		return scif_fail(EINVAL);
	}
	pthread_mutex_lock(&ep->lock);
	err = do_listen(ep, backlog);
	if (!err)
		scif_refresh(ep, epd);
	pthread_mutex_unlock(&ep->lock);
	scif_put(ep);
	return err ? scif_fail(err) : 0;
}
