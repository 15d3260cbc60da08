// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * All that a peer which lies does to its victim, one after the other; hostile.c is what
 * the victim meets.
 */
#include <scif.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "lies.h"
#include "pattern.h"
#include "tap.h"

enum {
	PAGE = LIAR_PAGE,
	ACTIONS = 60,
	WINDOWS = LIES_WINDOWS,
	CHANGE_MS = 7000,
	ANOTHER_NODE = 998,
};

static struct random_state dice;

static uint32_t odd_number(void)
{
	static const uint32_t odd[] = {
		0,     1,     4095,	  4096,	    4097, 8191,
		65535, 65536, 0x7fffffff, 1U << 31, ~0U,  ~0U - 4095
	};

	return random_below(&dice, 3) ? odd[random_below(&dice, 12)] :
					(uint32_t)random_next(&dice);
}

/* Who says that it is a node with another address is refused. */
static bool is_refused(const char *address)
{
	struct scif_hello hello = { .node = ANOTHER_NODE,
				    .rma_qpn = 0xabcdef,
				    .shared_rkey = 1 };
	struct liar liar;
	bool ok;

	ok = reach(&liar, address) && greet(&liar, &hello, 12) &&
	     wait_event(&liar, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_id(liar.id);
	rdma_destroy_event_channel(liar.channel);
	return ok;
}

static bool lie_in_ring(struct liar *liar)
{
	static const uint16_t words[] = {
		offsetof(struct scif_shared, produced),
		offsetof(struct scif_shared, recent_length),
		offsetof(struct scif_shared, recent_from),
		offsetof(struct scif_shared, consumed),
		offsetof(struct scif_shared, want_data),
		offsetof(struct scif_shared, want_room),
		offsetof(struct scif_shared, dir_gen),
	};
	uint32_t value = odd_number();

	memcpy(liar->said, &value, sizeof(value));
	return post(liar, IBV_WR_RDMA_WRITE, 4, words[random_below(&dice, 7)]);
}

static bool lie_in_message(struct liar *liar)
{
	struct scif_message message = {
		.type = random_below(&dice, 12),
		.tag = random_below(&dice, 4),
		.status = odd_number(),
		.flags = odd_number(),
		.args = { odd_number(), odd_number(), odd_number(),
			  random_next(&dice), odd_number(), odd_number() },
	};

	memcpy(liar->said, &message, sizeof(message));
	return post(liar, IBV_WR_SEND,
		    random_below(&dice, 8) ? sizeof(message) :
					     random_below(&dice, 64),
		    0);
}

static bool lie_in_directory(struct liar *liar)
{
	struct scif_shared *shared = (struct scif_shared *)liar->mem;
	struct scif_dir_entry *entries = (void *)(liar->mem + 2 * PAGE);
	uint32_t gen = odd_number();
	int i;

	for (i = 0; i < 100; i++) {
		entries[i].offset = random_below(&dice, 2) ?
					    (uint64_t)i * PAGE :
					    random_next(&dice);
		entries[i].length = random_below(&dice, 2) ? PAGE :
							     odd_number();
		entries[i].addr = random_next(&dice);
		entries[i].rkey = random_next(&dice);
		entries[i].prot = odd_number();
	}
	shared->dir.count = random_below(&dice, 2) ? 100 : odd_number();
	shared->dir.addr = random_below(&dice, 4) ? (uintptr_t)entries :
						    random_next(&dice);
	shared->dir.rkey = random_below(&dice, 4) ? liar->mr->rkey :
						    odd_number();
	atomic_store(&shared->dir.begin, gen);
	atomic_store(&shared->dir.end, random_below(&dice, 4) ? gen : gen + 1);
	return true;
}

static bool lie_once(struct liar *liar)
{
	switch (random_below(&dice, 3)) {
	case 0:
		return lie_in_ring(liar);
	case 1:
		return random_below(&dice, 8) || lie_in_message(liar);
	default:
		return lie_in_directory(liar);
	}
}

/*
 * A directory that is about to change, which the victim's thread has to look at, by a
 * request.
 */
static bool show_unsteady(struct liar *liar)
{
	struct scif_shared *shared = (struct scif_shared *)liar->mem;
	struct scif_message message = { .type = SCIF_SIGNAL,
					.tag = 1,
					.flags = SCIF_SIGNAL_LOCAL };
	uint32_t gen = 2;

	shared->dir.count = 100;
	shared->dir.addr = (uintptr_t)liar->mem + 2 * PAGE;
	shared->dir.rkey = liar->mr->rkey;
	atomic_store(&shared->dir.begin, gen);
	return check(say_directory(liar, gen), "the directory's number") &&
	       check(say(liar, &message), "a request");
}

/* It stays so until the victim has had enough. */
static bool lie_for_long(struct liar *liar, const char *address)
{
	bool ok;

	if (!connect_liar(liar, address, false))
		return false;
	ok = show_unsteady(liar) &&
	     wait_event(liar, RDMA_CM_EVENT_DISCONNECTED);
	close_liar(liar);
	return ok;
}

/* Has the victim replied to the one request? */
static bool is_answered(struct liar *liar)
{
	const volatile struct scif_message *heard = liar->heard;
	uint64_t end = deadline();
	unsigned int round = 0;

	while ((heard->type != SCIF_REPLY || heard->tag != 1) && now_ms() < end)
		relax(round++);
	return now_ms() < end;
}

/* No lie: it changes all the time, for longer than one that does not may take. */
static bool change_for_long(struct liar *liar, const char *address, int tell)
{
	struct scif_shared *shared;
	uint64_t until;
	bool ok;

	if (!connect_liar(liar, address, false))
		return false;
	shared = (struct scif_shared *)liar->mem;
	ok = show_unsteady(liar);
	for (until = now_ms() + CHANGE_MS; now_ms() < until; sleep_ms(50)) {
		atomic_fetch_add(&shared->dir.begin, 1);
		atomic_store(&shared->dir.end,
			     atomic_load(&shared->dir.begin) - 1);
	}
	shared->dir.count = 0;
	atomic_store(&shared->dir.end, atomic_load(&shared->dir.begin));
	ok = ok && is_answered(liar) &&
	     check(liar->heard->status == ENXIO, "the answer is %d",
		   liar->heard->status);
	ok = write(tell, ok ? "y" : "n", 1) == 1 && ok;
	close_liar(liar);
	return ok;
}

/* The victim's two windows, when they are there. */
static bool find_windows(struct liar *liar, struct scif_dir_entry *entries)
{
	const struct scif_dir_head *head = (void *)liar->said;
	uint64_t end = deadline();

	do {
		if (now_ms() > end ||
		    !post(liar, IBV_WR_RDMA_READ, sizeof(*head),
			  offsetof(struct scif_shared, dir)))
			return false;
	} while (head->count != WINDOWS ||
		 atomic_load(&head->begin) != atomic_load(&head->end));
	if (!post_on(liar, liar->id->qp, IBV_WR_RDMA_READ,
		     WINDOWS * sizeof(*entries), head->addr, head->rkey))
		return false;
	memcpy(entries, liar->said, WINDOWS * sizeof(*entries));
	return true;
}

/* Map a window, as far as the victim knows, which may say that nobody can. */
static bool map_window(struct liar *liar, uint64_t id)
{
	struct scif_message message = { .type = SCIF_MAPPED, .tag = 1 };

	message.args[0] = id;
	return say(liar, &message) && is_answered(liar);
}

/*
 * Hold on to the victim's windows: with the first mapped, or with no answer to
 * SCIF_RELEASE. When the victim has been told by @tell to let the other go, write to
 * that one until it is refused.
 */
static bool hold_on(const char *address, bool maps, int tell)
{
	struct scif_dir_entry windows[WINDOWS] = { 0 };
	uint64_t end;
	struct liar liar;
	bool ok;

	if (!connect_liar(&liar, address, true))
		return false;
	ok = check(find_windows(&liar, windows), "the victim's windows") &&
	     check(!maps || map_window(&liar, windows[0].id), "mapping one") &&
	     check(post_on(&liar, liar.copies, IBV_WR_RDMA_WRITE, 8,
			   windows[1].addr, windows[1].rkey),
		   "writing to the other");
	ok = write(tell, "", 1) == 1 && ok;
	end = deadline();
	while (ok && post_on(&liar, liar.copies, IBV_WR_RDMA_WRITE, 8,
			     windows[1].addr, windows[1].rkey)) {
		ok = check(now_ms() < end, "it is not refused");
		sleep_ms(50);
	}
	close_liar(&liar);
	return write(tell, ok ? "y" : "n", 1) == 1 && ok;
}

/* What one connection may write, the other may not, though it knows the keys. */
static bool is_kept_out(struct liar *one, struct liar *other)
{
	struct scif_dir_entry windows[WINDOWS] = { 0 };

	return check(find_windows(one, windows), "the victim's windows") &&
	       check(!post_on(other, other->copies, IBV_WR_RDMA_WRITE, 8,
			      windows[1].addr, windows[1].rkey),
		     "a window of another connection") &&
	       check(!post_on(other, other->id->qp, IBV_WR_RDMA_WRITE, 4,
			      one->theirs.shared_addr +
				      offsetof(struct scif_shared, want_room),
			      one->theirs.shared_rkey),
		     "messages of another connection") &&
	       check(post_on(one, one->copies, IBV_WR_RDMA_WRITE, 8,
			     windows[1].addr, windows[1].rkey),
		     "its own window");
}

static bool use_others_keys(const char *address, int tell)
{
	struct liar one, other;
	bool ok;

	if (!connect_liar(&one, address, true) ||
	    !connect_liar(&other, address, true))
		return false;
	ok = is_kept_out(&one, &other);
	close_liar(&other);
	close_liar(&one);
	return write(tell, ok ? "y" : "n", 1) == 1 && ok;
}

int lie(const char *address, unsigned int rounds, int tell)
{
	struct liar liar;
	unsigned int i, j;

	random_seed(&dice, 77);
	if (!is_refused(address))
		return 1;
	for (i = 0; i < rounds; i++) {
		/* one that the victim did not wait for */
		if (!connect_liar(&liar, address, false))
			continue;
		for (j = 0; j < ACTIONS && lie_once(&liar); j++)
			;
		close_liar(&liar);
	}
	for (i = 0; i < LIES_UNSTEADY; i++)
		if (!lie_for_long(&liar, address))
			return 1;
	if (!change_for_long(&liar, address, tell))
		return 1;
	if (!hold_on(address, false, tell) || !hold_on(address, true, tell))
		return 1;
	if (!use_others_keys(address, tell) || !accept_strangely(tell))
		return 1;
	for (i = 0; i < LIES_SILENT; i++)
		if (!connect_silent(&liar, address, i))
			return 1;
	for (;;)
		pause();
}
