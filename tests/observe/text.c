// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

enum { COMMAND_BYTES = 512, WORD_BYTES = 128, CHUNK = 65536 };

static char *read_all(FILE *stream)
{
	size_t length = 0, count;
	char *text = NULL;

	do {
		text = realloc(text, length + CHUNK + 1);
		if (!text)
			bail("out of memory");
		count = fread(text + length, 1, CHUNK, stream);
		length += count;
	} while (count);
	text[length] = 0;
	return text;
}

char *text_of_file(const char *path)
{
	FILE *stream = fopen(path, "r");
	char *text;
	int error;

	if (!stream)
		return NULL;
	errno = 0;
	text = read_all(stream);
	error = ferror(stream) ? errno : 0;
	fclose(stream);
	if (!error)
		return text;
	free(text);
	errno = error;
	return NULL;
}

char *text_of_command(const char *fmt, ...)
{
	char command[COMMAND_BYTES];
	FILE *stream;
	va_list args;
	char *text;
	int status;

	va_start(args, fmt);
	vsnprintf(command, sizeof(command), fmt, args);
	va_end(args);
	stream = popen(command, "r");
	if (!stream)
		bail("%s: %s", command, strerror(errno));
	text = read_all(stream);
	status = pclose(stream);
	if (status)
		bail("%s: status %d", command, status);
	return text;
}

bool command_runs(const char *fmt, ...)
{
	char command[COMMAND_BYTES];
	va_list args;
	int status;

	va_start(args, fmt);
	vsnprintf(command, sizeof(command), fmt, args);
	va_end(args);
	status = system(command);
	return check(!status, "%s: status %d", command, status);
}

void write_file(const char *path, const char *line)
{
	int fd = open(path, O_WRONLY | O_TRUNC);

	if (fd < 0 || write(fd, line, strlen(line)) < 0)
		bail("%s: %s", path, strerror(errno));
	close(fd);
}

char *next_line(char **text)
{
	char *line;

	do
		line = strsep(text, "\n");
	while (line && !*line);
	return line;
}

bool word_after(const char *line, const char *name, char *word, int size)
{
	size_t length = strlen(name);
	const char *at = line;

	while ((at = strstr(at, name))) {
		if ((at == line || at[-1] == ' ') && at[length] == ' ') {
			at += length + 1;
			snprintf(word, size, "%.*s", (int)strcspn(at, " "), at);
			return true;
		}
		at += length;
	}
	return false;
}

uint64_t number_after(const char *line, const char *name)
{
	char word[WORD_BYTES];

	if (!word_after(line, name, word, sizeof(word)))
		return UINT64_MAX;
	return strtoull(word, NULL, 0);
}

uint64_t ethtool_counter(const char *name)
{
	char *text = text_of_command("ethtool -S micnet0");
	uint64_t count = number_after(text, name);

	free(text);
	return count;
}

bool word_is(const char *line, const char *name, const char *expected)
{
	char word[WORD_BYTES] = "missing";

	return check(word_after(line, name, word, sizeof(word)) &&
			     !strcmp(word, expected),
		     "%s is %s, expected %s, in: %s", name, word, expected,
		     line);
}

bool number_is(const char *line, const char *name, uint64_t expected)
{
	uint64_t number = number_after(line, name);

	return check(number == expected,
		     "%s is %" PRIu64 ", expected %" PRIu64 ", in: %s", name,
		     number, expected, line);
}
