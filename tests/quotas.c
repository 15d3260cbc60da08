// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Limits that others set, and what keys tell.
 *
 *   quotas objects N    in a cgroup that may have N objects
 *   quotas memlock      as a user whose memory may not be locked but for 1 MiB
 *   quotas keys         keys of regions
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "setup.h"
#include "tap.h"
#include "work.h"

#define MIB (1UL << 20)
#define NOBODY 65534

enum { MANY = 20000, KEYS_AT_ONCE = 64 };

static const char *device, *peer;

/* --- objects ---------------------------------------------------------------- */

/* As many protection domains as there may be. */
static unsigned int fill(struct device *dev, struct ibv_pd **pds,
			 unsigned int most)
{
	unsigned int n;

	for (n = 0; n < most; n++) {
		pds[n] = ibv_alloc_pd(dev->ctx);
		if (!pds[n])
			break;
	}
	return n;
}

static void objects(unsigned int limit)
{
	struct ibv_pd **pds = calloc(limit + 10, sizeof(void *));
	unsigned int round, n, i;
	struct device dev;
	bool full;
	int error;

	if (!pds)
		bail("no memory");
	/* opens the device and has one domain */
	device_open(&dev, device);
	for (round = 0; round < 3; round++) {
		n = fill(&dev, pds, limit + 10);
		error = errno;
		full = check(n == limit - 1 && error == EAGAIN,
			     "%u objects, then %s", n + 1, strerror(error)) &&
		       check(!ibv_create_cq(dev.ctx, 1, NULL, NULL, 0) &&
				     !ibv_reg_mr(dev.pd, &dev, 8, 0),
			     "there is one of another kind");
		tap_ok(full, "%u objects and no more, round %u", limit, round);
		for (i = 0; i < n; i++)
			tap_must(!ibv_dealloc_pd(pds[i]),
				 "ibv_dealloc_pd fails");
	}
	device_close(&dev);
	free(pds);
}

/* --- locked memory ------------------------------------------------------------ */

static long pinned_kb(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[256];
	long kb = -1;

	while (file && kb < 0 && fgets(line, sizeof(line), file))
		sscanf(line, "VmPin: %ld", &kb);
	if (file)
		fclose(file);
	return kb;
}

/* Queues count with what is registered. */
static void queues_within(struct device *dev)
{
	enum { ENTRIES = 4096 }; /* 256 KiB and a page */
	struct ibv_cq *cqs[8];
	unsigned int n, i;
	int error;
	long kb;

	for (n = 0; n < 8; n++) {
		cqs[n] = ibv_create_cq(dev->ctx, ENTRIES, NULL, NULL, 0);
		if (!cqs[n])
			break;
	}
	error = errno;
	kb = pinned_kb();
	tap_ok(n == 3 && error == ENOMEM && kb >= 768 && kb <= 1024,
	       "completion queues: %u, then %s; %ld KiB are pinned", n,
	       strerror(error), kb);
	error = n ? ibv_resize_cq(cqs[0], 2 * ENTRIES) : 0;
	tap_ok(error == ENOMEM && pinned_kb() == kb,
	       "one made larger: %s, %ld KiB are pinned", strerror(error),
	       pinned_kb());
	for (i = 0; i < n; i++)
		tap_must(!ibv_destroy_cq(cqs[i]), "ibv_destroy_cq fails");
	tap_ok(pinned_kb() == 0, "and destroyed: %ld KiB are pinned",
	       pinned_kb());
}

static void work_queues_within(struct device *dev)
{
	struct ibv_srq_init_attr srq_attr = {
		.attr = { .max_wr = 16384, .max_sge = 8 },
	};
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16384,
			 .max_recv_wr = 1,
			 .max_send_sge = 8,
			 .max_recv_sge = 1 },
	};
	int error;

	attr.send_cq = ibv_create_cq(dev->ctx, 1, NULL, NULL, 0);
	attr.recv_cq = attr.send_cq;
	tap_must(attr.send_cq, "ibv_create_cq fails");
	error = ibv_create_qp(dev->pd, &attr) ? 0 : errno;
	tap_ok(error == ENOMEM, "a queue pair that is too large: %s",
	       strerror(error));
	error = ibv_create_srq(dev->pd, &srq_attr) ? 0 : errno;
	tap_ok(error == ENOMEM, "a shared receive queue that is: %s",
	       strerror(error));
	tap_must(!ibv_destroy_cq(attr.send_cq), "ibv_destroy_cq fails");
	tap_ok(pinned_kb() == 0, "nothing is left of them: %ld KiB",
	       pinned_kb());
}

/* A mapping of a queue or of device memory, and one more of the same. */
struct mapping {
	void *start;
	size_t length;
	off_t offset;
	void *again;
};

/*
 * What is mapped of the doorbell file. There is only one object at a time, so what is
 * mapped of those before it has the same place in the file, and the same length.
 */
static struct mapping mapped(void)
{
	struct mapping found = { .start = NULL };
	FILE *file = fopen("/proc/self/maps", "re");
	unsigned long long start, end, offset;
	char line[512];

	while (file && !found.start && fgets(line, sizeof(line), file)) {
		if (!strstr(line, "[mic_doorbell]") ||
		    sscanf(line, "%llx-%llx %*s %llx", &start, &end, &offset) !=
			    3)
			continue;
		found.start = (void *)(uintptr_t)start;
		found.length = end - start;
		found.offset = (off_t)offset;
	}
	if (file)
		fclose(file);
	if (!found.start)
		bail("nothing of the doorbell file is mapped");
	return found;
}

static int doorbell_fd(void)
{
	char path[64], target[64];
	ssize_t n;
	int fd;

	for (fd = 3; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		if (strstr(target, "[mic_doorbell]"))
			return fd;
	}
	bail("there is no doorbell file");
}

/* Map once more what was mapped last. Its owner doesn't know of it. */
static struct mapping map_again(void)
{
	struct mapping map = mapped();

	map.again = mmap(NULL, map.length, PROT_READ | PROT_WRITE, MAP_SHARED,
			 doorbell_fd(), map.offset);
	if (map.again == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	return map;
}

enum { KEPT = 8, KEPT_ENTRIES = 4096 }; /* 256 KiB and a page */

/* Those destroyed while they are mapped count as long as a part of them is. */
static void queues_kept(struct device *dev)
{
	struct mapping maps[KEPT];
	struct ibv_cq *cq;
	unsigned int n, i;
	int error = 0;
	long kb;

	for (n = 0; n < KEPT; n++) {
		cq = ibv_create_cq(dev->ctx, KEPT_ENTRIES, NULL, NULL, 0);
		error = errno;
		if (!cq)
			break;
		maps[n] = map_again();
		tap_must(!ibv_destroy_cq(cq), "ibv_destroy_cq fails");
	}
	kb = pinned_kb();
	tap_ok(n == 3 && error == ENOMEM && kb >= 768 && kb <= 1024,
	       "destroyed and still mapped: %u, then %s; %ld KiB are pinned", n,
	       n < KEPT ? strerror(error) : "no end", kb);
	for (i = 0; i < n; i++)
		tap_must(!munmap(maps[i].again, 4096), "munmap fails");
	tap_ok(pinned_kb() == kb, "a page of each unmapped: %ld KiB are pinned",
	       pinned_kb());
	for (i = 0; i < n; i++)
		tap_must(!munmap((char *)maps[i].again + 4096,
				 maps[i].length - 4096),
			 "munmap fails");
	tap_ok(pinned_kb() == 0, "and all: %ld KiB are pinned", pinned_kb());
}

/* What is mapped outlives the context, can be moved, and be a child's, too. */
static void queue_inherited(void)
{
	struct mapping map;
	struct device dev;
	struct ibv_cq *cq;
	char *moved;
	long kb, kb_left;
	pid_t child;

	device_open(&dev, device);
	cq = ibv_create_cq(dev.ctx, KEPT_ENTRIES, NULL, NULL, 0);
	if (!cq)
		bail("ibv_create_cq: %s", strerror(errno));
	map = map_again();
	tap_must(!ibv_destroy_cq(cq), "ibv_destroy_cq fails");
	device_close(&dev);
	moved = mremap(map.again, map.length, map.length,
		       MREMAP_MAYMOVE | MREMAP_FIXED, map.start);
	tap_must(moved == map.start, "mremap fails");
	tap_must(!madvise(moved, map.length, MADV_DOFORK), "madvise fails");
	child = fork();
	if (!child) {
		pause();
		_exit(0);
	}
	kb = pinned_kb();
	tap_must(!munmap(moved, map.length), "munmap fails");
	kb_left = pinned_kb();
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	tap_ok(kb >= 256 && kb_left == kb && pinned_kb() == 0,
	       "without its context: %ld KiB, of a child's %ld KiB, then %ld",
	       kb, kb_left, pinned_kb());
}

/* The device's own memory, as much as there is of it, in pieces. */
static void dm_kept(struct device *dev)
{
	enum { PIECES = 8 };
	struct ibv_device_attr_ex device_attr;
	struct ibv_alloc_dm_attr attr = { .length = 0 };
	struct mapping maps[PIECES + 1];
	struct ibv_dm *dm;
	unsigned int n, i;
	int error = 0;

	if (ibv_query_device_ex(dev->ctx, NULL, &device_attr))
		bail("ibv_query_device_ex fails");
	attr.length = device_attr.max_dm_size / PIECES;
	for (n = 0; n <= PIECES; n++) {
		dm = ibv_alloc_dm(dev->ctx, &attr);
		error = errno;
		if (!dm)
			break;
		maps[n] = map_again();
		tap_must(!ibv_free_dm(dm), "ibv_free_dm fails");
	}
	tap_ok(n == PIECES && error == ENOMEM,
	       "device memory freed and still mapped: %u of %u pieces, then %s",
	       n, PIECES, n <= PIECES ? strerror(error) : "no end");
	for (i = 0; i < n; i++)
		tap_must(!munmap(maps[i].again, maps[i].length),
			 "munmap fails");
	attr.length = device_attr.max_dm_size;
	dm = ibv_alloc_dm(dev->ctx, &attr);
	tap_ok(dm, "unmapped, there is all of it again: %s",
	       dm ? "yes" : strerror(errno));
	if (dm)
		tap_must(!ibv_free_dm(dm), "ibv_free_dm fails");
}

static void memlock(void)
{
	struct rlimit limit = { .rlim_cur = MIB, .rlim_max = MIB };
	struct ibv_mr *first, *second, *third;
	struct device dev;
	uint8_t *memory;
	int error;
	long kb;

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgid(NOBODY) ||
	    setuid(NOBODY))
		bail("cannot become nobody: %s", strerror(errno));
	device_open(&dev, device);
	memory = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	first = ibv_reg_mr(dev.pd, memory, MIB / 2, ACCESS_ALL);
	tap_ok(first && pinned_kb() == 512, "half of it: %ld KiB are pinned",
	       pinned_kb());
	second = ibv_reg_mr(dev.pd, memory, MIB / 2 + 1, ACCESS_ALL);
	tap_ok(!second && errno == ENOMEM && pinned_kb() == 512,
	       "more than the other half is refused: %s, %ld KiB are pinned",
	       strerror(errno), pinned_kb());
	second = ibv_reg_mr(dev.pd, memory, MIB / 2, ACCESS_ALL);
	tap_ok(second && pinned_kb() == 1024, "the other half");
	third = ibv_reg_mr(dev.pd, memory, 1, 0);
	tap_ok(!third && errno == ENOMEM, "a byte more is refused");
	error = ibv_rereg_mr(second, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
			     memory, MIB, 0);
	kb = pinned_kb();
	tap_ok(error && kb == 512,
	       "registered anew, larger: refused (%d), %ld KiB are pinned",
	       error, kb);
	error = ibv_dereg_mr(second) || ibv_dereg_mr(first);
	kb = pinned_kb();
	tap_ok(!error && kb == 0, "nothing is pinned afterwards: %ld KiB", kb);
	first = ibv_reg_mr(dev.pd, memory, MIB, ACCESS_ALL);
	tap_ok(first && pinned_kb() == 1024, "all of it again");
	if (first)
		ibv_dereg_mr(first);
	queues_within(&dev);
	work_queues_within(&dev);
	queues_kept(&dev);
	dm_kept(&dev);
	device_close(&dev);
	queue_inherited();
}

/* --- keys --------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* No key comes twice while regions come and go, and none can be counted on. */
static void keys_are_new(struct device *dev, struct region *memory)
{
	static uint32_t keys[MANY];
	unsigned int i, repeated = 0, next = 0, variants = 0;
	uint8_t seen[256] = { 0 };

	for (i = 0; i < MANY; i++) {
		struct ibv_mr *mr = ibv_reg_mr(dev->pd, memory->addr, 64,
					       ACCESS_ALL);

		if (!mr)
			bail("ibv_reg_mr: %s", strerror(errno));
		keys[i] = mr->rkey;
		/* the one after the last: what an attacker would try first */
		next += i && keys[i] == keys[i - 1] + 0x100;
		seen[keys[i] & 0xff] = 1;
		tap_must(!ibv_dereg_mr(mr), "ibv_dereg_mr fails");
	}
	for (i = 0; i < sizeof(seen); i++)
		variants += seen[i];
	qsort(keys, MANY, sizeof(keys[0]), compare);
	for (i = 1; i < MANY; i++)
		repeated += keys[i] == keys[i - 1];
	tap_ok(!repeated, "%u regions one after the other: %u keys came twice",
	       MANY, repeated);
	tap_ok(variants == 256, "%u of 256 variants of a key occur", variants);
	tap_ok(next < MANY / 64, "%u keys follow from the one before", next);
}

/* Of the keys of regions that are there, each works in its own PD only. */
static void keys_across_pds(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_pd *other = ibv_alloc_pd(setup->b_dev.ctx);
	struct ibv_mr *mrs[KEYS_AT_ONCE];
	struct endpoint a, b;
	unsigned int i, denied = 0, flipped = 0;
	struct ibv_wc wc;

	for (i = 0; i < KEYS_AT_ONCE; i++) {
		mrs[i] = ibv_reg_mr(i % 2 ? setup->b_dev.pd : other,
				    setup->b_mem.addr, 64, ACCESS_ALL);
		if (!mrs[i])
			bail("ibv_reg_mr: %s", strerror(errno));
	}
	for (i = 0; i < KEYS_AT_ONCE; i++) {
		struct ibv_sge sge = region_sge(&setup->a_mem, 0, 8);
		struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_READ, &sge, 1);

		pair_create(&a, &setup->a_dev, &b, &setup->b_dev, &options);
		wr.wr.rdma.remote_addr = (uintptr_t)setup->b_mem.addr;
		/* the right key of the wrong PD, a wrong variant of the right */
		wr.wr.rdma.rkey = mrs[i]->rkey ^ (i % 2 ? 1 + i : 0);
		post_send(&a, &wr);
		if (cq_wait(a.send_cq, &wc) &&
		    wc.status == IBV_WC_REM_ACCESS_ERR) {
			denied += !(i % 2);
			flipped += i % 2;
		}
		pair_destroy(&a, &b);
	}
	for (i = 0; i < KEYS_AT_ONCE; i++)
		tap_must(!ibv_dereg_mr(mrs[i]), "ibv_dereg_mr fails");
	tap_must(!ibv_dealloc_pd(other), "ibv_dealloc_pd fails");
	tap_ok(denied == KEYS_AT_ONCE / 2, "%u of %u keys of another PD denied",
	       denied, KEYS_AT_ONCE / 2);
	tap_ok(flipped == KEYS_AT_ONCE / 2, "%u of %u other variants denied",
	       flipped, KEYS_AT_ONCE / 2);
}

static void keys(void)
{
	struct setup setup;

	device_open(&setup.a_dev, device);
	device_open(&setup.b_dev, peer);
	region_create(&setup.a_mem, setup.a_dev.pd, 4096);
	region_create(&setup.b_mem, setup.b_dev.pd, 4096);
	keys_are_new(&setup.a_dev, &setup.a_mem);
	keys_across_pds(&setup);
	setup_close(&setup);
}

int main(int argc, char **argv)
{
	device_names(&argc, argv, &device, &peer);
	if (argc == 3 && !strcmp(argv[1], "objects"))
		objects(atoi(argv[2]));
	else if (argc == 2 && !strcmp(argv[1], "memlock"))
		memlock();
	else if (argc == 2 && !strcmp(argv[1], "keys"))
		keys();
	else
		bail("usage: quotas objects N | memlock | keys");
	return tap_end();
}
