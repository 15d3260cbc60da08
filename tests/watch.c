// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Watches of one's own memory (micdv_watch_memory): each way to put other
 * memory, or none, where memory was is told, and nothing else is.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/micdv.h>

#include "device.h"
#include "setup.h"
#include "tap.h"

enum {
	PAGES = 8,
	BYTES = PAGES * PAGE_BYTES,
	MANY = 5000,
	CHANGED = MICDV_WATCH_CHANGED,
	PROTECTED = MICDV_WATCH_PROTECTED,
	RW = PROT_READ | PROT_WRITE
};

static struct setup setup;

static uint8_t *map(int flags, int fd)
{
	uint8_t *mem = mmap(NULL, BYTES, RW, flags, fd, 0);

	if (mem == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	if (fd < 0)
		memset(mem, 1, BYTES);
	return mem;
}

static uint8_t *anonymous(void)
{
	return map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static struct micdv_watch *watch(uint8_t *mem, size_t length)
{
	struct micdv_watch *w = micdv_watch_memory(setup.a_dev.ctx, mem,
						   length);

	if (!w)
		bail("micdv_watch_memory: %s", strerror(errno));
	return w;
}

static bool says(const struct micdv_watch *w, unsigned int state)
{
	unsigned int found = micdv_watch_state(w);

	return check(found == state, "the state is %u instead of %u", found,
		     state);
}

/* What a program does to the page @mem + PAGE_BYTES, one of those watched. */
struct change {
	const char *name;
	unsigned int state;
	void (*change)(uint8_t *page);
};

static void unmap(uint8_t *page)
{
	munmap(page, PAGE_BYTES);
}

static void map_over(uint8_t *page)
{
	if (mmap(page, PAGE_BYTES, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		 -1, 0) != page)
		bail("mmap: %s", strerror(errno));
}

static void dont_need(uint8_t *page)
{
	madvise(page, PAGE_BYTES, MADV_DONTNEED);
}

static void move_away(uint8_t *page)
{
	mremap(page, PAGE_BYTES, PAGE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
	       anonymous());
}

static void move_over(uint8_t *page)
{
	mremap(anonymous(), PAGE_BYTES, PAGE_BYTES,
	       MREMAP_MAYMOVE | MREMAP_FIXED, page);
}

static void protect(uint8_t *page)
{
	mprotect(page, PAGE_BYTES, PROT_READ);
}

static void use(uint8_t *page)
{
	page[0]++;
	page[PAGE_BYTES - 1]++;
}

/* A child that writes, and ends: the pages of the parent stay. */
static void fork_child(uint8_t *page)
{
	pid_t pid = fork();

	if (!pid) {
		memset(page, 3, PAGE_BYTES);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	use(page);
}

static void others(uint8_t *page)
{
	/* what is next to the range that is watched */
	munmap(page - 2 * PAGE_BYTES, PAGE_BYTES);
	munmap(page + 3 * PAGE_BYTES, PAGE_BYTES);
}

static const struct change changes[] = {
	{ "munmap", CHANGED, unmap },
	{ "mmap over it", CHANGED, map_over },
	{ "MADV_DONTNEED", CHANGED, dont_need },
	{ "mremap away", CHANGED, move_away },
	{ "mremap over it", CHANGED, move_over },
	{ "mprotect", PROTECTED, protect },
	{ "using it", 0, use },
	{ "fork", 0, fork_child },
	{ "what happens beside it", 0, others },
};

/* Pages 2 to 4 of 8 are registered and watched. */
static bool tells(const struct change *change)
{
	uint8_t *mem = anonymous(), *first = mem + 2 * PAGE_BYTES;
	struct micdv_watch *w = watch(first, 3 * PAGE_BYTES);
	struct ibv_mr *mr = ibv_reg_mr(setup.a_dev.pd, first, 3 * PAGE_BYTES,
				       IBV_ACCESS_LOCAL_WRITE);
	bool ok;

	if (!mr)
		bail("ibv_reg_mr: %s", strerror(errno));
	ok = says(w, 0);
	change->change(first + PAGE_BYTES);
	ok = says(w, change->state) && ok;
	micdv_unwatch(w);
	ibv_dereg_mr(mr);
	munmap(mem, BYTES);
	return ok;
}

static bool tells_truncation(void)
{
	int fd = memfd_create("watch", MFD_CLOEXEC);
	struct micdv_watch *w;
	uint8_t *mem;
	bool ok;

	if (fd < 0 || ftruncate(fd, BYTES))
		bail("memfd: %s", strerror(errno));
	mem = map(MAP_SHARED, fd);
	memset(mem, 1, BYTES);
	w = watch(mem, BYTES);
	ok = says(w, 0) && check(!ftruncate(fd, PAGE_BYTES), "truncate") &&
	     says(w, CHANGED);
	micdv_unwatch(w);
	munmap(mem, BYTES);
	close(fd);
	return ok;
}

static bool begins_anew(void)
{
	uint8_t *mem = anonymous();
	struct micdv_watch *old = watch(mem, BYTES), *new;
	bool ok;

	map_over(mem);
	new = watch(mem, BYTES);
	ok = says(old, CHANGED) && says(new, 0);
	micdv_unwatch(old);
	ok = says(new, 0) && ok;
	dont_need(mem);
	ok = says(new, CHANGED) && ok;
	micdv_unwatch(new);
	munmap(mem, BYTES);
	return ok;
}

/* More than a page of states has, and again in the slots of those. */
static bool many(void)
{
	static struct micdv_watch *list[MANY];
	uint8_t *mem = anonymous();
	unsigned int round, i;
	bool ok = true;

	for (round = 0; round < 2; round++) {
		for (i = 0; i < MANY; i++)
			list[i] = watch(mem + i % PAGES * PAGE_BYTES,
					PAGE_BYTES);
		for (i = 0; i < MANY && ok; i++)
			ok = says(list[i], 0);
		dont_need(mem + PAGE_BYTES);
		for (i = 0; i < MANY && ok; i++)
			ok = says(list[i], i % PAGES == 1 ? CHANGED : 0);
		for (i = 0; i < MANY; i++)
			micdv_unwatch(list[i]);
	}
	munmap(mem, BYTES);
	return ok;
}

static bool refuses(uint8_t *mem, size_t length)
{
	struct micdv_watch *w;

	errno = 0;
	w = micdv_watch_memory(setup.a_dev.ctx, mem, length);
	if (w)
		micdv_unwatch(w);
	return check(!w && errno == EINVAL, "%zu bytes give %s", length,
		     w ? "a watch" : strerror(errno));
}

static bool bad_ranges(void)
{
	uint8_t *mem = anonymous();
	bool ok = refuses(mem, 0) && refuses(mem, SIZE_MAX);

	munmap(mem, BYTES);
	return ok;
}

/* One thread changes memory all the time, the other watches it. */
static atomic_bool stop;

static void *change_always(void *mem)
{
	while (!atomic_load(&stop))
		dont_need(mem);
	return NULL;
}

static bool while_it_changes(void)
{
	uint8_t *mem = anonymous();
	struct micdv_watch *w;
	pthread_t thread;
	unsigned int i;
	bool ok = true;

	if (pthread_create(&thread, NULL, change_always, mem))
		bail("no thread");
	for (i = 0; i < 300 && ok; i++) {
		w = watch(mem, BYTES);
		ok = check(!(micdv_watch_state(w) & PROTECTED), "protected");
		micdv_unwatch(w);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	w = watch(mem, BYTES);
	ok = says(w, 0) && ok;
	micdv_unwatch(w);
	munmap(mem, BYTES);
	return ok;
}

/* The process ends with watches, and one that was not its own. */
static bool ends_with_watches(void)
{
	uint8_t *mem = anonymous();
	struct micdv_watch *w = watch(mem, BYTES);
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		micdv_unwatch(w);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	dont_need(mem);
	/* it stays for the end of the process */
	return says(w, CHANGED) &&
	       check(!status, "the child ends with 0x%x", status);
}

int main(int argc, char **argv)
{
	size_t i;

	setup_open(&setup, &argc, argv, BYTES);
	for (i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
		tap_ok(tells(&changes[i]), "%s: %s", changes[i].name,
		       changes[i].state ? "told" : "nothing to tell");
	tap_ok(tells_truncation(), "truncating the file: told");
	tap_ok(begins_anew(), "a new watch begins anew");
	tap_ok(many(), "%u watches, twice", MANY);
	tap_ok(bad_ranges(), "ranges that are none are refused");
	tap_ok(while_it_changes(), "watching what another thread changes");
	tap_ok(ends_with_watches(), "a child cannot end a watch");
	setup_close(&setup);
	return tap_end();
}
