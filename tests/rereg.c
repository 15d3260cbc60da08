// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * ibv_rereg_mr: what can be changed at once, what a region is after a change that
 * failed, and which regions can't be changed.
 */
#include <errno.h>
#include <string.h>
#include <infiniband/micdv.h>

#include "bind.h"
#include "clock.h"
#include "executed.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES 4096UL
#define BYTES 64U
#define READ_ONLY (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)

enum {
	PD = IBV_REREG_MR_CHANGE_PD,
	TRANSLATION = IBV_REREG_MR_CHANGE_TRANSLATION,
	ACCESS = IBV_REREG_MR_CHANGE_ACCESS,
};

/* A region of the one domain, which can become one of the other, elsewhere. */
struct stage {
	struct setup *setup;
	struct ibv_pd *pd;
	struct ibv_pd *other_pd;
	struct region region;
	struct region elsewhere; /* is not registered */
};

static void stage_open(struct stage *stage, struct setup *setup)
{
	memset(stage, 0, sizeof(*stage));
	stage->setup = setup;
	stage->pd = setup->b_dev.pd;
	stage->other_pd = ibv_alloc_pd(setup->b_dev.ctx);
	if (!stage->other_pd ||
	    !region_map(&stage->region, MEMORY_ANON, REGION_BYTES) ||
	    !region_map(&stage->elsewhere, MEMORY_ANON, REGION_BYTES))
		bail("no memory, or no domain: %s", strerror(errno));
	region_register(&stage->region, stage->pd,
			ACCESS_ALL | IBV_ACCESS_MW_BIND);
}

static void stage_close(struct stage *stage)
{
	region_destroy(&stage->region);
	region_destroy(&stage->elsewhere);
	tap_must(!ibv_dealloc_pd(stage->other_pd), "ibv_dealloc_pd fails");
}

/* A WRITE to @addr, by a queue pair of @pd, ends with @status. */
static bool ends_with(struct stage *stage, struct ibv_pd *pd, uint32_t rkey,
		      const void *addr, enum ibv_wc_status status)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct setup *setup = stage->setup;
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);
	struct endpoint a, b;
	bool ok;

	endpoint_create(&a, &setup->a_dev, &options);
	options.pd = pd;
	endpoint_create(&b, &setup->b_dev, &options);
	pair_connect(&a, &b);
	wr.wr.rdma.remote_addr = (uintptr_t)addr;
	wr.wr.rdma.rkey = rkey;
	post_send(&a, &wr);
	ok = cq_expect(a.send_cq, 1, status);
	pair_destroy(&a, &b);
	return ok;
}

/* It is that memory, to who is in @pd and to nobody else. */
static bool is_at(struct stage *stage, struct ibv_pd *pd,
		  const struct region *memory)
{
	struct ibv_pd *not = pd == stage->pd ? stage->other_pd : stage->pd;
	const struct region *was = memory == &stage->region ?
					   &stage->elsewhere :
					   &stage->region;
	uint32_t rkey = stage->region.mr->rkey;

	memset(stage->setup->a_mem.addr, 0x6d, BYTES);
	memset(stage->region.addr, 0x11, BYTES);
	memset(stage->elsewhere.addr, 0x11, BYTES);
	return ends_with(stage, pd, rkey, memory->addr, IBV_WC_SUCCESS) &&
	       all_are(memory->addr, BYTES, 0x6d) &&
	       all_are(was->addr, BYTES, 0x11) &&
	       ends_with(stage, pd, rkey, was->addr, IBV_WC_REM_ACCESS_ERR) &&
	       ends_with(stage, not, rkey, memory->addr, IBV_WC_REM_ACCESS_ERR);
}

static bool is_read_only(struct stage *stage, struct ibv_pd *pd,
			 const struct region *memory)
{
	return ends_with(stage, pd, stage->region.mr->rkey, memory->addr,
			 IBV_WC_REM_ACCESS_ERR);
}

static bool change(struct stage *stage, int flags, struct ibv_pd *pd,
		   const struct region *memory, int access)
{
	int error = ibv_rereg_mr(stage->region.mr, flags, pd, memory->addr,
				 REGION_BYTES, access);

	return check(!error, "ibv_rereg_mr: %d, %s", error, strerror(errno));
}

static bool refuses(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		    int access, int error)
{
	int ret;

	errno = 0;
	ret = ibv_rereg_mr(mr, flags, pd, addr, REGION_BYTES, access);
	return check(ret && errno == error, "ibv_rereg_mr: %d, %s", ret,
		     strerror(errno));
}

static bool domain_and_memory(struct stage *stage)
{
	return is_at(stage, stage->pd, &stage->region) &&
	       change(stage, PD | TRANSLATION, stage->other_pd,
		      &stage->elsewhere, 0) &&
	       is_at(stage, stage->other_pd, &stage->elsewhere) &&
	       change(stage, PD | TRANSLATION, stage->pd, &stage->region, 0) &&
	       is_at(stage, stage->pd, &stage->region);
}

static bool domain_and_rights(struct stage *stage)
{
	return change(stage, PD | ACCESS, stage->other_pd, &stage->region,
		      READ_ONLY) &&
	       is_read_only(stage, stage->other_pd, &stage->region) &&
	       change(stage, PD | ACCESS, stage->pd, &stage->region,
		      ACCESS_ALL) &&
	       is_at(stage, stage->pd, &stage->region);
}

static bool memory_and_rights(struct stage *stage)
{
	return change(stage, TRANSLATION | ACCESS, NULL, &stage->elsewhere,
		      READ_ONLY) &&
	       is_read_only(stage, stage->pd, &stage->elsewhere) &&
	       change(stage, TRANSLATION | ACCESS, NULL, &stage->region,
		      ACCESS_ALL) &&
	       is_at(stage, stage->pd, &stage->region);
}

static bool all_at_once(struct stage *stage)
{
	return change(stage, PD | TRANSLATION | ACCESS, stage->other_pd,
		      &stage->elsewhere, READ_ONLY) &&
	       is_read_only(stage, stage->other_pd, &stage->elsewhere) &&
	       change(stage, PD | TRANSLATION | ACCESS, stage->pd,
		      &stage->region, ACCESS_ALL) &&
	       is_at(stage, stage->pd, &stage->region);
}

/* IBA 11.2.8.5: after a change that failed a region is of nothing. */
static bool after_a_failure(struct stage *stage)
{
	struct ibv_mr *mr = stage->region.mr;

	return refuses(mr, TRANSLATION, NULL, (void *)PAGE_BYTES, 0, EFAULT) &&
	       ends_with(stage, stage->pd, mr->rkey, stage->region.addr,
			 IBV_WC_REM_ACCESS_ERR) &&
	       refuses(mr, TRANSLATION, NULL, stage->region.addr, 0, EINVAL) &&
	       refuses(mr, ACCESS, NULL, NULL, READ_ONLY, EINVAL);
}

/* What is refused before anything is changed leaves the region what it was. */
static bool refused_at_once(struct stage *stage)
{
	struct ibv_mr *mr = stage->region.mr;

	return refuses(mr, ACCESS, NULL, NULL,
		       ACCESS_ALL | IBV_ACCESS_ON_DEMAND, EOPNOTSUPP) &&
	       refuses(mr, ACCESS, NULL, NULL, IBV_ACCESS_REMOTE_WRITE,
		       EINVAL) &&
	       is_at(stage, stage->pd, &stage->region);
}

/* A window would show what is not the region's any more. */
static bool with_a_window(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_mw_bind_info info = bind_info(&stage->region, 0, BYTES,
						 IBV_ACCESS_REMOTE_WRITE);
	struct ibv_mw *mw = ibv_alloc_mw(stage->pd, IBV_MW_TYPE_1);
	struct ibv_mr *mr = stage->region.mr;
	struct endpoint a, b;
	bool ok;

	if (!mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	pair_create(&a, &stage->setup->a_dev, &b, &stage->setup->b_dev,
		    &options);
	ok = bind_type1(&b, mw, &info) &&
	     refuses(mr, TRANSLATION, NULL, stage->elsewhere.addr, 0, EBUSY) &&
	     refuses(mr, ACCESS, NULL, NULL, READ_ONLY, EBUSY) &&
	     refuses(mr, PD, stage->other_pd, NULL, 0, EBUSY) &&
	     ends_with(stage, stage->pd, mw->rkey, stage->region.addr,
		       IBV_WC_SUCCESS) &&
	     is_at(stage, stage->pd, &stage->region);
	tap_must(!ibv_dealloc_mw(mw), "ibv_dealloc_mw fails");
	ok = ok && change(stage, TRANSLATION, NULL, &stage->elsewhere, 0) &&
	     is_at(stage, stage->pd, &stage->elsewhere);
	pair_destroy(&a, &b);
	return ok;
}

/* A WRITE of what is in the region; who executes it is in *@direct. */
static bool writes_from(struct stage *stage, struct endpoint *b,
			enum ibv_wc_status status, bool *direct)
{
	struct ibv_sge sge = region_sge(&stage->region, 0, BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);
	const uint64_t before = executed_here(b);

	send_wr_aim(&wr, stage->setup->a_mem.rdma_addr,
		    stage->setup->a_mem.mr->rkey);
	post_send(b, &wr);
	*direct = executed_here(b) != before;
	return cq_expect(b->send_cq, 1, status);
}

/* Behind a request of the kernel's it may take a moment. */
static bool becomes_direct(struct stage *stage, struct endpoint *b)
{
	const uint64_t end = deadline();
	bool direct = false;

	while (!direct && now_ms() < end)
		if (!writes_from(stage, b, IBV_WC_SUCCESS, &direct))
			return false;
	return check(direct, "the kernel goes on");
}

static bool stays_direct(struct stage *stage, struct endpoint *b, int flags,
			 void *addr, int access, int error)
{
	bool direct;

	return refuses(stage->region.mr, flags, stage->other_pd, addr, access,
		       error) &&
	       writes_from(stage, b, IBV_WC_SUCCESS, &direct) &&
	       check(direct, "flags 0x%x: then it is the kernel's", flags);
}

/*
 * The process goes on to execute requests with the region; if a change has failed, the
 * kernel refuses them.
 */
static bool direct_after_refusal(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_mw_bind_info info = bind_info(&stage->region, 0, BYTES,
						 IBV_ACCESS_REMOTE_WRITE);
	struct ibv_mw *mw = ibv_alloc_mw(stage->pd, IBV_MW_TYPE_1);
	struct endpoint a, b;
	bool ok, direct;

	if (!mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	pair_create(&a, &stage->setup->a_dev, &b, &stage->setup->b_dev,
		    &options);
	if (micdv_set_path(b.qp, MICDV_PATH_DIRECT))
		bail("micdv_set_path fails");
	ok = bind_type1(&b, mw, &info) && becomes_direct(stage, &b) &&
	     stays_direct(stage, &b, TRANSLATION, stage->elsewhere.addr, 0,
			  EBUSY) &&
	     stays_direct(stage, &b, ACCESS, NULL, READ_ONLY, EBUSY) &&
	     stays_direct(stage, &b, PD, NULL, 0, EBUSY) &&
	     stays_direct(stage, &b, ACCESS, NULL, IBV_ACCESS_REMOTE_WRITE,
			  EINVAL);
	tap_must(!ibv_dealloc_mw(mw), "ibv_dealloc_mw fails");
	ok = ok &&
	     refuses(stage->region.mr, TRANSLATION, NULL, (void *)PAGE_BYTES, 0,
		     EFAULT) &&
	     writes_from(stage, &b, IBV_WC_LOC_PROT_ERR, &direct);
	pair_destroy(&a, &b);
	return ok;
}

/* Its number may be that of a domain of the region's context. */
static bool domain_of_another_context(struct stage *stage)
{
	struct ibv_context *ctx = device_open_context(stage->setup->b_dev.name);
	struct ibv_mr *mr = stage->region.mr;
	struct ibv_pd *pd;
	bool ok;

	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	if (!pd)
		bail("no domain of another context: %s", strerror(errno));
	ok = refuses(mr, PD, pd, NULL, 0, EINVAL) &&
	     refuses(mr, PD | TRANSLATION, pd, stage->elsewhere.addr, 0,
		     EINVAL) &&
	     refuses(mr, PD, NULL, NULL, 0, EINVAL) &&
	     is_at(stage, stage->pd, &stage->region);
	tap_must(!ibv_dealloc_pd(pd), "ibv_dealloc_pd fails");
	tap_must(!ibv_close_device(ctx), "ibv_close_device fails");
	return ok;
}

static bool null_region(struct stage *stage)
{
	struct ibv_mr *mr = ibv_alloc_null_mr(stage->pd);
	bool ok;

	if (!check(mr, "ibv_alloc_null_mr: %s", strerror(errno)))
		return false;
	ok = refuses(mr, TRANSLATION, NULL, stage->region.addr, 0, EINVAL);
	return check(!ibv_dereg_mr(mr), "ibv_dereg_mr fails") && ok;
}

static bool device_memory(struct stage *stage)
{
	struct ibv_alloc_dm_attr attr = { .length = PAGE_BYTES };
	struct ibv_dm *dm = ibv_alloc_dm(stage->setup->b_dev.ctx, &attr);
	struct ibv_mr *mr;
	bool ok;

	if (!check(dm, "ibv_alloc_dm: %s", strerror(errno)))
		return false;
	mr = ibv_reg_dm_mr(stage->pd, dm, 0, PAGE_BYTES,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
	ok = check(mr, "ibv_reg_dm_mr: %s", strerror(errno)) &&
	     refuses(mr, TRANSLATION, NULL, stage->region.addr, 0, EINVAL) &&
	     refuses(mr, ACCESS, NULL, NULL, READ_ONLY, EINVAL);
	if (mr)
		ok = check(!ibv_dereg_mr(mr), "ibv_dereg_mr fails") && ok;
	return check(!ibv_free_dm(dm), "ibv_free_dm fails") && ok;
}

static const struct {
	const char *name;
	bool (*run)(struct stage *stage);
	bool one_machine; /* it needs the device itself */
} cases[] = {
	{ "domain and memory", domain_and_memory, false },
	{ "domain and rights", domain_and_rights, false },
	{ "memory and rights", memory_and_rights, false },
	{ "domain, memory and rights", all_at_once, false },
	{ "a change that failed", after_a_failure, false },
	{ "a change that is refused", refused_at_once, false },
	{ "a region with a window", with_a_window, false },
	{ "direct requests after a refusal", direct_after_refusal, true },
	{ "a domain of another context, or none", domain_of_another_context,
	  false },
	{ "a null region", null_region, true },
	{ "device memory", device_memory, true },
};

int main(int argc, char **argv)
{
	struct stage stage;
	struct setup setup;
	unsigned int i;
	bool ok;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	for (i = 0; i < COUNT(cases); i++) {
		if (cases[i].one_machine && setup_is_remote(&setup))
			continue;
		stage_open(&stage, &setup);
		ok = cases[i].run(&stage);
		stage_close(&stage);
		tap_ok(ok, "%s", cases[i].name);
	}
	setup_close(&setup);
	return tap_end();
}
