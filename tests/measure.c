// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

/* A file of a cache: its first number. */
static uint64_t cache_number(int cache, const char *name)
{
	int fd = openat(cache, name, O_RDONLY | O_CLOEXEC);
	char text[128];
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n < 0 ? 0 : n] = 0;
	return strtoull(text, NULL, 10);
}

static void cache_shrink(int cache)
{
	int fd = openat(cache, "shrink", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, "1", 1) != 1)
		tap_note("a cache is not shrunk: %s", strerror(errno));
	close(fd);
}

uint64_t slab_bytes(void)
{
	DIR *dir = opendir("/sys/kernel/slab");
	const struct dirent *entry;
	uint64_t bytes = 0;
	int cache;

	if (!dir)
		bail("/sys/kernel/slab: %s", strerror(errno));
	while ((entry = readdir(dir))) {
		/* a link is another name of a cache */
		cache = openat(dirfd(dir), entry->d_name,
			       O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (cache < 0 || entry->d_name[0] == '.') {
			close(cache);
			continue;
		}
		cache_shrink(cache);
		bytes += cache_number(cache, "objects") *
			 cache_number(cache, "object_size");
		close(cache);
	}
	closedir(dir);
	return bytes;
}

bool is_debug_kernel(void)
{
	const char *kernel = getenv("MIC_KERNEL");

	return kernel && !strcmp(kernel, "debug");
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
