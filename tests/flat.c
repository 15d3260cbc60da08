// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A WRITE among many queue pairs of one completion queue, or among many keys, or a
 * datagram to one of many groups, takes as many instructions as one alone: nothing is
 * searched. They are counted by the clock
 * (./run vm --icount), from the post to the completion; which of them miss a cache is
 * for the bench to show.
 * The kernel executes them, or this process does, among the same keys and groups.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "counting.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

enum {
	QPS = 1000,
	KEYS = 100000,
	USED = 1009, /* of the keys, far from each other */
	DEPTH = 4,
	JOINERS = 8,   /* queue pairs that are members of other groups */
	GROUPS = 1000, /* of each */
	SLOT_BYTES = 128,
	REGION_BYTES = 4096,
	TIMES = 3, /* the first one gets what is kept */
};

/* At most that many hundredths of one alone. */
enum { LIMIT = 120 };

struct place {
	const struct setup *setup;
	struct endpoint *from;
	uint32_t rkey;
};

/* Who executes the requests of a setup. */
enum { EXECUTORS = 2 };
static const char *const executors[EXECUTORS] = { "kernel", "process" };
static struct setup setups[EXECUTORS];

static bool write_at(const struct place *place, uint64_t *ns)
{
	struct ibv_sge sge = region_sge(&place->setup->a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1), *bad;
	struct ibv_wc wc;
	uint64_t start;
	int n, err;

	send_wr_aim(&wr, place->setup->b_mem.rdma_addr, place->rkey);
	start = now_ns();
	err = ibv_post_send(place->from->qp, &wr, &bad);
	do
		n = ibv_poll_cq(place->from->send_cq, 1, &wc);
	while (!err && !n);
	*ns = now_ns() - start;
	return check(!err && n == 1 && wc.status == IBV_WC_SUCCESS,
		     "post %d, poll %d, status %d", err, n, wc.status);
}

/* The median of what one takes at each of @n places; 0 if it fails. */
static uint64_t cost_at(const struct place *places, unsigned int n)
{
	uint64_t *values = calloc(n, sizeof(*values)), cost;
	unsigned int i, k;

	if (!values)
		bail("no memory");
	for (k = 0; k < TIMES; k++)
		for (i = 0; i < n; i++)
			if (!write_at(&places[i], &values[i])) {
				free(values);
				return 0;
			}
	cost = median(values, n) - clock_cost();
	free(values);
	return cost;
}

static bool is_limited(uint64_t one, uint64_t all)
{
	tap_note("%llu instructions for one alone, %llu among many",
		 (unsigned long long)one, (unsigned long long)all);
	return check(one > 50 && all, "what is counted?") &&
	       check(all * 100 <= one * LIMIT, "more than %d %%", LIMIT);
}

/* At @many of them and at the first one. */
static bool is_flat(const struct place *many, unsigned int n)
{
	struct place alone[101];
	uint64_t one, all;
	unsigned int i;

	for (i = 0; i < sizeof(alone) / sizeof(alone[0]); i++)
		alone[i] = many[0];
	one = cost_at(alone, i);
	all = cost_at(many, n);
	return is_limited(one, all);
}

static bool among_queue_pairs(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint *a = calloc(QPS, sizeof(*a));
	struct endpoint *b = calloc(QPS, sizeof(*b));
	struct place *places = calloc(QPS, sizeof(*places));
	unsigned int i;
	bool ok;

	if (!a || !b || !places)
		bail("no memory");
	options.depth = DEPTH;
	options.send_cq = ibv_create_cq(setup->a_dev.ctx, QPS * DEPTH, NULL,
					NULL, 0);
	tap_must(options.send_cq, "ibv_create_cq");
	for (i = 0; i < QPS; i++) {
		struct endpoint_options other = options;

		other.send_cq = NULL;
		endpoint_create(&a[i], &setup->a_dev, &options);
		endpoint_create(&b[i], &setup->b_dev, &other);
		pair_connect(&a[i], &b[i]);
		places[i].setup = setup;
		places[i].from = &a[i];
		places[i].rkey = setup->b_mem.mr->rkey;
	}
	ok = is_flat(places, QPS);
	for (i = 0; i < QPS; i++)
		pair_destroy(&a[i], &b[i]);
	tap_must(!ibv_destroy_cq(options.send_cq), "ibv_destroy_cq");
	free(places);
	free(b);
	free(a);
	return ok;
}

/* Every second one is in the protection domain of each setup. */
static struct ibv_mr **register_keys(void)
{
	struct ibv_mr **mrs = calloc(KEYS, sizeof(struct ibv_mr *));
	unsigned int i;

	if (!mrs)
		bail("no memory");
	for (i = 0; i < KEYS; i++) {
		const struct setup *setup = &setups[i % EXECUTORS];

		mrs[i] = ibv_reg_mr(setup->b_dev.pd, setup->b_mem.addr,
				    REGION_BYTES, ACCESS_ALL);
		tap_must(mrs[i], "ibv_reg_mr: %s", strerror(errno));
	}
	return mrs;
}

static void deregister_keys(struct ibv_mr **mrs)
{
	unsigned int i;

	for (i = 0; i < KEYS; i++)
		tap_must(!ibv_dereg_mr(mrs[i]), "ibv_dereg_mr");
	free(mrs);
}

static bool among_keys(unsigned int who, struct ibv_mr **mrs)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct setup *setup = &setups[who];
	struct place places[USED];
	struct endpoint a, b;
	unsigned int i;
	bool ok;

	pair_create(&a, &setup->a_dev, &b, &setup->b_dev, &options);
	for (i = 0; i < USED; i++) {
		unsigned int key = i * (KEYS / USED) / EXECUTORS * EXECUTORS;

		places[i].setup = setup;
		places[i].from = &a;
		places[i].rkey = mrs[key + who]->rkey;
	}
	ok = is_flat(places, USED);
	pair_destroy(&a, &b);
	return ok;
}

static union ibv_gid group(unsigned int number)
{
	return (union ibv_gid){
		.raw = { 0xff, 0x0e, [14] = number >> 8, [15] = number },
	};
}

struct datagrams {
	struct setup *setup;
	struct endpoint from, to;
	struct ibv_ah *ah;
};

static bool send_one(struct datagrams *d, uint64_t *ns)
{
	struct ibv_sge data = region_sge(&d->setup->a_mem, 0, 8);
	struct ibv_sge slot = region_sge(&d->setup->b_mem, 0, SLOT_BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &data, 1), *bad;
	struct ibv_wc wc;
	uint64_t start;
	int n, err;

	post_recv(&d->to, 1, &slot, 1);
	wr.wr.ud.ah = d->ah;
	wr.wr.ud.remote_qpn = MULTICAST_QPN;
	wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	start = now_ns();
	err = ibv_post_send(d->from.qp, &wr, &bad);
	*ns = now_ns() - start;
	n = ibv_poll_cq(d->from.send_cq, 1, &wc);
	return check(!err && n == 1 && wc.status == IBV_WC_SUCCESS,
		     "post %d, poll %d, status %d", err, n, wc.status) &&
	       check(cq_success(d->to.recv_cq, 1, &wc), "it does not arrive");
}

static uint64_t cost_of_one(struct datagrams *d)
{
	uint64_t values[101];
	unsigned int i, n = sizeof(values) / sizeof(values[0]);

	for (i = 0; i < n; i++)
		if (!send_one(d, &values[i]))
			return 0;
	return median(values, n) - clock_cost();
}

static void join_others(struct endpoint *joiners, bool join)
{
	unsigned int i, k;

	for (i = 0; i < JOINERS; i++)
		for (k = 0; k < GROUPS; k++) {
			union ibv_gid gid = group(1 + i * GROUPS + k);

			tap_must(!(join ? ibv_attach_mcast : ibv_detach_mcast)(
					 joiners[i].qp, &gid, 0),
				 "group %u", 1 + i * GROUPS + k);
		}
}

static void datagrams_open(struct datagrams *d, struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	union ibv_gid gid = group(0);

	d->setup = setup;
	endpoint_create(&d->from, &setup->a_dev, &options);
	endpoint_connect(&d->from, NULL);
	endpoint_create(&d->to, &setup->b_dev, &options);
	endpoint_connect(&d->to, NULL);
	d->ah = address_handle(&setup->a_dev, &gid);
}

static void datagrams_close(struct datagrams *d)
{
	tap_must(!ibv_destroy_ah(d->ah), "ibv_destroy_ah");
	endpoint_destroy(&d->to);
	endpoint_destroy(&d->from);
}

/* To a group whose only member is its own. */
static uint64_t cost_in_group(struct datagrams *d)
{
	union ibv_gid gid = group(0);
	uint64_t cost;

	tap_must(!ibv_attach_mcast(d->to.qp, &gid, 0), "ibv_attach_mcast");
	cost = cost_of_one(d);
	tap_must(!ibv_detach_mcast(d->to.qp, &gid, 0), "ibv_detach_mcast");
	return cost;
}

static void among_groups(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	struct datagrams datagrams[EXECUTORS];
	struct endpoint joiners[JOINERS];
	uint64_t one[EXECUTORS], all[EXECUTORS];
	unsigned int i;

	for (i = 0; i < JOINERS; i++)
		endpoint_create(&joiners[i], &setups[0].b_dev, &options);
	for (i = 0; i < EXECUTORS; i++) {
		datagrams_open(&datagrams[i], &setups[i]);
		one[i] = cost_in_group(&datagrams[i]);
	}
	join_others(joiners, true);
	for (i = 0; i < EXECUTORS; i++)
		all[i] = cost_in_group(&datagrams[i]);
	join_others(joiners, false);
	for (i = 0; i < EXECUTORS; i++) {
		datagrams_close(&datagrams[i]);
		tap_ok(is_limited(one[i], all[i]),
		       "%s: a datagram, with %d other memberships",
		       executors[i], JOINERS * GROUPS);
	}
	for (i = 0; i < JOINERS; i++)
		endpoint_destroy(&joiners[i]);
}

int main(int argc, char **argv)
{
	struct ibv_mr **mrs;
	unsigned int i;

	if (!tap_ok(clock_counts(), "the clock counts instructions"))
		return tap_end();
	setenv("MIC_DIRECT", "0", 1);
	setup_open(&setups[0], &argc, argv, REGION_BYTES);
	unsetenv("MIC_DIRECT");
	setup_open(&setups[1], &argc, argv, REGION_BYTES);
	for (i = 0; i < EXECUTORS; i++)
		tap_ok(among_queue_pairs(&setups[i]),
		       "%s: a WRITE among %d queue pairs", executors[i], QPS);
	mrs = register_keys();
	for (i = 0; i < EXECUTORS; i++)
		tap_ok(among_keys(i, mrs), "%s: a WRITE among %d keys",
		       executors[i], KEYS);
	deregister_keys(mrs);
	among_groups();
	for (i = 0; i < EXECUTORS; i++)
		setup_close(&setups[i]);
	return tap_end();
}
