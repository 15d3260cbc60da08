// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Both ends of a connection in one process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "behaviour.h"
#include "clock.h"
#include "pattern.h"
#include "peer.h"
#include "tap.h"

enum {
	PAGE = 4096,
	BYTES = 1 << 20,
	RW = SCIF_PROT_READ | SCIF_PROT_WRITE,
	FIXED = SCIF_MAP_FIXED,
	SYNC = SCIF_RMA_SYNC
};

/* Each end has a window at 0, which shows memory of its own. */
struct ends {
	int one;
	int two;
	uint8_t *first;
	uint8_t *second;
};

static void begin(struct ends *ends)
{
	connect_oneself(&ends->one, &ends->two);
	ends->first = fresh_pages(BYTES);
	ends->second = fresh_pages(BYTES);
	if (scif_register(ends->one, ends->first, BYTES, 0, RW, FIXED) ||
	    scif_register(ends->two, ends->second, BYTES, 0, RW, FIXED))
		bail("register: %s", strerror(errno));
}

static void end(struct ends *ends)
{
	scif_close(ends->one);
	scif_close(ends->two);
	munmap(ends->first, BYTES);
	munmap(ends->second, BYTES);
}

static void fill(uint8_t *mem, unsigned int seed)
{
	memcpy(mem, pattern_bytes(seed, BYTES), BYTES);
}

static bool is_same(const struct ends *ends, const char *what)
{
	return check(!memcmp(ends->first, ends->second, BYTES),
		     "%s: other bytes", what);
}

static bool copies(void)
{
	uint8_t *mem = fresh_pages(BYTES);
	struct ends ends;
	bool ok;

	begin(&ends);
	fill(ends.first, 1);
	ok = succeeds(scif_writeto(ends.one, 0, BYTES, 0, SYNC), 0,
		      "writeto") &&
	     is_same(&ends, "writeto");
	fill(ends.second, 2);
	ok = succeeds(scif_readfrom(ends.one, 0, BYTES, 0, SYNC), 0,
		      "readfrom") &&
	     is_same(&ends, "readfrom") && ok;
	fill(mem, 3);
	ok = succeeds(scif_vwriteto(ends.two, mem, BYTES, 0, SYNC), 0,
		      "vwriteto") &&
	     check(!memcmp(ends.first, mem, BYTES), "vwriteto: other bytes") &&
	     succeeds(scif_vreadfrom(ends.one, mem, BYTES, 0, SYNC), 0,
		      "vreadfrom") &&
	     check(!memcmp(ends.second, mem, BYTES),
		   "vreadfrom: other bytes") &&
	     ok;
	end(&ends);
	munmap(mem, BYTES);
	return ok;
}

/* The copies that one end began, marked by @marker. */
static bool are_marked(struct ends *ends, int marker, int who)
{
	bool ok;
	int mark;

	memset(ends->second, 0, BYTES);
	ok = succeeds(scif_writeto(ends->one, 0, BYTES, 0, 0), 0, "writeto") &&
	     succeeds(scif_fence_mark(marker, who, &mark), 0, "mark") &&
	     succeeds(scif_fence_wait(marker, mark), 0, "wait") &&
	     is_same(ends, "behind the mark");
	memset(ends->second, 0, BYTES);
	return ok &&
	       succeeds(scif_writeto(ends->one, 0, BYTES - PAGE, 0, 0), 0,
			"writeto") &&
	       succeeds(scif_fence_signal(marker, BYTES - 8, 5, BYTES - 8, 5,
					  who | SCIF_SIGNAL_LOCAL |
						  SCIF_SIGNAL_REMOTE),
			0, "signal") &&
	       becomes_word(ends->first + BYTES - 8, 5, "the mark") &&
	       becomes_word(ends->second + BYTES - 8, 5, "the mark") &&
	       check(!memcmp(ends->first, ends->second, BYTES - PAGE),
		     "behind the signal: other bytes");
}

static bool fences(void)
{
	struct ends ends;
	bool ok;

	begin(&ends);
	fill(ends.first, 4);
	ok = are_marked(&ends, ends.one, SCIF_FENCE_INIT_SELF) &&
	     are_marked(&ends, ends.two, SCIF_FENCE_INIT_PEER);
	end(&ends);
	return ok;
}

/* Each maps the other's window, and has it when the other is closed. */
static bool mappings(void)
{
	struct ends ends;
	uint8_t *one, *two;
	bool ok;

	begin(&ends);
	one = scif_mmap(NULL, BYTES, RW, 0, ends.one, 0);
	two = scif_mmap(NULL, BYTES, SCIF_PROT_READ, 0, ends.two, 0);
	ok = check(one != SCIF_MMAP_FAILED && two != SCIF_MMAP_FAILED,
		   "mmap: %s", strerror(errno));
	if (ok) {
		fill(one, 6);
		fill(ends.first, 7);
		ok = check(!memcmp(one, ends.second, BYTES), "stores") &&
		     check(!memcmp(two, ends.first, BYTES), "loads") &&
		     succeeds(scif_munmap(two, BYTES), 0, "munmap");
		scif_close(ends.two);
		one[1] = 88;
		ok = check(ends.second[1] == 88, "when it is closed") &&
		     succeeds(scif_munmap(one, BYTES), 0, "the other munmap") &&
		     ok;
		ends.two = -1;
	}
	end(&ends);
	return ok;
}

const struct behaviour oneself_cases[] = {
	{ 22, "copies between two ends in one process", copies },
	{ 22, "fences between two ends in one process", fences },
	{ 0, NULL, NULL }
};

const struct behaviour mapped_oneself_cases[] = {
	{ 49, "mappings between two ends in one process", mappings },
	{ 0, NULL, NULL }
};
