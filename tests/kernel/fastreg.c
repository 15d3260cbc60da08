// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A kernel consumer that registers as many pages fast as a region may have, and
 * one more. Loading the module runs one case; that fails if the case does, and
 * the log says why.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mm.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

#include "cases.h"
#include "side.h"

#define TEST_SEED	0x5a

/**
 * struct bench - what a case works with
 * @near: writes and reads
 * @far: has a region of @max pages
 * @mr: the region
 * @max: so many pages may it have
 * @sg: one page more than that
 * @buffer: memory of @near, as much as the region
 */
struct bench {
	struct side near;
	struct side far;
	struct ib_mr *mr;
	u32 max;
	struct sg_table sg;
	u8 *buffer;
};

/* --- the region -------------------------------------------------------------- */

static int pages_alloc(struct bench *bench)
{
	struct scatterlist *sg;
	struct page *page;
	unsigned int i;
	int err;

	err = sg_alloc_table(&bench->sg, bench->max + 1, GFP_KERNEL);
	if (err)
		return err;
	for_each_sgtable_sg(&bench->sg, sg, i) {
		page = alloc_page(GFP_KERNEL);
		if (!page)
			return -ENOMEM;
		memset(page_address(page), TEST_SEED, PAGE_SIZE);
		sg_set_page(sg, page, PAGE_SIZE, 0);
	}
	return ib_dma_map_sg(bench->far.dev, bench->sg.sgl, bench->max + 1,
			     DMA_BIDIRECTIONAL) == bench->max + 1 ? 0 : -EIO;
}

static void pages_free(struct bench *bench)
{
	struct scatterlist *sg;
	unsigned int i;

	if (!bench->sg.sgl)
		return;
	for_each_sgtable_sg(&bench->sg, sg, i)
		if (sg_page(sg))
			__free_page(sg_page(sg));
	sg_free_table(&bench->sg);
}

static void bench_close(struct bench *bench)
{
	if (!IS_ERR_OR_NULL(bench->mr))
		ib_dereg_mr(bench->mr);
	pages_free(bench);
	if (bench->buffer)
		free_pages_exact(bench->buffer, (size_t)bench->max * PAGE_SIZE);
	side_close(&bench->near);
	side_close(&bench->far);
}

static int bench_open(struct bench *bench, const char *device,
		      const char *peer)
{
	int err;

	err = side_open(&bench->near, device) ?: side_open(&bench->far, peer);
	err = err ?: side_create_qp(&bench->near, NULL);
	err = err ?: side_create_qp(&bench->far, NULL);
	err = err ?: side_connect(&bench->near, &bench->far);
	err = err ?: side_connect(&bench->far, &bench->near);
	if (err)
		return err;
	bench->max = bench->far.dev->attrs.max_fast_reg_page_list_len;
	bench->buffer = alloc_pages_exact((size_t)bench->max * PAGE_SIZE, GFP_KERNEL);
	if (!bench->buffer)
		return -ENOMEM;
	bench->mr = ib_alloc_mr(bench->far.pd, IB_MR_TYPE_MEM_REG, bench->max);
	if (IS_ERR(bench->mr))
		return PTR_ERR(bench->mr);
	return pages_alloc(bench);
}

/* All pages are offered, which is one too many. */
static int register_pages(struct bench *bench)
{
	struct ib_reg_wr wr = {
		.wr = { .opcode = IB_WR_REG_MR },
		.mr = bench->mr,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ |
			  IB_ACCESS_REMOTE_WRITE,
	};
	int n;

	n = ib_map_mr_sg(bench->mr, bench->sg.sgl, bench->max + 1, NULL, PAGE_SIZE);
	if (n != bench->max || bench->mr->length != (u64)bench->max * PAGE_SIZE) {
		pr_err("%d pages of %u were taken, %llu bytes\n", n, bench->max + 1,
		       bench->mr->length);
		return -EINVAL;
	}
	ib_update_fast_reg_key(bench->mr, ib_inc_rkey(bench->mr->rkey));
	wr.key = bench->mr->rkey;
	return side_execute(&bench->far, &wr.wr);
}

/* A request of the other side for part of the region: its status. */
static int access_region(struct bench *bench, enum ib_wr_opcode opcode, u64 offset,
			 u32 length)
{
	struct ib_sge sge = {
		.addr = (uintptr_t)bench->buffer,
		.length = length,
		.lkey = bench->near.pd->local_dma_lkey,
	};
	struct ib_rdma_wr wr = {
		.wr = { .opcode = opcode, .sg_list = &sge, .num_sge = 1 },
		.remote_addr = bench->mr->iova + offset,
		.rkey = bench->mr->rkey,
	};

	return side_execute(&bench->near, &wr.wr);
}

/* No two pages hold the same. */
static u8 pattern(size_t offset)
{
	return offset + offset / PAGE_SIZE * 7 + (offset >> 17);
}

static bool page_is_untouched(const struct bench *bench)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_sg(&bench->sg, sg, i)
		if (sg_is_last(sg))
			return !memchr_inv(sg_virt(sg), TEST_SEED, PAGE_SIZE);
	return false;
}

/* Is the pattern in @memory, which is the region's from @offset on? */
static int compare(const u8 *memory, size_t offset, size_t length)
{
	size_t i;

	for (i = 0; i < length; i++) {
		if (memory[i] == pattern(offset + i))
			continue;
		pr_err("byte %zu is 0x%02x\n", offset + i, memory[i]);
		return -EIO;
	}
	return 0;
}

static int compare_pages(const struct bench *bench)
{
	struct scatterlist *sg;
	unsigned int i;
	int err = 0;

	for_each_sgtable_sg(&bench->sg, sg, i)
		if (!err && i < bench->max)
			err = compare(sg_virt(sg), (size_t)i * PAGE_SIZE, PAGE_SIZE);
	return err;
}

/* --- cases ------------------------------------------------------------------- */

/* Each byte is written and read; the page that found no place is not. */
static int test_limit(struct bench *bench)
{
	size_t length = (size_t)bench->max * PAGE_SIZE, i;
	int err;

	for (i = 0; i < length; i++)
		bench->buffer[i] = pattern(i);
	err = register_pages(bench) ?:
	      access_region(bench, IB_WR_RDMA_WRITE, 0, length) ?:
	      compare_pages(bench);
	if (err)
		return err;
	memset(bench->buffer, 0, length);
	err = access_region(bench, IB_WR_RDMA_READ, 0, length) ?:
	      compare(bench->buffer, 0, length);
	if (!err && !page_is_untouched(bench)) {
		pr_err("the page that was not taken has been written\n");
		err = -EIO;
	}
	return err;
}

static int expect_refused(struct bench *bench, u64 offset, u32 length)
{
	int status = access_region(bench, IB_WR_RDMA_WRITE, offset, length);

	if (status == IB_WC_REM_ACCESS_ERR && page_is_untouched(bench))
		return 0;
	pr_err("%u bytes at %llu: status %d\n", length, offset, status);
	return -EIO;
}

/* The last byte of the region, and the one behind it. */
static int test_beyond(struct bench *bench)
{
	u64 length = (u64)bench->max * PAGE_SIZE;

	return register_pages(bench) ?:
	       access_region(bench, IB_WR_RDMA_WRITE, length - 1, 1) ?:
	       expect_refused(bench, length - 1, 2);
}

static int test_invalidated(struct bench *bench)
{
	struct ib_send_wr wr = { .opcode = IB_WR_LOCAL_INV };
	int err = register_pages(bench);

	wr.ex.invalidate_rkey = bench->mr->rkey;
	return err ?: side_execute(&bench->far, &wr) ?: expect_refused(bench, 0, 1);
}

/* Neither is there a region for one page more. */
static int test_refused(struct bench *bench)
{
	struct ib_mr *mr = ib_alloc_mr(bench->far.pd, IB_MR_TYPE_MEM_REG, bench->max + 1);

	if (!IS_ERR(mr))
		ib_dereg_mr(mr);
	return mr == ERR_PTR(-EINVAL) ? 0 : -EIO;
}

static const struct test_case tests[] = {
	{ "limit", test_limit },
	{ "beyond", test_beyond },
	{ "invalidated", test_invalidated },
	{ "refused", test_refused },
};

const struct cases cases = {
	.of = tests,
	.count = ARRAY_SIZE(tests),
	.bench_size = sizeof(struct bench),
	.open = bench_open,
	.close = bench_close,
};

MODULE_DESCRIPTION("Fast registration of as many pages as there may be");
MODULE_LICENSE("Dual BSD/GPL");
