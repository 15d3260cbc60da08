// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * What ends while copies of other threads are under way.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "behaviour.h"
#include "clock.h"
#include "peer.h"
#include "tap.h"

enum {
	PAGE = 4096,
	PARTS = 8,
	PART = PEER_ARENA,
	LOOKS = 128,
	BEFORE = 0x11,
	AFTER = 0x22,
	COPIES = 8,
	READERS = 8,
	READ = COUPLE_BYTES / READERS,
	RW = SCIF_PROT_READ | SCIF_PROT_WRITE,
	FIXED = SCIF_MAP_FIXED
};

struct copying {
	int epd;
	int other;
	uint8_t *mem; /* of a window at 0, with BEFORE in all bytes */
	volatile uint8_t *there; /* the peer's first page */
	pthread_t thread;
	int ret;
	int error;
};

static void *copy_all(void *argument)
{
	struct copying *copying = argument;

	copying->ret = scif_writeto(copying->epd, 0, (size_t)PARTS * PART, 0,
				    SCIF_RMA_SYNC);
	copying->error = errno;
	return NULL;
}

/* A thread copies much, part by part, all of them to the same memory of the peer. */
static bool begin_to_copy(struct copying *copying)
{
	const size_t length = (size_t)PARTS * PART;
	uint64_t limit = deadline();
	uint8_t none = 0;
	bool ok = true;
	off_t i;

	connect_pair(&copying->epd, &copying->other);
	peer_poke(0, &none, 1);
	for (i = 0; i < PARTS && ok; i++)
		ok = succeeds(peer_register(copying->other, 0, PART, i * PART,
					    RW, FIXED),
			      i * PART, "the peer's register");
	copying->mem = fresh_pages(length);
	memset(copying->mem, BEFORE, length);
	ok = ok && succeeds(scif_register(copying->epd, copying->mem, length, 0,
					  RW, FIXED),
			    0, "register");
	copying->there = scif_mmap(NULL, PAGE, SCIF_PROT_READ, 0, copying->epd,
				   0);
	if (!ok || !check(copying->there != SCIF_MMAP_FAILED, "mmap: %s",
			  strerror(errno)))
		return false;
	pthread_create(&copying->thread, NULL, copy_all, copying);
	while (*copying->there != BEFORE && now_ms() < limit)
		;
	return true;
}

/* What is done with the memory now, no copy of the process itself sees. */
static bool is_over(struct copying *copying)
{
	uint8_t found;
	bool ok = true;
	int i;

	memset(copying->mem + (size_t)(PARTS - 1) * PART, AFTER, PART);
	pthread_join(copying->thread, NULL);
	for (i = 0; i < LOOKS && ok; i++) {
		peer_peek(i * (PART / LOOKS), &found, 1);
		ok = check(found == BEFORE || !found,
			   "at %d the peer has what came after",
			   i * (PART / LOOKS));
	}
	scif_munmap((void *)copying->there, PAGE);
	munmap(copying->mem, (size_t)PARTS * PART);
	return ok;
}

static bool unregister_copied(void)
{
	struct copying copying = { .ret = -1 };
	bool ok;

	if (!begin_to_copy(&copying))
		return false;
	ok = succeeds(scif_unregister(copying.epd, 0, (size_t)PARTS * PART), 0,
		      "unregister");
	ok = is_over(&copying) && ok;
	errno = copying.error;
	ok = succeeds(copying.ret, 0, "the copy") && ok;
	close_pair(copying.epd, copying.other);
	return ok;
}

static bool close_copied(void)
{
	struct copying copying = { .ret = -1 };
	bool ok;

	if (!begin_to_copy(&copying))
		return false;
	ok = succeeds(scif_close(copying.epd), 0, "close");
	ok = is_over(&copying) && ok;
	peer_op_epd(PEER_CLOSE, copying.other);
	return ok;
}

/* A thread that copies, or waits for its copies, until the peer is gone. */
struct waiter {
	struct couple couple;
	int (*wait)(int epd);
	pthread_t thread;
	int error;
};

static int wait_in_copy(int epd)
{
	return scif_writeto(epd, 0, COUPLE_BYTES, 0, SCIF_RMA_SYNC);
}

static int wait_in_read(int epd)
{
	return scif_readfrom(epd, 0, COUPLE_BYTES, 0, SCIF_RMA_SYNC);
}

static int wait_in_fence(int epd)
{
	int i, mark, ret = 0;

	for (i = 0; i < COPIES && !ret; i++)
		ret = scif_writeto(epd, 0, COUPLE_BYTES, 0, 0);
	if (!ret)
		ret = scif_fence_mark(epd, SCIF_FENCE_INIT_SELF, &mark);
	return ret ? ret : scif_fence_wait(epd, mark);
}

static void *wait_on(void *argument)
{
	struct waiter *waiter = argument;

	while (!waiter->wait(waiter->couple.own))
		;
	waiter->error = errno;
	return NULL;
}

/* False if it hangs. */
static bool joins(pthread_t thread)
{
	struct timespec limit;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 30L * slowness();
	return check(!pthread_timedjoin_np(thread, NULL, &limit),
		     "a call does not end");
}

static bool kill_under_copies(bool stops)
{
	static int (*const waits[])(int epd) = { wait_in_copy, wait_in_read,
						 wait_in_fence };
	enum { WAITERS = sizeof(waits) / sizeof(waits[0]) };
	struct waiter waiters[WAITERS];
	bool ok = true;
	int i;

	for (i = 0; i < WAITERS; i++) {
		waiters[i].couple = couple_begin();
		waiters[i].wait = waits[i];
	}
	if (stops)
		peer_stop();
	for (i = 0; i < WAITERS; i++)
		pthread_create(&waiters[i].thread, NULL, wait_on, &waiters[i]);
	sleep_ms(300);
	peer_kill();
	for (i = 0; i < WAITERS; i++) {
		if (!joins(waiters[i].thread))
			return false;
		ok = check(waiters[i].error == ECONNRESET, "call %d: %s", i,
			   strerrorname_np(waiters[i].error)) &&
		     ok;
		scif_close(waiters[i].couple.own);
		munmap(waiters[i].couple.mem, COUPLE_BYTES);
	}
	return ok;
}

/* A thread of several that read over one connection, each a part of the window. */
struct reader {
	const struct couple *couple;
	unsigned int part;
	pthread_t thread;
	bool ok;
};

static void *read_on(void *argument)
{
	struct reader *reader = argument;
	off_t at = (off_t)reader->part * READ;
	uint8_t *mem = reader->couple->mem + at;

	do {
		memset(mem, 0, READ);
		reader->ok = !scif_readfrom(reader->couple->own, at, READ, at,
					    SCIF_RMA_SYNC);
	} while (reader->ok && mem[0] == BEFORE && mem[READ - 1] == BEFORE);
	/* the last one failed, or has read what is not there */
	reader->ok = !reader->ok && errno == ECONNRESET;
	return NULL;
}

/* Who takes another one's completion does not make him believe that he has read. */
static bool kill_under_reads(void)
{
	struct reader readers[READERS];
	struct couple couple = couple_begin();
	bool ok;
	int i;

	memset(couple.mem, BEFORE, COUPLE_BYTES);
	ok = succeeds(scif_writeto(couple.own, 0, COUPLE_BYTES, 0,
				   SCIF_RMA_SYNC),
		      0, "writeto");
	for (i = 0; i < READERS; i++) {
		readers[i].couple = &couple;
		readers[i].part = i;
		pthread_create(&readers[i].thread, NULL, read_on, &readers[i]);
	}
	sleep_ms(200);
	peer_kill();
	for (i = 0; i < READERS; i++) {
		if (!joins(readers[i].thread))
			return false;
		ok = check(readers[i].ok, "reader %d", i) && ok;
	}
	scif_close(couple.own);
	munmap(couple.mem, COUPLE_BYTES);
	return ok;
}

static bool kill_running(void)
{
	return kill_under_copies(false);
}

static bool kill_stopped(void)
{
	return kill_under_copies(true);
}

const struct behaviour under_way_cases[] = {
	{ 52, "the peer's SIGKILL under copies and fences: ECONNRESET",
	  kill_running },
	{ 52, "the same when it was stopped", kill_stopped },
	{ 52, "the same under reads of several threads over one connection",
	  kill_under_reads },
	{ 0, NULL, NULL }
};

/* Where the calling thread copies, and the peer's memory can be mapped. */
const struct behaviour own_under_way_cases[] = {
	{ 56, "unregister under a copy: then the memory is not used",
	  unregister_copied },
	{ 56, "close under a copy: then the memory is not used", close_copied },
	{ 0, NULL, NULL }
};
