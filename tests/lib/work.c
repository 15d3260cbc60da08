// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <inttypes.h>
#include <string.h>

#include "clock.h"
#include "proxy.h"
#include "tap.h"
#include "work.h"

const char *opcode_name(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
		return "WRITE";
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return "WRITE_IMM";
	case IBV_WR_SEND:
		return "SEND";
	case IBV_WR_SEND_WITH_IMM:
		return "SEND_IMM";
	case IBV_WR_RDMA_READ:
		return "READ";
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return "CAS";
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return "FAA";
	case IBV_WR_SEND_WITH_INV:
		return "SEND_INV";
	case IBV_WR_ATOMIC_WRITE:
		return "ATOMIC_WRITE";
	case IBV_WR_BIND_MW:
		return "BIND_MW";
	case IBV_WR_LOCAL_INV:
		return "LOCAL_INV";
	default:
		return "?";
	}
}

bool opcode_has_imm(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND_WITH_IMM ||
	       opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool opcode_is_atomic(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

bool opcode_takes_recv(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
	       opcode == IBV_WR_SEND_WITH_INV ||
	       opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool opcode_has_remote(enum ibv_wr_opcode opcode)
{
	return !opcode_takes_recv(opcode) ||
	       opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool opcode_writes_local(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_READ || opcode_is_atomic(opcode);
}

enum ibv_wc_opcode completion_of(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_ATOMIC_WRITE:
		return IBV_WC_ATOMIC_WRITE;
	default:
		return IBV_WC_SEND;
	}
}

struct ibv_send_wr send_wr(uint64_t id, enum ibv_wr_opcode opcode,
			   struct ibv_sge *sges, int count)
{
	return (struct ibv_send_wr){
		.wr_id = id,
		.opcode = opcode,
		.sg_list = sges,
		.num_sge = count,
		.send_flags = IBV_SEND_SIGNALED,
	};
}

void send_wr_aim(struct ibv_send_wr *wr, uint64_t addr, uint32_t rkey)
{
	if (opcode_is_atomic(wr->opcode)) {
		/* regions begin anywhere, words do not */
		wr->wr.atomic.remote_addr = (addr + 7) & ~7ULL;
		wr->wr.atomic.rkey = rkey;
	} else {
		wr->wr.rdma.remote_addr = addr;
		wr->wr.rdma.rkey = rkey;
	}
}

int try_post_send(struct endpoint *ep, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	/* what was written before is there before */
	if (!proxy_is(ep->qp->context))
		proxy_sync();
	return ibv_post_send(ep->qp, wr, &bad);
}

void post_send(struct endpoint *ep, struct ibv_send_wr *wr)
{
	int error = try_post_send(ep, wr);

	if (error)
		bail("%s: posting %s fails: %s", ep->dev->name,
		     opcode_name(wr->opcode), strerror(error));
}

int try_post_recv(struct endpoint *ep, uint64_t id, struct ibv_sge *sges,
		  int count)
{
	struct ibv_recv_wr wr = {
		.wr_id = id,
		.sg_list = sges,
		.num_sge = count,
	};
	struct ibv_recv_wr *bad;

	return ibv_post_recv(ep->qp, &wr, &bad);
}

void post_recv(struct endpoint *ep, uint64_t id, struct ibv_sge *sges,
	       int count)
{
	int error = try_post_recv(ep, id, sges, count);

	if (error)
		bail("%s: posting a receive fails: %s", ep->dev->name,
		     strerror(error));
}

static int poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int count = ibv_poll_cq(cq, 1, wc);

	if (count < 0)
		bail("ibv_poll_cq fails: %d", count);
	if (count && !proxy_is(cq->context))
		proxy_sync();
	return count;
}

bool cq_wait(struct ibv_cq *cq, struct ibv_wc *wc)
{
	uint64_t end = deadline();
	unsigned int round = 0;

	while (!poll_one(cq, wc)) {
		if (round % 64 == 63 && now_ms() > end)
			return check(false, "no completion came");
		relax(round++);
	}
	return true;
}

bool cq_stays_empty(struct ibv_cq *cq, unsigned int ms)
{
	uint64_t end = now_ms() + ms;
	struct ibv_wc wc;

	do {
		if (poll_one(cq, &wc))
			return check(false,
				     "unexpected completion: wr_id %" PRIu64
				     ", %s",
				     wc.wr_id, ibv_wc_status_str(wc.status));
		relax(100);
	} while (now_ms() < end);
	return true;
}

static bool is_expected(const struct ibv_wc *wc, uint64_t id,
			enum ibv_wc_status status)
{
	return check(wc->wr_id == id && wc->status == status,
		     "completion of wr_id %" PRIu64
		     " is '%s' (vendor 0x%x), expected %" PRIu64 " '%s'",
		     wc->wr_id, ibv_wc_status_str(wc->status), wc->vendor_err,
		     id, ibv_wc_status_str(status));
}

bool cq_expect(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	return check(cq_wait(cq, &wc), "wr_id %" PRIu64 " should complete",
		     id) &&
	       is_expected(&wc, id, status);
}

bool cq_success(struct ibv_cq *cq, uint64_t id, struct ibv_wc *wc)
{
	return check(cq_wait(cq, wc), "wr_id %" PRIu64 " should complete",
		     id) &&
	       is_expected(wc, id, IBV_WC_SUCCESS);
}

void post_empty_send(struct endpoint *ep, uint64_t id, int flags)
{
	struct ibv_send_wr wr = send_wr(id, IBV_WR_SEND, NULL, 0);

	wr.send_flags = flags;
	post_send(ep, &wr);
}

bool exchange_empty(struct endpoint *from, struct endpoint *to, uint64_t id)
{
	post_recv(to, id, NULL, 0);
	post_empty_send(from, id, IBV_SEND_SIGNALED);
	return cq_expect(from->send_cq, id, IBV_WC_SUCCESS) &&
	       cq_expect(to->recv_cq, id, IBV_WC_SUCCESS);
}

bool cq_expect_range(struct ibv_cq *cq, uint64_t from, uint64_t to,
		     enum ibv_wc_status status)
{
	uint64_t id;

	for (id = from; id < to; id++)
		if (!cq_expect(cq, id, status))
			return false;
	return true;
}
