// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions that are no user memory: without memory, of the device. And those
 * whose rights change, or that are another device's. Those of dma-bufs are in
 * regions_dmabuf.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pattern.h"
#include "regions.h"
#include "tap.h"
#include "work.h"

#define REGION_BYTES (1UL << 16)

static void fill(struct setup *setup)
{
	memset(setup->a_mem.addr, FILL_BYTE, REGION_BYTES);
	memset(setup->b_mem.addr, FILL_BYTE, REGION_BYTES);
}

enum ibv_wc_status access_b(struct stage *stage, enum ibv_wr_opcode opcode,
			    struct ibv_sge *sges, int count, size_t offset)
{
	struct ibv_send_wr wr = send_wr(1, opcode, sges, count);
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };

	wr.wr.rdma.remote_addr = stage->setup->b_mem.rdma_addr + offset;
	wr.wr.rdma.rkey = stage->setup->b_mem.mr->rkey;
	post_send(&stage->a, &wr);
	cq_wait(stage->a.send_cq, &wc);
	return wc.status;
}

bool succeeds(enum ibv_wc_status status)
{
	return check(!status, "the status is %s", ibv_wc_status_str(status));
}

bool ends_with(enum ibv_wc_status status, enum ibv_wc_status expected)
{
	return check(status == expected, "the status is %s instead of %s",
		     ibv_wc_status_str(status), ibv_wc_status_str(expected));
}

enum ibv_wc_status try_request(struct setup *setup, bool from_b,
			       struct ibv_send_wr wr)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
	struct endpoint a, b;

	pair_create(&a, from_b ? &setup->b_dev : &setup->a_dev, &b,
		    from_b ? &setup->a_dev : &setup->b_dev, &options);
	post_send(&a, &wr);
	cq_wait(a.send_cq, &wc);
	pair_destroy(&a, &b);
	return wc.status;
}

/* --- the null region -------------------------------------------------------- */

static struct ibv_mr *null_mr(struct ibv_pd *pd)
{
	struct ibv_mr *mr = ibv_alloc_null_mr(pd);

	if (!mr)
		bail("ibv_alloc_null_mr: %s", strerror(errno));
	return mr;
}

static struct ibv_sge null_sge(const struct ibv_mr *mr, uint64_t addr,
			       uint32_t length)
{
	return (struct ibv_sge){ .addr = addr,
				 .length = length,
				 .lkey = mr->lkey };
}

/* Zeros in the middle of a WRITE, and a hole in a READ. */
static bool null_in_lists(struct stage *stage)
{
	struct setup *setup = stage->setup;
	struct ibv_mr *mr = null_mr(setup->a_dev.pd);
	struct ibv_sge list[3] = {
		region_sge(&setup->a_mem, 0, 100),
		null_sge(mr, 0x123456789abcULL, 300),
		region_sge(&setup->a_mem, 200, 100),
	};
	const uint8_t *to = setup->b_mem.addr, *from = setup->a_mem.addr;
	const uint8_t *bytes = pattern_bytes(1, 500);
	bool ok;

	fill(setup);
	ok = succeeds(access_b(stage, IBV_WR_RDMA_WRITE, list, 3, 0)) &&
	     all_are(to, 100, FILL_BYTE) && all_are(to + 100, 300, 0) &&
	     all_are(to + 400, 200, FILL_BYTE);
	memcpy(setup->b_mem.addr, bytes, 500);
	ok = ok && succeeds(access_b(stage, IBV_WR_RDMA_READ, list, 3, 0)) &&
	     check(!memcmp(from, bytes, 100), "bytes before the hole") &&
	     all_are(from + 100, 100, FILL_BYTE) &&
	     check(!memcmp(from + 200, bytes + 400, 100),
		   "bytes after the hole");
	return check(!ibv_dereg_mr(mr), "ibv_dereg_mr fails") && ok;
}

/* Any address, many bytes, and back to back. */
static bool null_alone(struct stage *stage)
{
	struct setup *setup = stage->setup;
	struct ibv_mr *mr = null_mr(setup->a_dev.pd);
	struct ibv_sge low = null_sge(mr, 0, REGION_BYTES);
	struct ibv_sge high = null_sge(mr, UINT64_MAX - REGION_BYTES,
				       REGION_BYTES);
	bool ok;

	fill(setup);
	ok = succeeds(access_b(stage, IBV_WR_RDMA_READ, &low, 1, 0)) &&
	     all_are(setup->b_mem.addr, REGION_BYTES, FILL_BYTE) &&
	     succeeds(access_b(stage, IBV_WR_RDMA_WRITE, &high, 1, 0)) &&
	     all_are(setup->b_mem.addr, REGION_BYTES, 0);
	return check(!ibv_dereg_mr(mr), "ibv_dereg_mr fails") && ok;
}

static bool null_receive(struct stage *stage)
{
	struct setup *setup = stage->setup;
	struct ibv_mr *from = null_mr(setup->a_dev.pd);
	struct ibv_mr *into = null_mr(setup->b_dev.pd);
	struct ibv_sge list[2] = {
		null_sge(into, 0, 100),
		region_sge(&setup->b_mem, 0, 100),
	};
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 200);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge, 1);
	const uint8_t *bytes = pattern_bytes(2, 200);
	struct ibv_wc wc;
	bool ok;

	fill(setup);
	memcpy(setup->a_mem.addr, bytes, 200);
	post_recv(&stage->b, 7, list, 2);
	post_send(&stage->a, &wr);
	ok = cq_success(stage->a.send_cq, 1, &wc) &&
	     cq_success(stage->b.recv_cq, 7, &wc) &&
	     check(wc.byte_len == 200, "%u bytes", wc.byte_len) &&
	     check(!memcmp(setup->b_mem.addr, bytes + 100, 100), "bytes");
	/* nothing to nothing */
	list[0].length = 200;
	sge = null_sge(from, 0, 200);
	post_recv(&stage->b, 8, list, 1);
	post_send(&stage->a, &wr);
	ok = ok && cq_success(stage->a.send_cq, 1, &wc) &&
	     cq_success(stage->b.recv_cq, 8, &wc);
	tap_must(!ibv_dereg_mr(from), "ibv_dereg_mr fails");
	return check(!ibv_dereg_mr(into), "ibv_dereg_mr fails") && ok;
}

static bool null_is_no_rkey(struct stage *stage)
{
	struct setup *setup = stage->setup;
	struct ibv_mr *mr = null_mr(setup->b_dev.pd);
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_READ, &sge, 1);
	bool ok;

	wr.wr.rdma.rkey = mr->lkey;
	post_send(&stage->a, &wr);
	ok = cq_expect(stage->a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	return check(!ibv_dereg_mr(mr), "ibv_dereg_mr fails") && ok;
}

static bool null_of_other_pd(struct stage *stage)
{
	struct ibv_pd *pd = ibv_alloc_pd(stage->setup->a_dev.ctx);
	struct ibv_mr *mr = null_mr(pd);
	struct ibv_sge sge = null_sge(mr, 0, 8);
	bool ok;

	ok = ends_with(access_b(stage, IBV_WR_RDMA_WRITE, &sge, 1, 0),
		       IBV_WC_LOC_PROT_ERR);
	return check(!ibv_dereg_mr(mr), "ibv_dereg_mr fails") &&
	       check(!ibv_dealloc_pd(pd), "ibv_dealloc_pd fails") && ok;
}

static bool null_stale(struct stage *stage)
{
	struct ibv_mr *mr = null_mr(stage->setup->a_dev.pd);
	struct ibv_sge sge = null_sge(mr, 0, 8);

	return check(!ibv_dereg_mr(mr), "ibv_dereg_mr fails") &&
	       ends_with(access_b(stage, IBV_WR_RDMA_WRITE, &sge, 1, 0),
			 IBV_WC_LOC_PROT_ERR);
}

/* --- device memory ---------------------------------------------------------- */

static bool dm_imported(struct stage *stage)
{
	struct setup *setup = stage->setup;
	struct ibv_alloc_dm_attr attr = { .length = 5000 };
	struct ibv_dm *dm = ibv_alloc_dm(setup->a_dev.ctx, &attr);
	uint8_t bytes[512], back[512];
	struct ibv_context *ctx;
	struct ibv_dm *imported;
	bool ok;

	ctx = ibv_import_device(dup(setup->a_dev.ctx->cmd_fd));
	if (!dm || !ctx)
		bail("no device memory, or no import: %s", strerror(errno));
	imported = ibv_import_dm(ctx, dm->handle);
	if (!check(imported, "ibv_import_dm: %s", strerror(errno)))
		return false;
	memcpy(bytes, pattern_bytes(3, sizeof(bytes)), sizeof(bytes));
	ok = check(!ibv_memcpy_to_dm(dm, 4096, bytes, sizeof(bytes)), "to") &&
	     check(!ibv_memcpy_from_dm(back, imported, 4096, sizeof(back)),
		   "from") &&
	     check(!memcmp(bytes, back, sizeof(back)), "other bytes") &&
	     check(ibv_memcpy_from_dm(back, imported, 4996, 8) == EINVAL,
		   "beyond the end");
	memset(bytes, 0x77, sizeof(bytes));
	ok = ok && check(!ibv_memcpy_to_dm(imported, 0, bytes, 512), "to") &&
	     check(!ibv_memcpy_from_dm(back, dm, 0, 512), "from") &&
	     all_are(back, 512, 0x77);
	ibv_unimport_dm(imported);
	ok = ok && check(!ibv_memcpy_from_dm(back, dm, 0, 512), "after") &&
	     all_are(back, 512, 0x77);
	ok = check(!ibv_free_dm(dm), "ibv_free_dm fails") && ok &&
	     check(!ibv_import_dm(ctx, dm->handle), "a freed one is imported");
	tap_must(!ibv_close_device(ctx), "ibv_close_device fails");
	return ok;
}

/* --- registered again --------------------------------------------------------- */

#define READ_ONLY IBV_ACCESS_REMOTE_READ
#define READ_WRITE                                                             \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |                     \
	 IBV_ACCESS_REMOTE_WRITE)

/* a asks for @region of b's. */
static enum ibv_wc_status remote(struct setup *setup, enum ibv_wr_opcode opcode,
				 const struct region *region)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 100);
	struct ibv_send_wr wr = send_wr(1, opcode, &sge, 1);

	wr.wr.rdma.remote_addr = region->rdma_addr;
	wr.wr.rdma.rkey = region->mr->rkey;
	return try_request(setup, false, wr);
}

/* b itself reads or writes with @region. */
static enum ibv_wc_status local(struct setup *setup, enum ibv_wr_opcode opcode,
				const struct region *region)
{
	struct ibv_sge sge = region_sge(region, 0, 100);
	struct ibv_send_wr wr = send_wr(1, opcode, &sge, 1);

	wr.wr.rdma.remote_addr = setup->a_mem.rdma_addr;
	wr.wr.rdma.rkey = setup->a_mem.mr->rkey;
	return try_request(setup, true, wr);
}

/* All that its rights allow works, and nothing else. */
static bool has_rights(struct setup *setup, const struct region *region,
		       bool writable)
{
	return succeeds(remote(setup, IBV_WR_RDMA_READ, region)) &&
	       ends_with(remote(setup, IBV_WR_RDMA_WRITE, region),
			 writable ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR) &&
	       succeeds(local(setup, IBV_WR_RDMA_WRITE, region)) &&
	       ends_with(local(setup, IBV_WR_RDMA_READ, region),
			 writable ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
}

static bool change_rights(struct region *region, int access)
{
	const uint32_t lkey = region->mr->lkey, rkey = region->mr->rkey;
	int error = ibv_rereg_mr(region->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
				 NULL, 0, access);

	return check(!error, "ibv_rereg_mr: %d, %s", error, strerror(errno)) &&
	       check(region->mr->lkey == lkey && region->mr->rkey == rkey,
		     "it has other keys");
}

/*
 * Pages that nobody had written to when they were pinned for reading: what is
 * written to them afterwards the process has to see.
 */
static bool gains_rights(struct stage *stage)
{
	struct setup *setup = stage->setup;
	struct region region;
	bool ok;

	if (!region_map(&region, MEMORY_ANON, PAGE_BYTES))
		bail("cannot map memory");
	region_register(&region, setup->b_dev.pd, READ_ONLY);
	ok = has_rights(setup, &region, false) &&
	     change_rights(&region, READ_WRITE);
	memset(setup->a_mem.addr, 0x6d, 100);
	ok = ok && succeeds(remote(setup, IBV_WR_RDMA_WRITE, &region)) &&
	     all_are(region.addr, 100, 0x6d) &&
	     has_rights(setup, &region, true);
	region_destroy(&region);
	return ok;
}

/* Offsets are its addresses, those of its owner too. */
static bool zero_based(struct stage *stage)
{
	const int access = READ_WRITE | IBV_ACCESS_ZERO_BASED;
	uint8_t *from = stage->setup->a_mem.addr;
	uint8_t *to = stage->setup->b_mem.addr;
	struct ibv_mr *source = ibv_reg_mr(stage->setup->a_dev.pd, from + 200,
					   1000, access);
	struct ibv_mr *target = ibv_reg_mr(stage->setup->b_dev.pd, to + 100,
					   1000, access);
	struct ibv_sge sge = { .addr = 992, .length = 8 };
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);
	bool ok;

	if (!source || !target)
		bail("ibv_reg_mr: %s", strerror(errno));
	fill(stage->setup);
	memset(from + 1192, 0x6d, 8);
	sge.lkey = source->lkey;
	wr.wr.rdma.rkey = target->rkey;
	wr.wr.rdma.remote_addr = 5;
	post_send(&stage->a, &wr);
	ok = cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) &&
	     all_are(to, 105, FILL_BYTE) && all_are(to + 105, 8, 0x6d) &&
	     all_are(to + 113, 8, FILL_BYTE);
	wr.wr.rdma.remote_addr = (uintptr_t)target->addr;
	post_send(&stage->a, &wr);
	ok = cq_expect(stage->a.send_cq, 1, IBV_WC_REM_ACCESS_ERR) && ok;
	ibv_dereg_mr(source);
	ibv_dereg_mr(target);
	return ok;
}

static bool loses_rights(struct stage *stage)
{
	struct setup *setup = stage->setup;
	struct region region;
	bool ok;

	if (!region_map(&region, MEMORY_ANON, PAGE_BYTES))
		bail("cannot map memory");
	region_register(&region, setup->b_dev.pd, READ_WRITE);
	ok = has_rights(setup, &region, true) &&
	     change_rights(&region, READ_ONLY);
	memset(region.addr, 0x17, 100);
	memset(setup->a_mem.addr, 0x6d, 100);
	ok = ok && has_rights(setup, &region, false) &&
	     all_are(region.addr, 100, 0x17) &&
	     all_are(setup->a_mem.addr, 100, 0x17) &&
	     change_rights(&region, READ_WRITE) &&
	     has_rights(setup, &region, true);
	region_destroy(&region);
	return ok;
}

/* Memory that may not be written: the region is then one of nothing. */
static bool gains_too_much(struct stage *stage)
{
	struct setup *setup = stage->setup;
	struct region region;
	bool ok;

	if (!region_map(&region, MEMORY_ANON, PAGE_BYTES))
		bail("cannot map memory");
	if (mprotect(region.map, region.map_length, PROT_READ))
		bail("mprotect: %s", strerror(errno));
	region_register(&region, setup->b_dev.pd, READ_ONLY);
	ok = succeeds(remote(setup, IBV_WR_RDMA_READ, &region)) &&
	     check(ibv_rereg_mr(region.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
				NULL, 0, READ_WRITE),
		   "memory that may not be written is registered for it") &&
	     ends_with(remote(setup, IBV_WR_RDMA_READ, &region),
		       IBV_WC_REM_ACCESS_ERR) &&
	     ends_with(remote(setup, IBV_WR_RDMA_WRITE, &region),
		       IBV_WC_REM_ACCESS_ERR) &&
	     ends_with(local(setup, IBV_WR_RDMA_WRITE, &region),
		       IBV_WC_LOC_PROT_ERR) &&
	     all_are(region.addr, 100, 0);
	region_destroy(&region);
	return ok;
}

/* --- keys of the other device ------------------------------------------------- */

/*
 * Keys are a device's own. Two devices may have the same number, but then it is of
 * memory elsewhere.
 */
static bool key_of_other_device(struct stage *stage)
{
	struct setup *setup = stage->setup;
	struct region foreign, own;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	bool ok;

	region_create(&foreign, setup->a_dev.pd, PAGE_BYTES);
	region_create(&own, setup->b_dev.pd, PAGE_BYTES);
	while (foreign.mr->rkey == own.mr->rkey) {
		region_destroy(&own);
		region_create(&own, setup->b_dev.pd, PAGE_BYTES);
	}
	memset(foreign.addr, FILL_BYTE, PAGE_BYTES);
	ok = ends_with(remote(setup, IBV_WR_RDMA_WRITE, &foreign),
		       IBV_WC_REM_ACCESS_ERR) &&
	     ends_with(remote(setup, IBV_WR_RDMA_READ, &foreign),
		       IBV_WC_REM_ACCESS_ERR) &&
	     ends_with(local(setup, IBV_WR_RDMA_READ, &foreign),
		       IBV_WC_LOC_PROT_ERR);
	/* it is good where it belongs */
	sge = region_sge(&foreign, 0, 100);
	wr = send_wr(1, IBV_WR_RDMA_READ, &sge, 1);
	wr.wr.rdma.remote_addr = own.rdma_addr;
	wr.wr.rdma.rkey = own.mr->rkey;
	ok = ok && all_are(foreign.addr, PAGE_BYTES, FILL_BYTE) &&
	     succeeds(try_request(setup, false, wr));
	region_destroy(&foreign);
	region_destroy(&own);
	return ok;
}

/* ---------------------------------------------------------------------------- */

static const struct region_case cases[] = {
	{ null_in_lists, "null region: in the middle of lists", false },
	{ null_alone, "null region: alone, at any address", false },
	{ null_receive, "null region: receives into nothing", true },
	{ null_is_no_rkey, "null region: its key is no rkey", true },
	{ null_of_other_pd, "null region: of another PD", false },
	{ null_stale, "null region: deregistered", false },
	{ dm_imported, "device memory imported", true },
	{ zero_based, "a zero based region", false },
	{ gains_rights, "registered again: for writing, too", false },
	{ loses_rights, "registered again: for reading only", false },
	{ gains_too_much, "registered again: for more than may be", true },
	{ key_of_other_device, "keys of another device", false },
};

void run_case(struct setup *setup, struct neighbours *neighbours,
	      const struct region_case *one)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct stage stage = { .setup = setup };
	bool ok;

	if (one->one_machine && setup_is_remote(setup))
		return;
	pair_create(&stage.a, &setup->a_dev, &stage.b, &setup->b_dev, &options);
	ok = one->run(&stage);
	pair_destroy(&stage.a, &stage.b);
	tap_ok(ok && neighbours_work(neighbours), "%s", one->name);
}

int main(int argc, char **argv)
{
	struct neighbours neighbours;
	struct setup setup;
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	neighbours_open(&neighbours, &setup);
	for (i = 0; i < COUNT(cases); i++)
		run_case(&setup, &neighbours, &cases[i]);
	run_dmabufs(&setup, &neighbours);
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
