// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A completion queue's own completions.
 */
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>

#include "mic.h"

enum {
	/* Room is made for no more, rounded up; then the kernel executes. */
	OWN_MAX = 1 << 16,
};

/* A queue that one thread polls may have queue pairs that others post to. */
void mic_own_init(struct mic_own *own, bool plain)
{
	mic_lock_init(&own->lock, false);
	own->plain = plain;
}

void mic_own_destroy(struct mic_own *own)
{
	free(own->slots);
}

/* None may be added, or, if there are slots, some. Each with the lock. */
void mic_own_close(struct mic_own *own)
{
	atomic_store_explicit(&own->room, 0, memory_order_relaxed);
}

/* The kernel has lost one, and the queue is in error. */
void mic_own_lose(struct mic_own *own)
{
	mic_lock(&own->lock);
	own->lost = true;
	mic_own_close(own);
	mic_unlock(&own->lock);
}

static void open_room(struct mic_own *own)
{
	/* read by others without the lock, who then find all else in place */
	if (own->slots && !own->lost)
		atomic_store_explicit(&own->room, own->mask + 2 - MIC_OWN_SLACK,
				      memory_order_release);
}

static uint32_t slots_for(uint32_t entries)
{
	uint32_t size = MIC_OWN_SLACK;

	if (entries > OWN_MAX)
		entries = OWN_MAX;
	while (size < entries + MIC_OWN_SLACK)
		size *= 2;
	return size;
}

static void create(struct mic_own *own, uint32_t entries)
{
	const uint32_t size = slots_for(entries);

	if (own->slots)
		return;
	own->mask = size - 1;
	own->slots = calloc(size, sizeof(*own->slots));
	open_room(own);
}

/*
 * The kernel's ring has more entries. Without memory for as many the kernel executes what
 * is too much, as before. Both locks are held.
 */
static void grow(struct mic_own *own, uint32_t entries)
{
	uint32_t end = atomic_load(&own->producer), mask, index;
	struct mic_cqe *slots;

	mask = slots_for(entries) - 1;
	if (!own->slots || mask <= own->mask)
		return;
	slots = calloc((size_t)mask + 1, sizeof(*slots));
	if (!slots)
		return;
	for (index = own->consumer; index != end; index++)
		slots[index & mask] = own->slots[index & own->mask];
	free(own->slots);
	own->slots = slots;
	own->mask = mask;
}

/* Most queues never have a completion of their own. */
bool mic_own_create(struct mic_cq *cq)
{
	struct mic_own *own = &cq->own;
	bool created;

	mic_lock(&own->lock);
	if (!atomic_load(&cq->behind))
		create(own, cq->ring.entries);
	created = own->slots;
	mic_unlock(&own->lock);
	return created;
}

/*
 * How many elements the kernel has written. It writes while we look; what it
 * has written before this process knew that it is done with a request counts.
 *
 * An element that was polled may be overwritten, so only those that are still
 * there are looked at.
 */
static inline __attribute__((always_inline)) uint32_t count_seen(
	struct mic_cq *cq)
{
	struct mic_own *own = &cq->own;
	uint32_t consumer;

	do {
		consumer = mic_load_acquire(&cq->ring.ctl->consumer);
		own->seen = consumer +
			    mic_own_waiting(own, &cq->ring, consumer);
		while (mic_cq_peek(&cq->ring, own->seen))
			own->seen++;
	} while (mic_load_acquire(&cq->ring.ctl->consumer) != consumer);
	if (own->seen - consumer < own->least)
		own->seen = consumer + own->least;
	return own->seen - consumer;
}

/* The slot for a completion, or NULL if it is lost. */
static struct mic_cqe *get_slot(struct mic_cq *cq)
{
	struct mic_own *own = &cq->own;

	/*
	 * Both kinds together are what the program has made the queue for. The
	 * slots may be fewer, and who saw room then is not alone.
	 */
	if (own->lost || mic_load_relaxed(&cq->ring.ctl->overrun) ||
	    mic_own_count(own) > own->mask ||
	    count_seen(cq) + mic_own_count(own) >= cq->ring.entries)
		return NULL;
	return &own->slots[atomic_load_explicit(&own->producer,
						memory_order_relaxed) &
			   own->mask];
}

static void publish(struct mic_own *own)
{
	uint32_t index = atomic_load_explicit(&own->producer,
					      memory_order_relaxed);

	atomic_store_explicit(&own->producer, index + 1, memory_order_release);
}

static uint64_t raw_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void tell(const struct mic_qp *qp, unsigned long request)
{
	while (ioctl(qp->doorbell_fd, request,
		     (unsigned long)qp->vqp.qp.qp_num) < 0 &&
	       errno == EINTR)
		;
}

/*
 * Does somebody wait for an event? No completion here is a solicited one. With
 * the lock, which keeps the ring where it is.
 */
static bool is_awaited(struct mic_cq *cq)
{
	if (!cq->vcq.cq.channel)
		return false;
	/* the completion, then a look at who waits; arming does the reverse */
	atomic_thread_fence(memory_order_seq_cst);
	return mic_load_relaxed(&cq->ring.ctl->arm) == MIC_CQ_ARM_NEXT;
}

/*
 * A request of @qp is complete. Only the kernel raises events.
 */
void mic_own_add(struct mic_cq *cq, struct mic_qp *qp, uint64_t wr_id,
		 uint8_t opcode, uint32_t bytes)
{
	struct mic_own *own = &cq->own;
	struct mic_cqe *cqe;
	bool awaited, lost = false;

	mic_lock(&own->lock);
	cqe = get_slot(cq);
	if (cqe) {
		mic_own_fill(cqe, qp->vqp.qp.qp_num, wr_id, opcode, bytes,
			     own->seen);
		if (cq->timestamps)
			cqe->timestamp = raw_clock();
		publish(own);
	} else {
		lost = !own->lost;
		own->lost = !cq->ignore_overrun;
		if (own->lost)
			mic_own_close(own);
	}
	awaited = is_awaited(cq);
	mic_unlock(&own->lock);
	if (lost)
		tell(qp, MIC_IOC_CQ_OVERRUN);
	if (awaited)
		tell(qp, MIC_IOC_CQ_EVENT);
}

/* Completions of both kinds that wait. Both locks are held. */
uint32_t mic_own_pending(struct mic_cq *cq)
{
	return count_seen(cq) + mic_own_count(&cq->own);
}

/*
 * The kernel's ring begins anew, with what was element @consumer as its first.
 * Both locks are held.
 */
void mic_own_rebase(struct mic_own *own, uint32_t consumer)
{
	uint32_t end = atomic_load(&own->producer), index;

	own->seen = 0;
	own->least = 0;
	for (index = own->consumer; index != end; index++) {
		struct mic_cqe *cqe = &own->slots[index & own->mask];
		int32_t ahead = (int32_t)(cqe->owner - consumer);

		cqe->owner = ahead > 0 ? ahead : 0;
	}
}

/*
 * The kernel's ring begins anew, and can't be mapped. Who has seen that there is room
 * adds yet, behind what was in the ring that is here. Both locks are held.
 */
void mic_own_leave_ring(struct mic_cq *cq)
{
	const uint32_t waiting = count_seen(cq);

	mic_own_close(&cq->own);
	mic_own_rebase(&cq->own, cq->ring.consumer);
	cq->own.least = waiting;
}

/* After that, its entries are so many. Both locks are held. */
void mic_own_resized(struct mic_own *own, uint32_t entries)
{
	grow(own, entries);
	open_room(own);
}
