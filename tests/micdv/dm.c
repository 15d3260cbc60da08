// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Device memory: where it is mapped, by this process and by its peer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory.h"
#include "micdv.h"
#include "tap.h"

struct memory {
	struct ibv_dm *dm;
	uint8_t *addr;
	struct ibv_mr *mr;
};

static void allocate(struct memory *memory, size_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };

	memory->dm = ibv_alloc_dm(setup.b_dev.ctx, &attr);
	memory->mr = NULL;
	if (!memory->dm)
		bail("ibv_alloc_dm: %s", strerror(errno));
	memory->addr = micdv_dm_addr(memory->dm);
	if (!memory->addr)
		bail("micdv_dm_addr: %s", strerror(errno));
}

static void register_some(struct memory *memory, uint64_t offset, size_t length,
			  int access)
{
	memory->mr = ibv_reg_dm_mr(setup.b_dev.pd, memory->dm, offset, length,
				   access | IBV_ACCESS_LOCAL_WRITE |
					   IBV_ACCESS_ZERO_BASED);
	if (!memory->mr)
		bail("ibv_reg_dm_mr: %s", strerror(errno));
}

static void deregister(struct memory *memory)
{
	if (memory->mr && ibv_dereg_mr(memory->mr))
		bail("ibv_dereg_mr: %s", strerror(errno));
	memory->mr = NULL;
}

static bool release(struct memory *memory)
{
	deregister(memory);
	return check(!ibv_free_dm(memory->dm), "ibv_free_dm: %s",
		     strerror(errno));
}

/* Loads and stores there, and the two functions that copy, are of one memory. */
static bool is_mapped(size_t length)
{
	static const uint8_t word[4] = { 5, 6, 7, 8 };
	struct memory memory;
	uint8_t back[4];
	bool ok;

	allocate(&memory, length);
	ok = check(!((uintptr_t)memory.addr % PAGE_BYTES), "no page") &&
	     all_are(memory.addr, length, 0);
	memset(memory.addr + length - 4, 9, 4);
	ok = ok &&
	     check(!ibv_memcpy_from_dm(back, memory.dm, length - 4, 4),
		   "from it") &&
	     all_are(back, 4, 9) &&
	     check(!ibv_memcpy_to_dm(memory.dm, 0, word, 4), "to it") &&
	     check(!memcmp(memory.addr, word, 4), "it is something else");
	return release(&memory) && ok;
}

/* A look, not a fault, which would be logged. */
static bool child_has_none(void)
{
	unsigned char resident;
	struct memory memory;
	pid_t child;
	int status;

	allocate(&memory, BYTES);
	memory.addr[0] = 1;
	child = fork();
	if (!child)
		_exit(mincore(memory.addr, PAGE_BYTES, &resident) == -1 &&
		      errno == ENOMEM);
	waitpid(child, &status, 0);
	return check(WIFEXITED(status) && WEXITSTATUS(status) == 1,
		     "the child ends with 0x%x", status) &&
	       check(memory.addr[0] == 1, "the parent's is something else") &&
	       release(&memory);
}

/* Some of it can be unmapped, and it can't grow into what is another's. */
static bool may_be_cut(void)
{
	struct memory memory;

	allocate(&memory, BYTES);
	memset(memory.addr, 3, BYTES);
	if (!check(mremap(memory.addr, BYTES, 2 * BYTES, MREMAP_MAYMOVE) ==
			   MAP_FAILED,
		   "it grows"))
		return false;
	munmap(memory.addr + PAGE_BYTES, PAGE_BYTES);
	return all_are(memory.addr, PAGE_BYTES, 3) &&
	       all_are(memory.addr + 2 * PAGE_BYTES, BYTES - 2 * PAGE_BYTES,
		       3) &&
	       release(&memory);
}

static struct micdv_window *window_of(const struct pair *pair,
				      const struct memory *memory, int prot)
{
	return micdv_map_window(pair->a.qp, 0, memory->mr->rkey,
				memory->mr->length, prot);
}

static bool maps(const struct pair *pair)
{
	struct micdv_window *window;
	struct memory memory;
	uint8_t *there;
	bool ok;

	allocate(&memory, BYTES);
	register_some(&memory, PAGE_BYTES, BYTES - PAGE_BYTES, ACCESS_ALL);
	window = window_of(pair, &memory, RW);
	if (!check(window, "no window: %s", strerror(errno)))
		return false;
	there = window->addr;
	memset(there, 0x21, BYTES - PAGE_BYTES);
	ok = all_are(memory.addr, PAGE_BYTES, 0) &&
	     all_are(memory.addr + PAGE_BYTES, BYTES - PAGE_BYTES, 0x21);
	memset(memory.addr, 0x22, BYTES);
	ok = ok && all_are(there, BYTES - PAGE_BYTES, 0x22) &&
	     check(micdv_window_valid(window), "it has ended");
	deregister(&memory);
	memset(there, 0x23, BYTES - PAGE_BYTES);
	ok = check(!micdv_window_valid(window), "it has not ended") && ok &&
	     all_are(memory.addr, BYTES, 0x22);
	micdv_unmap_window(window);
	return release(&memory) && ok;
}

/* What the peer still has mapped reaches nobody who has the pages next. */
static bool frees_mapped(const struct pair *pair)
{
	struct micdv_window *window;
	struct memory memory, next;
	bool ok;

	allocate(&memory, BYTES);
	register_some(&memory, 0, BYTES, ACCESS_ALL);
	window = window_of(pair, &memory, RW);
	if (!check(window, "no window: %s", strerror(errno)))
		return false;
	memset(window->addr, 0x31, BYTES);
	ok = check(ibv_free_dm(memory.dm), "it is free while it has a region");
	ok = release(&memory) && ok;
	allocate(&next, BYTES);
	memset(window->addr, 0x32, BYTES);
	ok = all_are(next.addr, BYTES, 0) && ok;
	micdv_unmap_window(window);
	return release(&next) && ok;
}

static bool gives(const struct pair *pair, uint64_t offset, size_t length,
		  int access, int reading, int writing)
{
	struct memory memory;
	bool ok;

	allocate(&memory, BYTES);
	register_some(&memory, offset, length, access);
	ok = is_error(map(pair->a.qp, 0, memory.mr->rkey, length, PROT_READ),
		      reading) &&
	     is_error(map(pair->a.qp, 0, memory.mr->rkey, length, RW), writing);
	return release(&memory) && ok;
}

/* Nobody has more rights on it than the key gives. */
static bool gives_what_key_does(const struct pair *pair)
{
	return gives(pair, 0, PAGE_BYTES, ACCESS_ALL, 0, 0) &&
	       gives(pair, 0, PAGE_BYTES, IBV_ACCESS_REMOTE_READ, 0, EACCES) &&
	       gives(pair, 0, PAGE_BYTES, IBV_ACCESS_REMOTE_WRITE, EACCES,
		     EACCES) &&
	       gives(pair, 8, PAGE_BYTES, ACCESS_ALL, EPERM, EPERM) &&
	       gives(pair, 0, 8, ACCESS_ALL, EPERM, EPERM);
}

/* Rights that can't be used there are not given. */
static bool is_refused(int access)
{
	struct memory memory;
	bool ok;

	allocate(&memory, BYTES);
	memory.mr = ibv_reg_dm_mr(setup.b_dev.pd, memory.dm, 0, BYTES,
				  ACCESS_ALL | IBV_ACCESS_ZERO_BASED | access);
	ok = check(!memory.mr && errno == EOPNOTSUPP, "access 0x%x: %s", access,
		   memory.mr ? "registered" : strerror(errno));
	return release(&memory) && ok;
}

void run_dm(void)
{
	struct pair pair;

	tap_ok(is_mapped(BYTES) && is_mapped(4) && is_mapped(PAGE_BYTES + 8),
	       "micdv_dm_addr: what is there is the memory");
	tap_ok(child_has_none(), "micdv_dm_addr: not in a child");
	tap_ok(may_be_cut(), "micdv_dm_addr: some of it unmapped, or more");
	tap_ok(is_refused(IBV_ACCESS_MW_BIND) &&
		       is_refused(IBV_ACCESS_ON_DEMAND),
	       "ibv_reg_dm_mr: windows, on demand: EOPNOTSUPP");
	open_pair(&pair, IBV_QPT_RC, ACCESS_ALL);
	tap_ok(maps(&pair), "micdv_map_window: device memory");
	tap_ok(frees_mapped(&pair),
	       "micdv_map_window: device memory that has another user");
	tap_ok(gives_what_key_does(&pair),
	       "micdv_map_window: device memory: EACCES, EPERM");
	close_pair(&pair);
}
