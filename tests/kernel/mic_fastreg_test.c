// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A kernel consumer that registers as many pages fast as a region may have, and
 * one more. Loading the module runs one case; that fails if the case does, and
 * the log says why.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <net/ipv6.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#define TEST_PORT	1
#define TEST_PSN	0x123
#define TEST_PATIENCE	(60 * HZ)
#define TEST_SEED	0x5a

static char *device = "mic0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "the device that writes and reads");

static char *peer = "mic1";
module_param(peer, charp, 0444);
MODULE_PARM_DESC(peer, "the device that registers");

static char *test = "";
module_param(test, charp, 0444);
MODULE_PARM_DESC(test, "limit, beyond, invalidated or refused");

/**
 * struct side - one end of a connection
 * @dev: device, held
 * @pd: protection domain
 * @cq: completions of @qp
 * @qp: queue pair
 * @gid: the device's address
 * @gid_index: its place in the table
 */
struct side {
	struct ib_device *dev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	union ib_gid gid;
	int gid_index;
};

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

/* --- a connection ------------------------------------------------------------ */

/* RoCE v2 over IPv4, as the user-space tests use. */
static int find_gid(struct side *side)
{
	const struct ib_gid_attr *attr;
	bool found;
	int i;

	for (i = 0; i < side->dev->port_data[TEST_PORT].immutable.gid_tbl_len; i++) {
		attr = rdma_get_gid_attr(side->dev, TEST_PORT, i);
		if (IS_ERR(attr))
			continue;
		found = attr->gid_type == IB_GID_TYPE_ROCE_UDP_ENCAP &&
			ipv6_addr_v4mapped((const struct in6_addr *)&attr->gid);
		side->gid = attr->gid;
		side->gid_index = i;
		rdma_put_gid_attr(attr);
		if (found)
			return 0;
	}
	return -EADDRNOTAVAIL;
}

static void side_close(struct side *side)
{
	if (!IS_ERR_OR_NULL(side->qp))
		ib_destroy_qp(side->qp);
	if (!IS_ERR_OR_NULL(side->cq))
		ib_free_cq(side->cq);
	if (!IS_ERR_OR_NULL(side->pd))
		ib_dealloc_pd(side->pd);
	if (side->dev)
		ib_device_put(side->dev);
}

static int side_open(struct side *side, const char *name)
{
	struct ib_qp_init_attr init = {
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	side->dev = ib_device_get_by_name(name, RDMA_DRIVER_UNKNOWN);
	if (!side->dev)
		return -ENODEV;
	side->pd = ib_alloc_pd(side->dev, 0);
	if (IS_ERR(side->pd))
		return PTR_ERR(side->pd);
	side->cq = ib_alloc_cq(side->dev, NULL, 16, 0, IB_POLL_DIRECT);
	if (IS_ERR(side->cq))
		return PTR_ERR(side->cq);
	init.send_cq = side->cq;
	init.recv_cq = side->cq;
	side->qp = ib_create_qp(side->pd, &init);
	if (IS_ERR(side->qp))
		return PTR_ERR(side->qp);
	return find_gid(side);
}

static int side_connect(struct side *side, const struct side *other)
{
	struct ib_qp_attr init = {
		.qp_state = IB_QPS_INIT,
		.port_num = TEST_PORT,
		.qp_access_flags = IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE,
	};
	struct ib_qp_attr rtr = {
		.qp_state = IB_QPS_RTR,
		.path_mtu = IB_MTU_1024,
		.dest_qp_num = other->qp->qp_num,
		.rq_psn = TEST_PSN,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
	};
	struct ib_qp_attr rts = {
		.qp_state = IB_QPS_RTS,
		.sq_psn = TEST_PSN,
		.timeout = 18,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 16,
	};
	union ib_gid gid = other->gid;
	int err;

	rtr.ah_attr.type = rdma_ah_find_type(side->dev, TEST_PORT);
	rdma_ah_set_port_num(&rtr.ah_attr, TEST_PORT);
	rdma_ah_set_grh(&rtr.ah_attr, &gid, 0, side->gid_index, 64, 0);
	err = ib_modify_qp(side->qp, &init, IB_QP_STATE | IB_QP_PKEY_INDEX |
			   IB_QP_PORT | IB_QP_ACCESS_FLAGS) ?:
	      ib_modify_qp(side->qp, &rtr, IB_QP_STATE | IB_QP_AV |
			   IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN |
			   IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER) ?:
	      ib_modify_qp(side->qp, &rts, IB_QP_STATE | IB_QP_SQ_PSN |
			   IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
			   IB_QP_MAX_QP_RD_ATOMIC);
	return err;
}

/* Post a request; its status, or an error. */
static int execute(struct side *side, const struct ib_send_wr *wr)
{
	unsigned long end = jiffies + TEST_PATIENCE;
	struct ib_wc wc;
	int n, err;

	err = ib_post_send(side->qp, wr, NULL);
	if (err)
		return err;
	do {
		n = ib_poll_cq(side->cq, 1, &wc);
		if (n)
			return n < 0 ? n : (int)wc.status;
		usleep_range(100, 200);
	} while (time_before(jiffies, end));
	return -ETIMEDOUT;
}

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

static int bench_open(struct bench *bench)
{
	int err;

	err = side_open(&bench->near, device) ?: side_open(&bench->far, peer);
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
	return execute(&bench->far, &wr.wr);
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

	return execute(&bench->near, &wr.wr);
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
	return err ?: execute(&bench->far, &wr) ?: expect_refused(bench, 0, 1);
}

/* Neither is there a region for one page more. */
static int test_refused(struct bench *bench)
{
	struct ib_mr *mr = ib_alloc_mr(bench->far.pd, IB_MR_TYPE_MEM_REG, bench->max + 1);

	if (!IS_ERR(mr))
		ib_dereg_mr(mr);
	return mr == ERR_PTR(-EINVAL) ? 0 : -EIO;
}

static const struct {
	const char *name;
	int (*run)(struct bench *bench);
} tests[] = {
	{ "limit", test_limit },
	{ "beyond", test_beyond },
	{ "invalidated", test_invalidated },
	{ "refused", test_refused },
};

static int run_test(int (*run)(struct bench *bench))
{
	struct bench *bench = kzalloc(sizeof(*bench), GFP_KERNEL);
	int err;

	if (!bench)
		return -ENOMEM;
	err = bench_open(bench);
	if (err)
		pr_err("no connection from %s to %s: %d\n", device, peer, err);
	else
		err = run(bench);
	bench_close(bench);
	kfree(bench);
	/* a completion's status is positive */
	return err > 0 ? -EIO : err;
}

static int __init mic_fastreg_test_init(void)
{
	unsigned int i;
	int err;

	for (i = 0; i < ARRAY_SIZE(tests); i++) {
		if (strcmp(test, tests[i].name))
			continue;
		err = run_test(tests[i].run);
		pr_info("%s of %s: %d\n", test, peer, err);
		return err;
	}
	return -EINVAL;
}

static void __exit mic_fastreg_test_exit(void)
{
}

module_init(mic_fastreg_test_init);
module_exit(mic_fastreg_test_exit);

MODULE_DESCRIPTION("Fast registration of as many pages as there may be");
MODULE_LICENSE("Dual BSD/GPL");
