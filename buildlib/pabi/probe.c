// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Prints what verify.py compares.
 *
 * "op N NAME": in our header the operation NAME is the Nth pointer of the
 * table. "seen N NAME": the installed library, given a table of numbered
 * pointers, put the Nth into the public field of operation NAME.
 * "qp_ex ok": the library finds verbs_qp.comp_mask where our header has it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pabi.h"

struct field {
	const char *name;
	size_t offset;
};

#define NUM_OPS (sizeof(struct verbs_context_ops) / sizeof(pabi_op))
#define NUM_FIELDS(array) (sizeof(array) / sizeof((array)[0]))

/* More than the library's own part of a context takes. */
#define PRIVATE_SIZE 65536

#define OP(name)                                                               \
	{                                                                      \
#name, offsetof(struct verbs_context_ops, name)                \
	}

static const struct field header[] = {
	OP(advise_mr),
	OP(alloc_dm),
	OP(alloc_mw),
	OP(alloc_null_mr),
	OP(alloc_parent_domain),
	OP(alloc_pd),
	OP(alloc_td),
	OP(async_event),
	OP(attach_counters_point_flow),
	OP(attach_mcast),
	OP(bind_mw),
	OP(close_xrcd),
	OP(cq_event),
	OP(create_ah),
	OP(create_counters),
	OP(create_cq),
	OP(create_cq_ex),
	OP(create_flow),
	OP(create_flow_action_esp),
	OP(create_qp),
	OP(create_qp_ex),
	OP(create_rwq_ind_table),
	OP(create_srq),
	OP(create_srq_ex),
	OP(create_wq),
	OP(dealloc_mw),
	OP(dealloc_pd),
	OP(dealloc_td),
	OP(dereg_mr),
	OP(destroy_ah),
	OP(destroy_counters),
	OP(destroy_cq),
	OP(destroy_flow),
	OP(destroy_flow_action),
	OP(destroy_qp),
	OP(destroy_rwq_ind_table),
	OP(destroy_srq),
	OP(destroy_wq),
	OP(detach_mcast),
	OP(free_context),
	OP(free_dm),
	OP(get_srq_num),
	OP(import_dm),
	OP(import_mr),
	OP(import_pd),
	OP(modify_cq),
	OP(modify_flow_action_esp),
	OP(modify_qp),
	OP(modify_qp_rate_limit),
	OP(modify_srq),
	OP(modify_wq),
	OP(open_qp),
	OP(open_xrcd),
	OP(poll_cq),
	OP(post_recv),
	OP(post_send),
	OP(post_srq_ops),
	OP(post_srq_recv),
	OP(query_device_ex),
	OP(query_ece),
	OP(query_port),
	OP(query_qp),
	OP(query_qp_data_in_order),
	OP(query_rt_values),
	OP(query_srq),
	OP(read_counters),
	OP(reg_dm_mr),
	OP(reg_dmabuf_mr),
	OP(reg_mr),
	OP(req_notify_cq),
	OP(rereg_mr),
	OP(resize_cq),
	OP(set_ece),
	OP(unimport_dm),
	OP(unimport_mr),
	OP(unimport_pd),
};
static_assert(NUM_FIELDS(header) == NUM_OPS, "an operation is missing");

/* Where the library shows an operation: basic, historical and extended. */
#define BASIC(name)                                                            \
	{                                                                      \
#name, offsetof(struct verbs_context, context.ops.name)        \
	}
#define COMPAT(name)                                                           \
	{                                                                      \
#name, offsetof(struct verbs_context,                          \
				context.ops._compat_##name)                    \
	}
#define EXT(name)                                                              \
	{                                                                      \
#name, offsetof(struct verbs_context, name)                    \
	}

static const struct field public[] = {
	BASIC(alloc_mw),      BASIC(bind_mw),
	BASIC(dealloc_mw),    BASIC(poll_cq),
	BASIC(post_recv),     BASIC(post_send),
	BASIC(post_srq_recv), BASIC(req_notify_cq),
	COMPAT(alloc_pd),     COMPAT(async_event),
	COMPAT(attach_mcast), COMPAT(cq_event),
	COMPAT(create_ah),    COMPAT(create_cq),
	COMPAT(create_qp),    COMPAT(create_srq),
	COMPAT(dealloc_pd),   COMPAT(dereg_mr),
	COMPAT(destroy_ah),   COMPAT(destroy_cq),
	COMPAT(destroy_qp),   COMPAT(destroy_srq),
	COMPAT(detach_mcast), COMPAT(modify_qp),
	COMPAT(modify_srq),   COMPAT(query_qp),
	COMPAT(query_srq),    COMPAT(reg_mr),
	COMPAT(rereg_mr),     COMPAT(resize_cq),
	EXT(advise_mr),	      EXT(alloc_dm),
	EXT(alloc_null_mr),   EXT(alloc_parent_domain),
	EXT(alloc_td),	      EXT(attach_counters_point_flow),
	EXT(close_xrcd),      EXT(create_counters),
	EXT(create_qp_ex),    EXT(create_srq_ex),
	EXT(create_wq),	      EXT(dealloc_td),
	EXT(free_dm),	      EXT(get_srq_num),
	EXT(modify_cq),	      EXT(modify_wq),
	EXT(open_qp),	      EXT(open_xrcd),
	EXT(post_srq_ops),    EXT(query_device_ex),
	EXT(query_rt_values), EXT(read_counters),
	EXT(reg_dm_mr),
};

static void print_header(void)
{
	size_t i;

	for (i = 0; i < NUM_FIELDS(header); i++)
		printf("op %zu %s\n", header[i].offset / sizeof(pabi_op),
		       header[i].name);
}

static void print_library(void)
{
	static max_align_t private[PRIVATE_SIZE / sizeof(max_align_t)];
	static struct verbs_context context;
	uintptr_t table[NUM_OPS], number;
	size_t i;

	context.priv = (void *)private;
	for (i = 0; i < NUM_OPS; i++)
		table[i] = i + 1;
	verbs_set_ops(&context, (const struct verbs_context_ops *)table);
	for (i = 0; i < NUM_FIELDS(public); i++) {
		memcpy(&number, (char *)&context + public[i].offset,
		       sizeof(number));
		printf("seen %zu %s\n", (size_t)number - 1, public[i].name);
	}
}

/* All bits but those of comp_mask lie, one way and the other. */
static bool finds_comp_mask(void)
{
	struct verbs_qp *qp = malloc(2 * sizeof(*qp));
	bool yes, no;

	if (!qp)
		return false;
	memset(qp, 0, 2 * sizeof(*qp));
	qp->comp_mask = VERBS_QP_EX;
	yes = ibv_qp_to_qp_ex(&qp->qp) == &qp->qp_ex;
	memset(qp, 0xff, 2 * sizeof(*qp));
	qp->comp_mask = (uint32_t)~VERBS_QP_EX;
	no = !ibv_qp_to_qp_ex(&qp->qp);
	free(qp);
	return yes && no;
}

int main(void)
{
	print_header();
	print_library();
	printf("qp_ex %s\n", finds_comp_mask() ? "ok" : "moved");
	return 0;
}
