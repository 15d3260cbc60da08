// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Random calls on a windows file and random accesses to what is mapped of it,
 * while another thread gives slots back and takes regions, device memory and queue
 * pairs away.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/mic-abi.h>

#include "endpoint.h"
#include "fuzz.h"
#include "memory.h"

enum { SLOTS = 40, REGION_PAGES = 300, MAPS = 8, CLASSES = 14 };

enum { GOAL_IMPORTS, GOAL_WATCHES, GOAL_MAPPINGS, GOAL_ACCESSES };

static const struct fuzz_goal goals[] = {
	[GOAL_IMPORTS] = { "windows", 20 },
	[GOAL_WATCHES] = { "watches", 300 },
	[GOAL_MAPPINGS] = { "mappings", 300 },
	[GOAL_ACCESSES] = { "accesses", 300 },
	{ NULL, 0 },
};

static struct endpoint a, b;
static struct device dev;
static struct region region;
static struct device_memory {
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	atomic_uint rkey;
} device_memory;
static int windows_fd;
static atomic_bool stop;

static struct {
	volatile uint8_t *addr;
	size_t length;
	bool writable;
} maps[MAPS];

/* Where the last windows are in the file. */
static uint64_t granted[MAPS];

static __thread sigjmp_buf escape;

/* An access to what is not there ends the access only. */
static void on_bus_error(int signal)
{
	siglongjmp(escape, signal);
}

/* After some wrong keys a queue pair gets no windows until it is reset. */
static uint32_t wrong_key(struct random_state *random)
{
	static unsigned int count;

	if (!(++count % 8)) {
		endpoint_set_state(&a, IBV_QPS_RESET);
		endpoint_set_state(&b, IBV_QPS_RESET);
		pair_connect(&a, &b);
	}
	return fuzz_number(random);
}

static void fuzz_import(struct random_state *random)
{
	struct mic_window_import req = {
		.qpn = random_below(random, 8) ? a.qp->qp_num :
						 fuzz_number(random),
		.rkey = random_below(random, 8) ? region.mr->rkey :
						  wrong_key(random),
		.access = random_below(random, 4) ? 0 : fuzz_number(random),
	};
	uint64_t start = region.rdma_addr;

	if (random_below(random, 2)) {
		req.rkey = atomic_load(&device_memory.rkey);
		start = 0;
	}
	if (random_below(random, 2)) {
		req.addr = start + random_below(random, region.length);
		req.length = random_below(random, region.length);
	} else if (!random_below(random, 4)) {
		req.addr = fuzz_number(random);
		req.length = fuzz_number(random);
	}
	if (ioctl(windows_fd, MIC_IOC_IMPORT, &req))
		return;
	fuzz_count(GOAL_IMPORTS);
	granted[random_below(random, MAPS)] = req.offset;
}

static void fuzz_watch(struct random_state *random)
{
	struct mic_memory_watch req = {
		.addr = (uintptr_t)region.addr +
			random_below(random, region.length),
		.length = random_below(random, region.length),
	};

	if (!random_below(random, 4)) {
		req.addr = fuzz_number(random);
		req.length = fuzz_number(random);
	}
	if (ioctl(windows_fd, MIC_IOC_WATCH, &req))
		return;
	fuzz_count(GOAL_WATCHES);
	if (random_below(random, 2))
		ioctl(windows_fd, MIC_IOC_UNWATCH, (unsigned long)req.slot);
}

/* A window, somewhere at the slots that are in use, or anywhere. */
static off_t some_offset(struct random_state *random)
{
	uint64_t class = MIC_WINDOW_CLASS_MIN + random_below(random, CLASSES);
	uint64_t offset;

	if (random_below(random, 2))
		return granted[random_below(random, MAPS)] & ~(PAGE_BYTES - 1);
	if (!random_below(random, 8))
		return fuzz_number(random) & ~(PAGE_BYTES - 1);
	if (!random_below(random, 8))
		return MIC_WINDOW_STATES;
	offset = class << MIC_WINDOW_CLASS_SHIFT |
		 (uint64_t)random_below(random, SLOTS) << class;
	return offset | (random_below(random, 2) ? MIC_WINDOW_WRITABLE : 0);
}

static void fuzz_map(struct random_state *random)
{
	unsigned int i = random_below(random, MAPS);
	bool writable = random_below(random, 2);
	size_t pages = random_below(random, 4) ? 8 : 2000;
	size_t length = (1 + random_below(random, pages)) * PAGE_BYTES;
	void *addr;

	if (maps[i].addr)
		munmap((void *)maps[i].addr, maps[i].length);
	maps[i].addr = NULL;
	addr = mmap(NULL, length, writable ? PROT_READ | PROT_WRITE : PROT_READ,
		    random_below(random, 16) ? MAP_SHARED : MAP_PRIVATE,
		    windows_fd, some_offset(random));
	if (addr == MAP_FAILED)
		return;
	fuzz_count(GOAL_MAPPINGS);
	maps[i].addr = addr;
	maps[i].length = length;
	maps[i].writable = writable;
}

static void fuzz_access(struct random_state *random)
{
	unsigned int i = random_below(random, MAPS);
	size_t at;

	if (!maps[i].addr)
		return;
	at = random_below(random, maps[i].length);
	if (sigsetjmp(escape, 0))
		return;
	if (maps[i].writable)
		maps[i].addr[at] = 0xff;
	else
		(void)maps[i].addr[at];
	fuzz_count(GOAL_ACCESSES);
}

/* Other pages each time, and not always from the beginning of one. */
static void renew_device_memory(struct random_state *random)
{
	struct ibv_alloc_dm_attr attr = { .length = region.length };
	uint64_t offset = random_below(random, 2) * random_below(random, 8) * 8;

	if (device_memory.mr)
		ibv_dereg_mr(device_memory.mr);
	if (device_memory.dm)
		ibv_free_dm(device_memory.dm);
	device_memory.mr = NULL;
	device_memory.dm = ibv_alloc_dm(dev.ctx, &attr);
	if (device_memory.dm)
		device_memory.mr = ibv_reg_dm_mr(dev.pd, device_memory.dm,
						 offset, region.length - offset,
						 ACCESS_ALL |
							 IBV_ACCESS_ZERO_BASED);
	if (device_memory.mr)
		atomic_store(&device_memory.rkey, device_memory.mr->rkey);
}

/* The other thread: what was granted is taken away again. */
static void touch(struct random_state *random)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.min_rnr_timer = 1,
	};
	int access = ACCESS_ALL;

	switch (random_below(random, 7)) {
	case 0:
		ibv_modify_qp(random_below(random, 2) ? a.qp : b.qp, &attr,
			      IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);
		break;
	case 1:
		if (random_below(random, 2))
			access = IBV_ACCESS_REMOTE_READ;
		ibv_rereg_mr(region.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL,
			     0, access);
		break;
	case 2:
		ioctl(windows_fd, MIC_IOC_UNWATCH,
		      random_below(random, 4) ? random_below(random, SLOTS) :
						fuzz_number(random));
		break;
	case 3:
		renew_device_memory(random);
		break;
	default:
		ioctl(windows_fd, MIC_IOC_DROP,
		      random_below(random, 4) ? random_below(random, SLOTS) :
						fuzz_number(random));
		break;
	}
}

static void *touch_all_the_time(void *argument)
{
	struct random_state random;

	random_seed(&random, *(uint64_t *)argument);
	while (!atomic_load(&stop))
		touch(&random);
	return NULL;
}

static void calls(struct random_state *random, unsigned int steps)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	/* a jump out of the handler leaves the signal as it is */
	const struct sigaction bus_error = {
		.sa_handler = on_bus_error,
		.sa_flags = SA_NODEFER,
	};
	uint64_t seed = random_next(random);
	pthread_t thread;
	int doorbell_fd;

	sigaction(SIGBUS, &bus_error, NULL);
	device_open(&dev, fuzz_device);
	pair_create(&a, &dev, &b, &dev, &options);
	region_create(&region, dev.pd, REGION_PAGES * PAGE_BYTES);
	renew_device_memory(random);
	doorbell_fd = fuzz_doorbell_fd();
	windows_fd = ioctl(doorbell_fd, MIC_IOC_WINDOWS, 0);
	if (windows_fd < 0 ||
	    pthread_create(&thread, NULL, touch_all_the_time, &seed))
		exit(1);
	while (steps--) {
		fuzz_step();
		switch (random_below(random, 11)) {
		case 0:
			fuzz_import(random);
			break;
		case 1:
			fuzz_map(random);
			break;
		case 2:
			ioctl(doorbell_fd,
			      random_below(random, 2) ? MIC_IOC_CQ_EVENT :
							MIC_IOC_CQ_OVERRUN,
			      random_below(random, 2) ? a.qp->qp_num :
							fuzz_number(random));
			break;
		case 3:
			fuzz_watch(random);
			break;
		case 4:
			ioctl(doorbell_fd, MIC_IOC_POLL, fuzz_number(random));
			break;
		default:
			fuzz_access(random);
			break;
		}
	}
	/* the other one is still at it */
	_exit(0);
}

int main(int argc, char **argv)
{
	return fuzz_run(argc, argv, calls, 20000, FUZZ_ENDS, goals);
}
