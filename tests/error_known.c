// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A peer's SEND that is longer than the receive puts the queue pair into the error state,
 * and the receive's completion says so: whatever is posted from then on is flushed (IBA
 * 10.3.1.5), also what the process would carry out itself, in the moment before the
 * kernel takes the peer's memory from it.
 */
#include <string.h>

#include "clock.h"
#include "executed.h"
#include "memory.h"
#include "process.h"
#include "work.h"

enum {
	ROUNDS = 200,
	WARM = 4, /* by then this process carries them out */
	SHORT_BYTES = 16,
	LONG_BYTES = 64,
	OLD = 1,
	NEW = 2,
};

struct offer {
	struct endpoint_address address;
	uint64_t remote;
	uint32_t rkey;
};

struct side {
	int socket;
	struct device dev;
	struct region memory;
	struct endpoint ep;
	struct offer peer;
};

static void side_open(struct side *side, const char *device)
{
	device_open(&side->dev, device);
	region_create(&side->memory, side->dev.pd, PAGE_BYTES);
}

static void side_close(struct side *side)
{
	region_destroy(&side->memory);
	device_close(&side->dev);
}

/* A connection with the other process; false if that has ended. */
static bool meet(struct side *side)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct offer own;

	endpoint_create(&side->ep, &side->dev, &options);
	own = (struct offer){
		.address = endpoint_address(&side->ep),
		.remote = side->memory.rdma_addr,
		.rkey = side->memory.mr->rkey,
	};
	if (!message_send(side->socket, &own, sizeof(own)) ||
	    !message_receive(side->socket, &side->peer, sizeof(side->peer))) {
		endpoint_destroy(&side->ep);
		return false;
	}
	endpoint_connect(&side->ep, &side->peer.address);
	return true;
}

/* Says that it is ready, and waits for the same of the other. */
static bool in_step(struct side *side)
{
	uint32_t word = 0;

	return message_send(side->socket, &word, sizeof(word)) &&
	       message_receive(side->socket, &word, sizeof(word));
}

/* The peer, whose memory is written, and who sends what is too long. */
static bool one_round_of_peer(struct side *side)
{
	struct ibv_sge sge = region_sge(&side->memory, 0, LONG_BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge, 1);
	uint32_t word;
	bool good;

	if (!in_step(side) || !in_step(side))
		return false;
	post_send(&side->ep, &wr);
	good = cq_expect(side->ep.send_cq, 1, IBV_WC_REM_INV_REQ_ERR) &&
	       in_step(side);
	word = *side->memory.addr;
	return good && message_send(side->socket, &word, sizeof(word));
}

static int be_peer(int socket, void *argument)
{
	struct side side = { .socket = socket };

	side_open(&side, argument);
	while (memset(side.memory.addr, 0, PAGE_BYTES), meet(&side)) {
		bool good = one_round_of_peer(&side);

		endpoint_destroy(&side.ep);
		if (!good)
			break;
	}
	side_close(&side);
	return 0;
}

static enum ibv_wc_status write_word(struct side *side, uint8_t value)
{
	struct ibv_sge sge = region_sge(&side->memory, 0, 8);
	struct ibv_send_wr wr = send_wr(2, IBV_WR_RDMA_WRITE, &sge, 1);
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };

	*side->memory.addr = value;
	send_wr_aim(&wr, side->peer.remote, side->peer.rkey);
	post_send(&side->ep, &wr);
	cq_wait(side->ep.send_cq, &wc);
	return wc.status;
}

/* At once: with no call that sleeps in between. */
static enum ibv_wc_status after_error(struct side *side,
				      enum ibv_wc_status *received)
{
	const uint64_t end = deadline();
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };

	while (!ibv_poll_cq(side->ep.recv_cq, 1, &wc) && now_ms() < end)
		;
	*received = wc.status;
	return write_word(side, NEW);
}

static bool one_round(struct side *side, bool *direct)
{
	struct ibv_sge sge = region_sge(&side->memory, 64, SHORT_BYTES);
	enum ibv_wc_status received, written;
	uint32_t word = NEW;
	int i;

	post_recv(&side->ep, 1, &sge, 1);
	if (!in_step(side))
		return false;
	for (i = 0; i < WARM; i++)
		if (write_word(side, OLD))
			return check(false, "no WRITE before");
	*direct = executed_here(&side->ep) > 0;
	if (!in_step(side))
		return false;
	written = after_error(side, &received);
	return in_step(side) &&
	       message_receive(side->socket, &word, sizeof(word)) &&
	       check(received == IBV_WC_LOC_LEN_ERR, "received: %s",
		     ibv_wc_status_str(received)) &&
	       check(written == IBV_WC_WR_FLUSH_ERR, "written: %s",
		     ibv_wc_status_str(written)) &&
	       check(word == OLD, "the peer has %u", word);
}

static bool all_rounds(struct side *side, unsigned int *direct)
{
	unsigned int i;
	bool good = true, by_process = false;

	for (i = 0; i < ROUNDS && good; i++) {
		if (!meet(side))
			return false;
		good = one_round(side, &by_process);
		*direct += by_process;
		endpoint_destroy(&side->ep);
	}
	return check(good, "in round %u", i);
}

int main(int argc, char **argv)
{
	const char *device, *peer;
	struct process process;
	struct side side = { 0 };
	unsigned int direct = 0;

	device_names(&argc, argv, &device, &peer);
	process_start(&process, be_peer, (void *)peer);
	side.socket = process.socket;
	side_open(&side, device);
	tap_ok(all_rounds(&side, &direct),
	       "a small WRITE behind the error of a receive is flushed");
	tap_ok(check(direct == ROUNDS, "%u of %u", direct, ROUNDS),
	       "this process had carried out those before");
	side_close(&side);
	tap_ok(process_end(&process), "the peer ends well");
	return tap_end();
}
