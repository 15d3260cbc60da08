// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tap.h"

static unsigned int cases;
static unsigned int failures;
static atomic_bool broken; /* what tap_must() asks, by any thread */

static void print_line(const char *head, const char *fmt, va_list args)
{
	char text[512];

	vsnprintf(text, sizeof(text), fmt, args);
	printf("%s%s", head, text);
}

static void remark(const char *fmt, va_list args)
{
	print_line("# ", fmt, args);
	printf("\n");
	fflush(stdout);
}

bool tap_ok(bool ok, const char *fmt, ...)
{
	char head[32];
	va_list args;

	snprintf(head, sizeof(head), "%sok %u - ", ok ? "" : "not ", ++cases);
	failures += !ok;
	va_start(args, fmt);
	print_line(head, fmt, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	return ok;
}

void tap_skip(const char *reason, const char *fmt, ...)
{
	char head[32];
	va_list args;

	snprintf(head, sizeof(head), "ok %u - ", ++cases);
	va_start(args, fmt);
	print_line(head, fmt, args);
	va_end(args);
	printf(" # SKIP %s\n", reason);
	fflush(stdout);
}

void tap_note(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	remark(fmt, args);
	va_end(args);
}

bool check(bool ok, const char *fmt, ...)
{
	va_list args;

	if (ok)
		return true;
	va_start(args, fmt);
	remark(fmt, args);
	va_end(args);
	return false;
}

void tap_must(bool ok, const char *fmt, ...)
{
	va_list args;

	if (ok)
		return;
	va_start(args, fmt);
	remark(fmt, args);
	va_end(args);
	atomic_store(&broken, true);
}

void bail(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	print_line("Bail out! ", fmt, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	exit(99);
}

int tap_end(void)
{
	if (atomic_load(&broken))
		tap_ok(false, "what all cases rely on: see the remarks");
	printf("1..%u\n", cases);
	fflush(stdout);
	return failures ? 1 : 0;
}
