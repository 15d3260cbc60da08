// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * An MPI program that looks at every byte it gets: point to point, collective
 * operations, one-sided windows, derived datatypes. TAP on rank 0.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"

enum { ROUNDS = 20, WINDOW = 64, LARGE = 1 << 20 };

static const int sizes[] = { 0, 1, 7, 64, 1000, 4096, 65536, LARGE };

static int ranks, cases, failures;

static void *memory(size_t bytes)
{
	void *data = calloc(1, bytes ? bytes : 1);

	if (!data)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return data;
}

/* The case passes if it does on all ranks. */
static void report(const char *name, bool good)
{
	int mine = good, all;

	MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
	if (rank)
		return;
	printf("%sok %d - %s\n", all ? "" : "not ", ++cases, name);
	fflush(stdout);
	failures += !all;
}

static int next(void)
{
	return (rank + 1) % ranks;
}

static int previous(void)
{
	return (rank + ranks - 1) % ranks;
}

/* Round the ring, blocking and synchronous in turn. */
static bool ring(int bytes)
{
	uint8_t *out = memory(bytes), *in = memory(bytes);
	bool good = true;
	MPI_Status status;
	MPI_Request request;
	int round, count;

	for (round = 0; round < ROUNDS && good; round++) {
		fill(out, bytes, rank, round);
		memset(in, 0, bytes);
		MPI_Irecv(in, bytes, MPI_BYTE, previous(), round,
			  MPI_COMM_WORLD, &request);
		if (round % 2)
			MPI_Ssend(out, bytes, MPI_BYTE, next(), round,
				  MPI_COMM_WORLD);
		else
			MPI_Send(out, bytes, MPI_BYTE, next(), round,
				 MPI_COMM_WORLD);
		MPI_Wait(&request, &status);
		MPI_Get_count(&status, MPI_BYTE, &count);
		good = count == bytes && is_from(in, bytes, previous(), round);
	}
	free(out);
	free(in);
	return good;
}

static bool point_to_point(void)
{
	bool good = true;
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		good = ring(sizes[i]) && good;
	return good;
}

/* Many at once, received in the opposite order, most of them unexpected. */
static bool out_of_order(void)
{
	enum { BYTES = 3000 };
	uint8_t *out = memory(WINDOW * BYTES), *in = memory(WINDOW * BYTES);
	MPI_Request requests[WINDOW];
	MPI_Status statuses[WINDOW];
	bool good = true;
	int i;

	for (i = 0; i < WINDOW; i++) {
		fill(out + (size_t)i * BYTES, BYTES, rank, i);
		MPI_Isend(out + (size_t)i * BYTES, BYTES, MPI_BYTE, next(), i,
			  MPI_COMM_WORLD, &requests[i]);
	}
	for (i = WINDOW - 1; i >= 0; i--) {
		MPI_Recv(in, BYTES, MPI_BYTE, previous(), i, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
		good = is_from(in, BYTES, previous(), i) && good;
	}
	MPI_Waitall(WINDOW, requests, statuses);
	free(out);
	free(in);
	return good;
}

/* From anybody, found by probing. */
static bool any_source(void)
{
	uint8_t data[512];
	MPI_Status status;
	bool good = true;
	int i, count;

	if (rank) {
		for (i = 0; i < ROUNDS; i++) {
			fill(data, sizeof(data), rank, i);
			MPI_Send(data, rank * 8 + i, MPI_BYTE, 0, i,
				 MPI_COMM_WORLD);
		}
		return true;
	}
	for (i = 0; i < ROUNDS * (ranks - 1); i++) {
		MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
		MPI_Get_count(&status, MPI_BYTE, &count);
		MPI_Recv(data, count, MPI_BYTE, status.MPI_SOURCE,
			 status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		good = count == status.MPI_SOURCE * 8 + status.MPI_TAG &&
		       is_from(data, count, status.MPI_SOURCE,
			       status.MPI_TAG) &&
		       good;
	}
	return good;
}

static bool broadcast(int bytes)
{
	uint8_t *data = memory(bytes);
	bool good = true;
	int root;

	for (root = 0; root < ranks; root++) {
		memset(data, 0, bytes);
		if (rank == root)
			fill(data, bytes, root, 3);
		MPI_Bcast(data, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
		good = is_from(data, bytes, root, 3) && good;
	}
	free(data);
	return good;
}

static bool reduce(int count)
{
	int64_t *mine = memory(count * sizeof(*mine));
	int64_t *sum = memory(count * sizeof(*sum));
	int64_t expected;
	bool good = true;
	int i;

	for (i = 0; i < count; i++)
		mine[i] = (int64_t)(rank + 1) * (i + 1);
	MPI_Allreduce(mine, sum, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (i = 0; i < count && good; i++) {
		expected = (int64_t)(i + 1) * ranks * (ranks + 1) / 2;
		good = sum[i] == expected;
	}
	MPI_Scan(mine, sum, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (i = 0; i < count && good; i++) {
		expected = (int64_t)(i + 1) * (rank + 1) * (rank + 2) / 2;
		good = sum[i] == expected;
	}
	free(mine);
	free(sum);
	return good;
}

/* What each gathers, and what each gets of all, in blocks of @bytes. */
static bool gather(int bytes)
{
	size_t all = (size_t)bytes * ranks;
	uint8_t *mine = memory(all), *theirs = memory(all);
	bool good = true;
	int i;

	fill(mine, bytes, rank, 0);
	MPI_Allgather(mine, bytes, MPI_BYTE, theirs, bytes, MPI_BYTE,
		      MPI_COMM_WORLD);
	for (i = 0; i < ranks; i++)
		good = is_from(theirs + (size_t)i * bytes, bytes, i, 0) && good;
	for (i = 0; i < ranks; i++)
		fill(mine + (size_t)i * bytes, bytes, rank, i);
	memset(theirs, 0, all);
	MPI_Alltoall(mine, bytes, MPI_BYTE, theirs, bytes, MPI_BYTE,
		     MPI_COMM_WORLD);
	for (i = 0; i < ranks; i++)
		good = is_from(theirs + (size_t)i * bytes, bytes, i, rank) &&
		       good;
	free(mine);
	free(theirs);
	return good;
}

/* Each rank gives the others blocks of different sizes. */
static bool uneven(void)
{
	int counts[64], offsets[64], total = 0, i;
	uint8_t *mine, *all;
	bool good = true;

	for (i = 0; i < ranks; i++) {
		counts[i] = 1000 * i + 1;
		offsets[i] = total;
		total += counts[i];
	}
	mine = memory(counts[rank]);
	all = memory(total);
	fill(mine, counts[rank], rank, 9);
	MPI_Allgatherv(mine, counts[rank], MPI_BYTE, all, counts, offsets,
		       MPI_BYTE, MPI_COMM_WORLD);
	for (i = 0; i < ranks; i++)
		good = is_from(all + offsets[i], counts[i], i, 9) && good;
	memset(mine, 0, counts[rank]);
	MPI_Scatterv(all, counts, offsets, MPI_BYTE, mine, counts[rank],
		     MPI_BYTE, 0, MPI_COMM_WORLD);
	good = is_from(mine, counts[rank], rank, 9) && good;
	free(mine);
	free(all);
	return good;
}

static bool nonblocking(void)
{
	enum { COUNT = 5000 };
	int *mine = memory(COUNT * sizeof(*mine));
	int *sum = memory(COUNT * sizeof(*sum));
	uint8_t *data = memory(LARGE);
	MPI_Request requests[3];
	MPI_Status statuses[3];
	bool good;
	int i;

	for (i = 0; i < COUNT; i++)
		mine[i] = rank + i;
	if (!rank)
		fill(data, LARGE, 0, 5);
	MPI_Iallreduce(mine, sum, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
		       &requests[0]);
	MPI_Ibcast(data, LARGE, MPI_BYTE, 0, MPI_COMM_WORLD, &requests[1]);
	MPI_Ibarrier(MPI_COMM_WORLD, &requests[2]);
	MPI_Waitall(3, requests, statuses);
	good = is_from(data, LARGE, 0, 5);
	for (i = 0; i < COUNT && good; i++)
		good = sum[i] == ranks * (ranks - 1) / 2 + ranks * i;
	free(mine);
	free(sum);
	free(data);
	return good;
}

/* A column of a matrix arrives as a row. */
static bool column(void)
{
	enum { ROWS = 300, COLUMNS = 200 };
	double *matrix = memory(ROWS * COLUMNS * sizeof(*matrix));
	double *row = memory(ROWS * sizeof(*row));
	MPI_Datatype type;
	bool good = true;
	int i;

	for (i = 0; i < ROWS * COLUMNS; i++)
		matrix[i] = rank * 1e6 + i;
	MPI_Type_vector(ROWS, 1, COLUMNS, MPI_DOUBLE, &type);
	MPI_Type_commit(&type);
	MPI_Sendrecv(matrix + 7, 1, type, next(), 1, row, ROWS, MPI_DOUBLE,
		     previous(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (i = 0; i < ROWS && good; i++)
		good = row[i] == previous() * 1e6 + (double)i * COLUMNS + 7;
	MPI_Type_free(&type);
	free(matrix);
	free(row);
	return good;
}

struct record {
	char letter;
	double value;
	int numbers[3];
};

static bool records(void)
{
	enum { COUNT = 2000 };
	struct record *out = memory(COUNT * sizeof(*out));
	struct record *in = memory(COUNT * sizeof(*in));
	int lengths[] = { 1, 1, 3 };
	MPI_Aint offsets[] = { offsetof(struct record, letter),
			       offsetof(struct record, value),
			       offsetof(struct record, numbers) };
	MPI_Datatype types[] = { MPI_CHAR, MPI_DOUBLE, MPI_INT };
	MPI_Datatype packed, type;
	bool good = true;
	int i;

	for (i = 0; i < COUNT; i++)
		out[i] = (struct record){ .letter = (char)('a' + i % 26),
					  .value = rank + i / 8.0,
					  .numbers = { i, -i, rank } };
	MPI_Type_create_struct(3, lengths, offsets, types, &packed);
	MPI_Type_create_resized(packed, 0, sizeof(struct record), &type);
	MPI_Type_commit(&type);
	MPI_Sendrecv(out, COUNT, type, next(), 2, in, COUNT, type, previous(),
		     2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (i = 0; i < COUNT && good; i++)
		good = in[i].letter == 'a' + i % 26 &&
		       in[i].value == previous() + i / 8.0 &&
		       in[i].numbers[0] == i && in[i].numbers[1] == -i &&
		       in[i].numbers[2] == previous();
	MPI_Type_free(&packed);
	MPI_Type_free(&type);
	free(out);
	free(in);
	return good;
}

/* Between fences: a block to the next rank, a block from the previous. */
static bool put_and_get(int bytes)
{
	uint8_t *mine = memory(bytes), *theirs = memory(bytes), *base;
	MPI_Win window;
	bool good;

	MPI_Win_allocate(2 * (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
			 &base, &window);
	memset(base, 0, 2 * (size_t)bytes);
	fill(base + bytes, bytes, rank, 1);
	fill(mine, bytes, rank, 2);
	MPI_Win_fence(0, window);
	MPI_Put(mine, bytes, MPI_BYTE, next(), 0, bytes, MPI_BYTE, window);
	MPI_Get(theirs, bytes, MPI_BYTE, previous(), bytes, bytes, MPI_BYTE,
		window);
	MPI_Win_fence(0, window);
	good = is_from(base, bytes, previous(), 2) &&
	       is_from(theirs, bytes, previous(), 1);
	MPI_Win_free(&window);
	free(mine);
	free(theirs);
	return good;
}

/* All ranks count in the memory of rank 0, with locks that others share. */
static bool accumulate(void)
{
	int64_t *base, one = 1, before, value = 0, expected;
	int64_t compare, swapped;
	MPI_Win window;
	bool good = true;
	int i;

	MPI_Win_allocate(2 * sizeof(*base), sizeof(*base), MPI_INFO_NULL,
			 MPI_COMM_WORLD, &base, &window);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
	base[0] = 0;
	base[1] = -1;
	MPI_Win_unlock(rank, window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
	for (i = 0; i < ROUNDS * 5; i++) {
		MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 0, MPI_SUM,
				 window);
		MPI_Win_flush(0, window);
		good = before >= value && good;
		value = before + 1;
	}
	compare = -1;
	value = rank;
	MPI_Compare_and_swap(&value, &compare, &swapped, MPI_INT64_T, 0, 1,
			     window);
	MPI_Win_unlock(0, window);
	MPI_Barrier(MPI_COMM_WORLD);
	expected = (int64_t)ROUNDS * 5 * ranks;
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
	if (!rank)
		good = base[0] == expected && base[1] >= 0 && base[1] < ranks &&
		       good;
	MPI_Win_unlock(rank, window);
	MPI_Win_free(&window);
	return good;
}

/* Post, start, complete, wait: only those concerned take part. */
static bool generalised(void)
{
	uint8_t out[4096], *base;
	int to = next(), from = previous();
	MPI_Group world, origin, target;
	MPI_Win window;
	bool good;

	MPI_Win_allocate(sizeof(out), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base,
			 &window);
	memset(base, 0, sizeof(out));
	fill(out, sizeof(out), rank, 8);
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &from, &origin);
	MPI_Group_incl(world, 1, &to, &target);
	MPI_Win_post(origin, 0, window);
	MPI_Win_start(target, 0, window);
	MPI_Put(out, sizeof(out), MPI_BYTE, to, 0, sizeof(out), MPI_BYTE,
		window);
	MPI_Win_complete(window);
	MPI_Win_wait(window);
	good = is_from(base, sizeof(out), from, 8);
	MPI_Group_free(&world);
	MPI_Group_free(&origin);
	MPI_Group_free(&target);
	MPI_Win_free(&window);
	return good;
}

/* Communicators of every other rank. */
static bool halves(void)
{
	int sum, expected = 0, i;
	MPI_Comm half;

	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
	for (i = rank % 2; i < ranks; i += 2)
		expected += i;
	MPI_Comm_free(&half);
	return sum == expected;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	report("ring, 0 bytes to 1 MiB", point_to_point());
	report("unexpected and out of order", out_of_order());
	report("from any source", any_source());
	report("broadcast", broadcast(100) && broadcast(LARGE));
	report("allreduce and scan", reduce(1) && reduce(50000));
	report("allgather and alltoall", gather(64) && gather(100000));
	report("allgatherv and scatterv", uneven());
	report("several collective operations under way", nonblocking());
	report("a communicator of each half", halves());
	report("datatype: a matrix's column", column());
	report("datatype: records", records());
	report("window: put and get between fences",
	       put_and_get(8) && put_and_get(LARGE));
	report("window: atomic counting and swapping", accumulate());
	report("window: post, start, complete, wait", generalised());
	if (!rank)
		printf("1..%d\n", cases);
	MPI_Bcast(&failures, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Finalize();
	return failures ? 1 : 0;
}
