// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Which process is it? A child of fork() has all variables of its parent and none of the
 * mappings of the device. Its pid does not tell: process 1 of a namespace of pids may have
 * a child that is process 1 of another. So there is a word that the kernel clears in
 * children, however they are made.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "process.h"

/* Of the process, 0 until it asks. */
static atomic_uint unwiped;
static atomic_uint *number = &unwiped;
/* Those given out by this process and by those it comes from. */
static atomic_uint given;

static void clear(void)
{
	atomic_store(&unwiped, 0);
}

/* Where the kernel does not clear a page (valgrind, gVisor), libc's fork() calls us. */
static void init(void)
{
	const size_t size = sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED || madvise(page, size, MADV_WIPEONFORK)) {
		pthread_atfork(NULL, NULL, clear);
		if (page != MAP_FAILED)
			munmap(page, size);
		return;
	}
	number = page;
}

uint32_t mic_process(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	unsigned int mine, none = 0;

	pthread_once(&once, init);
	mine = atomic_load(number);
	if (mine)
		return mine;
	/* another thread may be faster; then this number is nobody's */
	mine = atomic_fetch_add(&given, 1) + 1;
	return atomic_compare_exchange_strong(number, &none, mine) ? mine :
								     none;
}
