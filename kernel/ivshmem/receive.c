// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Receiving from another node: what is done with what has arrived, and when is
 * looked for it.
 *
 * A path's thread looks as long as something comes, for spin_us longer if nobody
 * else wants its processor, and then sleeps until the other node rings. But who
 * polls a completion queue looks, too, in his own system call (busy polling): that
 * saves him the interrupt and the way to the thread and back. The two exclude each
 * other by &mic_path.rx_mutex, for which who polls does not wait.
 *
 * While somebody polls, the thread does not ask to be rung. It looks now and then
 * whether that is still so: soon at first, for a program may poll a little and then
 * look at its memory alone.
 */
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/mm.h>
#include <linux/sched/stat.h>

#include "path.h"

/* What is received in one go from a lane, before others get their turn. */
#define MIC_PATH_BATCH		64
#define MIC_PATH_POLL_BATCH	16

/* For how long the thread leaves a path to programs before it looks whether they poll. */
#define MIC_PATH_LEAVE_MIN_US	20
#define MIC_PATH_LEAVE_MAX_US	500

/* They do if they poll once in so many microseconds. */
#define MIC_PATH_POLL_US	50

#define MIC_SPIN_US_MAX		10000

static unsigned int mic_spin_us = 100;

static int mic_spin_us_set(const char *value, const struct kernel_param *param)
{
	return param_set_uint_minmax(value, param, 0, MIC_SPIN_US_MAX);
}

static const struct kernel_param_ops mic_spin_us_ops = {
	.set = mic_spin_us_set,
	.get = param_get_uint,
};
module_param_cb(spin_us, &mic_spin_us_ops, &mic_spin_us, 0644);
MODULE_PARM_DESC(spin_us, "Microseconds to look for more on an idle processor before sleeping, up to 10000 (100); 0: not at all");

/* One record. Return: 1, or 0 if there is none or no room for its answer. */
static int mic_path_receive_one(struct mic_path *path, int id)
{
	struct mic_lane_rx *lane = &path->rx[id];
	struct mic_rec rec;
	const void *at;
	int ret;

	ret = mic_lane_peek(lane, &rec, &at);
	if (ret <= 0)
		return ret;
	/* counted from an index of a new session it may be one of the lap before */
	if (!mic_path_is_in_session(path))
		return 0;
	switch (id) {
	case MIC_LANE_REQUEST:
		ret = mic_serve_request(path, &rec, at);
		WRITE_ONCE(path->stalled, !ret);
		break;
	case MIC_LANE_RESPONSE:
		ret = mic_remote_response(path, &rec, at);
		break;
	default:
		mic_net_receive(path, &rec, at);
		break;
	}
	if (ret > 0)
		mic_lane_advance(lane, rec.size);
	return ret;
}

/* A multicast is as many as it had receivers here. */
static u32 mic_path_cost(const struct mic_path *path, int id)
{
	return id == MIC_LANE_REQUEST ? max(path->served.op.copies, 1U) : 1;
}

/* What has arrived, lane by lane. Return: how many records that was. */
static int mic_path_receive(struct mic_path *path, u32 batch)
{
	static const u8 order[] = {
		MIC_LANE_RESPONSE, MIC_LANE_REQUEST, MIC_LANE_FRAME,
	};
	int i, ret, done = 0;
	u32 n;

	WRITE_ONCE(path->stalled, false);
	for (i = 0; i < ARRAY_SIZE(order); i++) {
		for (n = 0; n < batch; n += mic_path_cost(path, order[i])) {
			ret = mic_path_receive_one(path, order[i]);
			/* it empties its lanes before it begins anew */
			if (ret < 0 && mic_path_is_in_session(path))
				mic_path_break(path);
			if (ret <= 0)
				break;
			done++;
		}
	}
	if (!done)
		return 0;
	virt_mb();	/* the room given, then the look whether it is wanted */
	if (READ_ONCE(path->rx_ch->want_room))
		mic_path_ring(path);
	return done;
}

/* Was room wanted, and is there some? */
static void mic_path_look_for_room(struct mic_path *path)
{
	int i;

	for (i = 0; i < MIC_LANES; i++)
		WRITE_ONCE(path->cons[i], READ_ONCE(*path->tx[i].cons));
	/* the list as well: anybody can clear the wish */
	if (READ_ONCE(path->tx_ch->want_room) ||
	    !list_empty_careful(&path->waiters)) {
		WRITE_ONCE(path->tx_ch->want_room, 0);
		virt_mb();	/* who finds none after this sets it again */
		mic_remote_room(path);
	}
	mic_net_room(path);
}

/* Room is wanted, and there is more than when it was last looked for. */
static bool mic_path_has_room_news(struct mic_path *path)
{
	int i;

	if (!READ_ONCE(path->tx_ch->want_room))
		return false;
	for (i = 0; i < MIC_LANES; i++)
		if (READ_ONCE(*path->tx[i].cons) != READ_ONCE(path->cons[i]))
			return true;
	return false;
}

/* Something that only the thread acts upon. */
static bool mic_path_has_control_news(struct mic_path *path)
{
	/* the word before the lanes */
	u64 word = virt_load_acquire(&path->rx_ch->session);

	return word != READ_ONCE(path->word) ||
	       READ_ONCE(path->rx_ch->maps) != READ_ONCE(path->maps_seen) ||
	       (READ_ONCE(path->up) && READ_ONCE(path->broken));
}

static bool mic_path_has_records(struct mic_path *path)
{
	int i;

	for (i = 0; i < MIC_LANES; i++)
		if (mic_lane_pending(&path->rx[i]) &&
		    (i != MIC_LANE_REQUEST || !READ_ONCE(path->stalled)))
			return true;
	return mic_path_has_room_news(path);
}

static bool mic_path_has_news(struct mic_path *path)
{
	return mic_path_has_control_news(path) ||
	       (READ_ONCE(path->up) && mic_path_has_records(path));
}

/*
 * Who receives waits for no storage to give memory back: it may be what the other node
 * has, and nobody else receives its answer.
 */
static unsigned int mic_path_lock(struct mic_path *path)
{
	mutex_lock(&path->rx_mutex);
	return memalloc_noio_save();
}

static void mic_path_unlock(struct mic_path *path, unsigned int noio)
{
	memalloc_noio_restore(noio);
	mutex_unlock(&path->rx_mutex);
}

/**
 * mic_path_poll - receive on behalf of a program that polls
 * @node: node of a path
 *
 * If the thread, or another program, is at it, this one leaves it to that.
 *
 * Context: process context, sleeps; the node has not left yet.
 * Return: how many records there were.
 */
int mic_path_poll(struct mic_node *node)
{
	struct mic_path *path = node->priv;
	unsigned int noio;
	int done = 0;

	if (!mutex_trylock(&path->rx_mutex))
		return 0;
	noio = memalloc_noio_save();
	WRITE_ONCE(path->polls, path->polls + 1);
	if (mic_path_has_control_news(path)) {
		mic_path_wake(path);
	} else if (path->up && mic_path_has_records(path) &&
		   mic_ivs_term(path->ivs) == path->term) {
		/* first, for it forgets that an answer found no room */
		mic_path_look_for_room(path);
		done = mic_path_receive(path, MIC_PATH_POLL_BATCH);
		mic_path_count(path, MIC_STAT_POLLED, done);
	}
	mic_path_unlock(path, noio);
	return done;
}

/*
 * Have programs polled all the time since this was asked last? Then @leave_us says for
 * how long they can be trusted to go on: twice as long as they have.
 */
static bool mic_path_is_polled(struct mic_path *path)
{
	u32 polls = READ_ONCE(path->polls) - path->polls_seen;

	path->polls_seen += polls;
	if (polls < max_t(u32, path->leave_us / MIC_PATH_POLL_US, 1)) {
		path->leave_us = 0;
		return false;
	}
	path->leave_us = clamp_t(u32, 2 * path->leave_us,
				 MIC_PATH_LEAVE_MIN_US, MIC_PATH_LEAVE_MAX_US);
	return true;
}

/*
 * Polling: the longer nothing happens, the longer the pause. An eighth of that
 * time, since the other node may wait for an answer and poll, too: pauses as
 * long as what they wait for would make each other longer. And three times what
 * a look costs that finds nothing: a thread that takes no more than its share of
 * the processor gets it at once when it wakes. The scheduler counts what a thread
 * has used when it goes to sleep, so it is known afterwards.
 */
static void mic_path_pause(struct mic_path *path)
{
	bool again = path->idle;
	ktime_t now = ktime_get();
	u64 used;
	s64 us;

	if (!again)
		path->idle = now;
	us = max_t(s64, ktime_us_delta(now, path->idle) / 8,
		   div_u64(3 * path->look, NSEC_PER_USEC));
	us = clamp_t(s64, us, 10, 1000);
	usleep_range(us, us + us / 4);

	used = current->se.sum_exec_runtime;
	if (again)	/* nothing but a look, since the pause before */
		path->look = used - path->cpu_time;
	path->cpu_time = used;
}

/*
 * An interrupt costs more than a while of looking. But who wants the processor gets
 * it: perhaps the thread waits for what he is about to send.
 */
static bool mic_path_spin(struct mic_path *path)
{
	u64 end = local_clock() + (u64)READ_ONCE(mic_spin_us) * NSEC_PER_USEC;

	while (single_task_running() && !need_resched() &&
	       !kthread_should_stop() && !kthread_should_park()) {
		if (mic_path_has_news(path))
			return true;
		if (local_clock() >= end)
			return false;
		cpu_relax();
	}
	return false;
}

/* A channel of an entry that another has is not ours to write to. */
static void mic_path_set_need_kick(struct mic_path *path, u32 value)
{
	if (mic_ivs_term(path->ivs))
		WRITE_ONCE(path->rx_ch->need_kick, value);
}

/* Until the other node, the tick or a local thread has something to say. */
static void mic_path_sleep(struct mic_path *path)
{
	set_current_state(TASK_IDLE);
	if (!++path->sleeps)
		path->sleeps = 1;
	mic_path_set_need_kick(path, path->sleeps);
	virt_mb();	/* need_kick, then the last look */
	if (!kthread_should_stop() && !kthread_should_park() &&
	    !mic_path_has_news(path)) {
		mic_path_count(path, MIC_STAT_SLEEP, 1);
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	mic_path_set_need_kick(path, 0);
}

/* Programs look; the other node need not ring. */
static void mic_path_leave_to_programs(struct mic_path *path)
{
	ktime_t time = ns_to_ktime(path->leave_us * NSEC_PER_USEC);

	path->idle = 0;
	set_current_state(TASK_IDLE);
	if (!kthread_should_stop() && !kthread_should_park() &&
	    !mic_path_has_control_news(path))
		schedule_hrtimeout_range(&time, time / 4,
					 HRTIMER_MODE_REL);
	__set_current_state(TASK_RUNNING);
}

/* Nor can a node ring that has no interrupts itself. */
static bool mic_path_is_rung(const struct mic_path *path)
{
	return path->ivs->vectors && READ_ONCE(path->vector) >= 0;
}

/* Nothing has come. @busy: just now there was something. */
static void mic_path_wait(struct mic_path *path, bool busy)
{
	if (mic_path_is_polled(path))
		mic_path_leave_to_programs(path);
	else if (!mic_path_is_rung(path) && READ_ONCE(path->alive))
		mic_path_pause(path);
	else if (!busy || !mic_path_spin(path))
		mic_path_sleep(path);
}

/*
 * Anybody can write where this side says how far it has read. Where nothing comes it
 * would never say so again, and the other side might find no room for ever. It looks
 * itself with every tick, so it is rung only if it waits, and nobody is kept busy.
 */
static void mic_path_say_again(struct mic_path *path)
{
	bool any = false;
	int i;

	for (i = 0; i < MIC_LANES; i++)
		any |= mic_lane_say_again(&path->rx[i]);
	if (!any)
		return;
	virt_mb();	/* the room given, then the look whether it is wanted */
	if (READ_ONCE(path->rx_ch->want_room))
		mic_path_ring(path);
}

/* Look once at everything. Return: whether there were records. */
static bool mic_path_turn(struct mic_path *path)
{
	unsigned int noio = mic_path_lock(path);
	bool any = false;

	mic_path_control(path);
	mic_share_look(path);
	if (path->up) {
		mic_path_look_for_room(path);
		mic_remote_expire(path);
		any = mic_path_receive(path, MIC_PATH_BATCH);
		mic_path_say_again(path);
	}
	mic_path_unlock(path, noio);
	return any;
}

static void mic_path_end(struct mic_path *path)
{
	unsigned int noio = mic_path_lock(path);

	if (path->up)
		mic_path_go_down(path);
	mic_path_unlock(path, noio);
}

/**
 * mic_path_thread - the thread of a path
 * @arg: path
 *
 * Return: 0, when it is to stop; the path is down then.
 */
int mic_path_thread(void *arg)
{
	struct mic_path *path = arg;
	bool busy = false;

	while (!kthread_should_stop()) {
		if (kthread_should_park()) {
			mic_path_end(path);
			kthread_parkme();
			continue;
		}
		if (mic_path_turn(path)) {
			path->idle = 0;
			busy = true;
		} else if (!path->up && mic_path_has_news(path)) {
			/* a new word already: no faster than this */
			usleep_range(1000, 2000);
		} else {
			mic_path_wait(path, busy);
			busy = false;
		}
		cond_resched();
	}
	mic_path_end(path);
	return 0;
}
