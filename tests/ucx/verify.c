// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * usage: verify DEVICE PEER [--kill]
 *        verify serve PORT DEVICE
 *
 * UCP between two devices, by the transports of $UCX_TLS, with a look at every byte:
 * tagged messages, streams, put, get, atomics. With --kill: what the active side
 * learns when the passive one is killed. The passive side is a child with device PEER;
 * or it is on another machine, where the second form serves, and PEER is ADDRESS:PORT.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "process.h"
#include "side.h"
#include "tap.h"

/* What the passive side is to take part in. */
enum part { PART_VERIFY, PART_KILL };

enum {
	LARGE = 1 << 20,
	MARGIN = 64, /* around what is written */
	WINDOW = 64,
	COUNT = 250, /* of atomics of a kind, of messages to who is killed */
};

static const size_t sizes[] = {
	0, 1, 7, 64, 255, 1000, 4096, 8191, 65536, 65537, LARGE,
};

#define NSIZES (sizeof(sizes) / sizeof(*sizes))

/* On the active side, which is told of both. */
static void report(struct side *side, const char *name, bool good)
{
	good = agree(side, good);
	if (side->active)
		tap_ok(good, "%s", name);
}

static void *send_tag(struct side *side, const void *data, size_t bytes,
		      ucp_tag_t tag)
{
	ucp_request_param_t param = { 0 };

	return ucp_tag_send_nbx(side->ep, data, bytes, tag, &param);
}

static void *receive_tag(struct side *side, void *data, size_t bytes,
			 ucp_tag_t tag)
{
	ucp_request_param_t param = { 0 };

	return ucp_tag_recv_nbx(side->worker, data, bytes, tag, UINT64_MAX,
				&param);
}

/* A message there and one back. */
static bool tag_once(struct side *side, size_t bytes, uint32_t seed)
{
	uint32_t theirs = seed * 2 + !side->active;
	uint32_t own = seed * 2 + side->active;
	uint8_t *out = zeroed(bytes), *in = zeroed(bytes + MARGIN);
	bool good;

	fill(out, bytes, own, 0);
	memset(in, GUARD, bytes + MARGIN);
	if (side->active)
		good = done(side, send_tag(side, out, bytes, seed), "send") &&
		       done(side, receive_tag(side, in, bytes + MARGIN, seed),
			    "receive");
	else
		good = done(side, receive_tag(side, in, bytes + MARGIN, seed),
			    "receive") &&
		       done(side, send_tag(side, out, bytes, seed), "send");
	good = good && is_filled(in, bytes, theirs, 0) &&
	       is_guard(in + bytes, MARGIN);
	free(out);
	free(in);
	return good;
}

static bool tag_sizes(struct side *side)
{
	uint32_t i, round;

	for (i = 0; i < NSIZES; i++)
		for (round = 0; round < 4; round++)
			if (!tag_once(side, sizes[i], i * 4 + round))
				return check(false, "with %zu bytes", sizes[i]);
	return true;
}

/* Many at once, received in the opposite order: most of them unexpected. */
static bool tag_unordered(struct side *side, size_t bytes)
{
	uint8_t *data = zeroed(WINDOW * bytes), *one;
	void *requests[WINDOW];
	bool good = true;
	int i;

	for (i = 0; i < WINDOW; i++) {
		if (!side->active)
			break;
		one = data + i * bytes;
		fill(one, bytes, i, 0);
		requests[i] = send_tag(side, one, bytes, 1000 + i);
	}
	for (i = WINDOW - 1; i >= 0; i--) {
		one = data + i * bytes;
		if (!side->active)
			requests[i] = receive_tag(side, one, bytes, 1000 + i);
		good = done(side, requests[i], "message") && good;
		if (!side->active)
			good = good && is_filled(one, bytes, i, 0);
	}
	free(data);
	return good;
}

/* Sent in pieces of one kind, received in pieces of another. */
static size_t piece(bool active, size_t position, size_t total)
{
	size_t bytes = active ? 1 + position * 7 % 9001 :
				1 + position * 5 % 20011;

	return bytes < total - position ? bytes : total - position;
}

static bool stream(struct side *side, size_t total)
{
	ucp_request_param_t all = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_STREAM_RECV_FLAG_WAITALL,
	};
	ucp_request_param_t none = { 0 };
	uint8_t *data = zeroed(total);
	size_t position, bytes, length;
	bool good = true;
	void *request;

	fill(data, side->active ? total : 0, 77, 0);
	for (position = 0; good && position < total; position += bytes) {
		bytes = piece(side->active, position, total);
		request = side->active ?
				  ucp_stream_send_nbx(side->ep, data + position,
						      bytes, &none) :
				  ucp_stream_recv_nbx(side->ep, data + position,
						      bytes, &length, &all);
		good = done(side, request, "stream");
	}
	good = good && is_filled(data, total, 77, 0);
	free(data);
	return good;
}

/* The passive side's memory: as it was, but for @bytes at @offset. */
static bool arrived(const struct memory *memory, size_t offset, size_t bytes,
		    uint32_t seed)
{
	size_t end = offset + bytes;

	return is_guard(memory->data, offset) &&
	       is_filled(memory->data + offset, bytes, seed, 0) &&
	       is_guard(memory->data + end, memory->bytes - end);
}

static bool put_once(struct side *side, struct memory *mine,
		     const struct window *theirs, size_t bytes, uint32_t seed)
{
	ucp_request_param_t param = { 0 };
	size_t offset = 1 + seed % (MARGIN - 1);
	uint8_t *data = zeroed(bytes);
	bool good = true;

	if (side->active) {
		fill(data, bytes, seed, 0);
		good = done(side,
			    ucp_put_nbx(side->ep, data, bytes,
					theirs->address + offset, theirs->rkey,
					&param),
			    "put") &&
		       flush(side);
	}
	meet(side);
	if (!side->active) {
		good = arrived(mine, offset, bytes, seed);
		memset(mine->data, GUARD, mine->bytes);
	}
	meet(side);
	free(data);
	return good;
}

static bool put(struct side *side)
{
	struct window theirs;
	struct memory mine;
	bool good = true;
	uint32_t i;

	share(side, &mine, &theirs, LARGE + 2 * MARGIN);
	for (i = 0; i < NSIZES; i++)
		good = put_once(side, &mine, &theirs, sizes[i], i + 1) && good;
	unshare(side, &mine, &theirs);
	return good;
}

static bool get_once(struct side *side, const struct window *theirs,
		     size_t bytes, uint32_t seed)
{
	ucp_request_param_t param = { 0 };
	size_t offset = 1 + seed % (MARGIN - 1);
	uint8_t *data = zeroed(bytes + 2 * MARGIN);
	bool good;

	memset(data, GUARD, bytes + 2 * MARGIN);
	good = done(side,
		    ucp_get_nbx(side->ep, data + MARGIN, bytes,
				theirs->address + offset, theirs->rkey, &param),
		    "get") &&
	       flush(side) && is_guard(data, MARGIN) &&
	       is_filled(data + MARGIN, bytes, 5, offset) &&
	       is_guard(data + MARGIN + bytes, MARGIN);
	free(data);
	return good;
}

static bool get(struct side *side)
{
	struct window theirs;
	struct memory mine;
	bool good = true;
	uint32_t i;

	share(side, &mine, &theirs, LARGE + 2 * MARGIN);
	fill(mine.data, mine.bytes, 5, 0);
	meet(side);
	for (i = 0; side->active && i < NSIZES; i++)
		good = get_once(side, &theirs, sizes[i], i) && good;
	unshare(side, &mine, &theirs);
	return good;
}

/* On the other side's number @slot; *@result is what was there before. */
static void *atomic(struct side *side, const struct window *theirs, int slot,
		    ucp_atomic_op_t op, const uint64_t *operand,
		    uint64_t *result)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE,
		.datatype = ucp_dt_make_contig(sizeof(*operand)),
		.reply_buffer = result,
	};

	if (result)
		param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
	return ucp_atomic_op_nbx(side->ep, op, operand, 1,
				 theirs->address + slot * sizeof(*operand),
				 theirs->rkey, &param);
}

/* Many under way: each finds another number, and all numbers are found. */
static bool fetch_add(struct side *side, const struct window *theirs)
{
	uint64_t results[COUNT], three = 3;
	void *requests[COUNT];
	bool found[COUNT] = { false }, good = true;
	int i;

	for (i = 0; i < COUNT; i++)
		requests[i] = atomic(side, theirs, 0, UCP_ATOMIC_OP_ADD, &three,
				     &results[i]);
	for (i = 0; i < COUNT; i++)
		good = done(side, requests[i], "fetch and add") && good;
	for (i = 0; good && i < COUNT; i++) {
		good = check(results[i] % 3 == 0 && results[i] / 3 < COUNT &&
				     !found[results[i] / 3],
			     "%llu was found", (unsigned long long)results[i]);
		if (good)
			found[results[i] / 3] = true;
	}
	return good;
}

static bool add(struct side *side, const struct window *theirs)
{
	uint64_t five = 5;
	bool good = true;
	int i;

	for (i = 0; i < COUNT; i++)
		good = done(side,
			    atomic(side, theirs, 1, UCP_ATOMIC_OP_ADD, &five,
				   NULL),
			    "add") &&
		       good;
	return flush(side) && good;
}

/* One after the other, so that what each must find is known. */
static bool swap(struct side *side, const struct window *theirs)
{
	uint64_t i, result;

	for (i = 1; i <= COUNT; i++)
		if (!done(side,
			  atomic(side, theirs, 2, UCP_ATOMIC_OP_SWAP, &i,
				 &result),
			  "swap") ||
		    !check(result == i - 1, "found %llu instead of %llu",
			   (unsigned long long)result,
			   (unsigned long long)i - 1))
			return false;
	return true;
}

/* Every other time with a number that is not there. */
static bool compare_and_swap(struct side *side, const struct window *theirs)
{
	uint64_t i, value = 0, compare, result;

	for (i = 0; i < COUNT; i++) {
		compare = value + i % 2;
		result = i + 1000;
		if (!done(side,
			  atomic(side, theirs, 3, UCP_ATOMIC_OP_CSWAP, &compare,
				 &result),
			  "compare and swap") ||
		    !check(result == value, "found %llu instead of %llu",
			   (unsigned long long)result,
			   (unsigned long long)value))
			return false;
		if (i % 2 == 0)
			value = i + 1000;
	}
	return true;
}

static bool atomics(struct side *side)
{
	const uint64_t expected[] = { 3 * COUNT, 5 * COUNT, COUNT,
				      1000 + (COUNT - 1) / 2 * 2 };
	struct window theirs;
	struct memory mine;
	bool good = true;

	share(side, &mine, &theirs, sizeof(expected) + MARGIN);
	memset(mine.data, 0, sizeof(expected));
	meet(side);
	if (side->active)
		good = fetch_add(side, &theirs) && add(side, &theirs) &&
		       swap(side, &theirs) && compare_and_swap(side, &theirs);
	meet(side);
	if (!side->active)
		good = check(!memcmp(mine.data, expected, sizeof(expected)),
			     "wrong numbers at the end") &&
		       is_guard(mine.data + sizeof(expected), MARGIN);
	unshare(side, &mine, &theirs);
	return good;
}

static void verify(struct side *side)
{
	report(side, "tagged messages, 0 bytes to 1 MiB", tag_sizes(side));
	report(side, "tagged messages, small, unexpected and out of order",
	       tag_unordered(side, 500));
	report(side, "tagged messages, large, unexpected and out of order",
	       tag_unordered(side, 50000));
	report(side, "a stream in pieces", stream(side, 3 * LARGE));
	report(side, "put, 0 bytes to 1 MiB", put(side));
	report(side, "get, 0 bytes to 1 MiB", get(side));
	report(side, "atomics: add, fetch and add, swap, compare and swap",
	       atomics(side));
	side_close(side);
}

static bool exchange(struct side *side, size_t bytes)
{
	uint8_t *data = zeroed(bytes);
	bool good = true;
	int i;

	for (i = 0; good && i < COUNT; i++)
		good = done(side,
			    side->active ? send_tag(side, data, bytes, i) :
					   receive_tag(side, data, bytes, i),
			    "message");
	free(data);
	return good;
}

/* There was traffic; now the passive side is to go. */
static void be_killed(struct side *side, size_t bytes)
{
	uint64_t end = deadline();

	if (!exchange(side, bytes))
		bail("there is no traffic");
	while (!readable_within(side->socket, 0) && now_ms() < end)
		ucp_worker_progress(side->worker);
	raise(SIGKILL);
}

/* Its socket ends with it. */
static bool kill_passive(struct side *side)
{
	char sign = 0;

	return message_send(side->socket, &sign, sizeof(sign)) &&
	       becomes_readable(side->socket) &&
	       recv(side->socket, &sign, sizeof(sign), 0) <= 0;
}

/* The first that is not delivered may be one that was posted long before. */
static bool learns(struct side *side, size_t bytes)
{
	uint8_t *data = zeroed(bytes);
	ucs_status_t status = UCS_OK;
	int i;

	if (!exchange(side, bytes))
		bail("there is no traffic");
	if (!kill_passive(side))
		bail("the passive side is not killed");
	for (i = 0; status == UCS_OK && i < 1000 * COUNT; i++)
		status = outcome(side, send_tag(side, data, bytes, COUNT));
	free(data);
	return check(status != UCS_OK, "messages go to who is dead") &&
	       check(is_told(side), "the endpoint's handler is not called");
}

static int passive(int socket, void *device)
{
	struct side side;
	enum part part;
	size_t bytes;

	if (!message_receive(socket, &part, sizeof(part)) ||
	    !message_receive(socket, &bytes, sizeof(bytes)))
		bail("nobody says what to do");
	side_open(&side, device, socket, false);
	if (part == PART_VERIFY)
		verify(&side);
	else
		be_killed(&side, bytes);
	return 0;
}

static void start(struct process *process, const char *peer, enum part part,
		  size_t bytes)
{
	if (strchr(peer, ':'))
		process_connect(process, peer);
	else
		process_start(process, passive, (void *)peer);
	if (!message_send(process->socket, &part, sizeof(part)) ||
	    !message_send(process->socket, &bytes, sizeof(bytes)))
		bail("the other side is gone");
}

static void verify_both(const char *device, const char *peer)
{
	struct process process;
	struct side side;

	start(&process, peer, PART_VERIFY, 0);
	side_open(&side, device, process.socket, true);
	verify(&side);
	tap_must(process_end(&process), "the passive side fails");
}

static void kill_one(const char *device, const char *peer, size_t bytes)
{
	struct process process;
	struct side side;
	bool good;

	start(&process, peer, PART_KILL, bytes);
	side_open(&side, device, process.socket, true);
	good = learns(&side, bytes);
	tap_note("%s", ucs_status_string(side.failure));
	tap_ok(good, "the peer is killed, messages of %zu bytes", bytes);
	side_force_close(&side);
	close(process.socket);
	if (process.pid)
		waitpid(process.pid, NULL, 0);
}

int main(int argc, char **argv)
{
	bool kills = argc == 4 && !strcmp(argv[3], "--kill");

	if (argc == 4 && !strcmp(argv[1], "serve"))
		process_serve(argv[2], passive, argv[3]);
	if (argc != 3 && !kills)
		bail("usage: verify DEVICE PEER [--kill] | serve PORT DEVICE");
	if (kills) {
		kill_one(argv[1], argv[2], 64);
		kill_one(argv[1], argv[2], 100000);
	} else {
		verify_both(argv[1], argv[2]);
	}
	return tap_end();
}
