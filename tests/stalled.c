// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Pages on demand that never come: a userfaultfd handler reads no message, so
 * who asks for a page waits. That ends with the region, and however many
 * processes of one user do so, pages of others come.
 *
 * usage: stalled [--device NAME] [--peer NAME] [hold|flush]
 *
 * With "hold" it waits for pages until it is killed; with "flush" for pages that come
 * slowly, and says with which error that ended.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "process.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

enum {
	ALICE = 12001,
	/* So many regions of one process have a page asked for at a time. */
	REGIONS = 8,
	/* All workers that there are, if each process got its. */
	PROCESSES = 70,
	/* So long a process tries to have a page asked for that may be one too many. */
	TRY_MS = 3000,
	/* Of memory that comes slowly; each is waited for by itself. */
	PIECES = 40,
	PIECE_BYTES = 256 << 10,
	PIECE_MS = 1000,
};

/* A page that never comes. */
struct stall {
	int fd;
	size_t length;
	void *addr;
	struct ibv_mr *mr;
};

static const char *device, *peer;

static void stall_map_length(struct stall *stall, size_t length)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	stall->length = length;
	stall->addr = mmap(NULL, length, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stall->fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	range.range.start = (uintptr_t)stall->addr;
	range.range.len = length;
	if (stall->addr == MAP_FAILED || stall->fd < 0 ||
	    ioctl(stall->fd, UFFDIO_API, &api) ||
	    ioctl(stall->fd, UFFDIO_REGISTER, &range))
		bail("userfaultfd: %s", strerror(errno));
}

static void stall_map(struct stall *stall)
{
	stall_map_length(stall, PAGE_BYTES);
}

static void stall_unmap(struct stall *stall)
{
	close(stall->fd);
	munmap(stall->addr, stall->length);
}

/* Have the page asked for. Returns whether somebody waits for it by @end. */
static bool stall_begin(struct stall *stall, struct ibv_pd *pd, uint64_t end)
{
	struct ibv_sge sge = { .addr = (uintptr_t)stall->addr,
			       .length = PAGE_BYTES };

	stall->mr = ibv_reg_mr(pd, stall->addr, PAGE_BYTES,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	if (!stall->mr)
		bail("ibv_reg_mr: %s", strerror(errno));
	sge.lkey = stall->mr->lkey;
	do {
		if (ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge,
				  1))
			bail("ibv_advise_mr: %s", strerror(errno));
		/* a message that nobody has read stays as long as who waits */
		if (readable_within(stall->fd, 20))
			return true;
	} while (now_ms() < end);
	return false;
}

/* --- the region goes ---------------------------------------------------------- */

static bool no_longer_readable(int fd)
{
	uint64_t end = deadline();

	while (readable_within(fd, 0)) {
		if (now_ms() > end)
			return false;
		sleep_ms(1);
	}
	return true;
}

static bool region_goes(struct setup *setup)
{
	struct stall stall;
	bool good;

	stall_map(&stall);
	good = check(stall_begin(&stall, setup->b_dev.pd, deadline()),
		     "the page is not asked for") &&
	       check(!ibv_dereg_mr(stall.mr), "ibv_dereg_mr fails") &&
	       check(no_longer_readable(stall.fd),
		     "somebody still waits for the page");
	stall_unmap(&stall);
	return good;
}

/* Somebody wants to wait for the page, and does not do so for ever. */
static bool flush_ends(struct setup *setup)
{
	struct stall stall;
	struct ibv_sge sge;
	bool good;
	int err;

	stall_map(&stall);
	good = check(stall_begin(&stall, setup->b_dev.pd, deadline()),
		     "the page is not asked for");
	sge = (struct ibv_sge){
		.addr = (uintptr_t)stall.addr,
		.length = PAGE_BYTES,
		.lkey = stall.mr->lkey,
	};
	err = ibv_advise_mr(setup->b_dev.pd, IBV_ADVISE_MR_ADVICE_PREFETCH,
			    IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
	good = check(err == ETIMEDOUT, "ibv_advise_mr: %d", err) && good;
	good = check(!ibv_dereg_mr(stall.mr), "ibv_dereg_mr fails") && good;
	stall_unmap(&stall);
	return good;
}

/* --- many processes ------------------------------------------------------------ */

/* Tells how many pages somebody waits for, until its socket is closed. */
static int wait_as_alice(int socket, void *argument)
{
	struct stall stalls[REGIONS];
	struct device dev;
	uint32_t i, waiting = 0;
	char end;

	(void)argument;
	for (i = 0; i < REGIONS; i++)
		stall_map(&stalls[i]);
	device_open(&dev, device);
	if (setresuid(ALICE, ALICE, ALICE))
		bail("setresuid: %s", strerror(errno));
	for (i = 0; i < REGIONS; i++)
		if (stall_begin(&stalls[i], dev.pd,
				now_ms() + TRY_MS * slowness()))
			waiting++;
		else
			break;
	if (!message_send(socket, &waiting, sizeof(waiting)))
		return 1;
	return read(socket, &end, 1) != 0;
}

/* READ a page of this program, which a worker has to ask for. */
static bool file_is_read(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, PAGE_BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_READ, &sge, 1);
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct endpoint a, b;
	struct ibv_mr *mr;
	void *page;
	bool good;

	page = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
	if (fd < 0 || page == MAP_FAILED)
		bail("this program: %s", strerror(errno));
	mr = ibv_reg_mr(setup->b_dev.pd, page, PAGE_BYTES,
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
	if (!mr)
		bail("ibv_reg_mr: %s", strerror(errno));
	pair_create(&a, &setup->a_dev, &b, &setup->b_dev, &options);
	wr.wr.rdma.remote_addr = (uintptr_t)page;
	wr.wr.rdma.rkey = mr->rkey;
	post_send(&a, &wr);
	good = cq_expect(a.send_cq, 1, IBV_WC_SUCCESS) &&
	       check(!memcmp(setup->a_mem.addr, page, PAGE_BYTES),
		     "other bytes");
	pair_destroy(&a, &b);
	good = check(!ibv_dereg_mr(mr), "ibv_dereg_mr fails") && good;
	munmap(page, PAGE_BYTES);
	close(fd);
	return good;
}

/* As many as get pages asked for; at the end they get none. */
static bool start_alice(struct process *processes, unsigned int *n)
{
	uint32_t waiting = REGIONS, all = 0;

	for (*n = 0; *n < PROCESSES && waiting; (*n)++) {
		process_start(&processes[*n], wait_as_alice, NULL);
		if (!message_receive(processes[*n].socket, &waiting,
				     sizeof(waiting)))
			return check(false, "process %u is silent", *n);
		all += waiting;
	}
	tap_note("%u processes, %u pages are waited for", *n, all);
	return check(all >= 8 * REGIONS, "too few pages are asked for") &&
	       check(*n < PROCESSES, "there is no limit");
}

static bool others_are_served(void)
{
	struct process processes[PROCESSES];
	struct setup setup;
	int argc = 0;
	unsigned int n;
	bool good;

	good = start_alice(processes, &n);
	setenv("MIC_TEST_DEVICE", device, 1);
	setenv("MIC_TEST_PEER", peer, 1);
	setup_open(&setup, &argc, NULL, PAGE_BYTES);
	good = file_is_read(&setup) && good;
	setup_close(&setup);
	/* each has the sockets of those before it */
	while (n--)
		good = process_end(&processes[n]) && good;
	return good;
}

/* ------------------------------------------------------------------------------ */

static int hold(struct setup *setup)
{
	struct stall stalls[REGIONS];
	unsigned int i;

	for (i = 0; i < REGIONS; i++) {
		stall_map(&stalls[i]);
		if (!stall_begin(&stalls[i], setup->b_dev.pd, deadline()))
			bail("page %u is not asked for", i);
	}
	printf("running\n");
	fflush(stdout);
	for (;;)
		pause();
}

/* A piece after the other, when somebody asks for it. */
static void *provide_slowly(void *argument)
{
	struct uffdio_zeropage piece = { .range.len = PIECE_BYTES };
	struct stall *stall = argument;
	unsigned int i;

	for (i = 0; i < PIECES; i++) {
		if (!readable_within(stall->fd, 1000000))
			break;
		if (!i) {
			printf("running\n");
			fflush(stdout);
		}
		sleep_ms(PIECE_MS);
		piece.range.start = (uintptr_t)stall->addr + i * PIECE_BYTES;
		if (ioctl(stall->fd, UFFDIO_ZEROPAGE, &piece))
			break;
	}
	return NULL;
}

static int flush(struct setup *setup)
{
	struct ibv_sge sge = { .length = PIECES * PIECE_BYTES };
	struct stall stall;
	pthread_t thread;
	struct ibv_mr *mr;
	int err;

	stall_map_length(&stall, PIECES * PIECE_BYTES);
	mr = ibv_reg_mr(setup->b_dev.pd, stall.addr, stall.length,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	if (!mr || pthread_create(&thread, NULL, provide_slowly, &stall))
		bail("ibv_reg_mr: %s", strerror(errno));
	sge.addr = (uintptr_t)stall.addr;
	sge.lkey = mr->lkey;
	do
		err = ibv_advise_mr(setup->b_dev.pd,
				    IBV_ADVISE_MR_ADVICE_PREFETCH,
				    IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
	while (err == ETIMEDOUT); /* a piece came too late */
	printf("ended: %d\n", err);
	return 0;
}

int main(int argc, char **argv)
{
	struct setup setup;

	device_names(&argc, argv, &device, &peer);
	if (argc < 2)
		tap_ok(others_are_served(),
		       "many processes of one user: others' pages come");
	setenv("MIC_TEST_DEVICE", device, 1);
	setenv("MIC_TEST_PEER", peer, 1);
	setup_open(&setup, &argc, argv, PAGE_BYTES);
	if (argc > 1)
		return strcmp(argv[1], "flush") ? hold(&setup) : flush(&setup);
	tap_ok(region_goes(&setup), "the region goes: nobody waits any more");
	tap_ok(flush_ends(&setup), "who is to wait for a page gives up");
	setup_close(&setup);
	return tap_end();
}
