// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Queue pairs of the other types, their way from RESET to RTS, and completion
 * queues that can more.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "injection.h"
#include "tap.h"

enum { PORT = 1 };

/* Not connected yet; the peer of each is itself. */
static struct endpoint rc, uc, ud, xrc;
static struct endpoint drained; /* connected, and in SQD all the time */
static struct ibv_qp *target;
static int file; /* has an XRC domain */

static void *create_uc(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = bench.cq,
		.recv_cq = bench.cq,
		.qp_type = IBV_QPT_UC,
		.cap = { .max_send_wr = 100,
			 .max_recv_wr = 100,
			 .max_send_sge = 8,
			 .max_recv_sge = 8 },
	};

	return ibv_create_qp(bench.pd, &init);
}

static void *create_xrc_send(void)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = bench.pd,
		.send_cq = bench.cq,
		.cap = { .max_send_wr = 100, .max_send_sge = 8 },
	};

	return ibv_create_qp_ex(bench.ctx, &init);
}

static void *create_cq_ex(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 1000,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};

	return ibv_create_cq_ex(bench.ctx, &attr);
}

static int destroy_cq_ex(void *cq)
{
	return ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
}

static void *moderate(void)
{
	struct ibv_modify_cq_attr attr = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { .cq_count = 10, .cq_period = 1000 },
	};

	return done(ibv_modify_cq(bench.cq, &attr));
}

static int moderate_no_more(void *object)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE };

	(void)object;
	return ibv_modify_cq(bench.cq, &attr);
}

/* --- XRC domains of a file, and targets that are opened by their number ------- */

static void *open_xrcd_of_file(void)
{
	return open_xrcd_of(file);
}

static void *open_target(void)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = target->qp_num,
		.xrcd = bench.xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	return ibv_open_qp(bench.ctx, &attr);
}

/* --- to RTS ------------------------------------------------------------------ */

static int to_init(const struct endpoint *ep)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qkey = ENDPOINT_QKEY,
	};

	return ibv_modify_qp(ep->qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     (ep == &ud ? IBV_QP_QKEY :
						  IBV_QP_ACCESS_FLAGS));
}

static struct ibv_ah_attr path_to(const union ibv_gid *gid)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = PORT,
		.grh = { .dgid = *gid,
			 .sgid_index = bench.setup->a_dev.gid_index,
			 .hop_limit = 64 },
	};
}

static int to_rtr(const struct endpoint *ep)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = ep->qp->qp_num,
		.ah_attr = path_to(&bench.setup->b_dev.gid),
	};
	int mask = IBV_QP_STATE;

	if (ep != &ud)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN;
	if (ep == &rc || ep == &drained)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(ep->qp, &attr, mask);
}

static int to_rts(const struct endpoint *ep)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (ep != &uc && ep != &ud)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(ep->qp, &attr, mask);
}

/* Whichever of the steps fails, the queue pair can be reset afterwards. */
static void *go(struct endpoint *ep)
{
	int error = to_init(ep);

	error = error ? error : to_rtr(ep);
	error = error ? error : to_rts(ep);
	if (error && endpoint_set_state(ep, IBV_QPS_RESET))
		bail("a queue pair can't be reset");
	return done(error) ? ep : NULL;
}

static int reset(void *ep)
{
	return endpoint_set_state(ep, IBV_QPS_RESET);
}

static void *go_rc(void)
{
	return go(&rc);
}

static void *go_uc(void)
{
	return go(&uc);
}

static void *go_ud(void)
{
	return go(&ud);
}

static void *go_xrc(void)
{
	return go(&xrc);
}

static void *to_error(void)
{
	int error = to_init(&rc);

	error = error ? error : endpoint_set_state(&rc, IBV_QPS_ERR);
	if (error && reset(&rc))
		bail("a queue pair can't be reset");
	return done(error) ? &rc : NULL;
}

/* Another path, which it has if nothing fails, or the one it had. */
static int set_path(const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = { .ah_attr = path_to(gid) };

	return ibv_modify_qp(drained.qp, &attr, IBV_QP_AV);
}

static bool has_path(const union ibv_gid *gid)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return !ibv_query_qp(drained.qp, &attr, IBV_QP_AV, &init) &&
	       !memcmp(&attr.ah_attr.grh.dgid, gid, sizeof(*gid));
}

static void *other_path(void)
{
	int error = set_path(&bench.setup->a_dev.gid);

	if (error && !has_path(&bench.setup->b_dev.gid))
		bail("a path that could not be set is there");
	return done(error);
}

static int first_path(void *object)
{
	(void)object;
	if (!has_path(&bench.setup->a_dev.gid))
		return EADDRNOTAVAIL;
	return set_path(&bench.setup->b_dev.gid);
}

const struct verb qp_verbs[] = {
	{ "ibv_create_qp, UC", create_uc, destroy_qp },
	{ "ibv_create_qp_ex, XRC initiator", create_xrc_send, destroy_qp },
	{ "ibv_open_xrcd, of a file", open_xrcd_of_file, close_xrcd },
	{ "ibv_open_qp", open_target, destroy_qp },
	{ "ibv_create_cq_ex", create_cq_ex, destroy_cq_ex },
	{ "ibv_modify_cq", moderate, moderate_no_more },
	{ "ibv_modify_qp, RC from RESET to RTS", go_rc, reset },
	{ "ibv_modify_qp, UC from RESET to RTS", go_uc, reset },
	{ "ibv_modify_qp, UD from RESET to RTS", go_ud, reset },
	{ "ibv_modify_qp, XRC from RESET to RTS", go_xrc, reset },
	{ "ibv_modify_qp, to ERR", to_error, reset },
	{ "ibv_modify_qp, another path in SQD", other_path, first_path },
	{ NULL, NULL, NULL },
};

static void create(struct endpoint *ep, enum ibv_qp_type type)
{
	struct endpoint_options options = endpoint_options(type);

	endpoint_create(ep, &bench.setup->a_dev, &options);
}

void qp_verbs_open(void)
{
	create(&rc, IBV_QPT_RC);
	create(&uc, IBV_QPT_UC);
	create(&ud, IBV_QPT_UD);
	create(&xrc, IBV_QPT_XRC_SEND);
	create(&drained, IBV_QPT_RC);
	if (to_init(&drained) || to_rtr(&drained) || to_rts(&drained) ||
	    endpoint_set_state(&drained, IBV_QPS_SQD))
		bail("a queue pair does not come to SQD");
	file = memfd_create("xrc", MFD_CLOEXEC);
	target = create_xrc_recv();
	if (file < 0 || !target)
		bail("no file or no target: %s", strerror(errno));
}

void qp_verbs_close(void)
{
	endpoint_destroy(&rc);
	endpoint_destroy(&uc);
	endpoint_destroy(&ud);
	endpoint_destroy(&xrc);
	endpoint_destroy(&drained);
	tap_must(!destroy_qp(target), "the target is not destroyed");
	close(file);
}
