// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory windows and the direct path: what a peer reaches by means of a
 * window's key ends when the window is bound anew, invalidated by its owner or
 * by the peer, or freed, while the peer accesses it through a mapping and by
 * requests that it executes itself.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "bind.h"
#include "clock.h"
#include "endpoint.h"
#include "executed.h"
#include "hammer.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

enum {
	MEMORY_BYTES = 32 * 4096,
	INVALIDATE_ID = 60,
	RECEIVE_ID = 70,
	ACCESS_ID = 80,
	REQUESTS = 5,
	RIGHTS = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
		 IBV_ACCESS_REMOTE_ATOMIC,
};

/* The window is b's, a uses it. */
struct stage {
	struct setup setup;
	struct endpoint a;
	struct endpoint b;
	struct region memory; /* what windows are bound to */
	struct ibv_mw *mw;
	uint32_t key; /* that a uses */
};

static bool bind1(struct stage *stage, size_t length)
{
	struct ibv_mw_bind_info info = bind_info(&stage->memory, 0, length,
						 RIGHTS);

	return bind_type1(&stage->b, stage->mw, length ? &info : NULL);
}

static bool bind2(struct stage *stage, uint32_t key)
{
	struct ibv_mw_bind_info info = bind_info(&stage->memory, 0,
						 MEMORY_BYTES, RIGHTS);

	return bind_type2(&stage->b, stage->mw, key, &info, IBV_WC_SUCCESS);
}

static bool bind_first(struct stage *stage, enum ibv_mw_type type)
{
	stage->mw = ibv_alloc_mw(stage->setup.b_dev.pd, type);
	if (!stage->mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	if (type == IBV_MW_TYPE_1) {
		if (!bind1(stage, MEMORY_BYTES))
			return false;
		stage->key = stage->mw->rkey;
		return true;
	}
	stage->key = ibv_inc_rkey(stage->mw->rkey);
	return bind2(stage, stage->key);
}

/* --- what ends it ---------------------------------------------------------- */

static bool by_binding(struct stage *stage)
{
	return bind1(stage, MEMORY_BYTES / 2);
}

static bool by_unbinding(struct stage *stage)
{
	return bind1(stage, 0);
}

static bool by_freeing(struct stage *stage)
{
	struct ibv_mw *mw = stage->mw;

	stage->mw = NULL;
	return check(!ibv_dealloc_mw(mw), "ibv_dealloc_mw fails");
}

static bool by_owner(struct stage *stage)
{
	struct ibv_send_wr wr = send_wr(INVALIDATE_ID, IBV_WR_LOCAL_INV, NULL,
					0);

	wr.invalidate_rkey = stage->key;
	post_send(&stage->b, &wr);
	return cq_expect(stage->b.send_cq, INVALIDATE_ID, IBV_WC_SUCCESS);
}

static bool by_peer(struct stage *stage)
{
	struct ibv_send_wr wr = send_wr(INVALIDATE_ID, IBV_WR_SEND_WITH_INV,
					NULL, 0);

	wr.invalidate_rkey = stage->key;
	post_recv(&stage->b, RECEIVE_ID, NULL, 0);
	post_send(&stage->a, &wr);
	return cq_expect(stage->a.send_cq, INVALIDATE_ID, IBV_WC_SUCCESS) &&
	       cq_expect(stage->b.recv_cq, RECEIVE_ID, IBV_WC_SUCCESS);
}

/* The same window, but not the same key. */
static bool by_owner_and_bound_anew(struct stage *stage)
{
	return by_owner(stage) && bind2(stage, ibv_inc_rkey(stage->key));
}

static const struct ending {
	const char *name;
	enum ibv_mw_type type;
	bool (*end)(struct stage *stage);
} endings[] = {
	{ "binding it anew", IBV_MW_TYPE_1, by_binding },
	{ "unbinding it", IBV_MW_TYPE_1, by_unbinding },
	{ "freeing it", IBV_MW_TYPE_1, by_freeing },
	{ "freeing it while it is bound", IBV_MW_TYPE_2, by_freeing },
	{ "its owner's invalidation", IBV_MW_TYPE_2, by_owner },
	{ "its peer's invalidation", IBV_MW_TYPE_2, by_peer },
	{ "another key", IBV_MW_TYPE_2, by_owner_and_bound_anew },
};

/* --- what uses it ---------------------------------------------------------- */

static bool mapping_ends(struct stage *stage, const struct ending *ending)
{
	struct micdv_window *window;
	struct hammer hammer;
	bool ok;

	window = micdv_map_window(stage->a.qp, stage->memory.rdma_addr,
				  stage->key, MEMORY_BYTES,
				  PROT_READ | PROT_WRITE);
	if (!check(window, "micdv_map_window: %s", strerror(errno)))
		return false;
	hammer_start(&hammer, window);
	ok = ending->end(stage) && hammer_misses(&hammer, stage->memory.addr);
	hammer_stop(&hammer);
	ok = check(!micdv_window_valid(window), "the window stays valid") && ok;
	return check(!micdv_unmap_window(window), "unmapping fails") && ok;
}

static bool request(struct stage *stage, enum ibv_wr_opcode opcode,
		    enum ibv_wc_status status)
{
	struct ibv_sge sge = region_sge(&stage->setup.a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(ACCESS_ID, opcode, &sge, 1);

	if (opcode_is_atomic(opcode)) {
		wr.wr.atomic.remote_addr = (stage->memory.rdma_addr + 7) &
					   ~7ULL;
		wr.wr.atomic.rkey = stage->key;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = stage->memory.rdma_addr;
		wr.wr.rdma.rkey = stage->key;
	}
	post_send(&stage->a, &wr);
	return cq_expect(stage->a.send_cq, ACCESS_ID, status);
}

/* Until the end they are executed here; afterwards they fail. */
static bool requests_end(struct stage *stage, const struct ending *ending,
			 enum ibv_wr_opcode opcode)
{
	uint64_t limit = deadline(), before;

	memset(stage->setup.a_mem.addr, 0x5a, 8);
	/* the first may find the kernel still at work on the queue */
	while (executed_here(&stage->a) < REQUESTS && now_ms() < limit)
		if (!request(stage, opcode, IBV_WC_SUCCESS))
			return false;
	before = executed_here(&stage->a);
	if (!check(before >= REQUESTS, "the kernel executes all requests") ||
	    !ending->end(stage))
		return false;
	memset(stage->memory.addr, 0x11, MEMORY_BYTES);
	memset(stage->setup.a_mem.addr, 0x5a, 8);
	return request(stage, opcode, IBV_WC_REM_ACCESS_ERR) &&
	       check(stage->memory.addr[0] == 0x11,
		     "a request that failed was executed") &&
	       check(stage->setup.a_mem.addr[0] == 0x5a,
		     "a request that failed has a result") &&
	       check(executed_here(&stage->a) == before,
		     "a request that failed counts");
}

static bool writes_end(struct stage *stage, const struct ending *ending)
{
	return requests_end(stage, ending, IBV_WR_RDMA_WRITE);
}

static bool reads_end(struct stage *stage, const struct ending *ending)
{
	return requests_end(stage, ending, IBV_WR_RDMA_READ);
}

static bool atomics_end(struct stage *stage, const struct ending *ending)
{
	return requests_end(stage, ending, IBV_WR_ATOMIC_FETCH_AND_ADD);
}

static bool play(struct stage *stage, const struct ending *ending,
		 bool (*use)(struct stage *, const struct ending *))
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	bool ok;

	pair_create(&stage->a, &stage->setup.a_dev, &stage->b,
		    &stage->setup.b_dev, &options);
	if (micdv_set_path(stage->a.qp, MICDV_PATH_DIRECT))
		bail("micdv_set_path fails");
	/* with the first message the connection is known at either end */
	ok = exchange_empty(&stage->a, &stage->b, 1) &&
	     bind_first(stage, ending->type) && use(stage, ending);
	if (stage->mw)
		ok = check(!ibv_dealloc_mw(stage->mw),
			   "ibv_dealloc_mw fails") &&
		     ok;
	stage->mw = NULL;
	pair_destroy(&stage->a, &stage->b);
	return ok;
}

/* On another queue pair, which fails; the window's peer notices nothing. */
static bool refuses(struct stage *stage, size_t length)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_mw_bind bind = {
		.wr_id = INVALIDATE_ID,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = bind_info(&stage->memory, 0, length, RIGHTS),
	};
	struct endpoint a, b;
	bool ok;

	pair_create(&a, &stage->setup.a_dev, &b, &stage->setup.b_dev, &options);
	ok = check(!ibv_bind_mw(b.qp, stage->mw, &bind), "ibv_bind_mw") &&
	     cq_expect(b.send_cq, INVALIDATE_ID, IBV_WC_MW_BIND_ERR);
	pair_destroy(&a, &b);
	return ok;
}

static bool by_refusal(struct stage *stage)
{
	return refuses(stage, MEMORY_BYTES + 1);
}

/* Several: it is the kernel that executes the first one perhaps, not the last. */
static bool stays(struct stage *stage, const struct ending *ending)
{
	int i;

	if (!ending->end(stage))
		return false;
	for (i = 0; i < REQUESTS; i++)
		if (!request(stage, IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS))
			return false;
	return true;
}

/* Regions without windows are known as such before anything is posted. */
static bool no_windows(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_pd *pd = stage->setup.b_dev.pd;
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mr *null = ibv_alloc_null_mr(pd);
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = bind_info(&stage->memory, 0, 8, RIGHTS),
	};
	struct endpoint a, b;
	bool ok;

	if (!mw || !null)
		bail("no window, or no region: %s", strerror(errno));
	pair_create(&a, &stage->setup.a_dev, &b, &stage->setup.b_dev, &options);
	bind.bind_info.mr = null;
	ok = check(ibv_bind_mw(b.qp, mw, &bind) == EOPNOTSUPP,
		   "to the null region") &&
	     exchange_empty(&a, &b, 1);
	pair_destroy(&a, &b);
	return check(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(null),
		     "they can't be freed") &&
	       ok;
}

static const struct ending refusal = { "a refusal", IBV_MW_TYPE_1, by_refusal };

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		bool (*use)(struct stage *stage, const struct ending *ending);
	} uses[] = {
		{ "a mapping", mapping_ends },
		{ "WRITEs", writes_end },
		{ "READs", reads_end },
		{ "atomics", atomics_end },
	};
	static struct stage stage;
	size_t i, j;

	setup_open(&stage.setup, &argc, argv, MEMORY_BYTES);
	if (!region_map(&stage.memory, MEMORY_ANON, MEMORY_BYTES))
		bail("cannot map memory");
	region_register(&stage.memory, stage.setup.b_dev.pd,
			ACCESS_ALL | IBV_ACCESS_MW_BIND);
	for (i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
		for (j = 0; j < sizeof(uses) / sizeof(uses[0]); j++)
			tap_ok(play(&stage, &endings[i], uses[j].use),
			       "%s through a memory window: %s ends them",
			       uses[j].name, endings[i].name);
	tap_ok(play(&stage, &refusal, stays),
	       "a bind that is refused leaves a window bound");
	tap_ok(no_windows(&stage), "what can have no windows is refused");
	region_destroy(&stage.memory);
	setup_close(&stage.setup);
	return tap_end();
}
