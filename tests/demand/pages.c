// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Pages that come and go, are not there, or come too late; and what a region of
 * such pages is for and what not.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "demand.h"
#include "tap.h"
#include "work.h"

/* What arrives is what is there, also after the pages were given back. */
static bool demand_follows(struct stage *stage, bool implicit)
{
	struct demand demand;
	bool good = demand_create(&demand, stage, implicit);
	int round;

	for (round = 0; round < 3 && good; round++) {
		fill(stage->setup);
		good = succeeds(access_demand(stage, IBV_WR_RDMA_WRITE,
					      &demand)) &&
		       all_are(demand.addr, REGION_BYTES, FILL_BYTE) &&
		       !madvise(demand.addr, REGION_BYTES, MADV_DONTNEED) &&
		       all_are(demand.addr, REGION_BYTES, 0) &&
		       succeeds(access_demand(stage, IBV_WR_RDMA_READ,
					      &demand)) &&
		       all_are(stage->setup->a_mem.addr, REGION_BYTES, 0);
		memset(demand.addr, round, REGION_BYTES);
		good = good &&
		       succeeds(access_demand(stage, IBV_WR_RDMA_READ,
					      &demand)) &&
		       all_are(stage->setup->a_mem.addr, REGION_BYTES, round);
	}
	return demand_destroy(&demand) && good;
}

bool demand_explicit(struct stage *stage)
{
	return demand_follows(stage, false);
}

bool demand_implicit(struct stage *stage)
{
	return demand_follows(stage, true);
}

/* A hole in the memory is an error of the access, and of that alone. */
bool demand_unmapped(struct stage *stage)
{
	struct demand demand;
	bool good;

	good = demand_create(&demand, stage, false) &&
	       !munmap(demand.addr + REGION_BYTES / 2, PAGE_BYTES) &&
	       ends_with(access_demand(stage, IBV_WR_RDMA_WRITE, &demand),
			 IBV_WC_REM_ACCESS_ERR);
	return demand_destroy(&demand) && good;
}

static void post_read(struct setup *setup, struct endpoint *from,
		      const void *addr, uint32_t rkey)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 64);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_READ, &sge, 1);

	wr.wr.rdma.remote_addr = (uintptr_t)addr;
	wr.wr.rdma.rkey = rkey;
	post_send(from, &wr);
}

/* Two that want what a file does not have, again and again: both hear of it. */
bool demand_beyond_end(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct setup *setup = stage->setup;
	struct endpoint a[2], b[2];
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	size_t end = lseek(fd, 0, SEEK_END) / PAGE_BYTES + 1;
	struct demand demand;
	uint8_t *file;
	bool good;
	int i;

	file = mmap(NULL, (end + 4) * PAGE_BYTES, PROT_READ, MAP_PRIVATE, fd,
		    0);
	if (file == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	options.rnr_timer = 16; /* each comes again after 2.56 ms */
	good = demand_create(&demand, stage, true);
	for (i = 0; i < 2; i++)
		pair_create(&a[i], &setup->a_dev, &b[i], &setup->b_dev,
			    &options);
	for (i = 0; i < 2; i++) {
		post_read(setup, &a[i], file + (end + 2 * i) * PAGE_BYTES,
			  demand.mr->rkey);
		usleep(1200);
	}
	for (i = 0; i < 2; i++) {
		good = cq_expect(a[i].send_cq, 1, IBV_WC_REM_ACCESS_ERR) &&
		       good;
		pair_destroy(&a[i], &b[i]);
	}
	munmap(file, (end + 4) * PAGE_BYTES);
	close(fd);
	return demand_destroy(&demand) && good;
}

/* A READ of it by a pair of its own is refused. */
static bool is_refused(struct setup *setup, const void *addr, uint32_t rkey)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint a, b;
	bool good;

	pair_create(&a, &setup->a_dev, &b, &setup->b_dev, &options);
	post_read(setup, &a, addr, rkey);
	good = cq_expect(a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
	pair_destroy(&a, &b);
	return good;
}

/* What the kernel shows each process of its clocks, which is no memory of its. */
static const void *kernel_data(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uintptr_t start = 0;
	char line[512];

	while (maps && !start && fgets(line, sizeof(line), maps))
		if (strstr(line, "[vvar]"))
			start = strtoull(line, NULL, 16);
	if (!start)
		bail("there is no [vvar]");
	fclose(maps);
	return (const void *)start;
}

static void *secret_memory(void)
{
	int fd = syscall(SYS_memfd_secret, O_CLOEXEC);
	void *addr;

	if (fd < 0 || ftruncate(fd, PAGE_BYTES))
		bail("memfd_secret: %s", strerror(errno));
	addr = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    0);
	if (addr == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	close(fd);
	return addr;
}

/* Memory that is there, and nobody may pin. */
bool demand_unpinnable(struct stage *stage)
{
	void *secret = secret_memory();
	struct demand demand;
	bool good;

	good = demand_create(&demand, stage, true) &&
	       is_refused(stage->setup, kernel_data(), demand.mr->rkey) &&
	       is_refused(stage->setup, secret, demand.mr->rkey);
	memset(secret, FILL_BYTE, PAGE_BYTES);
	good = good && is_refused(stage->setup, secret, demand.mr->rkey);
	munmap(secret, PAGE_BYTES);
	return demand_destroy(&demand) && good;
}

bool demand_read_only(struct stage *stage)
{
	struct demand demand;
	bool good;

	good = demand_create(&demand, stage, false) &&
	       !mprotect(demand.addr, REGION_BYTES, PROT_READ) &&
	       succeeds(access_demand(stage, IBV_WR_RDMA_READ, &demand)) &&
	       ends_with(access_demand(stage, IBV_WR_RDMA_WRITE, &demand),
			 IBV_WC_REM_ACCESS_ERR);
	return demand_destroy(&demand) && good;
}

/* Nobody waits for it: the sender gives up, and the region can go. */
bool demand_withheld(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct stage other = { .setup = stage->setup };
	struct demand demand;
	int fd = -1;
	bool good;

	options.rnr_retry = 2;
	pair_create(&other.a, &stage->setup->a_dev, &other.b,
		    &stage->setup->b_dev, &options);
	good = demand_create(&demand, stage, false) &&
	       (fd = withhold(demand.addr, demand.length)) >= 0 &&
	       ends_with(access_demand(&other, IBV_WR_RDMA_WRITE, &demand),
			 IBV_WC_RNR_RETRY_EXC_ERR);
	good = demand_destroy(&demand) && good;
	pair_destroy(&other.a, &other.b);
	if (fd >= 0)
		close(fd);
	return good;
}

/* What was withheld comes when nobody withholds it any more, each time. */
static bool let_go_once(struct stage *stage, bool huge)
{
	struct ibv_sge sge = region_sge(&stage->setup->a_mem, 0, REGION_BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);
	struct demand demand;
	bool good;
	int fd;

	if (!(huge ? demand_create_huge(&demand, stage) :
		     demand_create(&demand, stage, false)))
		return false;
	fd = withhold(demand.addr, demand.length);
	wr.wr.rdma.remote_addr = (uintptr_t)demand.addr;
	wr.wr.rdma.rkey = demand.mr->rkey;
	post_send(&stage->a, &wr);
	good = fd >= 0 && !close(fd) &&
	       cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) &&
	       all_are(demand.addr, REGION_BYTES, FILL_BYTE);
	return demand_destroy(&demand) && good;
}

static bool let_go(struct stage *stage, bool huge)
{
	bool good = true;
	int i;

	fill(stage->setup);
	for (i = 0; i < LET_GO_ROUNDS && good; i++)
		good = let_go_once(stage, huge);
	return good;
}

bool demand_let_go(struct stage *stage)
{
	return let_go(stage, false);
}

/* Those Linux 6.1 faults in whoever pins them, and for all that he says. */
bool demand_huge_let_go(struct stage *stage)
{
	return let_go(stage, true);
}

/* It comes, has what was written, goes, and is empty when it comes again. */
bool demand_huge(struct stage *stage)
{
	struct setup *setup = stage->setup;
	struct demand demand;
	bool good;

	fill(setup);
	good = demand_create_huge(&demand, stage) &&
	       succeeds(access_demand(stage, IBV_WR_RDMA_WRITE, &demand)) &&
	       all_are(demand.addr, REGION_BYTES, FILL_BYTE) &&
	       all_are(demand.addr + REGION_BYTES, HUGE_BYTES - REGION_BYTES,
		       0) &&
	       !madvise(demand.addr, HUGE_BYTES, MADV_DONTNEED) &&
	       succeeds(access_demand(stage, IBV_WR_RDMA_READ, &demand)) &&
	       all_are(setup->a_mem.addr, REGION_BYTES, 0) &&
	       !munmap(demand.addr, HUGE_BYTES) &&
	       ends_with(access_demand(stage, IBV_WR_RDMA_WRITE, &demand),
			 IBV_WC_REM_ACCESS_ERR);
	return demand_destroy(&demand) && good;
}

bool demand_advice(struct stage *stage)
{
	struct ibv_pd *pd = stage->setup->b_dev.pd;
	const int flush = IBV_ADVISE_MR_FLAG_FLUSH;
	const enum ibv_advise_mr_advice advice =
		IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	struct ibv_sge sge = { .length = REGION_BYTES };
	struct demand demand;
	unsigned char there;
	bool good;

	if (!demand_create(&demand, stage, false))
		return false;
	sge.addr = (uintptr_t)demand.addr;
	sge.lkey = demand.mr->lkey;
	good = check(!ibv_advise_mr(pd, advice, flush, &sge, 1), "advice") &&
	       check(!mincore(demand.addr, 1, &there) && there & 1,
		     "the page is not there") &&
	       !munmap(demand.addr, PAGE_BYTES) &&
	       check(ibv_advise_mr(pd, advice, flush, &sge, 1) == EFAULT,
		     "a hole was brought in") &&
	       check(!ibv_advise_mr(pd, advice, 0, &sge, 1),
		     "advice need not be taken");
	return demand_destroy(&demand) && good;
}

static bool advice_fails(struct ibv_pd *pd, enum ibv_advise_mr_advice advice,
			 struct ibv_sge sge, int expected, const char *what)
{
	const int flags[] = { 0, IBV_ADVISE_MR_FLAG_FLUSH };
	bool good = true;
	unsigned int i;
	int err;

	for (i = 0; i < COUNT(flags); i++) {
		err = ibv_advise_mr(pd, advice, flags[i], &sge, 1);
		good = check(err == expected, "%s, flags %d: %s", what,
			     flags[i], strerror(err)) &&
		       good;
	}
	return good;
}

/* As ibv_advise_mr(3) has them. Of other processes' keys nobody hears that they exist. */
bool demand_bad_advice(struct stage *stage)
{
	const enum ibv_advise_mr_advice
		read = IBV_ADVISE_MR_ADVICE_PREFETCH,
		write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	struct device *dev = &stage->setup->b_dev;
	struct ibv_pd *other = ibv_alloc_pd(dev->ctx);
	struct ibv_sge sge = { .length = REGION_BYTES }, bad;
	struct demand demand;
	struct device stranger;
	struct ibv_mr *reads;
	struct ibv_mw *mw = ibv_alloc_mw(dev->pd, IBV_MW_TYPE_1);
	bool good;

	if (!demand_create(&demand, stage, false))
		return false;
	reads = ibv_reg_mr(dev->pd, demand.addr, REGION_BYTES,
			   IBV_ACCESS_ON_DEMAND);
	device_open(&stranger, dev->name);
	if (!other || !reads || !mw)
		bail("no objects: %s", strerror(errno));
	sge.addr = (uintptr_t)demand.addr;
	sge.lkey = demand.mr->lkey;

	bad = sge;
	bad.length++;
	good = advice_fails(dev->pd, read, sge, 0, "what is right") &&
	       advice_fails(dev->pd, read, bad, EFAULT, "beyond its end");
	bad = sge;
	bad.addr--;
	good = advice_fails(dev->pd, write, bad, EFAULT, "before it") && good;
	bad = sge;
	bad.lkey = reads->lkey;
	good = advice_fails(dev->pd, read, bad, 0,
			    "to read what can be read") &&
	       advice_fails(dev->pd, write, bad, EPERM, "to write it") && good;
	good = advice_fails(other, read, sge, EPERM, "in another domain") &&
	       advice_fails(stranger.pd, read, sge, ENOENT, "another's key") &&
	       good;
	bad.lkey = sge.lkey ^ 1;
	good = advice_fails(dev->pd, read, bad, ENOENT, "another variant") &&
	       advice_fails(other, read, bad, ENOENT, "and another domain") &&
	       good;
	bad.lkey = mw->rkey;
	good = advice_fails(dev->pd, read, bad, EINVAL, "a window") && good;
	bad.addr = (uintptr_t)stage->setup->b_mem.addr;
	bad.lkey = stage->setup->b_mem.mr->lkey;
	good = advice_fails(dev->pd, read, bad, EINVAL, "a pinned region") &&
	       good;
	tap_must(!ibv_dereg_mr(reads), "ibv_dereg_mr fails");
	bad.addr = sge.addr;
	bad.lkey = reads->lkey;
	good = advice_fails(dev->pd, read, bad, ENOENT, "a region gone") &&
	       good;
	tap_must(!ibv_dealloc_mw(mw), "ibv_dealloc_mw fails");
	tap_must(!ibv_dealloc_pd(other), "ibv_dealloc_pd fails");
	device_close(&stranger);
	return demand_destroy(&demand) && good;
}

static size_t pages_there(void *addr, size_t length)
{
	static unsigned char there[PREFETCH_BYTES / PAGE_BYTES];
	size_t i, n = 0;

	if (mincore(addr, length, there))
		bail("mincore: %s", strerror(errno));
	for (i = 0; i < length / PAGE_BYTES; i++)
		n += there[i] & 1;
	return n;
}

/* Whoever gives advice does not wait; what it is about comes nevertheless, all of it. */
bool demand_prefetched(struct stage *stage)
{
	const size_t pages = PREFETCH_BYTES / PAGE_BYTES;
	struct ibv_pd *pd = stage->setup->b_dev.pd;
	int fd = memfd_create("demand", MFD_CLOEXEC);
	const uint64_t limit = deadline();
	struct ibv_sge sge = { .length = PREFETCH_BYTES };
	struct ibv_mr *mr;
	size_t there;
	void *addr;
	int err;

	if (fd < 0 || ftruncate(fd, PREFETCH_BYTES))
		bail("memfd_create: %s", strerror(errno));
	addr = mmap(NULL, PREFETCH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		    fd, 0);
	if (addr == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	mr = ibv_reg_mr(pd, addr, PREFETCH_BYTES, DEMAND_ACCESS);
	if (!mr)
		bail("ibv_reg_mr: %s", strerror(errno));
	sge.addr = (uintptr_t)addr;
	sge.lkey = mr->lkey;
	err = ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge,
			    1);
	while ((there = pages_there(addr, PREFETCH_BYTES)) < pages &&
	       now_ms() < limit)
		sleep_ms(1);
	tap_must(!ibv_dereg_mr(mr), "ibv_dereg_mr fails");
	munmap(addr, PREFETCH_BYTES);
	close(fd);
	return check(!err, "ibv_advise_mr: %s", strerror(err)) &&
	       check(there == pages, "%zu of %zu pages are there", there,
		     pages);
}

bool demand_advertised(struct stage *stage)
{
	struct ibv_device_attr_ex attr;
	struct ibv_mr *mr = stage->setup->a_mem.mr;

	return check(!ibv_query_device_ex(stage->setup->a_dev.ctx, NULL, &attr),
		     "ibv_query_device_ex fails") &&
	       check(attr.odp_caps.general_caps ==
			     (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT),
		     "capabilities 0x%llx",
		     (unsigned long long)attr.odp_caps.general_caps) &&
	       check(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				  DEMAND_ACCESS) &&
			     errno == EOPNOTSUPP,
		     "a pinned region was changed");
}

bool demand_refused(struct stage *stage)
{
	struct micdv_window *window;
	struct demand demand;
	bool good;

	if (!demand_create(&demand, stage, false))
		return false;
	errno = 0;
	window = micdv_map_window(stage->a.qp, (uintptr_t)demand.addr,
				  demand.mr->rkey, REGION_BYTES, PROT_READ);
	good = check(!window && errno == EOPNOTSUPP, "a window: %s",
		     strerror(errno));
	if (window)
		micdv_unmap_window(window);
	errno = 0;
	good = check(ibv_rereg_mr(demand.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
				  NULL, 0, IBV_ACCESS_LOCAL_WRITE) &&
			     errno == EOPNOTSUPP,
		     "registered again: %s", strerror(errno)) &&
	       good &&
	       /* and it is as it was */
	       succeeds(access_demand(stage, IBV_WR_RDMA_WRITE, &demand));
	return demand_destroy(&demand) && good;
}
