// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "device.h"
#include "fuzz.h"
#include "setup.h"
#include "stuck.h"
#include "tap.h"

enum { MAX_FD = 64, MAX_GOALS = 32, WATCH_MS = 5000 };
/* What is counted: goals, and behind them the steps. */
enum { STEPS = MAX_GOALS, COUNTS };

const char *fuzz_device, *fuzz_peer;

/* Of all processes. */
static atomic_uint *counts;
/* Processes that did not end by themselves. */
static unsigned int hangs;

static void share_counts(void)
{
	counts = mmap(NULL, COUNTS * sizeof(*counts), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED)
		bail("no memory that is shared");
}

void fuzz_count(unsigned int goal)
{
	fuzz_add(goal, 1);
}

void fuzz_add(unsigned int goal, unsigned int n)
{
	atomic_fetch_add(&counts[goal], n);
}

void fuzz_step(void)
{
	fuzz_count(STEPS);
}

/* @share: of a process's own number of steps, all processes together. */
static void report_goals(const struct fuzz_goal *goals, double share)
{
	unsigned int i, count;

	for (i = 0; goals && goals[i].name; i++) {
		count = atomic_load(&counts[i]);
		tap_note("%u %s", count, goals[i].name);
		tap_ok(count >= goals[i].least * share, "enough %s",
		       goals[i].name);
	}
}

uint64_t fuzz_number(struct random_state *random)
{
	static const uint64_t edges[] = {
		0,
		1,
		2,
		63,
		64,
		65,
		127,
		128,
		4095,
		4096,
		4097,
		0x7fffffff,
		0x80000000,
		0xffffffff,
		0x100000000,
		0x7fffffffffffffff,
		0x8000000000000000,
		0xffffffffffffffff,
	};

	switch (random_below(random, 4)) {
	case 0:
		return edges[random_below(random,
					  sizeof(edges) / sizeof(edges[0]))];
	case 1:
		return random_below(random, 64);
	case 2:
		return random_next(random) >> random_below(random, 64);
	default:
		return random_next(random);
	}
}

int fuzz_doorbell_fd(void)
{
	char path[64], target[64];
	ssize_t n;
	int fd;

	for (fd = 3; fd < MAX_FD; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = '\0';
		if (strstr(target, "[mic_doorbell]"))
			return fd;
	}
	return -1;
}

static pid_t start(fuzz_main main, uint64_t seed, unsigned int steps)
{
	struct random_state random;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	random_seed(&random, seed);
	main(&random, steps);
	fflush(stdout);
	_exit(0);
}

/* What it spoiled is in user space; the kernel waits for nothing of that. */
static bool hangs_well(pid_t pid, unsigned int fate)
{
	bool stuck = is_stuck(pid, WATCH_MS * slowness());

	hangs++;
	return check(!stuck, "the process hangs in the kernel") &&
	       check(fate & FUZZ_MAY_HANG, "the process hangs");
}

/* The status says how the process ended. */
static bool ended_well(int status, unsigned int fate)
{
	if (WIFSIGNALED(status))
		return check((fate & FUZZ_MAY_CRASH) &&
				     WTERMSIG(status) != SIGKILL,
			     "signal %d", WTERMSIG(status));
	return check(!WEXITSTATUS(status), "exit status %d",
		     WEXITSTATUS(status));
}

/* A step may wait for more than one thing. */
static uint64_t step_deadline(void)
{
	return now_ms() + 2 * (deadline() - now_ms());
}

/*
 * Whether a process may hang or not: killed, it has to be gone. It has time as long as
 * it makes steps.
 */
static bool await(pid_t pid, struct neighbours *neighbours, unsigned int fate)
{
	unsigned int steps = atomic_load(&counts[STEPS]), now;
	uint64_t end = step_deadline();
	bool ok = true, killed = false;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		ok = ok && neighbours_work(neighbours);
		now = atomic_load(&counts[STEPS]);
		if (now != steps) {
			steps = now;
			end = step_deadline();
		}
		if (now_ms() < end)
			continue;
		if (killed)
			bail("the process can't be killed");
		ok = hangs_well(pid, fate) && ok;
		kill(pid, SIGKILL);
		killed = true;
		end = deadline();
	}
	ok = (killed || ended_well(status, fate)) && ok;
	return ok && neighbours_work(neighbours);
}

/* One process beside neighbours; the case of its seed. */
static bool run_one(int *argc, char **argv, fuzz_main main, uint64_t seed,
		    unsigned int steps, unsigned int fate)
{
	struct neighbours neighbours;
	struct setup setup;
	pid_t pid;
	bool ok;

	/* the other one opens its devices itself: fork first */
	pid = start(main, seed, steps);
	if (pid < 0)
		bail("fork fails");
	setup_open(&setup, argc, argv, PAGE_BYTES);
	neighbours_open(&neighbours, &setup);
	ok = tap_ok(await(pid, &neighbours, fate), "seed %llu",
		    (unsigned long long)seed);
	neighbours_close(&neighbours);
	setup_close(&setup);
	return ok;
}

int fuzz_run(int argc, char **argv, fuzz_main main, unsigned int steps,
	     unsigned int fate, const struct fuzz_goal *goals)
{
	const char *seed_text = getenv("MIC_TEST_SEED");
	uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : 1;
	unsigned int processes = 3, minutes = 0, own_steps = steps, i;
	uint64_t begin = now_ms();

	device_names(&argc, argv, &fuzz_device, &fuzz_peer);
	for (i = 1; i + 1 < (unsigned int)argc; i += 2) {
		if (!strcmp(argv[i], "--steps"))
			steps = strtoul(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--processes"))
			processes = strtoul(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--minutes"))
			minutes = strtoul(argv[i + 1], NULL, 0);
		else
			bail("unknown option %s", argv[i]);
	}
	share_counts();
	for (i = 0; i < processes || now_ms() < begin + 60000ULL * minutes; i++)
		if (!run_one(&argc, argv, main, seed + i, steps, fate))
			break;
	if (fate & FUZZ_MAY_HANG)
		tap_note("%u processes did not end by themselves", hangs);
	report_goals(goals, (double)i * steps / own_steps);
	return tap_end();
}
