// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queues that are resized, so that the kernel has them in new memory: what becomes of
 * them and of the rest of the process if that can't be mapped.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "executed.h"
#include "queues.h"
#include "srq.h"
#include "tap.h"
#include "work.h"
#include "writer.h"

enum { ENTRIES = 16, MORE = 64, MANY = 1024, WRITES = 300 };

/*
 * So many mappings of files fail from now on. What was there is removed before, and then
 * another thread maps something.
 */
static unsigned int failing;
static void *strangers;

/* libmic calls this one. */
void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	if (fd < 0 || !failing)
		return (void *)syscall(SYS_mmap, addr, length, prot, flags, fd,
				       offset);
	failing--;
	if (flags & MAP_FIXED) {
		syscall(SYS_munmap, addr, length);
		strangers = (void *)syscall(SYS_mmap, addr, PAGE_BYTES,
					    PROT_READ,
					    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	errno = ENOMEM;
	return MAP_FAILED;
}

static bool is_mapped(void *addr)
{
	unsigned char vec;

	return !mincore(addr, 1, &vec);
}

/* Another thread may have got the room that was kept for the queue. */
static bool others_stay(struct setup *setup)
{
	struct pair pair;
	bool ok;

	pair_open(&pair, setup, ENTRIES);
	post_writes(&pair, 1, 3);
	ok = settle(&pair);
	strangers = NULL;
	failing = 1;
	ok = check(!ibv_resize_cq(pair.cq, MORE), "resizing fails") &&
	     check(!failing, "nothing was mapped") &&
	     check(!strangers || is_mapped(strangers),
		   "another's memory is unmapped") &&
	     expect_ids(pair.cq, 1, 3) && ok;
	failing = 0;
	post_writes(&pair, 4, 3);
	ok = ok && expect_ids(pair.cq, 4, 3);
	if (strangers)
		munmap(strangers, PAGE_BYTES);
	pair_close(&pair);
	return ok;
}

static bool resize_unmapped(struct ibv_cq *cq)
{
	int ret;

	failing = 2;
	ret = ibv_resize_cq(cq, MORE);
	failing = UINT_MAX;
	return check(ret == ENOMEM, "resizing returns %d", ret) &&
	       check(ibv_req_notify_cq(cq, 0) == ENOMEM, "it can be armed");
}

/* Nothing is lost, nor returned twice, nor out of order. */
static bool cq_waits(struct setup *setup)
{
	struct pair pair;
	bool ok;

	pair_open(&pair, setup, ENTRIES);
	post_writes(&pair, 1, 6);
	ok = settle(&pair) && expect_ids(pair.cq, 1, 2) &&
	     resize_unmapped(pair.cq);
	post_writes(&pair, 7, 3);
	ok = settle(&pair) && ok;
	failing = 0;
	ok = ok && expect_ids(pair.cq, 3, 7) && cq_stays_empty(pair.cq, 20);
	post_writes(&pair, 10, 3);
	ok = ok && expect_ids(pair.cq, 10, 3) &&
	     check(!ibv_req_notify_cq(pair.cq, 0), "it can't be armed");
	pair_close(&pair);
	return ok;
}

/* What was the kernel's completion is not there meanwhile. */
static bool cq_is_empty(struct setup *setup)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);
	struct pair pair;
	bool ok;

	pair_open(&pair, setup, ENTRIES);
	post_recv(&pair.b, 0, NULL, 0);
	post_send(&pair.a, &wr);
	ok = settle(&pair) && resize_unmapped(pair.cq) &&
	     cq_stays_empty(pair.cq, 20);
	post_writes(&pair, 2, 2);
	ok = ok && cq_stays_empty(pair.cq, 20);
	failing = 0;
	ok = ok && expect_ids(pair.cq, 1, 3);
	pair_close(&pair);
	return ok;
}

/* As soon as there is room, the first poll finds what is there, and arming what fires. */
static bool cq_is_back_at_once(struct setup *setup)
{
	struct ibv_wc wc;
	struct pair pair;
	bool ok;

	pair_open(&pair, setup, ENTRIES);
	post_sends(&pair, 1, 2);
	ok = settle(&pair) && resize_unmapped(pair.cq);
	failing = 0;
	ok = ok &&
	     check(ibv_poll_cq(pair.cq, 1, &wc) == 1 && wc.wr_id == 1,
		   "polling once finds nothing") &&
	     expect_ids(pair.cq, 2, 1) && resize_unmapped(pair.cq);
	post_sends(&pair, 3, 1);
	ok = settle(&pair) && ok;
	failing = 0;
	ok = ok && check(!ibv_req_notify_cq(pair.cq, 0), "it can't be armed") &&
	     check(ibv_poll_cq(pair.cq, 1, &wc) == 1 && wc.wr_id == 3,
		   "there is nothing after arming");
	pair_close(&pair);
	return ok;
}

/* Who is destroyed leaves nothing in a ring that was not here; others do. */
static bool cq_forgets(struct setup *setup)
{
	struct pair pair, other;
	bool ok;

	pair_open(&pair, setup, ENTRIES);
	pair_open_on(&other, setup, pair.cq);
	post_sends(&other, 1, 2);
	ok = settle(&other);
	post_sends(&pair, 3, 2);
	ok = settle(&pair) && ok;
	post_sends(&other, 5, 2);
	ok = settle(&other) && ok && resize_unmapped(pair.cq) &&
	     check(endpoint_set_state(&pair.a, IBV_QPS_RESET) == ENOMEM,
		   "what is not here is forgotten");
	pair_destroy(&other.a, &other.b);
	failing = 0;
	ok = ok && expect_ids(pair.cq, 3, 2) && cq_stays_empty(pair.cq, 20);
	post_sends(&pair, 7, 2);
	ok = settle(&pair) && ok && resize_unmapped(pair.cq);
	failing = 0;
	endpoint_go(&pair.a, IBV_QPS_RESET);
	ok = ok && cq_stays_empty(pair.cq, 20);
	pair_close(&pair);
	return ok;
}

/* A second attempt has the kernel move all that is there once more. */
static bool cq_is_resized_again(struct setup *setup)
{
	struct pair pair;
	bool ok;

	pair_open(&pair, setup, ENTRIES);
	post_writes(&pair, 1, 4);
	ok = settle(&pair) && resize_unmapped(pair.cq);
	failing = 0;
	ok = ok && check(!ibv_resize_cq(pair.cq, ENTRIES), "resizing fails") &&
	     expect_ids(pair.cq, 1, 4);
	post_writes(&pair, 5, 4);
	ok = ok && expect_ids(pair.cq, 5, 4) && cq_stays_empty(pair.cq, 20);
	pair_close(&pair);
	return ok;
}

/* Of completions of what the process executes as many may wait as of others. */
static bool has_room_for_own(struct setup *setup)
{
	struct pair pair;
	uint64_t before;
	bool ok;

	pair_open(&pair, setup, ENTRIES);
	post_writes(&pair, 1, ENTRIES / 2);
	ok = expect_ids(pair.cq, 1, 3) &&
	     check(!ibv_resize_cq(pair.cq, MANY), "growing fails");
	before = executed_here(&pair.a);
	post_writes(&pair, ENTRIES / 2 + 1, WRITES);
	ok = ok &&
	     check(executed_here(&pair.a) - before == WRITES,
		   "%u of %u by the process",
		   (unsigned int)(executed_here(&pair.a) - before), WRITES) &&
	     expect_ids(pair.cq, 4, ENTRIES / 2 - 3 + WRITES) &&
	     cq_stays_empty(pair.cq, 20);
	pair_close(&pair);
	return ok;
}

/* --- shared receive queues --------------------------------------------------- */

/* The queue is this process's, whoever sends. */
struct receiver {
	struct ibv_srq *srq;
	struct endpoint a;
	struct endpoint b;
};

static void receiver_open(struct receiver *receiver, struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	receiver->srq = srq_create(setup->a_dev.pd, ENTRIES, 1);
	endpoint_create(&receiver->b, &setup->b_dev, &options);
	options.srq = receiver->srq;
	endpoint_create(&receiver->a, &setup->a_dev, &options);
	pair_connect(&receiver->a, &receiver->b);
}

static void receiver_close(struct receiver *receiver)
{
	pair_destroy(&receiver->a, &receiver->b);
	tap_must(!ibv_destroy_srq(receiver->srq), "ibv_destroy_srq fails");
}

static bool posts(struct receiver *receiver, uint64_t id, int expected)
{
	struct ibv_recv_wr wr = { .wr_id = id }, *bad = NULL;
	int ret = ibv_post_srq_recv(receiver->srq, &wr, &bad);

	return check(ret == expected && (!ret || bad == &wr),
		     "posting a receive returns %d", ret);
}

static bool receives(struct receiver *receiver, uint64_t id)
{
	post_empty_send(&receiver->b, id, IBV_SEND_SIGNALED);
	return cq_expect(receiver->b.send_cq, id, IBV_WC_SUCCESS) &&
	       cq_expect(receiver->a.recv_cq, id, IBV_WC_SUCCESS);
}

/* What was posted is received; there is no room for more until it is mapped. */
static bool srq_waits(struct setup *setup)
{
	struct ibv_srq_attr attr = { .max_wr = MORE };
	struct receiver receiver;
	bool ok;
	int ret;

	receiver_open(&receiver, setup);
	ok = posts(&receiver, 1, 0) && posts(&receiver, 2, 0);
	failing = 2;
	ret = ibv_modify_srq(receiver.srq, &attr, IBV_SRQ_MAX_WR);
	failing = UINT_MAX;
	ok = ok && check(ret == ENOMEM, "resizing returns %d", ret) &&
	     receives(&receiver, 1) && posts(&receiver, 3, ENOMEM);
	failing = 0;
	ok = ok && posts(&receiver, 3, 0) && receives(&receiver, 2) &&
	     receives(&receiver, 3);
	receiver_close(&receiver);
	return ok;
}

void run_moved(struct setup *setup)
{
	tap_ok(others_stay(setup),
	       "resizing: a mapping that fails removes nobody else's");
	tap_ok(cq_waits(setup),
	       "a completion queue that can't be mapped waits until it can");
	tap_ok(cq_is_empty(setup), "and is empty meanwhile");
	tap_ok(cq_is_back_at_once(setup), "and is back at once");
	tap_ok(cq_forgets(setup),
	       "without the completions of what was destroyed meanwhile");
	tap_ok(cq_is_resized_again(setup), "or is resized again");
	/* between machines the kernels execute them */
	if (!setup_is_remote(setup))
		tap_ok(has_room_for_own(setup),
		       "after growing %u more requests are executed by the process",
		       WRITES);
	tap_ok(srq_waits(setup),
	       "a shared receive queue that can't be mapped waits until it can");
}
