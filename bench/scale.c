// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What an 8-byte RDMA WRITE costs, from post to completion, with many queue
 * pairs or many memory regions. Each write goes to the next of them, so what
 * it needs is not in the cache because it was just used.
 *
 * usage: bench-scale qps|mrs NAME DEVICE GID-INDEX PEER GID-INDEX COUNT...
 *        bench-scale pages NAME COUNT...
 *
 * NAME is what the results call the device. DEVICE and PEER are both used by
 * this one process, the peer only passively.
 *
 * The second form is to compare with: a load from each of many pages, which are
 * one in memory, as what many keys lead to. Nobody who accesses as many places can
 * do so without as many misses of the TLB.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <infiniband/verbs.h>

#include "common.h"
#include "ends.h"

enum {
	BYTES = 8,
	BATCH_MSEC = 20,
	BATCHES = 15,
	DEPTH = 4,
};

/* What is written to: pair i uses qp[i], region i is mr[i]. */
struct bench {
	struct end local, remote;
	struct ibv_qp **qp, **peer;
	size_t nqps;
	struct ibv_mr **mr;
	uint32_t *rkey; /* a program that has been told keys has no regions */
	size_t nmrs;
};

static void *grow(void *array, size_t count)
{
	array = reallocarray(array, count, sizeof(void *));
	if (!array)
		fail("reallocarray");
	return array;
}

static void grow_qps(struct bench *bench, size_t count)
{
	bench->qp = grow(bench->qp, count);
	bench->peer = grow(bench->peer, count);
	for (; bench->nqps < count; bench->nqps++) {
		create_pair(&bench->local, &bench->remote, DEPTH,
			    &bench->qp[bench->nqps], &bench->peer[bench->nqps]);
	}
}

/* All of them show the same page: it is the keys that are many. */
static void grow_mrs(struct bench *bench, size_t count)
{
	struct end *end = &bench->remote;

	bench->mr = grow(bench->mr, count);
	bench->rkey = grow(bench->rkey, count);
	for (; bench->nmrs < count; bench->nmrs++) {
		bench->mr[bench->nmrs] = ibv_reg_mr(
			end->pd, end->buffer, PAGE,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		if (!bench->mr[bench->nmrs])
			fail("ibv_reg_mr");
		bench->rkey[bench->nmrs] = bench->mr[bench->nmrs]->rkey;
	}
}

/* One write over queue pair and to region number @i, and its completion. */
static void write_once(const struct bench *bench, size_t i)
{
	const struct end *local = &bench->local;
	struct ibv_sge sge = {
		.addr = (uintptr_t)local->buffer,
		.length = BYTES,
		.lkey = local->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = (uintptr_t)bench->remote.buffer,
			.rkey = bench->rkey[i % bench->nmrs],
		},
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	errno = ibv_post_send(bench->qp[i % bench->nqps], &wr, &bad);
	if (errno)
		fail("ibv_post_send");
	do {
		n = ibv_poll_cq(local->cq, 1, &wc);
	} while (!n);
	if (n < 0 || wc.status) {
		errno = EIO;
		fail(n < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status));
	}
}

/* Pages that nobody has written: all of them are the page of zeros. */
static const char *map_pages(size_t count)
{
	char *pages = mmap(NULL, count * PAGE, PROT_READ,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (pages == MAP_FAILED ||
	    madvise(pages, count * PAGE, MADV_NOHUGEPAGE))
		fail("pages");
	return pages;
}

static void load_once(const char *pages, size_t count, size_t i)
{
	(void)*(const volatile uint64_t *)(pages + i % count * PAGE);
}

/* What is measured: writes, or loads if there is no @bench. */
struct subject {
	const struct bench *bench;
	const char *pages;
	size_t count;
};

static void do_once(const struct subject *subject, size_t i)
{
	if (subject->bench)
		write_once(subject->bench, i);
	else
		load_once(subject->pages, subject->count, i);
}

/* Nanoseconds for each; a batch goes on where the one before has stopped. */
static double measure_batch(const struct subject *subject, size_t *next)
{
	uint64_t start = now_ns(), now;
	size_t first = *next;
	int i;

	do {
		for (i = 0; i < 16; i++)
			do_once(subject, (*next)++);
		now = now_ns();
	} while (now - start < BATCH_MSEC * NSEC_PER_MSEC);
	return (double)(now - start) / (*next - first);
}

static double measure(const struct subject *subject)
{
	double batch[BATCHES];
	size_t next;
	int i;

	for (next = 0; next < subject->count;)
		do_once(subject, next++);
	for (i = 0; i < BATCHES; i++)
		batch[i] = measure_batch(subject, &next);
	return median(batch, BATCHES);
}

static void measure_pages(const char *name, char **counts)
{
	struct subject subject = {};

	for (; *counts; counts++) {
		subject.count = parse_size(*counts);
		subject.pages = map_pages(subject.count);
		report("raw_pages", name, subject.count,
		       measure(&subject) / 1000, "us");
		munmap((void *)subject.pages, subject.count * PAGE);
	}
}

int main(int argc, char **argv)
{
	struct bench bench = {};
	struct subject subject = { .bench = &bench };
	int is_qps, i;

	pin(CLIENT_CPU);
	if (argc > 3 && !strcmp(argv[1], "pages")) {
		measure_pages(argv[2], argv + 3);
		return 0;
	}

	if (argc < 8 || (strcmp(argv[1], "qps") && strcmp(argv[1], "mrs"))) {
		fprintf(stderr,
			"usage: bench-scale qps|mrs NAME DEVICE GID-INDEX PEER GID-INDEX COUNT...\n"
			"       bench-scale pages NAME COUNT...\n");
		return 2;
	}
	is_qps = !strcmp(argv[1], "qps");
	open_end(&bench.local, argv[3], argv[4], PAGE, 2 * DEPTH);
	open_end(&bench.remote, argv[5], argv[6], PAGE, 2 * DEPTH);
	grow_qps(&bench, 1);
	grow_mrs(&bench, 1);
	for (i = 7; i < argc; i++) {
		subject.count = parse_size(argv[i]);
		if (is_qps)
			grow_qps(&bench, subject.count);
		else
			grow_mrs(&bench, subject.count);
		report(is_qps ? "write_qps" : "write_mrs", argv[2],
		       subject.count, measure(&subject) / 1000, "us");
	}
	return 0;
}
