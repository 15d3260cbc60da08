// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * System calls on the files of a context, with random and almost valid arguments:
 * first come the calls of a program that has objects of every kind; those are made
 * again by several threads at once, with changes, and doorbells and mappings between
 * them.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/mic-abi.h>

#include "calls.h"
#include "event.h"
#include "fuzz.h"
#include "memory.h"
#include "objects.h"
#include "tap.h"

enum { ROUND = 1000, OBJECT_STEPS = 1500, MAX_MAPS = 256, THREADS = 3 };

static struct fuzz_goal goals[] = {
	[GOAL_ROUNDS] = { "rounds", 10 },
	[GOAL_IOCTLS] = { "ioctls accepted as they were", 300 },
	[GOAL_CHANGED_IOCTLS] = { "changed ioctls accepted", 200 },
	[GOAL_WRITES] = { "writes accepted as they were", 50 },
	[GOAL_CHANGED_WRITES] = { "changed writes accepted", 20 },
	[GOAL_CONTEXTS] = { "calls accepted of files without a context", 10 },
	[GOAL_DOORBELLS] = { "doorbells accepted", 200 },
	[GOAL_MAPPINGS] = { "mappings", 100 },
	/* only on a device whose memory is a region's */
	[GOAL_CONTEXT_MAPPINGS] = { NULL, 20 },
	{ NULL, 0 },
};

static struct worker worker;

/* What is mapped of a file, and so can be. */
struct mappings {
	const char *name; /* a part of it */
	int fd;
	unsigned int goal;
	unsigned int count;
	struct mapping {
		uint64_t offset;
		size_t length;
	} of[MAX_MAPS];
};

/* Device memory of a region is mapped of the context's own file, all else is not. */
static struct mappings doorbell = { .name = "[mic_doorbell]",
				    .goal = GOAL_MAPPINGS };
static struct mappings context = { .name = "/dev/infiniband/uverbs",
				   .goal = GOAL_CONTEXT_MAPPINGS };

static void find_mappings(struct mappings *mappings)
{
	unsigned long start, end, offset;
	char line[512];
	FILE *file = fopen("/proc/self/maps", "re");

	while (file && mappings->count < MAX_MAPS &&
	       fgets(line, sizeof(line), file)) {
		if (!strstr(line, mappings->name) ||
		    sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) != 3)
			continue;
		mappings->of[mappings->count].offset = offset;
		mappings->of[mappings->count++].length = end - start;
	}
	if (file)
		fclose(file);
}

static void record(void)
{
	unsigned int i;

	recording = true;
	device_open(&dev, fuzz_device);
	events_prepare(dev.ctx);
	for (i = 0; i < OBJECT_STEPS; i++)
		one_step(&worker);
	recording = false;
	doorbell.fd = fuzz_doorbell_fd();
	context.fd = dev.ctx->cmd_fd;
	find_mappings(&doorbell);
	find_mappings(&context);
	if (!commands_kept() || !doorbell.count || doorbell.fd < 0)
		exit(1);
}

/* A file of the device that has no context yet, or -1. */
static int fresh_file(void)
{
	char path[64], target[64] = {};

	snprintf(path, sizeof(path), "/proc/self/fd/%d", dev.ctx->cmd_fd);
	if (readlink(path, target, sizeof(target) - 1) < 0)
		return -1;
	return open(target, O_RDWR | O_CLOEXEC);
}

static void replay_fresh(struct random_state *random)
{
	int fd = fresh_file();
	unsigned int i;

	for (i = 0; i < 16; i++)
		if (replay(random, fd, some_call(random)) >= 0)
			fuzz_count(GOAL_CONTEXTS);
	close(fd);
}

static void replay_some(struct random_state *random)
{
	int goal = replay(random, dev.ctx->cmd_fd, some_call(random));

	if (goal >= 0)
		fuzz_count(goal);
}

static uint64_t some_qpn(struct random_state *random)
{
	const struct pair *pair =
		worker.objects[KIND_PAIR][random_below(random, SLOTS)];

	return pair && random_below(random, 4) ? pair->ends[0].qp->qp_num :
						 fuzz_number(random);
}

static void ring(struct random_state *random, int fd)
{
	unsigned int request = MIC_IOC_DOORBELL + random_below(random, 6);

	if (!random_below(random, 8))
		request = fuzz_number(random);
	/* each is a file that stays open */
	if (request == MIC_IOC_WINDOWS && random_below(random, 8))
		return;
	if (ioctl(fd, request, some_qpn(random)) >= 0)
		fuzz_count(GOAL_DOORBELLS);
}

/* Whole, in part, or more than there is. */
static void map(struct random_state *random, const struct mappings *mappings)
{
	struct mapping mapping = {};
	uint8_t *addr;

	if (mappings->count)
		mapping = mappings->of[random_below(random, mappings->count)];
	if (!mapping.length || random_below(random, 2))
		mapping.length = (1 + random_below(random, 64)) * PAGE_BYTES;
	if (!random_below(random, 4))
		mapping.offset = fuzz_number(random) % 256 * PAGE_BYTES;
	addr = mmap(NULL, mapping.length, PROT_READ | PROT_WRITE,
		    random_below(random, 8) ? MAP_SHARED : MAP_PRIVATE,
		    mappings->fd, mapping.offset);
	if (addr == MAP_FAILED)
		return;
	fuzz_count(mappings->goal);
	*(volatile uint8_t *)&addr[random_below(random, mapping.length)] = 0xff;
	munmap(addr, mapping.length);
}

/* What a thread calls on the files and the objects that all of them have. */
struct caller {
	pthread_t thread;
	struct random_state random;
	unsigned int steps;
};

static void *call_some(void *argument)
{
	struct caller *caller = argument;
	struct random_state *random = &caller->random;

	while (caller->steps--) {
		fuzz_step();
		switch (random_below(random, 64)) {
		case 0:
			replay_fresh(random);
			break;
		case 1 ... 8:
			ring(random, doorbell.fd);
			break;
		case 9 ... 16:
			map(random,
			    random_below(random, 4) ? &doorbell : &context);
			break;
		default:
			replay_some(random);
			break;
		}
	}
	return NULL;
}

/* What is left is for the kernel to clean up. */
static void round_of_calls(struct random_state *random, unsigned int steps)
{
	struct caller callers[THREADS];
	unsigned int i;

	random_seed(&worker.random, random_next(random));
	record();
	for (i = 0; i < THREADS; i++) {
		random_seed(&callers[i].random, random_next(random));
		callers[i].steps = steps / THREADS;
		if (pthread_create(&callers[i].thread, NULL, call_some,
				   &callers[i]))
			exit(1);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(callers[i].thread, NULL);
	fuzz_count(GOAL_ROUNDS);
	_exit(0);
}

/* Each in a process of its own: what it makes, it need not keep. */
static void start_round(struct random_state *random, unsigned int steps)
{
	struct random_state own;
	int status;
	pid_t pid;

	random_seed(&own, random_next(random));
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		round_of_calls(&own, steps);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		exit(1);
	/* it may have spoiled what it has itself; nothing else may end it */
	if (WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : status)
		exit(1);
}

static void calls(struct random_state *random, unsigned int steps)
{
	for (; steps >= ROUND; steps -= ROUND)
		start_round(random, ROUND);
}

/* usage: fuzz_calls [region] and what fuzz_run() takes; region: see the goals */
int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "region")) {
		goals[GOAL_CONTEXT_MAPPINGS].name = "mappings of device memory";
		argc--;
		argv++;
	}
	return fuzz_run(argc, argv, calls, 20000, FUZZ_ENDS, goals);
}
