// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What a SEND would cost that is written into a ring of the receiver and taken
 * out by its poll: the steps of Documentation/send-bypass.md between two
 * processes, without the rest of a provider. Half a round trip.
 *
 * usage: bench-inbox [BYTES...]
 */
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

enum {
	LINE = 64,
	SLOTS = 64,
	SLOT_BYTES = 512,
	BATCH = 1000,
	BATCHES = 200,
	STOP = 1,
};

/* A message: what the sender writes, @owner last. */
struct message {
	alignas(LINE) uint32_t length;
	uint32_t imm;
	uint32_t flags;
	_Atomic(uint32_t) owner;
	char data[SLOT_BYTES];
};

/* Of one direction. */
struct inbox {
	struct message slot[SLOTS];
	/* written by the receiver: receives posted, and of which size */
	alignas(LINE) _Atomic(uint32_t) posted;
	uint32_t size[SLOTS];
	/* messages taken: by the receiver, or by the kernel on its behalf */
	alignas(LINE) _Atomic(uint64_t) taken;
	/* written by the receiver: it waits for an event */
	alignas(LINE) _Atomic(uint32_t) armed;
};

/* A receive and a completion, as a provider has them. */
struct receive {
	uint64_t wr_id;
	char *addr;
	uint32_t length;
};

struct completion {
	uint64_t wr_id;
	uint32_t status;
	uint32_t opcode;
	uint32_t byte_len;
	uint32_t imm;
	uint32_t qp_num;
	uint32_t flags;
};

struct side {
	struct inbox *to;
	struct inbox *from;
	struct receive receive[SLOTS];
	uint32_t posted;
	uint32_t sent;
	char buffer[SLOTS][SLOT_BYTES];
	char data[SLOT_BYTES];
};

struct shared {
	struct inbox inbox[2];
	size_t bytes;
};

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static void post_receive(struct side *side)
{
	uint32_t i = side->posted++ % SLOTS;

	side->receive[i] = (struct receive){
		.wr_id = i,
		.addr = side->buffer[i],
		.length = SLOT_BYTES,
	};
	side->from->size[i] = SLOT_BYTES;
	atomic_store_explicit(&side->from->posted, side->posted,
			      memory_order_release);
}

/* False if it is a matter for the kernel: no receive, too small, waited for. */
static int send_message(struct side *side, size_t bytes, uint32_t flags)
{
	struct inbox *to = side->to;
	uint32_t i = side->sent % SLOTS;
	struct message *message = &to->slot[i];

	if (atomic_load_explicit(&to->posted, memory_order_acquire) ==
		    side->sent ||
	    to->size[i] < bytes)
		return 0;
	message->length = bytes;
	message->imm = 0;
	message->flags = flags;
	memcpy(message->data, side->data, bytes);
	side->sent++;
	atomic_store_explicit(&message->owner, side->sent,
			      memory_order_release);
	/* the message, then the look whether somebody waits */
	atomic_thread_fence(memory_order_seq_cst);
	return !atomic_load_explicit(&to->armed, memory_order_relaxed);
}

static int poll(struct side *side, struct completion *completion)
{
	struct inbox *from = side->from;
	uint64_t taken = atomic_load_explicit(&from->taken,
					      memory_order_acquire);
	uint32_t i = taken % SLOTS;
	struct message *message = &from->slot[i];
	const struct receive *receive = &side->receive[i];
	uint32_t length;

	if (atomic_load_explicit(&message->owner, memory_order_acquire) !=
	    (uint32_t)taken + 1)
		return 0;
	/* it is ours, if the kernel does not take it on our behalf */
	if (!atomic_compare_exchange_strong(&from->taken, &taken, taken + 1))
		return 0;
	length = message->length;
	if (length > receive->length)
		abort();
	memcpy(receive->addr, message->data, length);
	*completion = (struct completion){
		.wr_id = receive->wr_id,
		.byte_len = length,
		.imm = message->imm,
		.flags = message->flags,
	};
	return 1;
}

static void receive_one(struct side *side, struct completion *completion)
{
	while (!poll(side, completion))
		relax();
	post_receive(side);
}

static struct side *new_side(struct shared *shared, int index)
{
	struct side *side = calloc(1, sizeof(*side));
	int i;

	if (!side)
		fail("calloc");
	side->to = &shared->inbox[!index];
	side->from = &shared->inbox[index];
	for (i = 0; i < SLOTS; i++)
		post_receive(side);
	return side;
}

static void send_one(struct side *side, size_t bytes, uint32_t flags)
{
	while (!send_message(side, bytes, flags))
		relax();
}

static void answer(void *argument)
{
	struct shared *shared = argument;
	struct side *side = new_side(shared, 1);
	struct completion completion;

	pin(SERVER_CPU);
	do {
		receive_one(side, &completion);
		send_one(side, shared->bytes, 0);
	} while (!(completion.flags & STOP));
	free(side);
}

static double round_trips(struct side *side, size_t bytes, uint32_t flags)
{
	struct completion completion;
	uint64_t start = now_ns();
	int i;

	for (i = 0; i < BATCH; i++) {
		send_one(side, bytes, i + 1 == BATCH ? flags : 0);
		receive_one(side, &completion);
	}
	return (double)(now_ns() - start) / BATCH / 2;
}

static void measure(size_t bytes)
{
	struct shared *shared = shared_memory(sizeof(*shared));
	double batch[BATCHES];
	struct side *side;
	pid_t peer;
	int i;

	if (bytes > SLOT_BYTES)
		fail("BYTES");
	shared->bytes = bytes;
	peer = start_side(answer, shared);
	side = new_side(shared, 0);
	pin(CLIENT_CPU);
	for (i = 0; i < BATCHES; i++)
		batch[i] = round_trips(side, bytes,
				       i + 1 == BATCHES ? STOP : 0);
	join_side(peer);
	report("inbox_send", "inbox", bytes, median(batch, BATCHES) / 1000,
	       "us");
	free(side);
}

int main(int argc, char **argv)
{
	int i;

	if (argc < 2)
		measure(8);
	for (i = 1; i < argc; i++)
		measure(parse_size(argv[i]));
	return 0;
}
