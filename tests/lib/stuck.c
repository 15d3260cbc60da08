// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "clock.h"
#include "stuck.h"
#include "tap.h"

enum {
	MAX_THREADS = 16,
	EACH_MS = 20,
	/* what comes back spends less than one part of so many elsewhere */
	HARDLY_EVER = 50,
	RUNNING = -2,
};

/* Times in ticks. */
struct thread {
	pid_t id;
	long call;	/* in which it waits, if it ever does */
	bool elsewhere; /* seen waiting for a futex, or in different calls */
	bool running;	/* seen so */
	unsigned long user, kernel; /* at first */
};

static bool read_line(pid_t pid, pid_t id, const char *what, char *line,
		      size_t bytes)
{
	char path[64];
	FILE *file;
	bool ok;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", pid, id, what);
	file = fopen(path, "re");
	if (!file)
		return false;
	ok = fgets(line, bytes, file);
	fclose(file);
	return ok;
}

/* The system call that it waits in, -1 if that is none, or RUNNING. */
static long call_of(pid_t pid, pid_t id)
{
	char line[256];

	if (!read_line(pid, id, "syscall", line, sizeof(line)) ||
	    !strncmp(line, "running", strlen("running")))
		return RUNNING;
	return strtol(line, NULL, 10);
}

/* The name before the times may have spaces in it, and ends with the last bracket. */
static void times_of(pid_t pid, pid_t id, unsigned long *user,
		     unsigned long *kernel)
{
	const char *rest;
	char line[512];

	*user = *kernel = 0;
	if (!read_line(pid, id, "stat", line, sizeof(line)))
		return;
	rest = strrchr(line, ')');
	if (rest)
		sscanf(rest + 1,
		       " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u"
		       " %lu %lu",
		       user, kernel);
}

static unsigned int find_threads(pid_t pid, struct thread *threads)
{
	const struct dirent *entry;
	unsigned int count = 0;
	char path[32];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && count < MAX_THREADS && (entry = readdir(dir))) {
		struct thread *thread = &threads[count];

		if (entry->d_name[0] == '.')
			continue;
		thread->id = atoi(entry->d_name);
		thread->call = RUNNING;
		times_of(pid, thread->id, &thread->user, &thread->kernel);
		count++;
	}
	if (dir)
		closedir(dir);
	return count;
}

static void look(pid_t pid, struct thread *thread)
{
	long call = call_of(pid, thread->id);

	if (call == RUNNING) {
		thread->running = true;
		return;
	}
	if (call == SYS_futex ||
	    (thread->call != RUNNING && thread->call != call))
		thread->elsewhere = true;
	thread->call = call;
}

static bool is_in_kernel(pid_t pid, const struct thread *thread)
{
	unsigned long user, kernel;
	char where[64] = "";

	if (thread->elsewhere)
		return false;
	times_of(pid, thread->id, &user, &kernel);
	user -= thread->user;
	kernel -= thread->kernel;
	if (thread->running && (!kernel || user * HARDLY_EVER > user + kernel))
		return false;
	read_line(pid, thread->id, "wchan", where, sizeof(where));
	tap_note(
		"thread %d: %s, system call %ld, %s; ticks: %lu, in the kernel %lu",
		thread->id, thread->running ? "at work" : "waits", thread->call,
		where, user, kernel);
	return true;
}

bool is_stuck(pid_t pid, unsigned int ms)
{
	struct thread threads[MAX_THREADS] = {};
	unsigned int i, count = find_threads(pid, threads);
	uint64_t end = now_ms() + ms;
	bool stuck = false;

	do {
		for (i = 0; i < count; i++)
			look(pid, &threads[i]);
		sleep_ms(EACH_MS);
	} while (now_ms() < end);
	for (i = 0; i < count; i++)
		stuck |= is_in_kernel(pid, &threads[i]);
	return stuck;
}
