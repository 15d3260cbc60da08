// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "tap.h"

uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
}

long meminfo_kb(const char *key)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[128];
	long kb = -1;

	if (!file)
		bail("no /proc/meminfo");
	while (kb < 0 && fgets(line, sizeof(line), file))
		if (!strncmp(line, key, strlen(key)) &&
		    line[strlen(key)] == ':')
			kb = atol(line + strlen(key) + 1);
	fclose(file);
	return kb;
}

uint8_t *map_repeated(size_t length, size_t memory)
{
	int fd = memfd_create("limits", MFD_CLOEXEC);
	uint8_t *base;
	size_t at;

	base = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	if (fd < 0 || ftruncate(fd, memory) || base == MAP_FAILED)
		bail("no memory: %s", strerror(errno));
	for (at = 0; at < length; at += memory)
		if (mmap(base + at, memory, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			bail("mmap: %s", strerror(errno));
	close(fd);
	return base;
}
