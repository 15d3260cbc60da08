// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Windows of a process that does not behave: it maps them many times, goes on
 * accessing them, gives them back, and lets queue pairs fail at the very moment
 * when their memory's owner takes it away, and asks for keys that it was not given.
 *
 * usage: revoking [--device NAME] [--peer NAME] [ROUNDS of each race]
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
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <rdma/mic-abi.h>

#include "clock.h"
#include "fuzz.h"
#include "pattern.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

enum {
	PAGES = 32, /* of a region */
	MAPS = 32,  /* of a window */
	MANY = 200, /* windows, of a page each */
	GRANTED = 512,
	GUESSES = 8, /* that the kernel lets pass */
	BEFORE = 1,
	AFTER = 2,
};

#define WORDS_PER_PAGE (PAGE_BYTES / sizeof(uint64_t))

static unsigned int rounds = 5;
static struct setup setup;
static int windows_fd;
static const uint32_t *states;

/* Returns 0 or an errno value. */
static int import(const struct endpoint *ep, const struct region *region,
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
	return ioctl(windows_fd, MIC_IOC_IMPORT, req) ? errno : 0;
}

static void import_all(const struct endpoint *ep, const struct region *region,
		       struct mic_window_import *req)
{
	int err = import(ep, region, region->mr->rkey, 0, region->length, req);

	if (err)
		bail("MIC_IOC_IMPORT: %s", strerror(err));
}

static bool drop(uint32_t slot)
{
	return !ioctl(windows_fd, MIC_IOC_DROP, (unsigned long)slot);
}

static bool is_revoked(uint32_t slot)
{
	return *(volatile const uint32_t *)&states[slot] & MIC_WINDOW_REVOKED;
}

static void *map_file(uint64_t offset, size_t length, int prot)
{
	void *addr = mmap(NULL, length, prot, MAP_SHARED | MAP_NORESERVE,
			  windows_fd, (off_t)offset);

	if (addr == MAP_FAILED)
		bail("mapping the windows file: %s", strerror(errno));
	return addr;
}

static void new_region(struct region *region, struct ibv_pd *pd)
{
	memset(region, 0, sizeof(*region));
	if (!region_map(region, MEMORY_ANON, PAGES * PAGE_BYTES))
		bail("cannot map memory");
	region->addr = region->map; /* whole pages */
	region_register(region, pd, ACCESS_ALL);
}

static void new_pair(struct endpoint *a, struct endpoint *b)
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
	atomic_ulong sweeps; /* of the writer over all maps */
	unsigned int lost;   /* maps where nothing is any more */
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

static void *write_all_the_time(void *argument)
{
	struct race *race = argument;
	bool gone[MAPS] = { false };
	unsigned int i;

	while (!atomic_load(&race->stop)) {
		for (i = 0; i < MAPS; i++)
			if (!gone[i] && !write_through(race->map[i], i)) {
				gone[i] = true;
				race->lost++;
			}
		atomic_fetch_add(&race->sweeps, 1);
	}
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
	struct race race;
	unsigned int i;
	bool ok;

	race_open(&race);
	if (pthread_create(&writer, NULL, write_all_the_time, &race) ||
	    pthread_create(&ender, NULL, end, &race))
		bail("pthread_create fails");
	ok = wait_sweeps(&race, 1);
	atomic_store(&race.go, true);
	for (i = 0; i < delay; i++)
		atomic_signal_fence(memory_order_seq_cst);
	if (ibv_dereg_mr(race.region.mr))
		bail("ibv_dereg_mr: %s", strerror(errno));
	ok = out_of_reach(&race) && ok;
	atomic_store(&race.stop, true);
	pthread_join(writer, NULL);
	pthread_join(ender, NULL);
	/* whoever gives no window back finds other pages there */
	ok = check(end == give_back || !race.lost, "%u mappings have nothing",
		   race.lost) &&
	     ok;
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
		check(drop(many->slot[i]), "a window can't be given back");
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

/* --- keys -------------------------------------------------------------------- */

static bool answers(const struct endpoint *ep, const struct region *region,
		    uint32_t rkey, int expected)
{
	struct mic_window_import req;
	int err = import(ep, region, rkey, 0, region->length, &req);

	if (!err)
		drop(req.slot);
	return check(err == expected, "importing key 0x%x gives %s", rkey,
		     err ? strerror(err) : "a window");
}

static bool writes(struct endpoint *ep, const struct region *region)
{
	struct ibv_sge sge = region_sge(&setup.a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);

	wr.wr.rdma.remote_addr = region->rdma_addr;
	wr.wr.rdma.rkey = region->mr->rkey;
	post_send(ep, &wr);
	return cq_expect(ep->send_cq, 1, IBV_WC_SUCCESS);
}

/* Again, from the beginning; the peer knows nothing of it. */
static void connect_to(struct endpoint *a, const struct endpoint *peer)
{
	struct endpoint_address address = endpoint_address(peer);

	endpoint_set_state(a, IBV_QPS_RESET);
	endpoint_connect(a, &address);
}

static bool guesses(void)
{
	struct endpoint a, b;
	struct region region;
	uint32_t rkey, i;
	bool ok = true;

	new_pair(&a, &b);
	new_region(&region, setup.b_dev.pd);
	rkey = region.mr->rkey;
	for (i = 1; i < GUESSES && ok; i++)
		ok = answers(&a, &region, rkey ^ i, EACCES) &&
		     answers(&a, &region, rkey, 0);
	/* the last, for which there is not even an index */
	ok = ok && answers(&a, &region, 0, EACCES) &&
	     answers(&a, &region, rkey, EACCES);
	connect_to(&a, &b);
	ok = ok && answers(&a, &region, rkey, EACCES) && writes(&a, &region);
	endpoint_set_state(&a, IBV_QPS_RESET);
	endpoint_set_state(&b, IBV_QPS_RESET);
	pair_connect(&a, &b);
	ok = ok && answers(&a, &region, rkey, 0);
	region_destroy(&region);
	pair_destroy(&a, &b);
	return ok;
}

/* Who is not connected does not hear whether a key exists. */
static bool guesses_unconnected(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address address;
	struct endpoint a, b, other;
	struct region region;
	bool ok;

	new_pair(&a, &b);
	new_region(&region, setup.b_dev.pd);
	endpoint_create(&other, &setup.a_dev, &options);
	address = endpoint_address(&b);
	endpoint_connect(&other, &address);
	ok = answers(&other, &region, region.mr->rkey, ENOTCONN) &&
	     answers(&other, &region, region.mr->rkey ^ 1, ENOTCONN) &&
	     answers(&other, &region, 0, ENOTCONN);
	endpoint_destroy(&other);
	region_destroy(&region);
	pair_destroy(&a, &b);
	return ok;
}

/* --- another peer -------------------------------------------------------------- */

struct change {
	struct endpoint a;
	struct region region;
	atomic_bool stop;
	unsigned int granted;
	uint32_t slot[GRANTED];
};

static void *import_all_the_time(void *argument)
{
	struct change *change = argument;
	struct mic_window_import req;

	while (!atomic_load(&change->stop) && change->granted < GRANTED)
		if (!import(&change->a, &change->region,
			    change->region.mr->rkey, 0, PAGE_BYTES, &req))
			change->slot[change->granted++] = req.slot;
	return NULL;
}

/* No window of the first peer is left when there is the second. */
static bool change_once(struct change *change, const struct endpoint *peers)
{
	pthread_t thread;
	unsigned int i;
	bool ok = true;

	connect_to(&change->a, &peers[0]);
	change->granted = 0;
	atomic_store(&change->stop, false);
	if (pthread_create(&thread, NULL, import_all_the_time, change))
		bail("pthread_create fails");
	sched_yield();
	connect_to(&change->a, &peers[1]);
	sched_yield();
	atomic_store(&change->stop, true);
	pthread_join(thread, NULL);
	for (i = 0; i < change->granted; i++) {
		ok = check(is_revoked(change->slot[i]),
			   "a window of the first peer is valid") &&
		     ok;
		drop(change->slot[i]);
	}
	return ok;
}

static bool changes_peer(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address address;
	struct endpoint peers[2];
	struct change change;
	unsigned int i;
	bool ok = true;

	memset(&change, 0, sizeof(change));
	new_region(&change.region, setup.b_dev.pd);
	endpoint_create(&change.a, &setup.a_dev, &options);
	address = endpoint_address(&change.a);
	/* the second peer is in a domain where the key means nothing */
	endpoint_create(&peers[0], &setup.b_dev, &options);
	options.pd = ibv_alloc_pd(setup.b_dev.ctx);
	if (!options.pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	endpoint_create(&peers[1], &setup.b_dev, &options);
	for (i = 0; i < 2; i++)
		endpoint_connect(&peers[i], &address);
	for (i = 0; i < rounds && ok; i++)
		ok = change_once(&change, peers);
	endpoint_destroy(&change.a);
	endpoint_destroy(&peers[0]);
	endpoint_destroy(&peers[1]);
	ibv_dealloc_pd(options.pd);
	region_destroy(&change.region);
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

	windows_fd = ioctl(fuzz_doorbell_fd(), MIC_IOC_WINDOWS, 0);
	if (windows_fd < 0)
		bail("MIC_IOC_WINDOWS: %s", strerror(errno));
	states = map_file(MIC_WINDOW_STATES, MIC_WINDOW_SLOTS * sizeof(*states),
			  PROT_READ);
	sigaction(SIGBUS, &bus_error, NULL);
}

int main(int argc, char **argv)
{
	setup_open(&setup, &argc, argv, PAGE_BYTES);
	if (argc > 1)
		rounds = atoi(argv[1]);
	open_windows();
	tap_ok(races(give_back),
	       "memory is out of reach when its region is gone, while the window is given back");
	tap_ok(races(fail_here),
	       "memory is out of reach when its region is gone, while the queue pair fails");
	tap_ok(races(fail_there),
	       "memory is out of reach when its region is gone, while the peer's queue pair fails");
	tap_ok(many_at_once(by_error),
	       "many windows of a queue pair end at once");
	tap_ok(many_at_once(by_dereg), "many windows of a region end at once");
	tap_ok(guesses(), "after some wrong keys there are no more windows");
	tap_ok(guesses_unconnected(), "without a connection no key is known");
	tap_ok(changes_peer(), "a window is of the peer that there is");
	setup_close(&setup);
	return tap_end();
}
