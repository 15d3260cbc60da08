// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Messages of max_msg_sz bytes between two machines, and one more byte; max_qp_wr
 * requests that wait at once, and one more. Each side has a few pages at many addresses,
 * so that it need not have as much memory as a message.
 *
 * usage: most serve PORT
 *        most ADDRESS:PORT
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "endpoint.h"
#include "measure.h"
#include "memory.h"
#include "pattern.h"
#include "process.h"
#include "tap.h"
#include "work.h"

#define GIB (1UL << 30)
#define MEMORY_BYTES (32UL << 20)
#define MAPPED_BYTES (GIB + MEMORY_BYTES)

enum { RECEIVE_ID = 1, REQUEST_ID = 2 };

struct script {
	struct endpoint_address address;
	struct endpoint_address deep;
	uint64_t addr;
	uint32_t rkey;
	uint32_t unused;
};

struct side {
	struct device dev;
	struct endpoint ep;
	struct endpoint deep; /* of max_qp_wr requests */
	uint8_t *memory;
	struct ibv_mr *mr;
	uint64_t most;
	struct script peer;
};

static void open_side(struct side *side, const char *name)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	device_open(&side->dev, name);
	side->most = side->dev.port.max_msg_sz;
	tap_must(side->most >= GIB && side->most < MAPPED_BYTES,
		 "max_msg_sz is 1 GiB");
	endpoint_create(&side->ep, &side->dev, &options);
	options.depth = side->dev.attr.max_qp_wr;
	options.sges = 1;
	endpoint_create(&side->deep, &side->dev, &options);
	side->memory = map_repeated(MAPPED_BYTES, MEMORY_BYTES);
	side->mr = ibv_reg_mr(side->dev.pd, side->memory, MAPPED_BYTES,
			      ACCESS_ALL);
	tap_must(side->mr, "ibv_reg_mr");
}

static void close_side(struct side *side)
{
	endpoint_destroy(&side->deep);
	endpoint_destroy(&side->ep);
	tap_must(!ibv_dereg_mr(side->mr), "ibv_dereg_mr");
	munmap(side->memory, MAPPED_BYTES);
	device_close(&side->dev);
}

static void describe(const struct side *side, struct script *script)
{
	script->address = endpoint_address(&side->ep);
	script->deep = endpoint_address(&side->deep);
	script->addr = (uintptr_t)side->memory;
	script->rkey = side->mr->rkey;
}

static void connect_sides(struct side *side)
{
	endpoint_connect(&side->ep, &side->peer.address);
	endpoint_connect(&side->deep, &side->peer.deep);
}

static struct ibv_sge sge_of(const struct side *side, uint64_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)side->memory,
				 .length = length,
				 .lkey = side->mr->lkey };
}

/* --- the other side ------------------------------------------------------- */

/* The receives come when all that they are for wait. */
static bool takes_all(struct side *side)
{
	uint32_t i;

	for (i = 0; i < side->deep.options.depth; i++)
		post_recv(&side->deep, i, NULL, 0);
	return cq_expect_range(side->deep.recv_cq, 0, i, IBV_WC_SUCCESS);
}

static int serve(int socket, void *name)
{
	struct script script = {};
	struct ibv_sge sge;
	struct side side;
	struct ibv_wc wc;
	bool ok;

	open_side(&side, name);
	message_receive(socket, &side.peer, sizeof(side.peer));
	connect_sides(&side);
	sge = sge_of(&side, side.most);
	post_recv(&side.ep, RECEIVE_ID, &sge, 1);
	describe(&side, &script);
	message_send(socket, &script, sizeof(script));
	ok = cq_success(side.ep.recv_cq, RECEIVE_ID, &wc) &&
	     check(wc.byte_len == side.most, "%" PRIu32 " bytes", wc.byte_len);
	ok = message_receive(socket, &script, sizeof(script)) &&
	     takes_all(&side) && ok;
	/* until the other side is through, it needs this one */
	message_receive(socket, &script, sizeof(script));
	close_side(&side);
	return !ok;
}

/* --- this one ------------------------------------------------------------- */

static enum ibv_wc_status move(struct side *side, enum ibv_wr_opcode opcode,
			       uint64_t length)
{
	struct ibv_sge sge = sge_of(side, length);
	struct ibv_send_wr wr = send_wr(REQUEST_ID, opcode, &sge, 1);
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };

	wr.wr.rdma.remote_addr = side->peer.addr;
	wr.wr.rdma.rkey = side->peer.rkey;
	post_send(&side->ep, &wr);
	cq_wait(side->ep.send_cq, &wc);
	return wc.status;
}

static bool moves(struct side *side, enum ibv_wr_opcode opcode, uint64_t length)
{
	enum ibv_wc_status status = move(side, opcode, length);

	return check(status == IBV_WC_SUCCESS, "%s of %" PRIu64 " bytes: %s",
		     opcode_name(opcode), length, ibv_wc_status_str(status));
}

static void fill(struct side *side, uint32_t seed)
{
	memcpy(side->memory, pattern_bytes(seed, MEMORY_BYTES), MEMORY_BYTES);
}

static bool is_filled(struct side *side, uint32_t seed)
{
	return check(!memcmp(side->memory, pattern_bytes(seed, MEMORY_BYTES),
			     MEMORY_BYTES),
		     "other data");
}

/* What the peer has was sent from here. */
static bool brought(struct side *side, enum ibv_wr_opcode opcode, uint32_t seed)
{
	fill(side, seed);
	if (!moves(side, opcode, side->most))
		return false;
	memset(side->memory, 0, MEMORY_BYTES);
	return moves(side, IBV_WR_RDMA_READ, MEMORY_BYTES) &&
	       is_filled(side, seed);
}

static bool by_read(struct side *side)
{
	const uint32_t seed = 1;

	fill(side, seed);
	if (!moves(side, IBV_WR_RDMA_WRITE, MEMORY_BYTES))
		return false;
	memset(side->memory, 0, MEMORY_BYTES);
	return moves(side, IBV_WR_RDMA_READ, side->most) &&
	       is_filled(side, seed);
}

/* The request is refused, and the queue pair is of no use any more. */
static bool one_more(struct side *side)
{
	return check(move(side, IBV_WR_RDMA_WRITE, side->most + 1) ==
			     IBV_WC_LOC_LEN_ERR,
		     "it is no IBV_WC_LOC_LEN_ERR");
}

static bool deep_queue(struct side *side, int socket)
{
	struct ibv_send_wr wr = send_wr(0, IBV_WR_SEND, NULL, 0);
	const uint32_t depth = side->deep.options.depth;
	struct script go = {};

	for (wr.wr_id = 0; wr.wr_id < depth; wr.wr_id++)
		post_send(&side->deep, &wr);
	return check(try_post_send(&side->deep, &wr) == ENOMEM,
		     "one more fits") &&
	       message_send(socket, &go, sizeof(go)) &&
	       cq_expect_range(side->deep.send_cq, 0, depth, IBV_WC_SUCCESS);
}

static int use(const char *name, const char *where)
{
	struct script script = {};
	struct process server;
	struct side side;

	process_connect(&server, where);
	open_side(&side, name);
	describe(&side, &script);
	message_send(server.socket, &script, sizeof(script));
	message_receive(server.socket, &side.peer, sizeof(side.peer));
	connect_sides(&side);
	tap_ok(by_read(&side), "a READ of max_msg_sz");
	tap_ok(brought(&side, IBV_WR_RDMA_WRITE, 2), "a WRITE of max_msg_sz");
	tap_ok(brought(&side, IBV_WR_SEND, 3), "a SEND of max_msg_sz");
	tap_ok(one_more(&side), "a WRITE of a byte more");
	tap_ok(deep_queue(&side, server.socket),
	       "max_qp_wr requests at once, and one more");
	message_send(server.socket, &script, sizeof(script));
	tap_ok(process_end(&server), "the other side ends well");
	close_side(&side);
	return tap_end();
}

int main(int argc, char **argv)
{
	const char *name, *peer;

	device_names(&argc, argv, &name, &peer);
	if (argc == 3 && !strcmp(argv[1], "serve"))
		process_serve(argv[2], serve, (void *)name);
	if (argc != 2)
		bail("usage: most serve PORT | ADDRESS:PORT");
	return use(name, argv[1]);
}
