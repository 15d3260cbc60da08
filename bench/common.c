// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

void fail(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
		strerror(errno));
	exit(1);
}

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
}

void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fprintf(stderr, "%s: not pinned to CPU %d: %s\n",
			program_invocation_short_name, cpu, strerror(errno));
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median(double *values, size_t count)
{
	if (!count)
		return 0;
	qsort(values, count, sizeof(*values), compare);
	return values[count / 2];
}

size_t parse_size(const char *text)
{
	unsigned long long size;
	char *end;

	errno = 0;
	size = strtoull(text, &end, 10);
	if (*end == 'K' || *end == 'k')
		size <<= 10, end++;
	else if (*end == 'M' || *end == 'm')
		size <<= 20, end++;
	if (errno || end == text || *end || !size || size > 1ULL << 30) {
		fprintf(stderr, "%s: not a size up to 1024M: %s\n",
			program_invocation_short_name, text);
		exit(2);
	}
	return size;
}

void report(const char *test, const char *device, size_t size, double value,
	    const char *unit)
{
	printf("{\"test\": \"%s\", \"device\": \"%s\", \"size\": %zu, "
	       "\"value\": %.6g, \"unit\": \"%s\"}\n",
	       test, device, size, value, unit);
	fflush(stdout);
}

void *shared_memory(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("mmap");
	return memory;
}

void *file_memory(const char *path, const char *offset, size_t size)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *memory;

	if (fd < 0)
		fail(path);
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		      (off_t)strtoull(offset, NULL, 0));
	if (memory == MAP_FAILED)
		fail(path);
	close(fd);
	return memory;
}

pid_t start_side(void (*side)(void *), void *argument)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		fail("fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	side(argument);
	exit(0);
}

void join_side(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		fail("waitpid");
	if (status) {
		fprintf(stderr, "%s: the other side failed\n",
			program_invocation_short_name);
		exit(1);
	}
}
