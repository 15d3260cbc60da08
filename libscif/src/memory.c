// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Copies from and to the caller's memory that say EFAULT for a bad address:
 * the kernel copies, within this process. The peer's windows are good addresses,
 * too, but the kernel does not copy there.
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

int scif_copy_in(void *to, const void *from, size_t length)
{
	struct iovec local = { .iov_base = to, .iov_len = length };
	struct iovec user = { .iov_base = (void *)from, .iov_len = length };
	ssize_t copied = process_vm_readv(getpid(), &local, 1, &user, 1, 0);

	if (copied == (ssize_t)length)
		return 0;
	if (!forbidden(copied) && !scif_map_has(from, length, SCIF_PROT_READ))
		return EFAULT;
	memcpy(to, from, length);
	return 0;
}

int scif_copy_out(void *to, const void *from, size_t length)
{
	struct iovec local = { .iov_base = (void *)from, .iov_len = length };
	struct iovec user = { .iov_base = to, .iov_len = length };
	ssize_t copied = process_vm_writev(getpid(), &local, 1, &user, 1, 0);

	if (copied != (ssize_t)length && !forbidden(copied) &&
	    !scif_map_has(to, length, SCIF_PROT_WRITE))
		return EFAULT;
	/* Once more: valgrind does not see that the kernel wrote there. */
	memcpy(to, from, length);
	return 0;
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
