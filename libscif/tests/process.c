// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
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
