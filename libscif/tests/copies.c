// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Copies between windows and from and to memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "behaviour.h"
#include "clock.h"
#include "pattern.h"
#include "peer.h"
#include "tap.h"

enum {
	PAGE = 4096,
	BYTES = COUPLE_BYTES,
	RW = SCIF_PROT_READ | SCIF_PROT_WRITE,
	FIXED = SCIF_MAP_FIXED,
	SYNC = SCIF_RMA_SYNC
};

/* Where no kernel, and no sanitizer, puts anything by itself. */
#define NOWHERE ((uint8_t *)0x200000000000)
#define PLACE ((uint8_t *)0x10000000)

/* Does the connection still carry messages and copies? */
static bool works(struct couple *couple)
{
	char text[4];

	return succeeds(scif_send(couple->own, "abc", 4, 1), 4, "send") &&
	       succeeds(peer_recv(couple->other, text, 4, 1), 4, "recv") &&
	       succeeds(scif_writeto(couple->own, 0, 8, 0, SYNC), 0, "copy");
}

/* Where there is no window, neither here nor there. */
static bool each_fails(int epd, uint8_t *mem, int flags, int error,
		       const char *what)
{
	return fails(scif_readfrom(epd, BYTES, 8, BYTES, flags), error, what) &&
	       fails(scif_writeto(epd, BYTES, 8, BYTES, flags), error, what) &&
	       fails(scif_vreadfrom(epd, mem, 8, BYTES, flags), error, what) &&
	       fails(scif_vwriteto(epd, mem, 8, BYTES, flags), error, what);
}

static bool order_of_checks(void)
{
	struct couple couple = couple_begin();
	int epd = scif_open();
	bool ok;

	ok = each_fails(epd, couple.mem, 0xff, ENOTCONN, "state") &&
	     each_fails(couple.own, couple.mem, 0x10, EINVAL, "flags") &&
	     each_fails(couple.own, couple.mem, 0, ENXIO, "windows");
	/* Nothing local, and the remote one is against the protection. */
	peer_register(couple.other, 0, PAGE, 2 * BYTES, SCIF_PROT_READ, FIXED);
	ok = fails(scif_writeto(couple.own, BYTES, 8, 2 * BYTES, 0), ENXIO,
		   "the local window") &&
	     fails(scif_writeto(couple.own, 0, 8, 2 * BYTES, 0), EACCES,
		   "the remote window") &&
	     ok;
	peer_op_epd(PEER_CLOSE, couple.other);
	ok = shows(couple.own, POLLHUP) &&
	     each_fails(couple.own, couple.mem, 0xff, ECONNRESET,
			"state, the peer is gone") &&
	     ok;
	scif_close(epd);
	scif_close(couple.own);
	munmap(couple.mem, BYTES);
	return ok;
}

static bool length_zero(void)
{
	struct couple couple = couple_begin();
	bool ok = fails(scif_readfrom(couple.own, 0, 0, 0, 0), EINVAL, "r") &&
		  fails(scif_writeto(couple.own, 0, 0, 0, 0), EINVAL, "w") &&
		  fails(scif_vreadfrom(couple.own, couple.mem, 0, 0, 0), EINVAL,
			"vr") &&
		  fails(scif_vwriteto(couple.own, couple.mem, 0, 0, 0), EINVAL,
			"vw");

	couple_end(&couple);
	return ok;
}

static bool out_of_range(void)
{
	struct couple couple = couple_begin();
	int own = couple.own;
	bool ok;

	ok = fails(scif_readfrom(own, 0, 2, BYTES - 1, 0), ENXIO, "remote") &&
	     fails(scif_writeto(own, BYTES - 1, 2, 0, 0), ENXIO, "local") &&
	     fails(scif_writeto(own, -8, 8, 0, 0), ENXIO, "negative local") &&
	     fails(scif_writeto(own, 0, 8, -8, 0), ENXIO, "negative remote") &&
	     fails(scif_writeto(own, 0, SIZE_MAX, 0, 0), ENXIO, "huge") &&
	     fails(scif_vreadfrom(own, couple.mem, 8, INT64_MAX - 2, 0), ENXIO,
		   "far") &&
	     works(&couple);
	couple_end(&couple);
	return ok;
}

/* Windows side by side, at other borders here than there. */
static bool adjacent(void)
{
	uint8_t *mem = fresh_pages(8 * PAGE), bytes[8 * PAGE];
	struct couple couple = couple_begin();
	off_t base = 4 * BYTES;
	int i, own = couple.own;
	bool ok = true;

	for (i = 0; i < 4; i++)
		scif_register(own, mem + 2 * i * PAGE, 2 * PAGE,
			      base + 2 * i * PAGE, RW, FIXED);
	peer_register(couple.other, 0, PAGE, base, RW, FIXED);
	peer_register(couple.other, PAGE, 4 * PAGE, base + PAGE, RW, FIXED);
	peer_register(couple.other, 5 * PAGE, 3 * PAGE, base + 5 * PAGE, RW,
		      FIXED);
	memcpy(mem, pattern_bytes(44, 8 * PAGE), 8 * PAGE);
	ok = succeeds(scif_writeto(own, base + 100, 7 * PAGE, base + 200, SYNC),
		      0, "write");
	peer_peek(200, bytes, 7 * PAGE);
	ok = check(!memcmp(bytes, mem + 100, 7 * PAGE), "bytes written") && ok;
	memset(mem, 0, 8 * PAGE);
	ok = succeeds(scif_readfrom(own, base + 3, 7 * PAGE, base + 200,
				    SYNC | SCIF_RMA_ORDERED),
		      0, "read") &&
	     check(!memcmp(bytes, mem + 3, 7 * PAGE), "bytes read") && ok;
	ok = fails(scif_readfrom(own, base, 8 * PAGE, base + 1, 0), ENXIO,
		   "one too far") &&
	     ok;
	peer_unregister(couple.other, base + PAGE, 4 * PAGE);
	ok = fails(scif_readfrom(own, base, 8 * PAGE, base, 0), ENXIO,
		   "a hole") &&
	     works(&couple) && ok;
	couple_end(&couple);
	munmap(mem, 8 * PAGE);
	return ok;
}

static bool protection(void)
{
	struct couple couple = couple_begin();
	uint8_t *mem = fresh_pages(3 * PAGE);
	off_t r = 2 * BYTES, w = r + PAGE, none = w + PAGE;
	int own = couple.own;
	bool ok;

	peer_register(couple.other, 0, PAGE, r, SCIF_PROT_READ, FIXED);
	peer_register(couple.other, 0, PAGE, w, SCIF_PROT_WRITE, FIXED);
	peer_register(couple.other, 0, PAGE, none, 0, FIXED);
	scif_register(own, mem, PAGE, r, SCIF_PROT_READ, FIXED);
	scif_register(own, mem + PAGE, PAGE, w, SCIF_PROT_WRITE, FIXED);
	scif_register(own, mem, PAGE, none, 0, FIXED);
	ok = fails(scif_writeto(own, 0, 8, r, 0), EACCES, "write to R") &&
	     fails(scif_readfrom(own, 0, 8, w, 0), EACCES, "read from W") &&
	     fails(scif_readfrom(own, 0, 8, none, 0), EACCES, "read none") &&
	     fails(scif_writeto(own, 0, 8, none, 0), EACCES, "write none") &&
	     fails(scif_writeto(own, w, 8, 0, 0), EACCES, "from own W") &&
	     fails(scif_readfrom(own, r, 8, 0, 0), EACCES, "to own R") &&
	     fails(scif_writeto(own, none, 8, 0, 0), EACCES, "own none") &&
	     fails(scif_vwriteto(own, mem, 8, r, 0), EACCES, "v to R") &&
	     fails(scif_vreadfrom(own, mem, 8, w, 0), EACCES, "v from W") &&
	     fails(scif_writeto(own, 0, 2 * PAGE, r, 0), EACCES, "R and W") &&
	     succeeds(scif_readfrom(own, 0, 8, r, SYNC), 0, "read R") &&
	     succeeds(scif_writeto(own, 0, 8, w, SYNC), 0, "write W") &&
	     succeeds(scif_writeto(own, r, 8, 0, SYNC), 0, "from own R") &&
	     succeeds(scif_readfrom(own, w, 8, 0, SYNC), 0, "to own W") &&
	     works(&couple);
	couple_end(&couple);
	munmap(mem, 3 * PAGE);
	return ok;
}

static bool bad_memory(void)
{
	struct couple couple = couple_begin();
	uint8_t *hole = NOWHERE, *mem;
	int own = couple.own;
	size_t length;
	bool ok = true;

	mem = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (length = 8; length <= BYTES; length *= 512)
		ok = fails(scif_vwriteto(own, mem, length, 0, SYNC), EFAULT,
			   "write from memory without rights") &&
		     ok;
	mprotect(mem, BYTES, PROT_READ);
	for (length = 8; length <= BYTES; length *= 512) {
		ok = fails(scif_vwriteto(own, hole, length, 0, SYNC), EFAULT,
			   "write from a hole") &&
		     fails(scif_vreadfrom(own, hole, length, 0, SYNC), EFAULT,
			   "read into a hole") &&
		     ok;
		ok = fails(scif_vreadfrom(own, mem, length, 0, SYNC), EFAULT,
			   "read into read-only memory") &&
		     succeeds(scif_vwriteto(own, mem, length, 0, SYNC), 0,
			      "write from read-only memory") &&
		     ok;
	}
	ok = works(&couple) && ok;
	couple_end(&couple);
	munmap(mem, BYTES);
	return ok;
}

static bool memory_sizes(void)
{
	static const size_t sizes[] = { 1, 63, 4096, 131071, 131073, 999999 };
	struct couple couple = couple_begin();
	uint8_t *mem = fresh_pages(BYTES);
	unsigned int i, round;
	bool ok = true;

	/* The second round has other memory at the same address. */
	for (round = 0; round < 2; round++) {
		for (i = 0; i < 6 && ok; i++) {
			memcpy(mem + 5, pattern_bytes(i + 9 * round, BYTES),
			       sizes[i]);
			ok = succeeds(scif_vwriteto(couple.own, mem + 5,
						    sizes[i], 7,
						    SYNC | SCIF_RMA_USECACHE),
				      0, "vwriteto") &&
			     succeeds(scif_readfrom(couple.own, 0, sizes[i], 7,
						    SYNC),
				      0, "readfrom") &&
			     check(!memcmp(couple.mem, mem + 5, sizes[i]),
				   "%zu bytes written", sizes[i]);
			memset(mem, 0, BYTES);
			ok = ok &&
			     succeeds(scif_vreadfrom(couple.own, mem + 1,
						     sizes[i], 7,
						     SYNC | SCIF_RMA_USECACHE),
				      0, "vreadfrom") &&
			     check(!memcmp(couple.mem, mem + 1, sizes[i]),
				   "%zu bytes read", sizes[i]) &&
			     check(!mem[0] && !mem[1 + sizes[i]], "no more");
		}
		mem = mmap(mem, BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	}
	couple_end(&couple);
	munmap(mem, BYTES);
	return ok;
}

enum { SMALL = 100, LARGE = 3 * 65536, CACHED = SYNC | SCIF_RMA_USECACHE };

/* What is in memory arrives, and comes back, to the last byte. */
static bool carries(struct couple *couple, uint8_t *mem, size_t length,
		    const char *what)
{
	bool ok = succeeds(scif_vwriteto(couple->own, mem, length, 0, CACHED),
			   0, what) &&
		  succeeds(scif_readfrom(couple->own, 0, length, 0, SYNC), 0,
			   what) &&
		  check(!memcmp(couple->mem, mem, length), "%s: written", what);

	couple->mem[length - 1] ^= 0xff;
	scif_writeto(couple->own, 0, length, 0, SYNC);
	return ok &&
	       succeeds(scif_vreadfrom(couple->own, mem, length, 0, CACHED), 0,
			what) &&
	       check(!memcmp(couple->mem, mem, length), "%s: read", what);
}

static uint8_t *map_at(uint8_t *place, int prot)
{
	return mmap(place, LARGE, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		    -1, 0);
}

static bool refuses(struct couple *couple, uint8_t *mem, size_t length,
		    bool reads, const char *what)
{
	return fails(scif_vreadfrom(couple->own, mem, length, 0, CACHED),
		     EFAULT, what) &&
	       (!reads ||
		fails(scif_vwriteto(couple->own, mem, length, 0, CACHED),
		      EFAULT, what));
}

/* Memory that the library may have kept, changed in every way. */
static bool changed_memory(size_t length)
{
	uint8_t *mem = map_at(PLACE, PROT_READ | PROT_WRITE);
	struct couple couple = couple_begin();
	bool ok;

	memcpy(mem, pattern_bytes(1, LARGE), LARGE);
	ok = carries(&couple, mem, length, "first") &&
	     carries(&couple, mem, length, "again");
	madvise(mem, LARGE, MADV_DONTNEED);
	ok = carries(&couple, mem, length, "emptied") && ok;
	map_at(mem, PROT_READ | PROT_WRITE);
	memcpy(mem, pattern_bytes(2, LARGE), LARGE);
	ok = carries(&couple, mem, length, "replaced") && ok;
	mprotect(mem, LARGE, PROT_READ);
	ok = refuses(&couple, mem, length, false, "read-only") &&
	     succeeds(scif_vwriteto(couple.own, mem, length, 0, CACHED), 0,
		      "from read-only") &&
	     ok;
	mprotect(mem, LARGE, PROT_NONE);
	ok = refuses(&couple, mem, length, true, "protected") && ok;
	mprotect(mem, LARGE, PROT_READ | PROT_WRITE);
	ok = carries(&couple, mem, length, "no longer protected") && ok;
	munmap(mem, LARGE);
	ok = refuses(&couple, mem, length, true, "unmapped") && ok;
	map_at(mem, PROT_READ | PROT_WRITE);
	memcpy(mem, pattern_bytes(3, LARGE), LARGE);
	ok = carries(&couple, mem, length, "mapped again") && works(&couple) &&
	     ok;
	couple_end(&couple);
	munmap(mem, LARGE);
	return ok;
}

static bool kept_memory(void)
{
	return changed_memory(SMALL) && changed_memory(LARGE);
}

/* More pieces of memory than the library keeps, in turn, and overlapping. */
static bool much_memory(void)
{
	struct couple couple = couple_begin();
	uint8_t *mem = fresh_pages(BYTES);
	unsigned int i;
	bool ok = true;

	memcpy(mem, pattern_bytes(4, BYTES), BYTES);
	for (i = 0; i < 150 && ok; i++)
		ok = carries(&couple, mem + i % 50 * 2 * PAGE + i,
			     i % 7 * PAGE + 1, "one of many");
	ok = works(&couple) && ok;
	couple_end(&couple);
	munmap(mem, BYTES);
	return ok;
}

/*
 * A window shows the pages it was made of, whatever is at their address now;
 * for one's own copies, too.
 */
static bool unmapped_window(void)
{
	uint8_t *mem = map_at(PLACE, PROT_READ | PROT_WRITE), *now;
	struct couple couple = couple_begin();
	int own = couple.own;
	off_t at = 2 * BYTES;
	uint64_t limit = deadline(), word = 0;
	bool ok;

	memcpy(mem, pattern_bytes(5, LARGE), LARGE);
	scif_register(own, mem, LARGE, at, RW, FIXED);
	ok = succeeds(scif_writeto(own, at, 64, 0, SYNC), 0, "mapped");
	munmap(mem, LARGE);
	ok = succeeds(scif_writeto(own, at, LARGE, 0, SYNC), 0, "unmapped") &&
	     succeeds(scif_readfrom(own, 0, LARGE, 0, SYNC), 0, "back") &&
	     check(!memcmp(couple.mem, pattern_bytes(5, LARGE), LARGE),
		   "the pages are what they were") &&
	     ok;
	now = map_at(mem, PROT_READ | PROT_WRITE);
	memset(now, 0x55, LARGE);
	memcpy(couple.mem, pattern_bytes(6, LARGE), LARGE);
	ok = succeeds(scif_writeto(own, 0, LARGE, 0, SYNC), 0, "other bytes") &&
	     succeeds(scif_readfrom(own, at, LARGE, 0, SYNC), 0, "into it") &&
	     succeeds(scif_fence_signal(own, at + 8, 0x99, 0, 0,
					SCIF_FENCE_INIT_SELF |
						SCIF_SIGNAL_LOCAL),
		      0, "signal") &&
	     check(now[0] == 0x55 && now[8] == 0x55 && now[LARGE - 1] == 0x55,
		   "what is there now was not touched") &&
	     ok;
	/* nothing but a look tells when the signal is there */
	do {
		memset(couple.mem, 0, LARGE);
		ok = succeeds(scif_writeto(own, at, LARGE, 0, SYNC), 0,
			      "from it") &&
		     succeeds(scif_readfrom(own, 0, LARGE, 0, SYNC), 0,
			      "back") &&
		     ok;
		memcpy(&word, couple.mem + 8, 8);
	} while (ok && word != 0x99 && now_ms() < limit);
	ok = check(word == 0x99, "the signal is 0x%llx",
		   (unsigned long long)word) &&
	     check(!memcmp(couple.mem + 16, pattern_bytes(6, LARGE) + 16,
			   LARGE - 16),
		   "the pages have what was copied") &&
	     works(&couple) && ok;
	couple_end(&couple);
	munmap(now, LARGE);
	return ok;
}

/* The owner unregisters and registers while the peer copies all the time. */
struct copier {
	struct couple *couple;
	atomic_bool stop;
	unsigned int other;
	atomic_uint good, refused;
};

static void *copy_always(void *argument)
{
	struct copier *copier = argument;
	int epd = copier->couple->own;

	while (!atomic_load(&copier->stop)) {
		if (!scif_writeto(epd, 0, 65536, 2 * BYTES, 0))
			atomic_fetch_add(&copier->good, 1);
		else if (errno == ENXIO)
			atomic_fetch_add(&copier->refused, 1);
		else
			copier->other++;
	}
	return NULL;
}

static bool unregister_in_use(void)
{
	struct couple couple = couple_begin();
	struct copier copier = { .couple = &couple };
	uint64_t end = deadline();
	unsigned int round = 0;
	pthread_t thread;
	bool ok = true;
	int i;

	pthread_create(&thread, NULL, copy_always, &copier);
	for (i = 0;
	     (i < 60 || (!atomic_load(&copier.good) && now_ms() < end)) && ok;
	     i++) {
		ok = peer_register(couple.other, BYTES, 65536, 2 * BYTES, RW,
				   FIXED) == 2 * BYTES;
		if (i % 3)
			sleep_ms(1);
		ok = ok && !peer_unregister(couple.other, 2 * BYTES, 65536);
	}
	/* Now there is none. */
	while (!atomic_load(&copier.refused) && now_ms() < end)
		relax(round++);
	atomic_store(&copier.stop, true);
	pthread_join(thread, NULL);
	check(ok, "round %d", i);
	ok = check(!copier.other && copier.good && copier.refused,
		   "%u copies, %u refused, %u other errors", copier.good,
		   copier.refused, copier.other) &&
	     works(&couple) && ok;
	couple_end(&couple);
	return ok;
}

/* More in a row than the library looks at the descriptor for. */
static bool copy_often(int epd)
{
	bool ok = true;
	int i;

	for (i = 0; i < 100 && ok; i++)
		ok = succeeds(scif_writeto(epd, 0, 8, 0, SYNC), 0, "copy");
	return ok;
}

static bool closed_after_copies(void)
{
	struct couple couple = couple_begin();
	bool ok;

	ok = copy_often(couple.own) &&
	     succeeds(scif_close(couple.own), 0, "close") &&
	     fails(scif_writeto(couple.own, 0, 8, 0, SYNC), EBADF, "closed");
	peer_op_epd(PEER_CLOSE, couple.other);
	munmap(couple.mem, BYTES);
	return ok;
}

/* A stranger takes the number, without a word to the library. */
static bool replaced_after_copies(void)
{
	struct couple couple = couple_begin();
	uint64_t end = deadline();
	int ends[2], ret;
	bool ok;

	if (pipe(ends))
		return check(false, "pipe");
	ok = copy_often(couple.own);
	dup2(ends[0], couple.own);
	do
		ret = scif_writeto(couple.own, 0, 8, 0, SYNC);
	while ((!ret || errno != ENOTTY) && now_ms() < end);
	ok = fails(ret, ENOTTY, "the stranger") && ok;
	close(couple.own);
	close(ends[0]);
	close(ends[1]);
	peer_op_epd(PEER_CLOSE, couple.other);
	munmap(couple.mem, BYTES);
	return ok;
}

/* Another number of the same endpoint, that the library has seen. */
static bool replaced_before_copies(void)
{
	struct couple couple = couple_begin();
	int other = dup(couple.own), ends[2];
	bool ok;

	if (pipe(ends))
		return check(false, "pipe");
	ok = succeeds(scif_writeto(other, 0, 8, 0, SYNC), 0, "the other");
	dup2(ends[0], other);
	ok = ok && copy_often(couple.own) &&
	     fails(scif_writeto(other, 0, 8, 0, SYNC), ENOTTY, "the stranger");
	close(other);
	close(ends[0]);
	close(ends[1]);
	couple_end(&couple);
	return ok;
}

const struct behaviour copy_cases[] = {
	{ 42, "checks: state, flags, local, remote window", order_of_checks },
	{ 43, "length 0: EINVAL", length_zero },
	{ 44, "out of range: ENXIO", out_of_range },
	{ 44, "adjacent windows, and a hole", adjacent },
	{ 45, "against the protection: EACCES", protection },
	{ 46, "bad memory: EFAULT", bad_memory },
	{ 46, "memory of several sizes, and remapped", memory_sizes },
	{ 46, "memory that was used before, and changed", kept_memory },
	{ 46, "memory of many places", much_memory },
	{ 44, "a window whose memory is unmapped, and replaced",
	  unmapped_window },
	{ 47, "unregister in use: ENXIO, nothing breaks", unregister_in_use },
	{ 55, "closed after many copies", closed_after_copies },
	{ 55, "after many copies, the number is a stranger's",
	  replaced_after_copies },
	{ 55, "a copy's number is a stranger's before many copies",
	  replaced_before_copies },
	{ 0, NULL, NULL }
};
