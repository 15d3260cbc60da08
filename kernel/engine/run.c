// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Who runs a QP, and when.
 *
 * Whoever has news for a QP sets MIC_REQ_PENDING and tries the lock. Whoever
 * holds the lock looks at the bit again after dropping it. So no news is lost,
 * and nobody waits for another's copy to end.
 */
#include <linux/hrtimer.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>

#include "../verbs/dev.h"
#include "engine.h"

/*
 * Nothing in here waits for storage to give memory back: that may be storage on the
 * other side of a queue pair whose locks are held.
 */
static enum mic_run mic_qp_run(struct mic_qp *qp, struct mic_budget *budget)
{
	unsigned int noio = memalloc_noio_save();
	enum mic_run run;

	mic_qp_count(qp, MIC_CNT_RUN);
	run = mic_req_run(qp, budget);
	if (run == MIC_RUN_IDLE && !list_empty(&qp->req.spare))
		mic_window_idle(qp);
	if (READ_ONCE(qp->state) == IB_QPS_ERR &&
	    mic_resp_flush(qp, budget) == MIC_RUN_MORE)
		run = MIC_RUN_MORE;
	if (run == MIC_RUN_MORE)
		mic_qp_count(qp, MIC_CNT_BUDGET);
	memalloc_noio_restore(noio);
	return run;
}

/**
 * mic_qp_kick - there is news for a QP: act on it now
 * @qp: queue pair
 *
 * Runs the queues within the budget, unless someone does already; what is left
 * goes to the worker. However fast others have news, or a timer that is shorter
 * than a run, the caller gets away with one budget.
 *
 * Context: process context, may sleep.
 */
void mic_qp_kick(struct mic_qp *qp)
{
	struct mic_budget budget = {
		.wqes = MIC_BUDGET_WQES,
		.bytes = MIC_BUDGET_BYTES,
	};
	struct mic_req *req = &qp->req;
	enum mic_run run;

	set_bit(MIC_REQ_PENDING, &req->flags);
	smp_mb__after_atomic();	/* the bit, then try the lock */
	while (test_bit(MIC_REQ_PENDING, &req->flags) &&
	       mutex_trylock(&req->lock)) {
		clear_bit(MIC_REQ_PENDING, &req->flags);
		smp_mb__after_atomic();	/* the bit, then look for work */
		run = mic_qp_run(qp, &budget);
		mutex_unlock(&req->lock);
		smp_mb();	/* unlock, then look at the bit again */
		if (run == MIC_RUN_MORE) {
			mic_qp_kick_deferred(qp);
			return;
		}
		budget.wqes--;	/* looking again is work, too */
	}
}

/**
 * mic_qp_kick_deferred - there is news for a QP: have the worker act on it
 * @qp: queue pair
 *
 * Context: any.
 */
void mic_qp_kick_deferred(struct mic_qp *qp)
{
	queue_work(qp->user ? mic_user_wq : mic_wq, &qp->work);
}

/* The worker. */
void mic_qp_work(struct work_struct *work)
{
	struct mic_qp *qp = container_of(work, struct mic_qp, work);

	mic_count(qp->dev, MIC_CNT_RUN_WORKER);
	mic_qp_kick(qp);
}

/**
 * mic_qp_lock - keep the engine away from a QP
 * @qp: queue pair
 *
 * On return neither its requester nor its responder runs.
 */
void mic_qp_lock(struct mic_qp *qp)
{
	mutex_lock(&qp->req.lock);
	mutex_lock(&qp->resp.lock);
}

/**
 * mic_qp_unlock - let the engine run again
 * @qp: queue pair
 * @now: the caller does what arrived meanwhile and what mic_qp_news() told of;
 *	otherwise the worker does
 */
void mic_qp_unlock(struct mic_qp *qp, bool now)
{
	mutex_unlock(&qp->resp.lock);
	mutex_unlock(&qp->req.lock);
	smp_mb();	/* unlock, then look at the bit */
	if (!test_bit(MIC_REQ_PENDING, &qp->req.flags))
		return;
	if (now)
		mic_qp_kick(qp);
	else
		mic_qp_kick_deferred(qp);
}

/**
 * mic_qp_news - there is news for a QP: act on it when it is unlocked
 * @qp: queue pair; the caller holds its locks
 */
void mic_qp_news(struct mic_qp *qp)
{
	lockdep_assert_held(&qp->req.lock);
	set_bit(MIC_REQ_PENDING, &qp->req.flags);
}

/* A retry interval is over, or spare room has been kept long enough. */
enum hrtimer_restart mic_req_timeout(struct hrtimer *timer)
{
	struct mic_req *req = container_of(timer, struct mic_req, timer);

	mic_qp_kick_deferred(container_of(req, struct mic_qp, req));
	return HRTIMER_NORESTART;
}
