// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <inttypes.h>
#include <string.h>

#include "clock.h"
#include "direct.h"
#include "tap.h"
#include "work.h"

enum { AGAIN_ID = 1 << 30 /* above all other ids */ };

struct micdv_qp_attr session_query(const struct session *session)
{
	struct micdv_qp_attr attr = { .comp_mask = 0 };
	int error = micdv_query_qp(session->a.qp, &attr);

	if (error)
		bail("micdv_query_qp: %s", strerror(error));
	return attr;
}

/* The same queue pair with the extended interface. */
static void extend(struct endpoint *ep)
{
	uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE |
		       IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
		       IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

	if (ep->options.type == IBV_QPT_RC)
		ops |= IBV_QP_EX_WITH_RDMA_READ |
		       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
		       IBV_QP_EX_WITH_ATOMIC_WRITE;
	endpoint_extend(ep, 0, ops);
}

void session_connect(struct session *session)
{
	struct endpoint_options options = endpoint_options(session->type);

	options.sges = MOST_SGES;
	options.inline_bytes = MOST_INLINE;
	endpoint_create(&session->a, &session->setup.a_dev, &options);
	endpoint_create(&session->b, &session->setup.b_dev, &options);
	if (session->extended)
		extend(&session->a);
	pair_connect(&session->a, &session->b);
	session->given = false;
}

void session_disconnect(struct session *session)
{
	pair_destroy(&session->a, &session->b);
}

bool session_took(struct session *session, uint64_t direct, uint64_t engine)
{
	struct micdv_qp_attr now = session_query(session);

	now.direct -= session->before.direct;
	now.engine -= session->before.engine;
	session->given = now.engine;
	return check(now.direct == direct && now.engine == engine,
		     "%" PRIu64 " executed by the process and %" PRIu64
		     " by the kernel instead of %" PRIu64 " and %" PRIu64,
		     now.direct, now.engine, direct, engine);
}

bool session_took_one(struct session *session, bool direct)
{
	const bool by_process = session_query(session).direct !=
				session->before.direct;

	session->direct += direct && by_process;
	session->engine += direct && !by_process;
	if (session->mode->path == MICDV_PATH_RANDOM && direct)
		direct = by_process;
	if (session->mode->path == MICDV_PATH_ENGINE)
		direct = false;
	return session_took(session, direct, !direct);
}

bool session_is_idle(struct session *session)
{
	struct ibv_sge sge = region_sge(&session->setup.a_mem, session->from,
					1);
	struct ibv_send_wr wr = send_wr(AGAIN_ID, IBV_WR_RDMA_WRITE, &sge, 1);
	uint64_t direct = session_query(session).direct, end = deadline();

	wr.wr.rdma.remote_addr = session->setup.b_mem.rdma_addr + session->to;
	wr.wr.rdma.rkey = session->setup.b_mem.mr->rkey;
	while (session_query(session).direct == direct) {
		post_send(&session->a, &wr);
		if (!cq_expect(session->a.send_cq, AGAIN_ID, IBV_WC_SUCCESS) ||
		    !check(now_ms() < end, "the kernel keeps the queue"))
			return false;
	}
	session->given = false;
	return true;
}
