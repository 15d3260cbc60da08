/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * Endpoints, their connections, and the process they live in.
 *
 * Locks, in the order they are taken: an endpoint's turn to send or to receive,
 * its lock, its steer's lock or those for windows and copies (rma.h), its link's
 * lock, the process's lock; that of kept regions, then that of allocated memory.
 * With the others nothing else is taken: those of the table, of rdma_cm's events and of
 * what ends there, of mappings and of nodes.
 */
#ifndef SCIF_INTERNAL_H
#define SCIF_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "scif.h"
#include "wire.h"

#define SCIF_EXPORT __attribute__((visibility("default")))

enum {
	SCIF_MAX_NODES = 256,
	SCIF_FIRST_SOURCE = 61001, /* of ports that attempts come from */
	SCIF_CONNECT_MS = 10000,
	SCIF_ACCEPT_MS = 5000, /* the answer may get lost once */
	SCIF_RESOLVE_MS = 1000,
	SCIF_GRACE_MS = 10000, /* for the copies of who is not heard */
	SCIF_SLEEP_MS = 1000,  /* before one looks again whose a number is */
	SCIF_TX_DEPTH = 16,
	SCIF_RX_DEPTH = 32,
	SCIF_RMA_DEPTH = 64,
	SCIF_CACHE_REGIONS = 32
};

enum scif_state {
	SCIF_UNBOUND,
	SCIF_BOUND,
	SCIF_LISTENING,
	SCIF_CONNECTING,
	SCIF_CONNECTED,
	SCIF_DISCONNECTED,
	SCIF_CLOSED
};

struct micdv_window;
struct pollfd;
struct scif_direct;
struct scif_region;

/* Regions kept for copies that may come again; the last one was used last. */
struct scif_cache {
	pthread_mutex_t lock;
	struct scif_region *regions[SCIF_CACHE_REGIONS];
	unsigned int count;
};

/* A device in use: what all connections over it share. */
struct scif_device {
	struct scif_device *next;
	atomic_bool gone; /* it was removed: librdmacm may close the context */
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;
	const struct scif_direct *direct; /* NULL if it has none */
	uint32_t max_request;		  /* bytes that one request may copy */
	uint32_t depth;	     /* requests of a connection at a time */
	uint8_t ack_timeout; /* as in IBA; 0: none, see scif_queue_tick() */
	uint8_t max_reads;
	struct scif_cache cache;
};

/* The library's end of the descriptor, and what the user's end shows. */
struct scif_steer {
	pthread_mutex_t lock;
	atomic_int fd; /* -1: the endpoint has ended */
	atomic_bool in;
	atomic_bool out;
	atomic_bool hup;
	atomic_bool reset; /* a call took the error that told of a close */
};

/* A connection's queue pairs and memory. */
struct scif_link {
	struct scif_device *dev;
	struct ibv_pd *pd;     /* no other connection's keys are good here */
	struct rdma_cm_id *id; /* its qp is for messages */
	struct ibv_qp *rma_qp;
	struct ibv_cq *tx_cq;
	struct ibv_cq *rx_cq;
	struct ibv_cq *rma_cq;
	struct scif_shared *shared; /* the peer writes and reads it */
	struct scif_local *local;
	struct ibv_mr *shared_mr;
	struct ibv_mr *local_mr;
	struct micdv_window *window;	    /* of the peer's shared block */
	_Atomic(struct scif_shared *) peer; /* where it is mapped, or NULL */
	uint64_t peer_addr;		    /* the peer's shared block */
	uint32_t peer_rkey;
	uint32_t peer_rma_qpn;
	uint32_t peer_rma_psn;
	uint32_t max_inline;
	uint32_t rma_psn;
	atomic_bool ask;   /* the kernel won't tell when the peer is gone */
	uint64_t asked;	   /* ms, or 0: when it was asked if it is there, */
	uint64_t answered; /* and when it last said so */
	bool silent;	   /* a request under way was given up */
	_Atomic uint64_t broken; /* ms, or 0: when messages ended */
	atomic_bool gone;	 /* the device is; nothing will complete */
	atomic_uint slow;	 /* threads that wait for the peer for long */
	/* of the message QP's send side, and of what it was asked */
	pthread_mutex_t lock;
};

/* Registered memory that only this side uses. */
struct scif_local {
	uint32_t produced;
	uint32_t recent_length; /* 0: see wire.h */
	uint32_t consumed;
	uint32_t want_data;
	uint32_t want_room;
	uint32_t dir_gen;
	uint32_t gap[10];
	struct scif_dir_head dir_before;
	struct scif_dir_head dir_after;
	struct scif_message out;
	struct scif_message in[SCIF_RX_DEPTH];
	uint64_t values[SCIF_RMA_DEPTH]; /* of requests under way */
	uint8_t ring[SCIF_RING_BYTES] __attribute__((aligned(4096)));
};

/* A connection that nobody accepted yet. */
struct scif_pending {
	struct scif_pending *next;
	struct rdma_cm_id *id;
	struct scif_hello hello;
};

/* Memory of the user that was there a moment ago. */
struct scif_known_page {
	uintptr_t page;	 /* or 0 */
	uint32_t doubts; /* scif_doubts, when it was found out */
};

struct scif_endpoint {
	/* These come first, and outlive the others: see hot.c. */
	atomic_int refs;
	atomic_bool sending; /* one call at a time */
	atomic_bool receiving;

	struct scif_endpoint *next; /* in the table */
	uint64_t inode;
	atomic_int state;
	atomic_bool ended;    /* closed, and nothing of it shows any more */
	atomic_uint sleepers; /* calls that sleep on the number, or use it */
	atomic_uint closes;   /* tells them to look if it is theirs */
	atomic_bool dirty;    /* the progress thread shall refresh it */
	atomic_uint due;      /* what that has to do, or is doing */
	bool linked;	      /* counts among the table's */
	bool leaves;	      /* or, later, among those that leave */

	pthread_mutex_t lock;
	struct rdma_cm_id *holder; /* holds the port, listens */
	uint16_t port;
	struct scif_port_id peer;
	int connect_error;     /* not yet told */
	bool connect_untold;   /* scif_connect() has not returned the port */
	uint64_t connect_ends; /* ms */
	uint64_t asked;	       /* ms, or 0: when the request was sent */
	atomic_bool lingers;   /* closed, but its request is not taken back */
	int backlog;
	int waiting;
	struct scif_pending *pending;
	atomic_bool removed; /* the holder's device; nobody else can come */

	struct scif_steer steer;
	struct scif_link link;

	/* Changed with the turn to send. */
	_Atomic uint32_t produced;
	uint32_t tx_end; /* up to there is room, or more by now */
	struct scif_known_page tx_page; /* found readable */
	uint32_t woken_data; /* the peer's wishes that were granted */

	/* Changed with the turn to receive. */
	_Atomic uint32_t consumed;
	struct scif_known_page rx_page; /* found writable */
	uint32_t woken_room;

	atomic_bool armed_data; /* the peer will wake us */
	atomic_bool armed_room;
	atomic_bool hot; /* in a row of waiting receives: not armed */
	atomic_uint waits;
	atomic_uint ticks;
	atomic_bool warm;   /* in a row of copies */
	atomic_uint copies; /* when not warm: since it was last */
	atomic_bool copied; /* when warm: since the last tick */

	struct scif_rma *rma; /* windows and copies */
	atomic_int maps;      /* of either side: its RMA queue pair stays */
	atomic_int peer_maps; /* those of the peer */
};

/* process.c: the process's devices, and its thread. */

struct scif_process {
	pthread_mutex_t lock;
	int epoll;
	int epoll_cm; /* for connections and descriptors */
	int kick;     /* an eventfd for the progress thread */
	struct rdma_event_channel *cm;
	/* of ids' contexts, and librdmacm uses queue pairs as events come */
	pthread_mutex_t cm_lock;
	struct scif_device *devices;
	bool running;
	bool forked; /* the child of a process that used the library */
	atomic_uint generation;			/* of the progress thread */
	_Atomic(struct scif_endpoint *) served; /* by that, or NULL */
	atomic_int hot;	       /* endpoints that need the short tick */
	atomic_int connecting; /* those that need the long one */
	atomic_int mapped;     /* those, too */
	atomic_int awaited;    /* and what scif_process_await() has counted */
	atomic_int leaving;    /* endpoints that have ended and are not freed */
	/* and so do all, where timeouts don't tell of a peer that has gone */
	atomic_bool patient;
};

extern struct scif_process scif_process;

/* Begin, and end, to need the short tick. */
void scif_process_tick(void);
void scif_process_untick(void);
/*
 * The long tick is needed until @since, when something was begun to be waited for, is
 * 0 again. Both may be called twice.
 */
void scif_process_await(_Atomic uint64_t *since);
void scif_process_had(_Atomic uint64_t *since);
/* If it is counted, since now; what another thread has just ended stays 0. */
void scif_process_still(_Atomic uint64_t *since);
/* Start what needs to run; 0 or an errno. */
int scif_process_start(void);
void scif_process_kick(void);
/* Have the progress thread do scif_refresh(). */
void scif_refresh_soon(struct scif_endpoint *ep);
/*
 * A thread waits long for the peer of @ep. If it is the progress thread, or if
 * that waits for it, another one takes over.
 */
void scif_process_go_on(struct scif_endpoint *ep);
int scif_watch_endpoint(struct scif_endpoint *ep);
int scif_watch_ending(int fd);
uint64_t scif_now_ms(void);
/* Not the program's rand(), which it may have seeded, or count on. */
uint32_t scif_random(void);
/* The device of @ctx, or NULL with errno. */
struct scif_device *scif_device_get(struct ibv_context *ctx);

/* ending.c */
/* End a connection; false, and it is as before, if nobody in this process may. */
bool scif_end_connection(struct rdma_cm_id *id);
/* Free an id; what can't be freed is nobody's from then on. */
void scif_end_id(struct rdma_cm_id *id);
/* This thread is the one for connections; and one has left it something to end. */
void scif_ending_here(void);
void scif_ending_event(void);
/* In the child of a fork. */
void scif_ending_abandon(void);

/* table.c: endpoints by descriptor. */

/* Take a reference, or NULL with errno EBADF or ENOTTY. */
struct scif_endpoint *scif_get(scif_epd_t epd);
/* The same, for a copy: many in a row make the endpoint warm. */
struct scif_endpoint *scif_get_to_copy(scif_epd_t epd);
void scif_chill(struct scif_endpoint *ep);
struct scif_endpoint *scif_get_by_inode(uint64_t inode);
/*
 * The next after @ep, or the first; gives back the reference to @ep. If some
 * leave meanwhile, others may come twice.
 */
struct scif_endpoint *scif_get_next(struct scif_endpoint *ep);
bool scif_try_get(struct scif_endpoint *ep);
void scif_put(struct scif_endpoint *ep);
/* An endpoint of zeros, or NULL. */
struct scif_endpoint *scif_table_make(void);
void scif_table_free(struct scif_endpoint *ep);
/* Around the making of a descriptor and its endpoint: no fork() comes between. */
void scif_table_begin(void);
void scif_table_end(void);
int scif_table_add(struct scif_endpoint *ep, scif_epd_t epd);
void scif_table_remove(struct scif_endpoint *ep);
/*
 * The next scif_get() looks at the descriptor again: what was found out before
 * an endpoint became hot or warm may be old.
 */
void scif_table_doubt(void);
/* Does any number of this process mean it? True if that can't be seen. */
bool scif_table_has_number(const struct scif_endpoint *ep);
/* After fork(), in the child: forget all. */
void scif_table_abandon(void);

/* endpoint.c */
scif_epd_t scif_endpoint_new(struct scif_endpoint **result);
void scif_endpoint_shutdown(struct scif_endpoint *ep);
void scif_endpoint_free(struct scif_endpoint *ep);

static inline int scif_state(struct scif_endpoint *ep)
{
	return atomic_load_explicit(&ep->state, memory_order_acquire);
}

/* In a loop that waits for memory to change: leaves more to others. */
static inline void scif_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" : : : "memory");
#else
	__asm__ volatile("" : : : "memory");
#endif
}

/* Set errno and return -1. */
static inline int scif_fail(int error)
{
	errno = error;
	return -1;
}

/* 0, ENOTCONN or ECONNRESET. */
int scif_check_connected(struct scif_endpoint *ep);

static inline int scif_disable_cancel(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

/* signals.c: no signal is forgotten that comes when a call has looked, and may sleep. */
/* From now on, until the call returns, they come in scif_signals_poll() only. */
void scif_signals_hold(void);
void scif_signals_release(void);
/* As poll(): EINTR also for one that has come before. */
int scif_signals_poll(struct pollfd *fds, unsigned int count, int wait_ms);

static inline void scif_leave_call(const int *state)
{
	scif_signals_release();
	pthread_setcancelstate(*state, NULL);
}

/*
 * Until the function returns, its thread is not cancelled: it would leave locks and
 * turns behind. In every call that may sleep, or that uses rdma_cm or files. Signals
 * that the function has held back come when it returns.
 */
#define SCIF_NO_CANCEL                                                         \
	int cancel_state __attribute__((cleanup(scif_leave_call), unused)) =   \
		scif_disable_cancel()

/* Has this thread the capability, or is it root where that can't be told? */
bool scif_has_capability(int capability);
void scif_set_port(struct sockaddr_storage *address, uint16_t port);

/* With the endpoint's lock; 0 or an errno. */
int scif_hold_port(struct scif_endpoint *ep, uint16_t port);

/* steer.c: the descriptor. */
int scif_steer_open(struct scif_steer *steer, uint64_t *inode);
void scif_steer_close(struct scif_steer *steer);
/* The user's end has gone, and the endpoint may stay for long. */
void scif_steer_end(struct scif_steer *steer);
/* Did the user's end go? */
bool scif_steer_is_closed(struct scif_steer *steer);
/* Is the number the endpoint's, and not a stranger's by now? */
bool scif_is_own(struct scif_endpoint *ep, scif_epd_t epd);
/* Close the user's end, if it is. */
void scif_close_own(struct scif_endpoint *ep, scif_epd_t epd);
/*
 * Make the descriptor show what is so. @epd is the descriptor, or -1 where it
 * isn't known for sure: then nothing is taken back.
 */
void scif_refresh(struct scif_endpoint *ep, scif_epd_t epd);
void scif_show_again(struct scif_endpoint *ep, scif_epd_t epd);
int scif_sleep(struct scif_endpoint *ep, scif_epd_t epd, short event);
void scif_wake_sleepers(struct scif_endpoint *ep);

/* poll.c: POLLIN, ... as they are now. */
short scif_ready(struct scif_endpoint *ep);

/* nodes.c */
struct scif_node {
	uint16_t number;
	struct sockaddr_storage address;
	char device[IBV_SYSFS_NAME_MAX]; /* of this machine, or empty */
	bool mic;
};

/* The nodes, sorted by number, and the index of one's own; -errno. */
int scif_nodes(const struct scif_node **nodes, unsigned int *self);
/* The numbers of those that are there, as far as one knows; after scif_nodes(). */
int scif_nodes_there(uint16_t *list, int room);
bool scif_is_there(const struct scif_node *node);
/* In the child of a fork: another thread may have been looking for them. */
void scif_nodes_abandon(void);
/* Can memory of the node be mapped? */
enum scif_maps {
	SCIF_MAPS_NOT,
	SCIF_MAPS_DM,	   /* only what scif_alloc_dm() has allocated */
	SCIF_MAPS_PERHAPS, /* that, or all, with an aperture; if it is a machine's */
	SCIF_MAPS
};
enum scif_maps scif_maps(const struct scif_node *node);
const struct scif_node *scif_node(uint16_t number);
const struct scif_node *scif_own_node(void);
/* Is this the node's address? The port may be any. */
bool scif_has_address(const struct scif_node *node,
		      const struct sockaddr *address);

/* connect.c */
/* Called by the connections thread. */
void scif_connect_event(struct scif_endpoint *ep, struct rdma_cm_id *id,
			enum rdma_cm_event_type type,
			const struct scif_hello *hello);
void scif_connect_tick(struct scif_endpoint *ep);
void scif_connect_begin(struct scif_endpoint *ep, unsigned int ms);
/* Closed while connecting. True: the endpoint stays in the table for a while. */
bool scif_connect_linger(struct scif_endpoint *ep);
int scif_connect_answer(struct scif_endpoint *ep);
void scif_connect_done(struct scif_endpoint *ep, int error);
int scif_connect_wait(struct scif_endpoint *ep, scif_epd_t epd);

/* accept.c */
/* False if the request is refused. */
bool scif_request_event(struct scif_endpoint *listener, struct rdma_cm_id *id,
			const struct scif_hello *hello);
void scif_pending_clear(struct scif_endpoint *listener);

/* link.c */
int scif_link_open(struct scif_link *link, struct rdma_cm_id *id, void *owner);
void scif_link_close(struct scif_link *link);
void scif_link_hello(struct scif_link *link, struct scif_hello *hello);
/*
 * After the hello of the peer, which is on @node, whatever that says: connect the QP for
 * RMAs. ECONNRESET if the peer has left.
 */
int scif_link_join(struct scif_link *link, const struct scif_hello *hello,
		   uint16_t node);
/* Map the peer's shared block, where the device can. */
void scif_link_map(struct scif_link *link);
/* Everything under way ends with an error; copies only if @all. */
void scif_link_break(struct scif_link *link, bool all);
int scif_link_post_recv(struct scif_link *link, unsigned int slot);
/* Post and wait, but not for ever, with the link's lock; 0 or ECONNRESET. */
int scif_link_write(struct scif_link *link, struct ibv_send_wr *wr);
/* NULL with errno. */
struct ibv_mr *scif_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			   int access);
struct ibv_mr *scif_link_register(struct scif_link *link, void *addr,
				  size_t length, int access);
/* Write words of the local block into the peer's shared block. */
int scif_link_write_words(struct scif_link *link, const void *words,
			  size_t place, uint32_t length);
int scif_link_send(struct scif_link *link, const struct scif_message *message);
/*
 * Wait a little, the longer the more @round counts: up to these, by spinning; then by
 * leaving the processor to others; then asleep.
 */
enum { SCIF_SPIN_ROUNDS = 2000, SCIF_YIELD_ROUNDS = 4000 };
void scif_relax(unsigned int round);

/* Waiting for a completion; it begins as zeros. */
struct scif_wait {
	unsigned int round;
	uint64_t since; /* ms; 0: not for long yet */
	uint64_t news;	/* how long it was when there was something new */
	unsigned int probes;
	bool slow;
};

/*
 * A device that has no timers does not send again what gets lost, unless the peer says
 * that it misses something. It does when something comes behind that: an empty
 * write, which completes without a word, or with this number if it fails.
 */
enum { SCIF_PROBE = 1 };
void scif_link_probe(struct ibv_qp *qp);

/* Nobody will tell if the peer is gone: ask it from now on. */
void scif_link_ask(struct scif_link *link);
/* Is a peer that has to be asked still there? By the progress thread. */
void scif_link_tick(struct scif_endpoint *ep);

/* Wait a little, and don't let the progress thread wait: ms so far. */
uint64_t scif_link_wait(struct scif_link *link, struct scif_wait *wait);
/* Before the peer's memory is read once more: false if it is the same for too long. */
bool scif_link_again(struct scif_link *link, struct scif_wait *wait, bool news);
void scif_link_waited(struct scif_link *link, struct scif_wait *wait);

/* The connection is gone, as far as this side can tell. */
void scif_lost(struct scif_endpoint *ep);

/* mapped.c: what is left of connections that ended while memory was mapped. */
void scif_map_tick(struct scif_endpoint *ep);
/* The peer maps a window, or unmaps @count; by the progress thread. */
void scif_map_peer_more(struct scif_endpoint *ep);
void scif_map_peer_less(struct scif_endpoint *ep, int count);
/* In the child of a fork, which has no mappings. */
void scif_map_abandon(void);

/* queue.c: where requests don't time out, by the progress thread. */
void scif_queue_tick(struct scif_endpoint *ep);

/* ring.c: a count of bytes, which one thread changes. */
static inline uint32_t scif_count(const _Atomic uint32_t *count)
{
	return atomic_load_explicit(count, memory_order_relaxed);
}

/* With the turn; others only look. */
static inline void scif_count_more(_Atomic uint32_t *count, uint32_t bytes)
{
	atomic_store_explicit(count, scif_count(count) + bytes,
			      memory_order_relaxed);
}

/*
 * Bytes to receive, and room to send. More than fits into the ring is the peer's
 * nonsense.
 */
static inline uint32_t scif_bytes(struct scif_endpoint *ep)
{
	return atomic_load_explicit(&ep->link.shared->produced,
				    memory_order_acquire) -
	       scif_count(&ep->consumed);
}

static inline uint32_t scif_room(struct scif_endpoint *ep)
{
	uint32_t used = scif_count(&ep->produced) -
			atomic_load_explicit(&ep->link.shared->consumed,
					     memory_order_acquire);

	return SCIF_RING_ROOM - used;
}

/* With the steer's lock: have the peer wake us when what isn't there comes. */
void scif_arm(struct scif_endpoint *ep);

/* message.c */
void scif_cool(struct scif_endpoint *ep, scif_epd_t epd);

/* control.c: messages for the progress thread. */
void scif_control_event(struct scif_endpoint *ep);

/* memory.c: copies that report bad addresses. */
int scif_copy_in(void *to, const void *from, size_t length);
int scif_copy_out(void *to, const void *from, size_t length);
/* Is all of it mapped, and may it be read? */
bool scif_is_readable(const void *addr, size_t length);

#endif /* SCIF_INTERNAL_H */
