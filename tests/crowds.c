// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * As many objects of each kind as the device says there may be, and one more;
 * and a region of more addresses than there is memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "measure.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 16)
#define GIB (1UL << 30)
#define MIB (1UL << 20)

enum {
	/* at least, whatever the device says */
	LEAST_QP = 16384,
	LEAST_CQ = 65536,
	LEAST_MR = 1000000,
	/* the kernel has some objects of its own on each device */
	KERNEL_OBJECTS = 16,
};

static struct setup setup;

/* More addresses than most machines have memory, and the last byte of them. */
static bool large_region(void)
{
	const size_t length = 16 * GIB;
	uint8_t *memory = map_repeated(length, 64 * MIB);
	struct ibv_mr *mr = ibv_reg_mr(setup.b_dev.pd, memory, length,
				       ACCESS_ALL);
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_sge sge = region_sge(&setup.a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);
	struct endpoint a, b;
	bool ok;

	if (!check(mr, "ibv_reg_mr: %s", strerror(errno)))
		return false;
	pair_create(&a, &setup.a_dev, &b, &setup.b_dev, &options);
	memset(setup.a_mem.addr, 0x77, 8);
	wr.wr.rdma.rkey = mr->rkey;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + length - 8;
	post_send(&a, &wr);
	ok = cq_expect(a.send_cq, 1, IBV_WC_SUCCESS) &&
	     check(memory[length - 1] == 0x77, "the last byte");
	wr.wr.rdma.remote_addr++;
	post_send(&a, &wr);
	ok = ok && cq_expect(a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	pair_destroy(&a, &b);
	tap_must(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	munmap(memory, length);
	return ok;
}

/* --- numbers of objects --------------------------------------------------------- */

static struct ibv_cq *some_cq;
static uint8_t *pages;

#define PAGES 4096UL

static void *create_qp(uint32_t i)
{
	struct ibv_qp_init_attr init = {
		.send_cq = some_cq,
		.recv_cq = some_cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	(void)i;
	return ibv_create_qp(setup.a_dev.pd, &init);
}

static int destroy_qp(void *qp)
{
	return ibv_destroy_qp(qp);
}

static void *create_cq(uint32_t i)
{
	(void)i;
	return ibv_create_cq(setup.a_dev.ctx, 1, NULL, NULL, 0);
}

static int destroy_cq(void *cq)
{
	return ibv_destroy_cq(cq);
}

/* Each a page, of many: a page can't be pinned a million times. */
static void *create_mr(uint32_t i)
{
	return ibv_reg_mr(setup.a_dev.pd, pages + i % PAGES * PAGE_BYTES,
			  PAGE_BYTES, ACCESS_ALL);
}

static int destroy_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

static void *create_mw(uint32_t i)
{
	(void)i;
	return ibv_alloc_mw(setup.a_dev.pd, IBV_MW_TYPE_2);
}

static int destroy_mw(void *mw)
{
	return ibv_dealloc_mw(mw);
}

static void *create_pd(uint32_t i)
{
	(void)i;
	return ibv_alloc_pd(setup.a_dev.ctx);
}

static int destroy_pd(void *pd)
{
	return ibv_dealloc_pd(pd);
}

static void *create_ah(uint32_t i)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = setup.a_dev.gid,
			 .sgid_index = setup.a_dev.gid_index },
	};

	(void)i;
	return ibv_create_ah(setup.a_dev.pd, &attr);
}

static int destroy_ah(void *ah)
{
	return ibv_destroy_ah(ah);
}

static void *create_srq(uint32_t i)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = 1, .max_sge = 1 },
	};

	(void)i;
	return ibv_create_srq(setup.a_dev.pd, &attr);
}

static int destroy_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

static const struct kind {
	const char *name;
	size_t cap; /* where in ibv_device_attr */
	int least;
	void *(*create)(uint32_t i);
	int (*destroy)(void *object);
} kinds[] = {
#define CAP(field) offsetof(struct ibv_device_attr, field)
	{ "max_pd", CAP(max_pd), 1024, create_pd, destroy_pd },
	{ "max_ah", CAP(max_ah), 1024, create_ah, destroy_ah },
	{ "max_cq", CAP(max_cq), LEAST_CQ, create_cq, destroy_cq },
	{ "max_qp", CAP(max_qp), LEAST_QP, create_qp, destroy_qp },
	{ "max_srq", CAP(max_srq), 1024, create_srq, destroy_srq },
	{ "max_mw", CAP(max_mw), LEAST_MR, create_mw, destroy_mw },
	{ "max_mr", CAP(max_mr), LEAST_MR, create_mr, destroy_mr },
};

static bool fill(const struct kind *kind, void **objects, uint32_t max)
{
	uint64_t start = now_us();
	uint32_t n, i;
	bool ok;

	for (n = 0; n <= max; n++) {
		errno = 0;
		objects[n] = kind->create(n);
		if (!objects[n])
			break;
	}
	tap_note("%s: %u created in %" PRIu64 " ms, %ld KiB in slabs",
		 kind->name, n, (now_us() - start) / 1000, meminfo_kb("Slab"));
	ok = check(errno == ENOMEM, "the error is %s", strerror(errno)) &&
	     check(n <= max && n + KERNEL_OBJECTS >= max, "%u of %u", n, max);
	/* one goes, one comes, and no more */
	if (ok) {
		ok = check(!kind->destroy(objects[0]), "destroying fails");
		objects[0] = kind->create(0);
		ok = check(objects[0], "none after one has gone") && ok &&
		     check(!kind->create(0), "one too many");
	}
	for (i = 0; i < n; i++)
		if (objects[i] && kind->destroy(objects[i]))
			ok = check(false, "destroying %u fails", i);
	return ok;
}

static bool fill_kind(const struct kind *kind)
{
	int max;
	void **objects;
	bool ok;

	memcpy(&max, (char *)&setup.a_dev.attr + kind->cap, sizeof(max));
	objects = calloc((size_t)max + 1, sizeof(*objects));
	if (!objects)
		bail("no memory");
	ok = check(max >= kind->least, "it is %d", max) &&
	     fill(kind, objects, max);
	free(objects);
	return ok;
}

/* A million objects with what the checkers of the debug kernel add to each. */
static bool is_too_large(const struct kind *kind)
{
	const char *kernel = getenv("MIC_KERNEL");

	return kind->least == LEAST_MR && kernel && !strcmp(kernel, "debug");
}

static void run_kinds(void)
{
	unsigned int i;

	pages = mmap(NULL, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (pages == MAP_FAILED)
		bail("no memory");
	for (i = 0; i < COUNT(kinds); i++)
		if (is_too_large(&kinds[i]))
			tap_skip("too much memory on the debug kernel",
				 "%s objects, and one more", kinds[i].name);
		else
			tap_ok(fill_kind(&kinds[i]), "%s objects, and one more",
			       kinds[i].name);
	munmap(pages, PAGES * PAGE_BYTES);
}

/* Groups, and members of a group. */
static bool fill_groups(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	union ibv_gid gid = { .raw = { 0xff, 0x0e } };
	int max = setup.a_dev.attr.max_mcast_grp, n, i;
	struct endpoint ep;
	int error = 0;

	endpoint_create(&ep, &setup.a_dev, &options);
	for (n = 0; n <= max && !error; n++) {
		gid.raw[14] = n >> 8;
		gid.raw[15] = n;
		error = ibv_attach_mcast(ep.qp, &gid, 0);
	}
	tap_note("%d groups", n - 1);
	for (i = 0; i < n - 1; i++) {
		gid.raw[14] = i >> 8;
		gid.raw[15] = i;
		if (ibv_detach_mcast(ep.qp, &gid, 0))
			error = 0;
	}
	endpoint_destroy(&ep);
	return check(error == ENOMEM, "the error is %s", strerror(error)) &&
	       check(n - 1 == max, "%d groups of %d", n - 1, max);
}

static bool fill_members(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	const union ibv_gid gid = { .raw = { 0xff, 0x0e, [15] = 1 } };
	int max = setup.a_dev.attr.max_mcast_qp_attach, n, i, error = 0;
	struct endpoint *eps = calloc(max + 1, sizeof(*eps));

	if (!eps)
		bail("no memory");
	options.depth = 1;
	options.send_cq = some_cq;
	options.recv_cq = some_cq;
	for (n = 0; n <= max; n++) {
		endpoint_create(&eps[n], &setup.a_dev, &options);
		error = ibv_attach_mcast(eps[n].qp, &gid, 0);
		if (error)
			break;
	}
	for (i = 0; i < n; i++)
		ibv_detach_mcast(eps[i].qp, &gid, 0);
	for (i = 0; i <= n && i <= max; i++)
		endpoint_destroy(&eps[i]);
	free(eps);
	return check(error == ENOMEM, "the error is %s", strerror(error)) &&
	       check(n == max, "%d members of %d", n, max);
}

int main(int argc, char **argv)
{
	setup_open(&setup, &argc, argv, REGION_BYTES);
	some_cq = ibv_create_cq(setup.a_dev.ctx, 16, NULL, NULL, 0);
	if (!some_cq)
		bail("no completion queue");
	tap_ok(large_region(), "a region of 16 GiB");
	tap_ok(fill_groups(), "max_mcast_grp groups, and one more");
	tap_ok(fill_members(), "max_mcast_qp_attach members, and one more");
	run_kinds();
	tap_must(!ibv_destroy_cq(some_cq), "ibv_destroy_cq fails");
	setup_close(&setup);
	return tap_end();
}
