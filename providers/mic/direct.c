// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The direct path: executing a request.
 *
 * Each step asks "would the kernel do it, and now?" and gives up at the first
 * doubt. Nothing was changed then, so the kernel can do the request anew. The
 * one exception is a window that is revoked in the middle of a copy: part of
 * the bytes may have arrived, and the kernel copies all of them or fails.
 */
#include "copy.h"
#include "direct.h"
#include "execute.h"
#include "mic.h"
#include "wqe.h"

/* The requests that have a remote address, and the right each needs. */
static uint32_t needed_right(uint8_t opcode)
{
	switch (opcode) {
	case MIC_WR_RDMA_WRITE:
	case MIC_WR_ATOMIC_WRITE:
		return IBV_ACCESS_REMOTE_WRITE;
	case MIC_WR_RDMA_READ:
		return IBV_ACCESS_REMOTE_READ;
	case MIC_WR_ATOMIC_CMP_AND_SWP:
	case MIC_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_ACCESS_REMOTE_ATOMIC;
	default:
		return 0;
	}
}

/* Does it change local memory? */
static bool has_result(uint8_t opcode)
{
	return opcode == MIC_WR_RDMA_READ ||
	       opcode == MIC_WR_ATOMIC_CMP_AND_SWP ||
	       opcode == MIC_WR_ATOMIC_FETCH_AND_ADD;
}

static bool add_local(struct mic_qp *qp, const struct mic_direct_req *req,
		      const struct ibv_sge *sge, struct mic_pieces *local)
{
	char *addr = (char *)(uintptr_t)sge->addr;

	if (!(req->flags & MIC_WQE_INLINE)) {
		addr = mic_key_resolve(
			mic_keys_find(qp->direct.keys, sge->lkey),
			qp->direct.pd_handle,
			has_result(req->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0,
			sge->addr, sge->length);
		if (!addr)
			return false;
	}
	local->addr[local->n] = addr;
	local->len[local->n++] = sge->length;
	local->bytes += sge->length;
	return true;
}

/* Find the local memory, and see that a request of its size may be posted. */
static bool get_local(struct mic_qp *qp, const struct mic_direct_req *req,
		      struct mic_pieces *local)
{
	const bool inl = req->flags & MIC_WQE_INLINE;
	uint32_t i;

	if (req->nsge > MIC_DIRECT_MAX_SGE ||
	    (!inl && req->nsge > qp->sq.max_sge) ||
	    (inl && has_result(req->opcode)))
		return false;
	local->n = 0;
	local->bytes = 0;
	for (i = 0; i < req->nsge; i++)
		if (req->sge[i].length &&
		    !add_local(qp, req, &req->sge[i], local))
			return false;
	return !inl || local->bytes <= qp->max_inline;
}

static bool is_atomic(uint8_t opcode)
{
	return opcode == MIC_WR_ATOMIC_CMP_AND_SWP ||
	       opcode == MIC_WR_ATOMIC_FETCH_AND_ADD ||
	       opcode == MIC_WR_ATOMIC_WRITE;
}

/* Where the request's remote memory is, or NULL. */
static char *get_remote(const struct mic_window *window,
			const struct mic_direct_req *req, uint64_t bytes)
{
	uint64_t off = req->remote_addr - window->start;
	char *addr;

	if (bytes > window->length || off > window->length - bytes ||
	    bytes > MIC_DIRECT_MAX_BYTES)
		return NULL;
	addr = window->addr + off;
	if (is_atomic(req->opcode) &&
	    (bytes != MIC_WORD_SIZE || req->remote_addr % MIC_WORD_SIZE ||
	     (uintptr_t)addr % MIC_WORD_SIZE))
		return NULL;
	return addr;
}

/*
 * Is what is copied, in part, where it is copied to? Little may be; of more the kernel
 * makes the best.
 */
static bool overlaps(const struct mic_window *window,
		     const struct mic_direct_req *req,
		     const struct mic_pieces *local)
{
	uint32_t i;

	if (local->bytes <= MIC_COPY_ORDERED)
		return false;
	for (i = 0; i < local->n; i++)
		if (mic_window_overlaps(window, req->remote_addr, local->bytes,
					local->addr[i], local->len[i]))
			return true;
	return false;
}

/* The CPU's own atomic instructions, as the kernel uses them. */
static uint64_t execute_atomic(const struct mic_direct_req *req, char *remote)
{
	uint64_t *word = (uint64_t *)remote;
	uint64_t old = req->compare_add;

	if (req->opcode == MIC_WR_ATOMIC_FETCH_AND_ADD)
		return __atomic_fetch_add(word, old, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(word, &old, req->swap, false,
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return old;
}

static void execute_atomic_write(const struct mic_pieces *local, char *remote)
{
	uint64_t word;

	mic_gather((char *)&word, local);
	__atomic_store_n((uint64_t *)remote, word, __ATOMIC_RELEASE);
}

/*
 * Results of atomics are stored only when the operation has taken place. One
 * that met the scratch page has not, and is the kernel's.
 */
static bool transfer(const struct mic_direct_req *req,
		     const struct mic_window *window,
		     const struct mic_pieces *local, char *remote)
{
	uint64_t old;

	switch (req->opcode) {
	case MIC_WR_RDMA_WRITE:
		mic_gather(remote, local);
		return mic_execute_reached(window);
	case MIC_WR_RDMA_READ:
		mic_scatter(local, remote);
		return mic_execute_reached(window);
	case MIC_WR_ATOMIC_WRITE:
		execute_atomic_write(local, remote);
		return mic_execute_reached(window);
	default:
		old = execute_atomic(req, remote);
		if (!mic_execute_reached(window))
			return false;
		mic_scatter(local, (const char *)&old);
		return true;
	}
}

static uint8_t wc_opcode(uint8_t opcode)
{
	switch (opcode) {
	case MIC_WR_RDMA_READ:
		return MIC_WC_RDMA_READ;
	case MIC_WR_ATOMIC_CMP_AND_SWP:
		return MIC_WC_COMP_SWAP;
	case MIC_WR_ATOMIC_FETCH_AND_ADD:
		return MIC_WC_FETCH_ADD;
	case MIC_WR_ATOMIC_WRITE:
		return MIC_WC_ATOMIC_WRITE;
	default:
		return MIC_WC_RDMA_WRITE;
	}
}

static enum mic_direct_count direct_count(uint8_t opcode)
{
	switch (opcode) {
	case MIC_WR_RDMA_WRITE:
		return MIC_DIRECT_WRITES;
	case MIC_WR_RDMA_READ:
		return MIC_DIRECT_READS;
	default:
		return MIC_DIRECT_ATOMICS;
	}
}

static bool has_room(struct mic_cq *cq)
{
	return mic_own_has_room(&cq->own) ||
	       (mic_own_create(cq) && mic_own_has_room(&cq->own));
}

/* A coin for tests: who executes the next request? */
static bool choose(struct mic_direct *direct)
{
	uint32_t x = direct->random;

	if (direct->path != MICDV_PATH_RANDOM)
		return true;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	direct->random = x;
	return x & 1;
}

bool mic_direct_execute(struct mic_qp *qp, const struct mic_direct_req *req)
{
	const bool signaled = (req->flags | qp->always_flags) &
			      MIC_WQE_SIGNALED;
	const uint32_t right = needed_right(req->opcode);
	struct mic_cq *cq = to_mcq(qp->vqp.qp.send_cq);
	const struct mic_window *window;
	struct mic_pieces local;
	char *remote;

	if (!right || !(qp->send_ops >> req->opcode & 1) ||
	    (req->flags & ~MIC_WQE_FLAGS_ALL) || !choose(&qp->direct))
		return false;
	if (!get_local(qp, req, &local) || (signaled && !has_room(cq)))
		return false;
	/* nobody looks at the key then (IBA 9.7.4.1.5), so it may be none */
	if (!local.bytes)
		return false;
	window = mic_direct_window(qp, req->rkey);
	if (!window || !(window->access & right))
		return false;
	remote = get_remote(window, req, local.bytes);
	if (!remote || overlaps(window, req, &local))
		return false;
	if (is_atomic(req->opcode))
		mic_execute_begin_atomic();
	else
		mic_execute_begin(req->opcode == MIC_WR_RDMA_READ);
	if (!transfer(req, window, &local, remote))
		return false;
	mic_execute_count(qp, direct_count(req->opcode), local.bytes);
	if (signaled)
		mic_own_add(cq, qp, req->wr_id, wc_opcode(req->opcode),
			    local.bytes);
	return true;
}

/* A request as it is given to ibv_post_send(). */
bool mic_direct_post(struct mic_qp *qp, const struct ibv_send_wr *wr)
{
	struct mic_direct_req req = {
		.wr_id = wr->wr_id,
		.sge = wr->sg_list,
		.nsge = wr->num_sge,
		.flags = wr->send_flags,
	};

	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		req.remote_addr = wr->wr.atomic.remote_addr;
		req.rkey = wr->wr.atomic.rkey;
		req.compare_add = wr->wr.atomic.compare_add;
		req.swap = wr->wr.atomic.swap;
	} else if ((unsigned int)wr->opcode <= IBV_WR_ATOMIC_WRITE) {
		req.remote_addr = wr->wr.rdma.remote_addr;
		req.rkey = wr->wr.rdma.rkey;
	} else {
		return false;
	}
	req.opcode = wr->opcode;
	return mic_direct_execute(qp, &req);
}

/* A request as ibv_wr_start() and its like have built it. */
bool mic_direct_wqe(struct mic_qp *qp, const struct mic_send_wqe *wqe)
{
	const bool inl = wqe->flags & MIC_WQE_INLINE;
	const struct ibv_sge data = {
		.addr = (uintptr_t)(wqe + 1),
		.length = wqe->inline_len,
	};
	struct mic_direct_req req = {
		.wr_id = wqe->wr_id,
		.sge = inl ? &data : (const struct ibv_sge *)(wqe + 1),
		.nsge = inl ? 1 : wqe->num_sge,
		.flags = wqe->flags,
		.opcode = wqe->opcode,
	};

	if (wqe->opcode == MIC_WR_ATOMIC_CMP_AND_SWP ||
	    wqe->opcode == MIC_WR_ATOMIC_FETCH_AND_ADD) {
		req.remote_addr = wqe->atomic.remote_addr;
		req.rkey = wqe->atomic.rkey;
		req.compare_add = wqe->atomic.compare_add;
		req.swap = wqe->atomic.swap;
	} else {
		req.remote_addr = wqe->rdma.remote_addr;
		req.rkey = wqe->rdma.rkey;
	}
	return mic_direct_execute(qp, &req);
}
