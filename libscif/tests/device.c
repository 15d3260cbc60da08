// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Device memory: windows of it can be mapped from another machine, too, and are like
 * all others otherwise.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "behaviour.h"
#include "clock.h"
#include "memory.h"
#include "pattern.h"
#include "peer.h"
#include "tap.h"

enum {
	PAGE = 4096,
	BYTES = 16 * PAGE,
	TIMES = 200,
	LONG = 256 << 10, /* more than is copied through a buffer */
	MANY = 48,	  /* together more than a machine has in a region */
	MANY_BYTES = 1 << 20,
	RW = SCIF_PROT_READ | SCIF_PROT_WRITE,
	FIXED = SCIF_MAP_FIXED,
	SYNC = SCIF_RMA_SYNC
};

static uint8_t *allocate(int epd, size_t length)
{
	uint8_t *mem = scif_alloc_dm(epd, length);

	if (mem == SCIF_ALLOC_FAILED)
		bail("scif_alloc_dm: %s", strerror(errno));
	return mem;
}

/* The peer's: an address there. */
static int64_t peer_allocate(int epd, size_t length)
{
	struct peer_call call = { .op = PEER_ALLOC,
				  .epd = epd,
				  .length = length };

	if (peer_do(&call) == -1)
		bail("the peer's scif_alloc_dm: %s", strerror(call.error));
	return call.ret;
}

static bool peer_free(int64_t addr)
{
	struct peer_call call = { .op = PEER_FREE, .local = addr };

	return succeeds(peer_do(&call), 0, "the peer's scif_free_dm");
}

static void peer_show(int epd, int64_t addr, size_t length, off_t offset)
{
	struct peer_call call = { .op = PEER_REGISTER_AT,
				  .epd = epd,
				  .local = addr,
				  .length = length,
				  .remote = offset,
				  .prot = RW,
				  .flags = FIXED };

	if (peer_do(&call) != offset)
		bail("the peer's scif_register: %s", strerror(call.error));
}

static bool peer_has(int64_t addr, uint64_t value, const char *what)
{
	struct peer_call call = { .op = PEER_LOAD, .local = addr, .length = 8 };
	uint64_t found;

	peer_do(&call);
	memcpy(&found, call.data, 8);
	return check(found == value, "%s: the peer has 0x%llx, not 0x%llx",
		     what, (unsigned long long)found,
		     (unsigned long long)value);
}

static void peer_put(int64_t addr, uint64_t value)
{
	struct peer_call call = { .op = PEER_STORE,
				  .local = addr,
				  .length = 8 };

	memcpy(call.data, &value, 8);
	peer_do(&call);
}

static bool alloc_fails(int epd, size_t length, int error, const char *what)
{
	void *mem = scif_alloc_dm(epd, length);

	return fails(mem == SCIF_ALLOC_FAILED ? -1 : 0, error, what);
}

static bool arguments(void)
{
	int own, other, epd = scif_open();
	uint8_t *mem;
	bool ok;

	connect_pair(&own, &other);
	mem = allocate(own, BYTES);
	ok = alloc_fails(epd, 0, EINVAL, "length 0, unconnected") &&
	     alloc_fails(epd, PAGE, ENOTCONN, "unconnected") &&
	     alloc_fails(own, 0, EINVAL, "length 0") &&
	     alloc_fails(own, 100, EINVAL, "length 100") &&
	     alloc_fails(-1, PAGE, EBADF, "no endpoint") &&
	     check(!((uintptr_t)mem % PAGE), "it does not begin with a page") &&
	     check(all_are(mem, BYTES, 0), "it is not zero") &&
	     fails(scif_free_dm(mem + PAGE), EINVAL, "free the middle") &&
	     fails(scif_free_dm(&own), EINVAL, "free what is not") &&
	     succeeds(scif_free_dm(mem), 0, "free") &&
	     fails(scif_free_dm(mem), EINVAL, "again");
	mem = allocate(own, PAGE);
	scif_close(epd);
	close_pair(own, other);
	memset(mem, 1, PAGE);
	return succeeds(scif_free_dm(mem), 0, "free after the close") && ok;
}

/* A look, not a fault, which would be logged. */
static bool child_has_none(volatile uint64_t *word)
{
	unsigned char resident;
	pid_t child = fork();
	int status;

	if (!child)
		_exit(mincore((void *)word, PAGE, &resident) == -1 &&
		      errno == ENOMEM);
	waitpid(child, &status, 0);
	return check(WIFEXITED(status) && WEXITSTATUS(status) == 1,
		     "the child ends with 0x%x", status);
}

static bool not_inherited(void)
{
	volatile uint64_t *mem;
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	mem = (volatile uint64_t *)allocate(own, PAGE);
	mem[0] = 0x57;
	ok = child_has_none(mem) && check(mem[0] == 0x57, "nor the parent");
	close_pair(own, other);
	return succeeds(scif_free_dm((void *)mem), 0, "free") && ok;
}

/* From a part of it into the peer's memory and back, with each function. */
static bool copies_of(struct couple *couple, uint8_t *mem, size_t length,
		      int flags)
{
	const uint8_t *bytes = pattern_bytes(57 + length, length);
	const off_t window = 8 * COUPLE_BYTES;
	static uint8_t found[LONG];
	int own = couple->own;
	bool ok;

	memcpy(mem + 100, bytes, length);
	ok = succeeds(scif_writeto(own, window + 100, length, 40, flags), 0,
		      "writeto");
	peer_peek(40, found, length);
	ok = ok && check(!memcmp(found, bytes, length), "what was written");
	memset(mem + 100, 0, length);
	ok = ok &&
	     succeeds(scif_readfrom(own, window + 200, length, 40, flags), 0,
		      "readfrom") &&
	     check(!memcmp(mem + 200, bytes, length), "what was read") &&
	     succeeds(scif_vwriteto(own, mem + 200, length, 0, flags), 0,
		      "vwriteto");
	peer_peek(0, found, length);
	memset(mem + 200, 0, length);
	return ok && check(!memcmp(found, bytes, length), "vwriteto's") &&
	       succeeds(scif_vreadfrom(own, mem + 300, length, 0, flags), 0,
			"vreadfrom") &&
	       check(!memcmp(mem + 300, bytes, length), "vreadfrom's");
}

/* A value in one's own window, and one in the peer's. */
static bool signals(struct couple *couple, const uint8_t *mem)
{
	const volatile uint64_t *word = (const volatile uint64_t *)(mem + 8);
	const uint64_t end = deadline();
	uint64_t found = 0;
	bool ok;

	ok = succeeds(scif_fence_signal(
			      couple->own, 8 * COUPLE_BYTES + 8, 0x57, 16, 0x58,
			      SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL |
				      SCIF_SIGNAL_REMOTE),
		      0, "signal");
	while (ok && (*word != 0x57 || found != 0x58)) {
		peer_peek(16, &found, 8);
		ok = check(now_ms() < end, "it does not come");
	}
	return ok;
}

static bool copies(void)
{
	static const size_t lengths[] = { 1, 8, 5000, LONG };
	struct couple couple = couple_begin();
	uint8_t *mem = allocate(couple.own, LONG + PAGE);
	unsigned int i;
	bool ok = true;

	if (scif_register(couple.own, mem, LONG + PAGE, 8 * COUPLE_BYTES, RW,
			  FIXED) != 8 * COUPLE_BYTES)
		bail("scif_register: %s", strerror(errno));
	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]) && ok; i++)
		ok = copies_of(&couple, mem, lengths[i], SYNC) &&
		     copies_of(&couple, mem, lengths[i],
			       SYNC | SCIF_RMA_USECACHE) &&
		     copies_of(&couple, mem, lengths[i],
			       SYNC | SCIF_RMA_ORDERED);
	ok = signals(&couple, mem) && ok;
	couple_end(&couple);
	return succeeds(scif_free_dm(mem), 0, "free") && ok;
}

/* The peer copies from and to a window of it, also when it was freed. */
static bool window_keeps(void)
{
	struct peer_call call = { .op = PEER_VREADFROM,
				  .length = 8,
				  .flags = SYNC };
	uint64_t value = 0x5701, found;
	int own, other;
	uint8_t *mem;
	bool ok;

	connect_pair(&own, &other);
	mem = allocate(own, BYTES);
	memcpy(mem + PAGE, &value, 8);
	if (scif_register(own, mem, BYTES, 0, RW, FIXED))
		bail("scif_register: %s", strerror(errno));
	ok = succeeds(scif_free_dm(mem), 0, "free while it is registered");
	call.epd = other;
	call.remote = PAGE;
	ok = succeeds(peer_do(&call), 0, "the peer reads") && ok;
	peer_peek(0, &found, 8);
	ok = check(found == value, "it reads 0x%llx",
		   (unsigned long long)found) &&
	     succeeds(scif_unregister(own, 0, BYTES), 0, "unregister") && ok;
	call.remote = 0;
	ok = peer_fails(&call, ENXIO, "the peer reads what is not") && ok;
	close_pair(own, other);
	return ok;
}

/* When there is no more of it, memory is still memory. */
static bool used_up(void)
{
	uint8_t *mem[MANY], *page;
	uint64_t found = 0;
	int own, other, i;
	bool ok;

	connect_pair(&own, &other);
	for (i = 0; i < MANY; i++)
		memset(mem[i] = allocate(own, MANY_BYTES), i, MANY_BYTES);
	peer_register(other, 0, PAGE, 0, RW, FIXED);
	ok = scif_register(own, mem[MANY - 1], PAGE, 0, RW, FIXED) == 0 &&
	     succeeds(scif_writeto(own, 0, 8, 0, SYNC), 0, "copy");
	peer_peek(0, &found, 8);
	ok = check(found == (MANY - 1) * 0x0101010101010101ULL,
		   "the peer has 0x%llx", (unsigned long long)found) &&
	     ok;
	scif_unregister(own, 0, PAGE);
	for (i = 0; i < MANY && ok; i++)
		ok = check(all_are(mem[i], MANY_BYTES, i), "piece %d", i) &&
		     succeeds(scif_free_dm(mem[i]), 0, "free");
	page = allocate(own, PAGE);
	ok = check(all_are(page, PAGE, 0), "not zero") && ok;
	scif_free_dm(page);
	close_pair(own, other);
	return ok;
}

/* --- mapped ------------------------------------------------------------------- */

static volatile uint64_t *map(int epd, size_t length, off_t offset)
{
	void *mem = scif_mmap(NULL, length, RW, 0, epd, offset);

	if (!check(mem != SCIF_MMAP_FAILED, "scif_mmap: %s", strerror(errno)))
		return NULL;
	return mem;
}

static bool unmap(volatile uint64_t *word, size_t length)
{
	return succeeds(scif_munmap((void *)word, length), 0, "munmap");
}

/* Of a part of it, and of the rest at another place. */
static bool shared(void)
{
	volatile uint64_t *word;
	int own, other;
	int64_t there;
	bool ok;

	connect_pair(&own, &other);
	there = peer_allocate(other, BYTES);
	peer_show(other, there + 4 * PAGE, BYTES - 4 * PAGE, 0);
	peer_show(other, there, 4 * PAGE, BYTES - 4 * PAGE);
	word = map(own, BYTES, 0);
	if (!word)
		return false;
	peer_put(there + 4 * PAGE + 8, 0x1234);
	word[0] = 0x5678;
	word[BYTES / 8 - 1] = 0x9abc;
	ok = check(word[1] == 0x1234, "the peer's value") &&
	     peer_has(there + 4 * PAGE, 0x5678, "the first page") &&
	     peer_has(there + 4 * PAGE - 8, 0x9abc, "the last word") &&
	     child_has_none(word) && unmap(word, BYTES);
	close_pair(own, other);
	return peer_free(there) && ok;
}

/* What has ended for the peer stays for who has it mapped. */
static bool stays(void)
{
	volatile uint64_t *word;
	int own, other;
	int64_t there;
	bool ok;

	connect_pair(&own, &other);
	there = peer_allocate(other, BYTES);
	peer_show(other, there, BYTES, 0);
	word = map(own, BYTES, 0);
	if (!word)
		return false;
	ok = succeeds(peer_unregister(other, 0, BYTES), 0, "unregister");
	word[2] = 0x222;
	ok = peer_has(there + 16, 0x222, "unregistered") && ok;
	close_pair(own, other);
	word[3] = 0x333;
	ok = peer_has(there + 24, 0x333, "closed") && peer_free(there) && ok;
	word[4] = 0x444;
	ok = check(word[4] == 0x444 && word[3] == 0x333, "freed") && ok;
	return unmap(word, BYTES) && ok;
}

/* Pages that the peer has mapped, and lost with its death, are nobody else's before. */
static bool survives_peer(void)
{
	volatile uint64_t *word;
	int own, other, again, i;
	int64_t there;
	bool ok;

	connect_pair(&own, &other);
	there = peer_allocate(other, BYTES);
	peer_show(other, there, BYTES, 0);
	word = map(own, BYTES, 0);
	if (!word)
		return false;
	word[0] = 0x555;
	peer_kill();
	scif_close(own);
	connect_pair(&again, &other);
	there = peer_allocate(other, BYTES);
	ok = peer_has(there, 0, "who comes next");
	for (i = 0; i < TIMES && ok; i++) {
		word[0] = 0x666;
		ok = peer_has(there, 0, "who comes next, written to");
	}
	ok = unmap(word, BYTES) && peer_free(there) && ok;
	close_pair(again, other);
	return ok;
}

/* This process's memory, and the peer has it mapped when it goes. */
static bool frees_mapped(void)
{
	struct peer_call call = { .op = PEER_MMAP,
				  .length = BYTES,
				  .prot = RW };
	volatile uint64_t *next;
	int own, other;
	int64_t there;
	uint8_t *mem;
	bool ok;

	connect_pair(&own, &other);
	mem = allocate(own, BYTES);
	if (scif_register(own, mem, BYTES, 0, RW, FIXED))
		bail("scif_register: %s", strerror(errno));
	call.epd = other;
	there = peer_do(&call);
	if (!check(there != -1, "the peer's scif_mmap: %s",
		   strerror(call.error)))
		return false;
	peer_put(there, 0x777);
	ok = check(*(volatile uint64_t *)mem == 0x777, "the peer's value");
	scif_free_dm(mem);
	next = (volatile uint64_t *)allocate(own, BYTES);
	peer_put(there, 0x888);
	ok = check(!*next, "the memory has two users") && ok;
	call = (struct peer_call){ .op = PEER_MUNMAP,
				   .local = there,
				   .length = BYTES };
	ok = succeeds(peer_do(&call), 0, "munmap") && ok;
	ok = succeeds(scif_free_dm((void *)next), 0, "free") && ok;
	close_pair(own, other);
	return ok;
}

const struct behaviour device_cases[] = {
	{ 57, "alloc_dm: EINVAL, ENOTCONN", arguments },
	{ 57, "alloc_dm: not inherited", not_inherited },
	{ 57, "alloc_dm: copies from and to it", copies },
	{ 57, "alloc_dm: a window keeps what was freed", window_keeps },
	{ 57, "alloc_dm: more than there is", used_up },
	{ 0, NULL, NULL }
};

const struct behaviour mapped_device_cases[] = {
	{ 57, "alloc_dm, mapped: by the peer", shared },
	{ 57, "alloc_dm, mapped: a mapping stays", stays },
	{ 57, "alloc_dm, mapped: its process dies", survives_peer },
	{ 57, "alloc_dm, mapped: freed meanwhile", frees_mapped },
	{ 0, NULL, NULL }
};
