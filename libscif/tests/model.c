// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Random calls on both sides of a connection, compared with a simple model of
 * what each has to return and of what the memory has to contain. Each seed has a
 * process of its own, and ends by closing, or by the death of the peer.
 * usage: scif_model NODES OWN PEER SEEDS [STEPS]
 *   SEEDS  how many, or a number of minutes as in 30m
 *   MIC_TEST_SEED is the first seed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "model.h"
#include "pattern.h"
#include "tap.h"

enum { STEPS = 2000, CLEAR = 4 * PAGE };

struct side sides[2];
struct peer_call call;
static struct random_state dice;
static uint8_t *arena;

uint32_t below(uint32_t limit)
{
	return random_below(&dice, limit);
}

uint32_t random_word(void)
{
	return random_next(&dice);
}

int64_t on(int side)
{
	call.epd = sides[side].epd;
	if (side)
		return peer_do(&call);
	errno = 0;
	call.ret = peer_perform(&call, arena);
	call.error = errno;
	return call.ret;
}

bool expect(int64_t ret, int error, const char *what)
{
	return check(call.ret == ret && (ret != -1 || call.error == error),
		     "%s returned %lld, errno %s; the model says %lld, %s",
		     what, (long long)call.ret, strerrorname_np(call.error),
		     (long long)ret, strerrorname_np(error));
}

void clear(enum peer_op op)
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
		call.data[i] = random_word();
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

typedef bool (*step_function)(int side);

static const step_function steps[] = {
	do_send,     do_recv,	  do_recv,	 do_poll,   do_register,
	do_register, do_register, do_unregister, do_copy,   do_copy,
	do_copy,     do_copy,	  do_copies,	 do_copies, do_poke,
	do_peek,     do_fence,	  do_signal,	 do_map,    do_touch,
	do_touch,    do_unmap,
};

static void begin(void)
{
	unsigned int place;

	peer_start();
	arena = fresh_pages(PEER_ARENA);
	connect_pair(&sides[0].epd, &sides[1].epd);
	for (place = 0; place < ARENA * PAGE; place += CLEAR) {
		clear(PEER_POKE);
		memset(call.data, 0, CLEAR);
		call.local = place;
		call.length = CLEAR;
		on(1);
	}
}

static bool run_seed(unsigned int seed, unsigned int count)
{
	unsigned int i;
	bool ok = true;

	random_seed(&dice, seed);
	begin();
	for (i = 0; i < count && ok; i++)
		ok = steps[below(sizeof(steps) / sizeof(steps[0]))](below(2));
	ok = check(ok, "step %u of seed %u", i, seed) && memory_agrees(0) &&
	     memory_agrees(1);
	if (below(2)) {
		ok = do_death() && ok;
	} else {
		close_pair(sides[0].epd, sides[1].epd);
		ok = ok && end_maps(0, true) && end_maps(1, true);
	}
	peer_end();
	return ok;
}

/* The library is not for the children of those who used it. */
static bool run_child(unsigned int seed, unsigned int count)
{
	pid_t child;
	int status;

	fflush(stdout);
	child = fork();
	if (child < 0)
		bail("fork: %s", strerror(errno));
	if (!child)
		exit(!run_seed(seed, count));
	waitpid(child, &status, 0);
	return check(WIFEXITED(status) && !WEXITSTATUS(status),
		     "seed %u ends with 0x%x", seed, status);
}

static void run_minutes(unsigned int minutes, unsigned int seed,
			unsigned int count)
{
	uint64_t end = now_ms() + minutes * 60000ULL;
	unsigned int first = seed;
	bool ok = true;

	while (ok && now_ms() < end)
		ok = run_child(seed++, count);
	tap_ok(ok, "seeds %u to %u, %u steps each", first, seed - 1, count);
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
	if (strchr(argv[4], 'm'))
		run_minutes(seeds, seed, count);
	for (i = 0; i < seeds && !strchr(argv[4], 'm'); i++)
		tap_ok(run_child(seed + i, count), "seed %u, %u steps",
		       seed + i, count);
	return tap_end();
}
