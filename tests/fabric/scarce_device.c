// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory is short while the region's device is probed, an RDMA device is made on it, and
 * memory of the region is allocated.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "fail.h"
#include "nldev.h"
#include "scarce.h"
#include "tap.h"
#include "verb.h"

#define DRIVER "/sys/bus/pci/drivers/mic_ivshmem/"
#define LINK_NAME "scarce0"
#define LINK_PATH "/sys/class/infiniband/" LINK_NAME

/* Devices: nearly all allocations are of others, so only some fail in one run. */
enum {
	BYTES = 4 * 4096,
	BIND_EACH = 40,
	BIND_STEP = 41,
	LINK_EACH = 60,
	LINK_STEP = 37,
};

static struct device dev;

/* --- device memory, and RDMA devices --------------------------------------------- */

static bool in_region; /* ever */

static void *alloc_dm(void)
{
	struct ibv_alloc_dm_attr attr = { .length = BYTES };

	return ibv_alloc_dm(dev.ctx, &attr);
}

/* Memory of the region is what the context's own file maps. */
static bool maps_of_context(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	bool found = false;
	char line[512];

	while (file && !found && fgets(line, sizeof(line), file))
		found = strstr(line, "/dev/infiniband/uverbs");
	if (file)
		fclose(file);
	return found;
}

/* Where there is no memory to have some of the region, it is the kernel's. */
static int free_dm(void *dm)
{
	in_region |= maps_of_context();
	if (!check(in_region, "it is not in the region"))
		return ENOENT;
	return ibv_free_dm(dm);
}

static void allocates(const char *name)
{
	static const struct verb verb = { "ibv_alloc_dm", alloc_dm, free_dm };
	static const struct failures all = { VERB_MOST, 1, verb_is_short };

	device_open(&dev, name);
	tap_ok(verb_survives(&verb, &all), "memory of the region");
	device_close(&dev);
}

static const char *netdev;

/* The answer may get lost. */
static void *add_link(void)
{
	int error = nldev_add(LINK_NAME, netdev);

	return done(error && !access(LINK_PATH, F_OK) ? 0 : error);
}

static int delete_link(void *object)
{
	(void)object;
	return nldev_delete(LINK_NAME);
}

static void links(void)
{
	static const struct verb verb = { "rdma link add", add_link,
					  delete_link };
	static const struct failures some = { LINK_EACH, LINK_STEP,
					      verb_is_short };

	nldev_open();
	tap_ok(verb_survives(&verb, &some), "a device on the region's netdev");
	nldev_close();
}

/* --- the region's device --------------------------------------------------------- */

static bool write_to(int fd, const char *text)
{
	return pwrite(fd, text, strlen(text), 0) > 0;
}

static bool is_bound(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), DRIVER "%s", name);
	return !access(path, F_OK);
}

static unsigned int after(unsigned int n)
{
	if (n < BIND_EACH)
		return n + 1;
	/* the first step ends anywhere */
	return n + (n == BIND_EACH ? 1 + time(NULL) % BIND_STEP : BIND_STEP);
}

/* Probing fails as a whole, or goes without what failed. */
static bool binds(const char *name)
{
	int bind = open(DRIVER "bind", O_WRONLY | O_CLOEXEC);
	int unbind = open(DRIVER "unbind", O_WRONLY | O_CLOEXEC);
	unsigned int n, tried = 0, refused = 0;
	bool failed = true, ok, bound;

	ok = check(bind >= 0 && unbind >= 0, "no driver") &&
	     check(write_to(unbind, name), "unbind: %s", strerror(errno));
	for (n = 1; ok && failed && n < VERB_MOST; n = after(n)) {
		fail_nth(n);
		write_to(bind, name);
		failed = has_failed();
		fail_nth(0);
		bound = is_bound(name);
		tried += failed;
		refused += !bound;
		ok = bound ? check(write_to(unbind, name), "failure %u: unbind",
				   n) :
			     check(failed, "it is not bound");
	}
	tap_note("%u failures up to the %u., %u of them passed on", tried, n,
		 refused);
	return check(write_to(bind, name), "bind: %s", strerror(errno)) && ok &&
	       check(tried, "nothing has failed");
}

int scarce_device(const char *device, const char *what, const char *argument)
{
	if (!strcmp(what, "memory")) {
		allocates(device);
	} else if (!strcmp(what, "link") && argument) {
		netdev = argument;
		links();
	} else if (!strcmp(what, "bind") && argument) {
		tap_ok(binds(argument),
		       "the device of the region, short of memory");
	} else {
		bail("a wrong argument");
	}
	return tap_end();
}
