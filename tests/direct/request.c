// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * One request by either of the interfaces to post, and what it has to do to the
 * memory of both sides.
 */
#include <errno.h>
#include <string.h>

#include "direct.h"
#include "pattern.h"
#include "tap.h"
#include "work.h"

enum { ADDED = 1000 };

static uint8_t *from(const struct session *session)
{
	return session->setup.a_mem.addr + session->from;
}

static uint8_t *to(const struct session *session)
{
	return session->setup.b_mem.addr + session->to;
}

static uint64_t word_at(const void *addr)
{
	uint64_t word;

	memcpy(&word, addr, WORD);
	return word;
}

static void prepare_data(struct session *session, const struct request *request)
{
	const uint8_t *bytes = pattern_bytes(session->id, MOST_BYTES);
	const uint64_t word = session->id;

	if (opcode_is_atomic(request->op->opcode)) {
		memset(from(session), 0, WORD);
		memcpy(to(session), &word, WORD);
	} else if (request->op->opcode == IBV_WR_RDMA_READ) {
		memset(from(session), 0, request->size);
		memcpy(to(session), bytes, request->size);
	} else {
		memcpy(from(session), bytes, request->size);
		memset(to(session), 0, request->size);
	}
}

static bool verify_data(struct session *session, const struct request *request)
{
	const uint8_t *bytes = pattern_bytes(session->id, MOST_BYTES);
	const uint64_t word = session->id;

	switch (request->op->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return check(word_at(from(session)) == word &&
				     word_at(to(session)) == ~word,
			     "it compares or swaps other words");
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return check(word_at(from(session)) == word &&
				     word_at(to(session)) == word + ADDED,
			     "it fetches or adds other words");
	case IBV_WR_RDMA_READ:
		return check(!memcmp(from(session), bytes, request->size),
			     "other bytes are read");
	default:
		return check(!memcmp(to(session), bytes, request->size),
			     "other bytes arrive");
	}
}

/* --- posting ---------------------------------------------------------------- */

static void cut(struct session *session, struct request *request)
{
	uint32_t part = request->size / request->count;
	size_t offset = session->from;
	unsigned int i;

	for (i = 0; i < request->count; i++) {
		if (i == request->count - 1)
			part = session->from + request->size - offset;
		request->sges[i] = region_sge(&session->setup.a_mem, offset,
					      part);
		offset += part;
	}
}

static void post_listed(struct session *session, struct request *request)
{
	const struct region *peer = &session->setup.b_mem;
	const uint64_t address = peer->rdma_addr + session->to;
	struct ibv_send_wr wr = send_wr(session->id, request->op->opcode,
					request->sges, request->count);

	if (opcode_is_atomic(wr.opcode)) {
		wr.wr.atomic.remote_addr = address;
		wr.wr.atomic.rkey = peer->mr->rkey;
		wr.wr.atomic.compare_add =
			wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? ADDED :
								   session->id;
		wr.wr.atomic.swap = ~(uint64_t)session->id;
	} else {
		wr.wr.rdma.remote_addr = address;
		wr.wr.rdma.rkey = peer->mr->rkey;
	}
	if (request->is_inline)
		wr.send_flags |= IBV_SEND_INLINE;
	post_send(&session->a, &wr);
}

/* False where the data goes along. */
static bool begin_built(struct session *session, struct ibv_qp_ex *qp,
			enum ibv_wr_opcode opcode)
{
	const uint64_t address = session->setup.b_mem.rdma_addr + session->to;
	const uint32_t rkey = session->setup.b_mem.mr->rkey;

	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(qp, rkey, address);
		return true;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(qp, rkey, address, 0);
		return true;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(qp, rkey, address);
		return true;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(qp, rkey, address, session->id,
				      ~(uint64_t)session->id);
		return true;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(qp, rkey, address, ADDED);
		return true;
	case IBV_WR_ATOMIC_WRITE:
		ibv_wr_atomic_write(qp, rkey, address, from(session));
		return false;
	case IBV_WR_SEND:
		ibv_wr_send(qp);
		return true;
	default:
		ibv_wr_send_imm(qp, 0);
		return true;
	}
}

static void set_inline(struct ibv_qp_ex *qp, const struct request *request)
{
	struct ibv_data_buf bufs[MOST_SGES];
	unsigned int i;

	for (i = 0; i < request->count; i++) {
		bufs[i].addr = (void *)(uintptr_t)request->sges[i].addr;
		bufs[i].length = request->sges[i].length;
	}
	if (request->count == 1)
		ibv_wr_set_inline_data(qp, bufs->addr, bufs->length);
	else
		ibv_wr_set_inline_data_list(qp, request->count, bufs);
}

static void build(struct session *session, struct request *request)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(session->a.qp);
	const struct ibv_sge *sge = request->sges;

	qp->wr_id = session->id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	if (!begin_built(session, qp, request->op->opcode))
		return;
	if (request->is_inline)
		set_inline(qp, request);
	else if (request->count == 1)
		ibv_wr_set_sge(qp, sge->lkey, sge->addr, sge->length);
	else
		ibv_wr_set_sge_list(qp, request->count, sge);
}

static void post_built(struct session *session, struct request *request)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(session->a.qp);
	int error;

	ibv_wr_start(qp);
	build(session, request);
	error = ibv_wr_complete(qp);
	if (error)
		bail("ibv_wr_complete: %s", strerror(error));
}

void request_post(struct session *session, struct request *request)
{
	struct ibv_sge sge = region_sge(&session->setup.b_mem, session->to,
					request->size);

	session->id++;
	prepare_data(session, request);
	cut(session, request);
	if (opcode_takes_recv(request->op->opcode))
		post_recv(&session->b, session->id, &sge, 1);
	session->before = session_query(session);
	if (session->extended)
		post_built(session, request);
	else
		post_listed(session, request);
}

bool request_complete(struct session *session, struct request *request)
{
	return cq_expect(session->a.send_cq, session->id, IBV_WC_SUCCESS) &&
	       (!opcode_takes_recv(request->op->opcode) ||
		cq_expect(session->b.recv_cq, session->id, IBV_WC_SUCCESS)) &&
	       verify_data(session, request);
}
