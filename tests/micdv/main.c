// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the functions of <infiniband/micdv.h> refuse: each error that a man page
 * of theirs has, in the order of the pages. Elsewhere are ENOSPC (rkeys) and
 * EPERM, for which it takes another user (security).
 *
 * usage: micdv [--device NAME] [--peer NAME] FOREIGN, which is another driver's
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <string.h>

#include "micdv.h"
#include "tap.h"
#include "work.h"

struct setup setup;
static struct device foreign;

void open_pair(struct pair *pair, enum ibv_qp_type type, unsigned int access)
{
	struct endpoint_options options = endpoint_options(type);

	options.access = access;
	pair_create(&pair->a, &setup.a_dev, &pair->b, &setup.b_dev, &options);
}

void close_pair(struct pair *pair)
{
	pair_destroy(&pair->a, &pair->b);
}

bool is_error(int error, int expected)
{
	return check(error == expected, "it gives %s instead of %s",
		     error ? strerror(error) : "no error",
		     expected ? strerror(expected) : "none");
}

static int watch(struct ibv_context *ctx, void *addr, size_t length)
{
	struct micdv_watch *w;

	errno = 0;
	w = micdv_watch_memory(ctx, addr, length);
	if (!w)
		return errno;
	micdv_unwatch(w);
	return 0;
}

void limit_memory(struct rlimit *before)
{
	struct rlimit none;

	getrlimit(RLIMIT_AS, before);
	none = *before;
	none.rlim_cur = 0;
	if (setrlimit(RLIMIT_AS, &none))
		bail("setrlimit: %s", strerror(errno));
}

/* --- another driver's device ----------------------------------------------- */

static void run_foreign(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct micdv_device_attr device = { .comp_mask = 0 };
	struct micdv_qp_attr attr = { .comp_mask = 0 };
	/* there is none of rxe's */
	struct ibv_dm dm = { .context = foreign.ctx };
	struct endpoint ep;

	endpoint_create(&ep, &foreign, &options);
	tap_ok(micdv_is_supported(setup.a_dev.ctx->device) &&
		       !micdv_is_supported(foreign.ctx->device),
	       "micdv_is_supported knows %s", foreign.name);
	tap_ok(is_error(micdv_query_device(foreign.ctx, &device), EOPNOTSUPP),
	       "micdv_query_device: another device: EOPNOTSUPP");
	tap_ok(is_error(map(ep.qp, 0, 1, 1, PROT_READ), EOPNOTSUPP),
	       "micdv_map_window: another device: EOPNOTSUPP");
	tap_ok(is_error(watch(foreign.ctx, setup.a_mem.map, PAGE_BYTES),
			EOPNOTSUPP),
	       "micdv_watch_memory: another device: EOPNOTSUPP");
	errno = 0;
	tap_ok(check(!micdv_dm_addr(&dm), "an address") &&
		       is_error(errno, EOPNOTSUPP),
	       "micdv_dm_addr: another device: EOPNOTSUPP");
	tap_ok(is_error(micdv_query_qp(ep.qp, &attr), EOPNOTSUPP),
	       "micdv_query_qp: another device: EOPNOTSUPP");
	tap_ok(is_error(micdv_set_path(ep.qp, MICDV_PATH_ENGINE), EOPNOTSUPP),
	       "micdv_set_path: another device: EOPNOTSUPP");
	endpoint_destroy(&ep);
}

/* --- micdv_query_device, micdv_query_qp, micdv_set_path --------------------- */

/* Each bit of the mask by itself, and nothing is answered. */
static bool refuses_device_mask(void)
{
	struct micdv_device_attr attr;
	unsigned int bit;

	for (bit = 0; bit < 64; bit++) {
		attr = (struct micdv_device_attr){ .comp_mask = 1ULL << bit };
		if (!is_error(micdv_query_device(setup.a_dev.ctx, &attr),
			      EINVAL) ||
		    !check(!attr.max_windows, "it answers all the same"))
			return false;
	}
	return true;
}

static bool refuses_qp_mask(const struct pair *pair)
{
	struct micdv_qp_attr attr;
	unsigned int bit;

	for (bit = 0; bit < 64; bit++) {
		attr = (struct micdv_qp_attr){ .comp_mask = 1ULL << bit,
					       .path = -1 };
		if (!is_error(micdv_query_qp(pair->a.qp, &attr), EINVAL) ||
		    !check(attr.path == (enum micdv_path) - 1,
			   "it answers all the same"))
			return false;
	}
	return true;
}

static bool has_path(const struct pair *pair, enum micdv_path path)
{
	struct micdv_qp_attr attr = { .comp_mask = 0 };

	return is_error(micdv_query_qp(pair->a.qp, &attr), 0) &&
	       check(attr.path == path, "the path is %d instead of %d",
		     attr.path, path);
}

/* What is refused leaves what was set. */
static bool refuses_paths(const struct pair *pair)
{
	static const int none[] = { -1, MICDV_PATH_WORKER + 1, 1 << 30 };
	enum micdv_path path;
	unsigned int i;

	for (path = MICDV_PATH_ENGINE; path <= MICDV_PATH_WORKER; path++) {
		if (!is_error(micdv_set_path(pair->a.qp, path), 0))
			return false;
		for (i = 0; i < COUNT(none); i++)
			if (!is_error(micdv_set_path(pair->a.qp,
						     (enum micdv_path)none[i]),
				      EINVAL) ||
			    !has_path(pair, path))
				return false;
	}
	return true;
}

static void run_queries(void)
{
	struct pair pair;

	open_pair(&pair, IBV_QPT_RC, ACCESS_ALL);
	tap_ok(refuses_device_mask(),
	       "micdv_query_device: an unknown comp_mask: EINVAL");
	tap_ok(refuses_qp_mask(&pair),
	       "micdv_query_qp: an unknown comp_mask: EINVAL");
	tap_ok(refuses_paths(&pair), "micdv_set_path: an unknown path: EINVAL");
	close_pair(&pair);
}

/* --- micdv_watch_memory ---------------------------------------------------------- */

static bool refuses_watches(void)
{
	struct ibv_context *ctx = setup.a_dev.ctx;
	uint8_t *mem = setup.a_mem.map;

	return is_error(watch(ctx, mem, 0), EINVAL) &&
	       is_error(watch(ctx, mem, SIZE_MAX), EINVAL) &&
	       is_error(watch(ctx, mem, 0 - (uintptr_t)mem + 1), EINVAL) &&
	       is_error(watch(ctx, mem, PAGE_BYTES), 0);
}

static bool watch_without_memory(void)
{
	struct ibv_context *ctx = device_open_context(setup.a_dev.name);
	struct rlimit before;
	bool ok;
	int error;

	if (!ctx)
		bail("no context");
	limit_memory(&before);
	error = watch(ctx, setup.a_mem.map, PAGE_BYTES);
	setrlimit(RLIMIT_AS, &before);
	ok = is_error(error, ENOMEM) &&
	     is_error(watch(ctx, setup.a_mem.map, PAGE_BYTES), 0);
	return check(!ibv_close_device(ctx), "ibv_close_device fails") && ok;
}

/* --- when the objects are gone ---------------------------------------------------- */

static void close_devices(struct pair *pair, struct device *dev)
{
	endpoint_destroy(&pair->a);
	device_close(dev);
	endpoint_destroy(&pair->b);
}

static bool outlives_context(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	const struct region *region = &setup.b_mem;
	struct micdv_window *window;
	struct micdv_watch *w;
	struct device dev;
	struct pair pair;
	bool ok;

	device_open(&dev, setup.a_dev.name);
	pair_create(&pair.a, &dev, &pair.b, &setup.b_dev, &options);
	window = micdv_map_window(pair.a.qp, region->rdma_addr,
				  region->mr->rkey, BYTES, RW);
	w = micdv_watch_memory(dev.ctx, setup.a_mem.map, PAGE_BYTES);
	if (!window || !w)
		bail("no window, or no watch: %s", strerror(errno));
	*(volatile uint8_t *)window->addr = 1;
	ok = check(region->addr[0] == 1 && micdv_window_valid(window) &&
			   !micdv_watch_state(w),
		   "they are not as they should be");
	close_devices(&pair, &dev);
	*(volatile uint8_t *)window->addr = 2;
	ok = check(region->addr[0] == 1, "the peer is reached") &&
	     check(!micdv_window_valid(window), "the window is valid") && ok;
	ok = is_error(micdv_unmap_window(window), 0) && ok;
	madvise(setup.a_mem.map, PAGE_BYTES, MADV_DONTNEED);
	ok = check(micdv_watch_state(w) == MICDV_WATCH_CHANGED,
		   "the watch is %u", micdv_watch_state(w)) &&
	     ok;
	micdv_unwatch(w);
	return ok;
}

int main(int argc, char **argv)
{
	setup_open(&setup, &argc, argv, BYTES);
	if (argc < 2)
		bail("usage: micdv [--device NAME] [--peer NAME] FOREIGN");
	device_open(&foreign, argv[1]);
	run_foreign();
	run_queries();
	run_map();
	run_dm();
	tap_ok(refuses_watches(),
	       "micdv_watch_memory: no bytes, or beyond the last: EINVAL");
	tap_ok(watch_without_memory(),
	       "micdv_watch_memory: no address space: ENOMEM");
	tap_ok(outlives_context(),
	       "a window and a watch may be ended after the context");
	device_close(&foreign);
	setup_close(&setup);
	return tap_end();
}
