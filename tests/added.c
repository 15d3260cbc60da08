// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A program adds to a word with its processor's instructions while requests of another
 * queue pair, or another machine, add to it: nothing of it is lost.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "setup.h"
#include "tap.h"
#include "work.h"

enum { REQUESTS = 20000, MEMORY_BYTES = 4096, ID = 1 };

static struct setup setup;
static struct endpoint a, b;

static atomic_uint_least64_t *word;
static atomic_bool stop;

/* Returns how often it has added, by adding to what the requests do not. */
static void *add(void *unused)
{
	uint64_t added = 0;

	while (!atomic_load(&stop)) {
		atomic_fetch_add(word, 1ULL << 32);
		added++;
	}
	(void)unused;
	return (void *)(uintptr_t)added;
}

/* Adds one, as a whole or if nobody else has meanwhile. */
static bool request(enum ibv_wr_opcode opcode, uint64_t expected)
{
	struct ibv_sge sge = region_sge(&setup.a_mem, 0, sizeof(*word));
	struct ibv_send_wr wr = send_wr(ID, opcode, &sge, 1);

	send_wr_aim(&wr, setup.b_mem.rdma_addr, setup.b_mem.mr->rkey);
	wr.wr.atomic.compare_add = 1;
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.compare_add = expected;
		wr.wr.atomic.swap = expected + 1;
	}
	post_send(&a, &wr);
	return cq_expect(a.send_cq, ID, IBV_WC_SUCCESS);
}

static bool adds(unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (!request(IBV_WR_ATOMIC_FETCH_AND_ADD, 0))
			return false;
	return true;
}

/*
 * Those that find the word as it was a moment ago do add; nobody who is not in the
 * process's memory can tell how many.
 */
static bool swaps(unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (!request(IBV_WR_ATOMIC_CMP_AND_SWP, atomic_load(word)))
			return false;
	return true;
}

static bool beside(bool (*requests)(unsigned int count), bool all)
{
	unsigned int count = repetitions(&setup, REQUESTS);
	pthread_t thread;
	uint64_t now;
	void *added;
	bool ok;

	atomic_store(word, 0);
	atomic_store(&stop, false);
	if (pthread_create(&thread, NULL, add, NULL))
		bail("no thread");
	ok = requests(count);
	atomic_store(&stop, true);
	pthread_join(thread, &added);
	now = atomic_load(word);
	return ok &&
	       check(now >> 32 == ((uintptr_t)added & UINT32_MAX),
		     "%lu times the program added, %lu are there",
		     (unsigned long)(uintptr_t)added,
		     (unsigned long)(now >> 32)) &&
	       check(all ? (uint32_t)now == count : (uint32_t)now <= count,
		     "%u requests added, %u are there", count, (uint32_t)now);
}

int main(int argc, char **argv)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	setup_open(&setup, &argc, argv, MEMORY_BYTES);
	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	/* where send_wr_aim() aims */
	word = (atomic_uint_least64_t *)(((uintptr_t)setup.b_mem.addr + 7) &
					 ~(uintptr_t)7);
	tap_ok(beside(adds, true), "a program and FETCH_ADD");
	tap_ok(beside(swaps, false), "a program and CMP_SWAP");
	pair_destroy(&a, &b);
	setup_close(&setup);
	return tap_end();
}
