/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A completion queue's own completions: those of requests that this process
 * has executed. They wait in a ring in private memory, each with the position
 * in the kernel's ring before which it is to be returned, so that the
 * completions of a queue pair are returned in the order of its requests.
 *
 * Who executes requests adds, under a lock that nobody holds for long: a
 * program may post while it is between ibv_start_poll() and ibv_end_poll().
 * Who polls takes, under the lock of the completion queue.
 */
#ifndef MIC_OWN_H
#define MIC_OWN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "inline.h"
#include "lock.h"
#include "ring.h"

struct mic_cq;
struct mic_qp;

/* Is it of the object with that number? */
typedef bool mic_matches(const struct mic_cqe *cqe, uint32_t number);

struct mic_own {
	struct mic_lock lock;  /* of those who add */
	struct mic_cqe *slots; /* the position is in @owner */
	uint32_t mask;
	/* fewer must wait for one more; 0 where none may */
	_Atomic(uint32_t) room;
	uint32_t seen; /* elements known to be in the kernel's ring */
	bool lost;     /* a completion was lost; no more are added */
	bool plain;    /* they have no time, and nobody waits for an event */
	_Atomic(uint32_t) producer;
	/* written by who polls: */
	uint32_t consumer;
	uint32_t known;		 /* what @producer was when it was looked at */
	_Atomic(uint32_t) freed; /* elements before it are no longer read */
	uint32_t least; /* elements in the kernel's ring, not mapped yet */
};

void mic_own_init(struct mic_own *own, bool plain);
void mic_own_destroy(struct mic_own *own);
bool mic_own_create(struct mic_cq *cq);
void mic_own_add(struct mic_cq *cq, struct mic_qp *qp, uint64_t wr_id,
		 uint8_t opcode, uint32_t bytes);
uint32_t mic_own_pending(struct mic_cq *cq);
void mic_own_close(struct mic_own *own);
void mic_own_lose(struct mic_own *own);
void mic_own_leave_ring(struct mic_cq *cq);
void mic_own_rebase(struct mic_own *own, uint32_t consumer);
void mic_own_resized(struct mic_own *own, uint32_t entries);

static MIC_ALWAYS_INLINE uint32_t mic_own_count(struct mic_own *own)
{
	return atomic_load_explicit(&own->producer, memory_order_relaxed) -
	       atomic_load_explicit(&own->freed, memory_order_acquire);
}

/* What is not set here is always 0. @position: in the kernel's ring, see above */
static MIC_ALWAYS_INLINE void mic_own_fill(struct mic_cqe *cqe, uint32_t qp_num,
					   uint64_t wr_id, uint8_t opcode,
					   uint32_t bytes, uint32_t position)
{
	cqe->wr_id = wr_id;
	cqe->byte_len = bytes;
	cqe->qp_num = qp_num;
	cqe->opcode = opcode;
	cqe->owner = position;
}

/* Room for threads that see room for one more at the same time. */
#define MIC_OWN_SLACK 256

/*
 * How many elements of the kernel's ring, from @consumer on, are known to be there.
 * Nothing is, if what was seen last was polled: after 2^32 elements it would seem to be
 * in front again, but then it has not been written anew.
 */
static MIC_ALWAYS_INLINE uint32_t
mic_own_waiting(const struct mic_own *own, const struct mic_cq_ring *ring,
		uint32_t consumer)
{
	const uint32_t waiting = own->seen - consumer;

	if (!waiting || waiting > ring->entries ||
	    !mic_cq_peek(ring, own->seen - 1))
		return 0;
	return waiting;
}

/* May a request be executed that will be complete here? */
static MIC_ALWAYS_INLINE bool mic_own_has_room(struct mic_own *own)
{
	return mic_own_count(own) <
	       atomic_load_explicit(&own->room, memory_order_acquire);
}

/*
 * Are there more? Who learns that a WRITE is complete may then look in memory
 * for what its peer did without having seen it: that look must not overtake the
 * WRITE, which this thread may have executed itself a moment ago.
 */
static inline bool mic_own_look(struct mic_own *own)
{
	own->known = atomic_load_explicit(&own->producer, memory_order_acquire);
	if (own->known == own->consumer)
		return false;
	atomic_thread_fence(memory_order_seq_cst);
	return true;
}

/* The next one, if it comes before element @index of the kernel's ring. */
static MIC_ALWAYS_INLINE struct mic_cqe *mic_own_peek(struct mic_own *own,
						      uint32_t index)
{
	struct mic_cqe *cqe;

	if (own->consumer == own->known && !mic_own_look(own))
		return NULL;
	cqe = &own->slots[own->consumer & own->mask];
	return (int32_t)(cqe->owner - index) > 0 ? NULL : cqe;
}

/* Take it. */
static inline struct mic_cqe *mic_own_next(struct mic_own *own, uint32_t index)
{
	struct mic_cqe *cqe = mic_own_peek(own, index);

	if (cqe)
		own->consumer++;
	return cqe;
}

/* What was taken is not read any more; empty polls leave the line alone. */
static MIC_ALWAYS_INLINE void mic_own_publish(struct mic_own *own)
{
	if (atomic_load_explicit(&own->freed, memory_order_relaxed) !=
	    own->consumer)
		atomic_store_explicit(&own->freed, own->consumer,
				      memory_order_release);
}

#endif /* MIC_OWN_H */
