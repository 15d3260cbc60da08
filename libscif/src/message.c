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
 *
 * A receiver that waited often in a row is hot: it does not ask to be woken
 * after each receive, and its descriptor may be late by a tick of the progress
 * thread. scif_cool() makes it exact again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

enum {
	FAST_ROUNDS = 500,
	WAIT_ROUNDS = 3000,
	TURN_ROUNDS = 4000,
	HOT_WAITS = 16
};

static const uintptr_t page_mask = ~(uintptr_t)4095;

/* Bytes to receive; more than the ring has is the peer's nonsense. */
uint32_t scif_bytes(struct scif_endpoint *ep)
{
	return atomic_load_explicit(&ep->link.shared->produced,
				    memory_order_acquire) -
	       ep->consumed;
}

/* Room to send; likewise. */
uint32_t scif_room(struct scif_endpoint *ep)
{
	uint32_t used = ep->produced -
			atomic_load_explicit(&ep->link.shared->consumed,
					     memory_order_acquire);

	return SCIF_RING_ROOM - used;
}

/* A store, and a barrier before whatever is looked at next. */
static bool store_word(struct scif_endpoint *ep, uint32_t value, size_t place)
{
	struct scif_shared *peer = atomic_load(&ep->link.peer);

	if (!peer)
		return false;
	atomic_store((_Atomic uint32_t *)((char *)peer + place), value);
	return scif_link_reached(&ep->link);
}

static int write_word(struct scif_endpoint *ep, uint32_t *word, uint32_t value,
		      size_t place)
{
	int err;

	if (store_word(ep, value, place)) {
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

/* With the steer's lock: have the peer wake us when what isn't there comes. */
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

static void heat(struct scif_endpoint *ep)
{
	if (atomic_load(&ep->hot) ||
	    atomic_fetch_add(&ep->waits, 1) < HOT_WAITS)
		return;
	atomic_store(&ep->ticks, 0);
	scif_link_map(&ep->link);
	scif_table_doubt();
	if (!atomic_exchange(&ep->hot, true))
		scif_process_tick();
	/* Whoever closed it meanwhile may have looked too early. */
	if (scif_state(ep) == SCIF_CLOSED && atomic_exchange(&ep->hot, false))
		scif_process_untick();
}

void scif_cool(struct scif_endpoint *ep, scif_epd_t epd)
{
	if (!atomic_load(&ep->hot) || !atomic_exchange(&ep->hot, false))
		return;
	scif_process_untick();
	atomic_store(&ep->waits, 0);
	scif_refresh(ep, epd);
}

/* Most messages are short. */
static void copy(void *to, const void *from, uint32_t length)
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

/* Does @page hold all of it, known to be good? */
static bool is_known(const uint8_t *page, const uint8_t *bytes, uint32_t length)
{
	return page && ((uintptr_t)bytes & page_mask) == (uintptr_t)page &&
	       ((uintptr_t)(bytes + length - 1) & page_mask) == (uintptr_t)page;
}

/* While hot, the memory is the one of a moment ago. */
static bool may_read(struct scif_endpoint *ep, const uint8_t *from,
		     uint32_t length)
{
	return atomic_load_explicit(&ep->hot, memory_order_relaxed) &&
	       is_known(ep->tx_page, from, length);
}

static int copy_from_user(struct scif_endpoint *ep, uint8_t *to,
			  const uint8_t *from, uint32_t length)
{
	int err;

	if (may_read(ep, from, length)) {
		copy(to, from, length);
		return 0;
	}
	err = scif_copy_in(to, from, length);
	ep->tx_page = err ? NULL : (void *)((uintptr_t)from & page_mask);
	return err;
}

static int copy_to_user(struct scif_endpoint *ep, uint8_t *to,
			const uint8_t *from, uint32_t length)
{
	int err;

	if (atomic_load_explicit(&ep->hot, memory_order_relaxed) &&
	    is_known(ep->rx_page, to, length)) {
		copy(to, from, length);
		return 0;
	}
	err = scif_copy_out(to, from, length);
	ep->rx_page = err ? NULL : (void *)((uintptr_t)to & page_mask);
	return err;
}

/* The bytes in @local's ring from @from on, up to its end, and from its start. */
static uint32_t split(uint32_t from, uint32_t length)
{
	uint32_t end = SCIF_RING_BYTES - from % SCIF_RING_BYTES;

	return length < end ? length : end;
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

/* False if the peer's ring isn't mapped, or not any more. */
static bool store_parts(struct scif_endpoint *ep, const uint8_t *one,
			const uint8_t *two, uint32_t length)
{
	struct scif_shared *peer = atomic_load(&ep->link.peer);
	uint32_t first = split(ep->produced, length);

	if (!peer)
		return false;
	copy(peer->ring + ep->produced % SCIF_RING_BYTES, one, first);
	if (first < length)
		copy(peer->ring, two, length - first);
	return store_word(ep, ep->produced + length,
			  offsetof(struct scif_shared, produced));
}

/* What is in the local ring. */
static bool store_bytes(struct scif_endpoint *ep, uint32_t length)
{
	const uint8_t *ring = ep->link.local->ring;

	return store_parts(ep, ring + ep->produced % SCIF_RING_BYTES, ring,
			   length);
}

/* The user's bytes, without a stop there. */
static bool store_user(struct scif_endpoint *ep, const uint8_t *bytes,
		       uint32_t length)
{
	return may_read(ep, bytes, length) &&
	       store_parts(ep, bytes, bytes + split(ep->produced, length),
			   length);
}

/* The bytes, in one or two parts, and the count. */
static int write_bytes(struct scif_endpoint *ep, uint32_t length)
{
	struct scif_link *link = &ep->link;
	uint32_t first = split(ep->produced, length);
	struct ibv_send_wr wrs[3];
	struct ibv_sge sges[3];
	int count = 1, err;

	if (store_bytes(ep, length))
		return 0;
	fill_write(ep, &wrs[0], &sges[0], ep->produced, first);
	if (first < length)
		fill_write(ep, &wrs[count++], &sges[1], ep->produced + first,
			   length - first);
	fill_write(ep, &wrs[count], &sges[count], 0, sizeof(uint32_t));
	sges[count].addr = (uintptr_t)&link->local->produced;
	wrs[count].wr.rdma.remote_addr = link->peer_addr +
					 offsetof(struct scif_shared, produced);
	wrs[0].next = &wrs[1];
	wrs[1].next = count > 1 ? &wrs[2] : NULL;
	pthread_mutex_lock(&link->lock);
	link->local->produced = ep->produced + length;
	err = scif_link_write(link, wrs);
	pthread_mutex_unlock(&link->lock);
	return err;
}

static int copy_and_write(struct scif_endpoint *ep, const uint8_t *bytes,
			  uint32_t length)
{
	uint32_t first = split(ep->produced, length);
	uint8_t *ring = ep->link.local->ring;
	int err;

	err = copy_from_user(ep, ring + ep->produced % SCIF_RING_BYTES, bytes,
			     first);
	if (!err && first < length)
		err = copy_from_user(ep, ring, bytes + first, length - first);
	if (err)
		return err;
	err = write_bytes(ep, length);
	if (err)
		scif_lost(ep);
	return err;
}

/* Send what has room: how many bytes, or -errno. */
static int put(struct scif_endpoint *ep, const uint8_t *bytes, uint32_t length)
{
	uint32_t room = scif_room(ep);
	int err;

	if (room > SCIF_RING_ROOM) {
		scif_lost(ep);
		return -ECONNRESET;
	}
	if (length > room)
		length = room;
	if (!length)
		return 0;
	if (!store_user(ep, bytes, length)) {
		err = copy_and_write(ep, bytes, length);
		if (err)
			return -err;
	}
	ep->produced += length;
	wake(ep, &ep->link.shared->want_data, &ep->woken_data, SCIF_WAKE_DATA);
	return length;
}

/* Receive what is there: how many bytes, or -errno. */
static int take(struct scif_endpoint *ep, uint8_t *bytes, uint32_t length)
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
	first = split(ep->consumed, length);
	err = copy_to_user(ep, bytes, ring + ep->consumed % SCIF_RING_BYTES,
			   first);
	if (!err && first < length)
		err = copy_to_user(ep, bytes + first, ring, length - first);
	if (err)
		return -err;
	ep->consumed += length;
	if (scif_state(ep) != SCIF_CONNECTED ||
	    write_word(ep, &ep->link.local->consumed, ep->consumed,
		       offsetof(struct scif_shared, consumed)))
		return length;
	wake(ep, &ep->link.shared->want_room, &ep->woken_room, SCIF_WAKE_ROOM);
	return length;
}

/* Does the descriptor show something else than what is? */
static bool is_stale(struct scif_endpoint *ep)
{
	struct scif_steer *steer = &ep->steer;

	if (scif_state(ep) != SCIF_CONNECTED)
		return !atomic_load(&steer->hup);
	if (scif_bytes(ep) ? !steer->in && !atomic_load(&ep->hot) : steer->in)
		return true;
	if (!scif_bytes(ep) && !atomic_load(&ep->armed_data) &&
	    !atomic_load(&ep->hot))
		return true;
	return (scif_room(ep) != 0) != steer->out;
}

/* Wait until @amount gives more than 0; 0, EINTR or EBADF. */
static int wait_for(struct scif_endpoint *ep, scif_epd_t epd, short event,
		    uint32_t (*amount)(struct scif_endpoint *))
{
	unsigned int round;

	for (round = 0; round < WAIT_ROUNDS; round++) {
		if (amount(ep) || scif_state(ep) != SCIF_CONNECTED) {
			if (event == POLLIN && amount(ep))
				heat(ep);
			return 0;
		}
		/* Emulated processors take long over a pause. */
		if (round >= FAST_ROUNDS)
			__builtin_ia32_pause();
	}
	scif_cool(ep, epd);
	scif_refresh(ep, epd);
	if (amount(ep) || scif_state(ep) != SCIF_CONNECTED)
		return 0;
	return scif_sleep(ep, epd, event);
}

/*
 * One sender and one receiver at a time, so that the bytes of a blocking call
 * stay together, and its owner may sleep. Another blocking call sleeps, too, on
 * the descriptor; one that shall not block gets EAGAIN.
 */
static int take_turn(struct scif_endpoint *ep, scif_epd_t epd,
		     atomic_bool *turn, short event, bool block)
{
	unsigned int round = 0;
	int err = 0;

	while (!err &&
	       atomic_exchange_explicit(turn, true, memory_order_acquire)) {
		if (round >= TURN_ROUNDS)
			err = block ? scif_sleep(ep, epd, event) : EAGAIN;
		scif_relax(round++);
	}
	return err;
}

static void end_turn(atomic_bool *turn)
{
	atomic_store_explicit(turn, false, memory_order_release);
}

/* What a call returns that has not got its turn. */
static int no_turn(struct scif_endpoint *ep, int err)
{
	if (err == EAGAIN)
		err = scif_check_connected(ep);
	if (err == ECONNRESET && scif_bytes(ep))
		err = 0; /* Not yet the end. */
	return err ? scif_fail(err) : 0;
}

static int do_send(struct scif_endpoint *ep, scif_epd_t epd,
		   const uint8_t *bytes, int length, int flags)
{
	int sent = 0, now, err;

	err = take_turn(ep, epd, &ep->sending, POLLOUT,
			flags & SCIF_SEND_BLOCK);
	if (err)
		return no_turn(ep, err);
	while (!err) {
		err = scif_check_connected(ep);
		if (err)
			break;
		now = put(ep, bytes + sent, length - sent);
		if (now < 0)
			err = -now;
		else
			sent += now;
		if (err || sent == length || !(flags & SCIF_SEND_BLOCK))
			break;
		err = wait_for(ep, epd, POLLOUT, scif_room);
	}
	if (ep->link.shared && is_stale(ep))
		scif_refresh(ep, epd);
	end_turn(&ep->sending);
	return sent || !err ? sent : scif_fail(err);
}

static int do_recv(struct scif_endpoint *ep, scif_epd_t epd, uint8_t *bytes,
		   int length, int flags)
{
	int got = 0, now, err, gone;

	err = take_turn(ep, epd, &ep->receiving, POLLIN,
			flags & SCIF_RECV_BLOCK);
	if (err)
		return no_turn(ep, err);
	atomic_store_explicit(&ep->ticks, 0, memory_order_relaxed);
	while (!err) {
		gone = scif_check_connected(ep);
		if (gone && gone != ECONNRESET) {
			err = gone;
			break;
		}
		now = take(ep, bytes + got, length - got);
		if (now < 0)
			err = -now;
		else
			got += now;
		if (err || got == length)
			break;
		if (gone)
			err = gone;
		else if (flags & SCIF_RECV_BLOCK)
			err = wait_for(ep, epd, POLLIN, scif_bytes);
		else
			break;
	}
	if (!(flags & SCIF_RECV_BLOCK))
		scif_cool(ep, epd);
	if (ep->link.shared && is_stale(ep))
		scif_refresh(ep, epd);
	end_turn(&ep->receiving);
	return got || !err ? got : scif_fail(err);
}

SCIF_EXPORT int scif_send(scif_epd_t epd, void *msg, int len, int flags)
{
	struct scif_endpoint *ep = scif_get(epd);
	int ret = 0;

	if (!ep)
		return -1;
	if (len < 0 || flags & ~SCIF_SEND_BLOCK)
		ret = scif_fail(EINVAL);
	else if (len)
		ret = do_send(ep, epd, msg, len, flags);
	scif_put(ep);
	return ret;
}

SCIF_EXPORT int scif_recv(scif_epd_t epd, void *msg, int len, int flags)
{
	struct scif_endpoint *ep = scif_get(epd);
	int ret = 0;

	if (!ep)
		return -1;
	if (len < 0 || flags & ~SCIF_RECV_BLOCK)
		ret = scif_fail(EINVAL);
	else if (len)
		ret = do_recv(ep, epd, msg, len, flags);
	scif_put(ep);
	return ret;
}
