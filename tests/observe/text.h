/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What tools and files of the kernel say, and values in it: both the rdma
 * tool and our debugfs write words, each value after its name.
 */
#ifndef TESTS_OBSERVE_TEXT_H
#define TESTS_OBSERVE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "tap.h"

/* What a file holds, NULL with errno if it can't be read. For free(). */
char *text_of_file(const char *path);

/* What a command prints; the end of the test if it fails. For free(). */
char *text_of_command(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Run a command; false, with a remark, if it fails. */
bool command_runs(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Write a line into a file, or end the test. */
void write_file(const char *path, const char *line);

/* The next line of @text, ended by a 0; NULL if there is none. */
char *next_line(char **text);

/* Copy the word after the word @name in @line; false if there is none. */
bool word_after(const char *line, const char *name, char *word, int size);

/* The number after the word @name, UINT64_MAX if there is none. */
uint64_t number_after(const char *line, const char *name);

/* What micnet0 says of itself, @name with its colon. */
uint64_t ethtool_counter(const char *name);

/* Is the word after @name @expected? If not, with a remark. */
bool word_is(const char *line, const char *name, const char *expected);
bool number_is(const char *line, const char *name, uint64_t expected);

#endif /* TESTS_OBSERVE_TEXT_H */
