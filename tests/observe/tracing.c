// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tap.h"
#include "text.h"
#include "tracing.h"

#define TRACING "/sys/kernel/tracing"
#define INSTANCE TRACING "/instances/observe"

void trace_open(void)
{
	if (access(TRACING "/instances", F_OK) &&
	    mount("tracefs", TRACING, "tracefs", 0, NULL))
		bail("cannot mount tracefs: %s", strerror(errno));
	if (mkdir(INSTANCE, 0700) && errno != EEXIST)
		bail(INSTANCE ": %s", strerror(errno));
}

void trace_close(void)
{
	tap_must(!rmdir(INSTANCE), INSTANCE ": %s", strerror(errno));
}

void trace_clear(void)
{
	write_file(INSTANCE "/trace", "");
}

static void set_cpus(const glob_t *cpus, const char *online)
{
	for (size_t i = 0; i < cpus->gl_pathc; i++)
		write_file(cpus->gl_pathv[i], online);
}

/*
 * The kernel patches its code to do this. QEMU before 8.1 can miss that when
 * another CPU translates the code at that moment, which then runs into a breakpoint
 * for ever (buildlib/guest/init): there is no other CPU meanwhile.
 */
static void set_events(const char *enable)
{
	glob_t cpus = {};

	if (glob("/sys/devices/system/cpu/cpu[1-9]*/online", 0, NULL, &cpus))
		cpus.gl_pathc = 0;
	set_cpus(&cpus, "0");
	write_file(INSTANCE "/events/ib_mic/enable", enable);
	set_cpus(&cpus, "1");
	globfree(&cpus);
}

void trace_on(void)
{
	trace_clear();
	set_events("1");
}

char *trace_read(void)
{
	char *text = text_of_file(INSTANCE "/trace");

	if (!text)
		bail(INSTANCE "/trace: %s", strerror(errno));
	return text;
}

char *trace_off(void)
{
	set_events("0");
	return trace_read();
}

char *next_event(char **text)
{
	char *line;

	do
		line = next_line(text);
	while (line && *line == '#');
	return line;
}

/* Is @word there, with nothing but spaces around it? */
static bool has_word(const char *line, const char *word)
{
	size_t length = strlen(word);
	const char *at = line;

	while ((at = strstr(at, word))) {
		if ((at == line || at[-1] == ' ') &&
		    (at[length] == ' ' || !at[length]))
			return true;
		at += length;
	}
	return false;
}

bool has_words(const char *line, const char *words)
{
	char copy[EVENT_BYTES], *rest = copy, *word;

	snprintf(copy, sizeof(copy), "%s", words);
	while ((word = strsep(&rest, " ")))
		if (!has_word(line, word))
			return false;
	return true;
}
