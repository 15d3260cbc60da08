// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Messages in quick succession, between two threads of this process, whose
 * connection leads from its node to itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "behaviour.h"
#include "clock.h"
#include "pattern.h"
#include "peer.h"
#include "tap.h"

enum {
	STREAM = 1 << 16,
	LONGEST = 6000,
	MESSAGES = 4,
	HEAT = 200,
	CLOSES = 30,
	SHARED_ROUNDS = 1000,
	WORD = 8
};

struct pair {
	int own;
	int other;
	const uint8_t *stream;
	bool ok;	    /* what the other thread says */
	atomic_uint rounds; /* of ping-pong */
	atomic_bool enough; /* for the other thread */
};

static void *accept_one(void *listener)
{
	struct scif_port_id peer;
	int *epd = listener;

	if (scif_accept(*epd, &peer, epd, SCIF_ACCEPT_SYNC))
		bail("scif_accept: %m");
	return NULL;
}

static void open_pair(struct pair *pair)
{
	struct scif_port_id port = { .node = own_node };
	int listener = scif_open();
	pthread_t thread;

	memset(pair, 0, sizeof(*pair));
	port.port = scif_bind(listener, 0);
	if (scif_listen(listener, 1))
		bail("scif_listen: %m");
	pair->other = listener;
	pthread_create(&thread, NULL, accept_one, &pair->other);
	pair->own = scif_open();
	if (scif_connect(pair->own, &port) < 0)
		bail("scif_connect: %m");
	pthread_join(thread, NULL);
	scif_close(listener);
}

static unsigned int rounds(void)
{
	return getenv("SCIF_TEST_MAPS") ? 10000 : 300;
}

/* The lengths of a round's messages, mostly short ones; how many. */
static unsigned int next_round(struct random_state *dice, uint32_t *lengths)
{
	unsigned int i, count = 1 + random_below(dice, MESSAGES);

	for (i = 0; i < count; i++)
		lengths[i] = 1 + random_below(dice, random_below(dice, 50) ?
							    64 :
							    LONGEST);
	return count;
}

/* It goes on at the end as at its start. */
static const uint8_t *stream(void)
{
	static uint8_t bytes[STREAM + LONGEST];

	memcpy(bytes, pattern_bytes(31, STREAM), STREAM);
	memcpy(bytes + STREAM, bytes, LONGEST);
	return bytes;
}

static bool receive_pieces(struct pair *pair, struct random_state *dice,
			   uint64_t *place, uint32_t length)
{
	uint8_t bytes[LONGEST];
	uint32_t piece;

	for (; length; length -= piece) {
		piece = 1 + random_below(dice,
					 random_below(dice, 2) ? 64 : LONGEST);
		if (piece > length)
			piece = length;
		if (scif_recv(pair->other, bytes, piece, 1) != (int)piece ||
		    memcmp(bytes, pair->stream + *place % STREAM, piece))
			return check(false, "%u bytes at %llu", piece,
				     (unsigned long long)*place);
		*place += piece;
	}
	return true;
}

static void *take_all(void *argument)
{
	struct random_state dice, pieces;
	struct pair *pair = argument;
	uint32_t lengths[MESSAGES], length;
	unsigned int i, j, count;
	uint64_t place = 0;

	random_seed(&dice, 5);
	random_seed(&pieces, 6);
	pair->ok = true;
	for (i = 0; i < rounds() && pair->ok; i++) {
		count = next_round(&dice, lengths);
		for (length = 0, j = 0; j < count; j++)
			length += lengths[j];
		pair->ok = receive_pieces(pair, &pieces, &place, length) &&
			   scif_send(pair->other, &place, WORD, 1) == WORD;
	}
	scif_close(pair->other);
	return NULL;
}

static bool other_pieces(void)
{
	uint32_t lengths[MESSAGES];
	unsigned int i, j, count;
	struct random_state dice;
	uint64_t place = 0, answer;
	struct pair pair;
	pthread_t thread;
	bool ok = true;

	open_pair(&pair);
	pair.stream = stream();
	pthread_create(&thread, NULL, take_all, &pair);
	random_seed(&dice, 5);
	for (i = 0; i < rounds() && ok; i++) {
		count = next_round(&dice, lengths);
		for (j = 0; j < count && ok; j++) {
			ok = scif_send(pair.own,
				       (void *)(pair.stream + place % STREAM),
				       lengths[j], 1) == (int)lengths[j];
			place += lengths[j];
		}
		ok = ok && scif_recv(pair.own, &answer, WORD, 1) == WORD &&
		     answer == place;
	}
	check(ok, "round %u", i);
	scif_close(pair.own);
	pthread_join(thread, NULL);
	return pair.ok && ok;
}

/* Send, with a pause in which the other side begins to wait. */
static void *keep_sending(void *argument)
{
	struct pair *pair = argument;
	uint64_t word = 0;
	unsigned int i;

	while (!atomic_load(&pair->enough) &&
	       scif_send(pair->other, &word, WORD, 1) == WORD)
		for (i = 0; i < 200; i++)
			__asm__ volatile("");
	return NULL;
}

/* What was readable when it was last sent isn't any more. */
static bool unmapped_since(void)
{
	uint8_t *page = fresh_pages(4096);
	uint64_t word, end;
	struct pair pair;
	pthread_t thread;
	unsigned int i;
	bool ok = true;

	open_pair(&pair);
	pthread_create(&thread, NULL, keep_sending, &pair);
	for (i = 0; i < HEAT && ok; i++)
		ok = scif_recv(pair.own, &word, WORD, 1) == WORD &&
		     scif_send(pair.own, page, 1, 1) == 1;
	mprotect(page, 4096, PROT_NONE);
	for (end = now_ms() + 50; ok && now_ms() < end;)
		ok = scif_recv(pair.own, &word, WORD, 1) == WORD;
	/* the library's thread has looked, however late it is, and it is hot again */
	ok = ok && marks_pass(pair.own);
	for (i = 0; i < HEAT && ok; i++)
		ok = scif_recv(pair.own, &word, WORD, 1) == WORD;
	ok = check(ok, "received") &&
	     fails(scif_send(pair.own, page, 1, 1), EFAULT, "send") &&
	     fails(scif_recv(pair.own, page, 1, 1), EFAULT, "recv");
	atomic_store(&pair.enough, true);
	scif_close(pair.own);
	pthread_join(thread, NULL);
	scif_close(pair.other);
	munmap(page, 4096);
	return ok;
}

static void *answer(void *argument)
{
	struct pair *pair = argument;
	uint64_t word;

	while (scif_recv(pair->other, &word, WORD, 1) == WORD &&
	       scif_send(pair->other, &word, WORD, 1) == WORD)
		;
	pair->ok = errno == ECONNRESET;
	scif_close(pair->other);
	return NULL;
}

static void *ask(void *argument)
{
	struct pair *pair = argument;
	uint64_t word = 0;

	while (scif_send(pair->own, &word, WORD, 1) == WORD &&
	       scif_recv(pair->own, &word, WORD, 1) == WORD)
		atomic_fetch_add(&pair->rounds, 1);
	return (void *)(intptr_t)errno;
}

/* The endpoint goes, and the memory that the two store into. */
static bool close_once(unsigned int ms)
{
	uint64_t end = deadline();
	pthread_t asks, answers;
	unsigned int round = 0;
	struct pair pair;
	void *asked;
	bool hot;

	open_pair(&pair);
	pthread_create(&answers, NULL, answer, &pair);
	pthread_create(&asks, NULL, ask, &pair);
	while (atomic_load(&pair.rounds) < HEAT && now_ms() < end)
		relax(round++);
	hot = atomic_load(&pair.rounds) >= HEAT;
	sleep_ms(ms);
	scif_close(pair.own);
	pthread_join(asks, &asked);
	pthread_join(answers, NULL);
	return check(hot, "round %u", atomic_load(&pair.rounds)) &&
	       check((intptr_t)asked == EBADF || (intptr_t)asked == ECONNRESET,
		     "who asks: errno %d", (int)(intptr_t)asked) &&
	       check(pair.ok, "who answers");
}

static bool closed_meanwhile(void)
{
	unsigned int i;

	for (i = 0; i < CLOSES; i++)
		if (!close_once(i % 4))
			return check(false, "after %u times", i);
	return true;
}

/* How often this thread has gone to sleep. */
static long sleeps(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

/* How often one of two that share a processor has to sleep in SHARED_ROUNDS; or -1. */
static long sleeps_on_one(void)
{
	long before, after;
	cpu_set_t all, one;
	struct pair pair;
	pthread_t thread;
	uint64_t word = 0;
	unsigned int i;
	bool ok = true;

	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	open_pair(&pair);
	sched_setaffinity(0, sizeof(one), &one);
	pthread_create(&thread, NULL, answer, &pair);
	before = sleeps();
	for (i = 0; i < SHARED_ROUNDS && ok; i++)
		ok = scif_send(pair.own, &word, WORD, 1) == WORD &&
		     scif_recv(pair.own, &word, WORD, 1) == WORD;
	after = sleeps();
	sched_setaffinity(0, sizeof(all), &all);
	scif_close(pair.own);
	pthread_join(thread, NULL);
	return check(ok, "round %u", i) ? after - before : -1;
}

/*
 * Who waits lets the other one run, rather than spin until it has to sleep; unless a third
 * one wants the processor.
 */
static bool one_processor(void)
{
	long n = SHARED_ROUNDS;
	int i;

	for (i = 0; i < 5 && n >= SHARED_ROUNDS / 2; i++)
		n = sleeps_on_one();
	return n >= 0 && check(n < SHARED_ROUNDS / 2, "%ld sleeps in %d rounds",
			       n, SHARED_ROUNDS);
}

const struct behaviour mapped_hot_cases[] = {
	{ 27, "in quick succession, on one processor", one_processor },
	{ 0, NULL, NULL }
};

const struct behaviour hot_cases[] = {
	{ 27, "in quick succession, received in other pieces", other_pieces },
	{ 28, "in quick succession, then memory that has gone: EFAULT",
	  unmapped_since },
	{ 28, "in quick succession, closed by another thread",
	  closed_meanwhile },
	{ 0, NULL, NULL }
};
