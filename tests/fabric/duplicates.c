// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * duplicates --peer ADDRESS:PORT STOP CONTINUE: requests whose answers do not come in
 * time and that are repeated, when the other machine has them all twice. The command
 * STOP keeps it from answering, and CONTINUE lets it go on.
 */
#include <inttypes.h>
#include <string.h>

#include "clock.h"
#include "setup.h"
#include "srq.h"
#include "tap.h"
#include "text.h"
#include "work.h"

/* An aligned word. */
#define WORD_OFFSET (PAGE_BYTES - 77)

enum { REGION_BYTES = 8 << 20, WORD_BYTES = 8, ROUNDS = 3, START = 1000 };
/* More than two segments, away from the words. */
enum { LARGE = 600 << 10, WRITTEN = 128 << 10, SENT = WRITTEN + LARGE };

/* More than is on its way at once. */
enum { LONGEST = REGION_BYTES };

/* The words of a round, and those that all of them change. */
enum { MESSAGE, WRITE, READ, ADDED, SWAPPED, WORDS };
enum { SUM = ROUNDS * WORDS, CHAIN, COUNT_OF_WORDS };
enum { REQUESTS = ROUNDS * WORDS + 2, RECEIVES = 2 * ROUNDS };
/* READs and atomics on their way at once; no more results are kept. */
enum { READS = ROUNDS * 3, FEW_READS = 2 };

/* A connection from a, and where it is received. */
struct ends {
	struct endpoint *a;
	struct endpoint *b;
	struct ibv_srq *srq; /* NULL: b's queue */
	struct ibv_cq *recv_cq;
	uint32_t srq_number;
};

static struct setup setup;
static const char *stop_command, *go_command;

/* Answers that did not come within the time for that. */
static uint64_t missing(void)
{
	return ethtool_counter("response_timeouts:");
}

static size_t offset_of(unsigned int word)
{
	return WORD_OFFSET + word * WORD_BYTES;
}

static uint64_t *word_of(const struct region *mem, unsigned int word)
{
	return (uint64_t *)(mem->addr + offset_of(word));
}

static void fill(void)
{
	unsigned int i;

	memset(setup.a_mem.addr, 0, REGION_BYTES);
	memset(setup.b_mem.addr, 0, REGION_BYTES);
	memset(setup.a_mem.addr + WRITTEN, 1, LARGE);
	memset(setup.a_mem.addr + SENT, 2, LARGE);
	for (i = 0; i < ROUNDS * WORDS; i++) {
		*word_of(&setup.a_mem, i) = START + i;
		*word_of(&setup.b_mem, i) = START + i;
	}
	*word_of(&setup.b_mem, SUM) = START;
	*word_of(&setup.b_mem, CHAIN) = START;
	for (i = 0; i < ROUNDS; i++)
		*word_of(&setup.b_mem, i * WORDS + WRITE) = 0;
}

static void post_receive(const struct ends *ends, uint64_t id,
			 struct ibv_sge *sge)
{
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	if (!ends->srq)
		post_recv(ends->b, id, sge, 1);
	else if (ibv_post_srq_recv(ends->srq, &wr, &bad))
		bail("posting receive %" PRIu64 " fails", id);
}

/* Into one word each, and the last one of the large message. */
static void post_receives(const struct ends *ends)
{
	struct ibv_sge sge;
	unsigned int i;

	for (i = 0; i < RECEIVES; i++) {
		sge = i == ROUNDS ? region_sge(&setup.b_mem, SENT, LARGE) :
				    region_sge(&setup.b_mem,
					       offset_of(COUNT_OF_WORDS + i),
					       WORD_BYTES);
		post_receive(ends, i, &sge);
	}
}

/* Not by who looks at the other machine's memory before: it is stopped. */
static void post(const struct ends *ends, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->qp_type.xrc.remote_srqn = ends->srq_number;
	tap_must(!ibv_post_send(ends->a->qp, wr, &bad), "posting %" PRIu64,
		 wr->wr_id);
}

static void post_large(const struct ends *ends, uint64_t id)
{
	struct ibv_sge sge = region_sge(&setup.a_mem, WRITTEN, LARGE);
	struct ibv_send_wr wr = send_wr(id, IBV_WR_RDMA_WRITE, &sge, 1);

	wr.wr.rdma.remote_addr = setup.b_mem.rdma_addr + WRITTEN;
	wr.wr.rdma.rkey = setup.b_mem.mr->rkey;
	post(ends, &wr);
	sge = region_sge(&setup.a_mem, SENT, LARGE);
	wr = send_wr(id + 1, IBV_WR_SEND, &sge, 1);
	post(ends, &wr);
}

static void post_atomic(const struct ends *ends, uint64_t id,
			enum ibv_wr_opcode opcode, unsigned int word,
			unsigned int round)
{
	bool swap = opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct ibv_sge sge = region_sge(&setup.a_mem, offset_of(id),
					WORD_BYTES);
	struct ibv_send_wr wr = send_wr(id, opcode, &sge, 1);

	wr.wr.atomic.remote_addr = setup.b_mem.rdma_addr + offset_of(word);
	wr.wr.atomic.rkey = setup.b_mem.mr->rkey;
	wr.wr.atomic.compare_add = swap ? START + round : 1;
	wr.wr.atomic.swap = START + round + 1;
	post(ends, &wr);
}

static void post_word(const struct ends *ends, uint64_t id,
		      enum ibv_wr_opcode opcode, unsigned int round)
{
	struct ibv_sge sge = region_sge(&setup.a_mem, offset_of(id),
					WORD_BYTES);
	struct ibv_send_wr wr = send_wr(id, opcode, &sge, 1);

	wr.imm_data = round;
	wr.wr.rdma.remote_addr = setup.b_mem.rdma_addr + offset_of(id);
	wr.wr.rdma.rkey = setup.b_mem.mr->rkey;
	post(ends, &wr);
}

static void post_round(const struct ends *ends, unsigned int round)
{
	uint64_t id = (uint64_t)round * WORDS;

	post_word(ends, id + MESSAGE, IBV_WR_SEND_WITH_IMM, round);
	post_word(ends, id + WRITE, IBV_WR_RDMA_WRITE, round);
	post_word(ends, id + READ, IBV_WR_RDMA_READ, round);
	post_atomic(ends, id + ADDED, IBV_WR_ATOMIC_FETCH_AND_ADD, SUM, round);
	post_atomic(ends, id + SWAPPED, IBV_WR_ATOMIC_CMP_AND_SWP, CHAIN,
		    round);
}

/* The first one at least is sent again, or will be. */
static bool answers_are_missing(uint64_t before)
{
	uint64_t end = now_ms() + 60000;

	while (missing() == before && now_ms() < end)
		sleep_ms(100);
	sleep_ms(1000);
	return check(missing() > before, "all answers are there");
}

static bool posted_while_stopped(const struct ends *ends)
{
	uint64_t before = missing();
	unsigned int round;
	bool ok;

	if (!command_runs("%s", stop_command))
		return false;
	for (round = 0; round < ROUNDS; round++)
		post_round(ends, round);
	post_large(ends, ROUNDS * WORDS);
	ok = answers_are_missing(before);
	return command_runs("%s", go_command) && ok;
}

/* Each message came once, and they came in order. */
static bool received(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	unsigned int i;

	for (i = 0; i < ROUNDS; i++)
		if (!cq_success(cq, i, &wc) ||
		    !check(wc.imm_data == i, "message %u is number %u", i,
			   wc.imm_data))
			return false;
	return cq_success(cq, ROUNDS, &wc) &&
	       check(wc.byte_len == LARGE, "the last one has %u bytes",
		     wc.byte_len) &&
	       check(cq_stays_empty(cq, 500), "one more came");
}

static bool found(unsigned int round, unsigned int what)
{
	uint64_t value = *word_of(&setup.a_mem, round * WORDS + what);

	return check(value == START + round,
		     "round %u: an atomic finds %" PRIu64, round, value);
}

static bool results_are_right(void)
{
	const uint64_t sum = *word_of(&setup.b_mem, SUM);
	const uint64_t chain = *word_of(&setup.b_mem, CHAIN);
	unsigned int i, word;

	for (i = 0; i < ROUNDS; i++) {
		word = i * WORDS + WRITE;
		if (!found(i, ADDED) || !found(i, SWAPPED) ||
		    !check(*word_of(&setup.b_mem, word) == START + word,
			   "round %u: it is not written", i))
			return false;
	}
	return check(sum == START + ROUNDS, "the sum is %" PRIu64, sum) &&
	       check(chain == START + ROUNDS, "the word is %" PRIu64, chain) &&
	       check(!memcmp(setup.a_mem.addr + WRITTEN,
			     setup.b_mem.addr + WRITTEN, 2 * LARGE),
		     "the large messages differ");
}

static bool repeated(const struct ends *ends)
{
	bool ok;

	post_receives(ends);
	ok = posted_while_stopped(ends);
	ok = cq_expect_range(ends->a->send_cq, 0, REQUESTS, IBV_WC_SUCCESS) &&
	     ok;
	return received(ends->recv_cq) && ok && results_are_right();
}

/* The other machine takes what was filled there. */
static bool filled(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint a, b;
	bool ok;

	fill();
	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	ok = exchange_empty(&a, &b, 1);
	pair_destroy(&a, &b);
	return ok;
}

/* The numbers of the requests pass 0. */
static struct endpoint_options rc_options(uint8_t reads)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	options.depth = 2 * REQUESTS;
	options.reads = reads;
	options.timeout = 14;
	options.psn = 0xfffffc;
	return options;
}

static bool repeated_rc(void)
{
	struct endpoint_options options = rc_options(READS);
	struct endpoint a, b;
	struct ends ends = { .a = &a, .b = &b };
	bool ok = filled();

	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	ends.recv_cq = b.recv_cq;
	ok = repeated(&ends) && ok;
	pair_destroy(&a, &b);
	return ok;
}

/* Only a drained queue pair's limits can be changed. */
static bool allow_reads(struct endpoint *ep)
{
	struct ibv_qp_attr attr = {
		.max_rd_atomic = READS,
		.max_dest_rd_atomic = READS,
	};

	endpoint_go(ep, IBV_QPS_SQD);
	if (!check(!ibv_modify_qp(ep->qp, &attr,
				  IBV_QP_MAX_QP_RD_ATOMIC |
					  IBV_QP_MAX_DEST_RD_ATOMIC),
		   "the limits are not changed"))
		return false;
	endpoint_go(ep, IBV_QPS_RTS);
	return true;
}

/* Results are there before there is room for more of them. */
static bool repeated_raised(void)
{
	struct endpoint_options options = rc_options(FEW_READS);
	struct endpoint a, b;
	struct ends ends = { .a = &a, .b = &b };
	unsigned int i;
	bool ok;

	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	ends.recv_cq = b.recv_cq;
	for (i = 0; i <= FEW_READS; i++)
		post_atomic(&ends, i, IBV_WR_ATOMIC_FETCH_AND_ADD, SUM, i);
	ok = cq_expect_range(a.send_cq, 0, i, IBV_WC_SUCCESS);
	ok = ok && filled() && allow_reads(&b) && allow_reads(&a) &&
	     repeated(&ends);
	pair_destroy(&a, &b);
	return ok;
}

static bool repeated_xrc(void)
{
	struct ends ends = {};
	struct xrc xrc;
	bool ok = filled();

	xrc_open_domain(&xrc, &setup);
	xrc.srq[0] = xrc_create_srq(&xrc, RECEIVES, 1);
	xrc_connect(&xrc);
	ends.a = &xrc.a;
	ends.srq = xrc.srq[0];
	ends.recv_cq = xrc.cq;
	if (ibv_get_srq_num(ends.srq, &ends.srq_number))
		bail("ibv_get_srq_num fails");
	ok = repeated(&ends) && ok;
	xrc_close(&xrc);
	return ok;
}

/*
 * A READ that comes again names another queue than the message after it, of which not
 * all was on its way: that goes on where it was.
 */
static bool repeated_two_queues(void)
{
	struct ibv_sge sge = region_sge(&setup.a_mem, 0, LONGEST);
	struct ends reads = {}, sends = {};
	struct ibv_send_wr wr = send_wr(2, IBV_WR_SEND, &sge, 1);
	struct ibv_sge to = region_sge(&setup.b_mem, 0, LONGEST);
	uint64_t before = missing();
	struct ibv_wc wc;
	struct xrc xrc;
	bool ok;

	xrc_open_domain(&xrc, &setup);
	xrc.srq[0] = xrc_create_srq(&xrc, 1, 1);
	xrc.srq[1] = xrc_create_srq(&xrc, 1, 1);
	xrc_connect(&xrc);
	reads.a = &xrc.a;
	sends.a = &xrc.a;
	sends.srq = xrc.srq[0];
	if (ibv_get_srq_num(xrc.srq[0], &sends.srq_number) ||
	    ibv_get_srq_num(xrc.srq[1], &reads.srq_number))
		bail("ibv_get_srq_num fails");
	post_receive(&sends, 3, &to);
	ok = command_runs("%s", stop_command);
	post_word(&reads, 1, IBV_WR_RDMA_READ, 0);
	post(&sends, &wr);
	ok = ok && answers_are_missing(before);
	ok = command_runs("%s", go_command) && ok &&
	     cq_expect(xrc.a.send_cq, 1, IBV_WC_SUCCESS) &&
	     cq_expect(xrc.a.send_cq, 2, IBV_WC_SUCCESS) &&
	     cq_success(xrc.cq, 3, &wc) &&
	     check(wc.byte_len == LONGEST, "%u bytes", wc.byte_len);
	xrc_close(&xrc);
	return ok;
}

int main(int argc, char **argv)
{
	setup_open(&setup, &argc, argv, REGION_BYTES);
	if (argc != 3)
		bail("how is the other machine stopped, and how does it go on?");
	stop_command = argv[1];
	go_command = argv[2];
	tap_ok(repeated_rc(), "RC: what arrives twice is carried out once");
	tap_ok(repeated_raised(), "RC: after the limits were raised");
	tap_ok(repeated_xrc(), "XRC: the same");
	tap_ok(repeated_two_queues(), "XRC: a READ of another queue's");
	setup_close(&setup);
	return tap_end();
}
