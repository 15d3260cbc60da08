// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Fences: marks and signals.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "clock.h"
#include "model.h"
#include "tap.h"

enum { WORD = 8, HALF = 4, TRIES = 8 };

static bool mark_and_wait(int side, int flags)
{
	bool ok;

	clear(PEER_FENCE_MARK);
	call.flags = flags;
	on(side);
	ok = check(call.ret > 0, "mark %lld, errno %s", (long long)call.ret,
		   strerrorname_np(call.error));
	call.op = PEER_FENCE_WAIT;
	call.flags = call.ret;
	on(side);
	return ok && expect(0, 0, "fence_wait");
}

bool do_fence(int side)
{
	return mark_and_wait(side, below(2) ? SCIF_FENCE_INIT_SELF :
					      SCIF_FENCE_INIT_PEER);
}

/* A word may lie across two windows, but no half of it does. */
static void put_word(struct side *side, unsigned int offset, uint64_t value)
{
	memcpy(byte_at(side, offset), &value, HALF);
	memcpy(byte_at(side, offset + HALF), (uint8_t *)&value + HALF, HALF);
}

static bool half_is_there(int side, unsigned int offset)
{
	const uint8_t *expected = byte_at(&sides[side], offset);

	clear(PEER_PEEK);
	call.local = expected - sides[side].memory;
	call.length = HALF;
	on(side);
	return !memcmp(call.data, expected, HALF);
}

/* A signal does not wait for what it waits for. */
static bool word_comes(int side, unsigned int offset)
{
	uint64_t end = deadline();
	unsigned int round = 0;

	while (!half_is_there(side, offset) ||
	       !half_is_there(side, offset + HALF)) {
		if (now_ms() > end)
			return check(false, "no signal at 0x%x of side %d",
				     offset, side);
		relax(round++);
	}
	return true;
}

struct signal {
	unsigned int local, remote;
	uint64_t local_value, remote_value;
	int flags;
};

static bool is_valid(const struct signal *signal)
{
	int who = signal->flags & (SCIF_FENCE_INIT_SELF | SCIF_FENCE_INIT_PEER);

	if (who != SCIF_FENCE_INIT_SELF && who != SCIF_FENCE_INIT_PEER)
		return false;
	if (signal->flags & SCIF_SIGNAL_LOCAL && signal->local % HALF)
		return false;
	if (signal->flags & SCIF_SIGNAL_REMOTE && signal->remote % HALF)
		return false;
	return signal->flags & (SCIF_SIGNAL_LOCAL | SCIF_SIGNAL_REMOTE);
}

/* The initiator looks at its own window first. */
static int error_of(int side, const struct signal *signal)
{
	int local = 0, remote = 0;

	if (!is_valid(signal))
		return EINVAL;
	if (signal->flags & SCIF_SIGNAL_LOCAL)
		local = check_range(&sides[side], signal->local, WORD,
				    SCIF_PROT_WRITE);
	if (signal->flags & SCIF_SIGNAL_REMOTE)
		remote = check_range(&sides[!side], signal->remote, WORD,
				     SCIF_PROT_WRITE);
	if (signal->flags & SCIF_FENCE_INIT_SELF)
		return local ? local : remote;
	return remote ? remote : local;
}

static bool perform(int side, const struct signal *signal)
{
	int error = error_of(side, signal);
	bool ok;

	clear(PEER_FENCE_SIGNAL);
	call.local = signal->local;
	call.remote = signal->remote;
	call.local_value = signal->local_value;
	call.remote_value = signal->remote_value;
	call.flags = signal->flags;
	on(side);
	ok = expect(error ? -1 : 0, error, "fence_signal");
	if (!ok || error)
		return ok;
	if (signal->flags & SCIF_SIGNAL_LOCAL) {
		put_word(&sides[side], signal->local, signal->local_value);
		ok = word_comes(side, signal->local);
	}
	if (signal->flags & SCIF_SIGNAL_REMOTE) {
		put_word(&sides[!side], signal->remote, signal->remote_value);
		ok = word_comes(!side, signal->remote) && ok;
	}
	return ok;
}

static unsigned int word_offset(const struct side *side)
{
	unsigned int offset = random_offset(side, WORD);

	return below(16) ? offset - offset % HALF : offset;
}

static uint64_t random_value(void)
{
	return (uint64_t)random_word() << 32 | random_word();
}

static int random_who(void)
{
	static const int odd[] = { 0,
				   SCIF_FENCE_INIT_SELF | SCIF_FENCE_INIT_PEER,
				   SCIF_FENCE_RAS_SELF };

	if (!below(16))
		return odd[below(3)];
	return below(2) ? SCIF_FENCE_INIT_SELF : SCIF_FENCE_INIT_PEER;
}

bool do_signal(int side)
{
	static const int what[] = {
		SCIF_SIGNAL_LOCAL,
		SCIF_SIGNAL_REMOTE,
		SCIF_SIGNAL_LOCAL | SCIF_SIGNAL_REMOTE,
		0,
	};
	struct signal signal = {
		.local = word_offset(&sides[side]),
		.remote = word_offset(&sides[!side]),
		.local_value = random_value(),
		.remote_value = random_value(),
	};

	signal.flags = random_who() | what[below(16) ? below(3) : 3];
	return perform(side, &signal);
}

/* By a word in a window of either, written behind what @side began. */
static bool settle_by_signal(int side)
{
	int at = below(2), caller = below(2), i;
	struct signal signal = { .flags = caller == side ?
						  SCIF_FENCE_INIT_SELF :
						  SCIF_FENCE_INIT_PEER };

	signal.flags |= at == caller ? SCIF_SIGNAL_LOCAL : SCIF_SIGNAL_REMOTE;
	signal.local_value = random_value();
	signal.remote_value = random_value();
	for (i = 0; i < TRIES; i++) {
		signal.local = random_offset(&sides[at], WORD) / HALF * HALF;
		signal.remote = signal.local;
		if (!error_of(caller, &signal))
			return perform(caller, &signal);
	}
	return mark_and_wait(side, SCIF_FENCE_INIT_SELF);
}

bool settle(int side)
{
	switch (below(3)) {
	case 0:
		return mark_and_wait(side, SCIF_FENCE_INIT_SELF);
	case 1:
		return mark_and_wait(!side, SCIF_FENCE_INIT_PEER);
	default:
		return settle_by_signal(side);
	}
}
