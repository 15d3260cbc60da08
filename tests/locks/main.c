// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Two connections between the same devices that have nothing else in common: no
 * lock that the modules take for the one, called by who posts, is one that they take
 * for the other. Which ones they take probes of the kernel's functions for locks tell.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probes.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define REGION_BYTES (1UL << 16)
#define LARGE_BYTES 40000U
/* An aligned word. */
#define WORD_OFFSET (PAGE_BYTES - 77)

enum { MOST_LOCKS = 256, NAME_BYTES = 64, ROUNDS = 3, LEAST_PROBES = 5 };
/* Those of a requester, of a responder and of two completion queues. */
enum { LEAST_LOCKS = 4 };

/* A connection with everything of its own but the devices. */
struct lane {
	struct setup setup;
	struct endpoint a;
	struct endpoint b;
	struct ibv_comp_channel *channel;
	struct ibv_ah *ah;
};

struct lock {
	char address[NAME_BYTES];
	char caller[NAME_BYTES]; /* who has taken it first */
};

struct locks {
	unsigned int count;
	struct lock lock[MOST_LOCKS];
};

/* --- the trace ---------------------------------------------------------------- */

/* Those that a kernel has depend on its configuration. */
#define PROBE(function)                                                        \
	{                                                                      \
		function, function                                             \
	}

static const struct probe functions[] = {
	PROBE("mutex_lock"),
	PROBE("mutex_lock_nested"),
	PROBE("mutex_lock_interruptible"),
	PROBE("mutex_lock_interruptible_nested"),
	PROBE("mutex_lock_killable"),
	PROBE("mutex_lock_killable_nested"),
	PROBE("mutex_trylock"),
	PROBE("down_read"),
	PROBE("down_read_trylock"),
	PROBE("down_write"),
	PROBE("down_write_trylock"),
	PROBE("_raw_spin_lock"),
	PROBE("_raw_spin_lock_bh"),
	PROBE("_raw_spin_lock_irq"),
	PROBE("_raw_spin_lock_irqsave"),
	PROBE("_raw_spin_trylock"),
	PROBE("_raw_read_lock"),
	PROBE("_raw_write_lock"),
};

static bool trace_open(void)
{
	if (!probes_open(functions, COUNT(functions), LEAST_PROBES))
		return false;
	probes_of_this_process();
	return true;
}

static bool has_lock(const struct locks *locks, const char *address)
{
	unsigned int i;

	for (i = 0; i < locks->count; i++)
		if (!strcmp(locks->lock[i].address, address))
			return true;
	return false;
}

static bool is_of_modules(const char *caller)
{
	return strstr(caller, "[ib_mic]") || strstr(caller, "[mic_fabric]") ||
	       strstr(caller, "[mic_ivshmem]");
}

static void add_line(void *to, const char *line)
{
	struct locks *locks = to;
	const char *at = strstr(line, " lock=");
	struct lock lock;

	if (!at || !is_of_modules(at) ||
	    sscanf(at, " lock=%63s caller=%63s", lock.address, lock.caller) !=
		    2 ||
	    has_lock(locks, lock.address))
		return;
	if (locks->count == MOST_LOCKS)
		bail("more than %d locks", MOST_LOCKS);
	locks->lock[locks->count++] = lock;
}

/* --- traffic ------------------------------------------------------------------ */

static void lane_open(struct lane *lane, char **argv, enum ibv_qp_type type)
{
	struct endpoint_options options = endpoint_options(type);
	int argc = 1;

	setup_open(&lane->setup, &argc, argv, REGION_BYTES);
	endpoint_create(&lane->a, &lane->setup.a_dev, &options);
	lane->channel = ibv_create_comp_channel(lane->setup.b_dev.ctx);
	if (!lane->channel)
		bail("ibv_create_comp_channel: %s", strerror(errno));
	options.channel = lane->channel;
	endpoint_create(&lane->b, &lane->setup.b_dev, &options);
	pair_connect(&lane->a, &lane->b);
	lane->ah = NULL;
	if (type == IBV_QPT_UD)
		lane->ah = address_handle(&lane->setup.a_dev,
					  &lane->setup.b_dev.gid);
}

static void lane_close(struct lane *lane)
{
	if (lane->ah)
		tap_must(!ibv_destroy_ah(lane->ah), "ibv_destroy_ah fails");
	pair_destroy(&lane->a, &lane->b);
	tap_must(!ibv_destroy_comp_channel(lane->channel),
		 "ibv_destroy_comp_channel fails");
	setup_close(&lane->setup);
}

static void aim(struct lane *lane, struct ibv_send_wr *wr)
{
	const struct region *to = &lane->setup.b_mem;

	if (lane->ah) {
		wr->wr.ud.ah = lane->ah;
		wr->wr.ud.remote_qpn = lane->b.qp->qp_num;
		wr->wr.ud.remote_qkey = ENDPOINT_QKEY;
	} else if (opcode_is_atomic(wr->opcode)) {
		wr->wr.atomic.remote_addr = to->rdma_addr + WORD_OFFSET;
		wr->wr.atomic.rkey = to->mr->rkey;
	} else {
		wr->wr.rdma.remote_addr = to->rdma_addr + WORD_OFFSET;
		wr->wr.rdma.rkey = to->mr->rkey;
	}
}

static bool take_event(struct lane *lane)
{
	struct ibv_cq *cq;
	void *context;

	if (!check(!ibv_get_cq_event(lane->channel, &cq, &context),
		   "no event comes"))
		return false;
	ibv_ack_cq_events(cq, 1);
	return true;
}

/* One message, whose receive raises an event. */
static bool send_one(struct lane *lane, enum ibv_wr_opcode opcode,
		     uint32_t length)
{
	bool received = opcode_takes_recv(opcode);
	struct ibv_sge sge = region_sge(&lane->setup.a_mem, 0, length);
	struct ibv_sge to = region_sge(&lane->setup.b_mem, 0, REGION_BYTES);
	struct ibv_send_wr wr = send_wr(1, opcode, &sge, 1);

	aim(lane, &wr);
	if (received) {
		post_recv(&lane->b, 2, &to, 1);
		if (ibv_req_notify_cq(lane->b.recv_cq, 0))
			bail("ibv_req_notify_cq fails");
	}
	post_send(&lane->a, &wr);
	return cq_expect(lane->a.send_cq, 1, IBV_WC_SUCCESS) &&
	       (!received || (take_event(lane) &&
			      cq_expect(lane->b.recv_cq, 2, IBV_WC_SUCCESS)));
}

/* All that a type of queue pairs does, small and, where it can be, large. */
static bool send_all(struct lane *lane, enum ibv_qp_type type)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		uint32_t length;
		unsigned int types;
	} messages[] = {
		{ IBV_WR_SEND, 100, ~0U },
		{ IBV_WR_SEND_WITH_IMM, 0, ~0U },
		{ IBV_WR_SEND, LARGE_BYTES, ~(1U << IBV_QPT_UD) },
		{ IBV_WR_RDMA_WRITE, 8, ~(1U << IBV_QPT_UD) },
		{ IBV_WR_RDMA_WRITE, LARGE_BYTES, ~(1U << IBV_QPT_UD) },
		{ IBV_WR_RDMA_WRITE_WITH_IMM, 100, ~(1U << IBV_QPT_UD) },
		{ IBV_WR_RDMA_READ, 100, 1U << IBV_QPT_RC },
		{ IBV_WR_RDMA_READ, LARGE_BYTES, 1U << IBV_QPT_RC },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, 8, 1U << IBV_QPT_RC },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1U << IBV_QPT_RC },
		{ IBV_WR_ATOMIC_WRITE, 8, 1U << IBV_QPT_RC },
	};
	unsigned int i;

	for (i = 0; i < COUNT(messages); i++)
		if (messages[i].types & 1U << type &&
		    !send_one(lane, messages[i].opcode, messages[i].length))
			return check(false, "%s of %u bytes",
				     opcode_name(messages[i].opcode),
				     messages[i].length);
	return true;
}

static bool trace_lane(struct lane *lane, enum ibv_qp_type type,
		       struct locks *locks)
{
	int round;
	bool ok = true;

	locks->count = 0;
	probes_on();
	for (round = 0; round < ROUNDS; round++)
		ok = send_all(lane, type) && ok;
	return probes_off(add_line, locks) && ok;
}

/* -------------------------------------------------------------------------------- */

static bool are_apart(const struct locks *one, const struct locks *other)
{
	bool ok = true;
	unsigned int i;

	for (i = 0; i < one->count; i++)
		if (has_lock(other, one->lock[i].address))
			ok = check(false, "both take the lock of %s",
				   one->lock[i].caller);
	return ok;
}

/* Otherwise nothing was seen. */
static bool has_locks(const struct locks *locks)
{
	return check(locks->count >= LEAST_LOCKS, "only %u locks are taken",
		     locks->count);
}

static bool share_nothing(char **argv, enum ibv_qp_type type)
{
	static struct locks locks[2];
	struct lane lanes[2];
	unsigned int i;
	bool ok = true;

	for (i = 0; i < COUNT(lanes); i++) {
		lane_open(&lanes[i], argv, type);
		ok = send_all(&lanes[i], type) && ok;
	}
	for (i = 0; i < COUNT(lanes); i++)
		ok = trace_lane(&lanes[i], type, &locks[i]) &&
		     has_locks(&locks[i]) && ok;
	ok = ok && are_apart(&locks[0], &locks[1]);
	for (i = 0; i < COUNT(lanes); i++)
		lane_close(&lanes[i]);
	return ok;
}

int main(int argc, char **argv)
{
	static const struct {
		enum ibv_qp_type type;
		const char *name;
	} types[] = {
		{ IBV_QPT_RC, "RC" },
		{ IBV_QPT_UC, "UC" },
		{ IBV_QPT_UD, "UD" },
	};
	bool there = trace_open();
	unsigned int i;

	(void)argc;
	for (i = 0; i < COUNT(types); i++)
		if (there)
			tap_ok(share_nothing(argv, types[i].type),
			       "%s: two connections share no lock",
			       types[i].name);
		else
			tap_skip("this kernel has no kprobe events",
				 "%s: two connections share no lock",
				 types[i].name);
	if (there)
		probes_close();
	return tap_end();
}
