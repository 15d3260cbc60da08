// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proxy.h"
#include "tap.h"
#include "withhold.h"

static int withhold_here(uint8_t *addr, size_t length)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { .start = (uintptr_t)addr, .len = length },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd >= 0 && (ioctl(fd, UFFDIO_API, &api) ||
			ioctl(fd, UFFDIO_REGISTER, &range))) {
		close(fd);
		fd = -1;
	}
	check(fd >= 0, "userfaultfd: %s", strerror(errno));
	return fd;
}

int withhold(uint8_t *addr, size_t length)
{
	if (!proxy_shares(addr, length))
		return withhold_here(addr, length);
	if (proxy_withhold(addr, length))
		return -1;
	return eventfd(0, EFD_CLOEXEC);
}

void provide(int withheld, const uint8_t *addr, size_t length)
{
	if (proxy_shares(addr, length))
		proxy_provide();
	close(withheld);
}
