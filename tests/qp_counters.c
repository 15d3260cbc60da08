// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Counters that queue pairs are bound to, as "rdma statistic qp" has them: what a queue
 * pair does while it is bound is there, and the port has all, whatever was bound when.
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "counter.h"
#include "endpoint.h"
#include "executed.h"
#include "memory.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

/* beside hw_counters */
#define PACKETS "../counters/port_xmit_packets"

enum { BYTES = 64, COMMAND_BYTES = 256, NOTHING = -1, ROUNDS = 1000 };

static struct setup setup;
static struct endpoint a, b;

/* "rdma statistic" and so on, of the device; its output goes to the log. */
static bool rdma(const char *what, const char *rest)
{
	char command[COMMAND_BYTES];

	snprintf(command, sizeof(command),
		 "rdma statistic %s link %s/1 %s 2>&1", what, setup.a_dev.name,
		 rest);
	return check(!system(command), "%s", command);
}

static bool rdma_qp(const char *what, const struct endpoint *ep)
{
	char rest[COMMAND_BYTES];

	snprintf(rest, sizeof(rest), "lqpn %u", ep->qp->qp_num);
	return rdma(what, rest);
}

/* The value of @name in the first line that "rdma statistic" prints, or NOTHING. */
static int64_t value(const char *what, const char *rest, const char *name)
{
	char command[COMMAND_BYTES];
	int64_t found = NOTHING;
	FILE *output;

	snprintf(command, sizeof(command),
		 "rdma statistic %s show link %s/1 %s | tr ' ' '\\n' | "
		 "grep -m1 -A1 -x %s | tail -n 1",
		 what, setup.a_dev.name, rest, name);
	output = popen(command, "r");
	tap_must(output, "%s", command);
	if (fscanf(output, "%" SCNd64, &found) != 1)
		found = NOTHING;
	pclose(output);
	return found;
}

static int64_t of_qp(const struct endpoint *ep, const char *name)
{
	char rest[COMMAND_BYTES];

	snprintf(rest, sizeof(rest), "lqpn %u", ep->qp->qp_num);
	return value("qp", rest, name);
}

static int64_t of_port(const char *name)
{
	return value("", "", name);
}

static bool is(int64_t found, int64_t expected, const char *what)
{
	return check(found == expected, "%s: %" PRId64 " instead of %" PRId64,
		     what, found, expected);
}

static bool sends(struct endpoint *from, struct endpoint *to, unsigned int n)
{
	struct ibv_sge out = region_sge(&setup.a_mem, 0, BYTES);
	struct ibv_sge in = region_sge(&setup.b_mem, 0, BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &out, 1);

	while (n--) {
		post_recv(to, 2, &in, 1);
		post_send(from, &wr);
		if (!cq_expect(from->send_cq, 1, IBV_WC_SUCCESS) ||
		    !cq_expect(to->recv_cq, 2, IBV_WC_SUCCESS))
			return false;
	}
	return true;
}

static void open_pair(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
}

static bool by_hand(void)
{
	const int64_t before = of_port("sends");
	bool ok;

	open_pair();
	ok = sends(&a, &b, 2) && rdma_qp("qp bind", &a) && sends(&a, &b, 3) &&
	     is(of_qp(&a, "sends"), 3, "of the queue pair") &&
	     is(of_qp(&a, "send_bytes"), 3 * BYTES, "bytes") &&
	     is(of_port("sends") - before, 5, "of the port");
	pair_destroy(&a, &b);
	return is(value("qp", "", "sends"), NOTHING, "with nothing bound") &&
	       is(of_port("sends") - before, 5, "of the port in the end") && ok;
}

/* It counts for the device again. */
static bool unbound(void)
{
	const int64_t before = of_port("sends");
	char rest[COMMAND_BYTES];
	bool ok;

	open_pair();
	ok = rdma_qp("qp bind", &a) && sends(&a, &b, 1);
	snprintf(rest, sizeof(rest), "cntn %" PRId64 " lqpn %u",
		 of_qp(&a, "cntn"), a.qp->qp_num);
	ok = ok && rdma("qp unbind", rest) && sends(&a, &b, 2) &&
	     is(of_qp(&a, "sends"), NOTHING, "of the queue pair") &&
	     is(of_port("sends") - before, 3, "of the port") &&
	     /* another time */
	     rdma_qp("qp bind", &a) && sends(&a, &b, 4) &&
	     is(of_qp(&a, "sends"), 4, "of the queue pair") &&
	     is(of_port("sends") - before, 7, "of the port at last");
	pair_destroy(&a, &b);
	return ok;
}

static bool writes(unsigned int n)
{
	struct ibv_sge sge = region_sge(&setup.a_mem, 0, BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);

	send_wr_aim(&wr, setup.b_mem.rdma_addr, setup.b_mem.mr->rkey);
	while (n--) {
		post_send(&a, &wr);
		if (!cq_expect(a.send_cq, 1, IBV_WC_SUCCESS))
			return false;
	}
	return true;
}

/* The kernel may still be at work on the queue when the first ones are posted. */
static bool executes(void)
{
	const uint64_t limit = deadline();

	while (!executed_here(&a))
		if (!check(now_ms() < limit, "the process executes nothing") ||
		    !writes(1))
			return false;
	return true;
}

static bool direct(void)
{
	const int64_t before = of_port("direct_writes");
	uint64_t first;
	bool ok;

	open_pair();
	tap_must(!micdv_set_path(a.qp, MICDV_PATH_DIRECT),
		 "micdv_set_path fails");
	ok = executes() && rdma_qp("qp bind", &a);
	first = executed_here(&a);
	ok = ok && is(of_qp(&a, "direct_writes"), 0, "before it has written") &&
	     writes(3) &&
	     is(of_qp(&a, "direct_writes"), 3, "of the queue pair") &&
	     is(of_qp(&a, "direct_write_bytes"), 3 * BYTES, "bytes") &&
	     is(of_port("direct_writes") - before, first + 3, "of the port");
	pair_destroy(&a, &b);
	return is(of_port("direct_writes") - before, first + 3,
		  "of the port in the end") &&
	       ok;
}

/* The port's counters of IBA, which ib_core does not add anything to. */
static bool of_iba(void)
{
	uint64_t before, after;
	bool ok;

	before = counter_now(&setup.a_dev, PACKETS);
	open_pair();
	ok = rdma_qp("qp bind", &a) && sends(&a, &b, 3);
	after = counter_now(&setup.a_dev, PACKETS);
	ok = ok && is(after - before, 3, "packets");
	pair_destroy(&a, &b);
	after = counter_now(&setup.a_dev, PACKETS);
	return is(after - before, 3, "packets in the end") && ok;
}

/* All queue pairs of a service have one. */
static bool by_service(void)
{
	const int64_t before = of_port("sends");
	struct endpoint c, d;
	struct endpoint_options options = endpoint_options(IBV_QPT_UC);
	bool ok;

	ok = rdma("qp set", "auto type on");
	open_pair();
	pair_create(&c, &setup.a_dev, &d, &setup.b_dev, &options);
	ok = ok && sends(&a, &b, 2) && sends(&c, &d, 3) &&
	     is(value("qp", "qp-type RC", "sends"), 2, "of RC") &&
	     is(value("qp", "qp-type UC", "sends"), 3, "of UC") &&
	     is(of_port("sends") - before, 5, "of the port");
	pair_destroy(&c, &d);
	pair_destroy(&a, &b);
	return rdma("qp set", "auto off") &&
	       is(of_port("sends") - before, 5, "of the port in the end") && ok;
}

/* All queue pairs of a process have one, whatever the service. */
static bool by_process(void)
{
	const int64_t before = of_port("sends");
	struct endpoint_options options = endpoint_options(IBV_QPT_UC);
	char rest[COMMAND_BYTES];
	struct endpoint c, d;
	bool ok;

	ok = rdma("qp set", "auto pid on");
	open_pair();
	pair_create(&c, &setup.a_dev, &d, &setup.b_dev, &options);
	snprintf(rest, sizeof(rest), "pid %d", (int)getpid());
	ok = ok && sends(&a, &b, 2) && sends(&c, &d, 3) &&
	     is(value("qp", rest, "sends"), 5, "of the process");
	pair_destroy(&c, &d);
	pair_destroy(&a, &b);
	return rdma("qp set", "auto off") &&
	       is(of_port("sends") - before, 5, "of the port in the end") && ok;
}

/* --- two that modify a queue pair at the same time ---------------------------- */

/* A queue pair for each round, and who is how far. */
static struct {
	struct ibv_qp *qp;
	atomic_uint round;
	atomic_uint done;
	atomic_bool stop;
} race;

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
	};

	tap_must(!ibv_modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					IBV_QP_ACCESS_FLAGS),
		 "ibv_modify_qp fails");
}

static void *modifies(void *argument)
{
	const unsigned int rounds = ROUNDS / slowness();
	unsigned int round;

	(void)argument;
	for (round = 1; round <= rounds; round++) {
		while (atomic_load(&race.round) < round)
			sched_yield();
		to_init(race.qp);
		atomic_store(&race.done, round);
	}
	return NULL;
}

static void *reads_counters(void *argument)
{
	(void)argument;
	while (!atomic_load(&race.stop))
		counter_now(&setup.a_dev, "sends");
	return NULL;
}

static void modify_at_once(struct ibv_cq *cq)
{
	const unsigned int rounds = ROUNDS / slowness();
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	unsigned int round;

	for (round = 1; round <= rounds; round++) {
		race.qp = ibv_create_qp(setup.a_dev.pd, &attr);
		if (!race.qp)
			bail("ibv_create_qp fails");
		atomic_store(&race.round, round);
		to_init(race.qp);
		while (atomic_load(&race.done) < round)
			sched_yield();
		tap_must(!ibv_destroy_qp(race.qp), "ibv_destroy_qp fails");
	}
}

static void race_once(void)
{
	struct ibv_cq *cq = ibv_create_cq(setup.a_dev.ctx, 1, NULL, NULL, 0);
	pthread_t modifier, reader;

	tap_must(cq, "ibv_create_cq fails");
	atomic_store(&race.round, 0);
	atomic_store(&race.done, 0);
	atomic_store(&race.stop, false);
	if (pthread_create(&modifier, NULL, modifies, NULL) ||
	    pthread_create(&reader, NULL, reads_counters, NULL))
		bail("pthread_create fails");
	modify_at_once(cq);
	atomic_store(&race.stop, true);
	pthread_join(modifier, NULL);
	pthread_join(reader, NULL);
	tap_must(!ibv_destroy_cq(cq), "ibv_destroy_cq fails");
}

/* Each is bound once, to a counter that is made then, and to one that is there. */
static bool at_once(void)
{
	bool ok = rdma("qp set", "auto type on");

	race_once();
	ok = is(value("qp", "", "sends"), NOTHING, "with nothing bound") && ok;
	open_pair();
	race_once();
	ok = ok && sends(&a, &b, 2) &&
	     is(value("qp", "qp-type RC", "sends"), 2, "of RC");
	pair_destroy(&a, &b);
	ok = is(value("qp", "", "sends"), NOTHING, "with nothing left") && ok;
	return rdma("qp set", "auto off") && ok;
}

int main(int argc, char **argv)
{
	setup_open(&setup, &argc, argv, 4 * PAGE_BYTES);
	tap_ok(by_hand(), "a queue pair that is bound to a counter");
	tap_ok(unbound(), "that is unbound, and bound again");
	tap_ok(direct(), "what the process executes");
	tap_ok(of_iba(), "the port's counters of IBA");
	tap_ok(by_service(), "a counter for each service");
	tap_ok(by_process(), "a counter for each process");
	tap_ok(at_once(), "two that bind a queue pair at once");
	setup_close(&setup);
	return tap_end();
}
