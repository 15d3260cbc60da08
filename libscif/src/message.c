// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Sending and receiving: turns, waiting, and what the descriptor shows.
 *
 * A receiver that waited often in a row is hot: it does not ask to be woken
 * after each receive, and its descriptor may be late by a tick of the progress
 * thread. scif_cool() makes it exact again. One that cooled because nothing came for
 * a moment is hot again soon.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>

#include "hot.h"
#include "ring.h"

enum {
	FAST_ROUNDS = 500,
	YIELD_ROUNDS = 600,
	WAIT_ROUNDS = 3000,
	TURN_ROUNDS = 4000,
	HOT_WAITS = 16,
	HOT_AGAIN_WAITS = 2
};

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
	if (!scif_room(ep))
		return steer->out || !atomic_load(&ep->armed_room);
	return !steer->out;
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
			scif_pause();
		/* The peer may wait for this very processor. */
		if (round % YIELD_ROUNDS == YIELD_ROUNDS - 1)
			sched_yield();
	}
	scif_signals_hold();
	if (atomic_load(&ep->hot)) {
		scif_cool(ep, epd);
		atomic_store(&ep->waits, HOT_WAITS - HOT_AGAIN_WAITS);
	}
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
		if (block && round == TURN_ROUNDS - 1)
			scif_signals_hold();
		if (round >= TURN_ROUNDS)
			err = block ? scif_sleep(ep, epd, event) : EAGAIN;
		scif_relax(round++);
	}
	return err;
}

/* What a call returns that has not got its turn. */
static int no_turn(struct scif_endpoint *ep, int err)
{
	if (err == EAGAIN)
		err = scif_check_connected(ep);
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
		now = scif_ring_put(ep, bytes + sent, length - sent);
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
	scif_end_turn(&ep->sending);
	return sent || !err ? sent : scif_fail(err);
}

static int do_recv(struct scif_endpoint *ep, scif_epd_t epd, uint8_t *bytes,
		   int length, int flags)
{
	int got = 0, now, err, gone;

	err = take_turn(ep, epd, &ep->receiving, POLLIN,
			flags & SCIF_RECV_BLOCK);
	/* Another call takes what is there: not yet the end. */
	if (err == EAGAIN && scif_state(ep) == SCIF_DISCONNECTED &&
	    scif_bytes(ep))
		return 0;
	if (err)
		return no_turn(ep, err);
	atomic_store_explicit(&ep->ticks, 0, memory_order_relaxed);
	while (!err) {
		gone = scif_check_connected(ep);
		if (gone && gone != ECONNRESET) {
			err = gone;
			break;
		}
		now = scif_ring_take(ep, bytes + got, length - got);
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
	scif_end_turn(&ep->receiving);
	return got || !err ? got : scif_fail(err);
}

/* If it ends by that, errno stays what it was. */
static void put_quietly(struct scif_endpoint *ep)
{
	int error = errno;

	scif_put(ep);
	errno = error;
}

int scif_send_long(scif_epd_t epd, const void *msg, int length, int flags)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = scif_get(epd);
	int ret = 0;

	if (!ep)
		return -1;
	if (length < 0 || flags & ~SCIF_SEND_BLOCK)
		ret = scif_fail(EINVAL);
	else if (length)
		ret = do_send(ep, epd, msg, length, flags);
	put_quietly(ep);
	return ret;
}

int scif_recv_long(scif_epd_t epd, void *msg, int length, int flags)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = scif_get(epd);
	int ret = 0;

	if (!ep)
		return -1;
	if (length < 0 || flags & ~SCIF_RECV_BLOCK)
		ret = scif_fail(EINVAL);
	else if (length)
		ret = do_recv(ep, epd, msg, length, flags);
	put_quietly(ep);
	return ret;
}
