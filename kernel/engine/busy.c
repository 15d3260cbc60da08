// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Busy polling: programs that find a completion queue empty look for what other
 * machines have sent.
 *
 * Who does may receive the answers to requests of his own. He acts upon them
 * himself then, instead of waking the worker of the queue pair.
 */
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include <mic/fabric.h>

#include "../verbs/dev.h"
#include "../verbs/uctx.h"
#include "busy.h"
#include "engine.h"

/* QPs that one call runs. */
#define MIC_BUSY_RUNS	64

/*
 * While somebody receives, all others wait: nobody does who may have to wait for
 * his processor longer than others.
 */
static bool mic_busy_may_poll(void)
{
	return current->policy != SCHED_IDLE && task_nice(current) <= 0;
}

/**
 * mic_busy_init - nobody polls
 * @busy: state of a user context
 */
void mic_busy_init(struct mic_busy *busy)
{
	spin_lock_init(&busy->lock);
	INIT_LIST_HEAD(&busy->answered);
}

/**
 * mic_qp_answered - an answer to a QP is there: have somebody act on it
 * @qp: queue pair; the caller has a reference
 *
 * Context: process context, also atomic.
 */
void mic_qp_answered(struct mic_qp *qp)
{
	struct mic_busy *busy = mic_uctx_busy(qp->uctx);
	bool taken = false;

	if (busy) {
		spin_lock(&busy->lock);
		taken = busy->pollers;
		if (taken && list_empty(&qp->req.answered_entry)) {
			refcount_inc(&qp->ref);
			list_add_tail(&qp->req.answered_entry, &busy->answered);
		}
		spin_unlock(&busy->lock);
	}
	if (!taken)
		mic_qp_kick_deferred(qp);
}

/* The next QP with answers, with its reference, or NULL. */
static struct mic_qp *mic_busy_next(struct mic_busy *busy)
{
	struct mic_qp *qp;

	spin_lock(&busy->lock);
	qp = list_first_entry_or_null(&busy->answered, struct mic_qp,
				      req.answered_entry);
	if (qp)
		list_del_init(&qp->req.answered_entry);
	spin_unlock(&busy->lock);
	return qp;
}

/* What nobody else who polls is left for is the workers'. */
static void mic_busy_leave(struct mic_busy *busy)
{
	struct mic_qp *qp, *next;

	spin_lock(&busy->lock);
	if (!--busy->pollers) {
		list_for_each_entry_safe(qp, next, &busy->answered,
					 req.answered_entry) {
			list_del_init(&qp->req.answered_entry);
			mic_qp_kick_deferred(qp);
			mic_qp_put(qp);
		}
	}
	spin_unlock(&busy->lock);
}

/**
 * mic_busy_poll - receive what other machines have sent
 * @busy: state of the caller's context
 *
 * Context: process context, may sleep.
 * Return: 0 if there was nothing, or it is left to others.
 */
int mic_busy_poll(struct mic_busy *busy)
{
	struct mic_qp *qp;
	int n, runs = 0;

	if (!mic_busy_may_poll())
		return 0;
	spin_lock(&busy->lock);
	busy->pollers++;
	spin_unlock(&busy->lock);
	n = mic_fabric_poll();
	while (runs < MIC_BUSY_RUNS && !signal_pending(current) &&
	       (qp = mic_busy_next(busy))) {
		mic_qp_kick(qp);
		mic_qp_put(qp);
		runs++;
		cond_resched();
	}
	mic_busy_leave(busy);
	return n + runs;
}
