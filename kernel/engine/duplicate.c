// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Requests that come again, because their answer got lost on the way from this
 * machine (IBA 9.7.5.1): what has been carried out is not done twice, and the
 * sender is told once more what came of it.
 *
 * Between queue pairs of one kernel no answer gets lost. So there a number that
 * has been is an error of who connected them, and stays without an answer.
 */
#include <linux/math64.h>
#include <linux/overflow.h>
#include <linux/slab.h>

#include "../verbs/dev.h"
#include "responder.h"

/* Half of the numbers are those of the past, IBA 9.7.4.1.2. */
#define MIC_PSN_PAST		BIT(23)

/* What an atomic found there before, and its request's number. */
struct mic_result {
	u64 value;
	u32 psn;
} __packed __aligned(4);

/**
 * struct mic_results - what the last atomics found
 * @count: how many there have been; the newest is at @count - 1
 * @size: as many as a requester may have on their way, max_dest_rd_atomic (IBA 9.4.5)
 * @result: each at its number modulo @size
 */
struct mic_results {
	u64 count;
	u32 size;
	struct mic_result result[];
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

static u64 mic_results_oldest(const struct mic_results *results)
{
	return results->count - min_t(u64, results->count, results->size);
}

static struct mic_result *mic_results_at(struct mic_results *results, u64 number)
{
	u32 at;

	div_u64_rem(number, results->size, &at);
	return &results->result[at];
}

/* The same with room for as many as a requester may have on their way now. */
static struct mic_results *mic_results_resized(struct mic_qp *qp,
					       struct mic_results *from, u32 size)
{
	struct mic_results *to;
	u64 i;

	to = mic_qp_zalloc(qp, struct_size(to, result, size));
	if (!to)
		return NULL;
	to->size = size;
	if (from) {
		to->count = from->count;
		for (i = mic_results_oldest(from); i < from->count; i++)
			*mic_results_at(to, i) = *mic_results_at(from, i);
	}
	return to;
}

/**
 * mic_dup_prepare - have a place for an atomic's result
 * @qp: queue pair; the caller holds &mic_resp.lock
 * @op: operation that was not carried out yet; with a limit of 0 it is refused before
 *
 * The limit can be raised while the queue pair is connected, in SQD; a place that it
 * had stays.
 *
 * Context: process context, may sleep.
 * Return: false if there is no memory.
 */
bool mic_dup_prepare(struct mic_qp *qp, const struct mic_op *op)
{
	const u32 size = qp->attr.max_dest_rd_atomic;
	struct mic_results *results = qp->resp.results;

	if (!mic_dup_keeps(op) || (results && results->size >= size))
		return true;
	results = mic_results_resized(qp, results, size);
	if (!results)
		return false;
	kfree(qp->resp.results);
	qp->resp.results = results;
	return true;
}

/**
 * mic_dup_save - remember an atomic's result
 * @qp: queue pair; the caller holds &mic_resp.lock and has prepared it
 * @op: operation that was carried out
 */
void mic_dup_save(struct mic_qp *qp, const struct mic_op *op)
{
	struct mic_results *results = qp->resp.results;
	struct mic_result *result;

	if (!mic_dup_keeps(op))
		return;
	result = mic_results_at(results, results->count++);
	result->value = op->result;
	result->psn = op->psn;
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
	struct mic_results *results = qp->resp.results;
	const struct mic_result *result;
	u64 i, oldest;

	if (!results)
		return MIC_ACK_NONE;
	oldest = mic_results_oldest(results);
	for (i = results->count; i > oldest; i--) {
		result = mic_results_at(results, i - 1);
		if (result->psn != op->psn)
			continue;
		op->result = result->value;
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
