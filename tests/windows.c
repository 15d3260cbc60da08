// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory windows of both types, and invalidation by oneself and by the peer.
 */
#include <errno.h>
#include <string.h>

#include "bind.h"
#include "event.h"
#include "pattern.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 14)

enum { INV_ID = 60, RECEIVE_ID = 70, ACCESS_ID = 80 };
/* More than a segment of the engine's. */
enum { LARGE_BYTES = 300000 };

/* The window is b's; a uses it, by one connection or the other. */
struct stage {
	struct setup *setup;
	enum ibv_qp_type type;
	struct endpoint a[2];
	struct endpoint b[2];
	struct region memory; /* of b, windows may be bound to it */
};

static void stage_open(struct stage *stage, struct setup *setup,
		       enum ibv_qp_type type)
{
	struct endpoint_options options = endpoint_options(type);
	unsigned int i;

	memset(stage, 0, sizeof(*stage));
	stage->setup = setup;
	stage->type = type;
	for (i = 0; i < COUNT(stage->a); i++)
		pair_create(&stage->a[i], &setup->a_dev, &stage->b[i],
			    &setup->b_dev, &options);
	if (!region_map(&stage->memory, MEMORY_ANON, REGION_BYTES))
		bail("cannot map memory");
	region_register(&stage->memory, setup->b_dev.pd,
			ACCESS_ALL | IBV_ACCESS_MW_BIND);
}

static void stage_close(struct stage *stage)
{
	unsigned int i;

	for (i = 0; i < COUNT(stage->a); i++)
		pair_destroy(&stage->a[i], &stage->b[i]);
	region_destroy(&stage->memory);
}

static struct ibv_mw *new_window(struct stage *stage, enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(stage->setup->b_dev.pd, type);

	if (!mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	return mw;
}

static bool free_window(struct ibv_mw *mw)
{
	return check(!ibv_dealloc_mw(mw), "ibv_dealloc_mw fails");
}

static bool bind1(struct stage *stage, struct ibv_mw *mw, size_t offset,
		  size_t length, unsigned int access)
{
	struct ibv_mw_bind_info info = bind_info(&stage->memory, offset, length,
						 access);

	return bind_type1(&stage->b[0], mw, &info);
}

static bool bind2(struct stage *stage, struct ibv_mw *mw, uint32_t rkey)
{
	struct ibv_mw_bind_info info = bind_info(
		&stage->memory, 0, 1000, ACCESS_ALL & ~IBV_ACCESS_LOCAL_WRITE);

	return bind_type2(&stage->b[0], mw, rkey, &info, IBV_WC_SUCCESS);
}

/* a accesses @length bytes at @offset of the memory by the window's key. */
static bool use_by(struct stage *stage, unsigned int who,
		   enum ibv_wr_opcode opcode, uint32_t rkey, size_t offset,
		   uint32_t length, enum ibv_wc_status status)
{
	struct ibv_sge sge = region_sge(&stage->setup->a_mem, 0, length);
	struct ibv_send_wr wr = send_wr(ACCESS_ID, opcode, &sge, 1);

	wr.wr.rdma.remote_addr = stage->memory.rdma_addr + offset;
	wr.wr.rdma.rkey = rkey;
	post_send(&stage->a[who], &wr);
	return cq_expect(stage->a[who].send_cq, ACCESS_ID, status);
}

static bool writes(struct stage *stage, uint32_t rkey, size_t offset,
		   uint32_t length, enum ibv_wc_status status)
{
	const uint8_t *bytes = pattern_bytes(rkey, length);
	bool there;

	memset(stage->memory.addr, 0, REGION_BYTES);
	memcpy(stage->setup->a_mem.addr, bytes, length);
	if (!use_by(stage, 0, IBV_WR_RDMA_WRITE, rkey, offset, length, status))
		return false;
	there = !memcmp(stage->memory.addr + offset, bytes, length);
	return check(there == !status, "the bytes are %sthere",
		     there ? "" : "not ");
}

static bool is_denied(struct stage *stage, uint32_t rkey)
{
	return writes(stage, rkey, 0, 8, IBV_WC_REM_ACCESS_ERR);
}

/* --- type 1 ------------------------------------------------------------------- */

#define WRITE_ONLY IBV_ACCESS_REMOTE_WRITE
#define READ_ONLY IBV_ACCESS_REMOTE_READ

static bool type1_range(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_1);
	bool ok = bind1(stage, mw, 100, 200, WRITE_ONLY) &&
		  writes(stage, mw->rkey, 100, 200, IBV_WC_SUCCESS) &&
		  writes(stage, mw->rkey, 299, 1, IBV_WC_SUCCESS) &&
		  writes(stage, mw->rkey, 299, 2, IBV_WC_REM_ACCESS_ERR);

	return free_window(mw) && ok;
}

static bool type1_below(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_1);
	bool ok = bind1(stage, mw, 100, 200, WRITE_ONLY) &&
		  writes(stage, mw->rkey, 99, 2, IBV_WC_REM_ACCESS_ERR);

	return free_window(mw) && ok;
}

static bool type1_rights(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_1);
	bool ok = bind1(stage, mw, 0, 100, READ_ONLY) &&
		  use_by(stage, 0, IBV_WR_RDMA_READ, mw->rkey, 0, 100,
			 IBV_WC_SUCCESS) &&
		  writes(stage, mw->rkey, 0, 100, IBV_WC_REM_ACCESS_ERR);

	return free_window(mw) && ok;
}

/* IBA o10-36.2.2: refused by the library, and by the device. */
static bool type1_zero_based(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.bind_info = bind_info(&stage->memory, 100, 200,
				       WRITE_ONLY | IBV_ACCESS_ZERO_BASED),
	};
	int error = ibv_bind_mw(stage->b[0].qp, mw, &bind);
	bool ok = check(error == EINVAL, "ibv_bind_mw: %s", strerror(error));

	ok = bind_type2(&stage->b[0], mw, ibv_inc_rkey(mw->rkey),
			&bind.bind_info, IBV_WC_MW_BIND_ERR) &&
	     ok;
	return free_window(mw) && ok;
}

static bool type2_zero_based(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = bind_info(
		&stage->memory, 100, 200, WRITE_ONLY | IBV_ACCESS_ZERO_BASED);
	const uint32_t rkey = ibv_inc_rkey(mw->rkey);
	struct ibv_sge sge = region_sge(&stage->setup->a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(ACCESS_ID, IBV_WR_RDMA_WRITE, &sge, 1);
	bool ok;

	memset(stage->setup->a_mem.addr, 0x99, 8);
	memset(stage->memory.addr, 0, REGION_BYTES);
	ok = bind_type2(&stage->b[0], mw, rkey, &info, IBV_WC_SUCCESS);
	wr.wr.rdma.remote_addr = 0;
	wr.wr.rdma.rkey = rkey;
	post_send(&stage->a[0], &wr);
	ok = ok && cq_expect(stage->a[0].send_cq, ACCESS_ID, IBV_WC_SUCCESS) &&
	     check(stage->memory.addr[99] == 0 &&
			   stage->memory.addr[100] == 0x99,
		   "the bytes are elsewhere");
	return free_window(mw) && ok;
}

/* A new key with every bind, and the old one is dead. */
static bool type1_rebind(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_1);
	uint32_t first = mw->rkey, old;
	bool ok = bind1(stage, mw, 0, 100, WRITE_ONLY);

	old = mw->rkey;
	ok = ok && check(first != old, "the key stays") &&
	     writes(stage, old, 0, 8, IBV_WC_SUCCESS) &&
	     bind1(stage, mw, 0, 50, WRITE_ONLY) &&
	     check(mw->rkey != old, "the key stays") &&
	     writes(stage, mw->rkey, 0, 50, IBV_WC_SUCCESS) &&
	     is_denied(stage, old);
	return free_window(mw) && ok;
}

static bool type1_unbind(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.wr_id = BIND_ID,
		.send_flags = IBV_SEND_SIGNALED,
	};
	bool ok = bind1(stage, mw, 0, 100, WRITE_ONLY);
	uint32_t old = mw->rkey;

	ok = ok && check(!ibv_bind_mw(stage->b[0].qp, mw, &bind), "unbind") &&
	     cq_expect(stage->b[0].send_cq, BIND_ID, IBV_WC_SUCCESS) &&
	     is_denied(stage, old);
	return free_window(mw) && ok;
}

/* What a flushed bind would have made of the key is a name for it, too. */
static bool type1_after_flush(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.wr_id = BIND_ID,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = bind_info(&stage->memory, 0, 100, WRITE_ONLY),
	};
	bool ok;

	endpoint_set_state(&stage->b[1], IBV_QPS_ERR);
	ok = check(!ibv_bind_mw(stage->b[1].qp, mw, &bind), "a bind") &&
	     cq_expect(stage->b[1].send_cq, BIND_ID, IBV_WC_WR_FLUSH_ERR) &&
	     bind1(stage, mw, 0, 100, WRITE_ONLY) &&
	     writes(stage, mw->rkey, 0, 8, IBV_WC_SUCCESS);
	return free_window(mw) && ok;
}

static bool type1_any_qp(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_1);
	bool ok = bind1(stage, mw, 0, 100, WRITE_ONLY) &&
		  use_by(stage, 1, IBV_WR_RDMA_WRITE, mw->rkey, 0, 8,
			 IBV_WC_SUCCESS);

	return free_window(mw) && ok;
}

static bool freed(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_1);
	bool ok = bind1(stage, mw, 0, 100, WRITE_ONLY);
	uint32_t old = mw->rkey;

	return free_window(mw) && ok && is_denied(stage, old);
}

static bool region_in_use(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_1);
	bool ok = bind1(stage, mw, 0, 100, WRITE_ONLY) &&
		  check(ibv_dereg_mr(stage->memory.mr) == EBUSY,
			"a region with a window is deregistered") &&
		  writes(stage, mw->rkey, 0, 8, IBV_WC_SUCCESS);

	return free_window(mw) && ok;
}

/* --- type 2 ------------------------------------------------------------------- */

static bool type2_one_qp(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_2);
	uint32_t key = ibv_inc_rkey(mw->rkey);
	bool ok = bind2(stage, mw, key) &&
		  writes(stage, key, 0, 1000, IBV_WC_SUCCESS) &&
		  use_by(stage, 1, IBV_WR_RDMA_WRITE, key, 0, 8,
			 IBV_WC_REM_ACCESS_ERR);

	return free_window(mw) && ok;
}

static bool type2_bind_twice(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_2);
	uint32_t key = ibv_inc_rkey(mw->rkey);
	struct ibv_mw_bind_info info = bind_info(&stage->memory, 0, 100,
						 WRITE_ONLY);
	bool ok = bind2(stage, mw, key) &&
		  bind_type2(&stage->b[0], mw, ibv_inc_rkey(key), &info,
			     IBV_WC_MW_BIND_ERR);

	return free_window(mw) && ok;
}

static bool post_local_inv(struct stage *stage, uint32_t rkey,
			   enum ibv_wc_status status)
{
	struct ibv_send_wr wr = send_wr(INV_ID, IBV_WR_LOCAL_INV, NULL, 0);

	wr.invalidate_rkey = rkey;
	post_send(&stage->b[0], &wr);
	return cq_expect(stage->b[0].send_cq, INV_ID, status);
}

static bool local_inv(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_2);
	uint32_t key = ibv_inc_rkey(mw->rkey), next = ibv_inc_rkey(key);
	bool ok = bind2(stage, mw, key) &&
		  writes(stage, key, 0, 8, IBV_WC_SUCCESS) &&
		  post_local_inv(stage, key, IBV_WC_SUCCESS) &&
		  bind2(stage, mw, next) &&
		  writes(stage, next, 0, 8, IBV_WC_SUCCESS) &&
		  post_local_inv(stage, next, IBV_WC_SUCCESS) &&
		  is_denied(stage, next);

	return free_window(mw) && ok;
}

static bool send_inv(struct stage *stage, uint32_t rkey)
{
	struct ibv_send_wr wr = send_wr(INV_ID, IBV_WR_SEND_WITH_INV, NULL, 0);

	post_recv(&stage->b[0], RECEIVE_ID, NULL, 0);
	wr.invalidate_rkey = rkey;
	return check(!try_post_send(&stage->a[0], &wr), "posting fails");
}

static bool remote_inv(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_2);
	uint32_t key = ibv_inc_rkey(mw->rkey), next = ibv_inc_rkey(key);
	struct ibv_wc wc;
	bool ok = bind2(stage, mw, key) && send_inv(stage, key) &&
		  cq_expect(stage->a[0].send_cq, INV_ID, IBV_WC_SUCCESS) &&
		  cq_success(stage->b[0].recv_cq, RECEIVE_ID, &wc) &&
		  check(wc.wc_flags == IBV_WC_WITH_INV, "flags 0x%x",
			wc.wc_flags) &&
		  check(wc.invalidated_rkey == key, "another key") &&
		  bind2(stage, mw, next) &&
		  writes(stage, next, 0, 8, IBV_WC_SUCCESS);

	ok = ok && (stage->type == IBV_QPT_UC || is_denied(stage, key));
	return free_window(mw) && ok;
}

/* The peer's SEND of the large message, and what comes of it. */
static bool send_large_inv(struct stage *stage, uint32_t rkey,
			   const struct region *from, const struct region *to)
{
	struct ibv_sge from_sge = region_sge(from, 0, LARGE_BYTES);
	struct ibv_sge to_sge = region_sge(to, 0, LARGE_BYTES);
	struct ibv_send_wr wr = send_wr(INV_ID, IBV_WR_SEND_WITH_INV, &from_sge,
					1);
	struct ibv_wc wc;

	post_recv(&stage->b[0], RECEIVE_ID, &to_sge, 1);
	wr.invalidate_rkey = rkey;
	post_send(&stage->a[0], &wr);
	return cq_expect(stage->a[0].send_cq, INV_ID, IBV_WC_SUCCESS) &&
	       cq_success(stage->b[0].recv_cq, RECEIVE_ID, &wc) &&
	       check(wc.wc_flags == IBV_WC_WITH_INV &&
			     wc.invalidated_rkey == rkey,
		     "flags 0x%x, key 0x%x", wc.wc_flags,
		     wc.invalidated_rkey) &&
	       check(wc.byte_len == LARGE_BYTES, "%u bytes", wc.byte_len) &&
	       check(!memcmp(from->addr, to->addr, LARGE_BYTES),
		     "other bytes arrive");
}

static bool remote_inv_large(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_2);
	uint32_t key = ibv_inc_rkey(mw->rkey), next = ibv_inc_rkey(key);
	struct region from, to;
	bool ok;

	region_create(&from, stage->setup->a_dev.pd, LARGE_BYTES);
	region_create(&to, stage->setup->b_dev.pd, LARGE_BYTES);
	memcpy(from.addr, pattern_bytes(key, LARGE_BYTES), LARGE_BYTES);
	ok = bind2(stage, mw, key) && send_large_inv(stage, key, &from, &to) &&
	     bind2(stage, mw, next) &&
	     writes(stage, next, 0, 8, IBV_WC_SUCCESS);
	region_destroy(&from);
	region_destroy(&to);
	return free_window(mw) && ok;
}

static bool remote_inv_refused(struct stage *stage, uint32_t rkey)
{
	bool reliable = stage->type == IBV_QPT_RC;

	return send_inv(stage, rkey) &&
	       cq_expect(stage->a[0].send_cq, INV_ID,
			 reliable ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS) &&
	       cq_expect(stage->b[0].recv_cq, RECEIVE_ID,
			 IBV_WC_LOC_ACCESS_ERR) &&
	       event_expect(stage->setup->b_dev.ctx, IBV_EVENT_QP_ACCESS_ERR,
			    stage->b[0].qp);
}

static bool remote_inv_of_region(struct stage *stage)
{
	return remote_inv_refused(stage, stage->memory.mr->rkey);
}

static bool remote_inv_of_nothing(struct stage *stage)
{
	return remote_inv_refused(stage, 0);
}

/* A window that another queue pair has bound is not the peer's to close. */
static bool remote_inv_of_other_qp(struct stage *stage)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_2);
	uint32_t key = ibv_inc_rkey(mw->rkey);
	struct ibv_send_wr wr = send_wr(INV_ID, IBV_WR_SEND_WITH_INV, NULL, 0);
	bool ok = bind2(stage, mw, key);

	wr.invalidate_rkey = key;
	post_recv(&stage->b[1], RECEIVE_ID, NULL, 0);
	post_send(&stage->a[1], &wr);
	ok = ok &&
	     cq_expect(stage->a[1].send_cq, INV_ID, IBV_WC_REM_ACCESS_ERR) &&
	     cq_expect(stage->b[1].recv_cq, RECEIVE_ID,
		       IBV_WC_LOC_ACCESS_ERR) &&
	     event_expect(stage->setup->b_dev.ctx, IBV_EVENT_QP_ACCESS_ERR,
			  stage->b[1].qp) &&
	     writes(stage, key, 0, 8, IBV_WC_SUCCESS);
	return free_window(mw) && ok;
}

static bool local_inv_of_region(struct stage *stage)
{
	return post_local_inv(stage, stage->memory.mr->rkey,
			      IBV_WC_LOC_QP_OP_ERR);
}

/* --- what can't be bound -------------------------------------------------------- */

static bool bind_fails(struct stage *stage, const struct ibv_mw_bind_info *info)
{
	struct ibv_mw *mw = new_window(stage, IBV_MW_TYPE_2);
	bool ok = bind_type2(&stage->b[0], mw, ibv_inc_rkey(mw->rkey), info,
			     IBV_WC_MW_BIND_ERR);

	return free_window(mw) && ok;
}

static bool bind_outside(struct stage *stage)
{
	struct ibv_mw_bind_info info = bind_info(&stage->memory, 1,
						 REGION_BYTES, WRITE_ONLY);

	return bind_fails(stage, &info);
}

/* Which unbinds a window of type 1. */
static bool bind_of_no_length(struct stage *stage)
{
	struct ibv_mw_bind_info info = bind_info(&stage->memory, 0, 0,
						 WRITE_ONLY);

	return bind_fails(stage, &info);
}

static bool bind_wrapping(struct stage *stage)
{
	struct ibv_mw_bind_info info = bind_info(&stage->memory, 1,
						 UINT64_MAX - 4, WRITE_ONLY);

	return bind_fails(stage, &info);
}

static bool bind_without_right(struct stage *stage)
{
	struct ibv_mw_bind_info info = bind_info(&stage->memory, 0, 8,
						 WRITE_ONLY);

	info.mr = stage->setup->b_mem.mr;
	info.addr = stage->setup->b_mem.rdma_addr;
	return bind_fails(stage, &info);
}

static bool bind_more_than_region(struct stage *stage)
{
	struct ibv_mw_bind_info info = bind_info(&stage->memory, 0, 8,
						 WRITE_ONLY);
	struct region weak;
	bool ok;

	if (!region_map(&weak, MEMORY_ANON, 100))
		bail("cannot map memory");
	region_register(&weak, stage->setup->b_dev.pd, IBV_ACCESS_MW_BIND);
	info.mr = weak.mr;
	info.addr = weak.rdma_addr;
	ok = bind_fails(stage, &info);
	region_destroy(&weak);
	return ok;
}

static bool bind_other_pd(struct stage *stage)
{
	struct ibv_mw_bind_info info = bind_info(&stage->memory, 0, 8,
						 WRITE_ONLY);
	struct ibv_pd *pd = ibv_alloc_pd(stage->setup->b_dev.ctx);
	struct region other;
	bool ok;

	if (!pd || !region_map(&other, MEMORY_ANON, 100))
		bail("no other domain");
	region_register(&other, pd, ACCESS_ALL | IBV_ACCESS_MW_BIND);
	info.mr = other.mr;
	info.addr = other.rdma_addr;
	ok = bind_fails(stage, &info);
	region_destroy(&other);
	return check(!ibv_dealloc_pd(pd), "ibv_dealloc_pd fails") && ok;
}

/* ---------------------------------------------------------------------------- */

static const struct {
	bool (*run)(struct stage *stage);
	const char *name;
	enum ibv_qp_type type;
} cases[] = {
	{ type1_range, "type 1: its range and no more", IBV_QPT_RC },
	{ type1_below, "type 1: below its range", IBV_QPT_RC },
	{ type1_rights, "type 1: its rights and no more", IBV_QPT_RC },
	{ type1_zero_based, "type 1: never zero based", IBV_QPT_RC },
	{ type1_rebind, "type 1: bound again", IBV_QPT_RC },
	{ type1_unbind, "type 1: unbound", IBV_QPT_RC },
	{ type1_any_qp, "type 1: for each QP of its PD", IBV_QPT_RC },
	{ type1_after_flush, "type 1: bound after a bind that was flushed",
	  IBV_QPT_RC },
	{ freed, "a freed window", IBV_QPT_RC },
	{ region_in_use, "a region with a window can't go", IBV_QPT_RC },
	{ type2_one_qp, "type 2: for its QP only", IBV_QPT_RC },
	{ type2_zero_based, "type 2: zero based", IBV_QPT_RC },
	{ type2_bind_twice, "type 2: bound while bound", IBV_QPT_RC },
	{ local_inv, "type 2: invalidated by its owner", IBV_QPT_RC },
	{ remote_inv, "type 2: invalidated by the peer", IBV_QPT_RC },
	{ remote_inv, "type 2: invalidated by the peer, UC", IBV_QPT_UC },
	{ remote_inv_large, "type 2: invalidated by a large message",
	  IBV_QPT_RC },
	{ remote_inv_large, "type 2: invalidated by a large message, UC",
	  IBV_QPT_UC },
	{ remote_inv_of_region, "the peer invalidates a region", IBV_QPT_RC },
	{ remote_inv_of_region, "the peer invalidates a region, UC",
	  IBV_QPT_UC },
	{ remote_inv_of_nothing, "the peer invalidates nothing", IBV_QPT_RC },
	{ remote_inv_of_other_qp, "the peer invalidates another QP's",
	  IBV_QPT_RC },
	{ local_inv_of_region, "the owner invalidates a region", IBV_QPT_RC },
	{ bind_outside, "bound beyond the region's end", IBV_QPT_RC },
	{ bind_of_no_length, "type 2: bound with length 0", IBV_QPT_RC },
	{ bind_wrapping, "bound around the end of all addresses", IBV_QPT_RC },
	{ bind_without_right, "bound to a region that allows no windows",
	  IBV_QPT_RC },
	{ bind_more_than_region, "bound with more rights than the region",
	  IBV_QPT_RC },
	{ bind_other_pd, "bound to a region of another PD", IBV_QPT_RC },
};

static void run_case(struct setup *setup, struct neighbours *neighbours,
		     unsigned int i)
{
	struct stage stage;
	bool ok;

	stage_open(&stage, setup, cases[i].type);
	ok = cases[i].run(&stage);
	stage_close(&stage);
	events_drop(setup->b_dev.ctx);
	tap_ok(neighbours_work(neighbours) && ok, "%s", cases[i].name);
}

int main(int argc, char **argv)
{
	struct neighbours neighbours;
	struct setup setup;
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	events_prepare(setup.b_dev.ctx);
	neighbours_open(&neighbours, &setup);
	for (i = 0; i < COUNT(cases); i++)
		run_case(&setup, &neighbours, i);
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
