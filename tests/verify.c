// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Does every operation move exactly the right bytes? Operations x sizes x
 * alignments x ways to split the buffers x kinds of memory, in one process
 * and between two, with the bytes around each buffer checked as well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "device.h"
#include "endpoint.h"
#include "memory.h"
#include "pattern.h"
#include "process.h"
#include "tap.h"
#include "work.h"

#define MAX_SGES 32
#define MAX_SIZE (8U << 20)
#define GUARD_BYTES 1024U
#define GAP_BYTES 13U
#define MAX_INLINE 512U
/* Between offset 0 and the first place for data; a page ends below it. */
#define LEAD_BYTES (2 * PAGE_BYTES - 77)
#define REGION_BYTES (MAX_SIZE + 4 * PAGE_BYTES + MAX_SGES * GAP_BYTES)

/* How a buffer is made of pieces. */
enum shape {
	SHAPE_ONE,
	SHAPE_TWO,   /* unequal; no SGE at all if there are no bytes */
	SHAPE_MANY,  /* as many as the device has */
	SHAPE_HOLES, /* SGEs without bytes between and around them */
	SHAPES
};

struct layout {
	int count;
	struct {
		size_t offset;
		uint32_t length;
	} part[MAX_SGES];
};

struct transfer {
	enum ibv_wr_opcode opcode;
	uint32_t size;
	uint32_t local_offset;
	uint32_t peer_offset;
	enum shape shape;
	uint32_t seed;
	bool is_inline;
};

struct side {
	struct device dev;
	struct endpoint ep;
	struct region region;
	uint8_t *expected; /* what the region should hold */
	int max_sges;
};

/* Two sides: both here, or @peer in a process of its own. */
struct session {
	const char *device_name;
	const char *peer_name;
	enum ibv_qp_type type;
	enum memory_kind kind;
	bool two_processes;
	struct side local;
	struct side peer;
	struct process process;
};

enum request { REQUEST_PREPARE, REQUEST_CHECK };

struct message {
	enum request request;
	struct transfer transfer;
};

static const uint32_t all_sizes[] = {
	0,	  1,	 7,	8,	  63,
	64,	  65,	 4095,	4096,	  4097,
	65535,	  65536, 65537, 1U << 20, (1U << 20) + 3,
	MAX_SIZE,
};

static const uint32_t few_sizes[] = { 1, 4097, 65537, (1U << 20) + 3 };

/* From a page boundary: aligned, odd, across the boundary, at its end. */
static const struct {
	int local;
	int peer;
} alignments[] = { { 0, 0 }, { 1, 3 }, { -1, 8 }, { -8, -5 } };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint32_t part_length(enum shape shape, uint32_t size, int i, int count)
{
	switch (shape) {
	case SHAPE_ONE:
		return size;
	case SHAPE_HOLES:
		if (i % 2 == 0)
			return 0;
		return i == 1 ? size / 2 : size - size / 2;
	case SHAPE_TWO:
		return i == 0 ? size / 3 : size - size / 3;
	default:
		return (uint64_t)size * (i + 1) / count -
		       (uint64_t)size * i / count;
	}
}

static int part_count(enum shape shape, uint32_t size, int max_sges)
{
	switch (shape) {
	case SHAPE_ONE:
		return 1;
	case SHAPE_TWO:
		return size ? 2 : 0;
	case SHAPE_HOLES:
		return max_sges < 5 ? 1 : 5;
	default:
		return max_sges;
	}
}

/* The first bytes of the stream lie highest in memory, with gaps between. */
static void make_layout(struct layout *layout, enum shape shape, size_t offset,
			uint32_t size, int max_sges)
{
	int i;

	layout->count = part_count(shape, size, max_sges);
	if (layout->count == 1)
		shape = SHAPE_ONE;
	for (i = layout->count - 1; i >= 0; i--) {
		layout->part[i].offset = offset;
		layout->part[i].length = part_length(shape, size, i,
						     layout->count);
		offset += layout->part[i].length + GAP_BYTES;
	}
}

static void make_contiguous(struct layout *layout, size_t offset, uint32_t size)
{
	make_layout(layout, SHAPE_ONE, offset, size, 1);
}

static int layout_sges(const struct layout *layout, const struct region *region,
		       struct ibv_sge *sges)
{
	int i;

	for (i = 0; i < layout->count; i++)
		sges[i] = region_sge(region, layout->part[i].offset,
				     layout->part[i].length);
	return layout->count;
}

static void write_layout(uint8_t *memory, const struct layout *layout,
			 const uint8_t *bytes)
{
	int i;

	for (i = 0; i < layout->count; i++) {
		memcpy(memory + layout->part[i].offset, bytes,
		       layout->part[i].length);
		bytes += layout->part[i].length;
	}
}

static size_t window_length(const struct transfer *transfer)
{
	return transfer->size + MAX_SGES * GAP_BYTES + 2 * GUARD_BYTES;
}

/* All bytes in and around a buffer: in memory, and as they should be. */
static void clear_window(struct side *side, uint32_t offset,
			 const struct transfer *transfer)
{
	size_t length = window_length(transfer);

	memset(side->region.addr + offset - GUARD_BYTES, GUARD_BYTE, length);
	memset(side->expected + offset - GUARD_BYTES, GUARD_BYTE, length);
}

static bool window_matches(const struct side *side, uint32_t offset,
			   const struct transfer *transfer)
{
	return !memcmp(side->region.addr + offset - GUARD_BYTES,
		       side->expected + offset - GUARD_BYTES,
		       window_length(transfer));
}

static bool check_window(const struct side *side, uint32_t offset,
			 const struct transfer *transfer, const char *who)
{
	size_t start = offset - GUARD_BYTES;
	size_t i = 0;

	if (window_matches(side, offset, transfer))
		return true;
	while (side->region.addr[start + i] == side->expected[start + i])
		i++;
	return check(false,
		     "%s: byte %zd of the buffer is 0x%02x, should be 0x%02x",
		     who, (ssize_t)i - GUARD_BYTES,
		     side->region.addr[start + i], side->expected[start + i]);
}

/* The operands of an atomic and the word it meets. */
struct atomic_values {
	uint64_t before;
	uint64_t compare_add;
	uint64_t swap;
	uint64_t after;
};

static struct atomic_values atomic_values(const struct transfer *transfer)
{
	struct atomic_values values;
	struct random_state random;

	random_seed(&random, transfer->seed);
	values.before = random_next(&random);
	values.compare_add = random_next(&random);
	values.swap = random_next(&random);
	if (transfer->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		values.after = values.before + values.compare_add;
	} else if (transfer->seed % 2) {
		values.compare_add = values.before;
		values.after = values.swap;
	} else {
		values.after = values.before;
	}
	return values;
}

static void peer_layout(const struct side *side, struct layout *layout,
			const struct transfer *transfer)
{
	if (opcode_has_remote(transfer->opcode))
		make_contiguous(layout, transfer->peer_offset, transfer->size);
	else
		make_layout(layout, transfer->shape, transfer->peer_offset,
			    transfer->size, side->max_sges);
}

static void peer_post_receive(struct side *side, const struct layout *layout,
			      const struct transfer *transfer)
{
	struct ibv_sge sges[MAX_SGES];
	int count = 0;

	if (transfer->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
		count = layout_sges(layout, &side->region, sges);
	post_recv(&side->ep, transfer->seed, sges, count);
}

static void peer_prepare(struct side *side, const struct transfer *transfer)
{
	const uint8_t *bytes = pattern_bytes(transfer->seed, MAX_SIZE);
	struct atomic_values values = atomic_values(transfer);
	struct layout layout;

	peer_layout(side, &layout, transfer);
	clear_window(side, transfer->peer_offset, transfer);
	if (opcode_is_atomic(transfer->opcode)) {
		write_layout(side->region.addr, &layout,
			     (uint8_t *)&values.before);
		write_layout(side->expected, &layout, (uint8_t *)&values.after);
	} else {
		write_layout(side->expected, &layout, bytes);
	}
	if (transfer->opcode == IBV_WR_RDMA_READ)
		write_layout(side->region.addr, &layout, bytes);
	if (opcode_takes_recv(transfer->opcode))
		peer_post_receive(side, &layout, transfer);
}

static bool check_receive(struct side *side, const struct transfer *transfer)
{
	bool is_write = transfer->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool has_imm = opcode_has_imm(transfer->opcode);
	struct ibv_wc wc;

	return cq_success(side->ep.recv_cq, transfer->seed, &wc) &&
	       check(wc.opcode == (is_write ? IBV_WC_RECV_RDMA_WITH_IMM :
					      IBV_WC_RECV),
		     "opcode of the receive is %d", wc.opcode) &&
	       check(wc.byte_len == transfer->size,
		     "byte_len of the receive is %u", wc.byte_len) &&
	       check(wc.qp_num == side->ep.qp->qp_num,
		     "qp_num of the receive is %u", wc.qp_num) &&
	       check(!!(wc.wc_flags & IBV_WC_WITH_IMM) == has_imm,
		     "wc_flags of the receive are 0x%x", wc.wc_flags) &&
	       check(!has_imm || wc.imm_data == htobe32(~transfer->seed),
		     "immediate data is 0x%x", be32toh(wc.imm_data));
}

/* An unreliable WRITE may arrive after its completion. */
static void await_window(const struct side *side,
			 const struct transfer *transfer)
{
	uint64_t end = deadline();
	unsigned int round = 0;

	while (!window_matches(side, transfer->peer_offset, transfer) &&
	       now_ms() < end)
		relax(round++);
}

static bool peer_check(struct side *side, const struct transfer *transfer)
{
	if (opcode_takes_recv(transfer->opcode)) {
		if (!check_receive(side, transfer))
			return false;
	} else if (side->ep.options.type == IBV_QPT_UC) {
		await_window(side, transfer);
	}
	return check_window(side, transfer->peer_offset, transfer, "peer");
}

static void local_prepare(struct side *side, const struct transfer *transfer,
			  const struct layout *layout)
{
	const uint8_t *bytes = pattern_bytes(transfer->seed, MAX_SIZE);
	struct atomic_values values = atomic_values(transfer);

	clear_window(side, transfer->local_offset, transfer);
	if (opcode_is_atomic(transfer->opcode))
		bytes = (uint8_t *)&values.before;
	write_layout(side->expected, layout, bytes);
	if (!opcode_writes_local(transfer->opcode))
		write_layout(side->region.addr, layout, bytes);
}

/* Where the peer's memory is. */
struct remote {
	uint64_t addr;
	uint32_t rkey;
};

static void local_post(struct side *side, const struct transfer *transfer,
		       const struct layout *layout, const struct remote *remote)
{
	struct atomic_values values = atomic_values(transfer);
	uint64_t addr = remote->addr + transfer->peer_offset;
	struct ibv_sge sges[MAX_SGES];
	struct ibv_send_wr wr =
		send_wr(transfer->seed, transfer->opcode, sges,
			layout_sges(layout, &side->region, sges));
	int i;

	wr.imm_data = htobe32(~transfer->seed);
	if (opcode_is_atomic(transfer->opcode)) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = remote->rkey;
		wr.wr.atomic.compare_add = values.compare_add;
		wr.wr.atomic.swap = values.swap;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = remote->rkey;
	}
	if (transfer->is_inline) {
		wr.send_flags |= IBV_SEND_INLINE;
		/* Inline data comes from plain addresses, without keys. */
		for (i = 0; i < wr.num_sge; i++) {
			sges[i].addr = (uintptr_t)side->region.addr +
				       layout->part[i].offset;
			sges[i].lkey = 0xdeadbeef;
		}
	}
	post_send(&side->ep, &wr);
	/* Inline data is taken before the post returns. */
	if (transfer->is_inline)
		clear_window(side, transfer->local_offset, transfer);
}

static bool local_check(struct side *side, const struct transfer *transfer)
{
	struct ibv_wc wc;

	return cq_success(side->ep.send_cq, transfer->seed, &wc) &&
	       check(wc.opcode == completion_of(transfer->opcode),
		     "opcode of the completion is %d", wc.opcode) &&
	       check(wc.qp_num == side->ep.qp->qp_num,
		     "qp_num of the completion is %u", wc.qp_num) &&
	       check_window(side, transfer->local_offset, transfer,
			    "requester");
}

static struct remote remote_of(const struct side *side)
{
	return (struct remote){ side->region.rdma_addr, side->region.mr->rkey };
}

static void side_open(struct side *side, const char *name,
		      const struct session *session)
{
	struct endpoint_options options = endpoint_options(session->type);

	device_open(&side->dev, name);
	side->max_sges = side->dev.attr.max_sge < MAX_SGES ?
				 side->dev.attr.max_sge :
				 MAX_SGES;
	options.sges = side->max_sges;
	options.inline_bytes = MAX_INLINE;
	options.depth = 4;
	if (!endpoint_try_create(&side->ep, &side->dev, &options)) {
		/* Not every device has that much inline data. */
		options.inline_bytes = 64;
		endpoint_create(&side->ep, &side->dev, &options);
	}
	if (!region_map(&side->region, session->kind, REGION_BYTES))
		bail("no memory of kind %s", memory_name(session->kind));
	region_register(&side->region, side->dev.pd, ACCESS_ALL);
	side->expected = malloc(REGION_BYTES);
	if (!side->expected)
		bail("out of memory");
}

static void side_close(struct side *side)
{
	endpoint_destroy(&side->ep);
	region_destroy(&side->region);
	device_close(&side->dev);
	free(side->expected);
}

static void must(bool ok)
{
	if (!ok)
		bail("the other process is gone or silent");
}

/* The peer's process: do what the messages ask for until they end. */
static int peer_main(int socket, void *argument)
{
	struct session *session = argument;
	struct side *side = &session->peer;
	struct endpoint_address address;
	struct message message;
	struct remote remote;
	bool ok;

	side_open(side, session->peer_name, session);
	address = endpoint_address(&side->ep);
	remote = remote_of(side);
	must(message_send(socket, &address, sizeof(address)) &&
	     message_send(socket, &remote, sizeof(remote)) &&
	     message_receive(socket, &address, sizeof(address)));
	endpoint_connect(&side->ep, &address);
	ok = true;
	must(message_send(socket, &ok, sizeof(ok)));
	while (message_receive(socket, &message, sizeof(message))) {
		ok = true;
		if (message.request == REQUEST_PREPARE)
			peer_prepare(side, &message.transfer);
		else
			ok = peer_check(side, &message.transfer);
		must(message_send(socket, &ok, sizeof(ok)));
	}
	side_close(side);
	return 0;
}

static struct remote session_open(struct session *session)
{
	struct endpoint_address address;
	struct remote remote = { 0, 0 };
	bool ok;

	if (session->two_processes)
		process_start(&session->process, peer_main, session);
	else
		side_open(&session->peer, session->peer_name, session);
	side_open(&session->local, session->device_name, session);
	if (!session->two_processes) {
		pair_connect(&session->local.ep, &session->peer.ep);
		return remote_of(&session->peer);
	}
	must(message_receive(session->process.socket, &address,
			     sizeof(address)) &&
	     message_receive(session->process.socket, &remote, sizeof(remote)));
	endpoint_connect(&session->local.ep, &address);
	address = endpoint_address(&session->local.ep);
	must(message_send(session->process.socket, &address, sizeof(address)) &&
	     message_receive(session->process.socket, &ok, sizeof(ok)));
	return remote;
}

static bool session_close(struct session *session)
{
	side_close(&session->local);
	if (session->two_processes)
		return process_end(&session->process);
	side_close(&session->peer);
	return true;
}

static bool ask_peer(struct session *session, enum request request,
		     const struct transfer *transfer)
{
	struct message message = { request, *transfer };
	bool ok = true;

	if (session->two_processes) {
		must(message_send(session->process.socket, &message,
				  sizeof(message)) &&
		     message_receive(session->process.socket, &ok, sizeof(ok)));
	} else if (request == REQUEST_PREPARE) {
		peer_prepare(&session->peer, transfer);
	} else {
		ok = peer_check(&session->peer, transfer);
	}
	return ok;
}

static bool run_transfer(struct session *session, const struct remote *remote,
			 const struct transfer *transfer)
{
	struct layout layout;
	bool ok;

	make_layout(&layout, transfer->shape, transfer->local_offset,
		    transfer->size, session->local.max_sges);
	local_prepare(&session->local, transfer, &layout);
	ask_peer(session, REQUEST_PREPARE, transfer);
	local_post(&session->local, transfer, &layout, remote);
	ok = local_check(&session->local, transfer);
	return check(ok && ask_peer(session, REQUEST_CHECK, transfer),
		     "that was shape %d, local offset %u, peer offset %u",
		     transfer->shape, transfer->local_offset,
		     transfer->peer_offset);
}

static uint32_t next_seed(void)
{
	static uint32_t seed;

	return ++seed;
}

/* All alignments and shapes of one operation and size: one case. */
static bool run_variants(struct session *session, const struct remote *remote,
			 enum ibv_wr_opcode opcode, uint32_t size,
			 bool is_inline)
{
	struct transfer transfer = {
		.opcode = opcode,
		.size = size,
		.is_inline = is_inline,
	};
	unsigned int i, shape;

	for (i = 0; i < COUNT(alignments); i++) {
		for (shape = 0; shape < SHAPES; shape++) {
			transfer.shape = shape;
			transfer.seed = next_seed();
			transfer.local_offset = LEAD_BYTES +
						alignments[i].local;
			transfer.peer_offset = LEAD_BYTES + alignments[i].peer;
			if (opcode_is_atomic(opcode))
				transfer.peer_offset = LEAD_BYTES - 8 + 8 * i;
			if (!run_transfer(session, remote, &transfer))
				return false;
		}
	}
	return true;
}

static const enum ibv_wr_opcode data_opcodes[] = {
	IBV_WR_SEND,	   IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_RDMA_READ,
};

static const enum ibv_wr_opcode atomic_opcodes[] = {
	IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
};

static const char *type_name(const struct session *session)
{
	return session->type == IBV_QPT_UC ? "UC" : "RC";
}

/*
 * A failure leaves the queue pairs in any state: the rest of the session is
 * one failure. Returns false then.
 */
static bool report(const struct session *session, bool ok, const char *what,
		   uint32_t size)
{
	tap_ok(ok, "%s to %s, %s, %s, %s memory: %s, %u bytes",
	       session->device_name, session->peer_name,
	       session->two_processes ? "two processes" : "one process",
	       type_name(session), memory_name(session->kind), what, size);
	if (!ok)
		tap_note("the session ends here");
	return ok;
}

static bool run_sizes(struct session *session, const struct remote *remote,
		      enum ibv_wr_opcode opcode, const uint32_t *sizes,
		      int count)
{
	int i;

	for (i = 0; i < count; i++)
		if (!report(session,
			    run_variants(session, remote, opcode, sizes[i],
					 false),
			    opcode_name(opcode), sizes[i]))
			return false;
	return true;
}

static bool run_data(struct session *session, const struct remote *remote,
		     const uint32_t *sizes, int count)
{
	/* READ is the last one: UC has all the others. */
	unsigned int opcodes = COUNT(data_opcodes) -
			       (session->type == IBV_QPT_UC);
	unsigned int i;

	for (i = 0; i < opcodes; i++)
		if (!run_sizes(session, remote, data_opcodes[i], sizes, count))
			return false;
	return true;
}

static bool run_atomics(struct session *session, const struct remote *remote)
{
	static const uint32_t size = 8;
	unsigned int i;

	for (i = 0; i < COUNT(atomic_opcodes); i++)
		if (!run_sizes(session, remote, atomic_opcodes[i], &size, 1))
			return false;
	return true;
}

static bool run_inline(struct session *session, const struct remote *remote)
{
	uint32_t most = session->local.ep.max_inline;
	const uint32_t sizes[] = { 0, 1, 7, 8, 63, 64, 65, most - 1, most };
	char what[32];
	unsigned int i, k;

	for (i = 0; i < COUNT(data_opcodes); i++) {
		if (data_opcodes[i] == IBV_WR_RDMA_READ)
			continue;
		snprintf(what, sizeof(what), "inline %s",
			 opcode_name(data_opcodes[i]));
		for (k = 0; k < COUNT(sizes); k++)
			if (sizes[k] <= most &&
			    !report(session,
				    run_variants(session, remote,
						 data_opcodes[i], sizes[k],
						 true),
				    what, sizes[k]))
				return false;
	}
	return true;
}

static void run_session(struct session *session, const uint32_t *sizes,
			int count)
{
	struct remote remote = session_open(session);
	bool ok;

	ok = run_data(session, &remote, sizes, count);
	if (ok && session->type == IBV_QPT_RC)
		ok = run_atomics(session, &remote);
	if (ok)
		ok = run_inline(session, &remote);
	if (!session_close(session) && ok)
		tap_ok(false, "the session ends well");
}

static bool has_memory(enum memory_kind kind)
{
	struct region region;

	if (!region_map(&region, kind, 2 * REGION_BYTES))
		return false;
	region_destroy(&region);
	return true;
}

static void run_kinds(struct session *session)
{
	unsigned int kind;

	for (kind = 0; kind < MEMORY_KINDS; kind++) {
		if (kind == MEMORY_ANON)
			continue;
		session->kind = kind;
		if (has_memory(kind))
			run_session(session, few_sizes, COUNT(few_sizes));
		else
			tap_skip("no such memory here", "memory kind %s",
				 memory_name(kind));
	}
	session->kind = MEMORY_ANON;
}

static bool has_type(const char *name, enum ibv_qp_type type)
{
	struct endpoint_options options = endpoint_options(type);
	struct endpoint ep;
	struct device dev;
	bool has;

	device_open(&dev, name);
	has = endpoint_try_create(&ep, &dev, &options);
	if (has)
		endpoint_destroy(&ep);
	device_close(&dev);
	return has;
}

static void run_uc(struct session *session)
{
	if (!has_type(session->device_name, IBV_QPT_UC)) {
		tap_skip("the device has no UC", "UC");
		return;
	}
	session->type = IBV_QPT_UC;
	run_session(session, few_sizes, COUNT(few_sizes));
	session->type = IBV_QPT_RC;
}

int main(int argc, char **argv)
{
	struct session session = { .type = IBV_QPT_RC, .kind = MEMORY_ANON };
	const char *device, *peer;

	device_names(&argc, argv, &device, &peer);
	session.device_name = device;
	session.peer_name = peer;
	session.two_processes = true;
	run_session(&session, all_sizes, COUNT(all_sizes));
	run_kinds(&session);
	session.two_processes = false;
	run_uc(&session);
	session.peer_name = device;
	run_session(&session, all_sizes, COUNT(all_sizes));
	return tap_end();
}
