// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Regions that are deregistered, registered and registered again all the time
 * while requests go to them. A request succeeds, and then it has taken place
 * as a whole, or it fails because its key does not stand any more; memory that
 * is not registered is neither written nor read.
 *
 * usage: soak [--device NAME] [--peer NAME] SECONDS
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "endpoint.h"
#include "executed.h"
#include "memory.h"
#include "pattern.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

enum {
	REGIONS = 6,
	POSTERS = 3,
	PART_BYTES = 1 << 14, /* of a region, a poster's own */
	REGION_BYTES = POSTERS * PART_BYTES,
	WORD = 8,
	NOT_REGISTERED = 0xee, /* no registered memory holds this byte */
};

struct slot {
	struct region region;
	atomic_uint rkey;
};

struct poster {
	pthread_t thread;
	unsigned int index;
	enum micdv_path path;
	struct endpoint a;
	struct endpoint b;
	struct random_state random;
	uint64_t requests;
	atomic_ulong refused;
	uint64_t direct;
	bool ok;
};

static struct setup setup;
static struct slot slots[REGIONS];
static atomic_bool stop, failed;
static uint64_t changes;

static void publish(struct slot *slot)
{
	atomic_store(&slot->rkey, slot->region.mr->rkey);
}

static void register_slot(struct slot *slot)
{
	memset(slot->region.addr, 0, REGION_BYTES);
	region_register(&slot->region, setup.b_dev.pd, ACCESS_ALL);
	publish(slot);
}

/* --- who changes regions --------------------------------------------------- */

static bool deregister(struct slot *slot, unsigned int naps)
{
	uint8_t *bytes = slot->region.addr;
	size_t i;

	if (!check(!ibv_dereg_mr(slot->region.mr), "ibv_dereg_mr fails"))
		return false;
	memset(bytes, NOT_REGISTERED, REGION_BYTES);
	for (i = 0; i < naps; i++)
		sched_yield();
	for (i = 0; i < REGION_BYTES; i++)
		if (!check(bytes[i] == NOT_REGISTERED,
			   "byte %zu of a region that is gone was written", i))
			return false;
	register_slot(slot);
	return true;
}

/* Its key stays, with other rights or the same. */
static bool reregister(struct slot *slot, unsigned int kind)
{
	static const int access[] = {
		ACCESS_ALL,
		ACCESS_ALL & ~IBV_ACCESS_REMOTE_WRITE,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
		IBV_ACCESS_LOCAL_WRITE,
	};
	int ret;

	if (kind < 4)
		ret = ibv_rereg_mr(slot->region.mr, IBV_REREG_MR_CHANGE_ACCESS,
				   NULL, NULL, 0, access[kind]);
	else
		ret = ibv_rereg_mr(slot->region.mr,
				   IBV_REREG_MR_CHANGE_TRANSLATION |
					   IBV_REREG_MR_CHANGE_ACCESS,
				   NULL, slot->region.addr, REGION_BYTES,
				   ACCESS_ALL);
	publish(slot);
	return check(!ret, "ibv_rereg_mr: %d", ret);
}

static bool change_one(struct random_state *random)
{
	struct slot *slot = &slots[random_below(random, REGIONS)];
	unsigned int kind = random_below(random, 16);

	changes++;
	if (kind < 8)
		return deregister(slot, 1 + 4 * kind);
	return reregister(slot, kind % 8);
}

static void *change_all_the_time(void *argument)
{
	struct random_state random;

	(void)argument;
	random_seed(&random, 4711);
	while (!atomic_load(&stop)) {
		if (!change_one(&random)) {
			atomic_store(&failed, true);
			break;
		}
		if (!random_below(&random, 4))
			sleep_ms(random_below(&random, 4));
	}
	return NULL;
}

/* --- who uses them --------------------------------------------------------- */

static void open_poster(struct poster *poster)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	pair_create(&poster->a, &setup.a_dev, &poster->b, &setup.b_dev,
		    &options);
	if (micdv_set_path(poster->a.qp, poster->path))
		bail("micdv_set_path fails");
}

/* The same queue pairs, after a request was refused. */
static bool reconnect(struct poster *poster)
{
	atomic_fetch_add(&poster->refused, 1);
	if (!check(!endpoint_set_state(&poster->a, IBV_QPS_RESET) &&
			   !endpoint_set_state(&poster->b, IBV_QPS_RESET),
		   "ibv_modify_qp fails"))
		return false;
	pair_connect(&poster->a, &poster->b);
	return true;
}

/*
 * A request for the poster's part of a region. False if something is wrong;
 * *@done says whether it succeeded.
 */
static bool request(struct poster *poster, struct slot *slot, uint32_t rkey,
		    enum ibv_wr_opcode opcode, uint32_t length, bool *done)
{
	struct ibv_sge sge = region_sge(
		&setup.a_mem, (size_t)poster->index * PART_BYTES, length);
	struct ibv_send_wr wr = send_wr(poster->requests, opcode, &sge, 1);
	uint64_t addr = slot->region.rdma_addr +
			(size_t)poster->index * PART_BYTES;
	struct ibv_wc wc;

	if (opcode_is_atomic(opcode)) {
		wr.wr.atomic.remote_addr = (addr + 7) & ~7ULL;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	post_send(&poster->a, &wr);
	if (!cq_wait(poster->a.send_cq, &wc))
		return false;
	if (!check(wc.wr_id == poster->requests++, "another completion"))
		return false;
	*done = wc.status == IBV_WC_SUCCESS;
	if (*done)
		return true;
	return check(wc.status == IBV_WC_REM_ACCESS_ERR, "a request fails: %s",
		     ibv_wc_status_str(wc.status)) &&
	       reconnect(poster);
}

static uint8_t *own_memory(const struct poster *poster)
{
	return setup.a_mem.addr + (size_t)poster->index * PART_BYTES;
}

/* What is written is what is read, as long as the key is the same. */
static bool write_and_read(struct poster *poster, struct slot *slot)
{
	uint32_t length = 1 + random_below(&poster->random, PART_BYTES);
	uint32_t rkey = atomic_load(&slot->rkey);
	uint8_t *memory = own_memory(poster);
	uint8_t byte = 1 + poster->requests % 100;
	size_t i;
	bool done;

	memset(memory, byte, length);
	if (!request(poster, slot, rkey, IBV_WR_RDMA_WRITE, length, &done))
		return false;
	if (!done)
		return true;
	memset(memory, 0xdd, length);
	if (!request(poster, slot, rkey, IBV_WR_RDMA_READ, length, &done))
		return false;
	for (i = 0; done && i < length; i++)
		if (!check(memory[i] == byte, "byte %zu of %u is 0x%x", i,
			   length, memory[i]))
			return false;
	return true;
}

/*
 * Of what was read, with the key of then: was all of it registered? Not the word that is
 * added to: while a region may not be written to, adding makes any byte of it.
 */
static bool was_registered(const struct poster *poster, const struct slot *slot,
			   uint32_t rkey, uint32_t length, bool here)
{
	const uint8_t *memory = own_memory(poster), *first;
	uint32_t i, count = 0;

	if (length <= WORD)
		return true;
	first = memchr(memory + WORD, NOT_REGISTERED, length - WORD);
	if (!first)
		return true;
	for (i = WORD; i < length; i++)
		count += memory[i] == NOT_REGISTERED;
	return check(
		false,
		"memory that is not registered was read: by poster %u, %s, "
		"%u of %u bytes, the first at %td, the last is 0x%02x; region "
		"%td, key 0x%x, then 0x%x",
		poster->index, here ? "here" : "by the kernel", count, length,
		first - memory, memory[length - 1], slot - slots, rkey,
		atomic_load(&slot->rkey));
}

static bool only_read(struct poster *poster, struct slot *slot)
{
	uint32_t length = 1 + random_below(&poster->random, PART_BYTES);
	uint64_t before = executed_here(&poster->a);
	uint32_t rkey = atomic_load(&slot->rkey);
	bool done;

	if (!request(poster, slot, rkey, IBV_WR_RDMA_READ, length, &done))
		return false;
	return !done || was_registered(poster, slot, rkey, length,
				       executed_here(&poster->a) != before);
}

static bool add_twice(struct poster *poster, struct slot *slot)
{
	uint32_t rkey = atomic_load(&slot->rkey);
	uint64_t first, second;
	bool done;

	if (!request(poster, slot, rkey, IBV_WR_ATOMIC_FETCH_AND_ADD, WORD,
		     &done))
		return false;
	if (!done)
		return true;
	memcpy(&first, own_memory(poster), WORD);
	if (!request(poster, slot, rkey, IBV_WR_ATOMIC_FETCH_AND_ADD, WORD,
		     &done))
		return false;
	memcpy(&second, own_memory(poster), WORD);
	return !done || check(second == first + 1,
			      "after adding to %" PRIu64 " it is %" PRIu64,
			      first, second);
}

static void *post_all_the_time(void *argument)
{
	static bool (*const uses[])(struct poster *, struct slot *) = {
		write_and_read,
		only_read,
		add_twice,
	};
	struct poster *poster = argument;
	struct slot *slot;

	poster->ok = true;
	while (poster->ok && !atomic_load(&stop) && !atomic_load(&failed)) {
		slot = &slots[random_below(&poster->random, REGIONS)];
		poster->ok = uses[random_below(&poster->random, 3)](poster,
								    slot);
	}
	if (!poster->ok)
		atomic_store(&failed, true);
	poster->direct = executed_here(&poster->a);
	return NULL;
}

/* --------------------------------------------------------------------------- */

static void start(pthread_t *thread, void *(*main)(void *), void *argument)
{
	if (pthread_create(thread, NULL, main, argument))
		bail("pthread_create fails");
}

/* On a slow machine that may take longer than was asked for. */
static bool all_busy(struct poster *posters)
{
	unsigned int i;

	for (i = 0; i < POSTERS; i++)
		if (!executed_here(&posters[i].a) ||
		    !atomic_load(&posters[i].refused))
			return false;
	return true;
}

static void run(struct poster *posters, unsigned int seconds)
{
	uint64_t end = now_ms() + 1000 * (uint64_t)seconds, limit;
	pthread_t changer;
	unsigned int i;

	start(&changer, change_all_the_time, NULL);
	for (i = 0; i < POSTERS; i++)
		start(&posters[i].thread, post_all_the_time, &posters[i]);
	limit = deadline() > end ? deadline() : end;
	while (!atomic_load(&failed) &&
	       (now_ms() < end || (!all_busy(posters) && now_ms() < limit)))
		sleep_ms(50);
	atomic_store(&stop, true);
	pthread_join(changer, NULL);
	for (i = 0; i < POSTERS; i++)
		pthread_join(posters[i].thread, NULL);
}

static bool was_busy(struct poster *poster)
{
	tap_note("%" PRIu64 " requests, %" PRIu64 " executed here, %lu refused",
		 poster->requests, poster->direct,
		 atomic_load(&poster->refused));
	return check(poster->direct > 0, "the kernel has executed all") &&
	       check(atomic_load(&poster->refused) > 0,
		     "no request met a dead key");
}

int main(int argc, char **argv)
{
	static struct poster posters[POSTERS];
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	if (argc < 2)
		bail("usage: soak SECONDS");
	for (i = 0; i < REGIONS; i++) {
		if (!region_map(&slots[i].region, MEMORY_ANON, REGION_BYTES))
			bail("cannot map memory");
		register_slot(&slots[i]);
	}
	for (i = 0; i < POSTERS; i++) {
		posters[i].index = i;
		posters[i].path = i ? MICDV_PATH_DIRECT : MICDV_PATH_RANDOM;
		random_seed(&posters[i].random, 815 + i);
		open_poster(&posters[i]);
	}
	run(posters, atoi(argv[1]));
	tap_note("%" PRIu64 " changes", changes);
	tap_ok(!atomic_load(&failed),
	       "no request does what its key does not allow any more");
	for (i = 0; i < POSTERS; i++) {
		tap_ok(posters[i].ok && was_busy(&posters[i]),
		       "poster %u: what succeeds has taken place", i);
		pair_destroy(&posters[i].a, &posters[i].b);
	}
	for (i = 0; i < REGIONS; i++)
		region_destroy(&slots[i].region);
	setup_close(&setup);
	return tap_end();
}
