// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * The peer is killed in the middle of something. What it had sent is still to be
 * received; all else says that it is gone, and harms nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "model.h"
#include "tap.h"

enum { LENGTH = 16000, COPIES = 8 };

/* What it was doing; for a send, how much of it may have arrived. */
static struct peer_call last;
static uint8_t arrived[RING + LENGTH];
static unsigned int least, most;

static void begin_last(void)
{
	static const enum peer_op ops[] = { PEER_RECV, PEER_SEND, PEER_READFROM,
					    PEER_POLL };
	unsigned int i;

	memset(&last, 0, sizeof(last));
	last.op = ops[below(4)];
	last.epd = sides[1].epd;
	last.length = last.op == PEER_POLL ? (uint64_t)-1 : LENGTH;
	last.flags = 1; /* to block, to poll for IN */
	if (last.op == PEER_READFROM) {
		last.flags = SCIF_RMA_SYNC;
		last.local = random_offset(&sides[1], LENGTH);
		last.remote = random_offset(&sides[0], LENGTH);
	}
	for (i = 0; i < LENGTH; i++)
		last.data[i] = random_word();
	least = sides[0].queued;
	most = least;
	memcpy(arrived, sides[0].queue, least);
	if (last.op == PEER_SEND) {
		memcpy(arrived + least, last.data, LENGTH);
		most = RING;
	}
	peer_begin(&last);
}

/* Copies to it that may be under way then. */
static bool write_to_it(void)
{
	const struct window *from, *to;
	unsigned int i, pages;
	bool ok = true;

	for (i = 0; i < COPIES && ok && sides[0].count && sides[1].count; i++) {
		from = &sides[0].windows[below(sides[0].count)];
		to = &sides[1].windows[below(sides[1].count)];
		pages = from->pages < to->pages ? from->pages : to->pages;
		if (!(from->prot & SCIF_PROT_READ) ||
		    !(to->prot & SCIF_PROT_WRITE))
			continue;
		clear(PEER_WRITETO);
		call.local = from->page * PAGE;
		call.remote = to->page * PAGE;
		call.length = pages * PAGE;
		on(0);
		ok = expect(0, 0, "writeto before its death");
	}
	return ok;
}

static bool drain(void)
{
	unsigned int got = 0;

	do {
		clear(PEER_RECV);
		call.length = 1 + below(PEER_DATA);
		call.flags = below(2);
		on(0);
		if (call.ret <= 0)
			break;
		if (!check(got + call.ret <= most, "%u bytes and %lld more",
			   got, (long long)call.ret) ||
		    !check(!memcmp(call.data, arrived + got, call.ret),
			   "what was sent before its death"))
			return false;
		got += call.ret;
	} while (1);
	return expect(-1, ECONNRESET, "recv after its death") &&
	       check(got >= least, "only %u of %u bytes came", got, least);
}

static bool is_reset(enum peer_op op, int flags, const char *what)
{
	clear(op);
	call.length = PAGE;
	call.prot = SCIF_PROT_READ;
	call.flags = flags;
	on(0);
	return expect(-1, ECONNRESET, what);
}

static bool all_is_reset(void)
{
	const int signal = SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_REMOTE;

	return is_reset(PEER_SEND, below(2), "send") &&
	       is_reset(PEER_WRITETO, below(2) * SCIF_RMA_SYNC, "writeto") &&
	       is_reset(PEER_VREADFROM, 0, "vreadfrom") &&
	       is_reset(PEER_REGISTER, FIXED, "register") &&
	       is_reset(PEER_MMAP, 0, "mmap") &&
	       is_reset(PEER_FENCE_MARK, SCIF_FENCE_INIT_PEER, "fence_mark") &&
	       is_reset(PEER_FENCE_WAIT, 1, "fence_wait") &&
	       is_reset(PEER_FENCE_SIGNAL, signal, "fence_signal");
}

bool do_death(void)
{
	bool ok;

	begin_last();
	usleep(below(2) * below(3000));
	ok = write_to_it();
	peer_kill();
	ok = shows(sides[0].epd, POLLHUP) && ok && drain() && all_is_reset() &&
	     check(scif_poll_now(sides[0].epd) == POLLHUP,
		   "scif_poll says 0x%x", scif_poll_now(sides[0].epd)) &&
	     memory_agrees(0);
	ok = succeeds(scif_close(sides[0].epd), 0, "close") && ok;
	return end_maps(0, false) && ok;
}
