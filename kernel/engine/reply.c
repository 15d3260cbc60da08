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
 * What is likely the queue pair has shown: each WRITE that was followed by a request of
 * this side at once counts for it, and each other one more against it. Most does one
 * that comes while requests of this side wait for answers: both sides write as they
 * like then, and delays would only make them take turns.
 */
#include <linux/minmax.h>
#include <linux/sched/clock.h>
#include <linux/time64.h>

#include <mic/fabric.h>

#include "../verbs/qp.h"
#include "reply.h"

/* What comes later than that is no reply. */
#define MIC_REPLY_NS		(200 * NSEC_PER_USEC)

/* A reply is likely when so many have come, less what others count. */
#define MIC_REPLY_LIKELY	4
#define MIC_REPLY_MAX		16

/* A late one, none, and a WRITE while answers are waited for. */
#define MIC_REPLY_LATE		1
#define MIC_REPLY_NONE		4
#define MIC_REPLY_BOTH		MIC_REPLY_MAX

static void mic_reply_missed(struct mic_resp *resp, u8 count)
{
	u8 replies = READ_ONCE(resp->replies);

	WRITE_ONCE(resp->replies, replies - min(replies, count));
}

/**
 * mic_reply_expect - a WRITE of another machine was carried out
 * @qp: queue pair that it came to; the caller holds &mic_resp.lock
 * @op: the WRITE's last segment; if it is likely to be replied to, says so
 *
 * Context: process context.
 */
void mic_reply_expect(struct mic_qp *qp, struct mic_op *op)
{
	struct mic_resp *resp = &qp->resp;

	if (atomic_read(&qp->req.unanswered))
		mic_reply_missed(resp, MIC_REPLY_BOTH);
	else if (READ_ONCE(resp->written))
		mic_reply_missed(resp, MIC_REPLY_NONE);
	WRITE_ONCE(resp->written, local_clock() ?: 1);
	op->reply_likely = READ_ONCE(resp->replies) >= MIC_REPLY_LIKELY;
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
	u64 written = READ_ONCE(resp->written);
	u8 replies = READ_ONCE(resp->replies);

	if (!written)
		return;
	WRITE_ONCE(resp->written, 0);
	if ((s64)(local_clock() - written) > (s64)MIC_REPLY_NS)
		mic_reply_missed(resp, MIC_REPLY_LATE);
	else if (replies < MIC_REPLY_MAX)
		WRITE_ONCE(resp->replies, replies + 1);
}
