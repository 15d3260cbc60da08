// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Signalled or not, fenced: what completes, and after what.
 */
#include <inttypes.h>
#include <string.h>

#include "pattern.h"
#include "tap.h"
#include "work.h"
#include "completions.h"

static const enum ibv_wr_opcode mixed_opcodes[] = {
	IBV_WR_SEND,
	IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_READ,
	IBV_WR_SEND_WITH_IMM,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
	IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_ATOMIC_CMP_AND_SWP,
};

static enum ibv_wr_opcode post_random(struct pair *pair,
				      struct random_state *random, uint64_t id,
				      bool signalled)
{
	enum ibv_wr_opcode opcode =
		mixed_opcodes[random_below(random, COUNT(mixed_opcodes))];
	uint32_t length = random_below(random, 20000);

	if (opcode_is_atomic(opcode))
		length = 8;
	if (opcode_takes_recv(opcode))
		post_b_receive(pair, id, WORD_OFFSET + 40000, 20000);
	post_a(pair, id, opcode, WORD_OFFSET, length,
	       signalled ? IBV_SEND_SIGNALED : 0);
	return opcode;
}

/* A burst whose last request is signalled; all completions in order. */
static bool mixed_burst(struct pair *pair, struct random_state *random,
			unsigned int burst)
{
	enum ibv_wr_opcode opcodes[64];
	bool signalled[64];
	struct ibv_wc wc;
	unsigned int i;

	for (i = 0; i < burst; i++) {
		signalled[i] = i == burst - 1 || random_below(random, 3) == 0;
		opcodes[i] = post_random(pair, random, i, signalled[i]);
	}
	for (i = 0; i < burst; i++) {
		if (signalled[i] &&
		    (!cq_success(pair->a.send_cq, i, &wc) ||
		     !check(wc.opcode == completion_of(opcodes[i]),
			    "opcode of request %u is %d", i, wc.opcode)))
			return false;
	}
	for (i = 0; i < burst; i++)
		if (opcode_takes_recv(opcodes[i]) &&
		    !cq_expect(pair->b.recv_cq, i, IBV_WC_SUCCESS))
			return false;
	return cq_stays_empty(pair->a.send_cq, 0) &&
	       cq_stays_empty(pair->b.recv_cq, 0);
}

bool case_mixed_signals(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct random_state random;
	struct pair pair;
	bool ok = true;
	int i;

	random_seed(&random, 1);
	pair_open(&pair, setup, &options);
	for (i = 0; i < 40 && ok; i++)
		ok = mixed_burst(&pair, &random,
				 1 + random_below(&random, options.depth));
	pair_close(&pair);
	return ok;
}

bool case_signal_all(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct pair pair;
	bool ok = true;
	unsigned int i;

	options.signal_all = true;
	pair_open(&pair, setup, &options);
	for (i = 0; i < options.depth; i++)
		post_a(&pair, i, IBV_WR_RDMA_WRITE, 0, 16, 0);
	for (i = 0; i < options.depth && ok; i++)
		ok = cq_expect(pair.a.send_cq, i, IBV_WC_SUCCESS);
	pair_close(&pair);
	return ok;
}

/* What a fenced SEND carries is what the READ before it has fetched. */
static bool fenced_round(struct pair *pair, unsigned int round)
{
	const uint8_t *bytes = pattern_bytes(round, 200000);
	struct setup *setup = pair->setup;
	struct ibv_wc wc;

	memset(setup->a_mem.addr, 0, 200000);
	memset(setup->b_mem.addr + 400000, 0, 200000);
	memcpy(setup->b_mem.addr, bytes, 200000);
	post_b_receive(pair, 2, 400000, 200000);
	post_a(pair, 1, IBV_WR_RDMA_READ, 0, 200000, IBV_SEND_SIGNALED);
	post_a(pair, 2, IBV_WR_SEND, 0, 200000,
	       IBV_SEND_SIGNALED | IBV_SEND_FENCE);
	return cq_success(pair->b.recv_cq, 2, &wc) &&
	       check(!memcmp(setup->b_mem.addr + 400000, bytes, 200000),
		     "the fenced SEND overtook the READ") &&
	       cq_success(pair->a.send_cq, 1, &wc) &&
	       cq_success(pair->a.send_cq, 2, &wc);
}

bool case_fence_read(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct pair pair;
	unsigned int i;
	bool ok = true;

	pair_open(&pair, setup, &options);
	for (i = 0; i < 20 && ok; i++)
		ok = fenced_round(&pair, i);
	pair_close(&pair);
	return ok;
}

bool case_fence_atomic(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	uint64_t *local = (uint64_t *)(setup->a_mem.addr + WORD_OFFSET);
	uint64_t *remote = (uint64_t *)(setup->b_mem.addr + WORD_OFFSET);
	struct pair pair;
	struct ibv_wc wc;
	bool ok = true;
	uint64_t i;

	pair_open(&pair, setup, &options);
	for (i = 0; i < 100 && ok; i++) {
		*local = 0;
		*remote = 1000 + i;
		post_a(&pair, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, WORD_OFFSET, 8,
		       0);
		/* The old value goes back, once it has been fetched. */
		post_a(&pair, 2, IBV_WR_RDMA_WRITE, WORD_OFFSET, 8,
		       IBV_SEND_SIGNALED | IBV_SEND_FENCE);
		ok = cq_success(pair.a.send_cq, 2, &wc) &&
		     check(*remote == 1000 + i,
			   "the fenced WRITE wrote %" PRIu64, *remote);
	}
	pair_close(&pair);
	return ok;
}

/* When the SEND has arrived, the WRITEs before it have, too. */
bool case_write_then_send(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	const uint8_t *bytes;
	struct pair pair;
	struct ibv_wc wc;
	bool ok = true;
	unsigned int i;

	pair_open(&pair, setup, &options);
	for (i = 0; i < 50 && ok; i++) {
		bytes = pattern_bytes(i, 70000);
		memcpy(setup->a_mem.addr, bytes, 70000);
		memset(setup->b_mem.addr, 0, 70000);
		post_b_receive(&pair, i, 100000, 8);
		post_a(&pair, i, IBV_WR_RDMA_WRITE, 0, 70000, 0);
		post_a(&pair, i, IBV_WR_SEND, 0, 8, IBV_SEND_SIGNALED);
		ok = cq_success(pair.b.recv_cq, i, &wc) &&
		     check(!memcmp(setup->b_mem.addr, bytes, 70000),
			   "the SEND overtook the WRITE") &&
		     cq_success(pair.a.send_cq, i, &wc);
	}
	pair_close(&pair);
	return ok;
}

/* A READ sees the WRITE before it, and not the WRITE after it. */
bool case_read_after_write(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	uint8_t *memory = setup->a_mem.addr;
	struct pair pair;
	struct ibv_wc wc;
	bool ok = true;
	unsigned int i;

	pair_open(&pair, setup, &options);
	memset(memory + 200000, 0xff, 30000);
	for (i = 1; i < 50 && ok; i++) {
		memset(setup->b_mem.addr, 0, 30000);
		memset(memory, i, 30000);
		memset(memory + 100000, 0, 30000);
		post_between(&pair, 1, IBV_WR_RDMA_WRITE, 0, 0, 30000, 0);
		post_between(&pair, 2, IBV_WR_RDMA_READ, 100000, 0, 30000, 0);
		post_between(&pair, 3, IBV_WR_RDMA_WRITE, 200000, 0, 30000,
			     IBV_SEND_SIGNALED | IBV_SEND_FENCE);
		ok = cq_success(pair.a.send_cq, 3, &wc) &&
		     check(!memcmp(memory, memory + 100000, 30000),
			   "the READ got other bytes, first 0x%02x, last 0x%02x",
			   memory[100000], memory[129999]) &&
		     check(setup->b_mem.addr[29999] == 0xff,
			   "the last WRITE did not happen");
	}
	pair_close(&pair);
	return ok;
}
