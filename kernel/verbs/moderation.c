// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Completion events, and their moderation: one event for several completions,
 * or for those of a period.
 *
 * There are no more events that were not read than MIC_UNREAD_MAX for each queue
 * (unread.c). One that is not raised therefore is no wake-up lost: there are others of
 * that queue that its process has still to read, and who has read one polls the queue
 * before it waits for the next. The queue stays armed.
 */
#include <linux/hrtimer.h>
#include <linux/list.h>

#include "cq.h"
#include "dev.h"
#include "unread.h"

/* How struct ib_ucq_object begins: @comp_list has the completion events. */
struct mic_ucq_object {
	struct mic_uevent_object uevent;
	struct list_head comp_list;
};

/* NULL for kernel consumers, without a channel, and if ib_core has changed it. */
static const struct list_head *mic_cq_unread_list(const struct ib_cq *ibcq)
{
	const struct mic_ucq_object *uobj = (const void *)ibcq->uobject;

	if (!uobj || !ibcq->cq_context)
		return NULL;
	return mic_unread_is_list(&uobj->uevent.event_list) &&
			       mic_unread_is_list(&uobj->comp_list) ?
		       &uobj->comp_list :
		       NULL;
}

/* The caller has a barrier between the element and this. */
static bool mic_cq_may_raise(struct mic_cq *cq)
{
	if (!cq->unread_list)
		return true;
	/* without the list's lock: what is read right now counts the next time */
	if (list_empty(cq->unread_list))
		cq->unread = 0;
	return cq->unread < MIC_UNREAD_MAX;
}

static bool mic_cq_disarm(struct mic_cq *cq)
{
	cq->moderated = 0;
	if (!mic_cq_may_raise(cq) ||
	    xchg(&cq->ctl->arm, MIC_CQ_ARM_NONE) == MIC_CQ_ARM_NONE)
		return false;
	cq->unread++;
	return true;
}

/* Whether the event has to wait for more completions, or the timer. */
static bool mic_cq_hold_back(struct mic_cq *cq)
{
	if (!cq->moderate_count || !cq->moderate_us)
		return false;
	if (++cq->moderated >= cq->moderate_count)
		return false;
	if (cq->moderated == 1)
		hrtimer_start(&cq->timer, ns_to_ktime(cq->moderate_us * NSEC_PER_USEC),
			      HRTIMER_MODE_REL_SOFT);
	return true;
}

/**
 * mic_cq_fire - whether the element just published raises the event
 * @cq: queue; the caller holds its lock
 * @solicited: the element counts as solicited
 *
 * The queue is disarmed if so. Pairs with the barrier between arming and
 * polling, see mic-abi.h, and with that between reading an event and polling.
 *
 * Return: true if the caller has to call mic_cq_event().
 */
bool mic_cq_fire(struct mic_cq *cq, bool solicited)
{
	u32 arm;

	lockdep_assert_held(&cq->lock);
	smp_mb();	/* the element, then look whether it is waited for */
	arm = READ_ONCE(cq->ctl->arm);
	if (arm == MIC_CQ_ARM_NONE)
		return false;
	if (arm == MIC_CQ_ARM_SOLICITED && !solicited)
		return false;
	return !mic_cq_hold_back(cq) && mic_cq_disarm(cq);
}

/**
 * mic_cq_event - raise a completion event
 * @cq: queue; the caller does not hold its lock
 *
 * Context: process or softirq context.
 */
void mic_cq_event(struct mic_cq *cq)
{
	mic_count(to_mic_dev(cq->ibcq.device), MIC_CNT_CQ_EVENT);
	/* handlers may raise softirqs, which run when we enable them */
	local_bh_disable();
	cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
	local_bh_enable();
}

/* What was held back is told now. */
static void mic_cq_tell(struct mic_cq *cq)
{
	unsigned long flags;
	bool fire;

	spin_lock_irqsave(&cq->lock, flags);
	smp_mb();	/* the elements, then look what was read */
	fire = cq->moderated && mic_cq_disarm(cq);
	spin_unlock_irqrestore(&cq->lock, flags);
	if (fire)
		mic_cq_event(cq);
}

/* The period is over. */
static enum hrtimer_restart mic_cq_timeout(struct hrtimer *timer)
{
	mic_cq_tell(container_of(timer, struct mic_cq, timer));
	return HRTIMER_NORESTART;
}

/**
 * mic_cq_settle - nothing is held back any more
 * @cq: queue of a kernel consumer; what has posted to it posts no more, but there may
 *	be others that do
 *
 * ib_free_cq() cancels the work that an event queues before it destroys the queue, so
 * with the last of them no event may be left to come.
 *
 * Context: process context; may call the consumer's handler.
 */
void mic_cq_settle(struct mic_cq *cq)
{
	hrtimer_cancel(&cq->timer);
	mic_cq_tell(cq);
}

/**
 * mic_cq_events_init - prepare the events of a queue
 * @cq: queue that is being created
 */
void mic_cq_events_init(struct mic_cq *cq)
{
	cq->unread_list = mic_cq_unread_list(&cq->ibcq);
	hrtimer_init(&cq->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	cq->timer.function = mic_cq_timeout;
}

/**
 * mic_modify_cq - set the moderation of a queue
 * @ibcq: queue
 * @count: completions an event stands for; 0 turns moderation off
 * @period: longest time an event is held back, in microseconds; 0 likewise
 *
 * Return: 0.
 */
int mic_modify_cq(struct ib_cq *ibcq, u16 count, u16 period)
{
	struct mic_cq *cq = to_mic_cq(ibcq);
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	cq->moderate_count = count;
	cq->moderate_us = period;
	spin_unlock_irqrestore(&cq->lock, flags);
	return 0;
}
