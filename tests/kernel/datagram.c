// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A kernel consumer's datagrams: address handles, what the receiver learns, answers, and
 * what becomes of those that are wrong. Loading the module runs one case; that fails if
 * the case does, and the log says why.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/gfp.h>
#include <linux/module.h>
#include <linux/string.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#include "cases.h"
#include "side.h"

#define TEST_PORT	1
#define TEST_QKEY	0x1234567
#define TEST_BYTES	200
#define TEST_ROOM	1024	/* of a receive */
#define TEST_IMM	0x600dcafe
#define TEST_WRONG	0x00a5a500	/* makes a key another one */
#define TEST_ORDER	1	/* pages of a buffer: more than the largest MTU */

enum {
	TEST_SENT = 1,
	TEST_LATE,
	TEST_RECEIVE = 100,
	TEST_RECEIVES = 2,
};

/**
 * struct bench - what a case works with
 * @near: sends
 * @far: receives
 * @ah: leads from @near to @far
 * @out: what is sent
 * @in: what it is received in
 * @strange: another domain of @near's device
 * @mr: a region there
 */
struct bench {
	struct side near;
	struct side far;
	struct ib_ah *ah;
	u8 *out;
	u8 *in;
	struct ib_pd *strange;
	struct ib_mr *mr;
};

/* --- queue pairs and handles ---------------------------------------------------- */

static int to_rts(struct side *side)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT, .port_num = TEST_PORT, .qkey = TEST_QKEY,
	};
	int err = ib_modify_qp(side->qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			       IB_QP_PORT | IB_QP_QKEY);

	attr.qp_state = IB_QPS_RTR;
	err = err ?: ib_modify_qp(side->qp, &attr, IB_QP_STATE);
	attr.qp_state = IB_QPS_RTS;
	return err ?: ib_modify_qp(side->qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN);
}

/* The handle's address is resolved already, as a kernel consumer has to. */
static struct ib_ah *create_ah(const struct side *from, const struct side *to, u32 flags)
{
	const struct ib_gid_attr *gid = rdma_get_gid_attr(to->dev, TEST_PORT,
							  to->gid_index);
	struct rdma_ah_attr attr = {
		.type = rdma_ah_find_type(from->dev, TEST_PORT),
	};
	union ib_gid dgid = to->gid;
	int err;

	if (IS_ERR(gid))
		return ERR_CAST(gid);
	err = rdma_read_gid_l2_fields(gid, NULL, attr.roce.dmac);
	rdma_put_gid_attr(gid);
	if (err)
		return ERR_PTR(err);
	rdma_ah_set_port_num(&attr, TEST_PORT);
	rdma_ah_set_grh(&attr, &dgid, 0, from->gid_index, 64, 0);
	rdma_ah_set_static_rate(&attr, IB_RATE_10_GBPS);
	return rdma_create_ah(from->pd, &attr, flags);
}

static void destroy_ah(struct ib_ah *ah)
{
	if (!IS_ERR_OR_NULL(ah))
		rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
}

static void bench_close(struct bench *bench)
{
	side_destroy_qp(&bench->near);
	side_destroy_qp(&bench->far);
	destroy_ah(bench->ah);
	if (!IS_ERR_OR_NULL(bench->mr))
		ib_dereg_mr(bench->mr);
	if (!IS_ERR_OR_NULL(bench->strange))
		ib_dealloc_pd(bench->strange);
	side_close(&bench->near);
	side_close(&bench->far);
	free_pages((unsigned long)bench->out, TEST_ORDER);
	free_pages((unsigned long)bench->in, TEST_ORDER);
}

static int create_qps(struct bench *bench)
{
	return side_create_qp(&bench->near, NULL) ?:
	       side_create_qp(&bench->far, NULL) ?: to_rts(&bench->near) ?:
	       to_rts(&bench->far);
}

static int bench_open(struct bench *bench, const char *device, const char *peer)
{
	int err = side_open(&bench->near, device) ?: side_open(&bench->far, peer);

	if (err)
		return err;
	bench->near.type = IB_QPT_UD;
	bench->far.type = IB_QPT_UD;
	bench->out = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, TEST_ORDER);
	bench->in = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, TEST_ORDER);
	if (!bench->out || !bench->in)
		return -ENOMEM;
	bench->ah = create_ah(&bench->near, &bench->far, RDMA_CREATE_AH_SLEEPABLE);
	return PTR_ERR_OR_ZERO(bench->ah) ?: create_qps(bench);
}

/* --- sending and receiving -------------------------------------------------------- */

static int expect_number(const char *what, int number, int expected)
{
	if (number == expected)
		return 0;
	pr_err("%s: %d instead of %d\n", what, number, expected);
	return -EIO;
}

static int expect_wc(struct side *side, u64 id, enum ib_wc_status status,
		     struct ib_wc *wc)
{
	int err = side_wait(side, wc);

	if (err) {
		pr_err("%llu does not complete: %d\n", id, err);
	} else if (wc->wr_id != id || wc->status != status) {
		pr_err("%llu is %s, not %llu %s\n", wc->wr_id,
		       ib_wc_status_msg(wc->status), id, ib_wc_status_msg(status));
		err = -EIO;
	}
	return err;
}

static int expect(struct side *side, u64 id, enum ib_wc_status status)
{
	struct ib_wc wc;

	return expect_wc(side, id, status, &wc);
}

static int expect_none(struct side *side)
{
	struct ib_wc wc;

	return expect_number("completions", ib_poll_cq(side->cq, 1, &wc), 0);
}

static struct ib_sge piece(const struct side *side, u8 *memory, u32 length)
{
	return (struct ib_sge) {
		(uintptr_t)memory, length, side->pd->local_dma_lkey,
	};
}

static int post_receive(struct side *side, u64 id, struct ib_sge sge)
{
	struct ib_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	return ib_post_recv(side->qp, &wr, NULL);
}

static u8 *slot(const struct bench *bench, int i)
{
	return bench->in + i * TEST_ROOM;
}

static int post_receives(struct bench *bench, int from)
{
	int i, err = 0;

	for (i = from; i < TEST_RECEIVES && !err; i++)
		err = post_receive(&bench->far, TEST_RECEIVE + i,
				   piece(&bench->far, slot(bench, i), TEST_ROOM));
	return err;
}

static struct ib_ud_wr datagram(const struct bench *bench, u64 id,
				enum ib_wr_opcode opcode, struct ib_sge *sge)
{
	return (struct ib_ud_wr) {
		.wr = {
			.wr_id = id, .opcode = opcode, .sg_list = sge, .num_sge = 1,
			.ex.imm_data = cpu_to_be32(TEST_IMM),
		},
		.ah = bench->ah,
		.remote_qpn = bench->far.qp->qp_num,
		.remote_qkey = TEST_QKEY,
	};
}

/* Does the receive have the data, a header before it and nothing behind it? */
static int check_received(struct bench *bench, const struct ib_wc *wc,
			  enum ib_wr_opcode opcode, int i)
{
	bool imm = opcode == IB_WR_SEND_WITH_IMM;
	u8 *in = slot(bench, i) + sizeof(struct ib_grh);

	if (memcmp(in, bench->out, TEST_BYTES) ||
	    memchr_inv(in + TEST_BYTES, 0,
		       TEST_ROOM - sizeof(struct ib_grh) - TEST_BYTES)) {
		pr_err("other bytes\n");
		return -EIO;
	}
	return expect_number("length", wc->byte_len,
			     sizeof(struct ib_grh) + TEST_BYTES) ?:
	       expect_number("sender", wc->src_qp, bench->near.qp->qp_num) ?:
	       expect_number("a header", !!(wc->wc_flags & IB_WC_GRH), true) ?:
	       expect_number("immediate data", !!(wc->wc_flags & IB_WC_WITH_IMM),
			     imm) ?:
	       expect_number("its value", imm ? be32_to_cpu(wc->ex.imm_data) : 0,
			     imm ? TEST_IMM : 0);
}

static int send_one(struct bench *bench, enum ib_wr_opcode opcode, struct ib_wc *wc)
{
	struct ib_sge sge = piece(&bench->near, bench->out, TEST_BYTES);
	struct ib_ud_wr wr = datagram(bench, TEST_SENT, opcode, &sge);

	memset(bench->in, 0, PAGE_SIZE << TEST_ORDER);
	memset(bench->out, 0x40 + opcode, TEST_BYTES);
	return post_receives(bench, TEST_RECEIVES - 1) ?:
	       ib_post_send(bench->near.qp, &wr.wr, NULL) ?:
	       expect(&bench->near, TEST_SENT, IB_WC_SUCCESS) ?:
	       expect_wc(&bench->far, TEST_RECEIVE + TEST_RECEIVES - 1,
			 IB_WC_SUCCESS, wc) ?:
	       check_received(bench, wc, opcode, TEST_RECEIVES - 1);
}

/* --- what is right ------------------------------------------------------------------ */

/* With handles of either kind, and one after the other. */
static int test_arrives(struct bench *bench)
{
	struct rdma_ah_attr attr;
	struct ib_wc wc;
	int err = send_one(bench, IB_WR_SEND, &wc) ?:
		  send_one(bench, IB_WR_SEND_WITH_IMM, &wc);

	destroy_ah(bench->ah);
	bench->ah = create_ah(&bench->near, &bench->far, 0);
	err = err ?: PTR_ERR_OR_ZERO(bench->ah) ?:
	      send_one(bench, IB_WR_SEND_WITH_IMM, &wc) ?:
	      rdma_query_ah(bench->ah, &attr);
	if (err)
		return err;
	return expect_number("another address",
			     memcmp(&rdma_ah_read_grh(&attr)->dgid, &bench->far.gid,
				    sizeof(union ib_gid)), 0) ?:
	       expect_number("rate", rdma_ah_get_static_rate(&attr),
			     IB_RATE_10_GBPS);
}

/* To whoever a datagram came from, by what came with it. */
static int test_answer(struct bench *bench)
{
	struct ib_sge sge = piece(&bench->far, bench->out, TEST_BYTES);
	struct ib_ud_wr wr = datagram(bench, TEST_SENT, IB_WR_SEND, &sge);
	struct ib_wc wc, answer;
	int err = send_one(bench, IB_WR_SEND, &wc);

	if (err)
		return err;
	wr.ah = ib_create_ah_from_wc(bench->far.pd, &wc,
				     (struct ib_grh *)slot(bench, TEST_RECEIVES - 1),
				     TEST_PORT);
	if (IS_ERR(wr.ah))
		return PTR_ERR(wr.ah);
	wr.remote_qpn = wc.src_qp;
	err = post_receive(&bench->near, TEST_RECEIVE,
			   piece(&bench->near, bench->in, TEST_ROOM)) ?:
	      ib_post_send(bench->far.qp, &wr.wr, NULL) ?:
	      expect(&bench->far, TEST_SENT, IB_WC_SUCCESS) ?:
	      expect_wc(&bench->near, TEST_RECEIVE, IB_WC_SUCCESS, &answer) ?:
	      expect_number("who answers", answer.src_qp, bench->far.qp->qp_num);
	destroy_ah(wr.ah);
	return err;
}

/* --- what is wrong ------------------------------------------------------------------- */

static int wrong_lkey(struct bench *bench, struct ib_ud_wr *wr)
{
	wr->wr.sg_list->lkey ^= TEST_WRONG;
	return 0;
}

/* The region of all memory of another domain. */
static int strange_lkey(struct bench *bench, struct ib_ud_wr *wr)
{
	bench->strange = ib_alloc_pd(bench->near.dev, 0);
	if (IS_ERR(bench->strange))
		return PTR_ERR(bench->strange);
	wr->wr.sg_list->lkey = bench->strange->local_dma_lkey;
	return 0;
}

/* A region of nothing yet. */
static int invalid_lkey(struct bench *bench, struct ib_ud_wr *wr)
{
	bench->mr = ib_alloc_mr(bench->near.pd, IB_MR_TYPE_MEM_REG, 1);
	if (IS_ERR(bench->mr))
		return PTR_ERR(bench->mr);
	wr->wr.sg_list->lkey = bench->mr->lkey;
	return 0;
}

static int too_long(struct bench *bench, struct ib_ud_wr *wr)
{
	struct ib_port_attr attr;
	int err = ib_query_port(bench->near.dev, TEST_PORT, &attr);

	wr->wr.sg_list->length = ib_mtu_enum_to_int(attr.active_mtu) + 1;
	return err;
}

static int other_opcode(struct bench *bench, struct ib_ud_wr *wr)
{
	wr->wr.opcode = IB_WR_SEND_WITH_INV;
	return 0;
}

/* Where the address handle would be, it has something else. */
static int other_kind(struct bench *bench, struct ib_ud_wr *wr)
{
	struct ib_rdma_wr *write = container_of(&wr->wr, struct ib_rdma_wr, wr);

	write->wr.opcode = IB_WR_RDMA_WRITE;
	write->remote_addr = 1;
	return 0;
}

static int wrong_qkey(struct bench *bench, struct ib_ud_wr *wr)
{
	wr->remote_qkey++;
	return 0;
}

static int wrong_qpn(struct bench *bench, struct ib_ud_wr *wr)
{
	wr->remote_qpn ^= 0x5a5a00;
	return 0;
}

static const struct {
	const char *name;
	int (*arrange)(struct bench *bench, struct ib_ud_wr *wr);
	enum ib_wc_status status;
} faults[] = {
	{ "unknown lkey", wrong_lkey, IB_WC_LOC_PROT_ERR },
	{ "lkey of another PD", strange_lkey, IB_WC_LOC_PROT_ERR },
	{ "lkey of a region that is not registered", invalid_lkey,
	  IB_WC_LOC_PROT_ERR },
	{ "more than the MTU", too_long, IB_WC_LOC_LEN_ERR },
	{ "an operation that UD does not have", other_opcode, IB_WC_LOC_QP_OP_ERR },
	{ "an operation that has an address of its own", other_kind,
	  IB_WC_LOC_QP_OP_ERR },
	{ "wrong Q_Key", wrong_qkey, IB_WC_SUCCESS },
	{ "no such queue pair", wrong_qpn, IB_WC_SUCCESS },
};

/* Another datagram waits behind it; what is lost leaves its receive to that. */
static int run_fault(struct bench *bench, unsigned int i)
{
	struct ib_sge sge = piece(&bench->near, bench->out, TEST_BYTES);
	struct ib_sge good = sge;
	struct ib_ud_wr wr = datagram(bench, TEST_SENT, IB_WR_SEND, &sge);
	struct ib_ud_wr late = datagram(bench, TEST_LATE, IB_WR_SEND, &good);
	bool lost = faults[i].status == IB_WC_SUCCESS;
	int err = faults[i].arrange(bench, &wr) ?: post_receives(bench, 0);

	wr.wr.next = &late.wr;
	err = err ?: ib_post_send(bench->near.qp, &wr.wr, NULL) ?:
	      expect(&bench->near, TEST_SENT, faults[i].status) ?:
	      expect(&bench->near, TEST_LATE,
		     lost ? IB_WC_SUCCESS : IB_WC_WR_FLUSH_ERR) ?:
	      expect_number("state", side_state(&bench->near),
			    lost ? IB_QPS_RTS : IB_QPS_SQE);
	if (!lost)
		err = err ?: expect_none(&bench->far) ?:
		      side_set_state(&bench->near, IB_QPS_RTS) ?:
		      ib_post_send(bench->near.qp, &late.wr, NULL) ?:
		      expect(&bench->near, TEST_LATE, IB_WC_SUCCESS);
	return err ?: expect(&bench->far, TEST_RECEIVE, IB_WC_SUCCESS) ?:
	       expect_none(&bench->far) ?:
	       expect_number("state of the receiver", side_state(&bench->far),
			     IB_QPS_RTS);
}

static int again(struct bench *bench)
{
	side_destroy_qp(&bench->near);
	side_destroy_qp(&bench->far);
	return create_qps(bench);
}

static int test_faults(struct bench *bench)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < ARRAY_SIZE(faults) && !err; i++) {
		err = run_fault(bench, i) ?: again(bench);
		if (err)
			pr_err("%s: %d\n", faults[i].name, err);
	}
	return err;
}

/* The first receive fails, the others are flushed, and the sender does not know. */
static int run_receive(struct bench *bench, struct ib_sge receive,
		       enum ib_wc_status status)
{
	struct ib_sge sge = piece(&bench->near, bench->out, TEST_BYTES);
	struct ib_ud_wr wr = datagram(bench, TEST_SENT, IB_WR_SEND, &sge);

	return post_receive(&bench->far, TEST_RECEIVE, receive) ?:
	       post_receives(bench, 1) ?:
	       ib_post_send(bench->near.qp, &wr.wr, NULL) ?:
	       expect(&bench->near, TEST_SENT, IB_WC_SUCCESS) ?:
	       expect(&bench->far, TEST_RECEIVE, status) ?:
	       expect(&bench->far, TEST_RECEIVE + 1, IB_WC_WR_FLUSH_ERR) ?:
	       expect_number("state of the sender", side_state(&bench->near),
			     IB_QPS_RTS) ?:
	       expect_number("state of the receiver", side_state(&bench->far),
			     IB_QPS_ERR) ?: again(bench);
}

static int test_receives(struct bench *bench)
{
	struct ib_sge sge = piece(&bench->far, bench->in,
				  sizeof(struct ib_grh) + TEST_BYTES - 1);
	int err = run_receive(bench, sge, IB_WC_LOC_LEN_ERR);

	sge.length++;
	sge.lkey ^= TEST_WRONG;
	err = err ?: run_receive(bench, sge, IB_WC_LOC_PROT_ERR);
	if (!err && memchr_inv(bench->in, 0, PAGE_SIZE << TEST_ORDER)) {
		pr_err("a datagram that was refused has been written\n");
		err = -EIO;
	}
	return err;
}

/* By requests of another kind that are flushed. */
static int test_drained(struct bench *bench)
{
	ib_drain_qp(bench->near.qp);
	ib_drain_qp(bench->far.qp);
	return expect_number("state", side_state(&bench->near), IB_QPS_ERR) ?:
	       expect_number("state of the other", side_state(&bench->far),
			     IB_QPS_ERR) ?:
	       again(bench);
}

static const struct test_case tests[] = {
	{ "arrives", test_arrives },
	{ "answer", test_answer },
	{ "faults", test_faults },
	{ "receives", test_receives },
	{ "drained", test_drained },
};

const struct cases cases = {
	.of = tests,
	.count = ARRAY_SIZE(tests),
	.bench_size = sizeof(struct bench),
	.open = bench_open,
	.close = bench_close,
};

MODULE_DESCRIPTION("Datagrams of a kernel consumer");
MODULE_LICENSE("Dual BSD/GPL");
