// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Mapping the peer's windows; where the device cannot, that it says so.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "behaviour.h"
#include "clock.h"
#include "mappings.h"
#include "peer.h"
#include "process.h"
#include "tap.h"

/* Three windows side by side, of memory that is not, the last to read. */
void register_three(int epd)
{
	peer_register(epd, 10 * PAGE, PAGE, 0, RW, FIXED);
	peer_register(epd, 0, 4 * PAGE, PAGE, RW, FIXED);
	peer_register(epd, 20 * PAGE, 2 * PAGE, 5 * PAGE, RW, FIXED);
	peer_register(epd, 30 * PAGE, PAGE, 7 * PAGE, SCIF_PROT_READ, FIXED);
}

/* Says the test script: the device can map. */
bool can_map(void)
{
	return !!getenv("SCIF_TEST_MAPS");
}

bool peer_has(int64_t place, uint64_t value, const char *what)
{
	uint64_t found;

	peer_peek(place, &found, sizeof(found));
	return check(found == value, "%s: the peer has 0x%llx, not 0x%llx",
		     what, (unsigned long long)found,
		     (unsigned long long)value);
}

/* A look, not a fault, which would be logged. */
bool is_nothing(volatile uint64_t *word)
{
	unsigned char resident;

	return mincore((void *)word, PAGE, &resident) == -1 && errno == ENOMEM;
}

static bool map_fails(int epd, size_t length, int prot, off_t offset, int error,
		      const char *what)
{
	void *mem = scif_mmap(NULL, length, prot, 0, epd, offset);
	int err = errno;

	return check(mem == SCIF_MMAP_FAILED && err == error,
		     "%s: %p, errno %s, expected %s", what, mem,
		     strerrorname_np(err), strerrorname_np(error));
}

static bool arguments(void)
{
	int own, other, epd = scif_open();
	bool ok;

	connect_pair(&own, &other);
	peer_register(other, 0, 2 * PAGE, 0, RW, FIXED);
	peer_register(other, 0, PAGE, 8 * PAGE, SCIF_PROT_READ, FIXED);
	ok = map_fails(epd, 0, RW, 0, EINVAL, "length 0, unconnected") &&
	     map_fails(epd, PAGE, RW, 0, ENOTCONN, "unconnected") &&
	     map_fails(own, 0, RW, 0, EINVAL, "length 0") &&
	     map_fails(own, 100, RW, 0, EINVAL, "length 100") &&
	     map_fails(own, PAGE, RW, 8, EINVAL, "offset 8") &&
	     map_fails(own, PAGE, RW, 4 * PAGE, ENXIO, "no window") &&
	     map_fails(own, 4 * PAGE, RW, 0, ENXIO, "beyond the window") &&
	     map_fails(own, PAGE, RW, 8 * PAGE, EACCES, "read-only") &&
	     fails(scif_munmap(&own, PAGE), EINVAL, "unmap, unaligned") &&
	     fails(scif_munmap(NULL, 0), EINVAL, "unmap nothing") &&
	     fails(scif_munmap(NULL, SIZE_MAX), EINVAL, "unmap too much");
	if (!can_map())
		ok = map_fails(own, PAGE, RW, 0, EOPNOTSUPP, "here") && ok;
	scif_close(epd);
	close_pair(own, other);
	return ok;
}

/* Memory that cannot be pinned is copied to and from all the same. */
static bool copied_to(void)
{
	enum { BYTES = 64 * PAGE };
	const int flags[] = { 0, SCIF_RMA_USECACHE };
	int own, other, i;
	uint8_t *mem, *from;
	bool ok = true;

	connect_pair(&own, &other);
	peer_register(other, 0, 2 * BYTES, 0, RW, FIXED);
	from = malloc(BYTES);
	if (!from)
		bail("no memory");
	mem = scif_mmap(NULL, BYTES, RW, 0, own, BYTES);
	ok = check(mem != SCIF_MMAP_FAILED, "scif_mmap");
	for (i = 0; i < 2 && ok; i++) {
		memset(from, 0x31 + i, BYTES);
		ok = succeeds(scif_vwriteto(own, from, BYTES, 0, SCIF_RMA_SYNC),
			      0, "write") &&
		     succeeds(scif_vreadfrom(own, mem, BYTES, 0,
					     SCIF_RMA_SYNC | flags[i]),
			      0, "read into a mapping") &&
		     check(!memcmp(mem, from, BYTES), "the bytes");
	}
	scif_munmap(mem, BYTES);
	free(from);
	close_pair(own, other);
	return ok;
}

/* What a child maps there is its own, and stays when it unmaps what its parent had. */
static bool keeps_its_own(volatile uint64_t *word, size_t length)
{
	void *mem = mmap((void *)word, length, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			 0);

	return mem == (void *)word && !scif_munmap(mem, length) &&
	       !is_nothing(word);
}

/* The child has nothing there; it may unmap it all the same. */
static bool is_not_inherited(volatile uint64_t *word, size_t length)
{
	pid_t child = fork();
	int status;

	if (!child) {
		alarm(20);
		_exit(is_nothing(word) && !scif_munmap((void *)word, length) &&
		      keeps_its_own(word, length));
	}
	waitpid(child, &status, 0);
	return check(WIFEXITED(status) && WEXITSTATUS(status) == 1,
		     "the child ends with 0x%x", status);
}

static bool shared(void)
{
	volatile uint64_t *word;
	uint64_t value = 0xabcdef;
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	peer_register(other, 0, 2 * PAGE, 0, RW, FIXED);
	word = scif_mmap(NULL, PAGE, RW, 0, own, PAGE);
	if (!check(word != SCIF_MMAP_FAILED, "mmap: %s", strerror(errno)))
		return false;
	peer_poke(PAGE + 8, &value, 8);
	ok = check(word[1] == value, "the peer's value is here");
	word[0] = 0x1234;
	ok = peer_has(PAGE, 0x1234, "one's own value") &&
	     is_not_inherited(word, PAGE) && ok;
	scif_close(own);
	word[2] = 0x5678;
	ok = peer_has(PAGE + 16, 0x5678, "after one's own close") && ok;
	peer_op_epd(PEER_CLOSE, other);
	word[3] = 0x9abc;
	ok = peer_has(PAGE + 24, 0x9abc, "after both closes") && ok;
	ok = succeeds(scif_munmap((void *)word, PAGE), 0, "munmap") &&
	     check(is_nothing(word), "it is unmapped") &&
	     succeeds(scif_munmap((void *)word, PAGE), 0, "again") && ok;
	return ok;
}

static bool survives_peer(void)
{
	volatile uint64_t *word;
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	peer_register(other, 0, PAGE, 0, RW, FIXED);
	word = scif_mmap(NULL, PAGE, RW, 0, own, 0);
	peer_op_epd(PEER_CLOSE, other);
	word[3] = 0x777;
	ok = peer_has(24, 0x777, "after the peer's close");
	peer_kill();
	/* Nobody is there, but it does no harm. */
	word[4] = 0x888;
	ok = check(word[4] == 0x888 || !word[4], "after its death") &&
	     succeeds(scif_munmap((void *)word, PAGE), 0, "munmap") && ok;
	scif_close(own);
	return ok;
}

static bool unregister_mapped(void)
{
	uint64_t end = deadline();
	volatile uint64_t *word;
	int own, other;
	off_t offset;
	void *second;
	bool ok;

	connect_pair(&own, &other);
	peer_register(other, 0, PAGE, 0, RW, FIXED);
	word = scif_mmap(NULL, PAGE, RW, 0, own, 0);
	second = scif_mmap(NULL, PAGE, RW, 0, own, 0);
	ok = succeeds(peer_unregister(other, 0, PAGE), 0, "unregister");
	word[5] = 0x555;
	ok = peer_has(40, 0x555, "the mapping stays valid") &&
	     map_fails(own, PAGE, RW, 0, ENXIO, "a new mapping") &&
	     fails(scif_vwriteto(own, &end, 8, 0, 0), ENXIO, "a copy") &&
	     fails(peer_register(other, PAGE, PAGE, 0, RW, FIXED), EADDRINUSE,
		   "register again") &&
	     ok;
	scif_munmap(second, PAGE);
	sleep_ms(300 * slowness());
	ok = fails(peer_register(other, PAGE, PAGE, 0, RW, FIXED), EADDRINUSE,
		   "register after the first munmap") &&
	     ok;
	scif_munmap((void *)word, PAGE);
	do {
		offset = peer_register(other, PAGE, PAGE, 0, RW, FIXED);
	} while (offset < 0 && errno == EADDRINUSE && now_ms() < end);
	ok = succeeds(offset, 0, "register after the last munmap") && ok;
	close_pair(own, other);
	return ok;
}

/* The peer closes meanwhile: what is mapped is its memory, or nothing is. */
static bool peer_closes_meanwhile(void)
{
	enum { ROUNDS = 100, STEPS = 16, STEP_US = 20 };
	struct peer_call call = { .flags = 0 };
	volatile uint64_t *word;
	int own, i, error;
	bool ok = true;

	for (i = 1; i <= ROUNDS && ok; i++) {
		connect_pair(&own, &call.epd);
		peer_register(call.epd, 0, PAGE, 0, RW, FIXED);
		call.op = PEER_CLOSE;
		peer_begin(&call);
		usleep(i % STEPS * STEP_US);
		word = scif_mmap(NULL, PAGE, RW, 0, own, 0);
		error = errno;
		peer_finish(&call);
		if (word == SCIF_MMAP_FAILED) {
			ok = check(error == ECONNRESET, "mmap: %s",
				   strerrorname_np(error));
		} else {
			shows(own, POLLHUP);
			*word = i;
			ok = peer_has(0, i, "what is mapped") &&
			     succeeds(scif_munmap((void *)word, PAGE), 0,
				      "munmap");
		}
		scif_close(own);
	}
	return check(ok, "in round %d", i - 1);
}

enum { MUCH = 12 << 20, LITTLE = 16 * PAGE };

/* The peer maps a page at @offset; its address, in @call. */
static bool peer_maps(struct peer_call *call, off_t offset)
{
	call->op = PEER_MMAP;
	call->length = PAGE;
	call->prot = RW;
	call->remote = offset;
	call->local = peer_do(call);
	return check(call->ret != -1, "the peer's mmap: %s",
		     strerrorname_np(call->error));
}

/* The peer has died, and has unmapped nothing. */
static bool unregister_after_death(void)
{
	struct peer_call call = { .flags = 0 };
	uint8_t *mem = fresh_pages(MUCH);
	size_t before;
	int own;
	bool ok;

	connect_pair(&own, &call.epd);
	before = pinned();
	ok = succeeds(scif_register(own, mem, MUCH, 0, RW, FIXED), 0,
		      "register") &&
	     peer_maps(&call, PAGE);
	peer_kill();
	ok = shows(own, POLLHUP) &&
	     succeeds(scif_unregister(own, 0, MUCH), 0, "unregister") &&
	     unpins(before + LITTLE) && ok;
	scif_close(own);
	munmap(mem, MUCH);
	return ok;
}

/* What the peer has mapped stays, and not the window beside it. */
static bool close_keeps_mapped(void)
{
	uint8_t *mem = fresh_pages(MUCH), *page = fresh_pages(PAGE);
	struct peer_call call = { .flags = 0 };
	const uint64_t value = 0x123456789;
	size_t before;
	int own;
	bool ok;

	connect_pair(&own, &call.epd);
	before = pinned();
	ok = succeeds(scif_register(own, page, PAGE, 0, RW, FIXED), 0,
		      "page") &&
	     succeeds(scif_register(own, mem, MUCH, PAGE, RW, FIXED), PAGE,
		      "much") &&
	     peer_maps(&call, 0);
	scif_close(own);
	ok = ok && unpins(before + LITTLE);
	call.op = PEER_STORE;
	call.length = sizeof(value);
	memcpy(call.data, &value, sizeof(value));
	peer_do(&call);
	ok = check(!memcmp(page, &value, sizeof(value)),
		   "it is still mapped") &&
	     ok;
	call.op = PEER_MUNMAP;
	call.length = PAGE;
	ok = succeeds(peer_do(&call), 0, "munmap") && unpins(before) && ok;
	peer_op_epd(PEER_CLOSE, call.epd);
	munmap(mem, MUCH);
	munmap(page, PAGE);
	return ok;
}

static bool adjacent(void)
{
	uint64_t value = 0x4321;
	volatile uint64_t *word;
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	register_three(other);
	ok = map_fails(own, 8 * PAGE, RW, 0, EACCES, "one is read-only") &&
	     map_fails(own, 9 * PAGE, SCIF_PROT_READ, 0, ENXIO, "too far");
	if (!can_map()) {
		ok = map_fails(own, 7 * PAGE, RW, 0, EOPNOTSUPP, "all") && ok;
		close_pair(own, other);
		return ok;
	}
	word = scif_mmap(NULL, 7 * PAGE, RW, 0, own, 0);
	if (!check(word != SCIF_MMAP_FAILED, "mmap: %s", strerror(errno)))
		return false;
	word[PAGE / 8 - 1] = 0x11;
	word[PAGE / 8] = 0x22;
	word[5 * PAGE / 8 - 1] = 0x33;
	word[5 * PAGE / 8] = 0x44;
	word[7 * PAGE / 8 - 1] = 0x55;
	ok = peer_has(11 * PAGE - 8, 0x11, "the first window's end") &&
	     peer_has(0, 0x22, "the second one") &&
	     peer_has(4 * PAGE - 8, 0x33, "its end") &&
	     peer_has(20 * PAGE, 0x44, "the third one") &&
	     peer_has(22 * PAGE - 8, 0x55, "its end") && ok;
	peer_poke(21 * PAGE, &value, 8);
	ok = check(word[6 * PAGE / 8] == value, "the peer's value") &&
	     is_not_inherited(word, 7 * PAGE) &&
	     succeeds(scif_munmap((void *)word, 7 * PAGE), 0, "munmap") && ok;
	word = scif_mmap(NULL, 4 * PAGE, SCIF_PROT_READ, 0, own, 4 * PAGE);
	ok = check(word != SCIF_MMAP_FAILED, "to read: %s", strerror(errno)) &&
	     check(word[2 * PAGE / 8] == value, "at another place") && ok;
	scif_munmap((void *)word, 4 * PAGE);
	close_pair(own, other);
	return ok;
}

/* Messages from and to what is mapped, as from and to any memory. */
static bool messages(void)
{
	volatile uint64_t *word, *readable;
	uint64_t value = 0;
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	peer_register(other, 0, PAGE, 0, RW, FIXED);
	word = scif_mmap(NULL, PAGE, RW, 0, own, 0);
	readable = scif_mmap(NULL, PAGE, SCIF_PROT_READ, 0, own, 0);
	if (!check(word != SCIF_MMAP_FAILED && readable != SCIF_MMAP_FAILED,
		   "mmap: %s", strerror(errno)))
		return false;
	word[0] = 0xabcd;
	ok = succeeds(scif_send(own, (void *)readable, 8, SCIF_SEND_BLOCK), 8,
		      "send") &&
	     succeeds(peer_recv(other, &value, 8, SCIF_RECV_BLOCK), 8,
		      "received") &&
	     check(value == 0xabcd, "what was mapped: 0x%lx", value);
	value = 0x1234;
	peer_send(other, &value, 8, SCIF_SEND_BLOCK);
	ok = fails(scif_recv(own, (void *)readable, 8, SCIF_RECV_BLOCK), EFAULT,
		   "receive, read-only") &&
	     succeeds(scif_recv(own, (void *)(word + 1), 8, SCIF_RECV_BLOCK), 8,
		      "receive") &&
	     peer_has(8, 0x1234, "what was received") && ok;
	scif_munmap((void *)word, PAGE);
	scif_munmap((void *)readable, PAGE);
	close_pair(own, other);
	return ok;
}

/* A number that was an endpoint's is a stranger's, in a child, too. */
static bool stranger_in_child(void)
{
	int own, other, pipes[2], status = 1;
	pid_t child;
	char byte;
	void *mem;
	bool ok;

	connect_pair(&own, &other);
	peer_register(other, 0, PAGE, 0, RW, FIXED);
	mem = scif_mmap(NULL, PAGE, RW, 0, own, 0);
	if (!check(mem != SCIF_MMAP_FAILED, "mmap: %s", strerror(errno)) ||
	    !check(!pipe2(pipes, O_CLOEXEC), "pipe"))
		return false;
	scif_close(own);
	dup2(pipes[1], own);
	close(pipes[1]);
	child = fork();
	if (!child)
		_exit(write(own, "x", 1) == 1 ? 0 : 1);
	close(own);
	ok = succeeds(read(pipes[0], &byte, 1), 1, "from the child");
	close(pipes[0]);
	waitpid(child, &status, 0);
	peer_op_epd(PEER_CLOSE, other);
	return succeeds(scif_munmap(mem, PAGE), 0, "munmap") &&
	       check(!status, "child 0x%x", status) && ok;
}

struct failing {
	int epd;
	atomic_bool stop;
	bool maps;
	pthread_t thread;
};

static void *map_in_vain(void *argument)
{
	struct failing *failing = argument;

	while (!atomic_load(&failing->stop) && !failing->maps)
		failing->maps = scif_mmap(NULL, PAGE, SCIF_PROT_WRITE, 0,
					  failing->epd,
					  PAGE) != SCIF_MMAP_FAILED;
	return NULL;
}

/* What another one that fails leaves, a mapping may take at once. */
static bool beside_failing(void)
{
	struct failing failing = { .stop = false };
	volatile uint64_t *word;
	bool ok = true;
	int other;
	uint64_t i;

	connect_pair(&failing.epd, &other);
	peer_register(other, 0, PAGE, 0, RW, FIXED);
	peer_register(other, PAGE, PAGE, PAGE, SCIF_PROT_WRITE, FIXED);
	pthread_create(&failing.thread, NULL, map_in_vain, &failing);
	for (i = 0; i < 100 && ok; i++) {
		word = scif_mmap(NULL, PAGE, RW, 0, failing.epd, 0);
		ok = check(word != SCIF_MMAP_FAILED, "mmap: %s",
			   strerror(errno));
		if (!ok)
			break;
		*word = i;
		ok = peer_has(0, i, "what is mapped") &&
		     succeeds(scif_munmap((void *)word, PAGE), 0, "munmap");
	}
	atomic_store(&failing.stop, true);
	pthread_join(failing.thread, NULL);
	close_pair(failing.epd, other);
	return check(!failing.maps, "a window that cannot be read is mapped") &&
	       ok;
}

const struct behaviour mapping_cases[] = {
	{ 49, "mmap: EINVAL, ENXIO, EACCES", arguments },
	{ 49, "mmap: adjacent windows", adjacent },
	{ 0, NULL, NULL }
};

const struct behaviour mapped_cases[] = {
	{ 41, "unregister what the peer has mapped", unregister_mapped },
	{ 41, "unregister what a peer had mapped that died",
	  unregister_after_death },
	{ 49, "mmap: shared, not inherited, survives one's close", shared },
	{ 49, "mmap: survives the peer's close", survives_peer },
	{ 49, "mmap: while the peer closes", peer_closes_meanwhile },
	{ 49, "mmap: the peer's close keeps nothing else", close_keeps_mapped },
	{ 49, "mmap: messages from and to it", messages },
	{ 49, "mmap: what is read goes there", copied_to },
	{ 49, "mmap: the closed one's number in a child", stranger_in_child },
	{ 49, "mmap: beside others that fail", beside_failing },
	{ 0, NULL, NULL }
};
