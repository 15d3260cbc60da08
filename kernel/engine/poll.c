// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Polling send queues.
 *
 * With the module's parameter poll_us a QP whose doorbell rings is polled from
 * then on: while it is, need_kick says so, and who posts need not ring again.
 * When nothing new has come for that time the QP goes to sleep as it does
 * without polling; when all of them have, so does the thread.
 *
 * The thread does for a QP what its doorbell does, no more: it kicks it if the
 * producer index has changed. Everything else has its own ways to wake a QP up.
 * Whoever ends the polling of a QP clears the flag first and kicks it then, so
 * the last run of the engine finds the flag cleared and lets need_kick ask for
 * the doorbell. tests/doorbell_model.py tries all the orders in which this can
 * happen.
 */
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/time64.h>

#include "../verbs/dev.h"
#include "engine.h"
#include "poll.h"

#define MIC_POLL_US_MAX	10000000

static unsigned int mic_poll_us;

static int mic_poll_us_set(const char *value, const struct kernel_param *param)
{
	return param_set_uint_minmax(value, param, 0, MIC_POLL_US_MAX);
}

static const struct kernel_param_ops mic_poll_us_ops = {
	.set = mic_poll_us_set,
	.get = param_get_uint,
};
module_param_cb(poll_us, &mic_poll_us_ops, &mic_poll_us, 0644);
MODULE_PARM_DESC(poll_us, "Microseconds to poll a send queue for more after a doorbell, up to 10000000 (0: not at all)");

/* Off the list; the caller drops the reference when it has let go of the lock. */
static void mic_poll_unlink(struct mic_poller *poller, struct mic_qp *qp)
{
	list_del_init(&qp->req.poll_entry);
	poller->count--;
	WRITE_ONCE(qp->req.polled, false);
}

static bool mic_poll_has_news(struct mic_req *req, u64 now)
{
	/* acquire: the index, then the kick, as a doorbell comes after it */
	u32 producer = smp_load_acquire(&req->ring.ctl->producer);

	if (producer == req->poll_seen)
		return false;
	req->poll_seen = producer;
	req->poll_since = now;
	return true;
}

static bool mic_poll_is_over(const struct mic_qp *qp, u64 now)
{
	s64 limit = (s64)READ_ONCE(mic_poll_us) * NSEC_PER_USEC;

	/* it may have been added after @now */
	return READ_ONCE(qp->state) != IB_QPS_RTS ||
	       (s64)(now - qp->req.poll_since) >= limit;
}

/* The next QP to kick among @n that come next, with a reference, or NULL. */
static struct mic_qp *mic_poll_next(struct mic_poller *poller, u32 *n)
{
	u64 now = local_clock();
	struct mic_qp *qp;

	for (; *n && poller->count; --*n) {
		cond_resched_lock(&poller->lock);
		qp = list_first_entry_or_null(&poller->qps, struct mic_qp,
					      req.poll_entry);
		if (!qp)
			break;
		list_move_tail(&qp->req.poll_entry, &poller->qps);
		if (mic_poll_has_news(&qp->req, now)) {
			refcount_inc(&qp->ref);
			return qp;
		}
		if (mic_poll_is_over(qp, now)) {
			mic_poll_unlink(poller, qp);
			return qp;	/* with the list's reference */
		}
	}
	return NULL;
}

/* Look once at each QP. */
static void mic_poll_round(struct mic_poller *poller)
{
	u32 n = READ_ONCE(poller->count);
	struct mic_qp *qp;

	for (;;) {
		spin_lock(&poller->lock);
		qp = mic_poll_next(poller, &n);
		spin_unlock(&poller->lock);
		if (!qp)
			return;
		mic_count(qp->dev, MIC_CNT_POLL);
		mic_qp_kick(qp);
		mic_qp_put(qp);
		cond_resched();
	}
}

static int mic_poller_main(void *data)
{
	struct mic_poller *poller = data;

	while (!kthread_should_stop()) {
		wait_event_idle(poller->wait,
				READ_ONCE(poller->count) ||
				kthread_should_stop());
		mic_poll_round(poller);
		cpu_relax();
		cond_resched();
	}
	return 0;
}

/**
 * mic_poll_add - poll a QP, if queue pairs are to be polled
 * @qp: queue pair whose doorbell rings; the caller kicks it afterwards
 *
 * Context: process context.
 */
void mic_poll_add(struct mic_qp *qp)
{
	struct mic_poller *poller = &qp->dev->poller;
	struct mic_req *req = &qp->req;
	bool added = false;

	if (!READ_ONCE(mic_poll_us) || READ_ONCE(req->polled) ||
	    !req->ring.ctl)
		return;
	spin_lock(&poller->lock);
	if (!req->polled && READ_ONCE(qp->state) == IB_QPS_RTS) {
		refcount_inc(&qp->ref);
		req->poll_seen = READ_ONCE(req->ring.ctl->producer);
		req->poll_since = local_clock();
		WRITE_ONCE(req->polled, true);
		list_add_tail(&req->poll_entry, &poller->qps);
		added = !poller->count++;
	}
	spin_unlock(&poller->lock);
	if (added)
		wake_up(&poller->wait);
}

/**
 * mic_poll_del - poll a QP no more
 * @qp: queue pair; the caller has a reference, and kicks it afterwards if it was
 *	polled, unless it is going away
 *
 * Context: process context; the queue pair's locks may be held.
 *
 * Return: whether it was polled. Who posts does not ring then until the engine
 * has run again.
 */
bool mic_poll_del(struct mic_qp *qp)
{
	struct mic_poller *poller = &qp->dev->poller;
	bool polled;

	spin_lock(&poller->lock);
	polled = qp->req.polled;
	if (polled)
		mic_poll_unlink(poller, qp);
	spin_unlock(&poller->lock);
	if (polled)
		mic_qp_put(qp);
	return polled;
}

/**
 * mic_poller_start - make the thread of a device
 * @dev: device that has its netdev, and no queue pairs yet
 *
 * Return: 0 or an error.
 */
int mic_poller_start(struct mic_dev *dev)
{
	struct mic_poller *poller = &dev->poller;
	struct task_struct *task;

	init_waitqueue_head(&poller->wait);
	spin_lock_init(&poller->lock);
	INIT_LIST_HEAD(&poller->qps);
	task = kthread_run(mic_poller_main, poller, "mic_poll/%s",
			   dev->ndev->name);
	if (IS_ERR(task))
		return PTR_ERR(task);
	poller->task = task;
	return 0;
}

/**
 * mic_poller_stop - end the thread of a device
 * @dev: device without queue pairs
 */
void mic_poller_stop(struct mic_dev *dev)
{
	kthread_stop(dev->poller.task);
	WARN_ON(dev->poller.count);
}
