// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Windows, and copies between them and memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "model.h"
#include "tap.h"

enum {
	LARGE = 40, /* pages: more than the library's buffer has */
	TOGETHER = 6,
	BAD_ADDRESS = -PAGE
};

const struct window *window_at(const struct side *side, unsigned int page)
{
	unsigned int i;

	for (i = 0; i < side->count; i++)
		if (page >= side->windows[i].page &&
		    page < side->windows[i].page + side->windows[i].pages)
			return &side->windows[i];
	return NULL;
}

static bool is_mapped(const struct side *by, unsigned int id)
{
	unsigned int i, j;

	for (i = 0; i < by->map_count; i++)
		for (j = 0; j < by->maps[i].pages; j++)
			if (by->maps[i].ids[j] == id)
				return true;
	return false;
}

static bool is_taken(const struct side *self, const struct side *other,
		     const struct window *window)
{
	const struct window *gone;
	unsigned int i;

	for (i = 0; i < window->pages; i++)
		if (window_at(self, window->page + i))
			return true;
	for (i = 0; i < self->gone_count; i++) {
		gone = &self->gone[i];
		if (is_mapped(other, gone->id) &&
		    gone->page < window->page + window->pages &&
		    window->page < gone->page + gone->pages)
			return true;
	}
	return false;
}

bool do_register(int side)
{
	struct side *self = &sides[side];
	struct window window = { .prot = below(8) ? 3 : below(4) };
	uint64_t end = deadline();
	bool taken;

	window.pages = 1 + below(below(8) ? 6 : LARGE);
	window.page = below(SPACE - window.pages + 1);
	window.place = below(ARENA - window.pages + 1);
	window.id = ++self->last_id;
	taken = is_taken(self, &sides[!side], &window);
	clear(PEER_REGISTER);
	call.local = window.place * PAGE;
	call.length = window.pages * PAGE;
	call.remote = window.page * PAGE;
	call.prot = window.prot;
	call.flags = FIXED;
	do
		on(side);
	while (!taken && self->late && call.ret == -1 &&
	       call.error == EADDRINUSE && now_ms() < end);
	if (taken)
		return expect(-1, EADDRINUSE, "register");
	self->windows[self->count++] = window;
	return expect(window.page * PAGE, 0, "register");
}

/* One of the windows leaves; its place is taken while it is mapped. */
static void take_out(struct side *self, const struct side *other,
		     unsigned int at)
{
	unsigned int i, kept = 0;

	for (i = 0; i < self->gone_count; i++)
		if (is_mapped(other, self->gone[i].id))
			self->gone[kept++] = self->gone[i];
	self->gone_count = kept;
	if (is_mapped(other, self->windows[at].id) && kept < WINDOWS)
		self->gone[self->gone_count++] = self->windows[at];
	self->windows[at] = self->windows[--self->count];
}

bool do_unregister(int side)
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
			take_out(self, &sides[!side], i);
		else
			i++;
	}
	return expect(0, 0, "unregister");
}

unsigned int random_offset(const struct side *side, unsigned int length)
{
	unsigned int limit = SPACE * PAGE - length, offset;
	const struct window *window;

	if (!side->count || !below(4))
		return below(limit);
	window = &side->windows[below(side->count)];
	offset = window->page * PAGE + below(2) * below(window->pages * PAGE);
	return offset < limit ? offset : limit - 1;
}

int check_range(const struct side *side, unsigned int from, unsigned int length,
		int prot)
{
	const struct window *window;
	bool denied = false;
	unsigned int page;

	for (page = from / PAGE; page <= (from + length - 1) / PAGE; page++) {
		window = window_at(side, page);
		if (!window)
			return ENXIO;
		denied = denied || (window->prot & prot) != prot;
	}
	return denied ? EACCES : 0;
}

uint8_t *byte_at(struct side *side, unsigned int offset)
{
	const struct window *window = window_at(side, offset / PAGE);

	return &side->memory[(window->place + offset / PAGE - window->page) *
				     PAGE +
			     offset % PAGE];
}

struct copy {
	int side;
	bool reads;
	bool from_memory; /* @local is a place in the arena, or a bad one */
	int64_t local;
	unsigned int remote, length;
	int flags, error;
};

static struct copy plan(int side, int flags)
{
	struct side *self = &sides[side], *other = &sides[!side];
	struct copy copy = { .side = side,
			     .reads = below(2),
			     .from_memory = !below(3),
			     .flags = flags };

	copy.flags |= (below(2) ? SCIF_RMA_ORDERED : 0) |
		      (below(4) ? 0 : SCIF_RMA_USECPU) |
		      (below(3) ? 0 : SCIF_RMA_USECACHE);
	copy.length = 1 + below(below(2)  ? 200 :
				below(12) ? 5 * PAGE :
					    LARGE * PAGE);
	copy.remote = random_offset(other, copy.length);
	copy.local = copy.from_memory ? below(ARENA * PAGE - copy.length) :
					random_offset(self, copy.length);
	if (!copy.from_memory)
		copy.error = check_range(self, copy.local, copy.length,
					 copy.reads ? 2 : 1);
	if (!copy.error)
		copy.error = check_range(other, copy.remote, copy.length,
					 copy.reads ? 1 : 2);
	if (copy.from_memory && !below(16)) {
		copy.local = BAD_ADDRESS;
		copy.error = copy.error ? copy.error : EFAULT;
	}
	return copy;
}

static uint8_t *local_byte(const struct copy *copy, unsigned int i)
{
	struct side *self = &sides[copy->side];

	return copy->from_memory ? &self->memory[copy->local + i] :
				   byte_at(self, copy->local + i);
}

static uint8_t *remote_byte(const struct copy *copy, unsigned int i)
{
	return byte_at(&sides[!copy->side], copy->remote + i);
}

/* Is no byte written twice? Then their order would be anybody's. */
static bool is_simple(const struct copy *copy)
{
	uint8_t *(*byte)(const struct copy *copy, unsigned int i) =
		copy->reads ? local_byte : remote_byte;
	unsigned int i, j;

	if (copy->error)
		return true;
	for (i = 0; i < copy->length; i += PAGE)
		for (j = 0; j < i; j += PAGE)
			if (labs((long)(byte(copy, i) - byte(copy, j))) < PAGE)
				return false;
	return true;
}

static void apply(const struct copy *copy)
{
	unsigned int i, part, rest;
	uint8_t *local, *remote;

	for (i = 0; i < copy->length; i += part) {
		part = PAGE - (copy->local + i) % PAGE;
		rest = PAGE - (copy->remote + i) % PAGE;
		part = part < rest ? part : rest;
		rest = copy->length - i;
		part = part < rest ? part : rest;
		local = local_byte(copy, i);
		remote = remote_byte(copy, i);
		memcpy(copy->reads ? local : remote,
		       copy->reads ? remote : local, part);
	}
}

static bool perform(const struct copy *copy)
{
	static const enum peer_op ops[2][2] = {
		{ PEER_WRITETO, PEER_VWRITETO },
		{ PEER_READFROM, PEER_VREADFROM },
	};
	static const char *const names[2][2] = {
		{ "writeto", "vwriteto" },
		{ "readfrom", "vreadfrom" },
	};

	if (!copy->error)
		apply(copy);
	clear(ops[copy->reads][copy->from_memory]);
	call.local = copy->local;
	call.remote = copy->remote;
	call.length = copy->length;
	call.flags = copy->flags;
	on(copy->side);
	return expect(copy->error ? -1 : 0, copy->error,
		      names[copy->reads][copy->from_memory]);
}

bool do_copy(int side)
{
	struct copy copy = plan(side, SCIF_RMA_SYNC);

	return !is_simple(&copy) || perform(&copy);
}

/* Pages that copies under way read and write. */
struct touched {
	bool read[ARENA], written[ARENA];
};

/* One of its two sides; false if others are in the way there. */
static bool joins_at(const struct copy *copy, int side, bool writes,
		     uint8_t *(*byte)(const struct copy *copy, unsigned int i),
		     const struct touched *others, struct touched *next)
{
	unsigned int i, page, last = copy->length - 1, step;

	for (i = 0;; i += step) {
		page = (byte(copy, i) - sides[side].memory) / PAGE;
		if (others->written[page] || (writes && others->read[page]))
			return false;
		if (writes)
			next->written[page] = true;
		else
			next->read[page] = true;
		if (i == last)
			return true;
		step = last - i < PAGE ? last - i : PAGE;
	}
}

/* May it be under way together with them? Then it is one of them. */
static bool joins(const struct copy *copy, struct touched touched[2])
{
	const int own = copy->side, other = !own;
	struct touched next[2];

	memcpy(next, touched, sizeof(next));
	if (!joins_at(copy, own, copy->reads, local_byte, &touched[own],
		      &next[own]) ||
	    !joins_at(copy, other, !copy->reads, remote_byte, &touched[other],
		      &next[other]))
		return false;
	memcpy(touched, next, sizeof(next));
	return true;
}

bool do_copies(int side)
{
	struct touched touched[2] = { { .read = { false } } };
	unsigned int count = 1 + below(TOGETHER), i;
	struct copy copy;
	bool ok = true;

	for (i = 0; i < count && ok; i++) {
		copy = plan(below(2), 0);
		if (!is_simple(&copy) ||
		    (!copy.error && !joins(&copy, touched)))
			continue;
		ok = perform(&copy);
		/* They go on with what they began with. */
		if (!below(4))
			ok = do_unregister(below(2)) && ok;
	}
	return ok && settle(side) && settle(!side);
}

bool do_poke(int side)
{
	unsigned int length = 1 + below(2000);
	unsigned int place = below(ARENA * PAGE - length), i;

	clear(PEER_POKE);
	call.local = place;
	call.length = length;
	for (i = 0; i < length; i++)
		call.data[i] = random_word();
	memcpy(sides[side].memory + place, call.data, length);
	on(side);
	return true;
}

static bool page_agrees(int side, unsigned int page)
{
	clear(PEER_PEEK);
	call.local = page * PAGE;
	call.length = PAGE;
	on(side);
	return check(!memcmp(call.data, sides[side].memory + page * PAGE, PAGE),
		     "memory of side %d, page %u", side, page);
}

bool do_peek(int side)
{
	return page_agrees(side, below(ARENA));
}

bool memory_agrees(int side)
{
	unsigned int page;
	bool ok = true;

	for (page = 0; page < ARENA && ok; page++)
		ok = page_agrees(side, page);
	return ok;
}
