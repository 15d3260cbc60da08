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

#define OPS                                                                                                              \
	OP(advise_mr)                                                                                                    \
	OP(alloc_dm)                                                                                                     \
	OP(alloc_mw) OP(alloc_null_mr) OP(alloc_parent_domain) OP(alloc_pd) OP(alloc_td) OP(async_event) OP(             \
		attach_counters_point_flow) OP(attach_mcast) OP(bind_mw) OP(close_xrcd) OP(cq_event) OP(create_ah)       \
		OP(create_counters) OP(create_cq) OP(create_cq_ex) OP(create_flow) OP(create_flow_action_esp) OP(        \
			create_qp) OP(create_qp_ex) OP(create_rwq_ind_table) OP(create_srq) OP(create_srq_ex)            \
			OP(create_wq) OP(dealloc_mw) OP(dealloc_pd) OP(dealloc_td) OP(dereg_mr) OP(                      \
				destroy_ah) OP(destroy_counters) OP(destroy_cq) OP(destroy_flow) OP(destroy_flow_action) \
				OP(destroy_qp) OP(destroy_rwq_ind_table) OP(destroy_srq) OP(destroy_wq) OP(              \
					detach_mcast) OP(free_context) OP(free_dm) OP(get_srq_num)                       \
					OP(import_dm) OP(import_mr) OP(import_pd) OP(modify_cq) OP(                      \
						modify_flow_action_esp) OP(modify_qp) OP(modify_qp_rate_limit)           \
						OP(modify_srq) OP(modify_wq) OP(open_qp) OP(open_xrcd) OP(               \
							poll_cq) OP(post_recv) OP(post_send) OP(post_srq_ops)            \
							OP(post_srq_recv) OP(query_device_ex) OP(query_ece) OP(          \
								query_port) OP(query_qp) OP(query_qp_data_in_order)      \
								OP(query_rt_values) OP(query_srq) OP(                    \
									read_counters) OP(reg_dm_mr) OP(reg_dmabuf_mr)   \
									OP(reg_mr) OP(req_notify_cq) OP(                 \
										rereg_mr) OP(resize_cq)                  \
										OP(set_ece) OP(                          \
											unimport_dm)                     \
											OP(unimport_mr)                  \
												OP(unimport_pd)

#define NUM_OPS (sizeof(struct verbs_context_ops) / sizeof(pabi_op))

/* More than the library's own part of a context takes. */
#define PRIVATE_SIZE 65536

static void print_header(void)
{
#define OP(name)                                                               \
	printf("op %zu " #name "\n",                                           \
	       offsetof(struct verbs_context_ops, name) / sizeof(pabi_op));
	OPS
#undef OP
}

static void print_field(const char *name, const void *value)
{
	printf("seen %zu %s\n", (size_t)(uintptr_t)value - 1, name);
}

static int print_library(void)
{
	uintptr_t table[NUM_OPS];
	struct verbs_context *vctx = calloc(1, sizeof(*vctx));
	struct ibv_context_ops *ops;
	size_t i;

	if (!vctx)
		return 1;
	vctx->priv = calloc(1, PRIVATE_SIZE);
	if (!vctx->priv)
		return 1;
	for (i = 0; i < NUM_OPS; i++)
		table[i] = i + 1;
	verbs_set_ops(vctx, (const struct verbs_context_ops *)table);

	ops = &vctx->context.ops;
#define OP(name) print_field(#name, ops->name);
	OP(alloc_mw)
	OP(bind_mw)
	OP(dealloc_mw) OP(poll_cq) OP(post_recv) OP(post_send) OP(
		post_srq_recv) OP(req_notify_cq)
#undef OP
#define OP(name) print_field(#name, ops->_compat_##name);
		OP(alloc_pd) OP(async_event) OP(attach_mcast) OP(cq_event) OP(create_ah) OP(create_cq) OP(
			create_qp) OP(create_srq) OP(dealloc_pd) OP(dereg_mr) OP(destroy_ah) OP(destroy_cq)
			OP(destroy_qp) OP(destroy_srq) OP(detach_mcast) OP(modify_qp) OP(modify_srq) OP(
				query_qp) OP(query_srq) OP(reg_mr) OP(rereg_mr) OP(resize_cq)
#undef OP
#define OP(name) print_field(#name, vctx->name);
				OP(advise_mr) OP(alloc_dm) OP(alloc_null_mr) OP(
					alloc_parent_domain) OP(alloc_td) OP(attach_counters_point_flow)
					OP(close_xrcd) OP(create_counters) OP(create_qp_ex) OP(
						create_srq_ex) OP(create_wq) OP(dealloc_td)
						OP(free_dm) OP(get_srq_num) OP(
							modify_cq) OP(modify_wq) OP(open_qp)
							OP(open_xrcd) OP(post_srq_ops) OP(
								query_device_ex) OP(query_rt_values)
								OP(read_counters) OP(
									reg_dm_mr)
#undef OP
									free(vctx->priv);
	free(vctx);
	return 0;
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
	if (print_library())
		return 1;
	printf("qp_ex %s\n", finds_comp_mask() ? "ok" : "moved");
	return 0;
}
