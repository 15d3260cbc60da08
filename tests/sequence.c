// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Which requests a responder takes: those with the PSN that it expects, none behind
 * one that it refused, from the queue pair that it is connected with.
 */
#include <inttypes.h>
#include <string.h>

#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define REGION_BYTES (1UL << 20)
/* In several records, where another machine is asked. */
#define LARGE_BYTES (128U << 10)
#define FILL_BYTE 0xee
#define PSN_MASK 0xffffff

enum { SHORT_TIMEOUT = 8, ONCE_MORE = 1 };

struct stage {
	struct setup *setup;
	struct endpoint a;
	struct endpoint b;
};

static struct endpoint_options impatient(enum ibv_qp_type type)
{
	struct endpoint_options options = endpoint_options(type);

	options.timeout = SHORT_TIMEOUT;
	options.retry_count = ONCE_MORE;
	return options;
}

static void create(struct stage *stage, const struct endpoint_options *options)
{
	endpoint_create(&stage->a, &stage->setup->a_dev, options);
	endpoint_create(&stage->b, &stage->setup->b_dev, options);
}

/* The other side expects the PSN that is @ahead of this side's first one. */
static void connect_ahead(struct stage *stage, uint32_t ahead)
{
	struct endpoint_address a = endpoint_address(&stage->a);
	struct endpoint_address b = endpoint_address(&stage->b);

	a.psn = (a.psn + ahead) & PSN_MASK;
	endpoint_connect(&stage->b, &a);
	endpoint_connect(&stage->a, &b);
}

static uint32_t packets(const struct stage *stage, uint32_t bytes)
{
	uint32_t mtu = device_mtu(&stage->setup->a_dev);
	uint32_t peers = device_mtu(&stage->setup->b_dev);

	if (peers < mtu)
		mtu = peers;
	return (bytes + mtu - 1) / mtu;
}

/* From the beginning of the one memory to the same place in the other. */
static struct ibv_send_wr request(struct stage *stage, uint64_t id,
				  enum ibv_wr_opcode opcode,
				  struct ibv_sge *sge, uint32_t bytes)
{
	struct ibv_send_wr wr = send_wr(id, opcode, sge, 1);

	*sge = region_sge(&stage->setup->a_mem, 0, bytes);
	wr.wr.rdma.remote_addr = stage->setup->b_mem.rdma_addr;
	wr.wr.rdma.rkey = stage->setup->b_mem.mr->rkey;
	if (opcode_is_atomic(opcode)) {
		wr.wr.atomic.remote_addr = stage->setup->b_mem.rdma_addr;
		wr.wr.atomic.rkey = stage->setup->b_mem.mr->rkey;
	}
	return wr;
}

static void fill(struct stage *stage)
{
	memset(stage->setup->a_mem.addr, 0x11, REGION_BYTES);
	memset(stage->setup->b_mem.addr, FILL_BYTE, REGION_BYTES);
}

/* Two that the other side is past, and one with the PSN that it expects. */
static bool behind(struct stage *stage, uint32_t bytes)
{
	struct endpoint_options options = impatient(IBV_QPT_RC);
	struct ibv_send_wr wrs[3];
	struct ibv_sge sges[3];
	unsigned int i;

	create(stage, &options);
	connect_ahead(stage, 2 * packets(stage, bytes));
	for (i = 0; i < COUNT(wrs); i++)
		wrs[i] = request(stage, i + 1, IBV_WR_RDMA_WRITE, &sges[i],
				 i < 2 ? bytes : 8);
	/* all of them on their way before the first is answered */
	wrs[0].next = &wrs[1];
	wrs[1].next = &wrs[2];
	post_send(&stage->a, wrs);
	return cq_expect(stage->a.send_cq, 1, IBV_WC_RETRY_EXC_ERR) &&
	       cq_expect(stage->a.send_cq, 2, IBV_WC_WR_FLUSH_ERR) &&
	       cq_expect(stage->a.send_cq, 3, IBV_WC_WR_FLUSH_ERR) &&
	       all_are(stage->setup->b_mem.addr, REGION_BYTES, FILL_BYTE);
}

static bool behind_short(struct stage *stage)
{
	return behind(stage, 8);
}

static bool behind_large(struct stage *stage)
{
	return behind(stage, LARGE_BYTES);
}

/* Who begins again with the PSN that the other side expects is heard. */
static bool begun_again(struct stage *stage)
{
	struct endpoint_options options = impatient(IBV_QPT_RC);
	struct endpoint_address b;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	create(stage, &options);
	connect_ahead(stage, 1);
	wr = request(stage, 1, IBV_WR_RDMA_WRITE, &sge, 8);
	post_send(&stage->a, &wr);
	if (!cq_expect(stage->a.send_cq, 1, IBV_WC_RETRY_EXC_ERR))
		return false;
	b = endpoint_address(&stage->b);
	endpoint_go(&stage->a, IBV_QPS_RESET);
	stage->a.options = endpoint_options(IBV_QPT_RC);
	stage->a.options.psn = (options.psn + 1) & PSN_MASK;
	endpoint_connect(&stage->a, &b);
	wr = request(stage, 2, IBV_WR_RDMA_WRITE, &sge, REGION_BYTES);
	post_send(&stage->a, &wr);
	return cq_expect(stage->a.send_cq, 2, IBV_WC_SUCCESS) &&
	       all_are(stage->setup->b_mem.addr, REGION_BYTES, 0x11);
}

/* One request each to whom @b says, on a new connection. */
static bool none_answered(struct stage *stage, const struct endpoint_address *b,
			  const enum ibv_wr_opcode *opcodes, unsigned int count)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	unsigned int i;

	for (i = 0; i < count; i++) {
		endpoint_go(&stage->a, IBV_QPS_RESET);
		endpoint_connect(&stage->a, b);
		wr = request(stage, i, opcodes[i], &sge, 8);
		post_send(&stage->a, &wr);
		if (!check(cq_expect(stage->a.send_cq, i, IBV_WC_RETRY_EXC_ERR),
			   "that was %s", opcode_name(opcodes[i])))
			return false;
	}
	return true;
}

static bool to_multicast(struct stage *stage)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	struct endpoint_options options = impatient(IBV_QPT_RC);
	struct endpoint_address b;

	create(stage, &options);
	b = endpoint_address(&stage->b);
	b.qp_num = MULTICAST_QPN;
	return none_answered(stage, &b, opcodes, COUNT(opcodes)) &&
	       all_are(stage->setup->a_mem.addr, 8, 0x11);
}

/* Without a word to the sender; the test looks at the other side's counter. */
static bool dropped(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UC);
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	create(stage, &options);
	pair_connect(&stage->a, &stage->b);
	wr = request(stage, 1, IBV_WR_RDMA_WRITE, &sge, LARGE_BYTES);
	wr.wr.rdma.rkey ^= 0x5a5a5a00;
	post_send(&stage->a, &wr);
	wr = request(stage, 2, IBV_WR_SEND, &sge, LARGE_BYTES);
	post_send(&stage->a, &wr);
	if (!cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) ||
	    !cq_expect(stage->a.send_cq, 2, IBV_WC_SUCCESS))
		return false;
	/* the next one arrives, so those before have been seen */
	wr = request(stage, 3, IBV_WR_SEND, &sge, 0);
	post_recv(&stage->b, 9, NULL, 0);
	post_send(&stage->a, &wr);
	return cq_expect(stage->b.recv_cq, 9, IBV_WC_SUCCESS) &&
	       all_are(stage->setup->b_mem.addr, REGION_BYTES, FILL_BYTE);
}

/* Nor is it written to, or received by, if the number is an XRC initiator's. */
static bool to_initiator(struct stage *stage)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM
	};
	const struct endpoint_options options = impatient(IBV_QPT_XRC_SEND);
	struct endpoint_address b;

	create(stage, &options);
	connect_ahead(stage, 0);
	b = endpoint_address(&stage->b);
	return none_answered(stage, &b, opcodes, COUNT(opcodes)) &&
	       all_are(stage->setup->b_mem.addr, REGION_BYTES, FILL_BYTE);
}

static const struct {
	bool (*run)(struct stage *stage);
	const char *name;
} cases[] = {
	{ behind_short, "behind refused requests nothing is carried out" },
	{ behind_large, "nor behind large ones" },
	{ begun_again, "begun again with the PSN that is expected" },
	{ to_multicast, "the number of a group's queue pairs is none of RC" },
	{ to_initiator, "an XRC initiator takes no requests" },
	{ dropped, "UC: what is dropped is lost without a word" },
};

static bool run_case(struct setup *setup, unsigned int i)
{
	struct stage stage = { .setup = setup };
	bool ok;

	fill(&stage);
	ok = cases[i].run(&stage);
	pair_destroy(&stage.a, &stage.b);
	return ok;
}

int main(int argc, char **argv)
{
	struct neighbours neighbours;
	struct setup setup;
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	neighbours_open(&neighbours, &setup);
	for (i = 0; i < COUNT(cases); i++)
		tap_ok(run_case(&setup, i) && neighbours_work(&neighbours),
		       "%s", cases[i].name);
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
