// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Windows of a peer's memory (micdv_map_window): what can be mapped and what
 * can't, and that nothing of the peer's memory is reached any more once one of
 * the things a window hangs on is gone, while another thread goes on accessing
 * the window.
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/micdv.h>
#include <rdma/mic-abi.h>

#include "endpoint.h"
#include "hammer.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

enum { MEMORY_BYTES = 64 * 4096, LARGE_BYTES = 9 << 20, PLACES = 64 };

struct test {
	struct setup setup;
	struct endpoint a;
	struct endpoint b;
};

static struct micdv_window *map(struct test *test, const struct region *region,
				size_t offset, size_t length, int prot)
{
	return micdv_map_window(test->a.qp, region->rdma_addr + offset,
				region->mr->rkey, length, prot);
}

static bool refuses(struct test *test, const struct region *region,
		    size_t offset, size_t length, int prot, int error)
{
	struct micdv_window *window;

	errno = 0;
	window = map(test, region, offset, length, prot);
	if (window)
		micdv_unmap_window(window);
	return check(!window && errno == error,
		     "mapping %zu bytes at %zu gives %s instead of %s", length,
		     offset, window ? "a window" : strerror(errno),
		     strerror(error));
}

/* What one side writes, the other reads, at both ends of the window. */
static bool shows(const struct micdv_window *window, uint8_t *memory,
		  size_t length)
{
	volatile uint8_t *addr = window->addr;
	const size_t last = length - 1;
	bool ok;

	addr[last] = 0x22;
	addr[0] = 0x11;
	ok = check(memory[0] == 0x11 && (!last || memory[last] == 0x22),
		   "what is written to the window is not in the memory");
	memory[last] = 0x44;
	memory[0] = 0x33;
	return ok &&
	       check(addr[0] == 0x33 && (!last || addr[last] == 0x44),
		     "what is written to the memory is not in the window");
}

static bool maps(struct test *test, const struct region *region, size_t offset,
		 size_t length)
{
	struct micdv_window *window = map(test, region, offset, length,
					  PROT_READ | PROT_WRITE);
	bool ok;

	if (!check(window, "micdv_map_window: %s", strerror(errno)))
		return false;
	ok = check(window->length == length &&
			   window->remote_addr == region->rdma_addr + offset,
		   "the window is not the one asked for") &&
	     shows(window, region->addr + offset, length) &&
	     check(micdv_window_valid(window), "the window is not valid");
	return check(!micdv_unmap_window(window), "unmapping fails") && ok;
}

static bool maps_kind(struct test *test, enum memory_kind kind, bool *there)
{
	struct region region;
	bool ok;

	memset(&region, 0, sizeof(region));
	*there = region_map(&region, kind, LARGE_BYTES);
	if (!*there)
		return true;
	region_register(&region, test->setup.b_dev.pd, ACCESS_ALL);
	ok = maps(test, &region, 0, LARGE_BYTES) &&
	     maps(test, &region, 5000, LARGE_BYTES - 10000) &&
	     maps(test, &region, LARGE_BYTES - 1, 1);
	region_destroy(&region);
	return ok;
}

static void test_kinds(struct test *test)
{
	enum memory_kind kind;
	bool there, ok;

	for (kind = MEMORY_ANON; kind < MEMORY_KINDS; kind++) {
		ok = maps_kind(test, kind, &there);
		if (there)
			tap_ok(ok, "%s memory is mapped", memory_name(kind));
		else
			tap_skip("there is no such memory here",
				 "%s memory is mapped", memory_name(kind));
	}
}

/* At an address, over other memory; not where pages don't meet. */
static bool maps_at(struct test *test)
{
	const struct region *region = &test->setup.b_mem;
	const int rw = PROT_READ | PROT_WRITE;
	char *mem = mmap(NULL, 4 * PAGE_BYTES, rw, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	char *place = mem + PAGE_BYTES +
		      (uintptr_t)(region->addr + 100) % PAGE_BYTES;
	struct micdv_window *window, *other;
	bool ok;

	memset(mem, 7, 4 * PAGE_BYTES);
	window = micdv_map_window_at(test->a.qp, region->rdma_addr + 100,
				     region->mr->rkey, PAGE_BYTES, rw, place);
	if (!check(window, "micdv_map_window_at: %s", strerror(errno)))
		return false;
	ok = check(window->addr == place, "it is elsewhere") &&
	     shows(window, region->addr + 100, PAGE_BYTES) &&
	     check(mem[PAGE_BYTES - 1] == 7 && mem[3 * PAGE_BYTES] == 7,
		   "what is beside it was changed");
	errno = 0;
	other = micdv_map_window_at(test->a.qp, region->rdma_addr + 100,
				    region->mr->rkey, PAGE_BYTES, rw,
				    place + 8);
	ok = check(!other && errno == EINVAL,
		   "at another place in the page: %s",
		   other ? "a window" : strerror(errno)) &&
	     ok;
	ok = check(!micdv_unmap_window(window), "unmapping fails") && ok;
	munmap(mem, 4 * PAGE_BYTES);
	return ok;
}

/* Asking the kernel for more than was granted fails. */
static bool stays_read_only(const struct micdv_window *window)
{
	char *page = (char *)((uintptr_t)window->addr & ~(PAGE_BYTES - 1));

	return check(mprotect(page, PAGE_BYTES, PROT_READ | PROT_WRITE) &&
			     errno == EACCES,
		     "the window can be made writable");
}

static bool reads_only(struct test *test)
{
	struct micdv_window *window;
	struct region region;
	bool ok;

	memset(&region, 0, sizeof(region));
	if (!region_map(&region, MEMORY_ANON, MEMORY_BYTES))
		return false;
	region_register(&region, test->setup.b_dev.pd, IBV_ACCESS_REMOTE_READ);
	ok = refuses(test, &region, 0, MEMORY_BYTES, PROT_READ | PROT_WRITE,
		     EACCES);
	window = map(test, &region, 0, MEMORY_BYTES, PROT_READ);
	ok = check(window, "mapping to read: %s", strerror(errno)) && ok;
	if (window) {
		region.addr[9] = 0x77;
		ok = check(((volatile uint8_t *)window->addr)[9] == 0x77,
			   "the window does not show the memory") &&
		     stays_read_only(window) && ok;
		micdv_unmap_window(window);
	}
	region_destroy(&region);
	return ok;
}

static bool refused(struct test *test)
{
	const struct region *memory = &test->setup.b_mem;
	struct region other = *memory;
	struct ibv_mr mr = *memory->mr;
	bool ok;

	mr.rkey ^= 0x1;
	other.mr = &mr;
	ok = refuses(test, &other, 0, 4096, PROT_READ, EACCES);
	mr.rkey = 0;
	ok = refuses(test, &other, 0, 4096, PROT_READ, EACCES) && ok;
	ok = refuses(test, memory, MEMORY_BYTES, 1, PROT_READ, ERANGE) && ok;
	ok = refuses(test, memory, 1, MEMORY_BYTES, PROT_READ, ERANGE) && ok;
	ok = refuses(test, memory, -1, 2, PROT_READ, ERANGE) && ok;
	ok = refuses(test, memory, 0, SIZE_MAX, PROT_READ, ERANGE) && ok;
	ok = refuses(test, memory, 0, 0, PROT_READ, EINVAL) && ok;
	return refuses(test, memory, 0, 1, PROT_WRITE, EINVAL) && ok;
}

/* The window's QP must be connected. */
static bool needs_connection(struct test *test)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address address;
	struct test unconnected = *test;
	bool ok;

	endpoint_create(&unconnected.a, &test->setup.a_dev, &options);
	ok = refuses(&unconnected, &test->setup.b_mem, 0, 4096, PROT_READ,
		     ENOTCONN);
	/* at a queue pair that is connected with another one */
	address = endpoint_address(&test->b);
	endpoint_connect(&unconnected.a, &address);
	ok = refuses(&unconnected, &test->setup.b_mem, 0, 4096, PROT_READ,
		     ENOTCONN) &&
	     ok;
	endpoint_destroy(&unconnected.a);
	return ok;
}

struct revocation {
	const char *name;
	void (*revoke)(struct test *test, struct region *region);
	/* its memory is still registered afterwards */
	bool keeps_region;
};

static void by_dereg(struct test *test, struct region *region)
{
	(void)test;
	if (ibv_dereg_mr(region->mr))
		bail("ibv_dereg_mr: %s", strerror(errno));
	region->mr = NULL;
}

static void by_rereg(struct test *test, struct region *region)
{
	(void)test;
	if (ibv_rereg_mr(region->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			 IBV_ACCESS_LOCAL_WRITE))
		bail("ibv_rereg_mr: %s", strerror(errno));
}

static void by_error_here(struct test *test, struct region *region)
{
	(void)region;
	endpoint_set_state(&test->a, IBV_QPS_ERR);
}

static void by_error_there(struct test *test, struct region *region)
{
	(void)region;
	endpoint_set_state(&test->b, IBV_QPS_ERR);
}

static void by_reset_here(struct test *test, struct region *region)
{
	(void)region;
	endpoint_set_state(&test->a, IBV_QPS_RESET);
}

static void by_reset_there(struct test *test, struct region *region)
{
	(void)region;
	endpoint_set_state(&test->b, IBV_QPS_RESET);
}

static void by_destroy_here(struct test *test, struct region *region)
{
	(void)region;
	endpoint_destroy(&test->a);
}

static void by_destroy_there(struct test *test, struct region *region)
{
	(void)region;
	endpoint_destroy(&test->b);
}

/* A request for memory that is not there puts both queue pairs in error. */
static void by_failure(struct test *test, struct region *region)
{
	struct ibv_sge sge = region_sge(&test->setup.a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);

	wr.wr.rdma.remote_addr = region->rdma_addr + region->length;
	wr.wr.rdma.rkey = region->mr->rkey;
	post_send(&test->a, &wr);
	cq_expect(test->a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
}

static const struct revocation revocations[] = {
	{ "deregistering", by_dereg, false },
	{ "registering again", by_rereg, true },
	{ "an error of the own queue pair", by_error_here, true },
	{ "an error of the peer's queue pair", by_error_there, true },
	{ "a failed request", by_failure, true },
	{ "resetting the own queue pair", by_reset_here, true },
	{ "resetting the peer's queue pair", by_reset_there, true },
	{ "destroying the own queue pair", by_destroy_here, true },
	{ "destroying the peer's queue pair", by_destroy_there, true },
};

static bool hammer_window(struct test *test, const struct revocation *how,
			  struct region *region, struct micdv_window *window)
{
	struct hammer hammer;
	bool ok;

	hammer_start(&hammer, window);
	how->revoke(test, region);
	ok = hammer_misses(&hammer, region->addr);
	hammer_stop(&hammer);
	return check(!micdv_window_valid(window), "the window stays valid") &&
	       ok;
}

static bool revokes(struct test *test, const struct revocation *how)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct test own = *test;
	struct micdv_window *window;
	struct region region;
	bool ok;

	pair_create(&own.a, &test->setup.a_dev, &own.b, &test->setup.b_dev,
		    &options);
	region_create(&region, test->setup.b_dev.pd, MEMORY_BYTES);
	window = map(&own, &region, 0, MEMORY_BYTES, PROT_READ | PROT_WRITE);
	if (!window)
		bail("micdv_map_window: %s", strerror(errno));
	ok = hammer_window(&own, how, &region, window);
	ok = check(!micdv_unmap_window(window), "unmapping fails") && ok;
	if (!region.mr)
		munmap(region.map, region.map_length);
	else
		region_destroy(&region);
	if (own.a.qp)
		endpoint_destroy(&own.a);
	if (own.b.qp)
		endpoint_destroy(&own.b);
	return ok;
}

/* A slot that was given back is another window's, which shows its own. */
static bool reuses_slots(struct test *test)
{
	bool ok = true;
	int i;

	for (i = 0; i < 200 && ok; i++)
		ok = maps(test, &test->setup.b_mem, (size_t)(i * 7 % 60) * 1000,
			  1000);
	return ok;
}

/* Nothing may hold the peer's pages longer than the window lasts. */
static bool cannot_be_pinned(struct test *test)
{
	struct micdv_window *window = map(test, &test->setup.b_mem, 0,
					  MEMORY_BYTES, PROT_READ | PROT_WRITE);
	struct ibv_mr *mr;

	if (!check(window, "micdv_map_window: %s", strerror(errno)))
		return false;
	*(volatile char *)window->addr = 1;
	mr = ibv_reg_mr(test->setup.a_dev.pd, window->addr, MEMORY_BYTES,
			IBV_ACCESS_LOCAL_WRITE);
	if (mr)
		ibv_dereg_mr(mr);
	micdv_unmap_window(window);
	return check(!mr, "a window can be registered");
}

/* The descriptor of the windows file, which libmic keeps to itself. */
static int find_windows_file(void)
{
	char path[64], target[64];
	ssize_t n;
	int fd;

	for (fd = 0; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = '\0';
		if (strstr(target, "[mic_windows]"))
			return fd;
	}
	return -1;
}

/* In another process: 0 if the file is of no use here. */
static int use_windows_file(const struct test *test, int fd)
{
	struct mic_window_import req = {
		.qpn = test->a.qp->qp_num,
		.rkey = test->setup.b_mem.mr->rkey,
	};
	void *addr;

	if (!ioctl(fd, MIC_IOC_IMPORT, &req) || errno != EPERM)
		return 1;
	if (!ioctl(fd, MIC_IOC_DROP, 0) || errno != EPERM)
		return 2;
	addr = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fd,
		    (off_t)MIC_WINDOW_CLASS_MIN << MIC_WINDOW_CLASS_SHIFT);
	return addr == MAP_FAILED && errno == EPERM ? 0 : 3;
}

static bool is_mapped(const void *addr)
{
	unsigned char vec;

	return !mincore((void *)((uintptr_t)addr & ~(PAGE_BYTES - 1)), 1, &vec);
}

/* A child has neither the mapping nor the use of the file. */
static bool is_of_one_process(struct test *test)
{
	struct micdv_window *window = map(test, &test->setup.b_mem, 0, 4096,
					  PROT_READ);
	int fd = find_windows_file(), status = -1;
	pid_t pid;

	if (!window || !check(fd >= 0, "there is no windows file"))
		return false;
	pid = fork();
	if (!pid)
		_exit(is_mapped(window->addr) ? 4 : use_windows_file(test, fd));
	waitpid(pid, &status, 0);
	micdv_unmap_window(window);
	return check(!status, "the child ends with 0x%x", status);
}

/* Where what libmic has mapped begins: of the windows file and of queues. */
struct places {
	void *start[PLACES];
	unsigned int count;
};

static void find_places(struct places *places)
{
	FILE *file = fopen("/proc/self/maps", "r");
	unsigned long start;
	char line[256];

	places->count = 0;
	if (!file)
		bail("/proc/self/maps: %s", strerror(errno));
	while (fgets(line, sizeof(line), file))
		if (strstr(line, "[mic_") && places->count < PLACES &&
		    sscanf(line, "%lx", &start) == 1)
			places->start[places->count++] = (void *)start;
	fclose(file);
}

/* In a child: 0 if what it has in those places is still there at the end. */
static int take_down(struct test *test, struct micdv_window *window,
		     struct ibv_qp *qp, const struct places *places)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_cq *cq = qp->send_cq;
	unsigned int i;

	for (i = 0; i < places->count; i++)
		if (mmap(places->start[i], PAGE_BYTES, PROT_READ,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			 0) != places->start[i])
			return 1;
	micdv_unmap_window(window);
	if (ibv_modify_qp(qp, &reset, IBV_QP_STATE) || ibv_destroy_qp(qp) ||
	    ibv_destroy_cq(cq))
		return 3;
	ibv_close_device(test->setup.a_dev.ctx);
	for (i = 0; i < places->count; i++)
		if (!is_mapped(places->start[i]))
			return 2;
	return 0;
}

/* A queue pair, and its completion queue, that nothing is done with. */
static struct ibv_qp *create_idle(struct device *dev)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp;

	init.send_cq = ibv_create_cq(dev->ctx, 16, NULL, NULL, 0);
	init.recv_cq = init.send_cq;
	qp = init.send_cq ? ibv_create_qp(dev->pd, &init) : NULL;
	if (!qp)
		bail("no queue pair: %s", strerror(errno));
	return qp;
}

/* What a child gives back is not mapped there; something else may be. */
static bool child_gives_back(struct test *test)
{
	struct micdv_window *window = map(test, &test->setup.b_mem, 0, 4096,
					  PROT_READ | PROT_WRITE);
	/* the child destroys them; the kernel has one of each for both */
	struct ibv_qp *qp = create_idle(&test->setup.a_dev);
	struct ibv_sge sge = region_sge(&test->setup.a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);
	struct places places;
	int status = -1;
	pid_t pid;
	bool ok;

	if (!window)
		bail("no window: %s", strerror(errno));
	/* so that windows of queue pairs are mapped, too */
	send_wr_aim(&wr, test->setup.b_mem.rdma_addr,
		    test->setup.b_mem.mr->rkey);
	post_send(&test->a, &wr);
	ok = cq_expect(test->a.send_cq, 1, IBV_WC_SUCCESS);
	find_places(&places);
	pid = fork();
	if (!pid)
		_exit(take_down(test, window, qp, &places));
	waitpid(pid, &status, 0);
	ok = ok && check(!status, "the child ends with 0x%x", status) &&
	     check(places.count > 3, "%u mappings", places.count) &&
	     shows(window, test->setup.b_mem.addr, 4096);
	micdv_unmap_window(window);
	return ok;
}

static bool queries(struct test *test)
{
	struct micdv_device_attr attr = { .comp_mask = 0 };

	return check(micdv_is_supported(test->setup.a_dev.ctx->device),
		     "the device is not supported") &&
	       check(!micdv_query_device(test->setup.a_dev.ctx, &attr),
		     "micdv_query_device fails") &&
	       check(attr.caps & MICDV_CAP_MAP_WINDOW && attr.max_windows &&
			     attr.max_window_size >= LARGE_BYTES,
		     "the device can't map windows");
}

int main(int argc, char **argv)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct test test;
	size_t i;

	setup_open(&test.setup, &argc, argv, MEMORY_BYTES);
	pair_create(&test.a, &test.setup.a_dev, &test.b, &test.setup.b_dev,
		    &options);
	tap_ok(queries(&test), "the device says what it can");
	tap_ok(maps(&test, &test.setup.b_mem, 0, MEMORY_BYTES),
	       "a window shows the peer's memory");
	tap_ok(maps(&test, &test.setup.b_mem, 4095, 2) &&
		       maps(&test, &test.setup.b_mem, 5, 1),
	       "a window need not be of whole pages");
	tap_ok(maps_at(&test), "a window can be mapped at an address");
	test_kinds(&test);
	tap_ok(reuses_slots(&test), "windows come and go");
	tap_ok(reads_only(&test), "a key to read gives a window to read");
	tap_ok(refused(&test), "what the key does not give is refused");
	tap_ok(cannot_be_pinned(&test), "a window can't be registered");
	tap_ok(is_of_one_process(&test), "a window is of one process only");
	tap_ok(child_gives_back(&test),
	       "what a child gives back is nothing of its own");
	tap_ok(needs_connection(&test), "without a connection there is none");
	for (i = 0; i < sizeof(revocations) / sizeof(revocations[0]); i++)
		tap_ok(revokes(&test, &revocations[i]), "%s revokes a window",
		       revocations[i].name);
	tap_ok(maps(&test, &test.setup.b_mem, 0, MEMORY_BYTES),
	       "others were not disturbed");
	pair_destroy(&test.a, &test.b);
	setup_close(&test.setup);
	return tap_end();
}
