// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Requests that come again, because their answer got lost on the way from this
 * machine (IBA 9.7.5.1): what has been carried out is not done twice, and the
 * sender is told once more what came of it.
 *
 * Between queue pairs of one kernel no answer gets lost. So there a number that
 * has been is an error of who connected them, and stays without an answer.
 */
#include <linux/slab.h>

#include "../verbs/dev.h"
#include "responder.h"

/* Half of the numbers are those of the past, IBA 9.7.4.1.2. */
#define MIC_PSN_PAST		BIT(23)

/**
 * struct mic_results - what the last atomics found: a requester has no more on their way
 * @count: how many there have been; the newest is at @count - 1
 * @value: before the operation
 * @psn: the request's number
 */
struct mic_results {
	u64 count;
	u64 value[MIC_MAX_RD_ATOM];
	u32 psn[MIC_MAX_RD_ATOM];
};

/* Atomic writes find nothing, and a requester counts no READs for them. */
static bool mic_dup_keeps(const struct mic_op *op)
{
	return mic_node_is_remote(op->src) && op->code != MIC_OP_ATOMIC_WRITE;
}

/**
 * mic_dup_is_one - whether a request was carried out before
 * @qp: queue pair of a reliable service; the caller holds &mic_resp.lock
 * @op: segment from the QP's peer
 */
bool mic_dup_is_one(const struct mic_qp *qp, const struct mic_op *op)
{
	u32 back = (qp->resp.epsn - op->psn) & 0xffffff;

	return mic_node_is_remote(op->src) && back &&
	       back <= qp->resp.past && op->npsn <= back;
}

/**
 * mic_dup_note - a message was carried out
 * @qp: queue pair; the caller holds &mic_resp.lock
 * @op: its last segment
 */
void mic_dup_note(struct mic_qp *qp, const struct mic_op *op)
{
	qp->resp.past = min_t(u32, qp->resp.past + op->npsn, MIC_PSN_PAST);
}

/**
 * mic_dup_prepare - have a place for an atomic's result
 * @qp: queue pair; the caller holds &mic_resp.lock
 * @op: operation that was not carried out yet
 *
 * Context: process context, may sleep.
 * Return: false if there is no memory.
 */
bool mic_dup_prepare(struct mic_qp *qp, const struct mic_op *op)
{
	struct mic_resp *resp = &qp->resp;

	if (!mic_dup_keeps(op))
		return true;
	if (!resp->results)
		resp->results = mic_qp_zalloc(qp, sizeof(*resp->results));
	return resp->results;
}

/**
 * mic_dup_save - remember an atomic's result
 * @qp: queue pair; the caller holds &mic_resp.lock and has prepared it
 * @op: operation that was carried out
 */
void mic_dup_save(struct mic_qp *qp, const struct mic_op *op)
{
	struct mic_results *results = qp->resp.results;
	u32 at;

	if (!mic_dup_keeps(op))
		return;
	at = results->count++ % MIC_MAX_RD_ATOM;
	results->value[at] = op->result;
	results->psn[at] = op->psn;
}

/**
 * mic_dup_result - the result of an atomic that comes again
 * @qp: queue pair; the caller holds &mic_resp.lock
 * @op: operation; its result is set
 *
 * Return: MIC_ACK_OK, or MIC_ACK_NONE if there was no such operation, or one that
 * the sender can't be waiting for.
 */
enum mic_ack mic_dup_result(struct mic_qp *qp, struct mic_op *op)
{
	const struct mic_results *results = qp->resp.results;
	u64 i, oldest;
	u32 at;

	if (!results)
		return MIC_ACK_NONE;
	i = results->count;
	oldest = i > MIC_MAX_RD_ATOM ? i - MIC_MAX_RD_ATOM : 0;
	while (i-- > oldest) {
		at = i % MIC_MAX_RD_ATOM;
		if (results->psn[at] != op->psn)
			continue;
		op->result = results->value[at];
		return MIC_ACK_OK;
	}
	return MIC_ACK_NONE;
}

/**
 * mic_dup_forget - a connection is over
 * @qp: queue pair; nothing is carried out there
 */
void mic_dup_forget(struct mic_qp *qp)
{
	qp->resp.past = 0;
	kfree(qp->resp.results);
	qp->resp.results = NULL;
}
