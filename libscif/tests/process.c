// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
#define _GNU_SOURCE
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "process.h"
#include "tap.h"

unsigned int count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

unsigned int count_files(const char *begin)
{
	DIR *dir = opendir("/proc/self/fd");
	char name[PATH_MAX];
	struct dirent *entry;
	unsigned int count = 0;
	ssize_t length;

	while (dir && (entry = readdir(dir))) {
		length = readlinkat(dirfd(dir), entry->d_name, name,
				    sizeof(name));
		if (length >= (ssize_t)strlen(begin) &&
		    !memcmp(name, begin, strlen(begin)))
			count++;
	}
	if (dir)
		closedir(dir);
	return count;
}

int next_number(void)
{
	int number = dup(0);

	close(number);
	return number;
}

unsigned long limit_descriptors(unsigned long count)
{
	struct rlimit limit;
	unsigned long before;

	getrlimit(RLIMIT_NOFILE, &limit);
	before = limit.rlim_cur;
	limit.rlim_cur = count;
	setrlimit(RLIMIT_NOFILE, &limit);
	return before;
}

size_t pinned(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long kib = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "VmPin: %lu", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib << 10;
}

bool unpins(size_t bytes)
{
	uint64_t end = deadline();
	unsigned int round = 0;

	while (pinned() > bytes && now_ms() < end)
		relax(round++);
	return check(pinned() <= bytes, "%zu bytes are still pinned, not %zu",
		     pinned(), bytes);
}
