// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * The short way of a message, while its connection is hot and the peer's block is
 * mapped: no system call, no reference, one cache line that travels. Everything
 * that is not as it mostly is goes the long way, in message.c.
 *
 * An endpoint's memory never becomes anything else, so one may take the turn of any
 * that was known, and look then whether it lives. It ends after the last reference is
 * given back and both turns are taken: either sees the other.
 */
#include "hot.h"
#include "ring.h"
#include "slots.h"

enum { ROUNDS = 500 };

static bool try_turn(atomic_bool *turn)
{
	return !atomic_load_explicit(turn, memory_order_relaxed) &&
	       !atomic_exchange(turn, true);
}

/* With a turn of @ep: is it the one of @epd, and as it mostly is? */
static inline bool is_hot(struct scif_endpoint *ep, scif_epd_t epd)
{
	return atomic_load(&ep->refs) > 0 && scif_known(epd) == ep &&
	       atomic_load(&ep->hot) && scif_state(ep) == SCIF_CONNECTED &&
	       atomic_load(&ep->link.peer);
}

/* Without a look at what the peer took, if it isn't needed. One byte stays free. */
static bool has_room(struct scif_endpoint *ep, uint32_t length)
{
	uint32_t room = ep->tx_end - scif_count(&ep->produced);

	if (length < room && room <= SCIF_RING_ROOM)
		return true;
	room = scif_room(ep);
	if (room > SCIF_RING_ROOM)
		return false;
	ep->tx_end = scif_count(&ep->produced) + room;
	return length < room;
}

static inline bool may_send(struct scif_endpoint *ep, const uint8_t *bytes,
			    uint32_t length)
{
	return atomic_load(&ep->steer.out) && has_room(ep, length) &&
	       scif_is_known_page(&ep->tx_page, bytes, length);
}

static inline bool store(struct scif_endpoint *ep, const uint8_t *bytes,
			 uint32_t length)
{
	uint32_t first = scif_ring_split(scif_count(&ep->produced), length);
	bool stored = scif_store_bytes(ep, bytes, bytes + first, length);

	if (stored)
		scif_count_more(&ep->produced, length);
	return stored;
}

/*
 * With a reference: wake the peer. Or, if the mapping has ended, the peer may have the
 * bytes, or not: then they are written once more, to the same place, before anybody
 * else sends. False if that fails; the connection is lost then.
 */
static bool send_rest(struct scif_endpoint *ep, const uint8_t *bytes,
		      uint32_t length, bool stored)
{
	SCIF_NO_CANCEL;

	if (!stored && scif_ring_put_again(ep, bytes, length)) {
		scif_lost(ep);
		return false;
	}
	scif_wake_data(ep);
	return true;
}

static void put_late(struct scif_endpoint *ep)
{
	SCIF_NO_CANCEL;

	scif_put(ep);
}

/* All of it at once, or false: then nothing was sent. */
static inline bool send_now(scif_epd_t epd, const void *msg, int length)
{
	struct scif_endpoint *ep = scif_known(epd);
	bool sent = false, late = false;

	if (!ep || length <= 0 || !try_turn(&ep->sending))
		return false;
	if (is_hot(ep, epd) && may_send(ep, msg, length)) {
		sent = store(ep, msg, length);
		late = (!sent || atomic_load(&ep->link.shared->want_data) !=
					 ep->woken_data) &&
		       scif_try_get(ep);
		if (late)
			sent = send_rest(ep, msg, length, sent);
	}
	scif_end_turn(&ep->sending);
	if (late)
		put_late(ep);
	return sent;
}

static inline bool wait_for(struct scif_endpoint *ep, uint32_t length)
{
	unsigned int round;
	uint32_t bytes;

	for (round = 0; round < ROUNDS; round++) {
		bytes = scif_bytes(ep);
		if (bytes >= length)
			return bytes <= SCIF_RING_ROOM;
		if (scif_state(ep) != SCIF_CONNECTED)
			return false;
	}
	return false;
}

static inline bool take_short(struct scif_endpoint *ep, uint8_t *bytes,
			      uint32_t length)
{
	struct scif_shared *shared = ep->link.shared;
	uint32_t first;

	if (atomic_load(&ep->steer.in) || length > SCIF_RING_ROOM ||
	    !scif_is_known_page(&ep->rx_page, bytes, length) ||
	    !wait_for(ep, length))
		return false;
	if (!scif_take_recent(shared, scif_count(&ep->consumed), bytes,
			      length)) {
		first = scif_ring_split(scif_count(&ep->consumed), length);
		scif_ring_copy(bytes,
			       shared->ring + scif_count(&ep->consumed) %
						      SCIF_RING_BYTES,
			       first);
		if (first < length)
			scif_ring_copy(bytes + first, shared->ring,
				       length - first);
	}
	scif_count_more(&ep->consumed, length);
	atomic_store_explicit(&ep->ticks, 0, memory_order_relaxed);
	return true;
}

/*
 * With the turn, after bytes were taken: is there more to do? If the endpoint cooled
 * meanwhile, its descriptor shows bytes that were there then.
 */
static inline bool is_rest(struct scif_endpoint *ep)
{
	return !scif_store_word(ep, scif_count(&ep->consumed),
				offsetof(struct scif_shared, consumed)) ||
	       atomic_load(&ep->link.shared->want_room) != ep->woken_room ||
	       !atomic_load(&ep->hot) || atomic_load(&ep->steer.in);
}

/* With a reference. */
static void recv_rest(struct scif_endpoint *ep, scif_epd_t epd)
{
	SCIF_NO_CANCEL;

	scif_ring_taken(ep);
	scif_refresh(ep, epd);
}

/* Likewise, after waiting for a moment. */
static inline bool recv_now(scif_epd_t epd, void *msg, int length)
{
	struct scif_endpoint *ep = scif_known(epd);
	bool done, late;

	if (!ep || length <= 0 || !try_turn(&ep->receiving))
		return false;
	done = is_hot(ep, epd) && take_short(ep, msg, length);
	late = done && is_rest(ep) && scif_try_get(ep);
	if (late)
		recv_rest(ep, epd);
	scif_end_turn(&ep->receiving);
	if (late)
		put_late(ep);
	return done;
}

SCIF_EXPORT int scif_send(scif_epd_t epd, void *msg, int len, int flags)
{
	if (!(flags & ~SCIF_SEND_BLOCK) && send_now(epd, msg, len))
		return len;
	return scif_send_long(epd, msg, len, flags);
}

SCIF_EXPORT int scif_recv(scif_epd_t epd, void *msg, int len, int flags)
{
	if (flags == SCIF_RECV_BLOCK && recv_now(epd, msg, len))
		return len;
	return scif_recv_long(epd, msg, len, flags);
}

void scif_hot_keep_out(struct scif_endpoint *ep)
{
	unsigned int round = 0;

	while (!try_turn(&ep->sending))
		scif_relax(round++);
	while (!try_turn(&ep->receiving))
		scif_relax(round++);
}
