/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The device's tracepoints, in an instance of its own, so others who trace are left
 * alone.
 */
#ifndef TESTS_OBSERVE_TRACING_H
#define TESTS_OBSERVE_TRACING_H

#include <stdbool.h>

enum { EVENT_BYTES = 160 };

void trace_open(void);
void trace_close(void);

/* What was traced is forgotten. */
void trace_clear(void);
void trace_on(void);
/* What has been traced until now; to be freed. */
char *trace_read(void);
/* Stop, and return what was traced; to be freed. */
char *trace_off(void);

/* The next line that is an event, or NULL. */
char *next_event(char **text);

/* Has @line all of @words, which have spaces between them? */
bool has_words(const char *line, const char *words);

#endif /* TESTS_OBSERVE_TRACING_H */
