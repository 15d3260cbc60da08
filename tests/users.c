// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * An object that another one needs is not destroyed: EBUSY, and both go on. It is when
 * the other one is gone. (IBA vol. 1, 10.2 and 11.2: "resource is in use".) Multicast
 * groups, bound windows and thread domains are in groups, windows and queues.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES 4096UL

enum { ENTRIES = 16 };

/* What all can be made with. */
static struct setup setup;
static struct ibv_cq *spare_cq;
static struct ibv_xrcd *spare_xrcd;

/* --- the objects that are needed ---------------------------------------------- */

static void *alloc_pd(void)
{
	return ibv_alloc_pd(setup.a_dev.ctx);
}

static int dealloc_pd(void *pd)
{
	return ibv_dealloc_pd(pd);
}

static void *create_cq(void)
{
	return ibv_create_cq(setup.a_dev.ctx, ENTRIES, NULL, NULL, 0);
}

static int destroy_cq(void *cq)
{
	return ibv_destroy_cq(cq);
}

static void *create_channel(void)
{
	return ibv_create_comp_channel(setup.a_dev.ctx);
}

static int destroy_channel(void *channel)
{
	return ibv_destroy_comp_channel(channel);
}

static void *srq_of_pd(void *pd)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = ENTRIES, .max_sge = 1 },
	};

	return ibv_create_srq(pd, &init);
}

static void *create_srq(void)
{
	return srq_of_pd(setup.a_dev.pd);
}

static int destroy_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

static void *open_xrcd(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	return ibv_open_xrcd(setup.a_dev.ctx, &attr);
}

static int close_xrcd(void *xrcd)
{
	return ibv_close_xrcd(xrcd);
}

static void *alloc_dm(void)
{
	struct ibv_alloc_dm_attr attr = { .length = PAGE_BYTES };

	return ibv_alloc_dm(setup.a_dev.ctx, &attr);
}

static int free_dm(void *dm)
{
	return ibv_free_dm(dm);
}

/* --- those that need them ----------------------------------------------------- */

static void *mr_of_pd(void *pd)
{
	return ibv_reg_mr(pd, setup.a_mem.addr, REGION_BYTES, ACCESS_ALL);
}

static void *null_mr_of_pd(void *pd)
{
	return ibv_alloc_null_mr(pd);
}

static int dereg_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

static void *mw1_of_pd(void *pd)
{
	return ibv_alloc_mw(pd, IBV_MW_TYPE_1);
}

static void *mw2_of_pd(void *pd)
{
	return ibv_alloc_mw(pd, IBV_MW_TYPE_2);
}

static int dealloc_mw(void *mw)
{
	return ibv_dealloc_mw(mw);
}

static void *ah_of_pd(void *pd)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = setup.b_dev.gid,
			 .sgid_index = setup.a_dev.gid_index },
	};

	return ibv_create_ah(pd, &attr);
}

static int destroy_ah(void *ah)
{
	return ibv_destroy_ah(ah);
}

static void *create_qp(struct ibv_pd *pd, struct ibv_cq *send_cq,
		       struct ibv_cq *recv_cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.srq = srq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = ENTRIES,
			 .max_recv_wr = ENTRIES,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	return ibv_create_qp(pd, &init);
}

static void *qp_of_pd(void *pd)
{
	return create_qp(pd, spare_cq, spare_cq, NULL);
}

static void *sender_of_cq(void *cq)
{
	return create_qp(setup.a_dev.pd, cq, spare_cq, NULL);
}

static void *receiver_of_cq(void *cq)
{
	return create_qp(setup.a_dev.pd, spare_cq, cq, NULL);
}

static void *qp_of_srq(void *srq)
{
	return create_qp(setup.a_dev.pd, spare_cq, spare_cq, srq);
}

static int destroy_qp(void *qp)
{
	return ibv_destroy_qp(qp);
}

static void *cq_of_channel(void *channel)
{
	return ibv_create_cq(setup.a_dev.ctx, ENTRIES, NULL, channel, 0);
}

static void *target_of_xrcd(void *xrcd)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};

	return ibv_create_qp_ex(setup.a_dev.ctx, &init);
}

static void *create_xrc_srq(struct ibv_pd *pd, struct ibv_xrcd *xrcd,
			    struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = ENTRIES, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.xrcd = xrcd,
		.cq = cq,
		.pd = pd,
	};

	return ibv_create_srq_ex(setup.a_dev.ctx, &attr);
}

static void *srq_of_xrcd(void *xrcd)
{
	return create_xrc_srq(setup.a_dev.pd, xrcd, spare_cq);
}

static void *xrc_srq_of_cq(void *cq)
{
	return create_xrc_srq(setup.a_dev.pd, spare_xrcd, cq);
}

static void *mr_of_dm(void *dm)
{
	return ibv_reg_dm_mr(setup.a_dev.pd, dm, 0, PAGE_BYTES,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
}

/* ---------------------------------------------------------------------------- */

struct kind {
	const char *name;
	void *(*create)(void);
	int (*destroy)(void *object);
};

static const struct kind pd = { "a PD", alloc_pd, dealloc_pd };
static const struct kind cq = { "a CQ", create_cq, destroy_cq };
static const struct kind channel = { "a channel", create_channel,
				     destroy_channel };
static const struct kind srq = { "an SRQ", create_srq, destroy_srq };
static const struct kind xrcd = { "an XRC domain", open_xrcd, close_xrcd };
static const struct kind dm = { "device memory", alloc_dm, free_dm };

static const struct user {
	const struct kind *needed;
	const char *name;
	void *(*create)(void *needed);
	int (*destroy)(void *object);
} users[] = {
	{ &pd, "a region", mr_of_pd, dereg_mr },
	{ &pd, "a null region", null_mr_of_pd, dereg_mr },
	{ &pd, "a window of type 1", mw1_of_pd, dealloc_mw },
	{ &pd, "a window of type 2", mw2_of_pd, dealloc_mw },
	{ &pd, "an address handle", ah_of_pd, destroy_ah },
	{ &pd, "an SRQ", srq_of_pd, destroy_srq },
	{ &pd, "a queue pair", qp_of_pd, destroy_qp },
	{ &cq, "a queue pair that sends", sender_of_cq, destroy_qp },
	{ &cq, "a queue pair that receives", receiver_of_cq, destroy_qp },
	{ &cq, "an XRC SRQ", xrc_srq_of_cq, destroy_srq },
	{ &channel, "a CQ", cq_of_channel, destroy_cq },
	{ &srq, "a queue pair", qp_of_srq, destroy_qp },
	{ &xrcd, "an XRC SRQ", srq_of_xrcd, destroy_srq },
	{ &xrcd, "an XRC target", target_of_xrcd, destroy_qp },
	{ &dm, "a region", mr_of_dm, dereg_mr },
};

static bool is_busy(const struct kind *kind, void *object)
{
	int error = kind->destroy(object);

	return check(error == EBUSY, "destroying %s: %d", kind->name, error);
}

/* Two of them: it is not enough that one is gone. */
static bool is_needed(const struct user *user)
{
	void *needed = user->needed->create();
	void *one, *two;

	if (!needed)
		bail("%s: %s", user->needed->name, strerror(errno));
	one = user->create(needed);
	two = user->create(needed);
	if (!one || !two)
		bail("%s: %s", user->name, strerror(errno));
	return is_busy(user->needed, needed) && is_busy(user->needed, needed) &&
	       check(!user->destroy(one), "the first one is not destroyed") &&
	       is_busy(user->needed, needed) &&
	       check(!user->destroy(two), "the second one is not destroyed") &&
	       check(!user->needed->destroy(needed), "it is not destroyed");
}

int main(int argc, char **argv)
{
	struct neighbours neighbours;
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	neighbours_open(&neighbours, &setup);
	spare_cq = create_cq();
	spare_xrcd = open_xrcd();
	if (!spare_cq || !spare_xrcd)
		bail("objects to try with: %s", strerror(errno));
	for (i = 0; i < COUNT(users); i++)
		tap_ok(is_needed(&users[i]) && neighbours_work(&neighbours),
		       "%s, needed by %s", users[i].needed->name,
		       users[i].name);
	tap_must(!close_xrcd(spare_xrcd), "ibv_close_xrcd fails");
	tap_must(!destroy_cq(spare_cq), "ibv_destroy_cq fails");
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
