// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Device memory: where it is mapped.
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
};

static void allocate(struct memory *memory, size_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };

	memory->dm = ibv_alloc_dm(setup.b_dev.ctx, &attr);
	if (!memory->dm)
		bail("ibv_alloc_dm: %s", strerror(errno));
	memory->addr = micdv_dm_addr(memory->dm);
	if (!memory->addr)
		bail("micdv_dm_addr: %s", strerror(errno));
}

static bool release(struct memory *memory)
{
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
	ok = ok && check(!ibv_memcpy_from_dm(back, memory.dm, length - 4, 4),
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

void run_dm(void)
{
	tap_ok(is_mapped(BYTES) && is_mapped(4) && is_mapped(PAGE_BYTES + 8),
	       "micdv_dm_addr: what is there is the memory");
	tap_ok(child_has_none(), "micdv_dm_addr: not in a child");
	tap_ok(may_be_cut(), "micdv_dm_addr: some of it unmapped, or more");
}
