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
#include "mic.h"
#include "wqe.h"

#define WORD_SIZE 8

/* What is constant in a call saves instructions that are executed each time. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

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

/* The local memory of a request. */
struct local {
	char *addr[MIC_DIRECT_MAX_SGE];
	uint32_t len[MIC_DIRECT_MAX_SGE];
	uint32_t n;
	uint64_t bytes;
};

static bool add_local(struct mic_qp *qp, const struct mic_direct_req *req,
		      const struct ibv_sge *sge, struct local *local)
{
	char *addr = (char *)(uintptr_t)sge->addr;

	if (!(req->flags & MIC_WQE_INLINE)) {
		addr = mic_keys_resolve(
			qp->direct.keys, sge->lkey, qp->direct.pd_handle,
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
		      struct local *local)
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

	/* what 0 bytes need is another question */
	if (!bytes || bytes > window->length || off > window->length - bytes ||
	    bytes > MIC_DIRECT_MAX_BYTES)
		return NULL;
	addr = window->addr + off;
	if (is_atomic(req->opcode) &&
	    (bytes != WORD_SIZE || req->remote_addr % WORD_SIZE ||
	     (uintptr_t)addr % WORD_SIZE))
		return NULL;
	return addr;
}

static void gather(char *to, const struct local *local)
{
	uint32_t i;

	for (i = 0; i < local->n; i++) {
		mic_copy(to, local->addr[i], local->len[i]);
		to += local->len[i];
	}
}

static void scatter(const struct local *local, const char *from)
{
	uint32_t i;

	for (i = 0; i < local->n; i++) {
		mic_copy(local->addr[i], from, local->len[i]);
		from += local->len[i];
	}
}

/*
 * What this process wrote before is there before this request is. That includes
 * what it executed (IBA table 79: a READ comes after the WRITEs before it), and
 * a CPU's loads may overtake its stores. Atomic instructions may not.
 */
static inline void begin(bool read)
{
	if (read)
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_thread_fence(memory_order_release);
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

static void execute_atomic_write(const struct local *local, char *remote)
{
	uint64_t word;

	gather((char *)&word, local);
	__atomic_store_n((uint64_t *)remote, word, __ATOMIC_RELEASE);
}

/*
 * Did the copy reach the peer's memory, all of it? The accesses come before
 * the look at the state: one that met the scratch page was a fault, and what
 * follows a fault sees what the kernel did in it.
 */
static bool reached_peer(const struct mic_window *window)
{
#if defined(__x86_64__) || defined(__i386__)
	atomic_signal_fence(memory_order_seq_cst);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
	return !(mic_window_state(window) & MIC_WINDOW_SCRATCH);
}

/*
 * Results of atomics are stored only when the operation has taken place. One
 * that met the scratch page has not, and is the kernel's.
 */
static bool transfer(const struct mic_direct_req *req,
		     const struct mic_window *window, const struct local *local,
		     char *remote)
{
	uint64_t old;

	switch (req->opcode) {
	case MIC_WR_RDMA_WRITE:
		gather(remote, local);
		return reached_peer(window);
	case MIC_WR_RDMA_READ:
		scatter(local, remote);
		return reached_peer(window);
	case MIC_WR_ATOMIC_WRITE:
		execute_atomic_write(local, remote);
		return reached_peer(window);
	default:
		old = execute_atomic(req, remote);
		if (!reached_peer(window))
			return false;
		scatter(local, (const char *)&old);
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

/* For rdma-statistic(8); the kernel only reads. */
static inline void count(const struct mic_qp *qp, enum mic_direct_count what,
			 uint64_t bytes)
{
	qp->sq.ctl->direct[what]++;
	qp->sq.ctl->direct[what + 1] += bytes;
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
	struct local local;
	char *remote;

	if (!right || !(qp->send_ops >> req->opcode & 1) ||
	    (req->flags & ~MIC_WQE_FLAGS_ALL) || !choose(&qp->direct))
		return false;
	if (!get_local(qp, req, &local) || (signaled && !has_room(cq)))
		return false;
	window = mic_direct_window(qp, req->rkey);
	if (!window || !(window->access & right))
		return false;
	remote = get_remote(window, req, local.bytes);
	if (!remote)
		return false;
	begin(req->opcode == MIC_WR_RDMA_READ);
	if (!transfer(req, window, &local, remote))
		return false;
	count(qp, direct_count(req->opcode), local.bytes);
	if (signaled)
		mic_own_add(cq, qp, req->wr_id, wc_opcode(req->opcode),
			    local.bytes);
	return true;
}

/*
 * The same for what most requests are: a WRITE, READ or atomic of one piece of
 * memory, with a key whose window is there. False if it is something else; the
 * steps above then find out what.
 */
static inline char *simple_remote(const struct mic_qp *qp, uint32_t rkey,
				  uint64_t addr, uint64_t length,
				  uint32_t right,
				  const struct mic_window **found)
{
	const struct mic_direct_entry *entry = mic_direct_place(&qp->direct,
								rkey);
	const struct mic_window *window = &entry->window;
	const uint64_t off = addr - window->start;

	if (entry->rkey != rkey || length > window->length ||
	    off > window->length - length || !(window->access & right) ||
	    mic_window_state(window))
		return NULL;
	*found = window;
	return window->addr + off;
}

static inline char *simple_local(const struct mic_qp *qp,
				 const struct ibv_sge *sge, uint32_t flags,
				 bool result)
{
	if (flags & MIC_WQE_INLINE)
		return result || sge->length > qp->max_inline ?
			       NULL :
			       (char *)(uintptr_t)sge->addr;
	return mic_keys_resolve(qp->direct.keys, sge->lkey,
				qp->direct.pd_handle,
				result ? IBV_ACCESS_LOCAL_WRITE : 0, sge->addr,
				sge->length);
}

/* Is it posted in the usual way, and is there room for its completion? */
static inline bool is_simple(struct mic_qp *qp, const struct ibv_send_wr *wr,
			     uint32_t flags)
{
	return wr->num_sge == 1 && qp->direct.simple &&
	       !(flags & ~MIC_WQE_FLAGS_ALL) &&
	       (!(flags & MIC_WQE_SIGNALED) ||
		mic_own_has_room(&to_mcq(qp->vqp.qp.send_cq)->own));
}

static inline void complete_simple(struct mic_qp *qp,
				   const struct ibv_send_wr *wr, uint32_t flags,
				   enum mic_direct_count what, uint8_t opcode,
				   uint32_t bytes)
{
	count(qp, what, bytes);
	if (flags & MIC_WQE_SIGNALED)
		mic_own_add(to_mcq(qp->vqp.qp.send_cq), qp, wr->wr_id, opcode,
			    bytes);
}

static ALWAYS_INLINE bool copy_simple(struct mic_qp *qp,
				      const struct ibv_send_wr *wr, bool read)
{
	const uint32_t flags = wr->send_flags | qp->always_flags;
	const struct mic_window *window;
	char *local, *remote;
	uint32_t length;

	if (!is_simple(qp, wr, flags))
		return false;
	length = wr->sg_list->length;
	if (!length || length > MIC_DIRECT_MAX_BYTES)
		return false;
	remote = simple_remote(
		qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, length,
		read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE,
		&window);
	if (!remote)
		return false;
	local = simple_local(qp, wr->sg_list, flags, read);
	if (!local)
		return false;
	begin(read);
	mic_copy(read ? local : remote, read ? remote : local, length);
	if (!reached_peer(window))
		return false;
	complete_simple(qp, wr, flags,
			read ? MIC_DIRECT_READS : MIC_DIRECT_WRITES,
			read ? MIC_WC_RDMA_READ : MIC_WC_RDMA_WRITE, length);
	return true;
}

static ALWAYS_INLINE bool add_or_swap_simple(struct mic_qp *qp,
					     const struct ibv_send_wr *wr,
					     bool add)
{
	const uint32_t flags = wr->send_flags | qp->always_flags;
	uint64_t old = wr->wr.atomic.compare_add;
	const struct mic_window *window;
	char *local, *remote;

	if (!is_simple(qp, wr, flags) || wr->sg_list->length != WORD_SIZE)
		return false;
	remote = simple_remote(qp, wr->wr.atomic.rkey,
			       wr->wr.atomic.remote_addr, WORD_SIZE,
			       IBV_ACCESS_REMOTE_ATOMIC, &window);
	if (!remote || wr->wr.atomic.remote_addr % WORD_SIZE ||
	    (uintptr_t)remote % WORD_SIZE)
		return false;
	local = simple_local(qp, wr->sg_list, flags, true);
	if (!local)
		return false;
	if (add)
		old = __atomic_fetch_add((uint64_t *)remote, old,
					 __ATOMIC_SEQ_CST);
	else
		__atomic_compare_exchange_n((uint64_t *)remote, &old,
					    wr->wr.atomic.swap, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	if (!reached_peer(window))
		return false;
	mic_copy_u64(local, (const char *)&old);
	complete_simple(qp, wr, flags, MIC_DIRECT_ATOMICS,
			add ? MIC_WC_FETCH_ADD : MIC_WC_COMP_SWAP, WORD_SIZE);
	return true;
}

static inline bool execute_simple(struct mic_qp *qp,
				  const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		return copy_simple(qp, wr, false);
	case IBV_WR_RDMA_READ:
		return copy_simple(qp, wr, true);
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return add_or_swap_simple(qp, wr, true);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return add_or_swap_simple(qp, wr, false);
	default:
		return false;
	}
}

static __attribute__((noinline)) bool execute_any(struct mic_qp *qp,
						  const struct ibv_send_wr *wr)
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

/* A request as it is given to ibv_post_send(). */
bool mic_direct_post(struct mic_qp *qp, const struct ibv_send_wr *wr)
{
	return execute_simple(qp, wr) || execute_any(qp, wr);
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
