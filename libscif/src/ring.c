// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * The byte stream. The sender writes bytes into the receiver's ring and then
 * the count of bytes produced; the receiver writes back the count consumed.
 * Each write is complete when the call returns: what was sent is there.
 *
 * Where the peer's block is mapped, those writes are stores: on mic devices, as
 * soon as a receiver waits often.
 *
 * Plain writes wake nobody. Who wants to be woken changes a word at the other
 * side and then looks once more; who wrote a count then looks at that word. As
 * each write is complete before the look, one of the two sees the other.
 */
#include <errno.h>

#include "ring.h"

static int write_word(struct scif_endpoint *ep, uint32_t *word, uint32_t value,
		      size_t place)
{
	int err;

	if (scif_store_word(ep, value, place)) {
		*word = value;
		return 0;
	}

	pthread_mutex_lock(&ep->link.lock);
	*word = value;
	err = scif_link_write_words(&ep->link, word, place, sizeof(*word));
	pthread_mutex_unlock(&ep->link.lock);
	if (err)
		scif_lost(ep);
	return err;
}

void scif_arm(struct scif_endpoint *ep)
{
	struct scif_local *local = ep->link.local;

	if (!scif_bytes(ep) && !atomic_load(&ep->hot) &&
	    !atomic_exchange(&ep->armed_data, true))
		write_word(ep, &local->want_data, local->want_data + 1,
			   offsetof(struct scif_shared, want_data));
	if (!scif_room(ep) && !atomic_exchange(&ep->armed_room, true))
		write_word(ep, &local->want_room, local->want_room + 1,
			   offsetof(struct scif_shared, want_room));
	/* Before who calls looks again: an acquiring load may pass the stores. */
	atomic_thread_fence(memory_order_seq_cst);
}

static void wake(struct scif_endpoint *ep, _Atomic uint32_t *want,
		 uint32_t *granted, uint32_t type)
{
	struct scif_message message = { .type = type };
	uint32_t wanted = atomic_load(want);

	if (wanted == *granted)
		return;
	*granted = wanted;
	if (scif_link_send(&ep->link, &message))
		scif_lost(ep);
}

void scif_wake_data(struct scif_endpoint *ep)
{
	wake(ep, &ep->link.shared->want_data, &ep->woken_data, SCIF_WAKE_DATA);
}

/* Then its page is known, for a moment. */
static int copy_from_user(struct scif_known_page *page, uint8_t *to,
			  const uint8_t *from, uint32_t length)
{
	uint32_t doubts = atomic_load(&scif_doubts);
	int err = scif_copy_in(to, from, length);

	scif_know_page(page, err ? NULL : from, doubts);
	return err;
}

static int copy_to_user(struct scif_known_page *page, uint8_t *to,
			const uint8_t *from, uint32_t length)
{
	uint32_t doubts = atomic_load(&scif_doubts);
	int err = scif_copy_out(to, from, length);

	scif_know_page(page, err ? NULL : to, doubts);
	return err;
}

static void fill_write(struct scif_endpoint *ep, struct ibv_send_wr *wr,
		       struct ibv_sge *sge, uint32_t from, uint32_t length)
{
	struct scif_link *link = &ep->link;
	uint32_t place = from % SCIF_RING_BYTES;

	sge->addr = (uintptr_t)&link->local->ring[place];
	sge->length = length;
	sge->lkey = link->local_mr->lkey;
	memset(wr, 0, sizeof(*wr));
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->send_flags = length <= link->max_inline ? IBV_SEND_INLINE : 0;
	wr->wr.rdma.remote_addr = link->peer_addr +
				  offsetof(struct scif_shared, ring) + place;
	wr->wr.rdma.rkey = link->peer_rkey;
}

/* What is in the local ring; false if the peer's isn't mapped, or not any more. */
static bool store_bytes(struct scif_endpoint *ep, uint32_t length)
{
	const uint8_t *ring = ep->link.local->ring;

	return scif_store_bytes(
		ep, ring + scif_count(&ep->produced) % SCIF_RING_BYTES, ring,
		length);
}

/* The bytes, in one or two parts, and the count. */
static int write_bytes(struct scif_endpoint *ep, uint32_t length)
{
	struct scif_link *link = &ep->link;
	uint32_t first = scif_ring_split(scif_count(&ep->produced), length);
	struct ibv_send_wr wrs[3];
	struct ibv_sge sges[3];
	int count = 1, err;

	if (store_bytes(ep, length))
		return 0;
	fill_write(ep, &wrs[0], &sges[0], scif_count(&ep->produced), first);
	if (first < length)
		fill_write(ep, &wrs[count++], &sges[1],
			   scif_count(&ep->produced) + first, length - first);
	/* With recent_length, which stays 0. */
	fill_write(ep, &wrs[count], &sges[count], 0, 2 * sizeof(uint32_t));
	sges[count].addr = (uintptr_t)&link->local->produced;
	wrs[count].wr.rdma.remote_addr = link->peer_addr +
					 offsetof(struct scif_shared, produced);
	wrs[0].next = &wrs[1];
	wrs[1].next = count > 1 ? &wrs[2] : NULL;
	pthread_mutex_lock(&link->lock);
	link->local->produced = scif_count(&ep->produced) + length;
	err = scif_link_write(link, wrs);
	pthread_mutex_unlock(&link->lock);
	return err;
}

static int copy_and_write(struct scif_endpoint *ep, const uint8_t *bytes,
			  uint32_t length)
{
	uint32_t first = scif_ring_split(scif_count(&ep->produced), length);
	uint8_t *ring = ep->link.local->ring;
	int err;

	err = copy_from_user(&ep->tx_page,
			     ring + scif_count(&ep->produced) % SCIF_RING_BYTES,
			     bytes, first);
	if (!err && first < length)
		err = copy_from_user(&ep->tx_page, ring, bytes + first,
				     length - first);
	if (err)
		return err;
	err = write_bytes(ep, length);
	if (err)
		scif_lost(ep);
	return err;
}

int scif_ring_put(struct scif_endpoint *ep, const uint8_t *bytes,
		  uint32_t length)
{
	uint32_t room = scif_room(ep);
	int err;

	if (room > SCIF_RING_ROOM) {
		scif_lost(ep);
		return -ECONNRESET;
	}
	ep->tx_end = scif_count(&ep->produced) + room;
	if (length > room)
		length = room;
	if (!length)
		return 0;
	err = copy_and_write(ep, bytes, length);
	if (err)
		return -err;
	scif_count_more(&ep->produced, length);
	scif_wake_data(ep);
	return length;
}

int scif_ring_put_again(struct scif_endpoint *ep, const uint8_t *bytes,
			uint32_t length)
{
	int err = copy_and_write(ep, bytes, length);

	if (!err)
		scif_count_more(&ep->produced, length);
	return err;
}

void scif_ring_taken(struct scif_endpoint *ep)
{
	if (!write_word(ep, &ep->link.local->consumed,
			scif_count(&ep->consumed),
			offsetof(struct scif_shared, consumed)))
		wake(ep, &ep->link.shared->want_room, &ep->woken_room,
		     SCIF_WAKE_ROOM);
}

int scif_ring_take(struct scif_endpoint *ep, uint8_t *bytes, uint32_t length)
{
	uint32_t there = scif_bytes(ep), first;
	uint8_t *ring = ep->link.shared->ring;
	int err;

	if (there > SCIF_RING_ROOM) {
		scif_lost(ep);
		return -ECONNRESET;
	}
	if (length > there)
		length = there;
	if (!length)
		return 0;
	first = scif_ring_split(scif_count(&ep->consumed), length);
	err = copy_to_user(&ep->rx_page, bytes,
			   ring + scif_count(&ep->consumed) % SCIF_RING_BYTES,
			   first);
	if (!err && first < length)
		err = copy_to_user(&ep->rx_page, bytes + first, ring,
				   length - first);
	if (err)
		return -err;
	scif_count_more(&ep->consumed, length);
	if (scif_state(ep) == SCIF_CONNECTED)
		scif_ring_taken(ep);
	return length;
}
