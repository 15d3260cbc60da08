// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Operations that a type of queue pairs does not have: none of them can be posted,
 * nor be asked for when the queue pair is made, and refusing them harms nothing.
 */
#include <errno.h>
#include <string.h>

#include "event.h"
#include "faults.h"
#include "tap.h"
#include "work.h"

static const struct {
	enum ibv_qp_type type;
	const char *name;
	unsigned int has; /* a bit for each opcode */
} types[] = {
	{ IBV_QPT_UC, "UC", UNRELIABLE },
	{ IBV_QPT_UD, "UD", BIT(IBV_WR_SEND) | BIT(IBV_WR_SEND_WITH_IMM) },
};

static uint64_t flag_of(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
		return IBV_QP_EX_WITH_RDMA_WRITE;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	case IBV_WR_RDMA_READ:
		return IBV_QP_EX_WITH_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	case IBV_WR_SEND_WITH_INV:
		return IBV_QP_EX_WITH_SEND_WITH_INV;
	case IBV_WR_ATOMIC_WRITE:
		return IBV_QP_EX_WITH_ATOMIC_WRITE;
	case IBV_WR_LOCAL_INV:
		return IBV_QP_EX_WITH_LOCAL_INV;
	case IBV_WR_BIND_MW:
		return IBV_QP_EX_WITH_BIND_MW;
	default:
		return IBV_QP_EX_WITH_SEND;
	}
}

/* With the last request of a list that is fine but for that. */
static bool post_is_refused(struct setup *setup, struct endpoint *a,
			    struct endpoint *b, enum ibv_wr_opcode opcode)
{
	struct ibv_ah *ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 8);
	struct ibv_sge to = region_sge(&setup->b_mem, RECEIVE_OFFSET,
				       RECEIVE_BYTES);
	struct ibv_send_wr wr[2], *bad = NULL;
	int error;
	bool ok;

	wr[0] = send_wr(GOOD_ID, IBV_WR_SEND, &sge, 1);
	wr[0].wr.ud.ah = ah;
	wr[0].wr.ud.remote_qpn = b->qp->qp_num;
	wr[0].wr.ud.remote_qkey = ENDPOINT_QKEY;
	wr[1] = wr[0];
	wr[1].wr_id = BAD_ID;
	wr[1].opcode = opcode;
	if (a->options.type != IBV_QPT_UD) {
		wr[1].wr.rdma.remote_addr = setup->b_mem.rdma_addr;
		wr[1].wr.rdma.rkey = setup->b_mem.mr->rkey;
	}
	wr[0].next = &wr[1];
	post_recv(b, GOOD_ID, &to, 1);
	error = ibv_post_send(a->qp, wr, &bad);
	ok = check(error == EINVAL && bad == &wr[1], "posting it: %s",
		   strerror(error)) &&
	     cq_expect(a->send_cq, GOOD_ID, IBV_WC_SUCCESS) &&
	     cq_expect(b->recv_cq, GOOD_ID, IBV_WC_SUCCESS) &&
	     cq_stays_empty(a->send_cq, 0) &&
	     check(endpoint_state(a) == IBV_QPS_RTS &&
			   endpoint_state(b) == IBV_QPS_RTS,
		   "a queue pair has left RTS");
	return check(!ibv_destroy_ah(ah), "ibv_destroy_ah fails") && ok;
}

static bool creation_is_refused(struct endpoint *a, enum ibv_wr_opcode opcode)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = a->send_cq,
		.recv_cq = a->recv_cq,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		.qp_type = a->options.type,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = a->dev->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | flag_of(opcode),
	};
	struct ibv_qp *qp = ibv_create_qp_ex(a->dev->ctx, &attr);

	if (!qp)
		return check(errno == EOPNOTSUPP, "a QP with it: %s",
			     strerror(errno));
	ibv_destroy_qp(qp);
	return check(false, "there is a QP with it");
}

static bool is_refused(struct setup *setup, enum ibv_qp_type type,
		       enum ibv_wr_opcode opcode)
{
	struct endpoint_options options = endpoint_options(type);
	struct endpoint a, b;
	bool ok;

	pair_create(&a, &setup->a_dev, &b, &setup->b_dev, &options);
	ok = post_is_refused(setup, &a, &b, opcode) &&
	     creation_is_refused(&a, opcode) && events_none(setup->a_dev.ctx) &&
	     events_none(setup->b_dev.ctx);
	pair_destroy(&a, &b);
	return ok;
}

/* The halves of XRC: one does not receive, the other does not send. */
static bool halves(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_send_wr wr = send_wr(BAD_ID, IBV_WR_SEND, NULL, 0);
	struct scene scene;
	bool ok;

	scene_open(&scene, setup, OVER_XRC, IBV_WR_SEND, &options);
	ok = check(try_post_recv(&scene.a, BAD_ID, NULL, 0) == EINVAL,
		   "an initiator takes a receive") &&
	     check(try_post_recv(&scene.b, BAD_ID, NULL, 0) == EINVAL,
		   "a target takes a receive") &&
	     check(try_post_send(&scene.b, &wr) == EINVAL, "a target sends") &&
	     scene_works(&scene, GOOD_ID);
	scene_close(&scene);
	return ok;
}

void run_refused(struct setup *setup, struct neighbours *neighbours)
{
	unsigned int i, k;

	for (i = 0; i < COUNT(types); i++)
		for (k = 0; k < opcode_count; k++)
			if (!(types[i].has & BIT(opcodes[k])))
				tap_ok(is_refused(setup, types[i].type,
						  opcodes[k]) &&
					       neighbours_work(neighbours),
				       "%s, %s: refused", types[i].name,
				       opcode_name(opcodes[k]));
	tap_ok(halves(setup) && neighbours_work(neighbours),
	       "XRC: a target does not send, and none of the two receives");
}
