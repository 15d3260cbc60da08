// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Unmapping the peer's windows, as a whole and in parts, and mapping others in their
 * place.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "behaviour.h"
#include "clock.h"
#include "mappings.h"
#include "peer.h"
#include "process.h"
#include "tap.h"

static bool maps_at(int epd, uint8_t *addr, size_t length, off_t offset,
		    const char *what)
{
	void *mem = scif_mmap(addr, length, RW, FIXED, epd, offset);

	return check(mem == addr, "%s: at %p, not %p, errno %s", what, mem,
		     (void *)addr, strerrorname_np(errno));
}

static bool refuses_at(int epd, uint8_t *addr, size_t length, const char *what)
{
	void *mem = scif_mmap(addr, length, RW, FIXED, epd, 0);

	return fails(mem == SCIF_MMAP_FAILED ? -1 : 0, EINVAL, what);
}

/* When nothing of it is mapped any more, a place can have a window again. */
static bool is_let_go(int epd, off_t offset, size_t length)
{
	uint64_t end = deadline();
	off_t found;

	peer_unregister(epd, offset, length);
	do {
		found = peer_register(epd, 0, length, offset, RW, FIXED);
	} while (found < 0 && errno == EADDRINUSE && now_ms() < end);
	return succeeds(found, offset, "register what was mapped");
}

static bool fixed_address(void)
{
	uint8_t *mem = fresh_pages(8 * PAGE);
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	register_three(other);
	memset(mem, 0x77, 8 * PAGE);
	ok = refuses_at(own, mem + 8, PAGE, "unaligned") &&
	     maps_at(own, mem + 2 * PAGE, 2 * PAGE, PAGE, "over memory") &&
	     check(mem[2 * PAGE - 1] == 0x77 && mem[4 * PAGE] == 0x77,
		   "what is beside it stays");
	*(volatile uint64_t *)(mem + 3 * PAGE) = 0x31;
	ok = peer_has(PAGE, 0x31, "at a fixed address") &&
	     maps_at(own, mem + 3 * PAGE, 2 * PAGE, 3 * PAGE,
		     "over half of it") &&
	     ok;
	*(volatile uint64_t *)(mem + 2 * PAGE) = 0x34;
	*(volatile uint64_t *)(mem + 3 * PAGE) = 0x35;
	ok = peer_has(0, 0x34, "the other half") &&
	     peer_has(2 * PAGE, 0x35, "in place of a half") &&
	     maps_at(own, mem + PAGE, 4 * PAGE, PAGE, "over all of it") && ok;
	*(volatile uint64_t *)(mem + 2 * PAGE) = 0x32;
	ok = peer_has(PAGE, 0x32, "in its place") &&
	     maps_at(own, mem + PAGE, 4 * PAGE, 0, "three windows there") && ok;
	*(volatile uint64_t *)(mem + PAGE) = 0x33;
	ok = peer_has(10 * PAGE, 0x33, "the first window") &&
	     succeeds(scif_munmap(mem + PAGE, 4 * PAGE), 0, "munmap") &&
	     check(mem[0] == 0x77 && mem[5 * PAGE] == 0x77, "beside it") &&
	     is_let_go(other, PAGE, 4 * PAGE) && ok;
	close_pair(own, other);
	munmap(mem, PAGE);
	munmap(mem + 5 * PAGE, 3 * PAGE);
	return ok;
}

/* It hears of what is not mapped any more when it goes on. */
static bool unmap_while_stopped(void)
{
	enum { MAPS = 100 };
	void *mem[MAPS];
	int own, other, i;
	bool ok = true;
	char byte = 0;

	connect_pair(&own, &other);
	peer_register(other, 0, PAGE, 0, RW, FIXED);
	for (i = 0; i < MAPS && ok; i++) {
		mem[i] = scif_mmap(NULL, PAGE, RW, 0, own, 0);
		ok = check(mem[i] != SCIF_MMAP_FAILED, "map %d: %s", i,
			   strerror(errno));
	}
	peer_stop();
	while (i-- && ok)
		ok = succeeds(scif_munmap(mem[i], PAGE), 0, "munmap");
	peer_continue();
	ok = succeeds(scif_send(own, "x", 1, SCIF_SEND_BLOCK), 1, "send") &&
	     succeeds(peer_recv(other, &byte, 1, 1), 1, "recv") &&
	     is_let_go(other, 0, PAGE) && ok;
	close_pair(own, other);
	return ok;
}

static uint64_t *word_at(void *mem, unsigned int page)
{
	return (uint64_t *)((uint8_t *)mem + page * PAGE);
}

static bool reaches(void *mem, unsigned int page, int64_t place)
{
	static uint64_t value = 0x700;
	volatile uint64_t *word = word_at(mem, page);

	*word = ++value;
	return peer_has(place, value, "what is mapped still");
}

static bool is_gone(void *mem, unsigned int page)
{
	return check(is_nothing(word_at(mem, page)), "page %u is unmapped",
		     page);
}

static bool unmaps(void *mem, unsigned int page, unsigned int pages)
{
	return succeeds(scif_munmap(word_at(mem, page), pages * PAGE), 0,
			"munmap");
}

static bool is_held(int epd, off_t offset, size_t length)
{
	sleep_ms(300 * slowness());
	return fails(peer_register(epd, 0, length, offset, RW, FIXED),
		     EADDRINUSE, "register what is mapped in part");
}

/* Of one window: the middle, the beginning, the end. It is held until the last goes. */
static bool parts_of_window(void)
{
	int own, other;
	uint8_t *mem;
	bool ok;

	connect_pair(&own, &other);
	peer_register(other, 0, 8 * PAGE, 0, RW, FIXED);
	mem = scif_mmap(NULL, 8 * PAGE, RW, 0, own, 0);
	if (!check(mem != SCIF_MMAP_FAILED, "mmap: %s", strerror(errno)))
		return false;
	peer_unregister(other, 0, 8 * PAGE);
	ok = unmaps(mem, 3, 2) && is_gone(mem, 3) && is_gone(mem, 4) &&
	     reaches(mem, 2, 2 * PAGE) && reaches(mem, 5, 5 * PAGE) &&
	     unmaps(mem, 0, 1) && is_gone(mem, 0) && reaches(mem, 1, PAGE) &&
	     unmaps(mem, 7, 1) && is_gone(mem, 7) && unmaps(mem, 1, 2) &&
	     is_held(other, 0, 8 * PAGE) && reaches(mem, 5, 5 * PAGE) &&
	     reaches(mem, 6, 6 * PAGE) && unmaps(mem, 0, 8) &&
	     is_gone(mem, 5) && is_gone(mem, 6) &&
	     is_let_go(other, 0, 8 * PAGE);
	close_pair(own, other);
	return ok;
}

/* A call for three windows: two go, the third is mapped still. */
static bool parts_of_several(void)
{
	int own, other;
	uint8_t *mem;
	bool ok;

	connect_pair(&own, &other);
	register_three(other);
	mem = scif_mmap(NULL, 7 * PAGE, RW, 0, own, 0);
	if (!check(mem != SCIF_MMAP_FAILED, "mmap: %s", strerror(errno)))
		return false;
	ok = unmaps(mem, 0, 6) && is_gone(mem, 0) && is_gone(mem, 5) &&
	     reaches(mem, 6, 21 * PAGE) && is_let_go(other, 0, PAGE) &&
	     is_let_go(other, PAGE, 4 * PAGE);
	peer_unregister(other, 5 * PAGE, 2 * PAGE);
	ok = ok && is_held(other, 5 * PAGE, 2 * PAGE) &&
	     reaches(mem, 6, 21 * PAGE) &&
	     succeeds(scif_munmap(word_at(mem, 6), 1), 0, "a byte, a page") &&
	     is_gone(mem, 6) && is_let_go(other, 5 * PAGE, 2 * PAGE);
	close_pair(own, other);
	return ok;
}

/* What the program maps where it has unmapped is its own. */
static bool something_else_between(void)
{
	uint8_t *mem, *between;
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	peer_register(other, 0, 4 * PAGE, 0, RW, FIXED);
	mem = scif_mmap(NULL, 4 * PAGE, RW, 0, own, 0);
	if (!check(mem != SCIF_MMAP_FAILED, "mmap: %s", strerror(errno)))
		return false;
	ok = unmaps(mem, 1, 2);
	between = mmap(mem + PAGE, 2 * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		       0);
	ok = check(between == mem + PAGE, "a place to map at") && ok;
	if (!ok)
		return false;
	memset(between, 0x5a, 2 * PAGE);
	ok = unmaps(mem, 0, 1) && unmaps(mem, 3, 1) && is_gone(mem, 0) &&
	     is_gone(mem, 3) && is_let_go(other, 0, 4 * PAGE) &&
	     check(between[0] == 0x5a && between[2 * PAGE - 1] == 0x5a,
		   "it is there still");
	ok = unmaps(mem, 1, 2) && is_gone(mem, 1) && ok;
	close_pair(own, other);
	return ok;
}

/* By munmap() itself: the next one at the same place is the whole truth. */
static bool unmapped_otherwise(void)
{
	int own, other;
	uint8_t *mem, *again;
	bool ok;

	connect_pair(&own, &other);
	peer_register(other, 0, 2 * PAGE, 0, RW, FIXED);
	peer_register(other, 4 * PAGE, 2 * PAGE, 2 * PAGE, RW, FIXED);
	mem = scif_mmap(NULL, 2 * PAGE, RW, 0, own, 0);
	if (!check(mem != SCIF_MMAP_FAILED, "mmap: %s", strerror(errno)))
		return false;
	munmap(mem, 2 * PAGE);
	again = scif_mmap(mem, 2 * PAGE, RW, FIXED, own, 2 * PAGE);
	ok = check(again == mem, "at the same place: %p, not %p", again, mem) &&
	     is_let_go(other, 0, 2 * PAGE) && reaches(mem, 1, 5 * PAGE) &&
	     unmaps(mem, 0, 2) && is_gone(mem, 1) &&
	     is_let_go(other, 2 * PAGE, 2 * PAGE);
	close_pair(own, other);
	return ok;
}

struct place {
	int epd;
	uint8_t *mem;
	void *mapped;
};

static void *map_place(void *argument)
{
	struct place *place = argument;

	place->mapped = scif_mmap(place->mem, 2 * PAGE, RW, FIXED, place->epd,
				  0);
	return NULL;
}

/* It is neither what it was nor a window yet: nobody can read it. */
static bool is_being_mapped(const uint8_t *mem)
{
	uint64_t end = deadline();
	unsigned int round = 0;
	int ends[2];

	if (pipe(ends))
		bail("pipe");
	while (write(ends[1], mem, 1) == 1 && now_ms() < end) {
		check(read(ends[0], &(char){ 0 }, 1) == 1, "a byte");
		relax(round++);
	}
	close(ends[0]);
	close(ends[1]);
	return check(now_ms() < end, "the window's place is taken");
}

/* It waits for the peer, which is stopped. */
static bool another_thread_maps(void)
{
	uint8_t *mem = fresh_pages(4 * PAGE);
	struct place place = { .mem = mem + PAGE };
	pthread_t thread;
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	peer_register(other, 0, 2 * PAGE, 0, RW, FIXED);
	place.epd = own;
	memset(mem, 0x77, 4 * PAGE);
	peer_stop();
	if (pthread_create(&thread, NULL, map_place, &place))
		bail("pthread_create");
	ok = is_being_mapped(place.mem) &&
	     fails(scif_munmap(place.mem, 2 * PAGE), EINVAL, "all of it") &&
	     fails(scif_munmap(mem, 2 * PAGE), EINVAL, "its first page") &&
	     fails(scif_munmap(mem + 2 * PAGE, PAGE), EINVAL, "its last") &&
	     refuses_at(own, mem, 2 * PAGE, "another window there") &&
	     check(mem[0] == 0x77 && mem[3 * PAGE] == 0x77, "beside it");
	peer_continue();
	pthread_join(thread, NULL);
	ok = check(place.mapped == place.mem, "mapped at %p, not %p",
		   place.mapped, (void *)place.mem) &&
	     ok && reaches(place.mem, 1, PAGE) && unmaps(place.mem, 0, 2) &&
	     is_gone(place.mem, 0) && is_let_go(other, 0, 2 * PAGE);
	close_pair(own, other);
	munmap(mem, PAGE);
	munmap(mem + 3 * PAGE, PAGE);
	return ok;
}

const struct behaviour unmapping_cases[] = {
	{ 49, "mmap: at fixed addresses", fixed_address },
	{ 49, "munmap: parts of a window", parts_of_window },
	{ 49, "munmap: parts of several windows", parts_of_several },
	{ 49, "munmap: something else is mapped between",
	  something_else_between },
	{ 49, "munmap: by other means", unmapped_otherwise },
	{ 49, "munmap: what another thread is mapping", another_thread_maps },
	{ 49, "munmap: 100 times while the peer is stopped",
	  unmap_while_stopped },
	{ 0, NULL, NULL }
};
