// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Mappings of the other side's windows: what is read and written there, and
 * that they stay.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "tap.h"

enum { RW = SCIF_PROT_READ | SCIF_PROT_WRITE, MOST = 300 };

/* To write, a mapping also has to be readable. */
static int error_of(const struct side *other, unsigned int page,
		    unsigned int pages, int prot)
{
	int error = check_range(other, page * PAGE, pages * PAGE, prot);

	if (error)
		return error;
	if (!getenv("SCIF_TEST_MAPS"))
		return EOPNOTSUPP;
	return check_range(other, page * PAGE, pages * PAGE, SCIF_PROT_READ);
}

static void remember(struct side *self, const struct side *other,
		     unsigned int page)
{
	struct mapping *map = &self->maps[self->map_count++];
	const struct window *window;
	unsigned int i;

	map->addr = call.ret;
	map->pages = call.length / PAGE;
	map->prot = call.prot;
	for (i = 0; i < map->pages; i++) {
		window = window_at(other, page + i);
		map->places[i] = window->place + page + i - window->page;
		map->ids[i] = window->id;
	}
}

bool do_map(int side)
{
	struct side *self = &sides[side], *other = &sides[!side];
	unsigned int pages = 1 + below(MAP_PAGES), page;
	int error;

	if (self->map_count == MAPS)
		return do_unmap(side);
	clear(PEER_MMAP);
	call.length = pages * PAGE;
	page = random_offset(other, call.length) / PAGE;
	call.remote = page * PAGE;
	call.prot = below(2) ? RW : 1 + below(2);
	error = error_of(other, page, pages, call.prot);
	on(side);
	if (error) {
		other->late = true; /* It may have been mapped in part. */
		return expect(-1, error, "mmap");
	}
	if (!check(call.ret != -1, "mmap: %s", strerrorname_np(call.error)))
		return false;
	remember(self, other, page);
	return true;
}

/* The part that lies in one page of @map. */
static uint8_t *place_of(struct side *other, const struct mapping *map,
			 unsigned int at)
{
	return &other->memory[map->places[at / PAGE] * PAGE + at % PAGE];
}

static bool read_map(int side, const struct mapping *map, unsigned int at,
		     unsigned int length)
{
	clear(PEER_LOAD);
	call.local = map->addr + at;
	call.length = length;
	on(side);
	return check(
		!memcmp(call.data, place_of(&sides[!side], map, at), length),
		"side %d reads something else at 0x%x of a mapping", side, at);
}

static void write_map(int side, const struct mapping *map, unsigned int at,
		      unsigned int length)
{
	unsigned int i;

	clear(PEER_STORE);
	call.local = map->addr + at;
	call.length = length;
	for (i = 0; i < length; i++)
		call.data[i] = random_word();
	memcpy(place_of(&sides[!side], map, at), call.data, length);
	on(side);
}

bool do_touch(int side)
{
	struct side *self = &sides[side];
	const struct mapping *map;
	unsigned int at, length;

	if (!self->map_count)
		return true;
	map = &self->maps[below(self->map_count)];
	at = below(map->pages * PAGE);
	length = 1 + below(MOST);
	if (length > PAGE - at % PAGE)
		length = PAGE - at % PAGE;
	if (map->prot & SCIF_PROT_WRITE && below(2)) {
		write_map(side, map, at, length);
		return true;
	}
	return read_map(side, map, at, length);
}

static void keep(struct side *self, const struct mapping *map,
		 unsigned int first, unsigned int pages)
{
	struct mapping *kept = &self->maps[self->map_count];

	if (!pages)
		return;
	self->map_count++;
	kept->addr = map->addr + first * PAGE;
	kept->pages = pages;
	kept->prot = map->prot;
	memcpy(kept->places, &map->places[first], pages * sizeof(*map->places));
	memcpy(kept->ids, &map->ids[first], pages * sizeof(*map->ids));
}

/* What is before these pages, and behind them, stays. */
static bool unmap(int side, unsigned int which, unsigned int first,
		  unsigned int count)
{
	struct side *self = &sides[side];
	struct mapping map = self->maps[which];
	const unsigned int end = first + count;

	clear(PEER_MUNMAP);
	call.local = map.addr + first * PAGE;
	call.length = count * PAGE;
	on(side);
	self->maps[which] = self->maps[--self->map_count];
	keep(self, &map, 0, first);
	keep(self, &map, end, map.pages - end);
	sides[!side].late = true;
	return expect(0, 0, "munmap");
}

bool do_unmap(int side)
{
	const struct side *self = &sides[side];
	unsigned int which, pages, first, count;

	if (!self->map_count)
		return true;
	which = below(self->map_count);
	pages = self->maps[which].pages;
	if (below(2))
		return unmap(side, which, 0, pages);
	first = below(pages);
	count = 1 + below(pages - first);
	if (self->map_count == MAPS) /* there is no room for two */
		count = pages - first;
	return unmap(side, which, first, count);
}

bool end_maps(int side, bool alive)
{
	const struct mapping *map;
	unsigned int i;
	bool ok = true;

	while (sides[side].map_count && ok) {
		map = &sides[side].maps[0];
		for (i = 0; i < map->pages && alive && ok; i++)
			ok = read_map(side, map, i * PAGE, PAGE);
		ok = unmap(side, 0, 0, map->pages) && ok;
	}
	return ok;
}
