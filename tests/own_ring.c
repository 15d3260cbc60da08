// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Where a completion queue's own completions wait there is room for so many, whatever
 * the queue itself has room for, and however many threads saw that there was room for
 * one more. A queue of the provider's (own.c), without a device.
 */
#include <stdlib.h>

#include "mic.h"
#include "tap.h"

/* More than there may be of the process's own, and none is the kernel's. */
enum { ENTRIES = 1 << 18 };

static struct mic_cq_ctl ctl;
static struct mic_qp qp = { .doorbell_fd = -1 };

static void queue_open(struct mic_cq *cq, bool ignore_overrun)
{
	memset(cq, 0, sizeof(*cq));
	cq->ignore_overrun = ignore_overrun;
	cq->ring.entries = ENTRIES;
	cq->ring.ctl = &ctl;
	cq->ring.elements = calloc(ENTRIES, sizeof(*cq->ring.elements));
	mic_own_init(&cq->own, true);
	if (!cq->ring.elements || !mic_own_create(cq))
		bail("no memory");
	if (cq->own.mask >= ENTRIES)
		bail("there is room for all");
}

static void queue_close(struct mic_cq *cq)
{
	mic_own_destroy(&cq->own);
	free(cq->ring.elements);
}

static void add(struct mic_cq *cq, uint64_t wr_id)
{
	mic_own_add(cq, &qp, wr_id, MIC_WC_RDMA_WRITE, 8);
}

/* As many as there are slots, and one more. */
static void fill(struct mic_cq *cq)
{
	uint64_t i;

	for (i = 0; i <= cq->own.mask; i++)
		add(cq, i);
	add(cq, i);
}

/* The next @count are those that were added @first and later. */
static bool takes(struct mic_cq *cq, uint64_t first, uint32_t count)
{
	const struct mic_cqe *cqe;
	uint64_t i;

	for (i = first; i < first + count; i++) {
		cqe = mic_own_next(&cq->own, 0);
		if (!check(cqe && cqe->wr_id == i, "number %lu: %lu",
			   (unsigned long)i,
			   cqe ? (unsigned long)cqe->wr_id : 0))
			return false;
	}
	mic_own_publish(&cq->own);
	return true;
}

static bool nothing_is_left(struct mic_cq *cq)
{
	return check(!mic_own_next(&cq->own, 0), "there are more");
}

static bool one_is_lost(void)
{
	struct mic_cq cq;
	bool ok;

	queue_open(&cq, false);
	fill(&cq);
	ok = check(cq.own.lost, "none is lost") &&
	     check(!mic_own_has_room(&cq.own), "there is room") &&
	     takes(&cq, 0, cq.own.mask + 1) && nothing_is_left(&cq);
	add(&cq, 1);
	ok = ok && nothing_is_left(&cq);
	queue_close(&cq);
	return ok;
}

static bool overruns_are_ignored(void)
{
	uint32_t slots;
	struct mic_cq cq;
	bool ok;

	queue_open(&cq, true);
	slots = cq.own.mask + 1;
	fill(&cq);
	ok = check(!cq.own.lost, "it is of no use any more") &&
	     takes(&cq, 0, 1);
	add(&cq, slots);
	ok = ok && takes(&cq, 1, slots) && nothing_is_left(&cq);
	queue_close(&cq);
	return ok;
}

/*
 * What was seen last is 2^32 elements ago but for @ahead, so that it seems to be so many
 * in front. The ring is empty.
 */
static bool is_in_turn(uint32_t ahead)
{
	struct mic_cq cq;
	uint32_t i;
	bool ok;

	queue_open(&cq, false);
	cq.ring.consumer = -ahead;
	ctl.consumer = -ahead;
	/* those from the consumer on are of the time before, when owner was odd */
	for (i = ENTRIES - ahead; i < ENTRIES; i++)
		cq.ring.elements[i].owner = 1;
	add(&cq, 1);
	ok = check(!cq.own.lost, "%u: it is lost", ahead) &&
	     check(mic_own_next(&cq.own, cq.ring.consumer),
		   "%u: it waits for what is not there", ahead);
	queue_close(&cq);
	ctl.consumer = 0;
	return ok;
}

/*
 * The kernel's ring is replaced by one that can't be mapped, just when a request has been
 * executed: its completion comes after all that was in the ring.
 */
static bool comes_after_the_ring(void)
{
	enum { WAITING = 3 };
	struct mic_cq cq;
	uint32_t i;
	bool ok;

	queue_open(&cq, false);
	for (i = 0; i < WAITING; i++)
		cq.ring.elements[i].owner = 1;
	mic_own_leave_ring(&cq);
	memset(cq.ring.elements, 0, WAITING * sizeof(*cq.ring.elements));
	add(&cq, 1);
	ok = check(!mic_own_has_room(&cq.own), "there is room") &&
	     check(!mic_own_next(&cq.own, WAITING - 1), "it comes too early");
	mic_own_rebase(&cq.own, 0);
	ok = ok &&
	     check(!mic_own_next(&cq.own, WAITING - 1),
		   "it comes early then") &&
	     check(mic_own_next(&cq.own, WAITING), "it does not come");
	queue_close(&cq);
	return ok;
}

/* The kernel has lost one. */
static bool ends_with_the_kernels(void)
{
	struct mic_cq cq;
	bool ok;

	queue_open(&cq, false);
	add(&cq, 1);
	ctl.overrun = 1;
	add(&cq, 2);
	ok = takes(&cq, 1, 1) && nothing_is_left(&cq) &&
	     check(!mic_own_has_room(&cq.own), "there is room");
	ctl.overrun = 0;
	queue_close(&cq);
	return ok;
}

int main(void)
{
	tap_ok(one_is_lost(), "the one that has no slot is lost");
	tap_ok(overruns_are_ignored(),
	       "the same where overruns are ignored: then there is room again");
	tap_ok(is_in_turn(1) && is_in_turn(ENTRIES / 2) && is_in_turn(ENTRIES),
	       "after 2^32 elements of the kernel's");
	tap_ok(comes_after_the_ring(), "while the kernel's are not here");
	tap_ok(ends_with_the_kernels(),
	       "none is added once the kernel lost one");
	return tap_end();
}
