// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Windows of a process that does not behave: it maps them many times, goes on
 * accessing them, gives them back, and lets queue pairs fail at the very moment
 * when their memory's owner takes it away, and asks for keys that it was not given.
 *
 * usage: revoking [--device NAME] [--peer NAME] [ROUNDS of each race [FAULTS]]
 *
 * FAULTS is how many page faults of the writers there have to be in all races
 * together.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <rdma/mic-abi.h>

#include "clock.h"
#include "pattern.h"
#include "revoking.h"
#include "tap.h"
#include "work.h"

enum {
	MAPS = 32,  /* of a window */
	MORE = 10,  /* races, if there were not enough faults */
	MANY = 200, /* windows, of a page each */
	BEFORE = 1,
	AFTER = 2,
};

#define WORDS_PER_PAGE (PAGE_BYTES / sizeof(uint64_t))

unsigned int rounds = 5;
struct setup setup;
static unsigned long least_faults = 10000;
static unsigned long faults; /* of the writers, so far */
static unsigned long racing; /* while memory was taken away */

int import(const struct endpoint *ep, const struct region *region,
	   uint32_t rkey, size_t offset, size_t length,
	   struct mic_window_import *req)
{
	*req = (struct mic_window_import){
		.qpn = ep->qp->qp_num,
		.rkey = rkey,
		.addr = region->rdma_addr + offset,
		.length = length,
		.access = IBV_ACCESS_REMOTE_WRITE,
	};
	return import_window(req);
}

static void import_all(const struct endpoint *ep, const struct region *region,
		       struct mic_window_import *req)
{
	int err = import(ep, region, region->mr->rkey, 0, region->length, req);

	if (err)
		bail("MIC_IOC_IMPORT: %s", strerror(err));
}

void new_region(struct region *region, struct ibv_pd *pd)
{
	memset(region, 0, sizeof(*region));
	if (!region_map(region, MEMORY_ANON, PAGES * PAGE_BYTES))
		bail("cannot map memory");
	region->addr = region->map; /* whole pages */
	region_register(region, pd, ACCESS_ALL);
}

void new_pair(struct endpoint *a, struct endpoint *b)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	pair_create(a, &setup.a_dev, b, &setup.b_dev, &options);
}

/* --- races ------------------------------------------------------------------ */

struct race {
	struct endpoint a;
	struct endpoint b;
	struct region region;
	struct mic_window_import req;
	volatile uint64_t *map[MAPS];
	atomic_bool go; /* now the window ends */
	atomic_bool stop;
	atomic_ulong sweeps;  /* of the writer over all maps */
	unsigned int lost;    /* maps where nothing is any more */
	unsigned long faults; /* of the writer */
};

static __thread sigjmp_buf escape;

static void on_bus_error(int signal)
{
	siglongjmp(escape, signal);
}

/* False if nothing is there any more. */
static bool write_through(volatile uint64_t *map, unsigned int index)
{
	unsigned int page;

	if (sigsetjmp(escape, 0))
		return false;
	for (page = 0; page < PAGES; page++)
		map[page * WORDS_PER_PAGE + index] = BEFORE;
	return true;
}

/* Half of the maps are made anew each time, so that writing to them faults. */
static void map_anew(struct race *race, unsigned int index)
{
	void *map = (void *)race->map[index];

	if (index % 2 && mmap(map, race->region.length, PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
			      windows_fd, (off_t)race->req.offset) != map)
		bail("mapping the windows file anew: %s", strerror(errno));
}

static unsigned long count_faults(int who)
{
	struct rusage usage;

	if (getrusage(who, &usage))
		bail("getrusage: %s", strerror(errno));
	return usage.ru_minflt + usage.ru_majflt;
}

static void *write_all_the_time(void *argument)
{
	const unsigned long before = count_faults(RUSAGE_THREAD);
	struct race *race = argument;
	bool gone[MAPS] = { false };
	unsigned int i;

	while (!atomic_load(&race->stop)) {
		for (i = 0; i < MAPS; i++) {
			if (gone[i])
				continue;
			map_anew(race, i);
			if (!write_through(race->map[i], i)) {
				gone[i] = true;
				race->lost++;
			}
		}
		atomic_fetch_add(&race->sweeps, 1);
	}
	race->faults = count_faults(RUSAGE_THREAD) - before;
	return NULL;
}

static void *give_back(void *argument)
{
	struct race *race = argument;

	while (!atomic_load(&race->go))
		sched_yield();
	drop(race->req.slot);
	return NULL;
}

static void *fail_here(void *argument)
{
	struct race *race = argument;

	while (!atomic_load(&race->go))
		sched_yield();
	endpoint_set_state(&race->a, IBV_QPS_ERR);
	return NULL;
}

static void *fail_there(void *argument)
{
	struct race *race = argument;

	while (!atomic_load(&race->go))
		sched_yield();
	endpoint_set_state(&race->b, IBV_QPS_ERR);
	return NULL;
}

static bool wait_sweeps(struct race *race, unsigned long n)
{
	unsigned long end = atomic_load(&race->sweeps) + n;
	uint64_t limit = deadline();
	unsigned int round = 0;

	while (atomic_load(&race->sweeps) < end) {
		if (!check(now_ms() < limit, "the writer is stuck"))
			return false;
		relax(round++);
	}
	return true;
}

static void race_open(struct race *race)
{
	unsigned int i;

	memset(race, 0, sizeof(*race));
	new_pair(&race->a, &race->b);
	new_region(&race->region, setup.b_dev.pd);
	import_all(&race->a, &race->region, &race->req);
	for (i = 0; i < MAPS; i++)
		race->map[i] = map_file(race->req.offset, race->region.length,
					PROT_READ | PROT_WRITE);
}

static void race_close(struct race *race)
{
	unsigned int i;

	for (i = 0; i < MAPS; i++)
		munmap((void *)race->map[i], race->region.length);
	drop(race->req.slot);
	munmap(race->region.map, race->region.map_length);
	pair_destroy(&race->a, &race->b);
}

/* Is nothing written any more? The region is not registered any more. */
static bool out_of_reach(struct race *race)
{
	volatile uint64_t *memory = (volatile uint64_t *)race->region.addr;
	size_t words = race->region.length / sizeof(uint64_t), i;

	for (i = 0; i < words; i++)
		memory[i] = AFTER;
	if (!wait_sweeps(race, 2))
		return false;
	for (i = 0; i < words; i++)
		if (!check(memory[i] == AFTER, "word %zu was written", i))
			return false;
	return true;
}

static bool run_race(void *(*end)(void *), unsigned int delay)
{
	pthread_t writer, ender;
	unsigned long before;
	struct race race;
	unsigned int i;
	bool ok;

	race_open(&race);
	if (pthread_create(&writer, NULL, write_all_the_time, &race) ||
	    pthread_create(&ender, NULL, end, &race))
		bail("pthread_create fails");
	ok = wait_sweeps(&race, 1);
	before = count_faults(RUSAGE_SELF);
	atomic_store(&race.go, true);
	for (i = 0; i < delay; i++)
		atomic_signal_fence(memory_order_seq_cst);
	if (ibv_dereg_mr(race.region.mr))
		bail("ibv_dereg_mr: %s", strerror(errno));
	/* only the writer has many */
	racing += count_faults(RUSAGE_SELF) - before;
	ok = out_of_reach(&race) && ok;
	atomic_store(&race.stop, true);
	pthread_join(writer, NULL);
	pthread_join(ender, NULL);
	/* whoever gives no window back finds other pages there */
	ok = check(end == give_back || !race.lost, "%u mappings have nothing",
		   race.lost) &&
	     ok;
	faults += race.faults;
	race_close(&race);
	return ok;
}

static bool races(void *(*end)(void *))
{
	struct random_state random;
	unsigned int i;
	bool ok = true;

	random_seed(&random, rounds);
	for (i = 0; i < rounds && ok; i++)
		ok = run_race(end, random_below(&random, 1 << (i % 20)));
	return ok;
}

/* Where nobody faults nothing races; it may take more races. */
static bool races_enough(void)
{
	unsigned int i, most = MORE * rounds;
	bool ok = true;

	for (i = 0;
	     (faults < least_faults || racing < rounds) && i < most && ok; i++)
		ok = run_race(i % 2 ? fail_here : fail_there, i);
	tap_note("%lu faults in %u races, %lu while memory was taken away",
		 faults, 3 * rounds + i, racing);
	return check(faults >= least_faults && racing >= rounds,
		     "there should be %lu, and %u then", least_faults,
		     rounds) &&
	       ok;
}

/* --- many at once ------------------------------------------------------------ */

struct many {
	struct endpoint a;
	struct endpoint b;
	struct region region;
	uint32_t slot[MANY];
	volatile uint64_t *map; /* of all windows of a page */
};

static volatile uint64_t *many_at(const struct many *many, unsigned int i)
{
	return many->map + many->slot[i] * WORDS_PER_PAGE;
}

static void many_open(struct many *many)
{
	struct mic_window_import req;
	unsigned int i;
	int err;

	new_pair(&many->a, &many->b);
	new_region(&many->region, setup.b_dev.pd);
	for (i = 0; i < MANY; i++) {
		err = import(&many->a, &many->region, many->region.mr->rkey,
			     i % PAGES * PAGE_BYTES, PAGE_BYTES, &req);
		if (err)
			bail("window %u: %s", i, strerror(err));
		many->slot[i] = req.slot;
	}
}

static void many_close(struct many *many)
{
	unsigned int i;

	for (i = 0; i < MANY; i++)
		tap_must(drop(many->slot[i]), "a window can't be given back");
	if (many->region.mr)
		region_destroy(&many->region);
	else
		munmap(many->region.map, many->region.map_length);
	pair_destroy(&many->a, &many->b);
}

/* All of these are revoked, and show none of the memory. */
static bool all_gone(struct many *many)
{
	volatile uint64_t *memory = (volatile uint64_t *)many->region.addr;
	unsigned int i;

	for (i = 0; i < MANY; i++) {
		size_t word = i % PAGES * WORDS_PER_PAGE;

		memory[word] = AFTER;
		*many_at(many, i) = BEFORE;
		if (!check(is_revoked(many->slot[i]), "window %u is valid",
			   i) ||
		    !check(memory[word] == AFTER, "window %u is there", i))
			return false;
	}
	return true;
}

/* All of these show the memory. */
static bool all_there(struct many *many, uint64_t value)
{
	volatile uint64_t *memory = (volatile uint64_t *)many->region.addr;
	unsigned int i;

	for (i = 0; i < MANY; i++) {
		size_t word = i % PAGES * WORDS_PER_PAGE;

		*many_at(many, i) = value + i;
		if (!check(!is_revoked(many->slot[i]), "window %u is gone",
			   i) ||
		    !check(memory[word] == value + i, "window %u shows another",
			   i))
			return false;
	}
	return true;
}

static void by_error(struct many *many)
{
	endpoint_set_state(&many->a, IBV_QPS_ERR);
}

static void by_dereg(struct many *many)
{
	if (ibv_dereg_mr(many->region.mr))
		bail("ibv_dereg_mr: %s", strerror(errno));
	many->region.mr = NULL;
}

/* What others have in the same file comes back, if it was taken out as well. */
static bool many_at_once(void (*end)(struct many *))
{
	const size_t length = (size_t)MIC_WINDOW_SLOTS * PAGE_BYTES;
	struct many ends, stays;
	bool ok;

	many_open(&ends);
	many_open(&stays);
	ends.map = map_file((uint64_t)MIC_WINDOW_CLASS_MIN
					    << MIC_WINDOW_CLASS_SHIFT |
				    MIC_WINDOW_WRITABLE,
			    length, PROT_READ | PROT_WRITE);
	stays.map = ends.map;
	ok = all_there(&ends, 1000) && all_there(&stays, 2000);
	end(&ends);
	ok = ok && all_gone(&ends) && all_there(&stays, 3000);
	munmap((void *)ends.map, length);
	many_close(&ends);
	many_close(&stays);
	return ok;
}

/* ---------------------------------------------------------------------------- */

static void open_windows(void)
{
	/* a jump out of the handler leaves the signal as it is */
	const struct sigaction bus_error = {
		.sa_handler = on_bus_error,
		.sa_flags = SA_NODEFER,
	};

	windows_file_open();
	sigaction(SIGBUS, &bus_error, NULL);
}

int main(int argc, char **argv)
{
	setup_open(&setup, &argc, argv, PAGE_BYTES);
	if (argc > 1)
		rounds = atoi(argv[1]);
	if (argc > 2)
		least_faults = strtoul(argv[2], NULL, 0);
	open_windows();
	tap_ok(races(give_back),
	       "memory is out of reach when its region is gone, while the window is given back");
	tap_ok(races(fail_here),
	       "memory is out of reach when its region is gone, while the queue pair fails");
	tap_ok(races(fail_there),
	       "memory is out of reach when its region is gone, while the peer's queue pair fails");
	tap_ok(races_enough(), "at least %lu page faults race with that",
	       least_faults);
	tap_ok(many_at_once(by_error),
	       "many windows of a queue pair end at once");
	tap_ok(many_at_once(by_dereg), "many windows of a region end at once");
	tap_ok(guesses(), "after some wrong keys there are no more windows");
	tap_ok(guesses_refused(), "wrong keys count whatever else is wrong");
	tap_ok(guesses_unconnected(), "without a connection no key is known");
	tap_ok(invalidation_waits(),
	       "while an invalidation waits windows end, and there are new ones");
	tap_ok(changes_peer(), "a window is of the peer that there is");
	setup_close(&setup);
	return tap_end();
}
