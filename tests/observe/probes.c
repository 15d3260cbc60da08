// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "probes.h"
#include "text.h"

#define TRACING "/sys/kernel/tracing"
#define INSTANCE TRACING "/instances/mic_probes"
#define PROBES TRACING "/kprobe_events"
#define GROUP "mic_probes"
#define ENABLE INSTANCE "/events/" GROUP "/enable"

static const struct probe *opened;
static unsigned int opened_count;

/* Does the kernel have it? */
static bool change_probes(const char *line)
{
	int fd = open(PROBES, O_WRONLY | O_APPEND | O_CLOEXEC);
	bool ok;

	if (fd < 0)
		bail(PROBES ": %s", strerror(errno));
	ok = write(fd, line, strlen(line)) == (ssize_t)strlen(line);
	close(fd);
	return ok;
}

static unsigned int add_probes(void)
{
	unsigned int i, count = 0;
	char line[256];

	for (i = 0; i < opened_count; i++) {
		snprintf(line, sizeof(line),
			 "p:" GROUP
			 "/%s %s lock=$arg1:x64 caller=$stack0:symbol\n",
			 opened[i].name, opened[i].function);
		count += change_probes(line);
	}
	return count;
}

bool probes_open(const struct probe *probes, unsigned int count,
		 unsigned int least)
{
	unsigned int found;

	if (access(TRACING "/instances", F_OK) &&
	    mount("tracefs", TRACING, "tracefs", 0, NULL))
		bail("cannot mount tracefs: %s", strerror(errno));
	if (access(PROBES, F_OK))
		return false;
	opened = probes;
	opened_count = count;
	found = add_probes();
	if (found < least)
		bail("only %u functions are found", found);
	if (mkdir(INSTANCE, 0700) && errno != EEXIST)
		bail(INSTANCE ": %s", strerror(errno));
	write_file(INSTANCE "/buffer_size_kb", "8192");
	return true;
}

void probes_of_this_process(void)
{
	char pid[32];

	snprintf(pid, sizeof(pid), "%d", getpid());
	write_file(INSTANCE "/set_event_pid", pid);
}

void probes_close(void)
{
	char line[128];
	unsigned int i;

	tap_must(!rmdir(INSTANCE), INSTANCE ": %s", strerror(errno));
	for (i = 0; i < opened_count; i++) {
		snprintf(line, sizeof(line), "-:" GROUP "/%s\n",
			 opened[i].name);
		change_probes(line);
	}
}

void probes_on(void)
{
	write_file(INSTANCE "/trace", "");
	write_file(ENABLE, "1");
}

bool probes_off(void (*add)(void *to, const char *line), void *to)
{
	unsigned long there, written;
	char *text, *rest, *line;
	bool whole = false;

	write_file(ENABLE, "0");
	text = text_of_file(INSTANCE "/trace");
	if (!text)
		bail(INSTANCE "/trace: %s", strerror(errno));
	rest = text;
	while ((line = next_line(&rest))) {
		if (sscanf(line, "# entries-in-buffer/entries-written: %lu/%lu",
			   &there, &written) == 2)
			whole = there == written;
		else if (*line != '#')
			add(to, line);
	}
	free(text);
	return check(whole, "events are lost");
}
