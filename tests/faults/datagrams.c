// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Faults of datagrams: at the sender, whose send queue stops; and at the receiver, of
 * which the sender hears nothing. (What is lost on its way: datagram.)
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "event.h"
#include "faults.h"
#include "tap.h"
#include "work.h"

struct datagrams {
	struct setup *setup;
	enum ibv_wr_opcode opcode;
	struct endpoint a;
	struct endpoint b;
	uint32_t b_number;
	struct ibv_srq *srq;
	struct ibv_ah *to_b;
	struct ibv_ah *ah; /* the one to use */
	struct ibv_sge local[2];
	int local_count;
	struct ibv_sge receive[2];
	int receive_count;
	/* what a case made for itself */
	struct region extra;
	struct ibv_pd *pd;
	struct ibv_ah *other;
	void *copy;
};

/* --- faults ------------------------------------------------------------------ */

static struct ibv_pd *other_pd(struct datagrams *d, struct device *dev)
{
	d->pd = ibv_alloc_pd(dev->ctx);
	if (!d->pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	return d->pd;
}

static struct ibv_sge region_of(struct datagrams *d, struct ibv_pd *pd,
				int access, size_t offset, uint32_t length)
{
	if (!region_map(&d->extra, MEMORY_ANON, REGION_BYTES))
		bail("cannot map memory");
	region_register(&d->extra, pd, access);
	return region_sge(&d->extra, offset, length);
}

static void lkey_wrong(struct datagrams *d)
{
	d->local[0].lkey ^= 0x00a5a500;
}

static void lkey_stale(struct datagrams *d)
{
	d->local[0] = region_of(d, d->setup->a_dev.pd, ACCESS_ALL, 0,
				BAD_BYTES);
	tap_must(!ibv_dereg_mr(d->extra.mr), "ibv_dereg_mr fails");
	d->extra.mr = NULL;
}

static void lkey_of_other_pd(struct datagrams *d)
{
	d->local[0] = region_of(d, other_pd(d, &d->setup->a_dev), ACCESS_ALL, 0,
				BAD_BYTES);
}

static void local_across_end(struct datagrams *d)
{
	d->local[0] = region_of(d, d->setup->a_dev.pd, ACCESS_ALL,
				REGION_BYTES - BAD_BYTES + 1, BAD_BYTES);
}

static void local_below(struct datagrams *d)
{
	d->local[0] = region_of(d, d->setup->a_dev.pd, ACCESS_ALL, -1,
				BAD_BYTES);
}

static void local_wrapping(struct datagrams *d)
{
	d->local[0].addr = UINT64_MAX - 3;
}

static void handle_of_other_pd(struct datagrams *d)
{
	struct device dev = d->setup->a_dev;

	dev.pd = other_pd(d, &dev);
	d->other = address_handle(&dev, &d->setup->b_dev.gid);
	d->ah = d->other;
}

/* What it was is posted still; the object of libmic must not be. */
static void handle_destroyed(struct datagrams *d)
{
	struct ibv_ah *ah = address_handle(&d->setup->a_dev,
					   &d->setup->b_dev.gid);
	size_t size = malloc_usable_size(ah);

	d->copy = malloc(size);
	if (!d->copy)
		bail("no memory");
	memcpy(d->copy, ah, size);
	tap_must(!ibv_destroy_ah(ah), "ibv_destroy_ah fails");
	d->ah = d->copy;
}

/* The next handle leads where the datagram must not go. */
static void handle_replaced(struct datagrams *d)
{
	handle_destroyed(d);
	d->other = address_handle(&d->setup->a_dev, &d->setup->b_dev.gid);
}

static void receive_wrong_lkey(struct datagrams *d)
{
	d->receive[0].lkey ^= 0x00a5a500;
}

static void receive_of_other_pd(struct datagrams *d)
{
	d->receive[0] = region_of(d, other_pd(d, &d->setup->b_dev), ACCESS_ALL,
				  0, RECEIVE_BYTES);
}

static void receive_read_only(struct datagrams *d)
{
	d->receive[0] = region_of(d, d->setup->b_dev.pd, IBV_ACCESS_REMOTE_READ,
				  0, RECEIVE_BYTES);
}

static void receive_outside(struct datagrams *d)
{
	d->receive[0] = region_of(d, d->setup->b_dev.pd, ACCESS_ALL,
				  REGION_BYTES - 8, RECEIVE_BYTES);
}

/* Of the header, too. */
static void receive_below(struct datagrams *d)
{
	d->receive[0] = region_of(d, d->setup->b_dev.pd, ACCESS_ALL, -1,
				  RECEIVE_BYTES);
}

static void receive_wrapping(struct datagrams *d)
{
	d->receive[0].addr = UINT64_MAX - 3;
}

/* The datagram and its header reach into the second one, too. */
static struct ibv_sge *second_local(struct datagrams *d)
{
	d->local[0].length = BAD_BYTES / 2;
	d->local[1] = region_sge(&d->setup->a_mem, LATE_OFFSET, BAD_BYTES / 2);
	d->local_count = 2;
	return &d->local[1];
}

static struct ibv_sge *second_receive(struct datagrams *d)
{
	d->receive[0].length = BAD_BYTES;
	d->receive[1] = region_sge(&d->setup->b_mem, LATE_OFFSET, BAD_BYTES);
	d->receive_count = 2;
	return &d->receive[1];
}

static void second_lkey_wrong(struct datagrams *d)
{
	second_local(d)->lkey ^= 0x00a5a500;
}

static void second_lkey_of_other_pd(struct datagrams *d)
{
	*second_local(d) = region_of(d, other_pd(d, &d->setup->a_dev),
				     ACCESS_ALL, 0, BAD_BYTES / 2);
}

static void second_across_end(struct datagrams *d)
{
	*second_local(d) = region_of(d, d->setup->a_dev.pd, ACCESS_ALL,
				     REGION_BYTES - 1, BAD_BYTES / 2);
}

static void second_receive_wrong_lkey(struct datagrams *d)
{
	second_receive(d)->lkey ^= 0x00a5a500;
}

static void second_receive_of_other_pd(struct datagrams *d)
{
	*second_receive(d) = region_of(d, other_pd(d, &d->setup->b_dev),
				       ACCESS_ALL, 0, BAD_BYTES);
}

static void second_receive_outside(struct datagrams *d)
{
	*second_receive(d) = region_of(d, d->setup->b_dev.pd, ACCESS_ALL,
				       REGION_BYTES - 8, BAD_BYTES);
}

/* --- what comes of them -------------------------------------------------------- */

static void post_receive(struct datagrams *d, uint64_t id, struct ibv_sge *sges,
			 int count)
{
	struct ibv_recv_wr *bad, wr = {
		.wr_id = id,
		.sg_list = sges,
		.num_sge = count,
	};

	if (!d->srq)
		post_recv(&d->b, id, sges, count);
	else if (ibv_post_srq_recv(d->srq, &wr, &bad))
		bail("posting a receive fails");
}

static void post_receives(struct datagrams *d)
{
	struct ibv_sge sge = region_sge(&d->setup->b_mem, RECEIVE_OFFSET,
					RECEIVE_BYTES);

	post_receive(d, FIRST_RECEIVE_ID, d->receive, d->receive_count);
	post_receive(d, FIRST_RECEIVE_ID + 1, &sge, 1);
}

static struct ibv_send_wr datagram(struct datagrams *d, uint64_t id,
				   struct ibv_ah *ah, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = send_wr(id, d->opcode, sge, 1);

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = d->b_number;
	wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	return wr;
}

/* In one list, so that the second one waits behind the first. */
static void post_two(struct datagrams *d)
{
	struct ibv_sge good = region_sge(&d->setup->a_mem, GOOD_OFFSET,
					 BAD_BYTES);
	struct ibv_send_wr wr[2];

	wr[0] = datagram(d, BAD_ID, d->ah, d->local);
	wr[0].num_sge = d->local_count;
	wr[1] = datagram(d, LATE_SEND_ID, d->to_b, &good);
	wr[0].next = &wr[1];
	post_send(&d->a, wr);
}

static bool arrives(struct datagrams *d, uint64_t receive)
{
	struct ibv_sge sge = region_sge(&d->setup->a_mem, GOOD_OFFSET,
					BAD_BYTES);
	struct ibv_send_wr wr = datagram(d, GOOD_ID, d->to_b, &sge);

	post_send(&d->a, &wr);
	return cq_expect(d->a.send_cq, GOOD_ID, IBV_WC_SUCCESS) &&
	       cq_expect(d->b.recv_cq, receive, IBV_WC_SUCCESS);
}

static bool is_in(const struct endpoint *ep, enum ibv_qp_state expected)
{
	enum ibv_qp_state state = endpoint_state(ep);

	return check(state == expected, "the state is %s instead of %s",
		     state_name(state), state_name(expected));
}

/* The send queue has stopped, receives go on: a datagram from the other side arrives. */
static bool sender_receives(struct datagrams *d)
{
	struct setup *setup = d->setup;
	struct ibv_ah *to_a = address_handle(&setup->b_dev, &setup->a_dev.gid);
	struct ibv_sge to = region_sge(&setup->a_mem, RECEIVE_OFFSET,
				       RECEIVE_BYTES);
	struct ibv_sge from = region_sge(&setup->b_mem, GOOD_OFFSET, BAD_BYTES);
	struct ibv_send_wr wr = datagram(d, GOOD_ID, to_a, &from);
	bool ok;

	wr.wr.ud.remote_qpn = d->a.qp->qp_num;
	post_recv(&d->a, GOOD_ID, &to, 1);
	post_send(&d->b, &wr);
	ok = cq_expect(d->b.send_cq, GOOD_ID, IBV_WC_SUCCESS) &&
	     cq_expect(d->a.recv_cq, GOOD_ID, IBV_WC_SUCCESS) &&
	     is_in(&d->a, IBV_QPS_SQE);
	return check(!ibv_destroy_ah(to_a), "ibv_destroy_ah fails") && ok;
}

/* Nothing leaves, and once the queue is in RTS again it does. */
static bool sender_fails(struct datagrams *d, enum ibv_wc_status status)
{
	post_receives(d);
	post_two(d);
	if (!cq_expect(d->a.send_cq, BAD_ID, status) ||
	    !cq_expect(d->a.send_cq, LATE_SEND_ID, IBV_WC_WR_FLUSH_ERR) ||
	    !is_in(&d->a, IBV_QPS_SQE) || !is_in(&d->b, IBV_QPS_RTS) ||
	    !cq_stays_empty(d->b.recv_cq, 0) || !sender_receives(d))
		return false;
	endpoint_go(&d->a, IBV_QPS_RTS);
	return arrives(d, FIRST_RECEIVE_ID);
}

/* The receiver's queue pair ends, which the sender does not know; nothing is written. */
static bool receiver_fails(struct datagrams *d, enum ibv_wc_status status)
{
	const struct region *mem = &d->setup->b_mem;

	memset(mem->addr, B_BYTE, REGION_BYTES);
	post_receives(d);
	post_two(d);
	return cq_expect(d->a.send_cq, BAD_ID, IBV_WC_SUCCESS) &&
	       cq_expect(d->a.send_cq, LATE_SEND_ID, IBV_WC_SUCCESS) &&
	       cq_expect(d->b.recv_cq, FIRST_RECEIVE_ID, status) &&
	       (d->srq || cq_expect(d->b.recv_cq, FIRST_RECEIVE_ID + 1,
				    IBV_WC_WR_FLUSH_ERR)) &&
	       cq_stays_empty(d->b.recv_cq, 0) && is_in(&d->a, IBV_QPS_RTS) &&
	       is_in(&d->b, IBV_QPS_ERR) &&
	       all_are(mem->addr, REGION_BYTES, B_BYTE) &&
	       (!d->srq ||
		event_expect(d->setup->b_dev.ctx, IBV_EVENT_QP_LAST_WQE_REACHED,
			     d->b.qp));
}

/* Without a receive it is lost; the next one is not. */
static bool is_lost(struct datagrams *d, enum ibv_wc_status status)
{
	post_two(d);
	if (!cq_expect(d->a.send_cq, BAD_ID, status) ||
	    !cq_expect(d->a.send_cq, LATE_SEND_ID, status) ||
	    !cq_stays_empty(d->b.recv_cq, 0))
		return false;
	post_receives(d);
	return cq_stays_empty(d->b.recv_cq, 5) && arrives(d, FIRST_RECEIVE_ID);
}

/* Nobody is there to receive it, with receives there were: nothing says so. */
static bool goes_nowhere(struct datagrams *d, enum ibv_wc_status status)
{
	const uint8_t *memory = d->setup->b_mem.addr;

	memset(d->setup->b_mem.addr, B_BYTE, REGION_BYTES);
	post_two(d);
	return cq_expect(d->a.send_cq, BAD_ID, status) &&
	       cq_expect(d->a.send_cq, LATE_SEND_ID, status) &&
	       cq_stays_empty(d->b.recv_cq, 5) && is_in(&d->a, IBV_QPS_RTS) &&
	       all_are(memory, REGION_BYTES, B_BYTE);
}

static bool peer_destroyed_lost(struct datagrams *d, enum ibv_wc_status status)
{
	post_receives(d);
	tap_must(!ibv_destroy_qp(d->b.qp), "ibv_destroy_qp fails");
	d->b.qp = NULL;
	return goes_nowhere(d, status);
}

/* What comes when it is in RTS again arrives, and nothing before that. */
static bool again(struct datagrams *d)
{
	struct ibv_sge sge = region_sge(&d->setup->b_mem, RECEIVE_OFFSET,
					RECEIVE_BYTES);

	endpoint_go(&d->b, IBV_QPS_RESET);
	endpoint_connect(&d->b, NULL);
	/* in a shared queue the receives are still there */
	if (d->srq)
		return arrives(d, FIRST_RECEIVE_ID);
	post_receive(d, LATE_WRITE_ID, &sge, 1);
	return arrives(d, LATE_WRITE_ID);
}

static bool peer_reset_lost(struct datagrams *d, enum ibv_wc_status status)
{
	post_receives(d);
	endpoint_go(&d->b, IBV_QPS_RESET);
	return goes_nowhere(d, status) && is_in(&d->b, IBV_QPS_RESET) &&
	       again(d);
}

/* With its receives: they wait until it is in RTR. */
static bool peer_init_lost(struct datagrams *d, enum ibv_wc_status status)
{
	endpoint_go(&d->b, IBV_QPS_RESET);
	endpoint_to_init(&d->b);
	post_receives(d);
	if (!goes_nowhere(d, status) || !is_in(&d->b, IBV_QPS_INIT))
		return false;
	endpoint_to_rtr(&d->b, NULL);
	endpoint_to_rts(&d->b);
	return arrives(d, FIRST_RECEIVE_ID);
}

static bool peer_error_lost(struct datagrams *d, enum ibv_wc_status status)
{
	struct ibv_context *ctx = d->setup->b_dev.ctx;

	post_receives(d);
	endpoint_go(&d->b, IBV_QPS_ERR);
	if (d->srq ?
		    !event_expect(ctx, IBV_EVENT_QP_LAST_WQE_REACHED, d->b.qp) :
		    !cq_expect_range(d->b.recv_cq, FIRST_RECEIVE_ID,
				     FIRST_RECEIVE_ID + 2, IBV_WC_WR_FLUSH_ERR))
		return false;
	return goes_nowhere(d, status) && is_in(&d->b, IBV_QPS_ERR) && again(d);
}

static const struct {
	const char *name;
	void (*arrange)(struct datagrams *d);
	bool (*run)(struct datagrams *d, enum ibv_wc_status status);
	enum ibv_wc_status status;
} faults[] = {
	{ "wrong lkey", lkey_wrong, sender_fails, IBV_WC_LOC_PROT_ERR },
	{ "lkey of a deregistered MR", lkey_stale, sender_fails,
	  IBV_WC_LOC_PROT_ERR },
	{ "lkey of another PD", lkey_of_other_pd, sender_fails,
	  IBV_WC_LOC_PROT_ERR },
	{ "across the local MR's end", local_across_end, sender_fails,
	  IBV_WC_LOC_PROT_ERR },
	{ "below the local MR", local_below, sender_fails,
	  IBV_WC_LOC_PROT_ERR },
	{ "local address that wraps around", local_wrapping, sender_fails,
	  IBV_WC_LOC_PROT_ERR },
	{ "address handle of another PD", handle_of_other_pd, sender_fails,
	  IBV_WC_LOC_QP_OP_ERR },
	{ "address handle that is destroyed", handle_destroyed, sender_fails,
	  IBV_WC_LOC_QP_OP_ERR },
	{ "address handle that is destroyed, and another one", handle_replaced,
	  sender_fails, IBV_WC_LOC_QP_OP_ERR },
	{ "receive with a wrong lkey", receive_wrong_lkey, receiver_fails,
	  IBV_WC_LOC_PROT_ERR },
	{ "receive with the lkey of another PD", receive_of_other_pd,
	  receiver_fails, IBV_WC_LOC_PROT_ERR },
	{ "receive into an MR without local write", receive_read_only,
	  receiver_fails, IBV_WC_LOC_PROT_ERR },
	{ "receive outside its MR", receive_outside, receiver_fails,
	  IBV_WC_LOC_PROT_ERR },
	{ "receive below its MR", receive_below, receiver_fails,
	  IBV_WC_LOC_PROT_ERR },
	{ "receive whose address wraps around", receive_wrapping,
	  receiver_fails, IBV_WC_LOC_PROT_ERR },
	{ "wrong lkey, second element", second_lkey_wrong, sender_fails,
	  IBV_WC_LOC_PROT_ERR },
	{ "lkey of another PD, second element", second_lkey_of_other_pd,
	  sender_fails, IBV_WC_LOC_PROT_ERR },
	{ "across the local MR's end, second element", second_across_end,
	  sender_fails, IBV_WC_LOC_PROT_ERR },
	{ "receive with a wrong lkey, second element",
	  second_receive_wrong_lkey, receiver_fails, IBV_WC_LOC_PROT_ERR },
	{ "receive with the lkey of another PD, second element",
	  second_receive_of_other_pd, receiver_fails, IBV_WC_LOC_PROT_ERR },
	{ "receive outside its MR, second element", second_receive_outside,
	  receiver_fails, IBV_WC_LOC_PROT_ERR },
	{ "no receive", NULL, is_lost, IBV_WC_SUCCESS },
	{ "peer destroyed", NULL, peer_destroyed_lost, IBV_WC_SUCCESS },
	{ "peer in RESET", NULL, peer_reset_lost, IBV_WC_SUCCESS },
	{ "peer in INIT", NULL, peer_init_lost, IBV_WC_SUCCESS },
	{ "peer in ERR", NULL, peer_error_lost, IBV_WC_SUCCESS },
};

/* ------------------------------------------------------------------------------- */

static void datagrams_open(struct datagrams *d, struct setup *setup,
			   enum ibv_wr_opcode opcode, bool with_srq)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);

	memset(d, 0, sizeof(*d));
	d->setup = setup;
	d->opcode = opcode;
	endpoint_create(&d->a, &setup->a_dev, &options);
	if (with_srq)
		d->srq = srq_create(setup->b_dev.pd, RECEIVES, 2);
	options.srq = d->srq;
	endpoint_create(&d->b, &setup->b_dev, &options);
	pair_connect(&d->a, &d->b);
	d->b_number = d->b.qp->qp_num;
	d->to_b = address_handle(&setup->a_dev, &setup->b_dev.gid);
	d->ah = d->to_b;
	d->local[0] = region_sge(&setup->a_mem, TARGET_OFFSET, BAD_BYTES);
	d->local_count = 1;
	d->receive[0] = region_sge(&setup->b_mem, RECEIVE_OFFSET,
				   RECEIVE_BYTES);
	d->receive_count = 1;
}

static void datagrams_close(struct datagrams *d)
{
	pair_destroy(&d->a, &d->b);
	if (d->srq)
		tap_must(!ibv_destroy_srq(d->srq), "ibv_destroy_srq fails");
	if (d->other)
		tap_must(!ibv_destroy_ah(d->other), "ibv_destroy_ah fails");
	tap_must(!ibv_destroy_ah(d->to_b), "ibv_destroy_ah fails");
	free(d->copy);
	if (d->extra.map)
		region_destroy(&d->extra);
	if (d->pd)
		tap_must(!ibv_dealloc_pd(d->pd), "ibv_dealloc_pd fails");
}

static bool run_fault(struct setup *setup, enum ibv_wr_opcode opcode,
		      bool with_srq, unsigned int i)
{
	struct datagrams d;
	bool ok;

	datagrams_open(&d, setup, opcode, with_srq);
	if (faults[i].arrange)
		faults[i].arrange(&d);
	ok = faults[i].run(&d, faults[i].status) &&
	     events_none(setup->a_dev.ctx) && events_none(setup->b_dev.ctx);
	datagrams_close(&d);
	return ok;
}

static void run_faults(struct setup *setup, struct neighbours *neighbours,
		       enum ibv_wr_opcode opcode, bool with_srq)
{
	unsigned int i;

	for (i = 0; i < COUNT(faults); i++)
		if (!with_srq || faults[i].run != sender_fails)
			tap_ok(run_fault(setup, opcode, with_srq, i) &&
				       neighbours_work(neighbours),
			       "UD%s, %s: %s", with_srq ? " with an SRQ" : "",
			       opcode_name(opcode), faults[i].name);
}

void run_datagrams(struct setup *setup, struct neighbours *neighbours)
{
	static const enum ibv_wr_opcode sends[] = { IBV_WR_SEND,
						    IBV_WR_SEND_WITH_IMM };
	unsigned int i, with_srq;

	for (with_srq = 0; with_srq < 2; with_srq++)
		for (i = 0; i < COUNT(sends); i++)
			run_faults(setup, neighbours, sends[i], with_srq);
}
