// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Each of two processes writes a word of its own and then reads the other's.
 * Whatever of the two is done by a request, at least one has to see what the
 * other has written. Both processes have one thread, so no lock helps.
 *
 * ordering serve PORT is the second process for an ordering --peer ADDRESS:PORT on
 * another machine.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "endpoint.h"
#include "process.h"
#include "proxy.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

enum {
	ROUNDS = 128,
	REPEATS = 256,
	ENOUGH_MS = 1000, /* of repeating */
	LINE = 64,
	WORD = 8,
	WORDS_BYTES = 2 * ROUNDS * LINE, /* a line for each side and round */
	SOURCE = WORDS_BYTES,
	RESULT = WORDS_BYTES + LINE,
	MEMORY_BYTES = WORDS_BYTES + 2 * LINE,
	SPINS = 2000, /* until others may need the processor */
};

/* What is written, and then read. */
enum form {
	LIST,	  /* WRITE and READ to the same memory, in one list */
	POSTS,	  /* the same, posted one after the other */
	STORE,	  /* a store to the own memory, a READ of the peer's */
	COMPLETE, /* a WRITE to the peer's memory, that is complete; a load */
	FORMS
};

static const char *const form_names[] = {
	[LIST] = "a READ behind a WRITE in one list",
	[POSTS] = "a READ posted after a WRITE",
	[STORE] = "a READ posted after a store",
	[COMPLETE] = "a load after a WRITE is complete",
};

/* What a process has. */
struct offer {
	struct endpoint_address to[2];
	struct endpoint_address from[2];
	uint64_t addr;
	uint32_t rkey;
};

/* What a process tells the other. */
struct told {
	struct offer offer;
	uint8_t saw[ROUNDS];
	atomic_bool enough;
	atomic_bool failed;
	_Alignas(LINE) atomic_uint turn;
};

/* Memory of both processes; on two machines each has it, and tells the other. */
struct shared {
	struct told told[2];
};

/* Where the other machine's is. */
struct wire_address {
	struct endpoint_address address;
	uint64_t addr;
	uint32_t rkey;
};

/* By which it is told. */
struct wire {
	struct endpoint ep;
	struct ibv_mr *mr;
	struct wire_address other;
	bool busy;
};

/* A process; @to and @from are connected with processes 0 and 1. */
struct side {
	int argc;
	char **argv;
	unsigned int me;
	unsigned int turn;
	struct shared *shared;
	bool remote; /* the processes are on two machines */
	struct wire wire;
	struct setup setup;
	struct endpoint to[2];
	struct endpoint from[2];
};

/* It has got there. */
static bool is_told(struct wire *wire)
{
	bool busy = wire->busy;

	wire->busy = false;
	return !busy || cq_expect(wire->ep.send_cq, 1, IBV_WC_SUCCESS);
}

/* All of what is told but the turn, and behind it that. */
static bool tell(struct side *side)
{
	const struct told *told = &side->shared->told[side->me];
	struct wire *wire = &side->wire;
	struct ibv_sge sges[2] = {
		{ .addr = (uintptr_t)told,
		  .length = offsetof(struct told, turn),
		  .lkey = wire->mr->lkey },
		{ .addr = (uintptr_t)&told->turn,
		  .length = sizeof(told->turn),
		  .lkey = wire->mr->lkey },
	};
	struct ibv_send_wr wr[2];
	unsigned int i;

	if (!is_told(wire))
		return false;
	for (i = 0; i < 2; i++) {
		wr[i] = send_wr(i, IBV_WR_RDMA_WRITE, &sges[i], 1);
		wr[i].wr.rdma.remote_addr = wire->other.addr + sges[i].addr -
					    (uintptr_t)side->shared;
		wr[i].wr.rdma.rkey = wire->other.rkey;
	}
	wr[0].next = &wr[1];
	wr[0].send_flags = 0;
	post_send(&wire->ep, wr);
	wire->busy = true;
	return true;
}

/* Wait until the other process is here, too. */
static bool meet(struct side *side)
{
	struct told *told = side->shared->told;
	atomic_uint *other = &told[!side->me].turn;
	const unsigned int turn = ++side->turn;
	uint64_t end = 0;
	unsigned int spins;

	atomic_store(&told[side->me].turn, turn);
	if (side->remote && !tell(side))
		return false;
	for (spins = 1; atomic_load(other) < turn; spins++) {
		if (spins % SPINS)
			continue;
		sched_yield();
		end = end ? end : deadline();
		if (now_ms() > end)
			return check(false, "the other process does not come");
	}
	return !atomic_load(&told[0].failed) && !atomic_load(&told[1].failed);
}

static bool open_wire(struct side *side, int socket)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct wire *wire = &side->wire;
	struct wire_address own;

	endpoint_create(&wire->ep, &side->setup.a_dev, &options);
	wire->mr = ibv_reg_mr(side->setup.a_dev.pd, side->shared,
			      sizeof(*side->shared), ACCESS_ALL);
	if (!wire->mr)
		bail("ibv_reg_mr: %s", strerror(errno));
	own = (struct wire_address){
		.address = endpoint_address(&wire->ep),
		.addr = (uintptr_t)side->shared,
		.rkey = wire->mr->rkey,
	};
	if (!message_send(socket, &own, sizeof(own)) ||
	    !message_receive(socket, &wire->other, sizeof(wire->other)))
		return false;
	endpoint_connect(&wire->ep, &wire->other.address);
	/* nothing is told before both are connected */
	return message_send(socket, &own, sizeof(own)) &&
	       message_receive(socket, &own, sizeof(own));
}

static void close_wire(struct side *side)
{
	is_told(&side->wire);
	endpoint_destroy(&side->wire.ep);
	tap_must(!ibv_dereg_mr(side->wire.mr), "ibv_dereg_mr fails");
}

static bool open_side(struct side *side, int socket)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct offer *offer = &side->shared->told[side->me].offer;
	unsigned int i;

	setup_open(&side->setup, &side->argc, side->argv, MEMORY_BYTES);
	if (side->remote && !open_wire(side, socket))
		return false;
	offer->addr = side->setup.b_mem.rdma_addr;
	offer->rkey = side->setup.b_mem.mr->rkey;
	for (i = 0; i < 2; i++) {
		endpoint_create(&side->to[i], &side->setup.a_dev, &options);
		endpoint_create(&side->from[i], &side->setup.b_dev, &options);
		offer->to[i] = endpoint_address(&side->to[i]);
		offer->from[i] = endpoint_address(&side->from[i]);
	}
	if (!meet(side))
		return false;
	for (i = 0; i < 2; i++) {
		const struct offer *peer = &side->shared->told[i].offer;

		endpoint_connect(&side->to[i], &peer->from[side->me]);
		endpoint_connect(&side->from[i], &peer->to[side->me]);
	}
	memset(side->setup.a_mem.addr + SOURCE, 1, WORD);
	return meet(side);
}

static void close_side(struct side *side)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		endpoint_destroy(&side->to[i]);
		endpoint_destroy(&side->from[i]);
	}
	if (side->remote)
		close_wire(side);
	setup_close(&side->setup);
}

static size_t place(unsigned int who, unsigned int round)
{
	return (2 * round + who) * LINE;
}

static struct ibv_send_wr request(struct side *side, unsigned int target,
				  enum ibv_wr_opcode opcode,
				  struct ibv_sge *sge, size_t offset)
{
	const struct offer *offer = &side->shared->told[target].offer;
	struct ibv_send_wr wr = send_wr(opcode, opcode, sge, 1);

	*sge = region_sge(&side->setup.a_mem,
			  opcode == IBV_WR_RDMA_READ ? RESULT : SOURCE, WORD);
	wr.wr.rdma.remote_addr = offer->addr + offset;
	wr.wr.rdma.rkey = offer->rkey;
	return wr;
}

/* Write the own word, then read that of the other process. */
static bool play(struct side *side, enum form form, unsigned int round)
{
	const size_t own = place(side->me, round);
	const size_t other = place(!side->me, round);
	const unsigned int target = form < STORE ? 0 : !side->me;
	volatile uint8_t *memory = side->setup.b_mem.addr;
	struct endpoint *ep = &side->to[target];
	struct ibv_sge sges[2];
	struct ibv_send_wr write = request(side, target, IBV_WR_RDMA_WRITE,
					   &sges[0], own);
	struct ibv_send_wr read = request(side, target, IBV_WR_RDMA_READ,
					  &sges[1], other);

	if (form == LIST)
		write.next = &read;
	if (form != COMPLETE)
		write.send_flags = 0;
	if (!meet(side))
		return false;
	if (form == STORE)
		memory[own] = 1;
	else
		post_send(ep, &write);
	if (form == POSTS || form == STORE)
		post_send(ep, &read);
	if (!cq_expect(ep->send_cq, form == COMPLETE ? write.wr_id : read.wr_id,
		       IBV_WC_SUCCESS))
		return false;
	side->shared->told[side->me].saw[round] =
		form == COMPLETE ? memory[other] :
				   side->setup.a_mem.addr[RESULT];
	return true;
}

/* Neither has seen the other in as many rounds. */
static unsigned int count_blind(const struct shared *shared)
{
	unsigned int round, blind = 0;

	for (round = 0; round < ROUNDS; round++)
		blind += !shared->told[0].saw[round] &&
			 !shared->told[1].saw[round];
	return blind;
}

static bool play_rounds(struct side *side, enum form form)
{
	unsigned int round, blind;

	memset(side->setup.b_mem.addr, 0, WORDS_BYTES);
	for (round = 0; round < ROUNDS; round++)
		if (!play(side, form, round))
			return false;
	if (!meet(side))
		return false;
	blind = count_blind(side->shared);
	return meet(side) &&
	       check(!blind, "neither has seen the other in %u of %d rounds",
		     blind, ROUNDS);
}

static bool set_path(struct side *side, enum micdv_path path)
{
	return check(!micdv_set_path(side->to[0].qp, path) &&
			     !micdv_set_path(side->to[1].qp, path),
		     "micdv_set_path fails");
}

/* Requests that this process has executed by itself. */
static uint64_t count_direct(struct side *side)
{
	struct micdv_qp_attr attr = { .comp_mask = 0 };
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < 2; i++)
		if (!micdv_query_qp(side->to[i].qp, &attr))
			sum += attr.direct;
	return sum;
}

/* For a while, which process 0 decides about. */
static bool repeat(struct side *side, enum form form)
{
	atomic_bool *enough = &side->shared->told[0].enough;
	uint64_t end = now_ms() + ENOUGH_MS;
	unsigned int i;

	for (i = 0; i < REPEATS; i++) {
		if (!side->me)
			atomic_store(enough, now_ms() > end);
		if (!play_rounds(side, form))
			return false;
		if (atomic_load(enough))
			break;
		if (!meet(side))
			return false;
	}
	return true;
}

/* Both processes do the same, but one of them reports. */
static bool run_case(struct side *side, enum form form, enum micdv_path path)
{
	uint64_t direct = count_direct(side);
	bool ok = set_path(side, path) && meet(side) && repeat(side, form);

	direct = count_direct(side) - direct;
	ok = ok &&
	     check(path == MICDV_PATH_DIRECT ? direct > ROUNDS / 2 : !direct,
		   "%" PRIu64 " requests executed by the process", direct);
	if (!ok)
		atomic_store(&side->shared->told[side->me].failed, true);
	if (!side->me)
		tap_ok(ok, "%s, executed by %s", form_names[form],
		       path == MICDV_PATH_DIRECT ? "the process" :
						   "the kernel");
	return ok;
}

static bool run(struct side *side, int socket)
{
	enum form form;

	if (!open_side(side, socket))
		bail("no connection with the other process");
	for (form = 0; form < FORMS; form++) {
		/* memory of another machine is the kernel's to reach */
		if (!side->remote && !run_case(side, form, MICDV_PATH_DIRECT))
			return false;
		if (!run_case(side, form, MICDV_PATH_ENGINE))
			return false;
	}
	meet(side);
	close_side(side);
	return true;
}

static int other_main(int socket, void *argument)
{
	struct side side = *(struct side *)argument;

	side.me = 1;
	if (side.remote) /* as whoever was here before has left it */
		memset(side.shared, 0, sizeof(*side.shared));
	return !run(&side, socket);
}

/* What setup_open() is to find. */
static void set_devices(struct side *side, const char *device, const char *peer)
{
	static char *argv[6] = { NULL, "--device", NULL, "--peer", NULL, NULL };

	argv[0] = side->argv[0];
	argv[2] = (char *)device;
	argv[4] = (char *)peer;
	side->argc = 5;
	side->argv = argv;
}

static void start_other(struct side *side, struct process *other)
{
	const char *device, *peer;
	char **argv = side->argv;
	int argc = side->argc;

	device_names(&argc, argv, &device, &peer);
	side->remote = argc == 3 || proxy_is_name(peer);
	/* on two machines each has both of its devices on its own */
	set_devices(side, device, side->remote ? device : peer);
	if (argc == 3 && !strcmp(argv[1], "serve"))
		process_serve(argv[2], other_main, side);
	if (side->remote)
		process_connect(other, peer);
	else
		process_start(other, other_main, side);
}

int main(int argc, char **argv)
{
	struct side side = { .argc = argc, .argv = argv };
	struct process other;

	side.shared = mmap(NULL, sizeof(*side.shared), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (side.shared == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	start_other(&side, &other);
	run(&side, other.socket);
	tap_ok(process_end(&other), "the other process says the same");
	return tap_end();
}
