// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * What ends while copies of other threads are under way.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
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

/* Where the calling thread copies, and the peer's memory can be mapped. */
const struct behaviour own_under_way_cases[] = {
	{ 56, "unregister under a copy: then the memory is not used",
	  unregister_copied },
	{ 56, "close under a copy: then the memory is not used", close_copied },
	{ 0, NULL, NULL }
};
