// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Random calls on both sides of a connection, compared with a simple model of
 * what each has to return and of what the memory has to contain.
 * usage: scif_model NODES OWN PEER SEEDS [STEPS]
 *   MIC_TEST_SEED is the first seed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "pattern.h"
#include "peer.h"
#include "tap.h"

enum {
	PAGE = 4096,
	RING = 4095,
	SPACE = 48,
	ARENA = 32,
	WINDOWS = SPACE,
	STEPS = 2000,
	FIXED = SCIF_MAP_FIXED
};

struct window {
	unsigned int page, pages, place; /* @place in the arena, in pages */
	int prot;
};

/* One side as it should be. */
struct side {
	int epd;
	struct window windows[WINDOWS];
	unsigned int count;
	uint8_t memory[ARENA * PAGE];
	uint8_t queue[RING]; /* on its way to this side */
	unsigned int queued;
};

static struct side sides[2];
static struct random_state dice;
static uint8_t *arena;
static struct peer_call call;

static uint32_t below(uint32_t limit)
{
	return random_below(&dice, limit);
}

/* The call on side 0, which is this process, or 1, the peer. */
static int64_t on(int side)
{
	call.epd = sides[side].epd;
	if (side)
		return peer_do(&call);
	errno = 0;
	call.ret = peer_perform(&call, arena);
	call.error = errno;
	return call.ret;
}

static bool expect(int64_t ret, int error, const char *what)
{
	return check(call.ret == ret && (ret != -1 || call.error == error),
		     "%s returned %lld, errno %s; the model says %lld, %s",
		     what, (long long)call.ret, strerrorname_np(call.error),
		     (long long)ret, strerrorname_np(error));
}

static void clear(enum peer_op op)
{
	memset(&call, 0, offsetof(struct peer_call, data));
	call.op = op;
}

static bool do_send(int side)
{
	struct side *to = &sides[!side];
	unsigned int length = 1 + below(below(2) ? 100 : 6000), fits, i;

	clear(PEER_SEND);
	call.length = length;
	for (i = 0; i < length; i++)
		call.data[i] = random_next(&dice);
	fits = RING - to->queued < length ? RING - to->queued : length;
	memcpy(to->queue + to->queued, call.data, fits);
	to->queued += fits;
	on(side);
	return expect(fits, 0, "send");
}

static bool do_recv(int side)
{
	struct side *to = &sides[side];
	unsigned int length = 1 + below(below(2) ? 100 : 6000);
	unsigned int there = to->queued < length ? to->queued : length;
	bool ok;

	clear(PEER_RECV);
	call.length = length;
	/* Blocking, where it cannot block. */
	call.flags = there == length && below(2);
	on(side);
	ok = expect(there, 0, "recv") &&
	     check(!memcmp(call.data, to->queue, there), "received bytes");
	to->queued -= there;
	memmove(to->queue, to->queue + there, to->queued);
	return ok;
}

static bool do_poll(int side)
{
	int expected = 0;

	if (sides[side].queued)
		expected |= POLLIN;
	if (sides[!side].queued < RING)
		expected |= POLLOUT;
	clear(PEER_POLL);
	call.flags = POLLIN | POLLOUT;
	on(side);
	return check(call.flags == expected, "poll 0x%x, the model says 0x%x",
		     call.flags, expected);
}

static const struct window *window_at(const struct side *side,
				      unsigned int page)
{
	unsigned int i;

	for (i = 0; i < side->count; i++)
		if (page >= side->windows[i].page &&
		    page < side->windows[i].page + side->windows[i].pages)
			return &side->windows[i];
	return NULL;
}

static bool do_register(int side)
{
	struct side *self = &sides[side];
	struct window window = { .prot = below(8) ? 3 : below(4) };
	unsigned int i;
	bool taken = false;

	window.pages = 1 + below(6);
	window.page = below(SPACE - window.pages + 1);
	window.place = below(ARENA - window.pages + 1);
	for (i = 0; i < window.pages; i++)
		taken = taken || window_at(self, window.page + i);
	clear(PEER_REGISTER);
	call.local = window.place * PAGE;
	call.length = window.pages * PAGE;
	call.remote = window.page * PAGE;
	call.prot = window.prot;
	call.flags = FIXED;
	on(side);
	if (taken)
		return expect(-1, EADDRINUSE, "register");
	self->windows[self->count++] = window;
	return expect(window.page * PAGE, 0, "register");
}

static bool do_unregister(int side)
{
	struct side *self = &sides[side];
	unsigned int page = below(SPACE), pages = 1 + below(SPACE - page), i;
	const struct window *one;
	bool hole = false, cut = false;

	if (self->count && below(2)) {
		one = &self->windows[below(self->count)];
		page = one->page;
		pages = one->pages;
	}
	for (i = 0; i < pages; i++)
		hole = hole || !window_at(self, page + i);
	for (i = 0; i < self->count; i++) {
		one = &self->windows[i];
		if (one->page < page + pages && page < one->page + one->pages)
			cut = cut || one->page < page ||
			      one->page + one->pages > page + pages;
	}
	clear(PEER_UNREGISTER);
	call.remote = page * PAGE;
	call.length = pages * PAGE;
	on(side);
	if (cut || hole)
		return expect(-1, cut ? EINVAL : ENXIO, "unregister");
	for (i = 0; i < self->count;) {
		one = &self->windows[i];
		if (one->page >= page && one->page < page + pages)
			self->windows[i] = self->windows[--self->count];
		else
			i++;
	}
	return expect(0, 0, "unregister");
}

/* 0, ENXIO or EACCES. */
static int check_range(const struct side *side, unsigned int from,
		       unsigned int length, int prot)
{
	const struct window *window;
	bool denied = false;
	unsigned int page;

	for (page = from / PAGE; page <= (from + length - 1) / PAGE; page++) {
		window = window_at(side, page);
		if (!window)
			return ENXIO;
		denied = denied || !(window->prot & prot);
	}
	return denied ? EACCES : 0;
}

static uint8_t *byte_at(struct side *side, unsigned int offset)
{
	const struct window *window = window_at(side, offset / PAGE);

	return &side->memory[(window->place + offset / PAGE - window->page) *
				     PAGE +
			     offset % PAGE];
}

/* Do the two ranges share memory? Then the order of bytes is anybody's. */
static bool is_simple(struct side *side, unsigned int from, unsigned int length)
{
	unsigned int i, j;

	for (i = 0; i < length; i += PAGE)
		for (j = 0; j < i; j += PAGE)
			if (labs((long)(byte_at(side, from + i) -
					byte_at(side, from + j))) < PAGE)
				return false;
	return true;
}

static bool do_copy(int side)
{
	struct side *self = &sides[side], *other = &sides[!side];
	unsigned int length = 1 + below(below(2) ? 200 : 5 * PAGE), i;
	unsigned int local = below(SPACE * PAGE - length);
	unsigned int remote = below(SPACE * PAGE - length);
	bool reads = below(2);
	int error;

	error = check_range(self, local, length, reads ? 2 : 1);
	if (!error)
		error = check_range(other, remote, length, reads ? 1 : 2);
	if (!error &&
	    !is_simple(reads ? self : other, reads ? local : remote, length))
		return true;
	clear(reads ? PEER_READFROM : PEER_WRITETO);
	call.local = local;
	call.remote = remote;
	call.length = length;
	call.flags = SCIF_RMA_SYNC | (below(2) ? SCIF_RMA_ORDERED : 0);
	for (i = 0; i < length && !error && reads; i++)
		*byte_at(self, local + i) = *byte_at(other, remote + i);
	for (i = 0; i < length && !error && !reads; i++)
		*byte_at(other, remote + i) = *byte_at(self, local + i);
	on(side);
	return expect(error ? -1 : 0, error, reads ? "readfrom" : "writeto");
}

static bool do_poke(int side)
{
	unsigned int length = 1 + below(2000);
	unsigned int place = below(ARENA * PAGE - length), i;

	clear(PEER_POKE);
	call.local = place;
	call.length = length;
	for (i = 0; i < length; i++)
		call.data[i] = random_next(&dice);
	memcpy(sides[side].memory + place, call.data, length);
	on(side);
	return true;
}

static bool do_peek(int side)
{
	unsigned int place = below(ARENA) * PAGE;

	clear(PEER_PEEK);
	call.local = place;
	call.length = PAGE;
	on(side);
	return check(!memcmp(call.data, sides[side].memory + place, PAGE),
		     "memory of side %d at 0x%x", side, place);
}

static bool do_fence(int side)
{
	bool ok;

	clear(PEER_FENCE_MARK);
	call.flags = below(2) ? SCIF_FENCE_INIT_SELF : SCIF_FENCE_INIT_PEER;
	on(side);
	ok = check(call.ret > 0, "mark %lld", (long long)call.ret);
	call.op = PEER_FENCE_WAIT;
	call.flags = call.ret;
	on(side);
	return ok && expect(0, 0, "fence_wait");
}

typedef bool (*step_function)(int side);

static const step_function steps[] = {
	do_send,     do_recv,	    do_recv, do_poll,  do_register,
	do_register, do_unregister, do_copy, do_copy,  do_copy,
	do_copy,     do_poke,	    do_peek, do_fence,
};

static bool run_seed(unsigned int seed, unsigned int count)
{
	unsigned int i;
	bool ok = true;

	random_seed(&dice, seed);
	memset(sides, 0, sizeof(sides));
	connect_pair(&sides[0].epd, &sides[1].epd);
	memset(arena, 0, ARENA * PAGE);
	clear(PEER_POKE);
	for (i = 0; i < ARENA; i++) {
		memset(call.data, 0, PAGE);
		call.local = i * PAGE;
		call.length = PAGE;
		on(1);
	}
	for (i = 0; i < count && ok; i++)
		ok = steps[below(sizeof(steps) / sizeof(steps[0]))](below(2));
	close_pair(sides[0].epd, sides[1].epd);
	return check(ok, "step %u of seed %u", i, seed);
}

int main(int argc, char **argv)
{
	const char *first = getenv("MIC_TEST_SEED");
	unsigned int seed = first ? atoi(first) : 1, i, seeds, count;

	if (argc < 5)
		bail("usage: %s NODES OWN PEER SEEDS [STEPS]", argv[0]);
	setenv("SCIF_NODES", argv[1], 1);
	setenv("SCIF_NODE", argv[2], 1);
	own_node = atoi(argv[2]);
	peer_node = atoi(argv[3]);
	seeds = atoi(argv[4]);
	count = argc > 5 ? atoi(argv[5]) : STEPS;
	peer_start();
	arena = fresh_pages(PEER_ARENA);
	for (i = 0; i < seeds; i++)
		tap_ok(run_seed(seed + i, count), "seed %u, %u steps", seed + i,
		       count);
	peer_end();
	return tap_end();
}
