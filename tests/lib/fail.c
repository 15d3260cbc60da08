// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "tap.h"

static int own = -1;

bool fail_open(void)
{
	own = open("/proc/self/fail-nth", O_RDWR | O_CLOEXEC);
	return own >= 0;
}

static bool write_number(int fd, unsigned int n)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", n);
	return pwrite(fd, text, strlen(text), 0) > 0;
}

/*
 * If nothing has failed, the file says how many were left; reading that is a copy to
 * user space, too, and may be the one that fails.
 */
static bool is_zero(int fd)
{
	char text[16] = "";
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	return n > 0 && !atoi(text);
}

/* Writing this is a copy, too, and may be the one that fails; but only once. */
void fail_nth(unsigned int n)
{
	if (!write_number(own, n) && (errno != EFAULT || !write_number(own, n)))
		bail("fail-nth: %s", strerror(errno));
}

bool has_failed(void)
{
	return is_zero(own);
}

static int open_of(pid_t thread)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fail-nth", thread);
	return open(path, O_RDWR | O_CLOEXEC);
}

bool fail_nth_of(pid_t thread, unsigned int n)
{
	int fd = open_of(thread);
	bool ok = fd >= 0 && write_number(fd, n);

	close(fd);
	return ok;
}

bool has_failed_of(pid_t thread)
{
	int fd = open_of(thread);
	bool failed = fd >= 0 && is_zero(fd);

	close(fd);
	return failed;
}
