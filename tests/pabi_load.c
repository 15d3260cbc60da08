// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * pabi_load PROVIDER same|longer|swapped: load the provider as libibverbs does, and
 * have it open a device that is none. Before it finds that out it compares the
 * library with what it was built for. The library is the one that is installed, but
 * for two functions: "longer" has a longer ibv_qp_ex, and "swapped" has two
 * operations in each other's place.
 *
 * Prints "refused" or "accepted".
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "verbs_private.h"

static void *provider;
static const struct verbs_device_ops *driver;
static size_t longer;
static bool swapped;

void verbs_register_driver(const struct verbs_device_ops *ops)
{
	driver = ops;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	uint32_t mask;

	memcpy(&mask,
	       (char *)qp + offsetof(struct verbs_qp, comp_mask) + longer,
	       sizeof(mask));
	return mask & VERBS_QP_EX ? (struct ibv_qp_ex *)qp : NULL;
}

void verbs_set_ops(struct verbs_context *vctx,
		   const struct verbs_context_ops *ops)
{
	__typeof__(verbs_set_ops) *set_ops = dlsym(provider, "verbs_set_ops");
	struct verbs_context_ops theirs = *ops;

	if (swapped) {
		theirs.alloc_td = (void *)ops->alloc_parent_domain;
		theirs.alloc_parent_domain = (void *)ops->alloc_td;
	}
	set_ops(vctx, &theirs);
}

int main(int argc, char **argv)
{
	struct verbs_device device = { .refcount = 2 };

	if (argc != 3)
		return 2;
	longer = strcmp(argv[2], "longer") ? 0 : sizeof(void *);
	swapped = !strcmp(argv[2], "swapped");
	provider = dlopen(argv[1], RTLD_NOW);
	if (!provider || !driver) {
		fprintf(stderr, "%s is not loaded: %s\n", argv[1], dlerror());
		return 2;
	}
	device.ops = driver;
	errno = 0;
	if (driver->alloc_context(&device.device, -1, NULL) || !errno)
		return 2;
	printf("%s\n", errno == ENOSYS ? "refused" : "accepted");
	return 0;
}
