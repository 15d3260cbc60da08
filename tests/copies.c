// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The provider's copies are made in order, on any CPU: between two stores there is a
 * fence. Here fences are a look at what has been stored since the last one, so the
 * CPU that this runs on does not matter.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

static void look(void);

#undef atomic_thread_fence
#define atomic_thread_fence(order) look()
#include "copy.h"

#include "tap.h"

enum { LENGTH_MAX = 200, SHIFTS = 8 };

static char source[SHIFTS + LENGTH_MAX];
static char room[SHIFTS + LENGTH_MAX + 1];

static struct {
	const char *to;
	size_t length;
	size_t bulk; /* so many bytes may be stored in any order, before the others */
	size_t stored; /* of them, in order from the first one */
	bool ok;
} copy;

/* Can one store have added @count bytes, and overlapped @before that were there? */
static bool is_one_store(size_t before, size_t count)
{
	size_t word = count > 4 ? 8 : count > 1 ? 4 : 1;

	return count <= 8 && before + count >= word;
}

static void look(void)
{
	size_t before = copy.stored, count, i;

	while (copy.stored < copy.length && copy.to[copy.stored])
		copy.stored++;
	count = copy.stored - before;
	copy.ok = check(is_one_store(before, count) ||
				(!before && count == copy.bulk),
			"%zu of %zu bytes: after %zu come %zu at once",
			copy.stored, copy.length, before, count) &&
		  copy.ok;
	for (i = copy.stored; i < copy.length; i++)
		copy.ok = check(!copy.to[i], "byte %zu of %zu comes too early",
				i, copy.length) &&
			  copy.ok;
}

static bool copies(size_t length, size_t from, size_t to)
{
	memset(room, 0, sizeof(room));
	copy.to = room + to;
	copy.length = length;
	copy.bulk = length > MIC_COPY_ORDERED ? length - MIC_COPY_ORDERED / 2 :
						0;
	copy.stored = 0;
	copy.ok = true;
	mic_copy(room + to, source + from, length);
	look();
	return check(copy.ok && copy.stored == length &&
			     !memcmp(room + to, source + from, length) &&
			     !room[to + length],
		     "%zu bytes", length);
}

static bool all_copy(size_t first, size_t last)
{
	size_t length, shift;
	bool ok = true;

	for (length = first; length <= last; length++)
		for (shift = 0; shift < SHIFTS; shift++)
			ok = copies(length, shift, (3 * shift) % SHIFTS) && ok;
	return ok;
}

/* In pieces: what is stored is in order over all of them. */
static bool pieces_are_copied(size_t length, uint32_t n, bool gather)
{
	struct mic_pieces pieces = { .n = n, .bytes = length };
	char *from = source, *to = room;
	uint32_t i;

	memset(room, 0, sizeof(room));
	for (i = 0; i < n; i++) {
		pieces.len[i] = i < n - 1 ? length / n :
					    length - i * (length / n);
		pieces.addr[i] = (gather ? from : to) + i * (length / n);
	}
	copy.to = room;
	copy.length = length;
	copy.stored = 0;
	copy.ok = true;
	/* the first piece as a whole, if that is not in order */
	copy.bulk = length / n > MIC_COPY_ORDERED ?
			    length / n - MIC_COPY_ORDERED / 2 :
			    0;
	if (gather)
		mic_gather(room, &pieces);
	else
		mic_scatter(&pieces, source);
	look();
	return check(copy.ok && copy.stored == length &&
			     !memcmp(room, source, length),
		     "%zu bytes in %u pieces", length, n);
}

static bool pieces_copy(bool gather)
{
	size_t length;
	uint32_t n;
	bool ok = true;

	/* each piece is in order as a whole */
	for (n = 1; n <= 3; n++)
		for (length = n;
		     length <= LENGTH_MAX && length / n + n <= MIC_COPY_ORDERED;
		     length++)
			ok = pieces_are_copied(length, n, gather) && ok;
	return ok;
}

/* To where it is, some bytes further, at any distance. */
static bool copy_overlaps(void)
{
	char before[2 * MIC_COPY_ORDERED], after[2 * MIC_COPY_ORDERED];
	size_t length, distance;
	bool ok = true;

	copy.length = 0; /* nobody looks */
	for (length = 1; length <= MIC_COPY_ORDERED; length++)
		for (distance = 0; distance <= length; distance++) {
			memcpy(before, source, sizeof(before));
			memcpy(after, source, sizeof(after));
			memmove(after + distance, after, length);
			mic_copy(before + distance, before, length);
			ok = check(!memcmp(before, after, sizeof(after)),
				   "%zu bytes up by %zu", length, distance) &&
			     ok;
		}
	return ok;
}

int main(void)
{
	size_t i;

	for (i = 0; i < sizeof(source); i++)
		source[i] = (char)(i % 255 + 1);
	tap_ok(all_copy(1, 16), "a word or two");
	tap_ok(all_copy(17, MIC_COPY_ORDERED), "in order as a whole");
	tap_ok(all_copy(MIC_COPY_ORDERED + 1, LENGTH_MAX),
	       "the end behind all else");
	tap_ok(pieces_copy(true), "from several places");
	tap_ok(pieces_copy(false), "to several places");
	tap_ok(copy_overlaps(), "to where it is");
	return tap_end();
}
