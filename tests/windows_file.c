// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "fuzz.h"
#include "tap.h"
#include "windows_file.h"

int windows_fd;
static const uint32_t *states;

int windows_file(void)
{
	int fd = ioctl(fuzz_doorbell_fd(), MIC_IOC_WINDOWS, 0);

	if (fd < 0)
		bail("MIC_IOC_WINDOWS: %s", strerror(errno));
	return fd;
}

void windows_file_open(void)
{
	windows_fd = windows_file();
	states = map_file(MIC_WINDOW_STATES, MIC_WINDOW_SLOTS * sizeof(*states),
			  PROT_READ);
}

int import_window(struct mic_window_import *req)
{
	return ioctl(windows_fd, MIC_IOC_IMPORT, req) ? errno : 0;
}

bool drop(uint32_t slot)
{
	return !ioctl(windows_fd, MIC_IOC_DROP, (unsigned long)slot);
}

bool is_revoked(uint32_t slot)
{
	return *(volatile const uint32_t *)&states[slot] & MIC_WINDOW_REVOKED;
}

void *map_file(uint64_t offset, size_t length, int prot)
{
	void *addr = mmap(NULL, length, prot, MAP_SHARED | MAP_NORESERVE,
			  windows_fd, (off_t)offset);

	if (addr == MAP_FAILED)
		bail("mapping the windows file: %s", strerror(errno));
	return addr;
}
