// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What a process makes the kernel allocate is charged to its memory cgroup, and the
 * charge goes with the object. For a process in a cgroup that has the controller.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "device.h"
#include "memory.h"
#include "tap.h"

#define MIB (1L << 20)

enum {
	CQES = 262144,
	CQE_BYTES = 64,
	QPS = 4,
	SRQS = 4,
	WQES = 32768,
	SEND_BYTES = 64, /* a WQE has at least that */
	SRQ_SGES = 16,
	SGE_BYTES = 16,
	MRS = 64,
	MR_PAGES = 16384,
	BLOCK_BYTES = 8, /* what a page of a region takes */
};

/*
 * What the counters of a cgroup may be behind by: each processor hands in what it has
 * counted in batches.
 */
#define SLACK (2 * MIB)

/* Bytes of the kernel, of this process's cgroup alone. */
static long charged(void)
{
	char path[300], group[200] = "", name[40];
	FILE *file = fopen("/proc/self/cgroup", "r");
	long bytes, kernel = -1;

	if (!file || fscanf(file, "0::%199s", group) != 1)
		bail("no cgroup in /proc/self/cgroup");
	fclose(file);
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.stat", group);
	file = fopen(path, "r");
	while (file && kernel < 0 &&
	       fscanf(file, "%39s %ld", name, &bytes) == 2)
		if (!strcmp(name, "kernel"))
			kernel = bytes;
	if (file)
		fclose(file);
	if (kernel < 0)
		bail("%s does not tell what the kernel has", path);
	return kernel;
}

static long before;

static void begin(void)
{
	before = charged();
}

static void between(const char *what, long least)
{
	long more = charged() - before;

	tap_ok(more >= least - SLACK, "%s: %ld KiB, %ld KiB are charged", what,
	       least >> 10, more >> 10);
}

static void end(const char *what)
{
	long more = charged() - before;

	tap_ok(more <= SLACK, "%s, destroyed: %ld KiB are charged", what,
	       more >> 10);
}

static void cqs(struct device *dev)
{
	struct ibv_cq *cq;

	begin();
	cq = ibv_create_cq(dev->ctx, CQES, NULL, NULL, 0);
	if (!cq)
		bail("ibv_create_cq: %s", strerror(errno));
	between("a completion queue", (long)CQES * CQE_BYTES);
	tap_must(!ibv_destroy_cq(cq), "ibv_destroy_cq fails");
	end("a completion queue");
}

static void qps(struct device *dev)
{
	struct ibv_cq *cq = ibv_create_cq(dev->ctx, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = WQES, .max_send_sge = 1 },
	};
	struct ibv_qp *qp[QPS];
	unsigned int i;

	begin();
	for (i = 0; i < QPS; i++) {
		qp[i] = ibv_create_qp(dev->pd, &attr);
		if (!qp[i])
			bail("ibv_create_qp: %s", strerror(errno));
	}
	between("queue pairs", (long)QPS * WQES * SEND_BYTES);
	for (i = 0; i < QPS; i++)
		tap_must(!ibv_destroy_qp(qp[i]), "ibv_destroy_qp fails");
	end("queue pairs");
	tap_must(!ibv_destroy_cq(cq), "ibv_destroy_cq fails");
}

static void srqs(struct device *dev)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = WQES, .max_sge = SRQ_SGES },
	};
	struct ibv_srq *srq[SRQS];
	unsigned int i;

	begin();
	for (i = 0; i < SRQS; i++) {
		srq[i] = ibv_create_srq(dev->pd, &attr);
		if (!srq[i])
			bail("ibv_create_srq: %s", strerror(errno));
	}
	between("shared receive queues",
		(long)SRQS * WQES * SRQ_SGES * SGE_BYTES);
	for (i = 0; i < SRQS; i++)
		tap_must(!ibv_destroy_srq(srq[i]), "ibv_destroy_srq fails");
	end("shared receive queues");
}

/* The table of a region's pages; the pages are the process's already. */
static void mrs(struct device *dev)
{
	size_t length = MR_PAGES * PAGE_BYTES;
	struct ibv_mr *mr[MRS];
	uint8_t *memory;
	unsigned int i;

	memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		bail("no memory");
	/*
	 * Pages that lie behind one another take but one entry, as a huge page
	 * does; those that are touched one after the other often do.
	 */
	madvise(memory, length, MADV_NOHUGEPAGE);
	for (i = 0; i < MR_PAGES; i += 2)
		memory[i * PAGE_BYTES] = 1;
	for (i = 1; i < MR_PAGES; i += 2)
		memory[i * PAGE_BYTES] = 1;
	begin();
	for (i = 0; i < MRS; i++) {
		mr[i] = ibv_reg_mr(dev->pd, memory, length, ACCESS_ALL);
		if (!mr[i])
			bail("ibv_reg_mr: %s", strerror(errno));
	}
	between("regions", (long)MRS * MR_PAGES * BLOCK_BYTES);
	for (i = 0; i < MRS; i++)
		tap_must(!ibv_dereg_mr(mr[i]), "ibv_dereg_mr fails");
	end("regions");
	munmap(memory, length);
}

int main(int argc, char **argv)
{
	const char *device, *peer;
	struct device dev;

	device_names(&argc, argv, &device, &peer);
	device_open(&dev, device);
	cqs(&dev);
	qps(&dev);
	srqs(&dev);
	mrs(&dev);
	device_close(&dev);
	return tap_end();
}
