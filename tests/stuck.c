// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the fuzz tests judge a process by that does not end (lib/stuck.h): processes that
 * are held up in the kernel, and those that are not.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "stuck.h"
#include "tap.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { WATCH_MS = 2000, BEGIN_MS = 300, TRIES = 5, RANDOM_BYTES = 1 << 24 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void computes(void)
{
	volatile unsigned int number = 0;

	for (;;)
		number++;
}

/* What it waits for is up to the process itself. */
static void locks(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_lock(&lock);
}

/* Each call takes no time, but it comes back from all of them. */
static void calls(void)
{
	for (;;)
		getppid();
}

static void waits(void)
{
	char byte;
	int fds[2];

	if (pipe(fds) || read(fds[0], &byte, 1) < 0)
		_exit(1);
}

/* As good as one call that does not come back. */
static void works(void)
{
	void *bytes = malloc(RANDOM_BYTES);

	while (getrandom(bytes, RANDOM_BYTES, 0) > 0)
		;
}

static void *waiting_thread(void *unused)
{
	(void)unused;
	waits();
	return NULL;
}

static void has_thread(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, waiting_thread, NULL))
		_exit(1);
	computes();
}

static const struct {
	const char *name;
	void (*main)(void);
	bool stuck;
} processes[] = {
	{ "computes", computes, false },
	{ "waits for itself", locks, false },
	{ "makes many calls", calls, false },
	{ "waits in a call", waits, true },
	{ "is at work in a call", works, true },
	{ "has a thread that waits in a call", has_thread, true },
};

/* Who gets no processor for a while is not yet where it stays: that is looked at again. */
static bool judged(void (*process)(void), bool expected)
{
	unsigned int tries = expected ? TRIES : 1;
	pid_t pid = fork();
	bool stuck;

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		process();
		_exit(1);
	}
	if (pid < 0)
		bail("fork fails");
	sleep_ms(BEGIN_MS * slowness());
	do
		stuck = is_stuck(pid, WATCH_MS * slowness());
	while (!stuck && --tries);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return check(stuck == expected, "it is taken for %s",
		     stuck ? "stuck" : "one that is not stuck");
}

int main(void)
{
	unsigned int i;

	for (i = 0; i < COUNT(processes); i++)
		tap_ok(judged(processes[i].main, processes[i].stuck),
		       "a process that %s", processes[i].name);
	return tap_end();
}
