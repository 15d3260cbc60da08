// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Channels with threads that wait at them, completion queues that are armed, shared
 * receive queues with receives in them, and queue pairs that are not connected.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "holder.h"
#include "tap.h"

enum { ENTRIES = 16 };

int let_go_of_cq(void *cq)
{
	return ibv_destroy_cq(cq);
}

int let_go_of_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

int let_go_of_endpoint(void *object)
{
	struct endpoint *ep = object;
	int error = ibv_destroy_qp(ep->qp);

	ep->qp = NULL;
	if (!error)
		endpoint_destroy(ep);
	return error;
}

static int let_go_of_channel(void *channel)
{
	return ibv_destroy_comp_channel(channel);
}

/* --- threads ------------------------------------------------------------------ */

static int let_go_of_thread(void *thread)
{
	int error = pthread_cancel(*(pthread_t *)thread);

	return error ? error : pthread_join(*(pthread_t *)thread, NULL);
}

static void *wait_for_completions(void *channel)
{
	struct ibv_cq *cq;
	void *context;

	ibv_get_cq_event(channel, &cq, &context);
	return NULL;
}

/* Whatever comes, nobody is told. */
static void *wait_for_events(void *context)
{
	struct ibv_async_event event;

	while (!ibv_get_async_event(context, &event))
		ibv_ack_async_event(&event);
	return NULL;
}

static void hold_thread(struct holder *holder, pthread_t *thread,
			void *(*main)(void *), void *argument)
{
	int error = pthread_create(thread, NULL, main, argument);

	if (error)
		bail("pthread_create: %s", strerror(error));
	keep(holder, "thread", thread, let_go_of_thread);
}

/* --- completion queues -------------------------------------------------------- */

static struct ibv_cq *hold_cq(struct holder *holder,
			      struct ibv_comp_channel *channel)
{
	return keep(holder, "completion queue",
		    ibv_create_cq(holder->dev.ctx, ENTRIES, NULL, channel, 0),
		    let_go_of_cq);
}

static void hold_cq_ex(struct holder *holder)
{
	struct ibv_poll_cq_attr poll = { .comp_mask = 0 };
	struct ibv_cq_init_attr_ex attr = {
		.cqe = ENTRIES,
		.wc_flags = IBV_WC_STANDARD_FLAGS |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = holder->domain,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(holder->dev.ctx, &attr);

	if (!cq)
		bail("no extended queue: %s", strerror(errno));
	keep(holder, "extended queue", ibv_cq_ex_to_cq(cq), let_go_of_cq);
	if (ibv_start_poll(cq, &poll) != ENOENT)
		bail("a new queue is not empty");
}

static void hold_cqs(struct holder *holder)
{
	struct ibv_modify_cq_attr moderate = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { .cq_count = 100, .cq_period = 50000 },
	};
	struct ibv_cq *cq;

	ibv_req_notify_cq(hold_cq(holder, holder->channel), 0);
	ibv_req_notify_cq(hold_cq(holder, holder->channel), 1);
	cq = hold_cq(holder, NULL);
	if (ibv_resize_cq(cq, 10 * ENTRIES))
		bail("ibv_resize_cq: %s", strerror(errno));
	cq = hold_cq(holder, holder->channel);
	ibv_req_notify_cq(cq, 0);
	if (ibv_modify_cq(cq, &moderate))
		bail("ibv_modify_cq: %s", strerror(errno));
	hold_cq_ex(holder);
}

/* --- shared receive queues ---------------------------------------------------- */

void post_shared_receives(struct ibv_srq *srq, unsigned int count)
{
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;

	while (count--)
		if (ibv_post_srq_recv(srq, &wr, &bad))
			bail("ibv_post_srq_recv fails");
}

/* The event is raised when the first receive is taken. */
static void hold_srq(struct holder *holder)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = ENTRIES, .max_sge = 1 },
	};
	struct ibv_srq_attr limit = { .srq_limit = QUEUED };

	holder->srq = keep(holder, "shared receive queue",
			   ibv_create_srq(holder->dev.pd, &init),
			   let_go_of_srq);
	post_shared_receives(holder->srq, QUEUED);
	if (ibv_modify_srq(holder->srq, &limit, IBV_SRQ_LIMIT))
		bail("ibv_modify_srq: %s", strerror(errno));
}

static void hold_xrc_srq(struct holder *holder)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = ENTRIES, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.xrcd = holder->xrcd,
		.cq = hold_cq(holder, holder->channel),
		.pd = holder->dev.pd,
	};

	holder->xrc_srq = keep(holder, "XRC receive queue",
			       ibv_create_srq_ex(holder->dev.ctx, &attr),
			       let_go_of_srq);
	post_shared_receives(holder->xrc_srq, QUEUED / 2);
}

/* --- queue pairs that nobody talks to ------------------------------------------ */

static void hold_qps(struct holder *holder)
{
	static const enum ibv_qp_type types[] = {
		IBV_QPT_RC,	  IBV_QPT_UC,	    IBV_QPT_UD,
		IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV,
	};
	/* in RESET, INIT, RTR */
	static struct endpoint idle[COUNT(types)][3];
	struct endpoint_options options;
	struct endpoint_address address;
	unsigned int i, k;

	for (i = 0; i < COUNT(types); i++) {
		for (k = 0; k < 3; k++) {
			options = endpoint_options(types[i]);
			options.depth = ENTRIES;
			options.xrcd = holder->xrcd;
			options.pd = k ? NULL : holder->domain;
			endpoint_create(&idle[i][k], &holder->dev, &options);
			keep(holder, "queue pair", &idle[i][k],
			     let_go_of_endpoint);
			address = endpoint_address(&idle[i][k]);
			if (k > 0)
				endpoint_to_init(&idle[i][k]);
			if (k > 1)
				endpoint_to_rtr(&idle[i][k], &address);
		}
	}
}

void hold_queues(struct holder *holder)
{
	static pthread_t threads[2];
	struct ibv_comp_channel *quiet;

	quiet = keep(holder, "channel",
		     ibv_create_comp_channel(holder->dev.ctx),
		     let_go_of_channel);
	holder->channel = keep(holder, "channel",
			       ibv_create_comp_channel(holder->dev.ctx),
			       let_go_of_channel);
	hold_cqs(holder);
	hold_srq(holder);
	hold_xrc_srq(holder);
	hold_qps(holder);
	/* at one that nothing comes to, and at one to which much comes */
	hold_thread(holder, &threads[0], wait_for_completions, quiet);
	hold_thread(holder, &threads[1], wait_for_events, holder->dev.ctx);
}
