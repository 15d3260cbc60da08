/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * The byte stream of a connection, and the stores that put something into it
 * where the peer's block is mapped.
 */
#ifndef SCIF_RING_H
#define SCIF_RING_H

#include <string.h>

#include "direct.h"
#include "internal.h"
#include "slots.h"

#define SCIF_PAGE_MASK (~(uintptr_t)4095)

/*
 * With the turn to send, or to receive: what has room, or is there. How many
 * bytes, or -errno.
 */
int scif_ring_put(struct scif_endpoint *ep, const uint8_t *bytes,
		  uint32_t length);
/*
 * What was stored, but perhaps did not reach the peer, to the same place; there was
 * room. 0 or an errno.
 */
int scif_ring_put_again(struct scif_endpoint *ep, const uint8_t *bytes,
			uint32_t length);
int scif_ring_take(struct scif_endpoint *ep, uint8_t *bytes, uint32_t length);
/* Tell the peer what was taken. */
void scif_ring_taken(struct scif_endpoint *ep);
/* Wake the peer, if it wants to, after bytes were produced. */
void scif_wake_data(struct scif_endpoint *ep);

/* The bytes in a ring from @from on, up to its end; the others are at its start. */
static inline uint32_t scif_ring_split(uint32_t from, uint32_t length)
{
	uint32_t end = SCIF_RING_BYTES - from % SCIF_RING_BYTES;

	return length < end ? length : end;
}

/* The page of @bytes, which were read or written when there were @doubts. */
static inline void scif_know_page(struct scif_known_page *known,
				  const uint8_t *bytes, uint32_t doubts)
{
	known->page = (uintptr_t)bytes & SCIF_PAGE_MASK;
	known->doubts = doubts;
}

/* Is all of it in the page that was good a moment ago? */
static inline bool scif_is_known_page(const struct scif_known_page *known,
				      const uint8_t *bytes, uint32_t length)
{
	uintptr_t first = (uintptr_t)bytes, last = first + length - 1;

	return known->page && (first & SCIF_PAGE_MASK) == known->page &&
	       (last & SCIF_PAGE_MASK) == known->page &&
	       known->doubts == atomic_load(&scif_doubts);
}

/* Most messages are short. */
static inline void scif_ring_copy(void *to, const void *from, uint32_t length)
{
	uint64_t first, last;

	if (length < sizeof(first) || length > 2 * sizeof(first)) {
		memcpy(to, from, length);
		return;
	}
	memcpy(&first, from, sizeof(first));
	memcpy(&last, (const char *)from + length - sizeof(last), sizeof(last));
	memcpy(to, &first, sizeof(first));
	memcpy((char *)to + length - sizeof(last), &last, sizeof(last));
}

/*
 * The bytes once more, beside the count, if they are few (a length of 0: they are not):
 * a receiver that keeps up needs one cache line. Each store is ordered behind those
 * before it, so who finds the same recent_from after taking the bytes as before has those
 * that belong to it.
 */
static inline void scif_store_recent(struct scif_shared *peer, uint32_t from,
				     const uint8_t *bytes, uint32_t length)
{
	uint64_t words[SCIF_RECENT_WORDS];
	uint32_t i, count = (length + 7) / 8;

	if (!length || length > sizeof(words)) {
		atomic_store_explicit(&peer->recent_length, 0,
				      memory_order_release);
		return;
	}
	words[count - 1] = 0;
	scif_ring_copy(words, bytes, length);
	atomic_store_explicit(&peer->recent_from, from, memory_order_release);
	for (i = 0; i < count; i++)
		atomic_store_explicit(&peer->recent[i], words[i],
				      memory_order_release);
	atomic_store_explicit(&peer->recent_length, length,
			      memory_order_release);
}

/* The next @length bytes, which are there; false if they are not the recent ones. */
static inline bool scif_take_recent(struct scif_shared *shared, uint32_t from,
				    uint8_t *bytes, uint32_t length)
{
	uint64_t words[SCIF_RECENT_WORDS];
	uint32_t i, count = (length + 7) / 8;

	if (atomic_load_explicit(&shared->recent_from, memory_order_acquire) !=
		    from ||
	    atomic_load_explicit(&shared->recent_length, memory_order_acquire) <
		    length ||
	    length > sizeof(words))
		return false;
	for (i = 0; i < count; i++)
		words[i] = atomic_load_explicit(&shared->recent[i],
						memory_order_acquire);
	if (atomic_load_explicit(&shared->recent_from, memory_order_relaxed) !=
	    from)
		return false;
	scif_ring_copy(bytes, words, length);
	return true;
}

/* Did what was stored there reach the peer? If not, it is unmapped. */
static inline bool scif_link_reached(struct scif_link *link)
{
	if (link->dev->direct->is_valid(link->window))
		return true;
	atomic_store(&link->peer, NULL);
	return false;
}

/*
 * Behind all stores before it, and before what is loaded in sequentially consistent order;
 * where that is not how it is loaded there is a barrier (scif_arm()).
 */
static inline bool scif_store_word(struct scif_endpoint *ep, uint32_t value,
				   size_t place)
{
	struct scif_shared *peer = atomic_load(&ep->link.peer);

	if (!peer)
		return false;
	atomic_store((_Atomic uint32_t *)((char *)peer + place), value);
	return scif_link_reached(&ep->link);
}

/*
 * The bytes, in one or two parts, and the count. False if the peer's block isn't
 * mapped, or not any more.
 */
static inline bool scif_store_bytes(struct scif_endpoint *ep,
				    const uint8_t *one, const uint8_t *two,
				    uint32_t length)
{
	struct scif_shared *peer = atomic_load(&ep->link.peer);
	uint32_t first = scif_ring_split(scif_count(&ep->produced), length);

	if (!peer)
		return false;
	scif_ring_copy(peer->ring + scif_count(&ep->produced) % SCIF_RING_BYTES,
		       one, first);
	if (first < length)
		scif_ring_copy(peer->ring, two, length - first);
	scif_store_recent(peer, scif_count(&ep->produced), one,
			  first < length ? 0 : length);
	return scif_store_word(ep, scif_count(&ep->produced) + length,
			       offsetof(struct scif_shared, produced));
}

#endif /* SCIF_RING_H */
