// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * An OpenSHMEM 1.4 program that looks at every byte it gets: what is put and got, in
 * one piece or strided, blocking or not; atomic operations; what is seen in which order
 * by who waits for a word; locks; collective operations. TAP on PE 0.
 */
#include <shmem.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"

enum {
	ROUNDS = 20,
	COUNTS = 200,
	PIECES = 64,
	STRIDED = 500,
	LARGE = 1 << 20,
	/* elements that a sum is made of, and that are exchanged */
	ELEMENTS = 1000,
};

static const size_t sizes[] = { 1, 7, 8, 64, 1000, 4096, 65536, LARGE };

static int pes, cases, failures;

/* Symmetric: each PE has its own, at the same address. */
static uint8_t *inbox, *outbox;
static int64_t *mine, *theirs;
static long word, flag, guard, guarded;
static int good_here, good_everywhere;
static int int_work[_SHMEM_REDUCE_MIN_WRKDATA_SIZE];
static long long_work[ELEMENTS / 2 + 1 + _SHMEM_REDUCE_MIN_WRKDATA_SIZE];
static long sync_report[_SHMEM_REDUCE_SYNC_SIZE];
static long sync_sum[_SHMEM_REDUCE_SYNC_SIZE];
static long sync_broadcast[_SHMEM_BCAST_SYNC_SIZE];
static long sync_collect[_SHMEM_COLLECT_SYNC_SIZE];
static long sync_all[_SHMEM_ALLTOALL_SYNC_SIZE];

static int next(void)
{
	return (rank + 1) % pes;
}

static int previous(void)
{
	return (rank + pes - 1) % pes;
}

/* Number @i of a PE's elements. */
static int64_t element(int pe, int i)
{
	return pe * 1000000 + i;
}

/* So many of this PE's own, and room for so many of others. */
static void fill_elements(int own, int others)
{
	int i;

	for (i = 0; i < own; i++)
		mine[i] = element(rank, i);
	for (i = 0; i < others; i++)
		theirs[i] = -1;
}

/* The case passes if it does on all PEs. */
static void report(const char *name, bool good)
{
	good_here = good;
	shmem_barrier_all();
	shmem_int_and_to_all(&good_everywhere, &good_here, 1, 0, 0, pes,
			     int_work, sync_report);
	shmem_barrier_all();
	if (rank)
		return;
	printf("%sok %d - %s\n", good_everywhere ? "" : "not ", ++cases, name);
	fflush(stdout);
	failures += !good_everywhere;
}

/* To the next PE; what the previous one has put is read there and looked at, too. */
static bool put_and_get(size_t bytes, int round)
{
	bool good;

	fill(outbox, bytes, rank, round);
	memset(inbox, 0, bytes);
	shmem_barrier_all();
	shmem_putmem(inbox, outbox, bytes, next());
	shmem_barrier_all();
	good = is_from(inbox, bytes, previous(), round);
	shmem_barrier_all();
	memset(outbox, 0, bytes);
	shmem_getmem(outbox, inbox, bytes, next());
	good = is_from(outbox, bytes, rank, round) && good;
	shmem_barrier_all();
	return good;
}

static bool all_sizes(void)
{
	bool good = true;
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		good = put_and_get(sizes[i], (int)i) && good;
	return good;
}

/* Many under way at once, complete with one call. */
static bool nonblocking(void)
{
	enum { BYTES = 3000 };
	bool good = true;
	size_t i;

	memset(inbox, 0, PIECES * BYTES);
	for (i = 0; i < PIECES; i++)
		fill(outbox + i * BYTES, BYTES, rank, (int)i);
	shmem_barrier_all();
	for (i = 0; i < PIECES; i++)
		shmem_putmem_nbi(inbox + i * BYTES, outbox + i * BYTES, BYTES,
				 next());
	shmem_quiet();
	shmem_barrier_all();
	for (i = 0; i < PIECES; i++)
		good = is_from(inbox + i * BYTES, BYTES, previous(), (int)i) &&
		       good;
	memset(outbox, 0, PIECES * BYTES);
	for (i = 0; i < PIECES; i++)
		shmem_getmem_nbi(outbox + i * BYTES, inbox + i * BYTES, BYTES,
				 next());
	shmem_quiet();
	for (i = 0; i < PIECES; i++)
		good = is_from(outbox + i * BYTES, BYTES, rank, (int)i) && good;
	shmem_barrier_all();
	return good;
}

/* Each second element to each third place, and what is between stays. */
static bool strided(void)
{
	bool good = true;
	int i;

	fill_elements(2 * STRIDED, 3 * STRIDED);
	shmem_barrier_all();
	shmem_iput64(theirs, mine, 3, 2, STRIDED, next());
	shmem_barrier_all();
	for (i = 0; i < 3 * STRIDED; i++)
		good = theirs[i] ==
			       (i % 3 ? -1 : element(previous(), i / 3 * 2)) &&
		       good;
	shmem_barrier_all();
	shmem_iget64(theirs, mine, 1, 2, STRIDED, next());
	for (i = 0; i < STRIDED; i++)
		good = theirs[i] == element(next(), i * 2) && good;
	shmem_barrier_all();
	return good;
}

/* All PEs count on PE 0, and no count gets lost. */
static bool counting(void)
{
	long before, last = -1;
	bool good = true;
	int i;

	word = 0;
	shmem_barrier_all();
	for (i = 0; i < COUNTS; i++) {
		before = shmem_long_atomic_fetch_add(&word, 1, 0);
		good = before > last && before < (long)COUNTS * pes * 2 && good;
		last = before;
		shmem_long_atomic_inc(&word, 0);
	}
	shmem_barrier_all();
	return (rank || word == (long)COUNTS * pes * 2) && good;
}

/* Of what all PEs put in a word each but the last comes back to one of them. */
static bool swapping(void)
{
	long got, sum, expected = (long)pes * (pes + 1) / 2;

	word = 0;
	flag = 0;
	shmem_barrier_all();
	got = shmem_long_atomic_swap(&word, rank + 1, 0);
	shmem_long_atomic_add(&flag, got, 0);
	shmem_barrier_all();
	sum = shmem_long_atomic_fetch(&flag, 0) +
	      shmem_long_atomic_fetch(&word, 0);
	shmem_barrier_all();
	return sum == expected;
}

/* Of those that want to change a word from the same value one does. */
static bool comparing(void)
{
	bool good = true;
	int i;

	word = 0;
	flag = 0;
	shmem_barrier_all();
	for (i = 0; i < ROUNDS; i++) {
		if (shmem_long_atomic_compare_swap(&word, i, i + 1, 0) == i)
			shmem_long_atomic_inc(&flag, 0);
		shmem_barrier_all();
		good = (rank || (word == i + 1 && flag == i + 1)) && good;
		shmem_barrier_all();
	}
	return good;
}

/* Of 32 bits, and by bits: not every device has atomics of those. */
static bool bits(void)
{
	static unsigned int some;
	unsigned int bit = 1U << rank;
	bool good;

	some = 0;
	shmem_barrier_all();
	good = !(shmem_uint_atomic_fetch_or(&some, bit, 0) & bit);
	shmem_barrier_all();
	good = shmem_uint_atomic_fetch(&some, 0) == (1U << pes) - 1 && good;
	shmem_barrier_all();
	shmem_uint_atomic_xor(&some, bit << 16, 0);
	shmem_uint_atomic_and(&some, ~bit, 0);
	shmem_barrier_all();
	good = shmem_uint_atomic_fetch(&some, 0) == ((1U << pes) - 1) << 16 &&
	       good;
	shmem_barrier_all();
	return good;
}

/*
 * Data, a fence, a word: whoever has seen the word has the data. What is seen of the
 * data is acknowledged in the same way before it is written anew.
 */
static bool flagged(size_t bytes)
{
	bool good = true;
	int round;

	flag = 0;
	word = 0;
	memset(inbox, 0, bytes);
	shmem_barrier_all();
	for (round = 1; round <= ROUNDS; round++) {
		fill(outbox, bytes, rank, round);
		shmem_putmem(inbox, outbox, bytes, next());
		shmem_fence();
		shmem_long_p(&flag, round, next());
		shmem_long_wait_until(&flag, SHMEM_CMP_EQ, round);
		good = is_from(inbox, bytes, previous(), round) && good;
		shmem_long_p(&word, round, previous());
		shmem_long_wait_until(&word, SHMEM_CMP_EQ, round);
	}
	shmem_barrier_all();
	return good;
}

/* A counter that is not atomic, in the memory of the last PE. */
static bool locked(void)
{
	int i;

	guard = 0;
	guarded = 0;
	shmem_barrier_all();
	for (i = 0; i < ROUNDS; i++) {
		shmem_set_lock(&guard);
		shmem_long_p(&guarded, shmem_long_g(&guarded, pes - 1) + 1,
			     pes - 1);
		shmem_quiet();
		shmem_clear_lock(&guard);
	}
	shmem_barrier_all();
	return rank != pes - 1 || guarded == (long)ROUNDS * pes;
}

static bool broadcast(void)
{
	const int root = pes - 1;
	bool good = true;
	int i;

	fill_elements(ELEMENTS, ELEMENTS);
	shmem_barrier_all();
	shmem_broadcast64(theirs, mine, ELEMENTS, root, 0, 0, pes,
			  sync_broadcast);
	/* the root's own target stays as it is, shmem_broadcast() */
	for (i = 0; i < ELEMENTS && rank != root; i++)
		good = theirs[i] == element(root, i) && good;
	shmem_barrier_all();
	return good;
}

static bool collect(void)
{
	bool good = true;
	int i;

	fill_elements(ELEMENTS, ELEMENTS * pes);
	shmem_barrier_all();
	shmem_fcollect64(theirs, mine, ELEMENTS, 0, 0, pes, sync_collect);
	for (i = 0; i < ELEMENTS * pes; i++)
		good = theirs[i] == element(i / ELEMENTS, i % ELEMENTS) && good;
	shmem_barrier_all();
	return good;
}

static bool all_to_all(void)
{
	bool good = true;
	int i;

	fill_elements(ELEMENTS * pes, ELEMENTS * pes);
	shmem_barrier_all();
	shmem_alltoall64(theirs, mine, ELEMENTS, 0, 0, pes, sync_all);
	for (i = 0; i < ELEMENTS * pes; i++)
		good = theirs[i] == element(i / ELEMENTS,
					    rank * ELEMENTS + i % ELEMENTS) &&
		       good;
	shmem_barrier_all();
	return good;
}

static bool sum(void)
{
	bool good = true;
	int i;

	for (i = 0; i < ELEMENTS; i++)
		mine[i] = (int64_t)(rank + 1) * (i + 1);
	shmem_barrier_all();
	shmem_long_sum_to_all((long *)theirs, (long *)mine, ELEMENTS, 0, 0, pes,
			      long_work, sync_sum);
	for (i = 0; i < ELEMENTS; i++)
		good = theirs[i] == (int64_t)(i + 1) * pes * (pes + 1) / 2 &&
		       good;
	shmem_barrier_all();
	return good;
}

static void set_up_sync(long *sync, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		sync[i] = _SHMEM_SYNC_VALUE;
}

static void set_up(void)
{
	const size_t most = (ELEMENTS > 3 * STRIDED ? ELEMENTS : 3 * STRIDED) *
			    (size_t)pes;

	inbox = shmem_malloc(LARGE);
	outbox = shmem_malloc(LARGE);
	mine = shmem_malloc(most * sizeof(*mine));
	theirs = shmem_malloc(most * sizeof(*theirs));
	if (!inbox || !outbox || !mine || !theirs)
		shmem_global_exit(1);
	set_up_sync(sync_report, _SHMEM_REDUCE_SYNC_SIZE);
	set_up_sync(sync_sum, _SHMEM_REDUCE_SYNC_SIZE);
	set_up_sync(sync_broadcast, _SHMEM_BCAST_SYNC_SIZE);
	set_up_sync(sync_collect, _SHMEM_COLLECT_SYNC_SIZE);
	set_up_sync(sync_all, _SHMEM_ALLTOALL_SYNC_SIZE);
	shmem_barrier_all();
}

int main(void)
{
	shmem_init();
	rank = shmem_my_pe();
	pes = shmem_n_pes();
	set_up();
	report("put and get, 1 byte to 1 MiB", all_sizes());
	report("put and get, many under way", nonblocking());
	report("put and get, strided", strided());
	report("atomic: counting", counting());
	report("atomic: swapping", swapping());
	report("atomic: comparing", comparing());
	report("atomic: bits", bits());
	report("a word behind data, 8 bytes and 64 KiB",
	       flagged(8) && flagged(65536));
	report("a lock", locked());
	report("broadcast", broadcast());
	report("collect", collect());
	report("all to all", all_to_all());
	report("sum", sum());
	if (!rank)
		printf("1..%d\n", cases);
	shmem_finalize();
	return failures ? 1 : 0;
}
