// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Half a round trip, and one-way throughput with a window of messages, between
 * two MPI ranks. Prints "latency BYTES MICROSECONDS" (median) and "bandwidth
 * BYTES MIB-PER-SECOND".
 *
 * usage: pingpong [ROUNDS]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LARGEST = 1 << 20, WINDOW = 16, WARM_UP = 20 };

static const int sizes[] = { 8, 4096, 65536, LARGEST };
static char out[LARGEST], in[LARGEST];
static int rank;

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void exchange(int bytes)
{
	if (rank) {
		MPI_Recv(in, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
		MPI_Send(out, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	} else {
		MPI_Send(out, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(in, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
	}
}

static double latency(int bytes, int rounds, double *times)
{
	double start;
	int i;

	for (i = 0; i < WARM_UP; i++)
		exchange(bytes);
	for (i = 0; i < rounds; i++) {
		start = MPI_Wtime();
		exchange(bytes);
		times[i] = (MPI_Wtime() - start) / 2;
	}
	qsort(times, rounds, sizeof(*times), compare);
	return times[rounds / 2] * 1e6;
}

static void burst(int bytes)
{
	MPI_Request requests[WINDOW];
	MPI_Status statuses[WINDOW];
	int i;

	for (i = 0; i < WINDOW; i++) {
		if (rank)
			MPI_Irecv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD,
				  &requests[i]);
		else
			MPI_Isend(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD,
				  &requests[i]);
	}
	MPI_Waitall(WINDOW, requests, statuses);
	exchange(0);
}

static double bandwidth(int bytes, int bursts)
{
	double start;
	int i;

	burst(bytes);
	start = MPI_Wtime();
	for (i = 0; i < bursts; i++)
		burst(bytes);
	return (double)bytes * WINDOW * bursts / (MPI_Wtime() - start) /
	       (1 << 20);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1000;
	double microseconds, rate, *times;
	size_t i;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	times = calloc(rounds, sizeof(*times));
	if (!times)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		microseconds = latency(sizes[i], rounds, times);
		rate = bandwidth(sizes[i], rounds / WINDOW + 1);
		if (rank)
			continue;
		printf("latency %d %.2f\n", sizes[i], microseconds);
		printf("bandwidth %d %.1f\n", sizes[i], rate);
	}
	free(times);
	MPI_Finalize();
	return 0;
}
