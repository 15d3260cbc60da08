// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The direct path, for what most requests are: a WRITE, READ or atomic of one piece
 * of memory, with a key whose window is there, posted alone.
 *
 * It decides as direct.c does, but in one function from ibv_post_send() to the
 * completion: what is known when a function is compiled costs nothing when it is
 * executed, nor does a call that there is none of. In doubt it does nothing, and
 * the steps of direct.c find out what it is.
 *
 * A program with one thread needs no locks: nothing of its own is called here that
 * could begin a second one. So there is no call at all for its small requests.
 */
#include "copy.h"
#include "direct.h"
#include "execute.h"
#include "inline.h"
#include "mic.h"
#include "wqe.h"

#define ALWAYS_INLINE MIC_ALWAYS_INLINE
#define NEVER_INLINE __attribute__((noinline))

/* NULL also if the kernel has refused a window: then it has no rights, nor a state. */
static ALWAYS_INLINE char *get_remote(const struct mic_window *window,
				      uint64_t addr, uint64_t length,
				      uint32_t right)
{
	const uint64_t off = addr - window->start;

	if (length > window->length || off > window->length - length ||
	    !(window->access & right))
		return NULL;
	return window->addr + off;
}

/* Where the key is looked for first, or one of another key. */
static ALWAYS_INLINE const struct mic_window *get_window(
	const struct mic_qp *qp, uint32_t rkey)
{
	const struct mic_direct_entry *entry = mic_direct_place(&qp->direct,
								rkey);

	return entry->rkey == rkey ? &entry->window : NULL;
}

static ALWAYS_INLINE char *get_local(struct mic_qp *qp,
				     const struct ibv_sge *sge, uint32_t flags,
				     bool result)
{
	const int access = result ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (flags & MIC_WQE_INLINE)
		return result || sge->length > qp->max_inline ?
			       NULL :
			       (char *)(uintptr_t)sge->addr;
	if (!mic_key_is(qp->direct.key, sge->lkey))
		qp->direct.key = mic_keys_find(qp->direct.keys, sge->lkey);
	return mic_key_resolve(qp->direct.key, qp->direct.pd_handle, access,
			       sge->addr, sge->length);
}

/* Is it posted in the usual way? */
static ALWAYS_INLINE bool is_simple(const struct mic_qp *qp,
				    const struct ibv_send_wr *wr,
				    uint32_t flags)
{
	return qp->direct.simple && wr->num_sge == 1 &&
	       !(flags & ~MIC_WQE_FLAGS_ALL);
}

/*
 * Is there room for a completion? Who has one thread also finds its position in the
 * kernel's ring, as mic_own_add() does, but by what it has taken, and only as long as
 * the ring has nothing new. It may do so before the request: the kernel is done with
 * those of this queue pair.
 */
static ALWAYS_INLINE bool has_room(struct mic_cq *cq, bool alone,
				   uint32_t *position)
{
	const struct mic_cq_ring *ring = &cq->ring;
	struct mic_own *own = &cq->own;
	uint32_t waiting, count;

	if (!alone)
		return mic_own_has_room(own);
	waiting = mic_own_waiting(own, ring, ring->consumer);
	*position = ring->consumer + waiting;
	count = mic_own_count(own);
	return own->plain && !mic_cq_peek(ring, *position) &&
	       waiting + count < ring->entries &&
	       count < atomic_load_explicit(&own->room, memory_order_relaxed);
}

static ALWAYS_INLINE void add_completion(struct mic_qp *qp, uint64_t wr_id,
					 uint8_t opcode, uint32_t bytes,
					 bool alone, uint32_t position)
{
	struct mic_cq *cq = to_mcq(qp->vqp.qp.send_cq);
	struct mic_own *own = &cq->own;
	uint32_t index;

	if (!alone) {
		mic_own_add(cq, qp, wr_id, opcode, bytes);
		return;
	}
	index = atomic_load_explicit(&own->producer, memory_order_relaxed);
	mic_own_fill(&own->slots[index & own->mask], qp->vqp.qp.qp_num, wr_id,
		     opcode, bytes, position);
	atomic_store_explicit(&own->producer, index + 1, memory_order_release);
}

/* @small: no more bytes than are copied without a call */
static ALWAYS_INLINE bool copy(struct mic_qp *qp, const struct ibv_send_wr *wr,
			       bool read, bool alone, bool small)
{
	const uint32_t flags = wr->send_flags | qp->always_flags;
	const struct mic_window *window;
	uint32_t length, position = 0;
	char *local, *remote;

	if (!is_simple(qp, wr, flags))
		return false;
	length = wr->sg_list->length;
	if (!length ||
	    length > (small ? MIC_COPY_ORDERED : MIC_DIRECT_MAX_BYTES))
		return false;
	window = get_window(qp, wr->wr.rdma.rkey);
	if (!window)
		return false;
	remote = get_remote(window, wr->wr.rdma.remote_addr, length,
			    read ? IBV_ACCESS_REMOTE_READ :
				   IBV_ACCESS_REMOTE_WRITE);
	/*
	 * What is read of a window that was revoked must not get anywhere, and nothing is
	 * written to one: who knows of an error is told that his requests are flushed.
	 */
	if (!remote || mic_window_state(window))
		return false;
	local = get_local(qp, wr->sg_list, flags, read);
	if (!local ||
	    (!small && mic_window_overlaps(window, wr->wr.rdma.remote_addr,
					   length, local, length)))
		return false;
	if (flags & MIC_WQE_SIGNALED &&
	    !has_room(to_mcq(qp->vqp.qp.send_cq), alone, &position))
		return false;
	mic_execute_begin(read);
	mic_copy(read ? local : remote, read ? remote : local, length);
	if (!mic_execute_reached(window))
		return false;
	mic_execute_count(qp, read ? MIC_DIRECT_READS : MIC_DIRECT_WRITES,
			  length);
	if (flags & MIC_WQE_SIGNALED)
		add_completion(qp, wr->wr_id,
			       read ? MIC_WC_RDMA_READ : MIC_WC_RDMA_WRITE,
			       length, alone, position);
	return true;
}

static ALWAYS_INLINE bool add_or_swap(struct mic_qp *qp,
				      const struct ibv_send_wr *wr, bool add,
				      bool alone)
{
	const uint32_t flags = wr->send_flags | qp->always_flags;
	uint64_t old = wr->wr.atomic.compare_add;
	const struct mic_window *window;
	uint32_t position = 0;
	char *local, *remote;

	if (!is_simple(qp, wr, flags) || wr->sg_list->length != MIC_WORD_SIZE)
		return false;
	window = get_window(qp, wr->wr.atomic.rkey);
	if (!window)
		return false;
	remote = get_remote(window, wr->wr.atomic.remote_addr, MIC_WORD_SIZE,
			    IBV_ACCESS_REMOTE_ATOMIC);
	if (!remote || mic_window_state(window) ||
	    wr->wr.atomic.remote_addr % MIC_WORD_SIZE ||
	    (uintptr_t)remote % MIC_WORD_SIZE)
		return false;
	local = get_local(qp, wr->sg_list, flags, true);
	if (!local)
		return false;
	if (flags & MIC_WQE_SIGNALED &&
	    !has_room(to_mcq(qp->vqp.qp.send_cq), alone, &position))
		return false;
	mic_execute_begin_atomic();
	if (add)
		old = __atomic_fetch_add((uint64_t *)remote, old,
					 __ATOMIC_SEQ_CST);
	else
		__atomic_compare_exchange_n((uint64_t *)remote, &old,
					    wr->wr.atomic.swap, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	if (!mic_execute_reached(window))
		return false;
	mic_copy_u64(local, (const char *)&old);
	mic_execute_count(qp, MIC_DIRECT_ATOMICS, MIC_WORD_SIZE);
	if (flags & MIC_WQE_SIGNALED)
		add_completion(qp, wr->wr_id,
			       add ? MIC_WC_FETCH_ADD : MIC_WC_COMP_SWAP,
			       MIC_WORD_SIZE, alone, position);
	return true;
}

static ALWAYS_INLINE bool execute(struct mic_qp *qp,
				  const struct ibv_send_wr *wr,
				  enum ibv_wr_opcode opcode, bool alone,
				  bool small)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
		return copy(qp, wr, false, alone, small);
	case IBV_WR_RDMA_READ:
		return copy(qp, wr, true, alone, small);
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return add_or_swap(qp, wr, true, alone);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return add_or_swap(qp, wr, false, alone);
	default:
		return false;
	}
}

/* One of a list. True if it is complete. The send queue's lock is held. */
bool mic_simple_execute(struct mic_qp *qp, const struct ibv_send_wr *wr)
{
	return execute(qp, wr, wr->opcode, false, false);
}

/* One of any size, or where others may post and poll. */
static NEVER_INLINE int post_locked(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
				    struct ibv_send_wr **bad_wr)
{
	struct mic_qp *qp = to_mqp(ibqp);
	bool done;

	mic_lock(&qp->sq.lock);
	done = mic_wq_idle(&qp->sq) && mic_simple_execute(qp, wr);
	mic_unlock(&qp->sq.lock);
	return done ? 0 : mic_post_list(ibqp, wr, bad_wr);
}

/* A small one, if it is one, and the program has one thread. */
static ALWAYS_INLINE int post(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
			      struct ibv_send_wr **bad_wr,
			      enum ibv_wr_opcode opcode)
{
	struct mic_qp *qp = to_mqp(ibqp);

	if (wr->next || !mic_may_send(ibqp))
		return mic_post_list(ibqp, wr, bad_wr);
	if (!mic_one_thread() || !mic_wq_idle(&qp->sq) ||
	    !execute(qp, wr, opcode, true, true))
		return post_locked(ibqp, wr, bad_wr);
	return 0;
}

static NEVER_INLINE int post_read(struct ibv_qp *qp, struct ibv_send_wr *wr,
				  struct ibv_send_wr **bad_wr)
{
	return post(qp, wr, bad_wr, IBV_WR_RDMA_READ);
}

static NEVER_INLINE int post_add(struct ibv_qp *qp, struct ibv_send_wr *wr,
				 struct ibv_send_wr **bad_wr)
{
	return post(qp, wr, bad_wr, IBV_WR_ATOMIC_FETCH_AND_ADD);
}

static NEVER_INLINE int post_swap(struct ibv_qp *qp, struct ibv_send_wr *wr,
				  struct ibv_send_wr **bad_wr)
{
	return post(qp, wr, bad_wr, IBV_WR_ATOMIC_CMP_AND_SWP);
}

/* Each of these calls is the last thing to do, that is a jump. */
int mic_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		  struct ibv_send_wr **bad_wr)
{
	if (!wr)
		return mic_post_list(qp, wr, bad_wr);
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		return post(qp, wr, bad_wr, IBV_WR_RDMA_WRITE);
	case IBV_WR_RDMA_READ:
		return post_read(qp, wr, bad_wr);
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return post_add(qp, wr, bad_wr);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return post_swap(qp, wr, bad_wr);
	default:
		return mic_post_list(qp, wr, bad_wr);
	}
}
