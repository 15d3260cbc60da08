// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Messages of max_msg_sz bytes, and of one more, whoever executes them. Each side has a
 * few pages at many addresses, so that it need not have as much memory as a message.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "executed.h"
#include "measure.h"
#include "memory.h"
#include "setup.h"
#include "srq.h"
#include "tap.h"
#include "work.h"

#define GIB (1UL << 30)
#define MIB (1UL << 20)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { HERE = 0x33, THERE = 0x66, REQUEST_ID = 1, RECEIVE_ID = 2 };

static const size_t memory_bytes = 32 * MIB;
static const size_t mapped_bytes = GIB + 32 * MIB;

struct side {
	uint8_t *memory;
	struct ibv_mr *mr;
};

static struct setup setup;
static struct side here, there;
static struct ibv_mr *null_mr;
static uint64_t most;

static void open_side(struct side *side, struct ibv_pd *pd)
{
	side->memory = map_repeated(mapped_bytes, memory_bytes);
	side->mr = ibv_reg_mr(pd, side->memory, mapped_bytes, ACCESS_ALL);
	tap_must(side->mr, "ibv_reg_mr");
}

static void close_side(struct side *side)
{
	tap_must(!ibv_dereg_mr(side->mr), "ibv_dereg_mr");
	munmap(side->memory, mapped_bytes);
}

static bool is_read(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_READ;
}

/* Of @length bytes in @pieces, here in @local; its completion in @wc. */
static bool moves(struct endpoint *ep, enum ibv_wr_opcode opcode,
		  const struct ibv_mr *local, uint32_t pieces, uint64_t length,
		  struct ibv_wc *wc)
{
	struct ibv_sge sges[2];
	uint64_t left = length;
	struct ibv_send_wr wr = send_wr(REQUEST_ID, opcode, sges, pieces);
	uint32_t i;

	for (i = 0; i < pieces; i++) {
		uint64_t bytes = i + 1 < pieces ? length / pieces : left;

		sges[i].addr = (uintptr_t)local->addr + (length - left);
		sges[i].length = bytes;
		sges[i].lkey = local->lkey;
		left -= bytes;
	}
	if (opcode_has_remote(opcode))
		send_wr_aim(&wr, (uintptr_t)there.memory, there.mr->rkey);
	post_send(ep, &wr);
	return cq_wait(ep->send_cq, wc) &&
	       check(wc->wr_id == REQUEST_ID, "another request's");
}

/* All of it, at the beginning, at the end, and between. */
static bool has_come(enum ibv_wr_opcode opcode, uint8_t value)
{
	const uint8_t *memory = is_read(opcode) ? here.memory : there.memory;

	return all_are(memory, memory_bytes, value);
}

static void clear(void)
{
	memset(here.memory, HERE, memory_bytes);
	memset(there.memory, THERE, memory_bytes);
}

struct kind {
	const char *name;
	enum ibv_wr_opcode opcode;
	uint32_t pieces;
	/* by this process, which knows no keys of null regions */
	bool direct;
};

static bool of_most(const struct kind *kind)
{
	const struct ibv_mr *local = kind->direct ? here.mr : null_mr;
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	const uint8_t value = is_read(kind->opcode) ? THERE :
			      kind->direct	    ? HERE :
						      0;
	struct endpoint a, b;
	struct ibv_wc wc;
	uint64_t direct;
	bool ok;

	clear();
	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	direct = executed_here(&a);
	ok = moves(&a, kind->opcode, local, kind->pieces, most, &wc) &&
	     check(wc.status == IBV_WC_SUCCESS, "%s",
		   ibv_wc_status_str(wc.status)) &&
	     check(executed_here(&a) - direct == kind->direct,
		   "it is not executed as it is to be") &&
	     /* what a null region has read is gone */
	     (!kind->direct && is_read(kind->opcode) ?
		      true :
		      has_come(kind->opcode, value));
	pair_destroy(&a, &b);
	return ok;
}

static bool one_more(const struct kind *kind)
{
	const struct ibv_mr *local = kind->direct ? here.mr : null_mr;
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint a, b;
	struct ibv_wc wc;
	bool ok;

	clear();
	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	ok = moves(&a, kind->opcode, local, kind->pieces, most + 1, &wc) &&
	     check(wc.status == IBV_WC_LOC_LEN_ERR, "%s",
		   ibv_wc_status_str(wc.status)) &&
	     check(endpoint_state(&a) == IBV_QPS_ERR, "no error state") &&
	     has_come(IBV_WR_RDMA_WRITE, THERE) &&
	     has_come(IBV_WR_RDMA_READ, HERE);
	pair_destroy(&a, &b);
	return ok;
}

/* What takes a receive, which is not used up by one byte more. */
static bool received(enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	const enum ibv_qp_state failed = type == IBV_QPT_UC ? IBV_QPS_SQE :
							      IBV_QPS_ERR;
	struct endpoint_options options = endpoint_options(type);
	struct ibv_sge sge = { .addr = (uintptr_t)there.memory,
			       .length = most,
			       .lkey = there.mr->lkey };
	struct endpoint a, b;
	struct ibv_wc wc;
	bool ok;

	clear();
	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	post_recv(&b, RECEIVE_ID, &sge, 1);
	ok = moves(&a, opcode, here.mr, 1, most, &wc) &&
	     check(wc.status == IBV_WC_SUCCESS, "%s",
		   ibv_wc_status_str(wc.status)) &&
	     cq_success(b.recv_cq, RECEIVE_ID, &wc) &&
	     check(wc.byte_len == most, "%u bytes", wc.byte_len) &&
	     has_come(opcode, HERE);
	clear();
	post_recv(&b, RECEIVE_ID, &sge, 1);
	ok = ok && moves(&a, opcode, here.mr, 1, most + 1, &wc) &&
	     check(wc.status == IBV_WC_LOC_LEN_ERR, "one byte more: %s",
		   ibv_wc_status_str(wc.status)) &&
	     check(endpoint_state(&a) == failed, "the sender is not in %s",
		   state_name(failed)) &&
	     check(!ibv_poll_cq(b.recv_cq, 1, &wc), "the receive is used up") &&
	     has_come(opcode, THERE);
	pair_destroy(&a, &b);
	return ok;
}

static bool send_of_most(void)
{
	return received(IBV_QPT_RC, IBV_WR_SEND);
}

static bool send_with_imm_of_most(void)
{
	return received(IBV_QPT_RC, IBV_WR_SEND_WITH_IMM);
}

static bool write_with_imm_of_most(void)
{
	return received(IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM);
}

static bool uc_send_of_most(void)
{
	return received(IBV_QPT_UC, IBV_WR_SEND);
}

static bool uc_write_with_imm_of_most(void)
{
	return received(IBV_QPT_UC, IBV_WR_RDMA_WRITE_WITH_IMM);
}

/* Whose length is looked at before the key that there is not. */
static bool one_more_with_inv(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_sge sge = { .addr = (uintptr_t)there.memory,
			       .length = most,
			       .lkey = there.mr->lkey };
	struct endpoint a, b;
	struct ibv_wc wc;
	bool ok;

	clear();
	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	post_recv(&b, RECEIVE_ID, &sge, 1);
	ok = moves(&a, IBV_WR_SEND_WITH_INV, here.mr, 1, most + 1, &wc) &&
	     check(wc.status == IBV_WC_LOC_LEN_ERR, "%s",
		   ibv_wc_status_str(wc.status)) &&
	     check(!ibv_poll_cq(b.recv_cq, 1, &wc), "the receive is used up") &&
	     check(endpoint_state(&b) == IBV_QPS_RTS, "the peer has left RTS");
	pair_destroy(&a, &b);
	return ok;
}

/* A WRITE, which needs nobody's receive, and one byte more. */
static bool written(struct endpoint *a, uint32_t srqn)
{
	struct ibv_sge sge = { .addr = (uintptr_t)here.memory,
			       .length = most,
			       .lkey = here.mr->lkey };
	struct ibv_send_wr wr = send_wr(REQUEST_ID, IBV_WR_RDMA_WRITE, &sge, 1);
	bool ok;

	clear();
	wr.qp_type.xrc.remote_srqn = srqn;
	send_wr_aim(&wr, (uintptr_t)there.memory, there.mr->rkey);
	post_send(a, &wr);
	ok = cq_expect(a->send_cq, REQUEST_ID, IBV_WC_SUCCESS) &&
	     has_come(IBV_WR_RDMA_WRITE, HERE);
	clear();
	sge.length++;
	post_send(a, &wr);
	return ok && cq_expect(a->send_cq, REQUEST_ID, IBV_WC_LOC_LEN_ERR) &&
	       has_come(IBV_WR_RDMA_WRITE, THERE);
}

static bool uc_write_of_most(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UC);
	struct endpoint a, b;
	bool ok;

	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	ok = written(&a, 0);
	pair_destroy(&a, &b);
	return ok;
}

static void open_xrc(struct xrc *xrc)
{
	xrc_open_domain(xrc, &setup);
	xrc->srq[0] = xrc_create_srq(xrc, 1, 1);
	xrc_connect(xrc);
}

static bool xrc_write_of_most(void)
{
	struct ibv_send_wr wr;
	struct xrc xrc;
	bool ok;

	open_xrc(&xrc);
	xrc_aim(&xrc, 0, &wr);
	ok = written(&xrc.a, wr.qp_type.xrc.remote_srqn);
	xrc_close(&xrc);
	return ok;
}

/* Into a receive of the queue that it names, which stays for one byte more. */
static bool xrc_send_of_most(void)
{
	struct ibv_sge from = { .addr = (uintptr_t)here.memory,
				.length = most,
				.lkey = here.mr->lkey };
	struct ibv_sge to = { .addr = (uintptr_t)there.memory,
			      .length = most,
			      .lkey = there.mr->lkey };
	struct ibv_recv_wr *bad,
		receive = { .wr_id = RECEIVE_ID, .sg_list = &to, .num_sge = 1 };
	struct ibv_send_wr wr = send_wr(REQUEST_ID, IBV_WR_SEND, &from, 1);
	struct xrc xrc;
	bool ok;

	open_xrc(&xrc);
	xrc_aim(&xrc, 0, &wr);
	clear();
	ok = check(!ibv_post_srq_recv(xrc.srq[0], &receive, &bad), "receive");
	post_send(&xrc.a, &wr);
	ok = ok && cq_expect(xrc.a.send_cq, REQUEST_ID, IBV_WC_SUCCESS) &&
	     cq_expect(xrc.cq, RECEIVE_ID, IBV_WC_SUCCESS) &&
	     has_come(IBV_WR_SEND, HERE);
	clear();
	from.length++;
	ok = ok &&
	     check(!ibv_post_srq_recv(xrc.srq[0], &receive, &bad), "receive");
	post_send(&xrc.a, &wr);
	ok = ok && cq_expect(xrc.a.send_cq, REQUEST_ID, IBV_WC_LOC_LEN_ERR) &&
	     cq_stays_empty(xrc.cq, 0) && has_come(IBV_WR_SEND, THERE);
	xrc_close(&xrc);
	return ok;
}

static const struct kind kinds[] = {
	{ "WRITE", IBV_WR_RDMA_WRITE, 2, false },
	{ "READ", IBV_WR_RDMA_READ, 2, false },
	{ "direct WRITE", IBV_WR_RDMA_WRITE, 1, true },
	{ "direct READ", IBV_WR_RDMA_READ, 1, true },
	{ "direct WRITE of two pieces", IBV_WR_RDMA_WRITE, 2, true },
	{ "direct READ of two pieces", IBV_WR_RDMA_READ, 2, true },
};

static const struct {
	const char *name;
	bool (*run)(void);
} others[] = {
	{ "SEND of max_msg_sz, and one byte more", send_of_most },
	{ "SEND with immediate data of max_msg_sz, and one byte more",
	  send_with_imm_of_most },
	{ "WRITE with immediate data of max_msg_sz, and one byte more",
	  write_with_imm_of_most },
	{ "SEND with invalidation of one byte more", one_more_with_inv },
	{ "UC: WRITE of max_msg_sz, and one byte more", uc_write_of_most },
	{ "UC: SEND of max_msg_sz, and one byte more", uc_send_of_most },
	{ "UC: WRITE with immediate data of max_msg_sz, and one byte more",
	  uc_write_with_imm_of_most },
	{ "XRC: WRITE of max_msg_sz, and one byte more", xrc_write_of_most },
	{ "XRC: SEND of max_msg_sz, and one byte more", xrc_send_of_most },
};

int main(int argc, char **argv)
{
	unsigned int i;

	setup_open(&setup, &argc, argv, PAGE_BYTES);
	most = setup.a_dev.port.max_msg_sz;
	tap_ok(most >= GIB && most < mapped_bytes - PAGE_BYTES,
	       "max_msg_sz is 1 GiB");
	open_side(&here, setup.a_dev.pd);
	open_side(&there, setup.b_dev.pd);
	null_mr = ibv_alloc_null_mr(setup.a_dev.pd);
	tap_must(null_mr, "ibv_alloc_null_mr");
	for (i = 0; i < COUNT(kinds); i++) {
		tap_ok(of_most(&kinds[i]), "%s of max_msg_sz", kinds[i].name);
		tap_ok(one_more(&kinds[i]), "%s of one byte more",
		       kinds[i].name);
	}
	for (i = 0; i < COUNT(others); i++)
		tap_ok(others[i].run(), "%s", others[i].name);
	tap_must(!ibv_dereg_mr(null_mr), "ibv_dereg_mr");
	close_side(&there);
	close_side(&here);
	setup_close(&setup);
	return tap_end();
}
