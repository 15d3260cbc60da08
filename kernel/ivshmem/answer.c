// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Answers to the other node, and which of them wait for a request to go with.
 *
 * An answer that waits is in the lane, but the lane's index is not published. The
 * next answer that does not wait publishes both; so does the next request, which
 * is visible before them: who gets his answer may look for no more. If neither comes
 * in ack_delay_us a timer does it.
 */
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/module.h>

#include "path.h"

#define MIC_ACK_DELAY_US_MAX	1000

static unsigned int mic_ack_delay_us = MIC_ACK_DELAY_US_MAX;

static int mic_ack_delay_us_set(const char *value,
				const struct kernel_param *param)
{
	return param_set_uint_minmax(value, param, 0, MIC_ACK_DELAY_US_MAX);
}

static const struct kernel_param_ops mic_ack_delay_us_ops = {
	.set = mic_ack_delay_us_set,
	.get = param_get_uint,
};
module_param_cb(ack_delay_us, &mic_ack_delay_us_ops, &mic_ack_delay_us, 0644);
MODULE_PARM_DESC(ack_delay_us, "Microseconds that the acknowledgment of a WRITE waits for a reply that is likely, up to 1000 (1000); 0: not at all");

/**
 * mic_answer_delay_ns - for how long an answer may wait
 *
 * Context: any.
 * Return: nanoseconds, 0: not at all.
 */
u64 mic_answer_delay_ns(void)
{
	return (u64)READ_ONCE(mic_ack_delay_us) * NSEC_PER_USEC;
}

static void mic_answer_publish(struct mic_path *path)
{
	lockdep_assert_held(&path->answer_lock);
	WRITE_ONCE(path->delayed, false);
	mic_lane_publish(&path->tx[MIC_LANE_RESPONSE], path->answers);
}

/**
 * mic_answer_commit - an answer is complete
 * @path: path
 * @bytes: size of the record in the lane
 *
 * Context: process context, &mic_path.rx_mutex held.
 */
void mic_answer_commit(struct mic_path *path, u32 bytes)
{
	struct mic_lane_tx *lane = &path->tx[MIC_LANE_RESPONSE];

	mic_lane_append(lane, bytes);
	spin_lock_bh(&path->answer_lock);
	path->answers = lane->head;
	mic_answer_publish(path);
	spin_unlock_bh(&path->answer_lock);
	mic_path_ring(path);
}

/* Behind others that wait it does so no longer than they do. */
static void mic_answer_wait(struct mic_path *path, u64 ns)
{
	lockdep_assert_held(&path->answer_lock);
	mic_path_count(path, MIC_STAT_DELAYED, 1);
	if (!path->delayed)
		path->delayed_until = ktime_add_ns(ktime_get(), ns);
	WRITE_ONCE(path->delayed, true);
	/* if it runs on from the last time it looks for how long */
	if (!hrtimer_is_queued(&path->delay_timer))
		hrtimer_start(&path->delay_timer, path->delayed_until,
			      HRTIMER_MODE_ABS_SOFT);
}

/**
 * mic_answer_commit_later - an answer is complete, and may wait for a request
 * @path: path
 * @bytes: size of the record in the lane
 * @ns: for how long, not 0
 * @sent: &mic_lane_tx.head of the lane of requests when what it answers was not
 *	carried out yet: if it is another one now, the answer has nothing to wait for
 *
 * Context: process context, &mic_path.rx_mutex held.
 */
void mic_answer_commit_later(struct mic_path *path, u32 bytes, u64 ns, u32 sent)
{
	struct mic_lane_tx *lane = &path->tx[MIC_LANE_RESPONSE];
	bool waits;

	mic_lane_append(lane, bytes);
	spin_lock_bh(&path->answer_lock);
	path->answers = lane->head;
	mic_answer_wait(path, ns);
	smp_mb();	/* that it waits, then the look; pairs with mic_answer_flush() */
	waits = READ_ONCE(path->tx[MIC_LANE_REQUEST].head) == sent;
	if (!waits)
		mic_answer_publish(path);
	spin_unlock_bh(&path->answer_lock);
	if (!waits)
		mic_path_ring(path);
}

/**
 * mic_answer_flush - what waits goes with a request that was just published
 * @path: path that is up, under &mic_path.tx_mutex; the caller rings
 *
 * Context: process context.
 */
void mic_answer_flush(struct mic_path *path)
{
	smp_mb();	/* the request, then the look */
	if (!READ_ONCE(path->delayed))
		return;
	spin_lock_bh(&path->answer_lock);
	if (path->delayed)
		mic_answer_publish(path);
	spin_unlock_bh(&path->answer_lock);
}

/**
 * mic_answer_forget - nobody waits for answers any more
 * @path: path that is down
 *
 * On return nothing publishes any.
 *
 * Context: process context, &mic_path.rx_mutex held.
 */
void mic_answer_forget(struct mic_path *path)
{
	spin_lock_bh(&path->answer_lock);
	WRITE_ONCE(path->delayed, false);
	spin_unlock_bh(&path->answer_lock);
}

/*
 * No request has come. Where nothing may be published now the answer waits on, for the
 * next one.
 */
static enum hrtimer_restart mic_answer_timeout(struct hrtimer *timer)
{
	struct mic_path *path = container_of(timer, struct mic_path,
					     delay_timer);
	bool published = false, again;

	spin_lock(&path->answer_lock);
	again = path->delayed && ktime_before(ktime_get(), path->delayed_until);
	if (again) {
		/* if it was started meanwhile it comes again, and then looks again */
		if (!hrtimer_is_queued(timer))
			hrtimer_set_expires(timer, path->delayed_until);
	} else if (path->delayed && mic_path_may_send(path)) {
		mic_path_count(path, MIC_STAT_OVERDUE, 1);
		mic_answer_publish(path);
		published = true;
	}
	spin_unlock(&path->answer_lock);
	if (published)
		mic_path_ring(path);
	return again ? HRTIMER_RESTART : HRTIMER_NORESTART;
}

/**
 * mic_answer_init - nothing waits
 * @path: path
 */
void mic_answer_init(struct mic_path *path)
{
	spin_lock_init(&path->answer_lock);
	hrtimer_init(&path->delay_timer, CLOCK_MONOTONIC,
		     HRTIMER_MODE_ABS_SOFT);
	path->delay_timer.function = mic_answer_timeout;
}

/**
 * mic_answer_exit - the timer runs no more
 * @path: path that is down for good
 */
void mic_answer_exit(struct mic_path *path)
{
	hrtimer_cancel(&path->delay_timer);
}
