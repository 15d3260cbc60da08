// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * As many windows as one file, one queue pair and one key may have, and one more.
 */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <infiniband/micdv.h>
#include <rdma/mic-abi.h>

#include "fuzz.h"
#include "setup.h"
#include "tap.h"

enum { REGION_BYTES = 4096, SOME_SLOT = 77 };

struct test {
	struct setup setup;
	struct endpoint a[2];
	struct endpoint b[2];
	struct region other;
	int full;
	int empty;
};

static int windows_file(void)
{
	int fd = ioctl(fuzz_doorbell_fd(), MIC_IOC_WINDOWS, 0);

	if (fd < 0)
		bail("MIC_IOC_WINDOWS: %s", strerror(errno));
	return fd;
}

/* Returns 0 or an error number. */
static int import(int fd, const struct endpoint *ep,
		  const struct region *region, uint32_t *slot)
{
	struct mic_window_import req = { .qpn = ep->qp->qp_num,
					 .rkey = region->mr->rkey };
	int error = ioctl(fd, MIC_IOC_IMPORT, &req) ? errno : 0;

	*slot = req.slot;
	return error;
}

static bool gives(int fd, const struct endpoint *ep,
		  const struct region *region, int expected)
{
	uint32_t slot;
	int error = import(fd, ep, region, &slot);

	if (!error && ioctl(fd, MIC_IOC_DROP, (unsigned long)slot))
		return check(false, "MIC_IOC_DROP: %s", strerror(errno));
	return check(error == expected, "it gives %s instead of %s",
		     strerror(error), strerror(expected));
}

/* All by one queue pair and one key. */
static bool fills(struct test *test)
{
	uint32_t i, slot;
	int error = 0;

	for (i = 0; i < MIC_WINDOW_SLOTS && !error; i++)
		error = import(test->full, &test->a[0], &test->setup.b_mem,
			       &slot);
	return check(!error, "window %u: %s", i, strerror(error)) &&
	       gives(test->full, &test->a[0], &test->setup.b_mem, ENOSPC);
}

static bool is_said(struct test *test)
{
	struct micdv_device_attr attr = { .comp_mask = 0 };

	return check(!micdv_query_device(test->setup.a_dev.ctx, &attr),
		     "micdv_query_device fails") &&
	       check(attr.max_windows == MIC_WINDOW_SLOTS, "max_windows is %u",
		     attr.max_windows);
}

static bool one_is_given_back(struct test *test)
{
	struct region *region = &test->setup.b_mem;
	uint32_t slot;

	return check(!ioctl(test->full, MIC_IOC_DROP, (unsigned long)SOME_SLOT),
		     "MIC_IOC_DROP: %s", strerror(errno)) &&
	       gives(test->empty, &test->a[0], region, 0) &&
	       check(!import(test->full, &test->a[0], region, &slot),
		     "the slot is not free") &&
	       check(slot == SOME_SLOT, "slot %u was free", slot) &&
	       gives(test->full, &test->a[0], region, ENOSPC) &&
	       gives(test->empty, &test->a[0], region, ENOSPC);
}

static bool all_are_given_back(struct test *test)
{
	close(test->full);
	return gives(test->empty, &test->a[0], &test->setup.b_mem, 0) &&
	       gives(test->empty, &test->a[1], &test->setup.b_mem, 0);
}

int main(int argc, char **argv)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct test test;
	int i;

	setup_open(&test.setup, &argc, argv, REGION_BYTES);
	region_create(&test.other, test.setup.b_dev.pd, REGION_BYTES);
	for (i = 0; i < 2; i++)
		pair_create(&test.a[i], &test.setup.a_dev, &test.b[i],
			    &test.setup.b_dev, &options);
	test.full = windows_file();
	test.empty = windows_file();
	tap_ok(is_said(&test), "the device says how many windows there may be");
	tap_ok(fills(&test), "as many windows, and one more");
	tap_ok(gives(test.full, &test.a[1], &test.other, ENOSPC),
	       "the file has no room for any other");
	tap_ok(gives(test.empty, &test.a[0], &test.other, ENOSPC),
	       "the queue pair has no more in another file");
	tap_ok(gives(test.empty, &test.a[1], &test.setup.b_mem, ENOSPC),
	       "nor has the key");
	tap_ok(gives(test.empty, &test.a[1], &test.other, 0),
	       "another key and queue pair have some");
	tap_ok(one_is_given_back(&test), "one is given back: there is one");
	tap_ok(all_are_given_back(&test), "the file is closed: there are more");
	close(test.empty);
	for (i = 0; i < 2; i++)
		pair_destroy(&test.a[i], &test.b[i]);
	region_destroy(&test.other);
	setup_close(&test.setup);
	return tap_end();
}
