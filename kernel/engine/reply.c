// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Programs that reply at once to each WRITE of another machine.
 *
 * Who looks for a WRITE in his memory, and polls no queue, has to be interrupted for
 * it. But who waits for an acknowledgment polls a completion queue and receives by
 * himself. So the acknowledgment of a WRITE that is likely to be replied to may go
 * with the reply (IBA 9.7.5.1.2 leaves it to the responder when it acknowledges):
 * the other side polls until that is there, and nobody is interrupted.
 *
 * What is likely the queue pair has shown. A WRITE that is followed by a request of
 * this side, soon enough for an acknowledgment to wait for it, counts one for it. One
 * that is followed by another request of that side counts as many against it as there
 * are: who asks for more has not waited for a reply, but perhaps for the
 * acknowledgment. So does half of them a reply that is too late, or a WRITE that comes
 * while requests of this side wait for answers: both sides write as they like then, and
 * delays would only make them take turns. (Now and then one looks like it because its
 * acknowledgment is on its way.)
 *
 * How many are needed depends on what waiting has cost. An acknowledgment may wait for
 * long, because the reply may have to wait for a processor; but if that was in vain, twice
 * as many replies as before come first. So a program that replies to some WRITEs and not
 * to others loses the delay for one in fifty at most, whichever they are: five times, for
 * 8, 16, 32, 64 and 128 replies, until all is forgotten.
 */
#include <linux/minmax.h>
#include <linux/sched/clock.h>

#include <mic/fabric.h>

#include "../verbs/qp.h"
#include "reply.h"

/*
 * A reply is likely when so many have come, less what others count; twice as many for
 * each time that none came then. After the most that count what was is forgotten.
 */
#define MIC_REPLY_LIKELY	4
#define MIC_REPLY_MISSES	5
#define MIC_REPLY_MAX		(MIC_REPLY_LIKELY << MIC_REPLY_MISSES)

static bool mic_reply_is_likely(const struct mic_resp *resp)
{
	return READ_ONCE(resp->replies) >=
	       MIC_REPLY_LIKELY << READ_ONCE(resp->reply_misses);
}

static void mic_reply_halve(struct mic_resp *resp)
{
	WRITE_ONCE(resp->replies, READ_ONCE(resp->replies) / 2);
}

/* Nothing has been sent since the last WRITE. */
static void mic_reply_missed(struct mic_resp *resp)
{
	if (!READ_ONCE(resp->reply_by))
		return;
	if (mic_reply_is_likely(resp))
		WRITE_ONCE(resp->reply_misses,
			   min(READ_ONCE(resp->reply_misses) + 1,
			       MIC_REPLY_MISSES));
	WRITE_ONCE(resp->reply_by, 0);
	WRITE_ONCE(resp->replies, 0);
}

static void mic_reply_came(struct mic_resp *resp)
{
	int replies = min(READ_ONCE(resp->replies) + 1, MIC_REPLY_MAX);

	if (replies == MIC_REPLY_MAX)
		WRITE_ONCE(resp->reply_misses, 0);
	WRITE_ONCE(resp->replies, replies);
}

/* Does nothing but the memory tell that it was there? */
static bool mic_reply_is_possible(const struct mic_op *op)
{
	return op->reply_ns && op->code == MIC_OP_WRITE &&
	       op->service == IB_QPT_RC && !(op->flags & MIC_OP_IMM);
}

/**
 * mic_reply_expect - a request of another machine was carried out
 * @qp: queue pair that it came to; the caller holds &mic_resp.lock
 * @op: the request's last segment; if it is likely to be replied to, says so
 *
 * Context: process context.
 */
void mic_reply_expect(struct mic_qp *qp, struct mic_op *op)
{
	struct mic_resp *resp = &qp->resp;

	mic_reply_missed(resp);
	if (!mic_reply_is_possible(op))
		return;
	if (atomic_read(&qp->req.unanswered))
		mic_reply_halve(resp);
	WRITE_ONCE(resp->reply_by, (local_clock() + op->reply_ns) ?: 1);
	op->reply_likely = mic_reply_is_likely(resp);
}

/**
 * mic_reply_note - a request to another machine is about to leave
 * @qp: queue pair; the caller holds &mic_req.lock
 *
 * Context: process context. The responder may run meanwhile: then the one or the
 * other WRITE counts for what it is not, which costs a delay at most.
 */
void mic_reply_note(struct mic_qp *qp)
{
	struct mic_resp *resp = &qp->resp;
	u64 by = READ_ONCE(resp->reply_by);

	if (!by)
		return;
	WRITE_ONCE(resp->reply_by, 0);
	if ((s64)(local_clock() - by) > 0)
		mic_reply_halve(resp);
	else
		mic_reply_came(resp);
}

/**
 * mic_reply_forget - a queue pair has shown nothing yet
 * @qp: queue pair; the caller holds its locks
 */
void mic_reply_forget(struct mic_qp *qp)
{
	qp->resp.reply_by = 0;
	qp->resp.replies = 0;
	qp->resp.reply_misses = 0;
}
