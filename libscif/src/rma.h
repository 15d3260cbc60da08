/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * Windows, and copies between them.
 *
 * A window's memory region lives until nobody can use it any more: when its
 * owner unregisters it, it leaves the directory, and becomes a closing window.
 * Copies that may have seen it hold tickets; both sides wait until theirs are
 * done, the peer's side says so in its reply to SCIF_RELEASE.
 *
 * Locks, in the order they are taken: bounce or call, settle, windows, peer
 * directory, signal; then the link's, or that for replies or for operations, with
 * which nothing else is taken.
 */
#ifndef SCIF_RMA_H
#define SCIF_RMA_H

#include "internal.h"
#include "region.h"

enum { SCIF_PAGE = 4096, SCIF_INLINE_PIECES = 8, SCIF_REGION_BUCKETS = 64 };

struct scif_window {
	uint64_t offset;
	uint64_t length;
	uint64_t id;
	uint8_t *addr;
	struct scif_region *region;
	int prot;
	unsigned int maps; /* how often the peer has it mapped */
};

/* What must be over before a closing window, or a reply, can go. */
struct scif_barrier {
	uint64_t ticket; /* copies that began up to here */
	uint64_t posted; /* and then these requests; 0: not known yet */
	bool own;	 /* only copies that use one's own windows */
	bool over;
};

struct scif_closing {
	struct scif_closing *next;
	struct scif_window window;
	struct scif_barrier own;
	uint64_t since;	  /* ms */
	uint64_t release; /* the peer's reply for this number ends its part */
	bool released;
	unsigned int maps; /* how often the peer has it mapped */
};

/* A part of a copy that is contiguous on one side. */
struct scif_piece {
	uint64_t addr;
	uint64_t length;
	uint32_t key;
	uint64_t window;
	struct scif_region *region; /* one's own, or NULL */
};

struct scif_pieces {
	struct scif_piece few[SCIF_INLINE_PIECES];
	struct scif_piece *list;
	unsigned int count;
	unsigned int room;
};

/* A copy that is being posted. */
struct scif_operation {
	struct scif_operation *next;
	bool own; /* it uses one's own windows, or is about to look for them */
	uint64_t ticket;
};

/* A region to let go of when requests up to @posted are complete. */
struct scif_leftover {
	struct scif_leftover *next;
	uint64_t posted;
	struct scif_region *region;
};

/* The windows of the last copy, which the next one may use without a search. */
struct scif_again {
	struct scif_window own;
	struct scif_dir_entry peer;
	uint64_t changes; /* what they were of one's own windows, */
	uint32_t gen;	  /* and of the peer's */
	bool valid;
};

/* What the peer is asked for. All but the lock is under the reply's. */
struct scif_call {
	pthread_mutex_t lock; /* one at a time */
	uint32_t tag;
	bool has_reply;
	struct scif_message reply;
};

struct scif_part;

struct scif_rma {
	pthread_mutex_t lock;	     /* windows */
	struct scif_window *windows; /* sorted by offset */
	unsigned int count;
	unsigned int room;
	struct scif_closing *closing;
	atomic_uint ending; /* threads that free what is off such lists */
	struct scif_region *regions[SCIF_REGION_BUCKETS];
	uint64_t last_id;
	uint64_t next_offset;
	uint64_t last_release;
	uint64_t asked_release;
	bool asking;
	_Atomic uint64_t heard; /* ms, or 0: the peer's last word of that */
	struct scif_dir_entry *dir;
	unsigned int dir_room;
	struct ibv_mr *dir_mr;
	struct scif_old_dir *old_dirs;

	pthread_mutex_t peer_lock; /* what is known of the peer's windows */
	struct scif_dir_entry *peer;
	unsigned int peer_count;
	unsigned int peer_room;
	struct ibv_mr *peer_mr;
	uint32_t peer_gen;

	pthread_mutex_t op_lock; /* requests and their completions */
	atomic_uint wanting;	 /* threads that sleep for that lock */
	struct scif_operation *operations; /* oldest first */
	uint64_t last_ticket;
	uint64_t changes; /* how often own windows went */
	struct scif_again again;
	uint64_t posted;
	uint64_t completed;
	bool failed;
	uint64_t seen; /* what was completed at this time, */
	uint64_t seen_ms;
	unsigned int still; /* and still is, so many looks later */
	struct scif_leftover *leftovers;
	struct scif_barrier release; /* for the peer's SCIF_RELEASE */
	uint64_t release_number;
	bool releasing;
	_Atomic uint64_t said; /* ms, or 0: that it is not over */
	uint64_t wait_posted;  /* for the peer's SCIF_WAIT */
	uint32_t wait_tag;
	bool waiting;

	struct scif_part *unmapped; /* the peer is to be told of these, */
	bool unmapping;		    /* and has not heard of others yet */

	pthread_mutex_t signal_lock; /* the word of the peer's scratch */

	pthread_mutex_t bounce_lock;
	uint8_t *bounce;
	struct ibv_mr *bounce_mr;

	pthread_mutex_t settle_lock;
	struct scif_call calls[2]; /* SCIF_WAIT, which may take long, apart */
	pthread_mutex_t reply_lock;
	pthread_cond_t replied;
	uint32_t tag;
	uint64_t peer_marked; /* the most the peer said it had posted */
};

/* rma.c */
int scif_rma_open(struct scif_endpoint *ep);
void scif_rma_close(struct scif_endpoint *ep);
/* What takes its time; by the progress thread. */
void scif_rma_tick(struct scif_endpoint *ep);
/* A request or a reply of the peer; by the progress thread. */
void scif_rma_message(struct scif_endpoint *ep,
		      const struct scif_message *message);
/* Copies may have completed; by the progress thread. */
void scif_rma_event(struct scif_endpoint *ep);
/* Send a request and wait for the reply: its status, or ECONNRESET. */
int scif_call(struct scif_endpoint *ep, struct scif_message *message,
	      struct scif_message *reply);
void scif_reply(struct scif_endpoint *ep, uint32_t tag, int status,
		uint64_t value);

/* window.c */
/*
 * The memory of one's own windows from @offset on; 0, ENXIO, EACCES, ENOMEM.
 * The caller has begun an operation that uses them.
 */
int scif_own_pieces(struct scif_rma *rma, off_t offset, size_t length, int prot,
		    struct scif_pieces *pieces);
/* The one window that has @offset, or false; and how many went before. */
bool scif_own_window(struct scif_rma *rma, uint64_t offset,
		     struct scif_window *window, uint64_t *changes);
void scif_windows_close(struct scif_rma *rma);
/* The peer maps or unmaps a window; 0 or ENXIO. */
int scif_window_mapped(struct scif_endpoint *ep, uint64_t id, bool mapped);
/* With the windows' lock: they are not used for what begins now. */
void scif_windows_take_out(struct scif_rma *rma, unsigned int at,
			   unsigned int count);
/* Without that lock. */
void scif_window_put_region(struct scif_rma *rma, struct scif_region *region);

/* closing.c */
/* With the windows' lock: so many are closing from now on. 0 or ENOMEM. */
int scif_windows_end(struct scif_endpoint *ep, unsigned int first,
		     unsigned int count);
/* Free closing windows that nobody uses any more. */
void scif_windows_settle(struct scif_endpoint *ep);
/* The same, if nobody has the lock, as who waits for the peer has. */
void scif_windows_try_settle(struct scif_endpoint *ep);
/* The peer's reply to SCIF_RELEASE; 0: not yet. */
void scif_released(struct scif_endpoint *ep, uint64_t number);
/* The peer has none of them mapped any more. */
void scif_windows_unmapped(struct scif_rma *rma);
/* By the progress thread, while that can't be told by an event. */
void scif_windows_tick(struct scif_endpoint *ep);

/* directory.c */
int scif_directory_publish(struct scif_endpoint *ep);
void scif_directory_close(struct scif_rma *rma);
int scif_peer_pieces(struct scif_endpoint *ep, off_t offset, size_t length,
		     int prot, struct scif_pieces *pieces);

/* The one entry that has @offset, or false; and the directory's number. */
bool scif_peer_window(struct scif_endpoint *ep, uint64_t offset,
		      struct scif_dir_entry *entry, uint32_t *gen);

/* pieces.c */
void scif_pieces_init(struct scif_pieces *pieces);
void scif_pieces_free(struct scif_pieces *pieces);
int scif_pieces_add(struct scif_pieces *pieces, uint64_t addr, uint64_t length,
		    uint32_t key, uint64_t window);

/* mapped.c */
/* The peer has heard what is not mapped any more. */
void scif_map_heard(struct scif_endpoint *ep);
void scif_map_close(struct scif_rma *rma);

/* queue.c: the queue pair for copies. */
/* Take the operations' lock, for which others may make room. */
void scif_queue_lock(struct scif_rma *rma);
void scif_operation_begin(struct scif_rma *rma, struct scif_operation *op);
/*
 * From now on it uses one's own windows. Not before it knows the peer's: to read these may
 * take as long as the peer likes. The caller looks then if the endpoint is closed.
 */
void scif_operation_uses_own(struct scif_rma *rma, struct scif_operation *op);
void scif_operation_end(struct scif_endpoint *ep, struct scif_operation *op);
/*
 * Wait for those under way that use one's own windows: their threads may be copying by
 * themselves. They wait for the peer only as long as for one that is there.
 */
void scif_operations_wait(struct scif_rma *rma);
/* May another thread do it, while the caller goes on? */
enum scif_when {
	SCIF_NOW,
	SCIF_LATER,
	SCIF_BEHIND /* if it has to wait for others anyway */
};

/*
 * Post one request, after waiting for room; 0 or ECONNRESET. @own: what it
 * copies from or to is of this region; NULL if it is the library's.
 */
int scif_queue_post(struct scif_endpoint *ep, struct ibv_send_wr *wr,
		    struct scif_region *own, enum scif_when when);
/* The same, behind others, for the bytes of @value, which need not stay. */
int scif_queue_post_value(struct scif_endpoint *ep, struct ibv_send_wr *wr,
			  const void *value);
/*
 * @number: out, for scif_queue_wait(); 0 if there is nothing to wait for, or
 * nobody does (without SCIF_RMA_SYNC).
 */
int scif_queue_copy(struct scif_endpoint *ep, enum ibv_wr_opcode opcode,
		    const struct scif_pieces *own,
		    const struct scif_pieces *peer, int rma_flags,
		    uint64_t *number);
/* Wait until @posted requests are complete; 0 or ECONNRESET. */
int scif_queue_wait(struct scif_endpoint *ep, uint64_t posted);
uint64_t scif_queue_posted(struct scif_rma *rma);
/* Take completions; false: they say that the connection is broken. */
bool scif_queue_poll(struct scif_endpoint *ep);
/*
 * A copy for which the caller waits, within the windows of the last one. False: nothing
 * was done. @number: as above.
 */
bool scif_queue_copy_again(struct scif_endpoint *ep, enum ibv_wr_opcode opcode,
			   uint64_t loffset, size_t length, uint64_t roffset,
			   uint64_t *number);
/* One copy between these places is done: the next may be alike. */
void scif_queue_note(struct scif_endpoint *ep, uint64_t loffset,
		     uint64_t roffset);
/* @own: for one's own windows, else for the peer's. */
void scif_barrier_set(struct scif_rma *rma, struct scif_barrier *barrier,
		      bool own);
bool scif_barrier_over(struct scif_rma *rma, struct scif_barrier *barrier);
/* Let go of @region when all that was posted is complete. */
void scif_queue_leave(struct scif_rma *rma, struct scif_region *region);

/* fence.c */
int scif_signal(struct scif_endpoint *ep, const struct scif_message *what);

/* EAGAIN if what failed is the limit of locked memory. */
int scif_lock_error(int error);

#endif /* SCIF_RMA_H */
