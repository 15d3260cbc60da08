// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Copies from and to the caller's memory that say EFAULT for a bad address: the
 * kernel copies, within this process. Its own memory, so says the library, is
 * the other process's, and the caller's is the calling process's: so that can
 * be a mapping of a peer's window, too, and tools like valgrind see what is read
 * and written there.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "internal.h"

enum { PAGE = 4096 };

/* Where the system call is forbidden, there is no way to tell. */
static bool forbidden(ssize_t result)
{
	return result < 0 && (errno == ENOSYS || errno == EPERM);
}

/* Did it copy, or can't it tell? Then it is not done yet. */
static int result_of(ssize_t copied, size_t length, bool *done)
{
	*done = copied == (ssize_t)length;
	return *done || forbidden(copied) ? 0 : EFAULT;
}

int scif_copy_in(void *to, const void *from, size_t length)
{
	struct iovec user = { .iov_base = (void *)from, .iov_len = length };
	struct iovec own = { .iov_base = to, .iov_len = length };
	bool done;
	int err;

	err = result_of(process_vm_writev(getpid(), &user, 1, &own, 1, 0),
			length, &done);
	if (!err && !done)
		memcpy(to, from, length);
	return err;
}

int scif_copy_out(void *to, const void *from, size_t length)
{
	struct iovec user = { .iov_base = to, .iov_len = length };
	struct iovec own = { .iov_base = (void *)from, .iov_len = length };
	bool done;
	int err;

	err = result_of(process_vm_readv(getpid(), &user, 1, &own, 1, 0),
			length, &done);
	if (!err && !done)
		memcpy(to, from, length);
	return err;
}

/* Page by page, for kernels before 5.14, and where rights are missing. */
static bool can_look(uintptr_t first, uintptr_t end)
{
	uint8_t byte;

	for (; first < end; first += PAGE)
		if (scif_copy_in(&byte, (void *)first, 1))
			return false;
	return true;
}

bool scif_is_readable(const void *addr, size_t length)
{
	uintptr_t first = (uintptr_t)addr & -(uintptr_t)PAGE;
	uintptr_t end = (uintptr_t)addr + length;

	if (!madvise((void *)first, end - first, MADV_POPULATE_READ))
		return true;
	return errno == EINVAL && can_look(first, end);
}
