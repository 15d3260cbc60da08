// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A device that comes and goes, as "rdma link add" and "rdma link delete" have it.
 */
#include <unistd.h>

#include "injection.h"
#include "nldev.h"

#define LINK_NAME "injected0"
#define LINK_PATH "/sys/class/infiniband/" LINK_NAME

/*
 * The answer may get lost while the device is there; then what should fail has
 * failed, and looking is safe.
 */
static void *add_link(void)
{
	int error = nldev_add(LINK_NAME, bench.netdev);

	return done(error && !access(LINK_PATH, F_OK) ? 0 : error);
}

static int delete_link(void *object)
{
	(void)object;
	return nldev_delete(LINK_NAME);
}

const struct verb link_verbs[] = {
	{ "rdma link add", add_link, delete_link },
	{ NULL, NULL, NULL },
};

void link_verbs_open(void)
{
	nldev_open();
}

void link_verbs_close(void)
{
	nldev_close();
}
