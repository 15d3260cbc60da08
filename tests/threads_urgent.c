// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A thread with a real-time priority, and one without that has the lock of their queue
 * pair for as long as a large copy takes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "setup.h"
#include "tap.h"
#include "threads.h"
#include "work.h"

enum { WORD_BYTES = 8, LARGE_BYTES = 64 << 20, URGENT = 20 };

/* Of the two threads, on one processor, that write to the same memory. */
struct urgency {
	struct endpoint a;
	struct endpoint b;
	struct region from;
	struct region to;
	atomic_bool over;
	atomic_bool failed;
	atomic_uint large;  /* WRITEs that are complete */
	uint64_t waited_us; /* by the urgent one, and of the processor's time */
	uint64_t spent_us;
};

static struct ibv_send_wr urgency_wr(struct urgency *urgency,
				     struct ibv_sge *sge, uint32_t bytes)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, sge, 1);

	*sge = region_sge(&urgency->from, 0, bytes);
	send_wr_aim(&wr, urgency->to.rdma_addr, urgency->to.mr->rkey);
	return wr;
}

static void *post_large(void *argument)
{
	struct urgency *urgency = argument;
	struct endpoint *ep = &urgency->a;
	struct ibv_sge sge;
	struct ibv_send_wr wr = urgency_wr(urgency, &sge, LARGE_BYTES);

	while (!atomic_load(&urgency->over)) {
		post_send(ep, &wr);
		if (!cq_expect(ep->send_cq, 1, IBV_WC_SUCCESS))
			atomic_store(&urgency->failed, true);
		atomic_fetch_add(&urgency->large, 1);
	}
	return NULL;
}

static uint64_t time_us(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
}

/* While it sleeps the other one has the lock again, as a rule. */
static void *post_urgent(void *argument)
{
	struct urgency *urgency = argument;
	struct ibv_sge sge;
	struct ibv_send_wr wr = urgency_wr(urgency, &sge, WORD_BYTES);
	unsigned int i;

	wr.send_flags = 0;
	for (i = 0; i < URGENT; i++) {
		sleep_ms(2);
		urgency->waited_us -= time_us(CLOCK_MONOTONIC);
		urgency->spent_us -= time_us(CLOCK_THREAD_CPUTIME_ID);
		post_send(&urgency->a, &wr);
		urgency->spent_us += time_us(CLOCK_THREAD_CPUTIME_ID);
		urgency->waited_us += time_us(CLOCK_MONOTONIC);
	}
	atomic_store(&urgency->over, true);
	return NULL;
}

/* On the first processor; false if there may be no such thread. */
static bool start_thread(pthread_t *thread, void *(*main)(void *), int policy,
			 void *argument)
{
	const struct sched_param param = { .sched_priority = policy ==
							     SCHED_FIFO };
	pthread_attr_t attr;
	cpu_set_t first;
	int error;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(first), &first);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, policy);
	pthread_attr_setschedparam(&attr, &param);
	error = pthread_create(thread, &attr, main, argument);
	pthread_attr_destroy(&attr);
	return check(!error, "pthread_create: %s", strerror(error));
}

static bool run_urgency(struct urgency *urgency)
{
	pthread_t large, urgent;
	bool ok;

	if (!start_thread(&large, post_large, SCHED_OTHER, urgency))
		return false;
	ok = start_thread(&urgent, post_urgent, SCHED_FIFO, urgency);
	if (ok)
		pthread_join(urgent, NULL);
	atomic_store(&urgency->over, true);
	pthread_join(large, NULL);
	tap_note("%u large WRITEs; %" PRIu64 " us to wait took %" PRIu64 " us",
		 atomic_load(&urgency->large), urgency->waited_us,
		 urgency->spent_us);
	return ok && check(!atomic_load(&urgency->failed), "a WRITE fails");
}

bool waits_for_copies(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct urgency urgency;
	bool ok;

	memset(&urgency, 0, sizeof(urgency));
	region_create(&urgency.from, setup->a_dev.pd, LARGE_BYTES);
	region_create(&urgency.to, setup->b_dev.pd, LARGE_BYTES);
	pair_create(&urgency.a, &setup->a_dev, &urgency.b, &setup->b_dev,
		    &options);
	if (micdv_set_path(urgency.a.qp, MICDV_PATH_DIRECT))
		bail("micdv_set_path fails");
	ok = run_urgency(&urgency) &&
	     check(urgency.spent_us < urgency.waited_us / 2,
		   "waiting takes the processor");
	pair_destroy(&urgency.a, &urgency.b);
	region_destroy(&urgency.from);
	region_destroy(&urgency.to);
	return ok;
}
