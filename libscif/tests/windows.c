// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Registering and unregistering.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "behaviour.h"
#include "clock.h"
#include "pattern.h"
#include "peer.h"
#include "process.h"
#include "tap.h"

enum {
	PAGE = 4096,
	RW = SCIF_PROT_READ | SCIF_PROT_WRITE,
	FIXED = SCIF_MAP_FIXED
};

/* All that is wrong whatever the state. */
static bool bad_arguments(int epd, uint8_t *mem, int error)
{
	return fails(scif_register(epd, mem, PAGE, 0, RW, 0x20), error,
		     "flags 0x20") &&
	       fails(scif_register(epd, mem, PAGE, 0, RW, 1), error,
		     "flags 1") &&
	       fails(scif_register(epd, mem + 8, PAGE, 0, RW, 0), error,
		     "address unaligned") &&
	       fails(scif_register(epd, mem, PAGE + 1, 0, RW, 0), error,
		     "length unaligned") &&
	       fails(scif_register(epd, mem, 0, 0, RW, 0), error, "length 0") &&
	       fails(scif_register(epd, mem, PAGE, 0, 4, 0), error, "prot 4") &&
	       fails(scif_register(epd, mem, PAGE, -PAGE, RW, FIXED), error,
		     "offset negative") &&
	       fails(scif_register(epd, mem, PAGE, 8, RW, FIXED), error,
		     "offset unaligned");
}

static bool register_invalid(void)
{
	uint8_t *mem = fresh_pages(2 * PAGE);
	int epd = scif_open(), own, other;
	bool ok;

	ok = bad_arguments(epd, mem, EINVAL) &&
	     fails(scif_register(epd, mem, PAGE, 0, RW, 0), ENOTCONN, "good");
	scif_close(epd);
	connect_pair(&own, &other);
	ok = bad_arguments(own, mem, EINVAL) && ok;
	peer_op_epd(PEER_CLOSE, other);
	ok = shows(own, POLLHUP) && bad_arguments(own, mem, EINVAL) &&
	     fails(scif_register(own, mem, PAGE, 0, RW, 0), ECONNRESET,
		   "the peer is gone") &&
	     ok;
	scif_close(own);
	munmap(mem, 2 * PAGE);
	return ok;
}

static bool register_fixed(void)
{
	uint8_t *mem = fresh_pages(4 * PAGE);
	off_t base = 0x100000, chosen;
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	ok = succeeds(scif_register(own, mem, 2 * PAGE, base, RW, FIXED), base,
		      "register") &&
	     fails(scif_register(own, mem, PAGE, base, RW, FIXED), EADDRINUSE,
		   "the same") &&
	     fails(scif_register(own, mem, 4 * PAGE, base - PAGE, RW, FIXED),
		   EADDRINUSE, "around it") &&
	     fails(scif_register(own, mem, 2 * PAGE, base + PAGE, RW, FIXED),
		   EADDRINUSE, "its second half");
	ok = succeeds(scif_register(own, mem, PAGE, base + 2 * PAGE, RW, FIXED),
		      base + 2 * PAGE, "next to it") &&
	     ok;
	ok = succeeds(scif_register(own, mem, PAGE, 0, RW, FIXED), 0, "at 0") &&
	     ok;
	chosen = scif_register(own, mem, PAGE, base, RW, 0);
	ok = check(chosen > 0 && chosen % PAGE == 0 &&
			   (chosen + PAGE <= base || chosen >= base + 3 * PAGE),
		   "chosen 0x%llx", (long long)chosen) &&
	     ok;
	close_pair(own, other);
	munmap(mem, 4 * PAGE);
	return ok;
}

struct locking {
	int epd;
	int other;
	int second; /* another endpoint */
	int second_other;
	uint8_t *mem;
	bool (*run)(struct locking *locking);
	bool ok;
};

static bool lock_too_much(struct locking *locking)
{
	return fails(scif_register(locking->epd, locking->mem, 64 << 20, 0, RW,
				   0),
		     EAGAIN, "64 MiB of 16");
}

/*
 * The same 6 MiB of 16 five times, and once more when they were unregistered but
 * for one.
 */
static bool lock_again(struct locking *locking)
{
	const size_t bytes = 6 << 20;
	off_t offsets[5];
	bool ok = true;
	int i;

	for (i = 0; i < 5 && ok; i++) {
		offsets[i] = scif_register(locking->epd, locking->mem, bytes, 0,
					   RW, 0);
		ok = check(offsets[i] > 0, "window %d: %s", i, strerror(errno));
	}
	for (i = 1; i < 5 && ok; i++)
		ok = succeeds(scif_unregister(locking->epd, offsets[i], bytes),
			      0, "unregister");
	return ok && check(scif_register(locking->epd, locking->mem, bytes, 0,
					 RW, 0) > 0,
			   "again: %s", strerror(errno));
}

static void *continue_later(void *unused)
{
	sleep_ms(300);
	peer_continue();
	return unused;
}

/*
 * The peer of the window at @epd takes its time to say that it does not use what was
 * unregistered.
 */
static bool lock_released_at(struct locking *locking, int epd)
{
	const size_t bytes = 12 << 20;
	uint64_t begin, end = deadline();
	pthread_t thread;
	off_t offset;
	bool ok;

	offset = scif_register(epd, locking->mem, bytes, 0, RW, 0);
	ok = check(offset > 0, "12 MiB of 16: %s", strerror(errno));
	peer_stop();
	ok = succeeds(scif_unregister(epd, offset, bytes), 0, "unregister") &&
	     ok;
	pthread_create(&thread, NULL, continue_later, NULL);
	do { /* it waits for two seconds, in which a slow machine does nothing */
		begin = now_ms();
		offset = scif_register(locking->epd, locking->mem + (32 << 20),
				       bytes, 0, RW, 0);
	} while (offset < 0 && errno == EAGAIN && now_ms() - begin >= 2000 &&
		 now_ms() < end);
	ok = check(offset > 0, "12 MiB more: %s", strerror(errno)) && ok;
	pthread_join(thread, NULL);
	return ok;
}

static bool lock_released(struct locking *locking)
{
	return lock_released_at(locking, locking->epd);
}

static bool lock_released_elsewhere(struct locking *locking)
{
	return lock_released_at(locking, locking->second);
}

/* A thread of its own, which loses the capability that lifts the limit. */
static void *without_capability(void *argument)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3
	};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	struct locking *locking = argument;

	syscall(SYS_capget, &head, data);
	data[0].effective &= ~(1U << CAP_IPC_LOCK);
	syscall(SYS_capset, &head, data);
	locking->ok = locking->run(locking);
	return NULL;
}

static bool carries(int epd, uint8_t *mem, size_t length)
{
	uint8_t *other = fresh_pages(length);
	bool ok;

	memcpy(mem, pattern_bytes(36, length), length);
	ok = succeeds(scif_vwriteto(epd, mem, length, 0, SCIF_RMA_SYNC), 0,
		      "vwriteto") &&
	     succeeds(scif_vreadfrom(epd, other, length, 0, SCIF_RMA_SYNC), 0,
		      "vreadfrom") &&
	     check(!memcmp(other, mem, length), "the bytes");
	munmap(other, length);
	return ok;
}

/* Copies from and to memory that cannot be locked any more. */
static bool copy_unlocked(struct locking *locking)
{
	enum { WINDOW = 6 << 20, MOST = 12 << 20 };
	uint8_t *mem = locking->mem;
	off_t offset;

	peer_register(locking->other, 0, WINDOW, 0, RW, FIXED);
	offset = scif_register(locking->epd, mem, MOST, 0, RW, 0);
	return check(offset > 0, "12 MiB of 16: %s", strerror(errno)) &&
	       carries(locking->epd, mem, WINDOW);
}

/* Not even the library's own buffer can be locked; and then it can. */
static bool copy_without_buffer(struct locking *locking)
{
	uint8_t *mem = locking->mem;
	uint64_t end = deadline();
	off_t first = 0, offset;
	unsigned int round = 0;
	size_t bytes;
	bool ok;
	int ret;

	peer_register(locking->other, 0, PAGE, 0, RW, FIXED);
	for (bytes = 8 << 20; bytes >= PAGE; bytes /= 2) {
		while ((offset = scif_register(locking->epd, mem, bytes, 0, RW,
					       0)) > 0) {
			mem += bytes;
			first = first ? first : offset;
		}
	}
	ok = fails(scif_vwriteto(locking->epd, mem, 8, 0, SCIF_RMA_SYNC),
		   EAGAIN, "nothing can be locked") &&
	     succeeds(scif_unregister(locking->epd, first, 8 << 20), 0,
		      "unregister");
	do {
		relax(round++);
		ret = scif_vwriteto(locking->epd, mem, 8, 0, SCIF_RMA_SYNC);
	} while (ret && errno == EAGAIN && now_ms() < end);
	return ok && carries(locking->epd, mem, PAGE);
}

/* What is only kept for copies that may come again makes room for the library's own. */
static bool copy_despite_kept(struct locking *locking)
{
	static const size_t sizes[] = { 4 << 20, 1 << 20, 64 << 10 };
	enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), BUFFER = 128 << 10 };
	const uint8_t *end = locking->mem + (24 << 20);
	uint8_t *mem = locking->mem;
	struct rlimit limit;
	bool ok = true;
	int i;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	peer_register(locking->other, 0, sizes[0], 0, RW, FIXED);
	peer_register(locking->second_other, 0, PAGE, 0, RW, FIXED);
	for (i = 0; i < SIZES; i++)
		while (ok && mem < end &&
		       pinned() + sizes[i] <= limit.rlim_cur) {
			ok = succeeds(scif_vwriteto(locking->epd, mem, sizes[i],
						    0,
						    SCIF_RMA_SYNC |
							    SCIF_RMA_USECACHE),
				      0, "a copy that is kept");
			mem += sizes[i];
		}
	return ok &&
	       check(pinned() + BUFFER > limit.rlim_cur, "%zu of %zu pinned",
		     pinned(), (size_t)limit.rlim_cur) &&
	       succeeds(scif_vwriteto(locking->second, mem, 8, 0,
				      SCIF_RMA_SYNC),
			0, "a copy over another connection");
}

/* @room: bytes beside what is locked; 0: not even that. */
static bool with_limit_of(size_t room, bool (*run)(struct locking *locking))
{
	struct locking locking = {
		.mem = fresh_pages(64 << 20),
		.run = run,
	};
	struct rlimit limit, small;
	pthread_t thread;

	connect_pair(&locking.epd, &locking.other);
	connect_pair(&locking.second, &locking.second_other);
	getrlimit(RLIMIT_MEMLOCK, &limit);
	small = limit;
	small.rlim_cur = room ? pinned() + room : 0;
	if (small.rlim_max < small.rlim_cur)
		small.rlim_max = small.rlim_cur;
	if (setrlimit(RLIMIT_MEMLOCK, &small))
		bail("setrlimit: %s", strerror(errno));
	pthread_create(&thread, NULL, without_capability, &locking);
	pthread_join(thread, NULL);
	setrlimit(RLIMIT_MEMLOCK, &limit);
	close_pair(locking.epd, locking.other);
	close_pair(locking.second, locking.second_other);
	munmap(locking.mem, 64 << 20);
	return locking.ok;
}

static bool with_limit(bool (*run)(struct locking *locking))
{
	return with_limit_of(16 << 20, run);
}

static bool lock_nothing(struct locking *locking)
{
	return fails(scif_register(locking->epd, locking->mem, PAGE, 0, RW, 0),
		     EAGAIN, "register");
}

static bool register_nothing(void)
{
	return with_limit_of(0, lock_nothing);
}

/* A copy that is over keeps no memory, though nobody has waited for it. */
static bool lock_after_copy(struct locking *locking)
{
	enum { COPY = 6 << 20, MOST = 12 << 20 };
	uint64_t end = deadline(), found = 0;
	unsigned int round = 0;
	off_t offset;
	bool ok;

	memset(locking->mem, 0x5a, COPY);
	peer_register(locking->other, 0, COPY, 0, RW, FIXED);
	ok = succeeds(scif_vwriteto(locking->epd, locking->mem, COPY, 0, 0), 0,
		      "a copy");
	while (ok && found != 0x5a5a5a5a5a5a5a5a && now_ms() < end) {
		relax(round++);
		peer_peek(COPY - 8, &found, 8);
	}
	sleep_ms(10); /* it is done, and then complete */
	offset = scif_register(locking->epd, locking->mem + (32 << 20), MOST, 0,
			       RW, 0);
	return check(offset > 0, "12 MiB of 16: %s", strerror(errno)) && ok;
}

static bool register_after_copy(void)
{
	return with_limit(lock_after_copy);
}

static bool register_limit(void)
{
	return with_limit(lock_too_much);
}

/*
 * Where memory can be watched. (On rxe, a thread with other capabilities than
 * the process had could not even post a request.)
 */
static bool register_once(void)
{
	return with_limit(lock_again);
}

static bool copies_beside_kept(void)
{
	return with_limit(copy_despite_kept);
}

static bool register_released(void)
{
	return with_limit(lock_released);
}

static bool register_released_elsewhere(void)
{
	return with_limit(lock_released_elsewhere);
}

static bool copies_over_limit(void)
{
	return with_limit(copy_unlocked) && with_limit(copy_without_buffer);
}

/* The memory of a window does not stay locked when its endpoint is closed. */
static bool close_releases(void)
{
	const size_t bytes = 12 << 20;
	uint8_t *mem = fresh_pages(bytes);
	int own, other;
	size_t before;
	off_t offset;
	bool ok;

	connect_pair(&own, &other);
	before = pinned();
	offset = scif_register(own, mem, bytes, 0, RW, 0);
	ok = check(offset > 0, "register: %s", strerror(errno)) &&
	     /* what was there before may have been about to go */
	     check(pinned() >= bytes, "%zu bytes pinned, were %zu", pinned(),
		   before);
	close_pair(own, other);
	ok = unpins(before) && ok;
	munmap(mem, bytes);
	return ok;
}

/* Other memory at the same address is other memory. */
static bool register_replaced(void)
{
	uint8_t *mem = fresh_pages(4 * PAGE), bytes[PAGE];
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	peer_register(other, 0, 4 * PAGE, 0, RW, FIXED);
	memset(mem, 1, 4 * PAGE);
	scif_register(own, mem, 4 * PAGE, 0, RW, FIXED);
	if (mmap(mem, 4 * PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != mem)
		bail("mmap: %s", strerror(errno));
	memset(mem, 2, 4 * PAGE);
	scif_register(own, mem, 4 * PAGE, 4 * PAGE, RW, FIXED);
	scif_register(own, mem, 4 * PAGE, 8 * PAGE, RW, FIXED);
	ok = succeeds(scif_writeto(own, 0, PAGE, 0, 0), 0, "old") &&
	     succeeds(scif_writeto(own, 4 * PAGE, PAGE, PAGE, 0), 0, "new") &&
	     succeeds(scif_unregister(own, 4 * PAGE, 4 * PAGE), 0, "one") &&
	     succeeds(scif_writeto(own, 8 * PAGE, PAGE, 2 * PAGE,
				   SCIF_RMA_SYNC),
		      0, "the other");
	peer_peek(0, bytes, PAGE);
	ok = check(bytes[0] == 1 && bytes[PAGE - 1] == 1, "old bytes") && ok;
	peer_peek(PAGE, bytes, PAGE);
	ok = check(bytes[0] == 2 && bytes[PAGE - 1] == 2, "new bytes") && ok;
	peer_peek(2 * PAGE, bytes, PAGE);
	ok = check(bytes[0] == 2 && bytes[PAGE - 1] == 2, "once more") && ok;
	close_pair(own, other);
	munmap(mem, 4 * PAGE);
	return ok;
}

static bool register_unmapped(void)
{
	uint8_t *mem = fresh_pages(3 * PAGE);
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	mprotect(mem, PAGE, PROT_READ);
	/* Only now: what is free, the next mmap() takes. */
	munmap(mem + 2 * PAGE, PAGE);
	ok = fails(scif_register(own, mem + PAGE, 2 * PAGE, 0, RW, 0), EFAULT,
		   "a hole") &&
	     fails(scif_register(own, NULL, PAGE, 0, RW, 0), EFAULT, "NULL") &&
	     fails(scif_register(own, (void *)-PAGE, PAGE, 0, SCIF_PROT_READ,
				 0),
		   EFAULT, "the last page") &&
	     fails(scif_register(own, (void *)(1ULL << 63), PAGE, 0, RW, 0),
		   EFAULT, "nobody's address") &&
	     fails(scif_register(own, mem, 2 * PAGE, 0, RW, 0), EFAULT,
		   "read-only, to write") &&
	     fails(scif_register(own, mem, PAGE, 0, SCIF_PROT_WRITE, 0), EFAULT,
		   "read-only, only to write") &&
	     check(scif_register(own, mem, PAGE, 0, SCIF_PROT_READ, 0) > 0,
		   "read-only, to read: %s", strerror(errno));
	close_pair(own, other);
	munmap(mem, 2 * PAGE);
	return ok;
}

static bool register_no_rights(void)
{
	uint8_t *mem = fresh_pages(PAGE);
	int own, other;
	off_t offset;
	bool ok;

	connect_pair(&own, &other);
	offset = scif_register(own, mem, PAGE, 0, 0, 0);
	ok = check(offset > 0, "offset %lld", (long long)offset) &&
	     succeeds(scif_unregister(own, offset, PAGE), 0, "unregister");
	close_pair(own, other);
	munmap(mem, PAGE);
	return ok;
}

static bool unregister_invalid(void)
{
	int epd = scif_open(), own, other;
	bool ok;

	ok = fails(scif_unregister(epd, 0, 0), EINVAL, "length 0") &&
	     fails(scif_unregister(epd, 8, PAGE), EINVAL, "unaligned") &&
	     fails(scif_unregister(epd, 0, 100), EINVAL, "length 100") &&
	     fails(scif_unregister(epd, 0, PAGE), ENOTCONN, "unconnected");
	scif_close(epd);
	connect_pair(&own, &other);
	ok = fails(scif_unregister(own, 0, 0), EINVAL, "length 0") && ok;
	close_pair(own, other);
	return ok;
}

static bool unregister_ranges(void)
{
	uint8_t *mem = fresh_pages(6 * PAGE);
	off_t base = 0x200000;
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	scif_register(own, mem, 2 * PAGE, base, RW, FIXED);
	scif_register(own, mem + 2 * PAGE, 2 * PAGE, base + 2 * PAGE, RW,
		      FIXED);
	scif_register(own, mem, PAGE, base + 8 * PAGE, RW, FIXED);
	ok = fails(scif_unregister(own, base, PAGE), EINVAL, "half") &&
	     fails(scif_unregister(own, base + PAGE, 3 * PAGE), EINVAL,
		   "one and a half") &&
	     fails(scif_unregister(own, base - PAGE, 2 * PAGE), EINVAL,
		   "before, and half") &&
	     fails(scif_unregister(own, base + 5 * PAGE, PAGE), ENXIO,
		   "nothing") &&
	     fails(scif_unregister(own, base, 9 * PAGE), ENXIO, "a hole");
	/* Nothing was unregistered by these. */
	ok = fails(scif_register(own, mem, 4 * PAGE, base, RW, FIXED),
		   EADDRINUSE, "still there") &&
	     succeeds(scif_unregister(own, base, 4 * PAGE), 0, "both") && ok;
	ok = succeeds(scif_register(own, mem, 4 * PAGE, base, RW, FIXED), base,
		      "again") &&
	     succeeds(scif_unregister(own, base + 8 * PAGE, PAGE), 0,
		      "the other") &&
	     fails(scif_unregister(own, base + 8 * PAGE, PAGE), ENXIO,
		   "twice") &&
	     ok;
	close_pair(own, other);
	munmap(mem, 6 * PAGE);
	return ok;
}

/* Many windows, so that the directory has to grow, and their bytes. */
static bool many_windows(void)
{
	enum { COUNT = 300 };
	uint8_t *mem = fresh_pages(COUNT * PAGE);
	uint32_t value;
	int own, other, i;
	bool ok = true;
	off_t offset;

	connect_pair(&own, &other);
	offset = scif_register(own, mem, COUNT * PAGE, 0, RW, 0);
	for (i = 0; i < COUNT && ok; i++) {
		ok = peer_register(other, i * PAGE, PAGE, 2 * i * PAGE, RW,
				   FIXED) == 2 * i * PAGE;
		if (i % 50 == 0)
			ok = ok &&
			     succeeds(scif_writeto(own, offset, PAGE,
						   2 * i * PAGE, SCIF_RMA_SYNC),
				      0, "meanwhile");
	}
	for (i = 0; i < COUNT && ok; i++) {
		memcpy(mem + i * PAGE, &i, sizeof(i));
		ok = succeeds(scif_writeto(own, offset + i * PAGE, PAGE,
					   2 * i * PAGE, 0),
			      0, "write") &&
		     fails(scif_writeto(own, offset, PAGE, (2 * i + 1) * PAGE,
					0),
			   ENXIO, "between");
	}
	ok = succeeds(scif_readfrom(own, offset, 1, 0, SCIF_RMA_SYNC), 0,
		      "read") &&
	     ok;
	for (i = 0; i < COUNT && ok; i++) {
		peer_peek(i * PAGE, &value, sizeof(value));
		ok = check(value == (uint32_t)i, "window %d has %u", i, value);
	}
	close_pair(own, other);
	munmap(mem, COUNT * PAGE);
	return ok;
}

const struct behaviour window_cases[] = {
	{ 34, "register with bad arguments: EINVAL first", register_invalid },
	{ 35, "register over a window: EADDRINUSE", register_fixed },
	{ 36, "register over the limit: EAGAIN", register_limit },
	{ 36, "register where nothing may be locked: EAGAIN",
	  register_nothing },
	{ 36, "windows of memory that was replaced", register_replaced },
	{ 37, "register what is not mapped: EFAULT", register_unmapped },
	{ 38, "register without rights", register_no_rights },
	{ 39, "unregister with bad arguments: EINVAL first",
	  unregister_invalid },
	{ 40, "unregister whole windows only", unregister_ranges },
	{ 40, "300 windows", many_windows },
	{ 56, "a close releases the windows", close_releases },
	{ 0, NULL, NULL }
};

const struct behaviour watched_cases[] = {
	{ 36, "memory of several windows is locked once", register_once },
	{ 36, "what is kept for copies is not in the way of others",
	  copies_beside_kept },
	{ 36, "copies of memory over the limit", copies_over_limit },
	{ 36, "register after a copy that nobody waited for",
	  register_after_copy },
	{ 36, "register what a peer is about to let go of", register_released },
	{ 36, "register what a peer of another endpoint lets go of",
	  register_released_elsewhere },
	{ 0, NULL, NULL }
};
