// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What can be wrong with a request of a kernel consumer: how it is arranged, with
 * which requests, and what comes of it.
 */
#include <linux/bits.h>
#include <linux/err.h>
#include <linux/kernel.h>

#include "status.h"

#define TEST_WRONG	0x00a5a500	/* makes a key another one */

static int invalidate(struct side *side, u32 key)
{
	struct ib_send_wr wr = {
		.opcode = IB_WR_LOCAL_INV, .ex.invalidate_rkey = key,
	};

	return side_execute(side, &wr);
}

/* --- memory of its own -------------------------------------------------------- */

static int wrong_lkey(struct bench *bench)
{
	bench->sge.lkey ^= TEST_WRONG;
	return 0;
}

static int stale_lkey(struct bench *bench)
{
	return invalidate(&bench->near, bench->from.key);
}

/* In the domain of the connection beside. */
static int strange_lkey(struct bench *bench)
{
	int err = memory_register(&bench->strange[0], IB_ACCESS_LOCAL_WRITE);

	if (err)
		return err;
	bench->sge.addr = bench->strange[0].mr->iova;
	bench->sge.lkey = bench->strange[0].key;
	return 0;
}

static int beyond_local(struct bench *bench)
{
	bench->sge.addr += MEMORY_BYTES - bench->sge.length + 1;
	return 0;
}

static int no_local_write(struct bench *bench)
{
	int err = memory_register(&bench->from, IB_ACCESS_REMOTE_READ);

	bench->sge.lkey = bench->from.key;
	return err;
}

static int short_word(struct bench *bench)
{
	bench->sge.length = 4;
	return 0;
}

/* --- memory of the peer ------------------------------------------------------- */

static int wrong_rkey(struct bench *bench)
{
	bench->rdma.rkey ^= TEST_WRONG;
	return 0;
}

static int stale_rkey(struct bench *bench)
{
	return invalidate(&bench->far, bench->to.key);
}

static int strange_rkey(struct bench *bench)
{
	int err = memory_register(&bench->strange[1], IB_ACCESS_LOCAL_WRITE |
				  IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE |
				  IB_ACCESS_REMOTE_ATOMIC);

	if (err)
		return err;
	bench->rdma.remote_addr = ALIGN(bench->strange[1].mr->iova, 8);
	bench->rdma.rkey = bench->strange[1].key;
	return 0;
}

static int beyond_remote(struct bench *bench)
{
	bench->rdma.remote_addr += MEMORY_BYTES - bench->sge.length + 8;
	return 0;
}

static int no_rights(struct bench *bench)
{
	int err = memory_register(&bench->to, IB_ACCESS_LOCAL_WRITE);

	bench->rdma.rkey = bench->to.key;
	return err;
}

static int qp_without_rights(struct bench *bench)
{
	struct ib_qp_attr attr = { .qp_access_flags = 0 };

	return ib_modify_qp(bench->far.qp, &attr, IB_QP_ACCESS_FLAGS);
}

static int misaligned(struct bench *bench)
{
	bench->rdma.remote_addr += 4;
	return 0;
}

/* --- receives, and who has them ------------------------------------------------- */

static int short_receive(struct bench *bench)
{
	bench->receive.length = bench->sge.length - 1;
	return 0;
}

static int wrong_receive(struct bench *bench)
{
	bench->receive.lkey ^= TEST_WRONG;
	return 0;
}

static int strange_receive(struct bench *bench)
{
	int err = memory_register(&bench->strange[1], IB_ACCESS_LOCAL_WRITE);

	if (err)
		return err;
	bench->receive.addr = bench->strange[1].mr->iova;
	bench->receive.lkey = bench->strange[1].key;
	return 0;
}

/* All of the receive but for its first bytes. */
static int receive_beyond(struct bench *bench)
{
	bench->receive.addr = bench->to.mr->iova + MEMORY_BYTES - 4;
	bench->receive.lkey = bench->to.key;
	return 0;
}

static int no_receive(struct bench *bench)
{
	bench->receives = 0;
	return 0;
}

static int peer_in_error(struct bench *bench)
{
	return side_set_state(&bench->far, IB_QPS_ERR);
}

/* With receives, which go with it. */
static int peer_in_reset(struct bench *bench)
{
	int err = post_receives(bench) ?:
		  side_set_state(&bench->far, IB_QPS_RESET);

	bench->receives = 0;
	return err;
}

static int peer_destroyed(struct bench *bench)
{
	int err = post_receives(bench);

	side_destroy_qp(&bench->far);
	bench->receives = 0;
	return err;
}

/* --- keys that change ----------------------------------------------------------- */

static int wrong_invalidation(struct bench *bench)
{
	bench->request.wr.ex.invalidate_rkey = bench->to.key ^ TEST_WRONG;
	return 0;
}

/* It may be invalidated, but by requests of its own domain. */
static int strange_invalidation(struct bench *bench, struct memory *strange)
{
	int err = memory_register(strange, IB_ACCESS_REMOTE_READ);

	bench->request.wr.ex.invalidate_rkey = strange->key;
	bench->kept = strange;
	return err;
}

static int strange_near_invalidation(struct bench *bench)
{
	return strange_invalidation(bench, &bench->strange[0]);
}

static int strange_far_invalidation(struct bench *bench)
{
	return strange_invalidation(bench, &bench->strange[1]);
}

/* The domain's region of all memory, which no work request has made. */
static int other_near_invalidation(struct bench *bench)
{
	bench->request.wr.ex.invalidate_rkey = bench->near.pd->local_dma_lkey;
	return 0;
}

static int other_far_invalidation(struct bench *bench)
{
	bench->request.wr.ex.invalidate_rkey = bench->far.pd->local_dma_lkey;
	return 0;
}

static int wrong_registration(struct bench *bench)
{
	bench->reg.key ^= TEST_WRONG;
	return 0;
}

/* The same region by another key: it is in use under the one that it has. */
static int next_registration(struct bench *bench)
{
	bench->reg.key = ib_inc_rkey(bench->reg.key);
	return 0;
}

static int destroyed_registration(struct bench *bench)
{
	int err = memory_map(&bench->strange[0]);

	bench->reg.key = bench->strange[0].key;
	memory_forget(&bench->strange[0]);
	return err;
}

/* Nothing is wrong with it but for whose it is. */
static int strange_registration(struct bench *bench)
{
	int err = memory_map(&bench->strange[0]);

	bench->reg.mr = bench->strange[0].mr;
	bench->reg.key = bench->strange[0].key;
	return err;
}

/* The domain's region of all memory, which no work request has made. */
static int other_registration(struct bench *bench)
{
	bench->reg.key = bench->near.pd->local_dma_lkey;
	return 0;
}

static int nothing_wrong(struct bench *bench)
{
	return 0;
}

/* -------------------------------------------------------------------------- */

#define LOCAL(what)	{ what, FAR_UNTOUCHED, 0, 0 }
#define REMOTE(what, which) { what, FAR_FLUSHED, 0, which }
#define RECEIVE(what, in, which) { what, FAR_FAILED, in, which }
#define LOST		{ IB_WC_SUCCESS, FAR_NEXT, 0, 0 }
#define FINE		{ IB_WC_SUCCESS, FAR_BOTH, 0, 0 }
#define UNBOUND		LOCAL(IB_WC_MW_BIND_ERR)
#define PROTECTED	LOCAL(IB_WC_LOC_PROT_ERR)
#define UNABLE_HERE	LOCAL(IB_WC_LOC_QP_OP_ERR)
#define REFUSED		REMOTE(IB_WC_REM_ACCESS_ERR, IB_EVENT_QP_ACCESS_ERR)
#define UNABLE		REMOTE(IB_WC_REM_INV_REQ_ERR, IB_EVENT_QP_REQ_ERR)
#define UNRECEIVED(what) RECEIVE(what, IB_WC_LOC_PROT_ERR, 0)
#define KEPT(what)	RECEIVE(what, IB_WC_LOC_ACCESS_ERR, IB_EVENT_QP_ACCESS_ERR)
#define SILENCE(what)	{ what, FAR_GONE, 0, 0 }

#define OP(opcode)	BIT_ULL(IB_WR_##opcode)
#define SENDS	(OP(SEND) | OP(SEND_WITH_IMM) | OP(SEND_WITH_INV))
#define ATOMICS	(OP(ATOMIC_FETCH_AND_ADD) | OP(ATOMIC_CMP_AND_SWP))
#define NAMES	(OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM) | OP(RDMA_READ) | ATOMICS)
#define MOVES	(SENDS | NAMES)

const struct fault faults[] = {
	{ "nothing", MOVES | OP(LOCAL_INV), nothing_wrong, FINE, FINE },
	{ "unknown lkey", MOVES, wrong_lkey, PROTECTED, PROTECTED },
	{ "invalidated lkey", MOVES, stale_lkey, PROTECTED, PROTECTED },
	{ "lkey of another PD", MOVES, strange_lkey, PROTECTED, PROTECTED },
	{ "beyond the local region", MOVES, beyond_local, PROTECTED, PROTECTED },
	{ "no local write", OP(RDMA_READ) | ATOMICS, no_local_write,
	  LOCAL(IB_WC_LOC_PROT_ERR), LOCAL(0) },
	{ "word of 4 bytes", ATOMICS, short_word,
	  LOCAL(IB_WC_LOC_LEN_ERR), LOCAL(0) },
	{ "unknown key to invalidate", OP(LOCAL_INV), wrong_invalidation,
	  UNABLE_HERE, UNABLE_HERE },
	{ "key to invalidate of another PD", OP(LOCAL_INV),
	  strange_near_invalidation, UNABLE_HERE, UNABLE_HERE },
	{ "key that no request has made, to invalidate", OP(LOCAL_INV),
	  other_near_invalidation, UNABLE_HERE, UNABLE_HERE },
	{ "a key that was invalidated, registered again", OP(REG_MR), stale_lkey,
	  FINE, FINE },
	{ "a key that is valid, registered", OP(REG_MR), nothing_wrong,
	  UNBOUND, UNBOUND },
	{ "the next key of a valid one, registered", OP(REG_MR), next_registration,
	  UNBOUND, UNBOUND },
	{ "unknown key to register", OP(REG_MR), wrong_registration, UNBOUND, UNBOUND },
	{ "key to register of a region that is gone", OP(REG_MR),
	  destroyed_registration, UNBOUND, UNBOUND },
	{ "key to register of another PD", OP(REG_MR), strange_registration,
	  UNBOUND, UNBOUND },
	{ "key to register of a region of another kind", OP(REG_MR),
	  other_registration, UNBOUND, UNBOUND },
	{ "unknown rkey", NAMES, wrong_rkey, REFUSED, LOST },
	{ "invalidated rkey", NAMES, stale_rkey, REFUSED, LOST },
	{ "rkey of another PD", NAMES, strange_rkey, REFUSED, LOST },
	{ "beyond the remote region", NAMES, beyond_remote, REFUSED, LOST },
	{ "region without rights", NAMES, no_rights, REFUSED, LOST },
	{ "queue pair without rights", NAMES, qp_without_rights, UNABLE, LOST },
	{ "misaligned word", ATOMICS, misaligned, UNABLE, LOST },
	{ "receive too short", SENDS, short_receive,
	  RECEIVE(IB_WC_REM_INV_REQ_ERR, IB_WC_LOC_LEN_ERR, 0),
	  RECEIVE(IB_WC_SUCCESS, IB_WC_LOC_LEN_ERR, 0) },
	{ "receive with an unknown lkey", SENDS, wrong_receive,
	  UNRECEIVED(IB_WC_REM_OP_ERR), UNRECEIVED(IB_WC_SUCCESS) },
	{ "receive with the lkey of another PD", SENDS, strange_receive,
	  UNRECEIVED(IB_WC_REM_OP_ERR), UNRECEIVED(IB_WC_SUCCESS) },
	{ "receive beyond its region", SENDS, receive_beyond,
	  UNRECEIVED(IB_WC_REM_OP_ERR), UNRECEIVED(IB_WC_SUCCESS) },
	{ "unknown key to invalidate", OP(SEND_WITH_INV), wrong_invalidation,
	  KEPT(IB_WC_REM_ACCESS_ERR), KEPT(IB_WC_SUCCESS) },
	{ "key to invalidate of another PD", OP(SEND_WITH_INV),
	  strange_far_invalidation, KEPT(IB_WC_REM_ACCESS_ERR),
	  KEPT(IB_WC_SUCCESS) },
	{ "key that no request has made, to invalidate", OP(SEND_WITH_INV),
	  other_far_invalidation, KEPT(IB_WC_REM_ACCESS_ERR), KEPT(IB_WC_SUCCESS) },
	{ "no receive", SENDS | OP(RDMA_WRITE_WITH_IMM), no_receive,
	  LOCAL(IB_WC_RNR_RETRY_EXC_ERR), { IB_WC_SUCCESS, FAR_UNTOUCHED, 0, 0 } },
	{ "peer in error", MOVES, peer_in_error,
	  REMOTE(IB_WC_RETRY_EXC_ERR, 0), REMOTE(IB_WC_SUCCESS, 0) },
	{ "peer in RESET", MOVES, peer_in_reset,
	  SILENCE(IB_WC_RETRY_EXC_ERR), SILENCE(IB_WC_SUCCESS) },
	{ "peer destroyed", MOVES, peer_destroyed,
	  SILENCE(IB_WC_RETRY_EXC_ERR), SILENCE(IB_WC_SUCCESS) },
};

const unsigned int fault_count = ARRAY_SIZE(faults);
