// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Copies one after the other, without SYNC, and in order.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
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
	FIXED = SCIF_MAP_FIXED
};

static bool asynchronous(void)
{
	struct couple couple = couple_begin();
	uint8_t bytes[PAGE];
	int i, mark;
	bool ok = true;

	memcpy(couple.mem, pattern_bytes(48, BYTES), BYTES);
	for (i = 0; i < 200 && ok; i++)
		ok = succeeds(scif_writeto(couple.own, i * 64, 64, i * 64,
					   i % 2 ? SCIF_RMA_ORDERED : 0),
			      0, "write");
	ok = succeeds(scif_writeto(couple.own, 65536, BYTES - 65536, 65536, 0),
		      0, "a long one") &&
	     succeeds(scif_fence_mark(couple.own, SCIF_FENCE_INIT_SELF, &mark),
		      0, "mark") &&
	     succeeds(scif_fence_wait(couple.own, mark), 0, "wait") && ok;
	peer_peek(BYTES - PAGE, bytes, PAGE);
	ok = check(!memcmp(bytes, couple.mem + BYTES - PAGE, PAGE), "bytes") &&
	     ok;
	peer_peek(64 * 199, bytes, 64);
	ok = check(!memcmp(bytes, couple.mem + 64 * 199, 64), "bytes 199") &&
	     ok;
	couple_end(&couple);
	return ok;
}

static bool waits_for_all(int own)
{
	int mark;

	return succeeds(scif_fence_mark(own, SCIF_FENCE_INIT_SELF, &mark), 0,
			"mark") &&
	       succeeds(scif_fence_wait(own, mark), 0, "wait");
}

/*
 * All combinations of flags; unknown ones are refused elsewhere. What one copy reads
 * is written by the next, which waits for it: copies need not be in order.
 */
static bool all_flags(void)
{
	enum { FLAGS = 16, LENGTH = 3 * 65536 + 100, AT = 4000 };
	struct couple couple = couple_begin();
	uint8_t *mem = fresh_pages(BYTES);
	int flags, own = couple.own;
	bool ok = true;

	for (flags = 0; flags < FLAGS && ok; flags++) {
		memcpy(mem, pattern_bytes(60 + flags, LENGTH), LENGTH);
		ok = succeeds(scif_vwriteto(own, mem, LENGTH, AT, flags), 0,
			      "vwriteto") &&
		     succeeds(scif_readfrom(own, AT, LENGTH, AT, flags), 0,
			      "readfrom") &&
		     waits_for_all(own) &&
		     succeeds(scif_writeto(own, AT, LENGTH, AT + LENGTH, flags),
			      0, "writeto") &&
		     waits_for_all(own);
		memset(mem, 0, LENGTH);
		ok = ok &&
		     succeeds(scif_vreadfrom(own, mem, LENGTH, AT + LENGTH,
					     flags),
			      0, "vreadfrom") &&
		     waits_for_all(own) &&
		     check(!memcmp(mem, pattern_bytes(60 + flags, LENGTH),
				   LENGTH),
			   "the bytes, flags 0x%x", flags);
	}
	couple_end(&couple);
	munmap(mem, BYTES);
	return ok;
}

/*
 * A long window and a short one beside it, on both sides: what nobody waits for
 * is left to others, but not what is short.
 */
struct row {
	struct couple couple;
	uint8_t *end;
	volatile uint64_t *last;
};

static struct row row_begin(void)
{
	struct row row = { .couple = couple_begin(), .end = fresh_pages(PAGE) };

	row.last = (uint64_t *)(row.end + PAGE - sizeof(*row.last));
	if (scif_register(row.couple.own, row.end, PAGE, BYTES, RW, FIXED) !=
		    BYTES ||
	    peer_register(row.couple.other, BYTES, PAGE, BYTES, RW, FIXED) !=
		    BYTES)
		bail("register: %s", strerror(errno));
	return row;
}

static void row_end(struct row *row)
{
	couple_end(&row->couple);
	munmap(row->end, PAGE);
}

static void fill(struct row *row, int value)
{
	memset(row->couple.mem, value, BYTES);
	memset(row->end, value, PAGE);
}

static bool is_all(const uint8_t *bytes, size_t length, uint8_t value)
{
	return bytes[0] == value && !memcmp(bytes, bytes + 1, length - 1);
}

/* What is copied last, first: there it would be missing. */
static bool all_is_there(const struct row *row, uint8_t value)
{
	const uint8_t *mem = row->couple.mem;

	return is_all(mem + BYTES - 65536, 65536, value) &&
	       is_all(mem, BYTES, value) && is_all(row->end, PAGE, value);
}

/* A copy from the peer's windows to one's own, by one side or the other. */
static bool last_comes_last(bool by_peer)
{
	struct row row = row_begin();
	struct peer_call call = { .op = PEER_WRITETO,
				  .epd = row.couple.other,
				  .length = BYTES + PAGE,
				  .flags = SCIF_RMA_ORDERED };
	uint64_t limit = deadline(), value;
	unsigned int i, round;
	bool ok = true;

	for (i = 1; i <= 5 && ok; i++) {
		fill(&row, i);
		memset(&value, i, sizeof(value));
		ok = succeeds(scif_writeto(row.couple.own, 0, BYTES + PAGE, 0,
					   SCIF_RMA_SYNC),
			      0, "write");
		fill(&row, 0);
		if (by_peer)
			peer_begin(&call);
		else
			ok = ok && succeeds(scif_readfrom(row.couple.own, 0,
							  BYTES + PAGE, 0,
							  SCIF_RMA_ORDERED),
					    0, "read");
		for (round = 0; *row.last != value && now_ms() < limit; round++)
			relax(round);
		atomic_thread_fence(memory_order_acquire);
		ok = check(*row.last == value && all_is_there(&row, i),
			   "round %u", i) &&
		     ok;
		if (by_peer)
			ok = succeeds(peer_finish(&call), 0, "peer's write") &&
			     ok;
	}
	row_end(&row);
	return ok;
}

static bool ordered_read(void)
{
	return last_comes_last(false);
}

static bool ordered_write(void)
{
	return last_comes_last(true);
}

/* The sum of what the devices of this test have counted under these names. */
static uint64_t counted(const char *names)
{
	const char *devices = getenv("SCIF_TEST_DEVICES");
	char pattern[256];
	uint64_t sum = 0;
	unsigned long one;
	glob_t files;
	FILE *file;
	size_t i;

	snprintf(pattern, sizeof(pattern),
		 "/sys/class/infiniband/%s/ports/1/hw_counters/%s",
		 devices ? devices : "*", names);
	sleep_ms(50); /* The counters may be as old as that. */
	if (glob(pattern, GLOB_BRACE, NULL, &files))
		return 0;
	for (i = 0; i < files.gl_pathc; i++) {
		file = fopen(files.gl_pathv[i], "re");
		if (file && fscanf(file, "%lu", &one) == 1)
			sum += one;
		if (file)
			fclose(file);
	}
	globfree(&files);
	return sum;
}

enum { WRITES = 50 };

/* How many requests short copies take; on rxe packets, which are as many. */
static int64_t requests(int epd, int flags)
{
	static const char names[] = "{rdma_writes,direct_writes,sent_pkts}";
	uint64_t before = counted(names);
	int i;

	for (i = 0; i < WRITES; i++)
		if (scif_writeto(epd, 0, 128, 0, flags | SCIF_RMA_SYNC))
			return -1;
	return counted(names) - before;
}

/*
 * Requests of one queue pair are executed in order, and the bytes of each in any:
 * the last line has to be a request of its own.
 */
static bool ordered_apart(void)
{
	struct couple couple = couple_begin();
	int64_t plain = requests(couple.own, 0);
	int64_t ordered = requests(couple.own, SCIF_RMA_ORDERED);

	couple_end(&couple);
	return check(plain >= WRITES && ordered >= plain + WRITES,
		     "%d copies: %lld requests, in order %lld", WRITES,
		     (long long)plain, (long long)ordered);
}

static bool handed_over(void)
{
	struct couple couple = couple_begin();
	uint64_t before = counted("engine_worker_runs");
	int i, mark, own = couple.own;
	bool ok = true;

	for (i = 0; i < 10 && ok; i++)
		ok = succeeds(scif_writeto(own, 0, BYTES, 0, 0), 0, "write") &&
		     succeeds(scif_readfrom(own, 0, BYTES, 0, 0), 0, "read");
	ok = ok &&
	     succeeds(scif_fence_mark(own, SCIF_FENCE_INIT_SELF, &mark), 0,
		      "mark") &&
	     succeeds(scif_fence_wait(own, mark), 0, "wait") &&
	     check(counted("engine_worker_runs") > before,
		   "no worker of the kernel's ran");
	couple_end(&couple);
	return ok;
}

/* But not if the program has said that its processor shall copy. */
static bool not_handed_over(void)
{
	struct couple couple = couple_begin();
	const char *path = getenv("MIC_DIRECT");
	int round, i, mark, own = couple.own;
	uint64_t before, runs = 1;
	bool ok;

	/* So that nothing else is left to do. */
	ok = succeeds(scif_readfrom(own, 0, BYTES, 0, SCIF_RMA_SYNC), 0, "one");
	/* A worker that runs for another connection, of the case before, counts, too. */
	for (round = 0; round < 5 && ok && runs; round++) {
		before = counted("engine_worker_runs");
		for (i = 0; i < 10 && ok; i++)
			ok = succeeds(scif_writeto(own, 0, BYTES, 0,
						   SCIF_RMA_USECPU),
				      0, "write");
		runs = counted("engine_worker_runs") - before;
	}
	/* Where the kernel copies all, its worker takes over what is long. */
	if (!path || !strcmp(path, "1"))
		ok = ok && check(!runs, "a worker of the kernel's ran");
	ok = succeeds(scif_fence_mark(own, SCIF_FENCE_INIT_SELF, &mark), 0,
		      "mark") &&
	     succeeds(scif_fence_wait(own, mark), 0, "wait") && ok;
	couple_end(&couple);
	return ok;
}

/* So much at one place after the other, and little memory. */
static uint8_t *long_pages(size_t length, size_t part)
{
	uint8_t *mem = mmap(NULL, length, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = memfd_create("long", MFD_CLOEXEC);
	size_t at;

	if (mem == MAP_FAILED || fd < 0 || ftruncate(fd, part))
		bail("memory: %s", strerror(errno));
	for (at = 0; at < length; at += part)
		if (mmap(mem + at, part, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			bail("mmap: %s", strerror(errno));
	close(fd);
	return mem;
}

/* Few marks might pass when the copy begins, and when it ends. */
enum { LONG_BYTES = 1 << 30, LONG_TRIES = 5, LONG_MARKS = 10 };

/* Both ends are of this process, and have a long window each. */
struct long_pair {
	int listener, one, two, mark;
	uint8_t *from, *to;
	atomic_bool begun, over;
	bool waits; /* for the mark, with another thread */
};

static bool long_begin(struct long_pair *pair)
{
	struct scif_port_id to = { .node = own_node }, from;

	pair->from = long_pages(LONG_BYTES, 4 << 20);
	pair->to = long_pages(LONG_BYTES, 4 << 20);
	pair->listener = scif_open();
	pair->one = scif_open();
	to.port = scif_bind(pair->listener, 0);
	scif_listen(pair->listener, 1);
	fcntl(pair->one, F_SETFL, O_NONBLOCK);
	return fails(scif_connect(pair->one, &to), EINPROGRESS, "connect") &&
	       succeeds(scif_accept(pair->listener, &from, &pair->two,
				    SCIF_ACCEPT_SYNC),
			0, "accept") &&
	       shows(pair->one, POLLOUT) &&
	       succeeds(scif_connect(pair->one, &to), from.port, "port") &&
	       succeeds(scif_register(pair->one, pair->from, LONG_BYTES, 0, RW,
				      FIXED),
			0, "from") &&
	       succeeds(scif_register(pair->two, pair->to, LONG_BYTES, 0, RW,
				      FIXED),
			0, "to");
}

static void long_end(struct long_pair *pair)
{
	scif_close(pair->one);
	scif_close(pair->two);
	scif_close(pair->listener);
	munmap(pair->from, LONG_BYTES);
	munmap(pair->to, LONG_BYTES);
}

/* By the kernel if it @waits for it, by the library otherwise. */
static int copy_long(struct long_pair *pair)
{
	int mark, ret;

	if (!pair->waits)
		return scif_writeto(pair->one, 0, LONG_BYTES, 0, SCIF_RMA_SYNC);
	ret = scif_writeto(pair->one, 0, LONG_BYTES, 0, 0);
	atomic_store(&pair->begun, true);
	if (!ret)
		ret = scif_fence_mark(pair->one, SCIF_FENCE_INIT_SELF, &mark);
	return ret ? ret : scif_fence_wait(pair->one, mark);
}

static void *copy_for_long(void *argument)
{
	struct long_pair *pair = argument;
	int ret;

	atomic_store(&pair->begun, !pair->waits);
	ret = copy_long(pair);
	atomic_store(&pair->over, true);
	return succeeds(ret, 0, "the long copy") ? pair : NULL;
}

/* For what @pair's mark says of the peer. */
static void *wait_for_mark(void *argument)
{
	struct long_pair *pair = argument;

	return succeeds(scif_fence_wait(pair->two, pair->mark), 0, "wait") ?
		       pair :
		       NULL;
}

/*
 * What the library's thread has to look up in the endpoint that copies, or while
 * another thread waits for that copy.
 */
static bool passes_meanwhile(struct long_pair *pair, bool *passed)
{
	unsigned int round = 0, marks;
	pthread_t thread, waiter = 0;
	void *copied, *waited = pair;
	bool ok = true;
	int mark;

	atomic_store(&pair->begun, false);
	atomic_store(&pair->over, false);
	pthread_create(&thread, NULL, copy_for_long, pair);
	while (!atomic_load(&pair->begun))
		relax(round++);
	if (pair->waits) {
		ok = succeeds(scif_fence_mark(pair->two, SCIF_FENCE_INIT_PEER,
					      &pair->mark),
			      0, "mark");
		pthread_create(&waiter, NULL, wait_for_mark, pair);
	}
	sleep_ms(10);
	for (marks = 0; ok && !atomic_load(&pair->over); marks++)
		ok = succeeds(scif_fence_mark(pair->two, SCIF_FENCE_INIT_PEER,
					      &mark),
			      0, "mark");
	*passed = marks >= LONG_MARKS;
	pthread_join(thread, &copied);
	if (pair->waits)
		pthread_join(waiter, &waited);
	return ok && copied && waited;
}

/* On a busy machine the mark may be late, but not each time. */
static bool goes_on(bool waits)
{
	struct long_pair pair = { .two = -1, .waits = waits };
	bool ok, passed = false;
	int i;

	ok = long_begin(&pair);
	for (i = 0; i < LONG_TRIES && ok && !passed; i++)
		ok = passes_meanwhile(&pair, &passed);
	ok = ok && check(passed, "marks come when the copy is over");
	long_end(&pair);
	return ok;
}

static bool goes_on_meanwhile(void)
{
	return goes_on(false);
}

static bool marks_beside_wait(void)
{
	return goes_on(true);
}

/* A byte from 0 of this side's window, at @mem, to 0 of the peer's, at @place. */
static bool sends_byte(struct couple *couple, uint8_t *mem, int64_t place,
		       uint8_t byte)
{
	uint8_t arrived = 0;

	mem[0] = byte;
	if (!succeeds(scif_writeto(couple->own, 0, 1, 0, SCIF_RMA_SYNC), 0,
		      "write"))
		return false;
	peer_peek(place, &arrived, 1);
	return check(arrived == byte, "%u instead of %u", arrived, byte);
}

/* The own one goes, and another one takes its place. */
static bool other_own(struct couple *couple)
{
	uint8_t *other = fresh_pages(PAGE);
	int own = couple->own, flags = SCIF_RMA_SYNC;
	bool ok;

	ok = sends_byte(couple, couple->mem, 0, 1) &&
	     sends_byte(couple, couple->mem, 0, 2) &&
	     fails(scif_writeto(own, BYTES - 1, 2, 0, flags), ENXIO, "end") &&
	     succeeds(scif_unregister(own, 0, BYTES), 0, "unregister") &&
	     fails(scif_writeto(own, 0, 1, 0, flags), ENXIO, "own hole") &&
	     succeeds(scif_register(own, other, PAGE, 0, SCIF_PROT_READ, FIXED),
		      0, "register") &&
	     sends_byte(couple, other, 0, 3) &&
	     sends_byte(couple, other, 0, 4) &&
	     fails(scif_readfrom(own, 0, 1, 0, flags), EACCES, "read") &&
	     fails(scif_writeto(own, PAGE - 1, 2, 0, flags), ENXIO,
		   "new end") &&
	     succeeds(scif_unregister(own, 0, PAGE), 0, "unregister") &&
	     succeeds(scif_register(own, couple->mem, BYTES, 0, RW, FIXED), 0,
		      "register again") &&
	     sends_byte(couple, couple->mem, 0, 5);
	munmap(other, PAGE);
	return ok;
}

static bool other_peer(struct couple *couple)
{
	int own = couple->own, other = couple->other, flags = SCIF_RMA_SYNC;
	uint8_t before;

	return sends_byte(couple, couple->mem, 0, 6) &&
	       sends_byte(couple, couple->mem, 0, 7) &&
	       fails(scif_writeto(own, 0, 2, BYTES - 1, flags), ENXIO, "end") &&
	       succeeds(peer_unregister(other, 0, BYTES), 0, "unregister") &&
	       fails(scif_writeto(own, 0, 1, 0, flags), ENXIO, "its hole") &&
	       succeeds(peer_register(other, BYTES, PAGE, 0, SCIF_PROT_WRITE,
				      FIXED),
			0, "register") &&
	       sends_byte(couple, couple->mem, BYTES, 8) &&
	       sends_byte(couple, couple->mem, BYTES, 9) &&
	       fails(scif_readfrom(own, 0, 1, 0, flags), EACCES, "read") &&
	       (peer_peek(0, &before, 1), check(before == 7, "the old memory"));
}

/* The windows of one copy, and others in their place before the next. */
static bool other_windows(void)
{
	struct couple couple = couple_begin();
	bool ok = other_own(&couple) && other_peer(&couple);

	couple_end(&couple);
	return ok;
}

const struct behaviour order_cases[] = {
	{ 44, "other windows in the place of those of the last copy",
	  other_windows },
	{ 48, "copies without SYNC", asynchronous },
	{ 48, "copies with all combinations of flags", all_flags },
	{ 48, "in order: the last line is copied apart", ordered_apart },
	{ 48, "in order: the last line of a read comes last", ordered_read },
	{ 48, "in order: the last line of a write comes last", ordered_write },
	{ 0, NULL, NULL }
};

const struct behaviour handed_cases[] = {
	{ 48, "long copies without SYNC are left to the kernel", handed_over },
	{ 48, "long copies with USECPU are not", not_handed_over },
	{ 48, "long copies with SYNC let a mark pass", goes_on_meanwhile },
	{ 48, "long copies that are waited for let a mark pass",
	  marks_beside_wait },
	{ 0, NULL, NULL }
};
