// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Connections with the other process, each with work in its queues.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <infiniband/micdv.h>

#include "bind.h"
#include "holder.h"
#include "tap.h"

enum {
	DEPTH = 32,
	MESSAGE_BYTES = 64,
	SLOW_TIMEOUT = 17, /* half a second */
	NOBODY = 0xfffffe,
};

#define WINDOW_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* --- queue pairs -------------------------------------------------------------- */

static enum ibv_qp_type type_of(enum link link)
{
	switch (link) {
	case LINK_UNRELIABLE:
	case LINK_SEND_ERROR:
	case LINK_OVERFLOW:
		return IBV_QPT_UC;
	case LINK_DATAGRAM:
		return IBV_QPT_UD;
	case LINK_XRC_OUT:
		return IBV_QPT_XRC_SEND;
	case LINK_XRC_IN:
		return IBV_QPT_XRC_RECV;
	default:
		return IBV_QPT_RC;
	}
}

static void create_link(struct holder *holder, enum link link)
{
	struct endpoint_options options = endpoint_options(type_of(link));
	struct endpoint *ep = &holder->links[link];

	options.depth = DEPTH;
	options.channel = holder->channel;
	options.xrcd = holder->xrcd;
	if (link == LINK_SHARED)
		options.srq = holder->srq;
	if (link == LINK_LOST)
		options.timeout = SLOW_TIMEOUT;
	if (link == LINK_OVERFLOW)
		options.send_cq = keep(holder, "completion queue",
				       ibv_create_cq(holder->dev.ctx, 1, NULL,
						     holder->channel, 0),
				       let_go_of_cq);
	endpoint_create(ep, &holder->dev, &options);
	keep(holder, "link", ep, let_go_of_endpoint);
	ibv_req_notify_cq(ep->send_cq, 0);
	ibv_req_notify_cq(ep->recv_cq, 1);
	holder->mine.links[link] = endpoint_address(ep);
}

static struct endpoint_address peer_of(const struct holder *holder,
				       enum link link)
{
	struct endpoint_address address;

	if (link == LINK_XRC_OUT)
		return holder->theirs.links[LINK_XRC_IN];
	if (link == LINK_XRC_IN)
		return holder->theirs.links[LINK_XRC_OUT];
	address = holder->theirs.links[link];
	if (link == LINK_LOST)
		address.qp_num = NOBODY;
	return address;
}

/* --- what is bound, attached and mapped ---------------------------------------- */

static void bind_windows(struct holder *holder)
{
	struct ibv_mw_bind_info info = bind_info(&holder->region, 0,
						 REGION_BYTES, WINDOW_ACCESS);
	struct endpoint *ep = &holder->links[LINK_BUSY];

	holder->mw2_rkey = ibv_inc_rkey(holder->mw[1]->rkey);
	if (!bind_type1(ep, holder->mw[0], &info) ||
	    !bind_type2(ep, holder->mw[1], holder->mw2_rkey, &info,
			IBV_WC_SUCCESS))
		bail("no window is bound");
	holder->mine.targets[TARGET_MW1] =
		(struct place){ info.addr, holder->mw[0]->rkey };
	holder->mine.targets[TARGET_MW2] = (struct place){ info.addr,
							   holder->mw2_rkey };
}

struct membership {
	struct ibv_qp *qp;
	union ibv_gid group;
};

static int let_go_of_membership(void *object)
{
	struct membership *membership = object;

	return ibv_detach_mcast(membership->qp, &membership->group, 0);
}

static int let_go_of_ah(void *ah)
{
	return ibv_destroy_ah(ah);
}

static void join_groups(struct holder *holder)
{
	static struct membership memberships[2];
	unsigned int i;

	for (i = 0; i < COUNT(memberships); i++) {
		memberships[i] = (struct membership){
			.qp = holder->links[LINK_DATAGRAM].qp,
			.group = { .raw = { 0xff, 0x0e, [15] = 100 + i } },
		};
		if (ibv_attach_mcast(memberships[i].qp, &memberships[i].group,
				     0))
			bail("ibv_attach_mcast: %s", strerror(errno));
		keep(holder, "membership", &memberships[i],
		     let_go_of_membership);
	}
	holder->group_ah =
		keep(holder, "address handle",
		     address_handle(&holder->dev, &memberships[0].group),
		     let_go_of_ah);
	keep(holder, "address handle",
	     address_handle(&holder->dev,
			    &holder->theirs.links[LINK_DATAGRAM].gid),
	     let_go_of_ah);
}

static int let_go_of_window(void *window)
{
	return micdv_unmap_window(window);
}

static void map_window(struct holder *holder)
{
	const struct place *place = &holder->theirs.targets[TARGET_ORDINARY];
	struct micdv_window *window;

	window = micdv_map_window(holder->links[LINK_BUSY].qp, place->addr,
				  place->rkey, REGION_BYTES,
				  PROT_READ | PROT_WRITE);
	if (!check(window, "micdv_map_window: %s", strerror(errno)))
		end_alone(holder);
	keep(holder, "mapped window", window, let_go_of_window);
	holder->window = window->addr;
}

/* --- work ---------------------------------------------------------------------- */

static void receive_one(struct endpoint *ep)
{
	try_post_recv(ep, 0, NULL, 0);
}

static void post_receives(struct holder *holder)
{
	struct ibv_sge sge = region_sge(&holder->region, 0, REGION_BYTES);
	unsigned int link, i;

	for (link = 0; link < LINKS; link++) {
		if (link == LINK_WAITING || link == LINK_SHARED ||
		    link == LINK_XRC_OUT || link == LINK_XRC_IN)
			continue;
		for (i = 0; i < QUEUED; i++)
			if (link == LINK_DATAGRAM)
				post_recv(&holder->links[link], 0, &sge, 1);
			else
				receive_one(&holder->links[link]);
	}
}

static void post_sends(struct endpoint *ep, struct ibv_send_wr wr)
{
	unsigned int i;

	for (i = 0; i < QUEUED; i++) {
		wr.wr_id = i;
		post_send(ep, &wr);
	}
}

/* Requests for pages that never come, there and here. */
static void ask_for_pages(struct holder *holder)
{
	const struct place *there = &holder->theirs.targets[TARGET_NEVER];
	struct ibv_sge sge = region_sge(&holder->region, 0, MESSAGE_BYTES);
	struct ibv_sge here = { .addr = (uintptr_t)holder->never->addr,
				.length = MESSAGE_BYTES,
				.lkey = holder->never->lkey };
	struct ibv_send_wr wr = send_wr(0, IBV_WR_RDMA_READ, &sge, 1);

	wr.wr.rdma.remote_addr = there->addr;
	wr.wr.rdma.rkey = there->rkey;
	post_sends(&holder->links[LINK_PAGE], wr);
	wr = send_wr(0, IBV_WR_SEND, &here, 1);
	post_sends(&holder->links[LINK_OWN_PAGE], wr);
}

static void post_work(struct holder *holder)
{
	struct ibv_sge bad = { .addr = 0, .length = 8, .lkey = 0 };
	struct ibv_send_wr wr = send_wr(0, IBV_WR_SEND, NULL, 0);

	post_sends(&holder->links[LINK_WAITING], wr);
	post_sends(&holder->links[LINK_LOST], wr);
	post_sends(&holder->links[LINK_UNRELIABLE], wr);
	post_sends(&holder->links[LINK_OVERFLOW], wr);
	post_send(&holder->links[LINK_SHARED], &wr);
	/* more than the other has receives for */
	wr.qp_type.xrc.remote_srqn = holder->theirs.srqn;
	post_sends(&holder->links[LINK_XRC_OUT], wr);
	endpoint_go(&holder->links[LINK_DRAINED], IBV_QPS_SQD);
	post_sends(&holder->links[LINK_DRAINED], wr);
	endpoint_go(&holder->links[LINK_FAILED], IBV_QPS_ERR);
	post_sends(&holder->links[LINK_FAILED], wr);
	wr = send_wr(0, IBV_WR_SEND, &bad, 1);
	post_sends(&holder->links[LINK_SEND_ERROR], wr);
	ask_for_pages(holder);
}

void hold_links(struct holder *holder)
{
	struct endpoint_address address;
	unsigned int link;

	for (link = 0; link < LINKS; link++)
		create_link(holder, link);
	if (ibv_get_srq_num(holder->xrc_srq, &holder->mine.srqn))
		bail("ibv_get_srq_num fails");
	exchange(holder, &holder->mine, &holder->theirs, sizeof(holder->mine));
	for (link = 0; link < LINKS; link++) {
		address = peer_of(holder, link);
		endpoint_connect(&holder->links[link], &address);
	}
	bind_windows(holder);
	join_groups(holder);
	post_receives(holder);
	exchange(holder, &holder->mine, &holder->theirs, sizeof(holder->mine));
	map_window(holder);
	post_work(holder);
}

/* --- meanwhile ----------------------------------------------------------------- */

/* The number of completions. */
static unsigned int drain(struct holder *holder, struct ibv_cq *cq)
{
	unsigned int count = 0;
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0) {
		if (!check(wc.status == IBV_WC_SUCCESS || is_alone(holder),
			   "%s: request %u: %s", holder->name,
			   (unsigned int)wc.wr_id,
			   ibv_wc_status_str(wc.status)))
			end_alone(holder);
		count++;
	}
	return count;
}

/* All kinds of requests, to each kind of memory in turn. */
static void post_requests(struct holder *holder)
{
	const struct place *place =
		&holder->theirs.targets[holder->round % TARGET_NEVER];
	const struct place *word = &holder->theirs.targets[TARGET_ORDINARY];
	struct ibv_sge sge = region_sge(&holder->region, 0, MESSAGE_BYTES);
	struct ibv_sge result = region_sge(&holder->region, 0, 8);
	struct ibv_send_wr wr[4];
	unsigned int i;

	wr[0] = send_wr(0, IBV_WR_RDMA_WRITE, &sge, 1);
	wr[0].wr.rdma.remote_addr = place->addr + MESSAGE_BYTES;
	wr[0].wr.rdma.rkey = place->rkey;
	wr[1] = wr[0];
	wr[1].opcode = IBV_WR_RDMA_READ;
	wr[2] = send_wr(2, IBV_WR_ATOMIC_FETCH_AND_ADD, &result, 1);
	wr[2].wr.atomic.remote_addr = (word->addr + 7) & ~7ULL;
	wr[2].wr.atomic.rkey = word->rkey;
	wr[3] = send_wr(3, IBV_WR_SEND, NULL, 0);
	for (i = 0; i + 1 < COUNT(wr); i++) {
		wr[i].wr_id = 10 * (holder->round % TARGET_NEVER) + i;
		wr[i].next = &wr[i + 1];
	}
	/* no room: the other one is slow */
	try_post_send(&holder->links[LINK_BUSY], wr);
}

static void tell_group(struct holder *holder)
{
	struct endpoint *ep = &holder->links[LINK_DATAGRAM];
	struct ibv_sge sge = region_sge(&holder->region, 0, MESSAGE_BYTES);
	struct ibv_send_wr wr = send_wr(4, IBV_WR_SEND, &sge, 1);

	wr.wr.ud.ah = holder->group_ah;
	wr.wr.ud.remote_qpn = MULTICAST_QPN;
	wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	try_post_send(ep, &wr);
	drain(holder, ep->send_cq);
	sge.length = REGION_BYTES;
	if (drain(holder, ep->recv_cq))
		try_post_recv(ep, 0, &sge, 1);
}

void use_links(struct holder *holder)
{
	struct endpoint *busy = &holder->links[LINK_BUSY];
	unsigned int received;

	holder->round++;
	drain(holder, busy->send_cq);
	for (received = drain(holder, busy->recv_cq); received; received--)
		receive_one(busy);
	post_requests(holder);
	tell_group(holder);
	holder->window[holder->round % REGION_BYTES]++;
}
