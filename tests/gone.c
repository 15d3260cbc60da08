// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A process that accesses a window of a peer's memory while one of the devices
 * is deleted, and has the window still when the module is to be unloaded.
 *
 * usage: gone [--device NAME] [--peer NAME] [DEVICE]
 *
 * Says "running", waits until DEVICE is gone, looks at what it has, says
 * "looked", and keeps the window until it is terminated.
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "hammer.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

enum { MEMORY_BYTES = 16 * 4096 };

struct test {
	struct setup setup;
	struct endpoint a;
	struct endpoint b;
	struct micdv_window *window;
	struct hammer hammer;
	uint8_t *dm[2]; /* a page of each device's memory */
};

static uint8_t *map_dm(struct device *dev)
{
	struct ibv_alloc_dm_attr attr = { .length = PAGE_BYTES };
	struct ibv_dm *dm = ibv_alloc_dm(dev->ctx, &attr);
	uint8_t *addr = dm ? micdv_dm_addr(dm) : NULL;

	if (!addr)
		bail("no device memory: %s", strerror(errno));
	memset(addr, 4, PAGE_BYTES);
	return addr;
}

static struct micdv_window *map(struct test *test)
{
	const struct region *region = &test->setup.b_mem;

	return micdv_map_window(test->a.qp, region->rdma_addr, region->mr->rkey,
				MEMORY_BYTES, PROT_READ | PROT_WRITE);
}

static bool device_goes(const char *name)
{
	uint64_t end = deadline();
	char path[128];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", name);
	while (!access(path, F_OK)) {
		if (now_ms() > end)
			return check(false, "%s stays", name);
		sleep_ms(10);
	}
	return true;
}

static bool maps_no_other(struct test *test, const char *gone)
{
	const int error = strcmp(gone, test->setup.a_dev.name) ? ENOTCONN : EIO;
	struct micdv_window *window;

	errno = 0;
	window = map(test);
	return check(!window && errno == error, "it gives %s instead of %s",
		     window ? "a window" : strerror(errno), strerror(error));
}

/* It fails, or its completion says so, or there is none. */
static bool writes_nothing(struct test *test)
{
	struct ibv_sge sge = region_sge(&test->setup.a_mem, 0, PAGE_BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);
	struct region *region = &test->setup.b_mem;
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };

	memset(region->addr, 2, PAGE_BYTES);
	memset(test->setup.a_mem.addr, 3, PAGE_BYTES);
	wr.wr.rdma.remote_addr = region->rdma_addr;
	wr.wr.rdma.rkey = region->mr->rkey;
	if (!try_post_send(&test->a, &wr))
		ibv_poll_cq(test->a.send_cq, 1, &wc);
	return check(wc.status, "a request succeeds") &&
	       all_are(region->addr, PAGE_BYTES, 2);
}

/* Post without data until it is refused; returns how it is, with errno's number. */
static int fill(struct endpoint *ep)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);
	uint32_t i;
	int ret = 0;

	for (i = 0; i <= ep->options.depth && !ret; i++)
		ret = try_post_send(ep, &wr);
	return ret;
}

/*
 * mic(7): what asks the kernel fails, but for destroying; posting goes on until the
 * queue is full.
 */
static bool verbs_say_so(struct endpoint *ep)
{
	struct ibv_wc wc;
	int ret;

	while (ibv_poll_cq(ep->send_cq, 1, &wc) > 0)
		;
	errno = 0;
	if (!check(!ibv_alloc_pd(ep->dev->ctx) && errno == EIO,
		   "ibv_alloc_pd: %s", strerror(errno)))
		return false;
	ret = fill(ep);
	if (!check(ret == ENOMEM, "ibv_post_send: %s", strerror(ret)))
		return false;
	ret = ibv_poll_cq(ep->send_cq, 1, &wc);
	if (!check(!ret, "ibv_poll_cq: %d", ret))
		return false;
	ret = ibv_destroy_qp(ep->qp);
	return check(!ret, "ibv_destroy_qp: %s", strerror(ret));
}

static void look(struct test *test, const char *gone)
{
	tap_ok(hammer_misses(&test->hammer, test->setup.b_mem.addr),
	       "the window no longer reaches the memory");
	tap_ok(check(!micdv_window_valid(test->window), "it is valid"),
	       "the window says so");
	tap_ok(maps_no_other(test, gone), "no other window is mapped");
	tap_ok(writes_nothing(test), "no request gets there");
	tap_ok(verbs_say_so(strcmp(gone, test->setup.a_dev.name) ? &test->b :
								   &test->a),
	       "verbs say so");
	tap_ok(all_are(test->dm[0], PAGE_BYTES, 4) &&
		       all_are(test->dm[1], PAGE_BYTES, 4),
	       "device memory that is mapped stays");
}

int main(int argc, char **argv)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct test test;
	sigset_t set;
	int signal;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	setup_open(&test.setup, &argc, argv, MEMORY_BYTES);
	if (argc < 2)
		bail("which device will go?");
	pair_create(&test.a, &test.setup.a_dev, &test.b, &test.setup.b_dev,
		    &options);
	test.window = map(&test);
	if (!test.window)
		bail("micdv_map_window: %s", strerror(errno));
	test.dm[0] = map_dm(&test.setup.a_dev);
	test.dm[1] = map_dm(&test.setup.b_dev);
	hammer_start(&test.hammer, test.window);
	printf("# running\n");
	fflush(stdout);
	tap_ok(device_goes(argv[1]), "%s goes", argv[1]);
	look(&test, argv[1]);
	printf("# looked\n");
	fflush(stdout);
	sigwait(&set, &signal);
	hammer_stop(&test.hammer);
	tap_ok(!micdv_unmap_window(test.window), "the window is unmapped");
	/* what is left of the devices goes with the process */
	return tap_end();
}
