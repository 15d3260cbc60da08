// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the provider does with its queues: resizing, destruction with
 * completions left, thread domains, lists.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "queues.h"
#include "setup.h"
#include "srq.h"
#include "tap.h"
#include "work.h"
#include "writer.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 16)

enum { RESIZES = 200, NEED_BYTES = 1 << 18 };

/* --- resizing ------------------------------------------------------------- */

static bool resize_with_elements(struct setup *setup)
{
	struct pair pair;
	bool ok;

	pair_open(&pair, setup, DEPTH);
	post_writes(&pair, 1, 10);
	ok = settle(&pair) && expect_ids(pair.cq, 1, 3) &&
	     check(!ibv_resize_cq(pair.cq, 100), "growing fails") &&
	     check(pair.cq->cqe >= 100, "cqe is %d", pair.cq->cqe) &&
	     expect_ids(pair.cq, 4, 2);
	post_writes(&pair, 11, 5);
	ok = ok && settle(&pair) &&
	     check(ibv_resize_cq(pair.cq, 4) == EINVAL,
		   "shrinking below what waits") &&
	     expect_ids(pair.cq, 6, 8) &&
	     check(!ibv_resize_cq(pair.cq, 4), "shrinking fails") &&
	     expect_ids(pair.cq, 14, 2);
	post_writes(&pair, 16, 4);
	ok = ok && expect_ids(pair.cq, 16, 4) && cq_stays_empty(pair.cq, 20);
	pair_close(&pair);
	return ok;
}

static void *resize_often(void *arg)
{
	struct ibv_cq *cq = arg;
	intptr_t failures = 0;
	int i;

	for (i = 0; i < RESIZES; i++)
		failures += !!ibv_resize_cq(cq, i % 2 ? 64 : 1024);
	return (void *)failures;
}

static bool write_and_poll(struct pair *pair, uint64_t id)
{
	post_writes(pair, id, DEPTH);
	return expect_ids(pair->cq, id, DEPTH);
}

static bool resize_meanwhile(struct pair *pair,
			     bool (*work)(struct pair *pair, uint64_t id))
{
	pthread_t thread;
	uint64_t id = 1;
	void *failures;
	bool ok = true;

	if (pthread_create(&thread, NULL, resize_often, pair->cq))
		bail("no thread");
	while (ok && pthread_tryjoin_np(thread, &failures)) {
		ok = work(pair, id);
		id += DEPTH;
	}
	if (!ok)
		pthread_join(thread, &failures);
	return check(!failures, "%" PRIdPTR " of %d resizes fail",
		     (intptr_t)failures, RESIZES) &&
	       ok;
}

static bool resize_under_traffic(struct setup *setup)
{
	struct pair pair;
	bool ok;

	pair_open(&pair, setup, 64);
	ok = resize_meanwhile(&pair, write_and_poll);
	pair_close(&pair);
	return ok;
}

/* A pair whose completion queue raises events. */
static void pair_open_channel(struct pair *pair, struct setup *setup,
			      int entries)
{
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;

	channel = ibv_create_comp_channel(setup->a_dev.ctx);
	cq = channel ? ibv_create_cq(setup->a_dev.ctx, entries, NULL, channel,
				     0) :
		       NULL;
	if (!cq)
		bail("no completion queue with a channel");
	pair_open_on(pair, setup, cq);
}

static void pair_close_channel(struct pair *pair)
{
	struct ibv_comp_channel *channel = pair->cq->channel;

	pair_close(pair);
	tap_must(!ibv_destroy_comp_channel(channel), "the channel is in use");
}

static bool take_event(struct pair *pair)
{
	struct ibv_cq *cq;
	void *context;

	if (!check(becomes_readable(pair->cq->channel->fd), "no event") ||
	    ibv_get_cq_event(pair->cq->channel, &cq, &context))
		return false;
	ibv_ack_cq_events(cq, 1);
	return cq == pair->cq;
}

static bool write_and_wait(struct pair *pair, uint64_t id)
{
	if (ibv_req_notify_cq(pair->cq, 0))
		return check(false, "arming fails");
	post_writes(pair, id, DEPTH);
	return take_event(pair) && expect_ids(pair->cq, id, DEPTH);
}

static bool resize_under_events(struct setup *setup)
{
	struct pair pair;
	bool ok;

	pair_open_channel(&pair, setup, 64);
	ok = resize_meanwhile(&pair, write_and_wait);
	pair_close_channel(&pair);
	return ok;
}

static bool resize_keeps_request(struct setup *setup)
{
	struct pair pair;
	bool ok;

	pair_open_channel(&pair, setup, 8);
	ok = !ibv_req_notify_cq(pair.cq, 0) &&
	     check(!ibv_resize_cq(pair.cq, 32), "growing fails");
	post_writes(&pair, 1, 1);
	ok = ok && take_event(&pair) && expect_ids(pair.cq, 1, 1);
	pair_close_channel(&pair);
	return ok;
}

/* Resize with hardly any address space left. Returns what the verb returns. */
static int resize_in_need(struct ibv_cq *cq, int entries)
{
	FILE *file = fopen("/proc/self/statm", "r");
	struct rlimit limit, need;
	unsigned long pages;
	int ret;

	if (!file || fscanf(file, "%lu", &pages) != 1 || fclose(file) ||
	    getrlimit(RLIMIT_AS, &limit))
		bail("how much memory is mapped?");
	need = limit;
	need.rlim_cur = (rlim_t)pages * PAGE_BYTES + NEED_BYTES;
	if (setrlimit(RLIMIT_AS, &need))
		bail("setrlimit: %s", strerror(errno));
	ret = ibv_resize_cq(cq, entries);
	setrlimit(RLIMIT_AS, &limit);
	return ret;
}

static bool resize_fails(struct setup *setup)
{
	struct pair pair;
	bool ok;
	int ret;

	pair_open(&pair, setup, 16);
	post_writes(&pair, 1, 3);
	ok = settle(&pair);
	ret = resize_in_need(pair.cq, NEED_BYTES / 16);
	ok = ok && check(ret == ENOMEM, "resizing returns %d", ret) &&
	     check(pair.cq->cqe == 16, "cqe is %d", pair.cq->cqe) &&
	     expect_ids(pair.cq, 1, 3);
	post_writes(&pair, 4, 3);
	ok = ok && settle(&pair) && expect_ids(pair.cq, 4, 3) &&
	     check(!ibv_resize_cq(pair.cq, 32), "then it fails, too");
	post_writes(&pair, 7, 3);
	ok = ok && expect_ids(pair.cq, 7, 3);
	pair_close(&pair);
	return ok;
}

/* --- posting and polling --------------------------------------------------- */

static void *do_nothing(void *arg)
{
	pause();
	return arg;
}

/* With another thread, so that locks are taken. */
static bool arm_while_polling(struct setup *setup)
{
	struct ibv_cq_init_attr_ex attr = { .comp_mask = 0 };
	struct pair pair;
	struct ibv_poll_cq_attr poll = { .comp_mask = 0 };
	struct ibv_cq_ex *cq;
	pthread_t thread;
	bool ok;

	if (pthread_create(&thread, NULL, do_nothing, NULL))
		bail("no thread");
	cq = new_cq_ex(setup, &attr);
	pair_open_on(&pair, setup, ibv_cq_ex_to_cq(cq));
	post_writes(&pair, 1, 2);
	ok = settle(&pair) && check(!ibv_start_poll(cq, &poll), "start_poll") &&
	     check(cq->wr_id == 1, "the first one") &&
	     check(!ibv_req_notify_cq(pair.cq, 0), "req_notify") &&
	     check(!ibv_next_poll(cq) && cq->wr_id == 2, "the second one");
	ibv_end_poll(cq);
	pair_close(&pair);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
	return ok;
}

/* For each completion that is read there is a new one, and no more than fit. */
static bool post_while_polling(struct setup *setup)
{
	struct ibv_cq_init_attr_ex attr = { .comp_mask = 0 };
	struct ibv_poll_cq_attr poll = { .comp_mask = 0 };
	struct pair pair;
	struct ibv_cq_ex *cq;
	uint64_t id;
	bool ok;

	cq = new_cq_ex(setup, &attr);
	pair_open_on(&pair, setup, ibv_cq_ex_to_cq(cq));
	post_writes(&pair, 0, pair.cq->cqe);
	ok = settle(&pair) && check(!ibv_start_poll(cq, &poll), "start_poll");
	for (id = 0; ok && id < 1000; id++) {
		ok = check(cq->wr_id == id && !cq->status, "%lu, not %lu",
			   (unsigned long)cq->wr_id, (unsigned long)id);
		post_writes(&pair, id + pair.cq->cqe, 1);
		ok = ok && settle(&pair) &&
		     check(!ibv_next_poll(cq), "next_poll");
	}
	ibv_end_poll(cq);
	pair_close(&pair);
	return ok;
}

/* --- domains --------------------------------------------------------------- */

static bool thread_domain(struct setup *setup)
{
	struct ibv_td_init_attr td_attr = { .comp_mask = 0 };
	struct ibv_parent_domain_init_attr pd_attr = { .pd = setup->a_dev.pd };
	struct ibv_cq_init_attr_ex attr = { .comp_mask =
						    IBV_CQ_INIT_ATTR_MASK_PD };
	struct endpoint_options options;
	struct ibv_td *td;
	struct pair pair = { .setup = setup };
	bool ok;

	td = ibv_alloc_td(setup->a_dev.ctx, &td_attr);
	pd_attr.td = td;
	attr.parent_domain =
		td ? ibv_alloc_parent_domain(setup->a_dev.ctx, &pd_attr) : NULL;
	if (!attr.parent_domain)
		bail("no parent domain: %s", strerror(errno));
	pair.cq = ibv_cq_ex_to_cq(new_cq_ex(setup, &attr));
	options = pair_options(pair.cq);
	options.pd = attr.parent_domain;
	endpoint_create(&pair.a, &setup->a_dev, &options);
	options = pair_options(NULL);
	endpoint_create(&pair.b, &setup->b_dev, &options);
	pair_connect(&pair.a, &pair.b);

	post_writes(&pair, 1, DEPTH);
	ok = expect_ids(pair.cq, 1, DEPTH) &&
	     check(ibv_dealloc_td(td) == EBUSY, "the TD is in use") &&
	     check(ibv_dealloc_pd(attr.parent_domain) == EBUSY,
		   "the parent domain is in use");
	pair_close(&pair);
	return check(!ibv_dealloc_pd(attr.parent_domain), "parent domain") &&
	       check(!ibv_dealloc_td(td), "thread domain") && ok;
}

static bool cq_refused(struct setup *setup, struct ibv_pd *domain,
		       const char *what)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 64,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = domain,
	};
	struct ibv_cq_ex *cq;

	errno = 0;
	cq = ibv_create_cq_ex(setup->a_dev.ctx, &attr);
	if (cq)
		ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
	return check(!cq && errno == EINVAL, "a queue in %s: %s", what,
		     cq ? "accepted" : strerror(errno));
}

static bool domain_refused(struct ibv_context *ctx, struct ibv_pd *pd,
			   struct ibv_td *td, const char *what)
{
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };
	struct ibv_pd *domain;

	errno = 0;
	domain = ibv_alloc_parent_domain(ctx, &attr);
	if (domain)
		ibv_dealloc_pd(domain);
	return check(!domain && errno == EINVAL, "a parent domain of %s: %s",
		     what, domain ? "accepted" : strerror(errno));
}

/* What is no domain of the kind that is wanted, or another context's. */
static bool wrong_domains(struct setup *setup)
{
	struct ibv_context *other = device_open_context(setup->a_dev.name);
	struct ibv_parent_domain_init_attr attr = {
		.pd = other ? ibv_alloc_pd(other) : NULL,
	};
	struct ibv_td_init_attr td_attr = {};
	struct ibv_pd *domain = NULL;
	struct ibv_td *td = NULL;
	bool ok;

	if (attr.pd)
		domain = ibv_alloc_parent_domain(other, &attr);
	if (domain)
		td = ibv_alloc_td(other, &td_attr);
	if (!td)
		bail("no domains: %s", strerror(errno));
	ok = cq_refused(setup, NULL, "none");
	ok = cq_refused(setup, setup->a_dev.pd, "a protection domain") && ok;
	ok = cq_refused(setup, domain, "another context's") && ok;
	ok = domain_refused(other, NULL, NULL, "none") && ok;
	ok = domain_refused(other, setup->a_dev.pd, NULL,
			    "another context's") &&
	     ok;
	ok = domain_refused(setup->a_dev.ctx, setup->a_dev.pd, td,
			    "another context's thread domain") &&
	     ok;
	return check(!ibv_dealloc_td(td), "thread domain") &&
	       check(!ibv_dealloc_pd(domain), "parent domain") &&
	       check(!ibv_dealloc_pd(attr.pd), "protection domain") &&
	       check(!ibv_close_device(other), "the context") && ok;
}

static bool single_threaded(struct setup *setup)
{
	struct ibv_cq_init_attr_ex attr = {
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	};
	struct pair pair;
	bool ok;

	pair_open_on(&pair, setup, ibv_cq_ex_to_cq(new_cq_ex(setup, &attr)));
	post_writes(&pair, 1, DEPTH);
	ok = expect_ids(pair.cq, 1, DEPTH);
	pair_close(&pair);
	return ok;
}

/* --- lists ----------------------------------------------------------------- */

static bool list_with_bad_request(struct setup *setup)
{
	struct ibv_send_wr wr[3], *bad = NULL;
	struct ibv_sge sge[3];
	struct pair pair;
	unsigned int i;
	bool ok;
	int ret;

	pair_open(&pair, setup, 64);
	for (i = 0; i < 3; i++) {
		wr[i] = write_wr(&pair, i, &sge[i]);
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].send_flags |= IBV_SEND_IP_CSUM;
	ret = ibv_post_send(pair.a.qp, wr, &bad);
	ok = check(ret == EINVAL && bad == &wr[1], "returns %d", ret) &&
	     expect_ids(pair.cq, 0, 1) && cq_stays_empty(pair.cq, 20);
	pair_close(&pair);
	return ok;
}

static bool srq_list(struct setup *setup)
{
	struct ibv_srq *srq = srq_create(setup->a_dev.pd, 4, 2);
	struct ibv_sge sge[3] = { { .addr = 0 } };
	struct ibv_recv_wr wr[6], *bad = NULL;
	unsigned int i;
	bool ok;
	int ret;

	for (i = 0; i < COUNT(wr); i++)
		wr[i] = (struct ibv_recv_wr){
			.wr_id = i,
			.next = i + 1 < COUNT(wr) ? &wr[i + 1] : NULL,
		};
	wr[1].sg_list = sge;
	wr[1].num_sge = 3;
	ret = ibv_post_srq_recv(srq, wr, &bad);
	ok = check(ret == EINVAL && bad == &wr[1], "too many SGEs: %d", ret);
	wr[1].num_sge = 2;
	ret = ibv_post_srq_recv(srq, &wr[1], &bad);
	ok = check(ret == ENOMEM && bad == &wr[4], "a full queue: %d", ret) &&
	     ok;
	return check(!ibv_destroy_srq(srq), "ibv_destroy_srq") && ok;
}

static const struct {
	bool (*run)(struct setup *setup);
	const char *name;
} cases[] = {
	{ resize_with_elements, "resizing keeps what was not polled" },
	{ resize_under_traffic, "resizing under traffic" },
	{ resize_under_events, "resizing while completions raise events" },
	{ resize_keeps_request, "resizing keeps the request for an event" },
	{ resize_fails, "resizing that fails changes nothing" },
	{ post_while_polling, "posted anew for each that is read" },
	{ arm_while_polling, "armed between start_poll and end_poll" },
	{ thread_domain, "a thread domain" },
	{ wrong_domains, "domains that are none, or another context's" },
	{ single_threaded, "a completion queue of one thread" },
	{ list_with_bad_request, "a list with a bad request" },
	{ srq_list, "lists of shared receives" },
};

int main(int argc, char **argv)
{
	struct setup setup;
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	for (i = 0; i < COUNT(cases); i++)
		tap_ok(cases[i].run(&setup), "%s", cases[i].name);
	run_forgotten(&setup);
	run_moved(&setup);
	setup_close(&setup);
	return tap_end();
}
