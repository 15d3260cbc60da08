// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Does every operation move exactly the right bytes? Operations x sizes x
 * alignments x ways to split the buffers x kinds of memory, in one process
 * and between two, with the bytes around each buffer checked as well.
 *
 * With "short" most are tried with few sizes. verify serve PORT is the other process for
 * a verify --peer ADDRESS:PORT on another machine.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "process.h"
#include "proxy.h"
#include "tap.h"
#include "verify.h"
#include "work.h"

/* Where the peer is. */
enum distance { ONE_PROCESS, TWO_PROCESSES, TWO_MACHINES };

/* Two sides: both here, or @peer in a process of its own. */
struct session {
	const char *device_name;
	const char *peer_name;
	struct setting setting;
	enum distance distance;
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

static void must(bool ok)
{
	if (!ok)
		bail("the other process is gone or silent");
}

/* The peer's process: do what the messages ask for until they end. */
static int peer_main(int socket, void *argument)
{
	const char *name = argument;
	struct endpoint_address address;
	struct setting setting;
	struct message message;
	struct remote remote;
	struct side peer, *side = &peer;
	bool ok;

	must(message_receive(socket, &setting, sizeof(setting)));
	side_open(side, name, &setting, true);
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

static void start_peer(struct session *session)
{
	if (session->distance == TWO_MACHINES)
		process_connect(&session->process, session->peer_name);
	else
		process_start(&session->process, peer_main,
			      (void *)session->peer_name);
	/* what it has to be told first */
	must(message_send(session->process.socket, &session->setting,
			  sizeof(session->setting)));
}

static struct remote session_open(struct session *session)
{
	struct endpoint_address address;
	struct remote remote = { 0, 0, 0 };
	bool ok;

	if (session->distance != ONE_PROCESS)
		start_peer(session);
	else
		side_open(&session->peer, session->peer_name, &session->setting,
			  true);
	side_open(&session->local, session->device_name, &session->setting,
		  false);
	if (session->distance == ONE_PROCESS) {
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
	if (session->distance != ONE_PROCESS)
		return process_end(&session->process);
	side_close(&session->peer);
	return true;
}

static bool ask_peer(struct session *session, enum request request,
		     const struct transfer *transfer)
{
	struct message message = { request, *transfer };
	bool ok = true;

	if (session->distance != ONE_PROCESS) {
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

static bool is_of_word(enum ibv_wr_opcode opcode)
{
	return opcode_is_atomic(opcode) || opcode == IBV_WR_ATOMIC_WRITE;
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
			if (is_of_word(opcode))
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

/* Not every device has the last one. */
static const enum ibv_wr_opcode word_opcodes[] = {
	IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
	IBV_WR_ATOMIC_WRITE,
};

static const char *const distance_names[] = {
	[ONE_PROCESS] = "one process",
	[TWO_PROCESSES] = "two processes",
	[TWO_MACHINES] = "two machines",
};

static const char *type_name(const struct session *session)
{
	switch (session->setting.type) {
	case IBV_QPT_UC:
		return "UC";
	case IBV_QPT_XRC_SEND:
		return "XRC";
	default:
		return "RC";
	}
}

/*
 * A failure leaves the queue pairs in any state: the rest of the session is
 * one failure. Returns false then.
 */
static bool report(const struct session *session, bool ok, const char *what,
		   uint32_t size)
{
	tap_ok(ok, "%s to %s, %s, %s, %s memory%s: %s, %u bytes",
	       session->device_name, session->peer_name,
	       distance_names[session->distance], type_name(session),
	       memory_name(session->setting.kind),
	       session->setting.on_demand ? " on demand" : "", what, size);
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
			       (session->setting.type == IBV_QPT_UC);
	unsigned int i;

	for (i = 0; i < opcodes; i++)
		if (!run_sizes(session, remote, data_opcodes[i], sizes, count))
			return false;
	return true;
}

static bool has_atomic_write(const struct session *session)
{
	const struct side *side = &session->local;
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = side->ep.send_cq,
		.recv_cq = side->ep.recv_cq,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = side->dev.pd,
		.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(side->dev.ctx, &attr);

	return qp && !ibv_destroy_qp(qp);
}

static bool run_words(struct session *session, const struct remote *remote)
{
	unsigned int count = COUNT(word_opcodes) - !has_atomic_write(session);
	static const uint32_t size = 8;
	unsigned int i;

	for (i = 0; i < count; i++)
		if (!run_sizes(session, remote, word_opcodes[i], &size, 1))
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
	if (ok && session->setting.type != IBV_QPT_UC)
		ok = run_words(session, &remote);
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

static bool has_on_demand(const char *name)
{
	struct ibv_device_attr_ex attr;
	struct device dev;
	bool has;

	device_open(&dev, name);
	has = !ibv_query_device_ex(dev.ctx, NULL, &attr) &&
	      attr.odp_caps.general_caps & IBV_ODP_SUPPORT;
	device_close(&dev);
	return has;
}

static void run_on_demand(struct session *session)
{
	if (!has_on_demand(session->device_name)) {
		tap_skip("the device has no on-demand paging", "on demand");
		return;
	}
	session->setting.on_demand = true;
	run_session(session, few_sizes, COUNT(few_sizes));
	session->setting.on_demand = false;
}

static void run_kinds(struct session *session)
{
	unsigned int kind;

	for (kind = 0; kind < MEMORY_KINDS; kind++) {
		if (kind == MEMORY_ANON)
			continue;
		session->setting.kind = kind;
		if (has_memory(kind))
			run_session(session, few_sizes, COUNT(few_sizes));
		else
			tap_skip("no such memory here", "memory kind %s",
				 memory_name(kind));
	}
	session->setting.kind = MEMORY_ANON;
	run_on_demand(session);
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

static const struct {
	const char *name;
	enum ibv_qp_type type;
	bool on_demand;
} types[] = {
	{ "UC", IBV_QPT_UC, false },
	{ "XRC", IBV_QPT_XRC_SEND, false },
	{ "XRC on demand", IBV_QPT_XRC_SEND, true },
};

/* RC is what all the rest is about. */
static void run_types(struct session *session)
{
	unsigned int i;

	for (i = 0; i < COUNT(types); i++) {
		if (!has_type(session->device_name, types[i].type)) {
			tap_skip("the device has no such queue pairs", "%s",
				 types[i].name);
			continue;
		}
		session->setting.type = types[i].type;
		if (types[i].on_demand)
			run_on_demand(session);
		else
			run_session(session, few_sizes, COUNT(few_sizes));
	}
	session->setting.type = IBV_QPT_RC;
}

static void run_all_or_few(struct session *session, bool all)
{
	if (all)
		run_session(session, all_sizes, COUNT(all_sizes));
	else
		run_session(session, few_sizes, COUNT(few_sizes));
}

static void run_here(struct session *session, bool all)
{
	session->distance = TWO_PROCESSES;
	run_all_or_few(session, all);
	run_kinds(session);
	session->distance = ONE_PROCESS;
	run_types(session);
	session->peer_name = session->device_name;
	run_all_or_few(session, all);
}

static void run_machines(struct session *session, bool all)
{
	session->distance = TWO_MACHINES;
	run_all_or_few(session, all);
	if (all)
		run_kinds(session);
	else
		run_on_demand(session);
	run_types(session);
}

int main(int argc, char **argv)
{
	struct session session = {
		.setting = { .type = IBV_QPT_RC, .kind = MEMORY_ANON },
	};
	const char *device, *peer;
	bool all;

	device_names(&argc, argv, &device, &peer);
	all = argc != 2 || strcmp(argv[1], "short") != 0;
	if (argc == 3 && !strcmp(argv[1], "serve"))
		process_serve(argv[2], peer_main, (void *)device);
	session.device_name = device;
	session.peer_name = peer;
	if (proxy_is_name(peer))
		run_machines(&session, all);
	else
		run_here(&session, all);
	return tap_end();
}
