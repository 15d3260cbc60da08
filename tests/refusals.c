// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What Documentation/verbs.md says that the device does not do: it refuses it with
 * EOPNOTSUPP, at once, and does not advertise it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "setup.h"
#include "tap.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { PORT = 1, ENTRIES = 16 };

static struct device dev;
static struct endpoint rc, ud;

/* 0 if it is accepted. */
static int error_of(const void *object)
{
	return object ? 0 : errno;
}

/* --- flows and counters ---------------------------------------------------------- */

static int create_flow(void)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} flow = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL,
			  .size = sizeof(flow),
			  .num_of_specs = 1,
			  .port = PORT },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(flow.eth) },
	};

	return error_of(ibv_create_flow(ud.qp, &flow.attr));
}

static int create_flow_action(void)
{
	struct ibv_flow_action_esp_attr attr = {};

	return error_of(ibv_create_flow_action_esp(dev.ctx, &attr));
}

static int create_counters(void)
{
	struct ibv_counters_init_attr attr = {};

	return error_of(ibv_create_counters(dev.ctx, &attr));
}

/* --- work queues and RSS --------------------------------------------------------- */

static int create_wq(void)
{
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ,
		.max_wr = ENTRIES,
		.max_sge = 1,
		.pd = dev.pd,
		.cq = rc.recv_cq,
	};

	return error_of(ibv_create_wq(dev.ctx, &attr));
}

static int create_ind_table(void)
{
	struct ibv_wq *queues[1] = {};
	struct ibv_rwq_ind_table_init_attr attr = { .ind_tbl = queues };

	return error_of(ibv_create_rwq_ind_table(dev.ctx, &attr));
}

/* --- queue pairs ------------------------------------------------------------------ */

static struct ibv_qp_init_attr_ex qp_attr(enum ibv_qp_type type, uint32_t mask)
{
	return (struct ibv_qp_init_attr_ex){
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | mask,
		.pd = dev.pd,
		.send_cq = rc.send_cq,
		.recv_cq = rc.recv_cq,
		.cap = { .max_send_wr = ENTRIES,
			 .max_recv_wr = ENTRIES,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
}

static int create_qp(struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *qp = ibv_create_qp_ex(dev.ctx, attr);
	int error = error_of(qp);

	if (qp)
		tap_must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
	return error;
}

static int create_type(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex attr = qp_attr(type, 0);

	return create_qp(&attr);
}

static int raw_packets(void)
{
	return create_type(IBV_QPT_RAW_PACKET);
}

static int type_of_vendor(void)
{
	return create_type(IBV_QPT_DRIVER);
}

static int of_type_with_flags(enum ibv_qp_type type, uint32_t flags)
{
	struct ibv_qp_init_attr_ex attr =
		qp_attr(type, IBV_QP_INIT_ATTR_CREATE_FLAGS);

	attr.create_flags = flags;
	/* of another queue pair, if it asks for that */
	attr.source_qpn = rc.qp->qp_num;
	return create_qp(&attr);
}

static int with_flags(uint32_t flags)
{
	return of_type_with_flags(IBV_QPT_UD, flags);
}

/* The first that is not refused as the others are, or what they all say. */
static int flags(void)
{
	static const uint32_t others[] = {
		IBV_QP_CREATE_CVLAN_STRIPPING,
		IBV_QP_CREATE_SOURCE_QPN,
		IBV_QP_CREATE_PCI_WRITE_END_PADDING,
		IBV_QP_CREATE_PCI_WRITE_END_PADDING |
			IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
	};
	int error = with_flags(IBV_QP_CREATE_SCATTER_FCS), other;
	unsigned int i;

	for (i = 0; i < COUNT(others); i++) {
		other = with_flags(others[i]);
		if (!check(other == error, "flag %#x: %s", others[i],
			   other ? strerror(other) : "accepted"))
			return other;
	}
	return error;
}

/* A connection has no multicasts. */
static int loopback_of_rc(void)
{
	return of_type_with_flags(IBV_QPT_RC,
				  IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
}

static int loopback_of_ud(void)
{
	return with_flags(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
}

/* Else the flags say nothing. */
static int no_flags(void)
{
	return with_flags(0);
}

static int with_tso(void)
{
	struct ibv_qp_init_attr_ex attr =
		qp_attr(IBV_QPT_UD, IBV_QP_INIT_ATTR_MAX_TSO_HEADER);

	attr.max_tso_header = 64;
	return create_qp(&attr);
}

static int with_rss(void)
{
	struct ibv_qp_init_attr_ex attr = qp_attr(IBV_QPT_UD,
						  IBV_QP_INIT_ATTR_RX_HASH);

	attr.rx_hash_conf.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
	return create_qp(&attr);
}

static int set_ece(void)
{
	struct ibv_ece ece = { .vendor_id = 1 };

	return ibv_set_ece(rc.qp, &ece);
}

static int query_ece(void)
{
	struct ibv_ece ece;

	return ibv_query_ece(rc.qp, &ece);
}

/* --- tag matching, and what a completion could tell of ------------------------------ */

static int tag_matching(void)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = ENTRIES, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.pd = dev.pd,
		.cq = rc.recv_cq,
		.tm_cap = { .max_num_tags = 1, .max_ops = 1 },
	};
	struct ibv_srq *srq = ibv_create_srq_ex(dev.ctx, &attr);
	int error = error_of(srq);

	if (srq)
		tap_must(!ibv_destroy_srq(srq), "ibv_destroy_srq");
	return error;
}

static int completions_with(uint64_t what)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = ENTRIES, .wc_flags = what };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(dev.ctx, &attr);
	int error = error_of(cq);

	if (cq)
		tap_must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)),
			 "ibv_destroy_cq");
	return error;
}

static int flow_tags(void)
{
	return completions_with(IBV_WC_EX_WITH_FLOW_TAG);
}

static int tag_infos(void)
{
	return completions_with(IBV_WC_EX_WITH_TM_INFO);
}

/* ------------------------------------------------------------------------------------ */

static const struct {
	const char *verb;
	int (*ask)(void);
	int error;
} refusals[] = {
	{ "ibv_create_flow", create_flow, EOPNOTSUPP },
	{ "ibv_create_flow_action_esp", create_flow_action, EOPNOTSUPP },
	{ "ibv_create_counters", create_counters, EOPNOTSUPP },
	{ "ibv_create_wq", create_wq, EOPNOTSUPP },
	{ "ibv_create_rwq_ind_table", create_ind_table, EOPNOTSUPP },
	{ "queue pairs of raw packets", raw_packets, EOPNOTSUPP },
	{ "queue pairs of a vendor's type", type_of_vendor, EOPNOTSUPP },
	{ "queue pairs with a flag", flags, EOPNOTSUPP },
	{ "RC without its own multicasts", loopback_of_rc, EOPNOTSUPP },
	{ "but UD without its own multicasts", loopback_of_ud, 0 },
	{ "and with flags that are 0", no_flags, 0 },
	{ "queue pairs with TSO", with_tso, EOPNOTSUPP },
	{ "queue pairs with RSS", with_rss, EOPNOTSUPP },
	{ "ibv_set_ece", set_ece, EOPNOTSUPP },
	{ "ibv_query_ece", query_ece, EOPNOTSUPP },
	{ "receive queues with tag matching", tag_matching, EOPNOTSUPP },
	{ "completions with flow tags", flow_tags, EOPNOTSUPP },
	{ "completions with tags", tag_infos, EOPNOTSUPP },
};

static bool answers(int error, int expected)
{
	return check(error == expected, "%s, not %s",
		     error ? strerror(error) : "accepted",
		     expected ? strerror(expected) : "accepted");
}

/* Other queries of it say so, too. */
static bool advertises_nothing(void)
{
	struct ibv_device_attr_ex attr;

	return check(!ibv_query_device_ex(dev.ctx, NULL, &attr),
		     "ibv_query_device_ex fails") &&
	       check(!attr.tso_caps.max_tso && !attr.tso_caps.supported_qpts,
		     "TSO") &&
	       check(!attr.rss_caps.supported_qpts &&
			     !attr.rss_caps.max_rwq_indirection_tables,
		     "RSS") &&
	       check(!attr.max_wq_type_rq, "work queues") &&
	       check(!attr.raw_packet_caps, "raw packets") &&
	       check(!attr.tm_caps.max_num_tags && !attr.tm_caps.flags,
		     "tag matching") &&
	       check(!attr.packet_pacing_caps.supported_qpts, "rates");
}

static bool no_order(void)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
		IBV_WR_SEND,
	};
	unsigned int i;

	for (i = 0; i < COUNT(opcodes); i++)
		if (!check(!ibv_query_qp_data_in_order(rc.qp, opcodes[i], 0),
			   "operation %d has", opcodes[i]))
			return false;
	return true;
}

/* --- allocators, which are taken ------------------------------------------------------ */

static unsigned int allocated;

static void *allocate(struct ibv_pd *pd, void *context, size_t size,
		      size_t alignment, uint64_t type)
{
	(void)pd;
	(void)context;
	(void)size;
	(void)alignment;
	(void)type;
	allocated++;
	return IBV_ALLOCATOR_USE_DEFAULT;
}

static void release(struct ibv_pd *pd, void *context, void *memory,
		    uint64_t type)
{
	(void)pd;
	(void)context;
	(void)memory;
	(void)type;
	allocated++;
}

static bool allocators(void)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = dev.pd,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = allocate,
		.free = release,
		.pd_context = &dev,
	};
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = ENTRIES,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
	};
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint ep;
	struct ibv_cq_ex *cq;

	cq_attr.parent_domain = ibv_alloc_parent_domain(dev.ctx, &attr);
	if (!check(cq_attr.parent_domain, "they are refused: %s",
		   strerror(errno)))
		return false;
	cq = ibv_create_cq_ex(dev.ctx, &cq_attr);
	if (!cq)
		bail("ibv_create_cq_ex: %s", strerror(errno));
	options.pd = cq_attr.parent_domain;
	options.send_cq = ibv_cq_ex_to_cq(cq);
	options.recv_cq = options.send_cq;
	endpoint_create(&ep, &dev, &options);
	endpoint_destroy(&ep);
	tap_must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "ibv_destroy_cq");
	tap_must(!ibv_dealloc_pd(cq_attr.parent_domain), "ibv_dealloc_pd");
	return check(!allocated, "they are called: %u times", allocated);
}

int main(int argc, char **argv)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	const char *name, *peer;
	unsigned int i;

	device_names(&argc, argv, &name, &peer);
	device_open(&dev, name);
	endpoint_create(&rc, &dev, &options);
	options.type = IBV_QPT_UD;
	endpoint_create(&ud, &dev, &options);
	for (i = 0; i < COUNT(refusals); i++)
		tap_ok(answers(refusals[i].ask(), refusals[i].error), "%s",
		       refusals[i].verb);
	tap_ok(no_order(), "the data has no order that it is written in");
	tap_ok(allocators(), "allocators are taken, and never called");
	tap_ok(advertises_nothing(), "none of it is advertised");
	endpoint_destroy(&ud);
	endpoint_destroy(&rc);
	device_close(&dev);
	return tap_end();
}
