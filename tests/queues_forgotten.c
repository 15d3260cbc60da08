// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completions of queue pairs that were destroyed or reset before anybody polled them.
 */
#include "pattern.h"
#include "queues.h"
#include "tap.h"
#include "work.h"
#include "writer.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { ROUNDS = 60, FEW = 4 };

static bool destroy_with_completions(struct setup *setup)
{
	struct pair first, second;
	bool ok;

	pair_open(&first, setup, 64);
	pair_open_on(&second, setup, first.cq);
	post_writes(&first, 100, 3);
	ok = settle(&first);
	post_writes(&second, 200, 2);
	ok = settle(&second) && ok;
	post_writes(&first, 103, 3);
	ok = settle(&first) && ok;
	pair_destroy(&first.a, &first.b);
	ok = expect_ids(first.cq, 200, 2) && cq_stays_empty(first.cq, 20) && ok;
	/* more than fits, had the others kept their places */
	for (uint64_t id = 300; ok && id < 400; id += 10) {
		post_writes(&second, id, 10);
		ok = expect_ids(first.cq, id, 10);
	}
	pair_close(&second);
	return ok;
}

/* Nobody has polled them; their places are free nevertheless. */
static bool destroy_with_full_queue(struct setup *setup)
{
	struct pair first, second;
	bool ok = true;
	int i;

	pair_open(&first, setup, DEPTH);
	pair_open_on(&second, setup, first.cq);
	for (i = 0; i < first.cq->cqe && ok; i++) {
		post_writes(&first, i, 1);
		ok = settle(&first);
	}
	pair_destroy(&first.a, &first.b);
	post_writes(&second, 100, 2);
	ok = expect_ids(first.cq, 100, 2) && ok;
	pair_close(&second);
	return ok;
}

static bool reset_with_completions(struct setup *setup)
{
	struct pair pair;
	bool ok;

	pair_open(&pair, setup, 64);
	post_writes(&pair, 1, 5);
	ok = settle(&pair) &&
	     check(!endpoint_set_state(&pair.a, IBV_QPS_RESET), "RESET") &&
	     check(!endpoint_set_state(&pair.b, IBV_QPS_RESET), "RESET") &&
	     cq_stays_empty(pair.cq, 20);
	if (ok)
		pair_connect(&pair.a, &pair.b);
	post_writes(&pair, 6, 5);
	ok = ok && expect_ids(pair.cq, 6, 5);
	pair_close(&pair);
	return ok;
}

/* As write_or_send() has it, which of both is chance's. */
struct mixture {
	struct random_state random;
	struct pair first;
	struct pair second;
	unsigned int of_second; /* so many completions, from id 1 on */
};

/* The process completes the one, the kernel the other. */
static bool write_or_send(struct mixture *mixture, struct pair *pair,
			  uint64_t id)
{
	if (random_below(&mixture->random, 2)) {
		post_writes(pair, id, 1);
		return settle(pair);
	}
	post_sends(pair, id, 1);
	return true;
}

/* @count by both queue pairs, in any order, or by the second one alone. */
static bool complete(struct mixture *mixture, unsigned int count, bool both)
{
	struct pair *pair;
	bool ok = true;

	while (ok && count--) {
		pair = both && random_below(&mixture->random, 3) ?
			       &mixture->first :
			       &mixture->second;
		ok = write_or_send(
			mixture, pair,
			pair == &mixture->second ? ++mixture->of_second : 1000);
	}
	return ok;
}

/*
 * A full queue, one of whose queue pairs is destroyed: there is room at once, wherever
 * its completions were, also for a smaller queue.
 */
static bool destroy_among_others(struct mixture *mixture, struct setup *setup,
				 bool resize)
{
	const unsigned int before = mixture->of_second;
	struct ibv_cq *cq = mixture->second.cq;
	unsigned int stayed;
	bool ok;

	pair_open_on(&mixture->first, setup, cq);
	ok = complete(mixture, DEPTH, true);
	stayed = mixture->of_second - before;
	pair_destroy(&mixture->first.a, &mixture->first.b);
	if (resize && stayed <= FEW)
		ok = check(!ibv_resize_cq(cq, FEW),
			   "no room in a smaller one") &&
		     check(!ibv_resize_cq(cq, DEPTH), "growing fails") && ok;
	ok = ok && complete(mixture, DEPTH - stayed, false);
	return expect_ids(cq, before + 1, DEPTH) && cq_stays_empty(cq, 0) && ok;
}

static bool destroy_often(struct setup *setup, bool resize)
{
	struct mixture mixture = { .of_second = 0 };
	unsigned int i;
	bool ok = true;

	random_seed(&mixture.random, 1 + resize);
	pair_open(&mixture.second, setup, DEPTH);
	for (i = 0; ok && i < ROUNDS; i++)
		ok = destroy_among_others(&mixture, setup, resize);
	check(ok, "in round %u", i);
	pair_close(&mixture.second);
	return ok;
}

static bool destroy_mixed(struct setup *setup)
{
	return destroy_often(setup, false);
}

static bool destroy_and_resize(struct setup *setup)
{
	return destroy_often(setup, true);
}

static const struct {
	bool (*run)(struct setup *setup);
	const char *name;
} cases[] = {
	{ destroy_with_completions, "a destroyed QP's completions are gone" },
	{ destroy_with_full_queue,
	  "a destroyed QP's completions had filled it" },
	{ destroy_mixed, "a destroyed QP's places among others are free" },
	{ destroy_and_resize, "and the queue can be made smaller" },
	{ reset_with_completions, "a reset QP's completions are gone" },
};

void run_forgotten(struct setup *setup)
{
	unsigned int i;

	for (i = 0; i < COUNT(cases); i++)
		tap_ok(cases[i].run(setup), "%s", cases[i].name);
}
