// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the device says it can: for each of its limits that much, and one more.
 * Those of how many objects there may be are in crowds.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "idle_memory.h"
#include "measure.h"
#include "memory.h"
#include "pattern.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 16)
#define GIB (1UL << 30)

/* What the issue of them promises, whatever the device says. */
enum {
	LEAST_CQE = 4194304,
	LEAST_WR = 32768,
	LEAST_SGE = 32,
	LEAST_INLINE = 512,
	LEAST_READS = 128,
};

static struct setup setup;

/* --- queue pairs ------------------------------------------------------------ */

static struct endpoint_options small(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	options.depth = 4;
	options.sges = 1;
	return options;
}

static bool creates(const struct endpoint_options *options)
{
	struct endpoint ep;

	if (!endpoint_try_create(&ep, &setup.a_dev, options))
		return false;
	endpoint_destroy(&ep);
	return true;
}

static bool refuses(const struct endpoint_options *options)
{
	return check(!creates(options), "it is created") &&
	       check(errno == EINVAL, "errno %s", strerror(errno));
}

static bool max_qp_wr(void)
{
	struct endpoint_options options = small();
	struct ibv_cq *cq;
	bool ok;

	cq = ibv_create_cq(setup.a_dev.ctx, 16, NULL, NULL, 0);
	options.send_cq = cq;
	options.recv_cq = cq;
	options.depth = setup.a_dev.attr.max_qp_wr;
	ok = check(options.depth >= LEAST_WR, "max_qp_wr %u", options.depth) &&
	     check(creates(&options), "it is refused");
	options.depth++;
	ok = ok && refuses(&options);
	ibv_destroy_cq(cq);
	return ok;
}

/* As many requests as fit wait in the queue, and all are carried out. */
static bool deep_queue(void)
{
	struct endpoint_options options = small();
	uint32_t depth = setup.a_dev.attr.max_qp_wr, i;
	struct ibv_send_wr wr = send_wr(0, IBV_WR_SEND, NULL, 0);
	struct endpoint a, b;
	struct ibv_wc wc;
	bool ok = true;

	options.depth = depth;
	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	for (i = 0; ok && i < depth; i++) {
		wr.wr_id = i;
		ok = check(!try_post_send(&a, &wr), "send %u is refused", i);
	}
	ok = ok && check(try_post_send(&a, &wr) == ENOMEM, "one more fits");
	for (i = 0; ok && i < depth; i++)
		ok = check(!try_post_recv(&b, i, NULL, 0), "receive %u", i);
	for (i = 0; ok && i < depth; i++)
		ok = cq_success(a.send_cq, i, &wc) &&
		     cq_success(b.recv_cq, i, &wc);
	pair_destroy(&a, &b);
	return ok;
}

static bool max_sge(void)
{
	struct endpoint_options options = small();
	bool ok;

	options.sges = setup.a_dev.attr.max_sge;
	ok = check(options.sges >= LEAST_SGE, "max_sge %u", options.sges) &&
	     check(creates(&options), "it is refused");
	options.sges++;
	return ok && refuses(&options);
}

/* A message of as many pieces as may be, gathered and scattered. */
static bool many_pieces(void)
{
	struct endpoint_options options = small();
	uint32_t n = setup.a_dev.attr.max_sge, i;
	struct ibv_sge from[LEAST_SGE + 1], to[LEAST_SGE + 1];
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, from, LEAST_SGE);
	struct endpoint a, b;
	bool ok = true;

	n = n > LEAST_SGE ? LEAST_SGE : n;
	options.sges = n;
	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	memcpy(setup.a_mem.addr, pattern_bytes(1, REGION_BYTES), REGION_BYTES);
	for (i = 0; i <= n; i++) {
		from[i] = region_sge(&setup.a_mem, 1000 * i, 100 + i);
		to[i] = region_sge(&setup.b_mem, 1000 * i, 100 + i);
	}
	post_recv(&b, 2, to, n);
	post_send(&a, &wr);
	ok = cq_expect(a.send_cq, 1, IBV_WC_SUCCESS) &&
	     cq_expect(b.recv_cq, 2, IBV_WC_SUCCESS);
	for (i = 0; ok && i < n; i++)
		ok = check(!memcmp(setup.a_mem.addr + 1000 * i,
				   setup.b_mem.addr + 1000 * i, 100 + i),
			   "piece %u", i);
	wr.num_sge = n + 1;
	ok = ok && check(try_post_send(&a, &wr) == EINVAL, "a piece more") &&
	     check(try_post_recv(&b, 2, to, n + 1) == EINVAL, "a piece more");
	pair_destroy(&a, &b);
	return ok;
}

/* Each of the capacities alone, with the others small. */
static bool each_capacity(void)
{
	const struct ibv_device_attr *attr = &setup.a_dev.attr;
	const struct ibv_qp_cap caps[] = {
		{ .max_send_wr = attr->max_qp_wr + 1 },
		{ .max_recv_wr = attr->max_qp_wr + 1 },
		{ .max_send_wr = 1, .max_send_sge = attr->max_sge + 1 },
		{ .max_recv_wr = 1, .max_recv_sge = attr->max_sge + 1 },
		{ .max_send_wr = 1, .max_inline_data = LEAST_INLINE + 1 },
	};
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp;
	bool ok = true;
	size_t i;

	init.send_cq = ibv_create_cq(setup.a_dev.ctx, 16, NULL, NULL, 0);
	init.recv_cq = init.send_cq;
	for (i = 0; i < COUNT(caps); i++) {
		init.cap = caps[i];
		errno = 0;
		qp = ibv_create_qp(setup.a_dev.pd, &init);
		ok = check(!qp && errno == EINVAL, "capacity %zu: %s", i,
			   qp ? "created" : strerror(errno)) &&
		     ok;
		if (qp)
			ibv_destroy_qp(qp);
	}
	ibv_destroy_cq(init.send_cq);
	return ok;
}

/* The bytes of one place are scattered to as many as may be. */
static bool read_pieces(void)
{
	struct endpoint_options options = small();
	uint32_t n = setup.a_dev.attr.max_sge_rd, i;
	struct ibv_sge to[LEAST_SGE + 1];
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_READ, to, LEAST_SGE);
	struct endpoint a, b;
	bool ok;

	if (!check(n == LEAST_SGE, "max_sge_rd is %u", n))
		return false;
	options.sges = n;
	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	memcpy(setup.b_mem.addr, pattern_bytes(2, REGION_BYTES), REGION_BYTES);
	for (i = 0; i <= n; i++)
		to[i] = region_sge(&setup.a_mem, 1000 * i, 100);
	wr.wr.rdma.remote_addr = setup.b_mem.rdma_addr;
	wr.wr.rdma.rkey = setup.b_mem.mr->rkey;
	post_send(&a, &wr);
	ok = cq_expect(a.send_cq, 1, IBV_WC_SUCCESS);
	for (i = 0; ok && i < n; i++)
		ok = check(!memcmp(setup.a_mem.addr + 1000 * i,
				   setup.b_mem.addr + 100 * i, 100),
			   "piece %u", i);
	wr.num_sge = n + 1;
	ok = ok && check(try_post_send(&a, &wr) == EINVAL, "a piece more");
	pair_destroy(&a, &b);
	return ok;
}

static bool max_inline(void)
{
	struct endpoint_options options = small();
	bool ok;

	options.inline_bytes = LEAST_INLINE;
	ok = check(creates(&options), "%u bytes are refused",
		   options.inline_bytes);
	options.inline_bytes++;
	return ok && refuses(&options);
}

/* Those of a queue pair that is drained can be changed: to that many, not to more. */
static bool reads_are(struct endpoint *ep, uint32_t most)
{
	static const int masks[] = { IBV_QP_MAX_QP_RD_ATOMIC,
				     IBV_QP_MAX_DEST_RD_ATOMIC };
	struct ibv_qp_attr attr = { .max_rd_atomic = most,
				    .max_dest_rd_atomic = most };
	bool ok = true;
	unsigned int i;

	endpoint_go(ep, IBV_QPS_SQD);
	for (i = 0; i < COUNT(masks); i++)
		ok = check(!ibv_modify_qp(ep->qp, &attr, masks[i]),
			   "%#x: %u are refused", masks[i], most) &&
		     ok;
	attr.max_rd_atomic++;
	attr.max_dest_rd_atomic++;
	for (i = 0; i < COUNT(masks); i++)
		ok = check(ibv_modify_qp(ep->qp, &attr, masks[i]) == EINVAL,
			   "%#x: one more is not refused", masks[i]) &&
		     ok;
	endpoint_go(ep, IBV_QPS_RTS);
	return ok;
}

static bool max_rd_atomic(void)
{
	struct endpoint_options options = small();
	struct endpoint a, b;
	uint32_t i;
	bool ok;

	options.depth = setup.a_dev.attr.max_qp_rd_atom;
	options.reads = options.depth;
	ok = check(options.depth >= LEAST_READS, "max_qp_rd_atom %u",
		   options.depth) &&
	     check(setup.a_dev.attr.max_qp_init_rd_atom >= LEAST_READS,
		   "max_qp_init_rd_atom");
	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	for (i = 0; i < options.depth; i++) {
		struct ibv_sge sge = region_sge(&setup.a_mem, 8 * i, 8);
		struct ibv_send_wr wr = send_wr(i, IBV_WR_RDMA_READ, &sge, 1);

		wr.wr.rdma.remote_addr = setup.b_mem.rdma_addr;
		wr.wr.rdma.rkey = setup.b_mem.mr->rkey;
		post_send(&a, &wr);
	}
	for (i = 0; ok && i < options.depth; i++)
		ok = cq_expect(a.send_cq, i, IBV_WC_SUCCESS);
	ok = ok && reads_are(&a, options.depth) && reads_are(&b, options.depth);
	pair_destroy(&a, &b);
	return ok;
}

/* --- queues ------------------------------------------------------------------- */

static bool max_cqe(void)
{
	int max = setup.a_dev.attr.max_cqe;
	struct ibv_cq *cq;
	bool ok;

	cq = ibv_create_cq(setup.a_dev.ctx, max, NULL, NULL, 0);
	ok = check(max >= LEAST_CQE, "max_cqe %d", max) &&
	     check(cq, "%d entries: %s", max, strerror(errno)) &&
	     check(cq->cqe == max, "%d entries", cq->cqe) &&
	     check(ibv_resize_cq(cq, max + 1) == EINVAL, "resized to more") &&
	     check(!ibv_resize_cq(cq, 1), "resized to 1");
	if (cq)
		ibv_destroy_cq(cq);
	errno = 0;
	return ok &&
	       check(!ibv_create_cq(setup.a_dev.ctx, max + 1, NULL, NULL, 0) &&
			     errno == EINVAL,
		     "one more: %s", strerror(errno));
}

static bool srq_of(uint32_t wr, uint32_t sge)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = wr, .max_sge = sge },
	};
	struct ibv_srq *srq = ibv_create_srq(setup.a_dev.pd, &attr);

	return srq && !ibv_destroy_srq(srq);
}

static bool max_srq_wr(void)
{
	uint32_t max = setup.a_dev.attr.max_srq_wr;

	return check(max >= LEAST_WR, "max_srq_wr %u", max) &&
	       check(srq_of(max, 1), "%u are refused", max) &&
	       check(!srq_of(max + 1, 1) && errno == EINVAL, "one more");
}

static bool max_srq_sge(void)
{
	uint32_t max = setup.a_dev.attr.max_srq_sge;

	return check(max >= LEAST_SGE, "max_srq_sge %u", max) &&
	       check(srq_of(4, max), "%u are refused", max) &&
	       check(!srq_of(4, max + 1) && errno == EINVAL, "one more");
}

static bool max_dm(void)
{
	struct ibv_alloc_dm_attr attr = { 0 };
	struct ibv_device_attr_ex ex;
	struct ibv_dm *dm;
	bool ok;

	if (ibv_query_device_ex(setup.a_dev.ctx, NULL, &ex))
		bail("ibv_query_device_ex fails");
	attr.length = ex.max_dm_size + 1;
	ok = check(!ibv_alloc_dm(setup.a_dev.ctx, &attr) && errno == ENOMEM,
		   "one byte more: %s", strerror(errno));
	attr.length = ex.max_dm_size;
	dm = ibv_alloc_dm(setup.a_dev.ctx, &attr);
	if (!check(dm, "all of it: %s", strerror(errno)))
		return false;
	attr.length = 1;
	ok = check(!ibv_alloc_dm(setup.a_dev.ctx, &attr) && errno == ENOMEM,
		   "a byte of an empty pool") &&
	     ok;
	return check(!ibv_free_dm(dm), "ibv_free_dm fails") && ok;
}

/* The pool is of pages: two bytes of two pieces do not fit into its last one. */
static bool max_dm_pieces(void)
{
	struct ibv_alloc_dm_attr attr = { 0 };
	struct ibv_device_attr_ex ex;
	struct ibv_dm *dm[2];
	bool ok;

	if (ibv_query_device_ex(setup.a_dev.ctx, NULL, &ex))
		bail("ibv_query_device_ex fails");
	attr.length = ex.max_dm_size - sysconf(_SC_PAGESIZE);
	dm[0] = ibv_alloc_dm(setup.a_dev.ctx, &attr);
	attr.length = 1;
	dm[1] = ibv_alloc_dm(setup.a_dev.ctx, &attr);
	if (!check(dm[0] && dm[1], "all of it: %s", strerror(errno)))
		return false;
	ok = check(!ibv_alloc_dm(setup.a_dev.ctx, &attr) && errno == ENOMEM,
		   "another one");
	return check(!ibv_free_dm(dm[0]) && !ibv_free_dm(dm[1]),
		     "ibv_free_dm fails") &&
	       ok;
}

/* --- regions ---------------------------------------------------------------- */

/* What registration costs beside pinning, of pages of either size. */
static bool registration_of(int advice, const char *kind)
{
	void *memory = mmap(NULL, GIB, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t start, lock, unlock, reg, dereg;
	struct ibv_mr *mr;
	int round;

	if (!check(memory != MAP_FAILED, "no memory for 1 GiB") ||
	    !check(!madvise(memory, GIB, advice), "no %s", kind))
		return false;
	memset(memory, 1, GIB);
	for (round = 0; round < 2; round++) {
		start = now_us();
		if (!check(!mlock(memory, GIB), "mlock: %s", strerror(errno)))
			return false;
		lock = now_us() - start;
		start = now_us();
		munlock(memory, GIB);
		unlock = now_us() - start;
		start = now_us();
		mr = ibv_reg_mr(setup.a_dev.pd, memory, GIB, ACCESS_ALL);
		reg = now_us() - start;
		if (!check(mr, "ibv_reg_mr: %s", strerror(errno)))
			return false;
		start = now_us();
		ibv_dereg_mr(mr);
		dereg = now_us() - start;
		tap_note("1 GiB of %s: mlock %" PRIu64 " us, munlock %" PRIu64
			 " us, ibv_reg_mr %" PRIu64 " us, ibv_dereg_mr %" PRIu64
			 " us; registration / mlock %.2f",
			 kind, lock, unlock, reg, dereg, (double)reg / lock);
	}
	munmap(memory, GIB);
	return true;
}

static bool registration(void)
{
	return registration_of(MADV_NOHUGEPAGE, "small pages") &&
	       registration_of(MADV_HUGEPAGE, "huge pages");
}

/* --- the rest ------------------------------------------------------------------ */

static bool gid_table(void)
{
	int length = setup.a_dev.port.gid_tbl_len;
	union ibv_gid gid;

	return check(length > 0, "it has %d entries", length) &&
	       check(!ibv_query_gid(setup.a_dev.ctx, 1, length - 1, &gid),
		     "the last one") &&
	       check(ibv_query_gid(setup.a_dev.ctx, 1, length, &gid),
		     "one more");
}

/* Whatever has a port's number takes that of a port only. */
static bool ports(void)
{
	const unsigned int n = setup.a_dev.attr.phys_port_cnt;
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT,
				    .port_num = n + 1 };
	struct ibv_ah_attr ah = { .is_global = 1,
				  .port_num = n + 1,
				  .grh.dgid = setup.b_dev.gid };
	struct endpoint_options options = small();
	struct ibv_port_attr attr;
	union ibv_gid gid;
	struct endpoint ep;
	bool ok;

	endpoint_create(&ep, &setup.a_dev, &options);
	ok = check(n == 1, "%u ports", n) &&
	     check(!ibv_query_port(setup.a_dev.ctx, n, &attr), "port %u", n) &&
	     check(ibv_query_port(setup.a_dev.ctx, n + 1, &attr),
		   "port %u is there", n + 1) &&
	     check(ibv_query_gid(setup.a_dev.ctx, n + 1, 0, &gid), "its GID") &&
	     check(!ibv_create_ah(setup.a_dev.pd, &ah), "an address there") &&
	     check(ibv_modify_qp(ep.qp, &init,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					 IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		   "a queue pair there");
	endpoint_destroy(&ep);
	return ok;
}

static bool completion_vectors(void)
{
	int n = setup.a_dev.ctx->num_comp_vectors, i;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	bool ok = check(n > 0, "there are %d", n);

	channel = ibv_create_comp_channel(setup.a_dev.ctx);
	for (i = 0; ok && i < n; i++) {
		cq = ibv_create_cq(setup.a_dev.ctx, 1, NULL, channel, i);
		ok = check(cq, "number %d", i);
		if (cq)
			ibv_destroy_cq(cq);
	}
	ok = ok && check(!ibv_create_cq(setup.a_dev.ctx, 1, NULL, channel, n),
			 "number %d", n);
	ibv_destroy_comp_channel(channel);
	return ok;
}

static bool moderation(void)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE };
	struct ibv_device_attr_ex ex;
	struct ibv_cq *cq;
	bool ok;

	if (ibv_query_device_ex(setup.a_dev.ctx, NULL, &ex))
		bail("ibv_query_device_ex fails");
	cq = ibv_create_cq(setup.a_dev.ctx, 1, NULL, NULL, 0);
	attr.moderate.cq_count = ex.cq_mod_caps.max_cq_count;
	attr.moderate.cq_period = ex.cq_mod_caps.max_cq_period;
	ok = check(ex.cq_mod_caps.max_cq_count == UINT16_MAX &&
			   ex.cq_mod_caps.max_cq_period == UINT16_MAX,
		   "there is none") &&
	     check(!ibv_modify_cq(cq, &attr), "ibv_modify_cq fails");
	return check(!ibv_destroy_cq(cq), "ibv_destroy_cq fails") && ok;
}

static bool idle_memory(void)
{
	return idle_memory_is_small(&setup, 1) &&
	       idle_memory_is_small(&setup, LEAST_SGE);
}

/* ---------------------------------------------------------------------------- */

static const struct {
	bool (*run)(void);
	const char *name;
} cases[] = {
	{ max_qp_wr, "max_qp_wr, and one more" },
	{ deep_queue, "max_qp_wr requests at once" },
	{ max_sge, "max_sge, and one more" },
	{ each_capacity, "each capacity of a queue pair, and one more" },
	{ many_pieces, "a message of max_sge pieces" },
	{ read_pieces, "a READ of max_sge_rd pieces, and one more" },
	{ max_inline, "512 bytes inline, and one more" },
	{ max_rd_atomic, "max_qp_rd_atom, and one more" },
	{ max_cqe, "max_cqe, and one more" },
	{ max_srq_wr, "max_srq_wr, and one more" },
	{ max_srq_sge, "max_srq_sge, and one more" },
	{ max_dm, "all of the device's memory, and one byte more" },
	{ max_dm_pieces, "all of the device's memory, in pieces" },
	{ gid_table, "gid_tbl_len, and one more" },
	{ ports, "phys_port_cnt, and one more" },
	{ completion_vectors, "num_comp_vectors, and one more" },
	{ moderation, "the most of moderation" },
	{ idle_memory, "kernel memory of an idle queue pair" },
	{ registration, "registration of 1 GiB" },
};

/* Those of one device alone are the same wherever its peer is. */
static bool is_of_both(bool (*run)(void))
{
	return run == many_pieces || run == read_pieces || run == max_rd_atomic;
}

int main(int argc, char **argv)
{
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	for (i = 0; i < COUNT(cases); i++)
		if (setup_is_remote(&setup) && !is_of_both(cases[i].run))
			continue;
		else if (cases[i].run == idle_memory && is_debug_kernel())
			tap_skip("checkers add to each object", "%s",
				 cases[i].name);
		else
			tap_ok(cases[i].run(), "%s", cases[i].name);
	setup_close(&setup);
	return tap_end();
}
