// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Counters that queue pairs are bound to: by hand, or when they come to INIT.
 */
#include <errno.h>
#include <string.h>

#include "injection.h"
#include "nldev.h"
#include "tap.h"

static uint32_t device;
static struct endpoint counted;
static bool was_counted; /* ever, by itself */

static void create_counted(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	endpoint_create(&counted, &bench.setup->a_dev, &options);
}

/* A queue pair that is bound stays so until it goes. */
static void renew(void)
{
	endpoint_destroy(&counted);
	create_counted();
}

static void *bind_by_hand(void)
{
	int error = nldev_bind_counter(device, counted.qp->qp_num);

	/* the answer may be what has got lost */
	if (error)
		renew();
	return done(error);
}

static int unbind(void *object)
{
	(void)object;
	renew();
	return 0;
}

static int to_init(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	return ibv_modify_qp(counted.qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     IBV_QP_ACCESS_FLAGS);
}

static int count_no_more(void)
{
	renew();
	return nldev_set_auto(device, NLDEV_NONE);
}

/* That it is not bound is no failure of the queue pair. */
static void *bind_at_init(void)
{
	int error = nldev_set_auto(device, NLDEV_TYPE);

	error = error ? error : to_init();
	if (error && count_no_more())
		bail("counters of queue pairs can't be turned off");
	return done(error);
}

/* What they have it for is not changed while one of them is bound. */
static int unbind_at_init(void *object)
{
	(void)object;
	was_counted |= nldev_set_auto(device, NLDEV_PID) == EBUSY;
	if (!check(was_counted, "it is not bound"))
		return ENOENT;
	return count_no_more();
}

const struct verb counter_verbs[] = {
	{ "rdma statistic qp bind", bind_by_hand, unbind },
	{ "ibv_modify_qp, to INIT with a counter", bind_at_init,
	  unbind_at_init },
	{ NULL, NULL, NULL },
};

void counter_verbs_open(void)
{
	nldev_open();
	if (!nldev_find(bench.setup->a_dev.name, &device))
		bail("no device %s", bench.setup->a_dev.name);
	create_counted();
}

void counter_verbs_close(void)
{
	endpoint_destroy(&counted);
	nldev_close();
}
