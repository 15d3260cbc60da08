// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What came of a fault: completions, states, events and memory on both sides.
 */
#include <inttypes.h>

#include "event.h"
#include "faults.h"
#include "tap.h"
#include "work.h"

const struct outcome *fault_outcome(const struct fault *fault,
				    enum service service)
{
	return service_is_reliable(service) ? &fault->reliable :
					      &fault->unreliable;
}

static bool is_in(const struct endpoint *ep, enum ibv_qp_state expected,
		  const char *who)
{
	enum ibv_qp_state state = endpoint_state(ep);

	return check(state == expected, "the %s is in %s instead of %s", who,
		     state_name(state), state_name(expected));
}

/* --- the requester ---------------------------------------------------------- */

static bool check_requester(struct scene *scene, const struct outcome *outcome)
{
	struct ibv_cq *cq = scene->a.send_cq;
	bool failed = outcome->status != IBV_WC_SUCCESS;
	enum ibv_qp_state state = service_is_reliable(scene->service) ?
					  IBV_QPS_ERR :
					  IBV_QPS_SQE;

	if (!cq_expect(cq, BAD_ID, outcome->status))
		return false;
	/* The WRITE behind it is unsignalled: it completes only if flushed. */
	if (failed && !cq_expect(cq, LATE_WRITE_ID, IBV_WC_WR_FLUSH_ERR))
		return false;
	return cq_expect(cq, LATE_SEND_ID,
			 failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS) &&
	       is_in(&scene->a, failed ? state : IBV_QPS_RTS, "requester") &&
	       cq_stays_empty(cq, 0);
}

/* --- the responder ---------------------------------------------------------- */

static bool is_first_end(const struct ibv_wc *wc, enum receive_end end)
{
	switch (end) {
	case RECEIVE_FLUSHED:
		return wc->status == IBV_WC_WR_FLUSH_ERR;
	case RECEIVE_TOO_SHORT:
		return wc->status == IBV_WC_LOC_LEN_ERR;
	case RECEIVE_PROTECTED:
		return wc->status == IBV_WC_LOC_PROT_ERR;
	case RECEIVE_REFUSED:
		return wc->status == IBV_WC_LOC_ACCESS_ERR;
	default:
		return false;
	}
}

static bool check_first_receive(struct scene *scene, enum receive_end end)
{
	struct ibv_wc wc;

	return cq_wait(scene->recv_cq, &wc) &&
	       check(wc.wr_id == FIRST_RECEIVE_ID && is_first_end(&wc, end),
		     "the first receive: wr_id %" PRIu64 ", '%s'", wc.wr_id,
		     ibv_wc_status_str(wc.status));
}

/* Those in a shared queue wait for other queue pairs. */
static bool check_flush(struct scene *scene, int from)
{
	return (service_is_shared(scene->service) ||
		cq_expect_range(scene->recv_cq, FIRST_RECEIVE_ID + from,
				FIRST_RECEIVE_ID + scene->receives,
				IBV_WC_WR_FLUSH_ERR)) &&
	       cq_stays_empty(scene->recv_cq, 0);
}

static bool check_failed_responder(struct scene *scene,
				   const struct outcome *outcome)
{
	bool took = outcome->receive != RECEIVE_FLUSHED;

	return (!took || check_first_receive(scene, outcome->receive)) &&
	       check_flush(scene, took) &&
	       is_in(&scene->b, IBV_QPS_ERR, "responder");
}

/* What arrives does so in the order of the receives. */
static bool check_arrivals(struct scene *scene, const struct outcome *outcome)
{
	int count = 0;

	if (outcome->status == IBV_WC_SUCCESS && scene->receives)
		count = 1 + (outcome->receive == RECEIVE_STAYS &&
			     opcode_takes_recv(scene->opcode));
	return cq_expect_range(scene->recv_cq, FIRST_RECEIVE_ID,
			       FIRST_RECEIVE_ID + count, IBV_WC_SUCCESS) &&
	       cq_stays_empty(scene->recv_cq, 0) &&
	       is_in(&scene->b, IBV_QPS_RTS, "responder");
}

/* Of a shared queue the receive that is under way is flushed with the queue pair. */
static bool check_under_way(struct scene *scene)
{
	int count = scene->message && SENDS & BIT(scene->opcode) &&
		    service_is_shared(scene->service);

	return cq_expect_range(scene->recv_cq, FIRST_RECEIVE_ID,
			       FIRST_RECEIVE_ID + count, IBV_WC_WR_FLUSH_ERR);
}

/* It did not take part, or not to the end. */
static bool check_untouched(struct scene *scene)
{
	if (!scene->b.qp)
		return cq_stays_empty(scene->recv_cq, 0);
	if (scene->peer_state == IBV_QPS_ERR &&
	    (!check_under_way(scene) || !check_flush(scene, 0)))
		return false;
	return cq_stays_empty(scene->recv_cq, 0) &&
	       is_in(&scene->b, scene->peer_state, "responder");
}

static bool check_responder(struct scene *scene, const struct outcome *outcome)
{
	switch (outcome->receive) {
	case RECEIVE_STAYS:
	case RECEIVE_NEXT:
		return check_arrivals(scene, outcome);
	case RECEIVE_UNTOUCHED:
		return check_untouched(scene);
	default:
		return check_failed_responder(scene, outcome);
	}
}

/* --- events ----------------------------------------------------------------- */

static bool ends_in_error(const struct scene *scene)
{
	return scene->b.qp && endpoint_state(&scene->b) == IBV_QPS_ERR;
}

static bool check_events(struct scene *scene, const struct outcome *outcome)
{
	struct ibv_context *a = scene->setup->a_dev.ctx;
	struct ibv_context *b = scene->setup->b_dev.ctx;
	bool last = scene->srq && scene->service != OVER_XRC &&
		    ends_in_error(scene);

	if (outcome->event >= 0 &&
	    !event_expect(b, outcome->event, scene->b.qp))
		return false;
	if (last &&
	    !event_expect(b, IBV_EVENT_QP_LAST_WQE_REACHED, scene->b.qp))
		return false;
	return events_none(b) && events_none(a);
}

/* --- memory ----------------------------------------------------------------- */

static bool holds(const struct region *region, size_t from, size_t to,
		  uint8_t byte)
{
	size_t i;

	for (i = from; i < to; i++)
		if (region->addr[i] != byte)
			return check(false,
				     "byte %zu is 0x%02x instead of 0x%02x", i,
				     region->addr[i], byte);
	return true;
}

/* A request that failed or got lost moved nothing, but perhaps into its receive. */
static bool check_target(struct scene *scene, const struct outcome *outcome)
{
	if (outcome->status == IBV_WC_SUCCESS &&
	    outcome->receive == RECEIVE_STAYS)
		return true;
	return holds(&scene->setup->a_mem, 0, GOOD_OFFSET, A_BYTE) &&
	       holds(&scene->setup->b_mem, 0, LATE_OFFSET, B_BYTE) &&
	       (!scene->extra.map ||
		holds(&scene->extra, 0, REGION_BYTES, EXTRA_BYTE));
}

/* What was posted behind it arrives if both sides go on, or not at all. */
static bool check_late(struct scene *scene, const struct outcome *outcome)
{
	const struct region *to = &scene->setup->b_mem;
	bool late = outcome->status == IBV_WC_SUCCESS &&
		    (outcome->receive == RECEIVE_STAYS ||
		     outcome->receive == RECEIVE_NEXT);
	/* the fault may be that none of the peer's memory is written */
	bool written = late &&
		       scene->b.options.access & IBV_ACCESS_REMOTE_WRITE;
	bool received = late || outcome->receive == RECEIVE_REFUSED;

	return holds(to, LATE_OFFSET, LATE_OFFSET + BAD_BYTES,
		     written ? A_BYTE : B_BYTE) &&
	       holds(to, LATE_OFFSET + BAD_BYTES,
		     received ? RECEIVE_OFFSET : GOOD_OFFSET, B_BYTE);
}

/* --- afterwards ------------------------------------------------------------- */

/* Only the send queue has stopped: a message from the other side is received. */
static bool check_receives(struct scene *scene)
{
	struct region *a_mem = &scene->setup->a_mem;
	struct ibv_sge to = region_sge(a_mem, GOOD_OFFSET, BAD_BYTES);
	struct ibv_sge from = region_sge(&scene->setup->b_mem, GOOD_OFFSET,
					 BAD_BYTES);
	struct ibv_send_wr wr = send_wr(GOOD_ID, IBV_WR_SEND, &from, 1);

	post_recv(&scene->a, GOOD_ID, &to, 1);
	post_send(&scene->b, &wr);
	return cq_expect(scene->b.send_cq, GOOD_ID, IBV_WC_SUCCESS) &&
	       cq_expect(scene->a.recv_cq, GOOD_ID, IBV_WC_SUCCESS) &&
	       holds(a_mem, GOOD_OFFSET, GOOD_OFFSET + BAD_BYTES, B_BYTE) &&
	       is_in(&scene->a, IBV_QPS_SQE, "requester");
}

/* From SQE a queue pair can go on, and receives of neither side have ended. */
static bool check_goes_on(struct scene *scene)
{
	struct ibv_send_wr wr = scene_send(scene, GOOD_ID, IBV_WR_SEND, NULL);

	if (endpoint_state(&scene->a) != IBV_QPS_SQE)
		return true;
	if (!check_receives(scene))
		return false;
	endpoint_go(&scene->a, IBV_QPS_RTS);
	post_send(&scene->a, &wr);
	return cq_expect(scene->a.send_cq, GOOD_ID, IBV_WC_SUCCESS) &&
	       cq_expect(scene->recv_cq, FIRST_RECEIVE_ID, IBV_WC_SUCCESS);
}

bool check_outcome(struct scene *scene, const struct fault *fault)
{
	const struct outcome *outcome = fault_outcome(fault, scene->service);
	bool ok;

	ok = check_requester(scene, outcome) &&
	     check_responder(scene, outcome) && check_target(scene, outcome) &&
	     check_late(scene, outcome);
	ok = check_events(scene, outcome) && ok;
	return ok && check_goes_on(scene);
}
