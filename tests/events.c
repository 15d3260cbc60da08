// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completion channels: which completions raise an event, and that no event
 * gets lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "pattern.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES 4096UL
#define MESSAGE_BYTES 64U
/* Long enough for an event that should not come to be seen. */
#define QUIET_MS 50

/* A connection; @cq, where b receives, raises events. */
struct listener {
	struct setup *setup;
	struct endpoint a;
	struct endpoint b;
	struct ibv_comp_channel *channel; /* of b's receive queue */
	struct ibv_cq *cq;
	unsigned int events;
};

static char cookie;

static void listener_open(struct listener *listener, struct setup *setup,
			  int vector)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	int fd;

	listener->events = 0;
	listener->setup = setup;
	listener->channel = ibv_create_comp_channel(setup->b_dev.ctx);
	if (!listener->channel)
		bail("ibv_create_comp_channel: %s", strerror(errno));
	fd = listener->channel->fd;
	if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK))
		bail("fcntl: %s", strerror(errno));
	listener->cq = ibv_create_cq(setup->b_dev.ctx, 64, &cookie,
				     listener->channel, vector);
	if (!listener->cq)
		bail("cannot create a CQ: %s", strerror(errno));
	endpoint_create(&listener->a, &setup->a_dev, &options);
	options.recv_cq = listener->cq;
	endpoint_create(&listener->b, &setup->b_dev, &options);
	pair_connect(&listener->a, &listener->b);
}

static void listener_close(struct listener *listener)
{
	ibv_ack_cq_events(listener->cq, listener->events);
	pair_destroy(&listener->a, &listener->b);
	tap_must(!ibv_destroy_cq(listener->cq), "ibv_destroy_cq fails");
	tap_must(!ibv_destroy_comp_channel(listener->channel),
		 "ibv_destroy_comp_channel fails");
}

static void post_receive(struct listener *listener, uint64_t id)
{
	struct ibv_sge sge = region_sge(&listener->setup->b_mem, 0,
					MESSAGE_BYTES);

	post_recv(&listener->b, id, &sge, 1);
}

static void post_message(struct listener *listener, uint64_t id,
			 enum ibv_wr_opcode opcode, int flags)
{
	struct setup *setup = listener->setup;
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, MESSAGE_BYTES);
	struct ibv_send_wr wr = send_wr(id, opcode, &sge, 1);

	wr.send_flags |= flags;
	wr.wr.rdma.remote_addr = setup->b_mem.rdma_addr;
	wr.wr.rdma.rkey = setup->b_mem.mr->rkey;
	post_send(&listener->a, &wr);
}

static void arm(struct listener *listener, bool solicited_only)
{
	if (ibv_req_notify_cq(listener->cq, solicited_only))
		bail("ibv_req_notify_cq fails");
}

static bool takes_event(struct listener *listener)
{
	struct ibv_cq *cq = NULL;
	void *context = NULL;

	if (!check(becomes_readable(listener->channel->fd), "no event comes") ||
	    !check(!ibv_get_cq_event(listener->channel, &cq, &context),
		   "ibv_get_cq_event fails"))
		return false;
	listener->events++;
	return check(cq == listener->cq && context == &cookie,
		     "the event is of another CQ");
}

static bool is_quiet(struct listener *listener)
{
	return check(!readable_within(listener->channel->fd, QUIET_MS),
		     "an event comes that nobody asked for");
}

/* One message, and its completions on both sides. */
static bool deliver(struct listener *listener, enum ibv_wr_opcode opcode,
		    bool solicited)
{
	post_receive(listener, 1);
	post_message(listener, 1, opcode, solicited ? IBV_SEND_SOLICITED : 0);
	return cq_expect(listener->a.send_cq, 1, IBV_WC_SUCCESS) &&
	       cq_expect(listener->cq, 1, IBV_WC_SUCCESS);
}

static bool run_unarmed(struct listener *listener)
{
	return deliver(listener, IBV_WR_SEND, true) && is_quiet(listener);
}

static bool run_armed(struct listener *listener)
{
	int i;

	for (i = 0; i < 20; i++) {
		arm(listener, false);
		if (!deliver(listener, IBV_WR_SEND, false) ||
		    !takes_event(listener) ||
		    !deliver(listener, IBV_WR_SEND, false))
			return false;
	}
	/* Each arming gives one event only. */
	return is_quiet(listener);
}

static bool run_solicited(struct listener *listener)
{
	arm(listener, true);
	return deliver(listener, IBV_WR_SEND, false) &&
	       deliver(listener, IBV_WR_RDMA_WRITE_WITH_IMM, false) &&
	       is_quiet(listener) &&
	       deliver(listener, IBV_WR_SEND_WITH_IMM, true) &&
	       takes_event(listener) && deliver(listener, IBV_WR_SEND, true) &&
	       is_quiet(listener);
}

static bool run_solicited_write(struct listener *listener)
{
	arm(listener, true);
	return deliver(listener, IBV_WR_RDMA_WRITE_WITH_IMM, true) &&
	       takes_event(listener);
}

/* Asking for any completion is not taken back by asking for less. */
static bool run_solicited_after_next(struct listener *listener)
{
	arm(listener, false);
	arm(listener, true);
	return deliver(listener, IBV_WR_SEND, false) && takes_event(listener);
}

static bool run_next_after_solicited(struct listener *listener)
{
	arm(listener, true);
	arm(listener, false);
	return deliver(listener, IBV_WR_SEND, false) && takes_event(listener);
}

/* A completion in error counts as solicited. */
static bool run_error_event(struct listener *listener)
{
	arm(listener, true);
	post_receive(listener, 3);
	if (endpoint_set_state(&listener->b, IBV_QPS_ERR))
		bail("cannot go to ERR");
	return takes_event(listener) &&
	       cq_expect(listener->cq, 3, IBV_WC_WR_FLUSH_ERR);
}

enum { UNREAD = 64, ROUNDS = 3 * UNREAD };

/*
 * Armed again and again without reading events: at some number there are no more,
 * but the queue stays armed, so the next completion after they were read raises one.
 */
static bool run_unread(struct listener *listener)
{
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		arm(listener, false);
		if (!deliver(listener, IBV_WR_SEND, false))
			return false;
	}
	for (i = 0; readable_within(listener->channel->fd, 0); i++)
		if (!takes_event(listener))
			return false;
	return check(i == UNREAD, "%u of %d events", i, ROUNDS) &&
	       deliver(listener, IBV_WR_SEND, false) && takes_event(listener) &&
	       deliver(listener, IBV_WR_SEND, false) && is_quiet(listener);
}

/*
 * The usual loop: sleep until an event, arm, empty the queue. No wake-up may
 * be lost however sender and receiver race.
 */
struct sleeper {
	struct listener *listener;
	unsigned int total;
	bool ok;
};

static void *sleeper_main(void *argument)
{
	struct sleeper *sleeper = argument;
	struct listener *listener = sleeper->listener;
	unsigned int received = 0;
	struct ibv_wc wc;

	sleeper->ok = true;
	while (received < sleeper->total && sleeper->ok) {
		sleeper->ok = check(takes_event(listener),
				    "asleep after %u messages", received);
		arm(listener, false);
		while (ibv_poll_cq(listener->cq, 1, &wc) > 0) {
			sleeper->ok &= wc.status == IBV_WC_SUCCESS;
			post_receive(listener, 1);
			received++;
		}
	}
	return NULL;
}

static bool run_sleep_loop(struct listener *listener)
{
	struct sleeper sleeper = {
		.listener = listener,
		.total = repetitions(listener->setup, 3000),
	};
	struct random_state random;
	pthread_t thread;
	unsigned int i;
	bool ok = true;

	random_seed(&random, 4);
	for (i = 0; i < 32; i++)
		post_receive(listener, 1);
	arm(listener, false);
	if (pthread_create(&thread, NULL, sleeper_main, &sleeper))
		bail("pthread_create fails");
	for (i = 0; i < sleeper.total && ok; i++) {
		post_message(listener, i, IBV_WR_SEND, 0);
		ok = cq_expect(listener->a.send_cq, i, IBV_WC_SUCCESS);
		if (random_below(&random, 8) == 0)
			relax(32 + random_below(&random, 3) * 1000);
	}
	pthread_join(thread, NULL);
	return ok && sleeper.ok;
}

/* --- moderation ---------------------------------------------------------------- */

enum { PERIOD_MS = 60, TRIES = 50 };

static bool moderate(struct listener *listener, uint16_t count, unsigned int ms)
{
	struct ibv_modify_cq_attr attr = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { .cq_count = count, .cq_period = 1000 * ms },
	};

	return check(!ibv_modify_cq(listener->cq, &attr), "ibv_modify_cq");
}

/* Milliseconds from arming to the event of @count messages. */
static bool event_after(struct listener *listener, unsigned int count,
			uint64_t *ms)
{
	uint64_t start = now_ms();
	unsigned int i;

	arm(listener, false);
	for (i = 0; i < count; i++)
		if (!deliver(listener, IBV_WR_SEND, false))
			return false;
	if (!takes_event(listener))
		return false;
	*ms = now_ms() - start;
	return true;
}

/* Too few completions: the event comes when the period is over, not before. */
static bool run_period(struct listener *listener)
{
	uint64_t ms;
	int i;

	if (!moderate(listener, 100, PERIOD_MS))
		return false;
	for (i = 0; i < 3; i++)
		if (!event_after(listener, 1, &ms) ||
		    !check(ms + 1 >= PERIOD_MS, "the event comes after %d ms",
			   (int)ms))
			return false;
	return is_quiet(listener);
}

/* On a machine that is not too slow: enough completions cut it short. */
static bool early_event(struct listener *listener, unsigned int count)
{
	uint64_t ms;
	int i;

	for (i = 0; i < TRIES; i++) {
		if (!event_after(listener, count, &ms))
			return false;
		if (ms < PERIOD_MS / 2)
			return true;
	}
	return check(false, "the event never comes before the period is over");
}

static bool run_count(struct listener *listener)
{
	return moderate(listener, 4, PERIOD_MS) && early_event(listener, 4);
}

static bool run_not_moderated(struct listener *listener)
{
	return moderate(listener, 100, PERIOD_MS) && moderate(listener, 0, 0) &&
	       early_event(listener, 1) && moderate(listener, 100, 0) &&
	       early_event(listener, 1);
}

/* Destroyed while an event is held back. */
static bool run_held_back(struct listener *listener)
{
	if (!moderate(listener, 100, PERIOD_MS))
		return false;
	arm(listener, false);
	return deliver(listener, IBV_WR_SEND, false);
}

static const struct {
	const char *name;
	bool (*run)(struct listener *listener);
} cases[] = {
	{ "no event from a queue that is not armed", run_unarmed },
	{ "one event for each time the queue is armed", run_armed },
	{ "solicited only: other completions raise no event", run_solicited },
	{ "solicited only: WRITE_IMM", run_solicited_write },
	{ "armed for any, then solicited only", run_solicited_after_next },
	{ "armed solicited only, then for any", run_next_after_solicited },
	{ "solicited only: a completion in error", run_error_event },
	{ "no wake-up gets lost", run_sleep_loop },
	{ "armed without reading events", run_unread },
	{ "moderation: not before the period is over", run_period },
	{ "moderation: when there are enough", run_count },
	{ "moderation: turned off", run_not_moderated },
	{ "moderation: destroyed with an event held back", run_held_back },
};

/* Completions that have to come soon after each other, which is up to a proxy then. */
static bool is_of_one_machine(unsigned int i)
{
	return cases[i].run == run_count || cases[i].run == run_not_moderated;
}

static void run_case(struct setup *setup, unsigned int i)
{
	struct listener listener;
	bool ok;

	listener_open(&listener, setup, 0);
	ok = cases[i].run(&listener);
	listener_close(&listener);
	tap_ok(ok, "%s", cases[i].name);
}

/* Queues of all vectors at once: each has its own events. */
static void run_vectors(struct setup *setup)
{
	int i, n = setup->b_dev.ctx->num_comp_vectors;
	struct listener *listener = calloc(n, sizeof(*listener));
	bool ok = true;

	if (!listener)
		bail("no memory");
	for (i = 0; i < n; i++)
		listener_open(&listener[i], setup, i);
	for (i = 0; i < n && ok; i++)
		ok = run_armed(&listener[i]);
	for (i = 0; i < n && ok; i++)
		ok = is_quiet(&listener[i]);
	for (i = 0; i < n; i++)
		listener_close(&listener[i]);
	free(listener);
	tap_ok(ok, "each completion vector");
}

int main(int argc, char **argv)
{
	struct setup setup;
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	for (i = 0; i < COUNT(cases); i++)
		if (!setup_is_remote(&setup) || !is_of_one_machine(i))
			run_case(&setup, i);
	run_vectors(&setup);
	setup_close(&setup);
	return tap_end();
}
