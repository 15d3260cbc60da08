// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "tap.h"

enum { PATIENCE_MS = 30000 };

uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ULL + now.tv_nsec / 1000000;
}

static unsigned int number_of(const char *variable, unsigned int otherwise)
{
	const char *value = getenv(variable);

	return value && atoi(value) > 0 ? (unsigned int)atoi(value) : otherwise;
}

unsigned int slowness(void)
{
	return number_of("MIC_SLOW", 1);
}

static unsigned int patience_ms(void)
{
	static unsigned int patience;

	if (!patience)
		patience = number_of("MIC_TEST_PATIENCE", PATIENCE_MS) *
			   slowness();
	return patience;
}

uint64_t deadline(void)
{
	return now_ms() + patience_ms();
}

void sleep_ms(unsigned int ms)
{
	struct timespec time = { ms / 1000, (ms % 1000) * 1000000L };

	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

void relax(unsigned int round)
{
	static const struct timespec nap = { 0, 200000 };

	if (round < 32)
		return;
	if (round < 300)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

bool readable_within(int fd, int ms)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };

	return poll(&pollfd, 1, ms) == 1 && (pollfd.revents & POLLIN);
}

bool becomes_readable(int fd)
{
	return readable_within(fd, patience_ms());
}

bool becomes_word(const uint8_t *place, uint64_t value, const char *what)
{
	uint64_t limit = deadline(), word;
	unsigned int round = 0;

	do {
		relax(round++);
		memcpy(&word, place, sizeof(word));
	} while (word != value && now_ms() < limit);
	return check(word == value, "%s: 0x%llx, expected 0x%llx", what,
		     (unsigned long long)word, (unsigned long long)value);
}
