// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * The direct verbs of the mic device. Its provider is loaded when there is such
 * a device; the library does not link with it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "direct.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct scif_direct verbs;

static void find_verbs(void)
{
	void *provider = dlopen("libmic.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (!provider)
		return;
	verbs.is_supported = dlsym(provider, "micdv_is_supported");
	verbs.map = dlsym(provider, "micdv_map_window_at");
	verbs.unmap = dlsym(provider, "micdv_unmap_window");
	verbs.release = dlsym(provider, "micdv_release_window");
	verbs.is_valid = dlsym(provider, "micdv_window_valid");
	verbs.watch = dlsym(provider, "micdv_watch_memory");
	verbs.watch_state = dlsym(provider, "micdv_watch_state");
	verbs.unwatch = dlsym(provider, "micdv_unwatch");
	verbs.dm_addr = dlsym(provider, "micdv_dm_addr");
	verbs.query_qp = dlsym(provider, "micdv_query_qp");
	verbs.set_path = dlsym(provider, "micdv_set_path");
}

static bool are_all(void)
{
	return verbs.is_supported && verbs.map && verbs.unmap &&
	       verbs.is_valid && verbs.watch && verbs.watch_state &&
	       verbs.unwatch && verbs.query_qp && verbs.set_path;
}

const struct scif_direct *scif_direct_find(struct ibv_context *ctx)
{
	pthread_once(&once, find_verbs);
	return are_all() && verbs.is_supported(ctx->device) ? &verbs : NULL;
}
