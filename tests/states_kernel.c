// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Attributes of queue pairs that the kernel itself refuses, whatever the program
 * has for a provider.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "states.h"
#include "tap.h"

/* As libibverbs asks the kernel, but for what libmic refuses before. Return: errno. */
static int modify_raw(struct ibv_qp *qp, struct ib_uverbs_modify_qp attr)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_modify_qp cmd;
	} request = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_MODIFY_QP,
			.in_words = sizeof(request) / 4,
		},
		.cmd = attr,
	};

	request.cmd.qp_handle = qp->handle;
	if (write(qp->context->cmd_fd, &request, sizeof(request)) ==
	    sizeof(request))
		return 0;
	return errno;
}

/* By the extended command, the only one that a rate goes with. Return: errno. */
static int modify_extended(struct ibv_qp *qp, struct ib_uverbs_modify_qp attr,
			   uint32_t rate)
{
	struct ib_uverbs_ex_modify_qp_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_ex_cmd_hdr ex;
		struct ib_uverbs_ex_modify_qp cmd;
	} request = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_FLAG_EXTENDED |
				   IB_USER_VERBS_EX_CMD_MODIFY_QP,
			.in_words = sizeof(request.cmd) / 8,
			.out_words = sizeof(resp) / 8,
		},
		.ex.response = (uintptr_t)&resp,
		.cmd = { .base = attr, .rate_limit = rate },
	};

	request.cmd.base.qp_handle = qp->handle;
	if (write(qp->context->cmd_fd, &request, sizeof(request)) ==
	    sizeof(request))
		return 0;
	return errno;
}

static bool expect_error(const char *name, int error, int wanted)
{
	return check(error == wanted, "%s: %s instead of %s", name,
		     strerror(error), strerror(wanted));
}

/* A rate, alone and with what is allowed otherwise. */
static bool kernel_refuses_rate(struct ibv_qp *qp)
{
	struct ib_uverbs_modify_qp attr = {
		.attr_mask = IBV_QP_MIN_RNR_TIMER,
		.min_rnr_timer = 31,
	};
	bool ok;

	ok = expect_error("a timer, extended", modify_extended(qp, attr, 0), 0);
	attr.attr_mask |= IBV_QP_RATE_LIMIT;
	ok = expect_error("a timer and a rate", modify_extended(qp, attr, 1000),
			  EOPNOTSUPP) &&
	     ok;
	attr.attr_mask = IBV_QP_RATE_LIMIT;
	ok = expect_error("a rate", modify_extended(qp, attr, 1000),
			  EOPNOTSUPP) &&
	     ok;
	return expect_error("no rate", modify_extended(qp, attr, 0),
			    EOPNOTSUPP) &&
	       ok;
}

struct attempt {
	const char *name;
	struct ib_uverbs_modify_qp attr;
	int error;
};

static bool attempted(struct pair *pair, const struct attempt *attempts,
		      unsigned int n)
{
	bool ok = true;
	unsigned int i;

	for (i = 0; i < n; i++)
		ok = expect_error(attempts[i].name,
				  modify_raw(pair->a.qp, attempts[i].attr),
				  attempts[i].error) &&
		     ok;
	return ok;
}

/* What may be changed when the send queue is drained only. */
static bool kernel_refuses_reads(struct pair *pair)
{
	static const struct attempt attempts[] = {
		{ "as many READs at once as there can be",
		  { .attr_mask = IBV_QP_MAX_QP_RD_ATOMIC,
		    .max_rd_atomic = 128 },
		  0 },
		{ "more",
		  { .attr_mask = IBV_QP_MAX_QP_RD_ATOMIC,
		    .max_rd_atomic = 129 },
		  EINVAL },
		{ "as many of the peer's",
		  { .attr_mask = IBV_QP_MAX_DEST_RD_ATOMIC,
		    .max_dest_rd_atomic = 128 },
		  0 },
		{ "more of the peer's",
		  { .attr_mask = IBV_QP_MAX_DEST_RD_ATOMIC,
		    .max_dest_rd_atomic = 129 },
		  EINVAL },
	};
	bool ok;

	endpoint_go(&pair->a, IBV_QPS_SQD);
	ok = attempted(pair, attempts, COUNT(attempts));
	endpoint_go(&pair->a, IBV_QPS_RTS);
	return ok;
}

/* The kernel refuses them itself, and what is beyond its limits. */
bool kernel_refuses_attributes(struct pair *pair)
{
	static const struct attempt attempts[] = {
		{ "nothing", { .attr_mask = 0 }, 0 },
		{ "a timer",
		  { .attr_mask = IBV_QP_MIN_RNR_TIMER, .min_rnr_timer = 31 },
		  0 },
		{ "too large a timer",
		  { .attr_mask = IBV_QP_MIN_RNR_TIMER, .min_rnr_timer = 32 },
		  EINVAL },
		{ "another path",
		  { .attr_mask = IBV_QP_ALT_PATH,
		    .alt_port_num = 1,
		    .alt_dest = { .port_num = 1 } },
		  EINVAL },
		{ "path migration",
		  { .attr_mask = IBV_QP_PATH_MIG_STATE,
		    .path_mig_state = IBV_MIG_REARM },
		  EOPNOTSUPP },
		{ "other capacities", { .attr_mask = IBV_QP_CAP }, EINVAL },
	};
	bool ok;

	ok = kernel_refuses_rate(pair->a.qp);
	ok = kernel_refuses_reads(pair) && ok;
	ok = attempted(pair, attempts, COUNT(attempts)) && ok;
	return expect_state(&pair->a, IBV_QPS_RTS) && ok;
}
