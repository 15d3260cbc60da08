// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "memory.h"
#include "mirror.h"
#include "tap.h"

enum { LOOK_PAGES = 64 };

/* A page as both sides have had it last. */
struct page {
	uint64_t addr;
	uint8_t *known;
};

/* Sorted by address. */
static struct page *pages;
static size_t page_count, page_room;

static struct patch *changes;
static size_t change_room;

static uint64_t page_of(uint64_t addr)
{
	return addr & ~(uint64_t)(PAGE_BYTES - 1);
}

/* Where the page is, or would be. */
static size_t find(uint64_t addr)
{
	size_t low = 0, high = page_count, middle;

	while (low < high) {
		middle = (low + high) / 2;
		if (pages[middle].addr < addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool mirror_has_page(uint64_t page)
{
	size_t i = find(page);

	return i < page_count && pages[i].addr == page;
}

static void *grown(void *array, size_t *room, size_t size)
{
	*room = *room ? 2 * *room : 64;
	array = realloc(array, *room * size);
	if (!array)
		bail("out of memory");
	return array;
}

static void add_page(uint64_t addr)
{
	size_t i = find(addr);

	if (mirror_has_page(addr))
		return;
	if (page_count == page_room)
		pages = grown(pages, &page_room, sizeof(*pages));
	memmove(pages + i + 1, pages + i, (page_count - i) * sizeof(*pages));
	page_count++;
	pages[i].addr = addr;
	pages[i].known = calloc(1, PAGE_BYTES);
	if (!pages[i].known)
		bail("out of memory");
}

void mirror_add(uint64_t addr, size_t length)
{
	uint64_t page;

	for (page = page_of(addr); page < addr + length; page += PAGE_BYTES)
		add_page(page);
}

void mirror_drop(uint64_t addr, size_t length)
{
	size_t from = find(page_of(addr)), to = find(addr + length), i;

	for (i = from; i < to; i++)
		free(pages[i].known);
	memmove(pages + from, pages + to, (page_count - to) * sizeof(*pages));
	page_count -= to - from;
}

bool mirror_has(uint64_t addr, size_t length)
{
	return find(page_of(addr)) < find(addr + length);
}

void mirror_cleared(uint64_t addr, size_t length)
{
	size_t i;

	for (i = find(page_of(addr)); i < find(addr + length); i++)
		memset(pages[i].known, 0, PAGE_BYTES);
}

/*
 * How many pages, from @first on, lie one behind the other, and which of them are
 * there: what is not is zero, and need not come because somebody looks at it.
 */
static size_t look(size_t first, unsigned char *there)
{
	uint64_t addr = pages[first].addr;
	size_t count = 1;

	while (count < LOOK_PAGES && first + count < page_count &&
	       pages[first + count].addr == addr + count * PAGE_BYTES)
		count++;
	while (mincore((void *)(uintptr_t)addr, count * PAGE_BYTES, there)) {
		/* one of them has gone, perhaps not the first */
		there[0] = 0;
		if (count == 1)
			break;
		count = 1;
	}
	return count;
}

static size_t page_changes(struct page *page, size_t count)
{
	const uint8_t *now = (const uint8_t *)(uintptr_t)page->addr;
	struct patch *patch;
	size_t at;

	if (!memcmp(now, page->known, PAGE_BYTES))
		return count;
	for (at = 0; at < PAGE_BYTES; at += PATCH_BYTES) {
		if (!memcmp(now + at, page->known + at, PATCH_BYTES))
			continue;
		if (count == change_room)
			changes = grown(changes, &change_room,
					sizeof(*changes));
		patch = &changes[count++];
		patch->addr = page->addr + at;
		/* a device may be writing: what is sent is what is known */
		memcpy(patch->bytes, now + at, PATCH_BYTES);
		memcpy(page->known + at, patch->bytes, PATCH_BYTES);
	}
	return count;
}

const struct patch *mirror_changes(uint32_t *count)
{
	unsigned char there[LOOK_PAGES];
	size_t sum = 0, i, k, n;

	for (i = 0; i < page_count; i += n) {
		n = look(i, there);
		for (k = 0; k < n; k++)
			if (there[k] & 1)
				sum = page_changes(&pages[i + k], sum);
	}
	*count = sum;
	return changes;
}

void mirror_apply(const struct patch *patches, uint32_t count)
{
	uint32_t i;
	size_t at;

	for (i = 0; i < count; i++) {
		at = patches[i].addr % PAGE_BYTES;
		if (!mirror_has_page(patches[i].addr - at))
			continue;
		memcpy((void *)(uintptr_t)patches[i].addr, patches[i].bytes,
		       PATCH_BYTES);
		memcpy(pages[find(patches[i].addr - at)].known + at,
		       patches[i].bytes, PATCH_BYTES);
	}
}
