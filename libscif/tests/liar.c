// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <rdma/rdma_verbs.h>

#include "clock.h"
#include "liar.h"
#include "peer.h"
#include "tap.h"

enum { PAGES = 16, SENT = 1 };

bool wait_event(struct liar *liar, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	bool ok;

	if (rdma_get_cm_event(liar->channel, &event))
		return false;
	ok = check(event->event == type, "the liar gets %s, wants %s",
		   rdma_event_str(event->event), rdma_event_str(type));
	if (ok && type == RDMA_CM_EVENT_ESTABLISHED)
		memcpy(&liar->theirs, event->param.conn.private_data,
		       sizeof(liar->theirs));
	rdma_ack_cm_event(event);
	return ok;
}

static bool open_liar(struct liar *liar)
{
	struct ibv_qp_init_attr init = {
		.cap = { 64, 64, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};

	liar->mem = fresh_pages(PAGES * LIAR_PAGE);
	liar->said = liar->mem + 14 * LIAR_PAGE;
	liar->heard = (void *)(liar->mem + 15 * LIAR_PAGE);
	liar->copies = NULL;
	liar->pd = ibv_alloc_pd(liar->id->verbs);
	liar->cq = ibv_create_cq(liar->id->verbs, 256, NULL, NULL, 0);
	liar->mr = ibv_reg_mr(liar->pd, liar->mem, PAGES * LIAR_PAGE,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				      IBV_ACCESS_REMOTE_WRITE);
	init.send_cq = liar->cq;
	init.recv_cq = liar->cq;
	return liar->mr && !rdma_create_qp(liar->id, liar->pd, &init);
}

static void post_receives(struct liar *liar)
{
	struct ibv_sge sge = { (uintptr_t)liar->heard, sizeof(*liar->heard),
			       liar->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	int i;

	for (i = 0; i < 32; i++)
		ibv_post_recv(liar->id->qp, &wr, &bad);
}

bool reach(struct liar *liar, const char *address)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(LIAR_PORT) };

	inet_pton(AF_INET, address, &to.sin_addr);
	liar->channel = rdma_create_event_channel();
	return !rdma_create_id(liar->channel, &liar->id, NULL, RDMA_PS_TCP) &&
	       !rdma_resolve_addr(liar->id, NULL, (struct sockaddr *)&to,
				  2000) &&
	       wait_event(liar, RDMA_CM_EVENT_ADDR_RESOLVED) &&
	       !rdma_resolve_route(liar->id, 2000) &&
	       wait_event(liar, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

bool greet(struct liar *liar, struct scif_hello *hello, uint8_t patience)
{
	struct rdma_conn_param param = { .responder_resources = 4,
					 .initiator_depth = 4,
					 .retry_count = 7,
					 .rnr_retry_count = liar->deaf ? 7 : 0,
					 .qp_num = hello->rma_qpn };

	hello->magic = SCIF_MAGIC;
	hello->protocol = SCIF_PROTOCOL;
	hello->port = 7;
	param.private_data = hello;
	param.private_data_len = sizeof(*hello);
	rdma_set_option(liar->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
			&patience, sizeof(patience));
	return !rdma_connect(liar->id, &param);
}

static bool open_copies(struct liar *liar)
{
	struct ibv_qp_init_attr init = {
		.send_cq = liar->cq,
		.recv_cq = liar->cq,
		.cap = { 4, 4, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};

	liar->copies = ibv_create_qp(liar->pd, &init);
	return liar->copies;
}

/* As the library does it: the same way, to the victim's other queue pair. */
static bool to_state(struct liar *liar, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	if (rdma_init_qp_attr(liar->id, &attr, &mask))
		return false;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	attr.dest_qp_num = liar->theirs.rma_qpn;
	attr.rq_psn = liar->theirs.rma_psn & 0xffffff;
	attr.sq_psn = 0;
	return !ibv_modify_qp(liar->copies, &attr, mask);
}

static bool join_copies(struct liar *liar)
{
	return to_state(liar, IBV_QPS_INIT) && to_state(liar, IBV_QPS_RTR) &&
	       to_state(liar, IBV_QPS_RTS);
}

static bool connect_to(struct liar *liar, const char *address, bool copies)
{
	struct scif_hello hello = { .node = LIAR_NODE };

	if (!reach(liar, address) || !open_liar(liar) ||
	    (copies && !open_copies(liar)))
		return false;
	if (!liar->deaf)
		post_receives(liar);
	hello.rma_qpn = copies ? liar->copies->qp_num : liar->id->qp->qp_num;
	hello.shared_addr = (uintptr_t)liar->mem;
	hello.shared_rkey = liar->mr->rkey;
	/* A victim that had enough does not answer: 17 ms, several times. */
	return greet(liar, &hello, 12) &&
	       wait_event(liar, RDMA_CM_EVENT_ESTABLISHED) &&
	       (!copies || join_copies(liar));
}

bool connect_liar(struct liar *liar, const char *address, bool copies)
{
	liar->deaf = false;
	return connect_to(liar, address, copies);
}

bool connect_deaf(struct liar *liar, const char *address)
{
	liar->deaf = true;
	return connect_to(liar, address, false);
}

bool connect_silent(struct liar *liar, const char *address, unsigned int number)
{
	struct scif_hello hello = { .node = LIAR_NODE,
				    .rma_qpn = 0xabcd00 + number,
				    .shared_rkey = 1 };

	liar->deaf = false;
	return reach(liar, address) && greet(liar, &hello, 31) &&
	       wait_event(liar, RDMA_CM_EVENT_CONNECT_RESPONSE) &&
	       !rdma_establish(liar->id);
}

static bool listen_at(struct liar *liar, struct rdma_cm_id **listener)
{
	struct sockaddr_in any = { .sin_family = AF_INET,
				   .sin_port = htons(STRANGER_PORT) };

	liar->channel = rdma_create_event_channel();
	return liar->channel &&
	       !rdma_create_id(liar->channel, listener, NULL, RDMA_PS_TCP) &&
	       !rdma_bind_addr(*listener, (struct sockaddr *)&any) &&
	       !rdma_listen(*listener, 1);
}

/* The next request, in @liar's id. */
static bool take_request(struct liar *liar)
{
	struct rdma_cm_event *event;
	bool ok;

	if (rdma_get_cm_event(liar->channel, &event))
		return false;
	ok = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
	if (ok)
		liar->id = event->id;
	rdma_ack_cm_event(event);
	return ok;
}

/* Its end, which may overtake that it is established. */
static bool sees_end(struct liar *liar)
{
	enum rdma_cm_event_type type;
	struct rdma_cm_event *event;

	do {
		if (rdma_get_cm_event(liar->channel, &event))
			return false;
		type = event->event;
		rdma_ack_cm_event(event);
	} while (type == RDMA_CM_EVENT_ESTABLISHED);
	return check(type == RDMA_CM_EVENT_DISCONNECTED, "the stranger gets %s",
		     rdma_event_str(type));
}

bool accept_strangely(int tell)
{
	const struct scif_hello hello = { .magic = ~SCIF_MAGIC };
	struct rdma_conn_param param = { .private_data = &hello,
					 .private_data_len = sizeof(hello),
					 .responder_resources = 4,
					 .initiator_depth = 4 };
	struct liar liar = { .deaf = false };
	struct rdma_cm_id *listener;
	bool ok;

	ok = listen_at(&liar, &listener) && write(tell, "l", 1) == 1 &&
	     take_request(&liar) && open_liar(&liar) &&
	     !rdma_accept(liar.id, &param) && sees_end(&liar);
	if (ok) {
		rdma_destroy_id(listener);
		close_liar(&liar);
	}
	return write(tell, ok ? "y" : "n", 1) == 1 && ok;
}

void close_liar(struct liar *liar)
{
	rdma_disconnect(liar->id);
	if (liar->copies)
		ibv_destroy_qp(liar->copies);
	rdma_destroy_qp(liar->id);
	ibv_dereg_mr(liar->mr);
	ibv_destroy_cq(liar->cq);
	ibv_dealloc_pd(liar->pd);
	rdma_destroy_id(liar->id);
	rdma_destroy_event_channel(liar->channel);
}

bool post_on(struct liar *liar, struct ibv_qp *qp, enum ibv_wr_opcode opcode,
	     uint32_t length, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)liar->said, length, liar->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = SENT,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	uint64_t end = now_ms() + 1000ULL * slowness();
	unsigned int round = 0;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	if (ibv_post_send(qp, &wr, &bad))
		return false;
	/* rxe may retry for ever what a broken queue pair does not answer. */
	while (ibv_poll_cq(liar->cq, 1, &wc) <= 0 || wc.wr_id != SENT) {
		if (now_ms() > end)
			return false;
		relax(round++);
	}
	return wc.status == IBV_WC_SUCCESS;
}

bool post(struct liar *liar, enum ibv_wr_opcode opcode, uint32_t length,
	  uint64_t place)
{
	return post_on(liar, liar->id->qp, opcode, length,
		       liar->theirs.shared_addr + place,
		       liar->theirs.shared_rkey);
}

bool say(struct liar *liar, const struct scif_message *message)
{
	memcpy(liar->said, message, sizeof(*message));
	return post(liar, IBV_WR_SEND, sizeof(*message), 0);
}

bool say_directory(struct liar *liar, uint32_t gen)
{
	memcpy(liar->said, &gen, sizeof(gen));
	return post(liar, IBV_WR_RDMA_WRITE, sizeof(gen),
		    offsetof(struct scif_shared, dir_gen));
}

bool is_told(int told, char what)
{
	char byte = '?';

	return check(becomes_readable(told) && read(told, &byte, 1) == 1 &&
			     byte == what,
		     "the liar says %d", byte);
}
