// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Creates, changes, uses and destroys objects of every kind in random order from
 * several threads. What is in use by another object stays.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "event.h"
#include "fuzz.h"
#include "objects.h"
#include "tap.h"

/* At least so many by each process, on average; of windows, which take luck. */
enum { THREADS = 4, LEAST = 5, LEAST_WINDOWS = 1 };

static void *work(void *argument)
{
	struct worker *worker = argument;

	while (worker->steps--)
		one_step(worker);
	return NULL;
}

/* Later kinds use earlier ones; a second time for what used its own kind. */
static void destroy_all(struct worker *worker)
{
	unsigned int round, slot;
	int kind, error;

	for (round = 0; round < 2; round++) {
		for (kind = KINDS - 1; kind >= 0; kind--) {
			fuzz_step();
			for (slot = 0; slot < SLOTS; slot++) {
				void **object = &worker->objects[kind][slot];

				error = *object ?
						ops_of(kind)->destroy(*object) :
						0;
				if (!error)
					*object = NULL;
				else if (round)
					bail("%s: one stays: %s",
					     kind_names[kind], strerror(error));
			}
		}
	}
}

/* What all processes together have to make of each kind. */
static struct fuzz_goal goals[KINDS + 1];

static void name_goals(void)
{
	unsigned int kind;

	for (kind = 0; kind < KINDS; kind++)
		goals[kind] = (struct fuzz_goal){ kind_names[kind], LEAST };
	goals[KIND_WINDOW].least = LEAST_WINDOWS;
}

static bool all_made(void)
{
	unsigned int kind;

	for (kind = 0; kind < KINDS; kind++)
		if (!atomic_load(&made[kind]))
			return false;
	return true;
}

/* What takes luck may take more steps. */
static void count_made(struct worker *worker, unsigned int steps)
{
	unsigned int kind;

	while (!all_made() && steps--)
		one_step(worker);
	for (kind = 0; kind < KINDS; kind++)
		fuzz_add(kind, atomic_load(&made[kind]));
}

static void objects(struct random_state *random, unsigned int steps)
{
	static struct worker workers[THREADS];
	int i;

	device_open(&dev, fuzz_device);
	events_prepare(dev.ctx);
	for (i = 0; i < THREADS; i++) {
		random_seed(&workers[i].random, random_next(random));
		workers[i].steps = steps / THREADS;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			exit(1);
	}
	/* half of the processes leave in the middle of it */
	if (random_below(random, 2)) {
		pthread_join(workers[0].thread, NULL);
		count_made(&workers[0], 20 * steps);
		return;
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	count_made(&workers[0], 20 * steps);
	for (i = 0; i < THREADS; i++)
		destroy_all(&workers[i]);
	device_close(&dev);
}

int main(int argc, char **argv)
{
	name_goals();
	return fuzz_run(argc, argv, objects, 4000, FUZZ_ENDS, goals);
}
