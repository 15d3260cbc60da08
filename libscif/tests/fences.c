// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Fences.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "../src/marks.h"
#include "behaviour.h"
#include "clock.h"
#include "peer.h"
#include "tap.h"

enum {
	PAGE = 4096,
	BYTES = COUPLE_BYTES,
	RW = SCIF_PROT_READ | SCIF_PROT_WRITE,
	FIXED = SCIF_MAP_FIXED,
	SELF = SCIF_FENCE_INIT_SELF,
	PEER = SCIF_FENCE_INIT_PEER,
	LOCAL = SCIF_SIGNAL_LOCAL,
	REMOTE = SCIF_SIGNAL_REMOTE
};

static bool peer_becomes(int64_t place, uint64_t value, const char *what)
{
	uint64_t limit = deadline(), word = 0;
	unsigned int round = 0;

	do {
		peer_peek(place, &word, sizeof(word));
		relax(round++);
	} while (word != value && now_ms() < limit);
	return check(word == value, "%s: 0x%llx, expected 0x%llx", what,
		     (unsigned long long)word, (unsigned long long)value);
}

static bool arguments(void)
{
	struct couple couple = couple_begin();
	int epd = scif_open(), mark, own = couple.own;
	bool ok;

	ok = fails(scif_fence_mark(epd, 0, &mark), ENOTCONN, "mark, state") &&
	     fails(scif_fence_signal(epd, 1, 0, 1, 0, 0), ENOTCONN,
		   "signal, state") &&
	     fails(scif_fence_mark(own, 0, &mark), EINVAL, "mark, none") &&
	     fails(scif_fence_mark(own, SELF | PEER, &mark), EINVAL, "both") &&
	     fails(scif_fence_mark(own, SELF | LOCAL, &mark), EINVAL, "more") &&
	     fails(scif_fence_mark(epd, SELF, NULL), ENOTCONN, "state, NULL") &&
	     fails(scif_fence_mark(own, SELF, NULL), EINVAL, "NULL") &&
	     fails(scif_fence_mark(own, PEER, NULL), EINVAL, "NULL, peer's") &&
	     fails(scif_fence_signal(own, 0, 0, 0, 0, LOCAL), EINVAL,
		   "signal, no INIT") &&
	     fails(scif_fence_signal(own, 0, 0, 0, 0, SELF | PEER | LOCAL),
		   EINVAL, "signal, both INIT") &&
	     fails(scif_fence_signal(own, 0, 0, 0, 0, SELF), EINVAL,
		   "signal, no SIGNAL") &&
	     fails(scif_fence_signal(own, 2, 0, 0, 0, SELF | LOCAL), EINVAL,
		   "local unaligned") &&
	     fails(scif_fence_signal(own, 0, 0, 6, 0, SELF | REMOTE), EINVAL,
		   "remote unaligned") &&
	     fails(scif_fence_signal(own, 0, 0, 0, 0, SELF | LOCAL | 0x100),
		   EINVAL, "unknown") &&
	     succeeds(scif_fence_signal(own, 4, 1, 7, 2, SELF | LOCAL), 0,
		      "what is not asked for is not looked at");
	scif_close(epd);
	couple_end(&couple);
	return ok;
}

static bool signal_windows(void)
{
	uint8_t *mem = fresh_pages(PAGE);
	struct couple couple = couple_begin();
	int own = couple.own;
	off_t r = 2 * BYTES;
	bool ok;

	scif_register(own, mem, PAGE, r, SCIF_PROT_READ, FIXED);
	peer_register(couple.other, 0, PAGE, r, SCIF_PROT_READ, FIXED);
	ok = fails(scif_fence_signal(own, BYTES, 1, 0, 1, SELF | LOCAL), ENXIO,
		   "local") &&
	     fails(scif_fence_signal(own, BYTES - 4, 1, 0, 1, SELF | LOCAL),
		   ENXIO, "8 bytes, not 4") &&
	     fails(scif_fence_signal(own, 0, 1, BYTES, 1, SELF | REMOTE), ENXIO,
		   "remote") &&
	     fails(scif_fence_signal(own, r, 1, 0, 1, SELF | LOCAL), EACCES,
		   "local, read-only") &&
	     fails(scif_fence_signal(own, 0, 1, r, 1, SELF | REMOTE), EACCES,
		   "remote, read-only") &&
	     fails(scif_fence_signal(own, BYTES, 1, 0, 1, PEER | LOCAL), ENXIO,
		   "local, by the peer") &&
	     fails(scif_fence_signal(own, 0, 1, r, 1, PEER | REMOTE), EACCES,
		   "remote, by the peer");
	couple_end(&couple);
	munmap(mem, PAGE);
	return ok;
}

/* The values come, at 4-byte places too. */
static bool values_come(struct couple *couple, int who)
{
	uint8_t *word = couple->mem + 16, *odd = couple->mem + 36;
	int own = couple->own, i;
	bool ok = true;

	for (i = 1; i <= 150 && ok; i++)
		ok = succeeds(scif_fence_signal(own, 16, i, 32,
						0x1122334455667700 + i,
						who | LOCAL | REMOTE),
			      0, "signal");
	return becomes_word(word, 150, "local") &&
	       peer_becomes(32, 0x1122334455667700 + 150, "remote") &&
	       succeeds(scif_fence_signal(own, 36, 5ULL << 40, 44, 6ULL << 40,
					  who | LOCAL | REMOTE),
			0, "odd places") &&
	       becomes_word(odd, 5ULL << 40, "local") &&
	       peer_becomes(44, 6ULL << 40, "remote") && ok;
}

enum { BEGUN = 4, PART = 65536, LONG = BYTES - 2 * PART };

/* From the peer's side to this one, where it is seen without delay. */
static int64_t begin_copy(struct couple *couple, int who, uint64_t at,
			  uint64_t length)
{
	struct peer_call call = { .op = PEER_WRITETO,
				  .epd = couple->other,
				  .length = length,
				  .local = at,
				  .remote = at };

	return who == SELF ? scif_readfrom(couple->own, at, length, at, 0) :
			     peer_do(&call);
}

/* So many that the last one, of the last part, is not there by itself. */
static bool begin_copies(struct couple *couple, int who, int value)
{
	bool ok;
	int i;

	memset(couple->mem + PART, value, BYTES - PART);
	ok = succeeds(scif_writeto(couple->own, PART, BYTES - PART, PART,
				   SCIF_RMA_SYNC),
		      0, "what there is to copy");
	memset(couple->mem + PART, 0, BYTES - PART);
	for (i = 0; i < BEGUN && ok; i++)
		ok = succeeds(begin_copy(couple, who, PART, LONG), 0, "copy");
	return ok && succeeds(begin_copy(couple, who, PART + LONG, PART), 0,
			      "the last copy");
}

static bool copies_came(const struct couple *couple, int value)
{
	uint64_t last;

	memcpy(&last, couple->mem + BYTES - sizeof(last), sizeof(last));
	return check(last == value * 0x0101010101010101ULL,
		     "round %d: the last bytes are 0x%llx", value,
		     (unsigned long long)last);
}

static bool signal_values(int who)
{
	struct couple couple = couple_begin();
	uint8_t *word = couple.mem + 16;
	bool ok = values_come(&couple, who);
	int i;

	for (i = 1; i <= 5 && ok; i++) {
		memset(word, 0, 8);
		ok = begin_copies(&couple, who, i) &&
		     succeeds(scif_fence_signal(couple.own, 16, i, 0, 0,
						who | LOCAL),
			      0, "signal") &&
		     becomes_word(word, i, "behind a copy") &&
		     copies_came(&couple, i);
	}
	couple_end(&couple);
	return ok;
}

struct signaller {
	int epd;
	int number;
	bool ok;
	pthread_t thread;
};

static void *signal_once(void *argument)
{
	struct signaller *self = argument;
	const int number = self->number;

	self->ok =
		succeeds(scif_fence_signal(self->epd, 8 * number, 1000 + number,
					   8 * number, 2000 + number,
					   number % 2 ? SELF | REMOTE :
							SELF | LOCAL | REMOTE),
			 0, "signal");
	return NULL;
}

/*
 * More signals than the queue has room for, each to a place of its own, while
 * long copies keep them waiting: none may get the value of another.
 */
static bool signal_places(void)
{
	enum { PLACES = 100, COPIES = 64, LENGTH = BYTES - PAGE };
	struct couple couple = couple_begin();
	struct signaller signallers[PLACES];
	uint64_t remote[PLACES], local[PLACES];
	bool ok = true;
	int i, mark;

	for (i = 0; i < COPIES && ok; i++)
		ok = succeeds(scif_writeto(couple.own, PAGE, LENGTH, PAGE, 0),
			      0, "copy");
	for (i = 0; i < PLACES; i++) {
		signallers[i].epd = couple.own;
		signallers[i].number = i;
		pthread_create(&signallers[i].thread, NULL, signal_once,
			       &signallers[i]);
	}
	for (i = 0; i < PLACES; i++) {
		pthread_join(signallers[i].thread, NULL);
		ok = ok && signallers[i].ok;
	}
	ok = ok &&
	     succeeds(scif_fence_mark(couple.own, SELF, &mark), 0, "mark") &&
	     succeeds(scif_fence_wait(couple.own, mark), 0, "wait");
	peer_peek(0, remote, sizeof(remote));
	memcpy(local, couple.mem, sizeof(local));
	for (i = 0; i < PLACES && ok; i++)
		ok = check(remote[i] == 2000u + i, "remote %d is %llu", i,
			   (unsigned long long)remote[i]) &&
		     check(local[i] == (i % 2 ? 0 : 1000u + i),
			   "local %d is %llu", i, (unsigned long long)local[i]);
	couple_end(&couple);
	return ok;
}

static bool signal_self(void)
{
	return signal_values(SELF);
}

static bool signal_peer(void)
{
	return signal_values(PEER);
}

/* The copies of either side are done when the mark is. */
static bool marks(int who)
{
	struct couple couple = couple_begin();
	bool ok = true;
	int i, mark;

	for (i = 1; i <= 5 && ok; i++)
		ok = begin_copies(&couple, who, i) &&
		     succeeds(scif_fence_mark(couple.own, who, &mark), 0,
			      "mark") &&
		     succeeds(scif_fence_wait(couple.own, mark), 0, "wait") &&
		     copies_came(&couple, i);
	couple_end(&couple);
	return ok;
}

static bool own_marks(void)
{
	return marks(SELF);
}

static bool peer_marks(void)
{
	return marks(PEER);
}

static bool unknown_marks(void)
{
	struct couple couple = couple_begin();
	int own = couple.own, mark, peer_mark;
	bool ok;

	scif_writeto(own, 0, 8, 0, 0);
	scif_fence_mark(own, SELF, &mark);
	scif_fence_mark(own, PEER, &peer_mark);
	ok = fails(scif_fence_wait(own, -1), EINVAL, "-1") &&
	     fails(scif_fence_wait(own, 0), EINVAL, "0") &&
	     fails(scif_fence_wait(own, mark + 1), EINVAL, "the next") &&
	     fails(scif_fence_wait(own, peer_mark + 1), EINVAL, "peer's") &&
	     fails(scif_fence_wait(own, INT_MAX), EINVAL, "INT_MAX") &&
	     succeeds(scif_fence_wait(own, mark), 0, "known") &&
	     succeeds(scif_fence_wait(own, mark), 0, "known, again") &&
	     succeeds(scif_fence_wait(own, peer_mark), 0, "known, peer's");
	couple_end(&couple);
	return ok;
}

static bool means(int mark, uint64_t most, uint64_t expected)
{
	uint64_t posted = 0;

	return check(scif_from_mark(mark, most, &posted), "0x%x is no mark",
		     mark) &&
	       check(posted == expected, "0x%x is %llu, not %llu", mark,
		     (unsigned long long)posted, (unsigned long long)expected);
}

/* There are too many requests between to make them. */
static bool old_marks(void)
{
	const uint64_t much = 1ULL << 29, all = 1ULL << 30;
	uint64_t posted;

	return means(scif_to_mark(5, 0), 5, 5) &&
	       means(scif_to_mark(5, 0), much + 5, 5) &&
	       means(scif_to_mark(5, 0), much + 6, 5) &&
	       means(scif_to_mark(5, 0), all - 2, 5) &&
	       means(scif_to_mark(5, 0), all + 4, 5) &&
	       means(scif_to_mark(all + 5, 0), 2 * all + 4, all + 5) &&
	       check(!scif_from_mark(scif_to_mark(7, 0), 6, &posted),
		     "one that is not yet") &&
	       check(!scif_from_mark(scif_to_mark(much + 7, 0), much + 6,
				     &posted),
		     "one that is not yet, later");
}

const struct behaviour fence_cases[] = {
	{ 50, "flags and alignment: EINVAL after the state", arguments },
	{ 51, "signals need a window to write", signal_windows },
	{ 51, "signals behind one's own copies", signal_self },
	{ 51, "signals behind the peer's copies", signal_peer },
	{ 51, "more signals than the queue is long", signal_places },
	{ 52, "marks of one's own copies", own_marks },
	{ 52, "marks of the peer's copies", peer_marks },
	{ 53, "unknown marks: EINVAL", unknown_marks },
	{ 53, "old marks: they are done", old_marks },
	{ 0, NULL, NULL }
};
