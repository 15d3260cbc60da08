// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * A connection's verbs objects: one RC queue pair for messages, which rdma_cm
 * connects, and one for RMAs beside it, so that neither waits for the other.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "direct.h"
#include "internal.h"
#include "region.h"

enum {
	MAX_INLINE = 64,
	SLOW_MS = 100,
	PROBE_MS = 1000,
	ANSWER_MS = 5000, /* a peer that does not answer is gone */
	ALIVE_MS = 10000, /* so is one that nothing else is asked of */
	FLUSH_MS = 1000,
	ACK_RETRIES = 7
};

static const struct timespec nap = { .tv_nsec = 50000 };

void scif_relax(unsigned int round)
{
	if (round < SCIF_SPIN_ROUNDS)
		scif_pause();
	else if (round < SCIF_YIELD_ROUNDS)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

static void *pages(size_t length)
{
	void *mem = mmap(NULL, length, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return mem == MAP_FAILED ? NULL : mem;
}

/* Who may lock nothing at all hears EPERM from the kernel: no other limit than others. */
struct ibv_mr *scif_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			   int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, addr, length, access);

	if (!mr && errno == EPERM)
		errno = ENOMEM;
	return mr;
}

/*
 * In a protection domain of this connection: a peer may know, or guess, what keys the
 * others have. What is only kept for copies that may come again makes room.
 */
struct ibv_mr *scif_link_register(struct scif_link *link, void *addr,
				  size_t length, int access)
{
	struct ibv_mr *mr = scif_reg_mr(link->pd, addr, length, access);

	if (!mr && errno == ENOMEM && scif_cache_empty(link->dev))
		mr = scif_reg_mr(link->pd, addr, length, access);
	return mr;
}

static int open_memory(struct scif_link *link)
{
	link->shared = pages(sizeof(*link->shared));
	link->local = pages(sizeof(*link->local));
	if (!link->shared || !link->local)
		return -1;
	link->shared_mr = scif_link_register(
		link, link->shared, sizeof(*link->shared),
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ);
	if (!link->shared_mr)
		return -1;
	link->local_mr = scif_link_register(link, link->local,
					    sizeof(*link->local),
					    IBV_ACCESS_LOCAL_WRITE);
	return link->local_mr ? 0 : -1;
}

static int open_queues(struct scif_link *link, void *owner)
{
	struct scif_device *dev = link->dev;

	link->tx_cq = ibv_create_cq(dev->ctx, SCIF_TX_DEPTH, NULL, NULL, 0);
	if (!link->tx_cq)
		return -1;
	link->rx_cq = ibv_create_cq(dev->ctx, SCIF_RX_DEPTH, owner,
				    dev->channel, 0);
	if (!link->rx_cq)
		return -1;
	link->rma_cq = ibv_create_cq(dev->ctx, SCIF_RMA_DEPTH + 1, owner,
				     dev->channel, 0);
	if (!link->rma_cq)
		return -1;
	return ibv_req_notify_cq(link->rx_cq, 0) ? -1 : 0;
}

static int open_pairs(struct scif_link *link)
{
	struct ibv_qp_init_attr init = {
		.send_cq = link->tx_cq,
		.recv_cq = link->rx_cq,
		.cap = { .max_send_wr = SCIF_TX_DEPTH,
			 .max_recv_wr = SCIF_RX_DEPTH,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = MAX_INLINE },
		.qp_type = IBV_QPT_RC,
	};
	unsigned int i;

	if (rdma_create_qp(link->id, link->pd, &init)) {
		init.cap.max_inline_data = 0;
		if (rdma_create_qp(link->id, link->pd, &init))
			return -1;
	}
	link->max_inline = init.cap.max_inline_data;
	for (i = 0; i < SCIF_RX_DEPTH; i++)
		if (scif_link_post_recv(link, i))
			return -1;
	init.send_cq = link->rma_cq;
	init.recv_cq = link->rma_cq;
	init.cap.max_send_wr = SCIF_RMA_DEPTH;
	init.cap.max_recv_wr = 1;
	init.cap.max_inline_data = 0;
	link->rma_qp = ibv_create_qp(link->pd, &init);
	link->rma_psn = scif_random() & 0xffffff;
	return link->rma_qp ? 0 : -1;
}

/* For the message pair, whose requests others wait for: has_patience(). */
static int set_timeout(struct scif_link *link)
{
	if (link->dev->ack_timeout)
		return 0;
	return rdma_set_option(link->id, RDMA_OPTION_ID,
			       RDMA_OPTION_ID_ACK_TIMEOUT,
			       &link->dev->ack_timeout,
			       sizeof(link->dev->ack_timeout));
}

/* @owner is what events of the link's queues tell. 0 or an errno. */
int scif_link_open(struct scif_link *link, struct rdma_cm_id *id, void *owner)
{
	errno = 0;
	link->id = id;
	link->dev = scif_device_get(id->verbs);
	if (!link->dev || set_timeout(link))
		return errno ? errno : ENOMEM;
	link->pd = ibv_alloc_pd(link->dev->ctx);
	if (!link->pd || open_memory(link) || open_queues(link, owner) ||
	    open_pairs(link))
		return errno ? errno : ENOMEM;
	return 0;
}

/*
 * Not if the program does not want requests to be executed by itself. The lock
 * keeps requests away, which must not be under way.
 */
void scif_link_map(struct scif_link *link)
{
	const struct scif_direct *direct = link->dev->direct;
	struct micdv_qp_attr attr = { .comp_mask = 0 };

	if (!direct || link->window || direct->query_qp(link->id->qp, &attr) ||
	    attr.path != MICDV_PATH_DIRECT)
		return;
	pthread_mutex_lock(&link->lock);
	link->window = direct->map(link->id->qp, link->peer_addr,
				   link->peer_rkey, sizeof(*link->shared),
				   PROT_READ | PROT_WRITE, NULL);
	if (link->window)
		atomic_store(&link->peer, link->window->addr);
	pthread_mutex_unlock(&link->lock);
}

/*
 * rdma_get_cm_event() modifies the queue pair of an id that the peer has just
 * answered, so it must not go meanwhile.
 */
static void close_cm_pair(struct rdma_cm_id *id)
{
	pthread_mutex_lock(&scif_process.cm_lock);
	if (id->qp)
		rdma_destroy_qp(id);
	pthread_mutex_unlock(&scif_process.cm_lock);
}

/* What was to be kept for the next copies over this connection goes first. */
static void close_domain(struct scif_link *link)
{
	scif_cache_forget(link);
	ibv_dealloc_pd(link->pd);
}

/* Works for what scif_link_open() left when it failed, too. */
void scif_link_close(struct scif_link *link)
{
	if (link->window)
		link->dev->direct->unmap(link->window);
	if (link->rma_qp)
		ibv_destroy_qp(link->rma_qp);
	if (link->id)
		close_cm_pair(link->id);
	if (link->tx_cq)
		ibv_destroy_cq(link->tx_cq);
	if (link->rx_cq)
		ibv_destroy_cq(link->rx_cq);
	if (link->rma_cq)
		ibv_destroy_cq(link->rma_cq);
	if (link->shared_mr)
		ibv_dereg_mr(link->shared_mr);
	if (link->local_mr)
		ibv_dereg_mr(link->local_mr);
	if (link->shared)
		munmap(link->shared, sizeof(*link->shared));
	if (link->local)
		munmap(link->local, sizeof(*link->local));
	if (link->pd)
		close_domain(link);
	if (link->id)
		scif_end_id(link->id);
	memset(link, 0, offsetof(struct scif_link, lock));
}

void scif_link_hello(struct scif_link *link, struct scif_hello *hello)
{
	memset(hello, 0, sizeof(*hello));
	hello->magic = SCIF_MAGIC;
	hello->protocol = SCIF_PROTOCOL;
	hello->rma_qpn = link->rma_qp->qp_num;
	hello->rma_psn = link->rma_psn;
	hello->shared_rkey = link->shared_mr->rkey;
	hello->shared_addr = (uintptr_t)link->shared;
}

/*
 * The RMA pair takes the way of the message pair, to a pair of its own. The kernel knows
 * it until the peer has ended the connection, ECONNRESET from then on. 0 or an errno.
 */
static int to_state(struct scif_link *link, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	if (rdma_init_qp_attr(link->id, &attr, &mask))
		return errno == EINVAL ? ECONNRESET : errno;
	if (mask & IBV_QP_ACCESS_FLAGS)
		attr.qp_access_flags = IBV_ACCESS_REMOTE_READ |
				       IBV_ACCESS_REMOTE_WRITE;
	if (mask & IBV_QP_DEST_QPN)
		attr.dest_qp_num = link->peer_rma_qpn;
	if (mask & IBV_QP_RQ_PSN)
		attr.rq_psn = link->peer_rma_psn;
	if (mask & IBV_QP_SQ_PSN)
		attr.sq_psn = link->rma_psn;
	/* What the peer has asked for may be hours. */
	if (mask & IBV_QP_TIMEOUT)
		attr.timeout = link->dev->ack_timeout;
	if (mask & IBV_QP_RETRY_CNT)
		attr.retry_cnt = ACK_RETRIES;
	return ibv_modify_qp(link->rma_qp, &attr, mask);
}

void scif_link_ask(struct scif_link *link)
{
	atomic_store(&link->ask, true);
	if (!atomic_exchange(&scif_process.patient, true))
		scif_process_kick();
}

/* Its kernel tells when the peer's process ends, but not when the machine does. */
static void watch_machine(struct scif_link *link, uint16_t number)
{
	const struct scif_node *node = scif_node(number);

	link->answered = scif_now_ms();
	if (!node || !node->device[0])
		scif_link_ask(link);
}

int scif_link_join(struct scif_link *link, const struct scif_hello *hello,
		   uint16_t node)
{
	int err;

	watch_machine(link, node);
	link->peer_addr = hello->shared_addr;
	link->peer_rkey = hello->shared_rkey;
	link->peer_rma_qpn = hello->rma_qpn;
	link->peer_rma_psn = hello->rma_psn & 0xffffff;
	err = to_state(link, IBV_QPS_INIT);
	if (!err)
		err = to_state(link, IBV_QPS_RTR);
	if (!err)
		err = to_state(link, IBV_QPS_RTS);
	return err;
}

/* What cannot be broken has lost its device. */
static void break_pair(struct scif_link *link, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		atomic_store(&link->gone, true);
}

void scif_link_break(struct scif_link *link, bool all)
{
	uint64_t never = 0;

	atomic_compare_exchange_strong(&link->broken, &never, scif_now_ms());
	if (link->id && link->id->qp)
		break_pair(link, link->id->qp);
	if (link->rma_qp && all)
		break_pair(link, link->rma_qp);
}

int scif_link_post_recv(struct scif_link *link, unsigned int slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&link->local->in[slot],
		.length = sizeof(struct scif_message),
		.lkey = link->local_mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = slot,
				  .sg_list = &sge,
				  .num_sge = 1 };
	struct ibv_recv_wr *bad;

	return ibv_post_recv(link->id->qp, &wr, &bad);
}

void scif_link_probe(struct ibv_qp *qp)
{
	struct ibv_send_wr wr = { .wr_id = SCIF_PROBE,
				  .opcode = IBV_WR_RDMA_WRITE };
	struct ibv_send_wr *bad;

	(void)ibv_post_send(qp, &wr, &bad); /* or there is one too much */
}

static struct scif_endpoint *endpoint_of(struct scif_link *link)
{
	return (void *)((char *)link - offsetof(struct scif_endpoint, link));
}

uint64_t scif_link_wait(struct scif_link *link, struct scif_wait *wait)
{
	uint64_t now, waited = 0;

	if (wait->round >= SCIF_YIELD_ROUNDS) {
		now = scif_now_ms();
		if (!wait->since)
			wait->since = now;
		waited = now - wait->since;
	}
	if (waited >= SLOW_MS && !wait->slow) {
		wait->slow = true;
		atomic_fetch_add(&link->slow, 1);
		scif_process_go_on(endpoint_of(link));
	}
	scif_relax(wait->round++);
	return waited;
}

/* What was done in between takes time, too: that counts from the start. */
bool scif_link_again(struct scif_link *link, struct scif_wait *wait, bool news)
{
	uint64_t waited;

	if (wait->round < SCIF_YIELD_ROUNDS)
		wait->round = SCIF_YIELD_ROUNDS;
	waited = scif_link_wait(link, wait);
	if (news)
		wait->news = waited;
	return waited - wait->news < ANSWER_MS;
}

void scif_link_waited(struct scif_link *link, struct scif_wait *wait)
{
	if (wait->slow)
		atomic_fetch_sub(&link->slow, 1);
}

/*
 * How long a request may take is for the peer to say when it connects, and may
 * be for ever. So after a while the queue pair is broken, which completes what
 * is under way, if the device is still there.
 */
static bool has_patience(struct scif_link *link, struct scif_wait *wait)
{
	uint64_t waited = scif_link_wait(link, wait);

	if (!link->dev->ack_timeout &&
	    waited >= (wait->probes + 1) * PROBE_MS) {
		wait->probes++;
		scif_link_probe(link->id->qp);
	}
	if (waited >= ANSWER_MS)
		scif_link_break(link, false);
	link->silent = waited > ANSWER_MS + FLUSH_MS ||
		       atomic_load(&link->gone);
	return !link->silent;
}

/* The completion of a write; answers of scif_link_tick() are none. */
static int poll_write(struct scif_link *link, struct ibv_wc *wc)
{
	int count = ibv_poll_cq(link->tx_cq, 1, wc);

	if (count != 1 || wc->status != IBV_WC_SUCCESS ||
	    wc->wr_id != SCIF_PROBE)
		return count;
	link->asked = 0;
	return 0;
}

int scif_link_write(struct scif_link *link, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *last = wr, *bad;
	struct scif_wait wait = { 0 };
	struct ibv_wc wc;
	int count;

	if (link->silent || atomic_load(&link->gone))
		return ECONNRESET;
	while (last->next)
		last = last->next;
	last->send_flags |= IBV_SEND_SIGNALED;
	if (ibv_post_send(link->id->qp, wr, &bad))
		return ECONNRESET;
	do
		count = poll_write(link, &wc);
	while (!count && has_patience(link, &wait));
	scif_link_waited(link, &wait);
	return count < 1 || wc.status != IBV_WC_SUCCESS ? ECONNRESET : 0;
}

int scif_link_write_words(struct scif_link *link, const void *words,
			  size_t place, uint32_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)words,
		.length = length,
		.lkey = link->local_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = length <= link->max_inline ? IBV_SEND_INLINE : 0,
		.wr.rdma = { .remote_addr = link->peer_addr + place,
			     .rkey = link->peer_rkey },
	};

	return scif_link_write(link, &wr);
}

int scif_link_send(struct scif_link *link, const struct scif_message *message)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&link->local->out,
		.length = sizeof(*message),
		.lkey = link->local_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
	};
	int err;

	pthread_mutex_lock(&link->lock);
	link->local->out = *message;
	err = scif_link_write(link, &wr);
	pthread_mutex_unlock(&link->lock);
	return err;
}

/*
 * With the link's lock: false if it can't be asked. On rxe, a process whose credentials
 * have changed can't post.
 */
static bool ask_peer(struct scif_link *link, uint64_t now)
{
	struct ibv_send_wr wr = { .wr_id = SCIF_PROBE,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	if (ibv_post_send(link->id->qp, &wr, &bad))
		return false;
	link->asked = now;
	return true;
}

/* With the link's lock: false if the peer is gone. */
static bool is_there(struct scif_link *link, uint64_t now)
{
	struct ibv_wc wc;

	while (link->asked && ibv_poll_cq(link->tx_cq, 1, &wc) == 1) {
		if (wc.status != IBV_WC_SUCCESS)
			return false;
		link->asked = 0;
		link->answered = now;
	}
	return !link->asked || now - link->asked < ALIVE_MS;
}

/*
 * A peer's machine may go without a word, and so may any peer of a process that rdma_cm
 * tells nothing any more; and calls that wait ask for nothing. So it is asked, each
 * second. Who writes something has the lock, and learns it by that.
 */
void scif_link_tick(struct scif_endpoint *ep)
{
	struct scif_link *link = &ep->link;
	uint64_t now;
	bool there;

	if (scif_state(ep) != SCIF_CONNECTED || !atomic_load(&link->ask) ||
	    pthread_mutex_trylock(&link->lock))
		return;
	/* With the lock: not before what another thread has noted. */
	now = scif_now_ms();
	there = is_there(link, now);
	if (there && !link->asked && now - link->answered >= PROBE_MS)
		there = ask_peer(link, now);
	pthread_mutex_unlock(&link->lock);
	if (!there)
		scif_lost(ep);
}

void scif_lost(struct scif_endpoint *ep)
{
	int connected = SCIF_CONNECTED;

	if (!atomic_compare_exchange_strong(&ep->state, &connected,
					    SCIF_DISCONNECTED))
		return;
	scif_link_break(&ep->link, !atomic_load(&ep->maps));
	scif_refresh_soon(ep);
}
