// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Counters that queue pairs are bound to (rdma statistic qp): one for each queue pair, or
 * for all of a process or of a service, as the administrator said. What a queue pair does
 * while it is bound counts there and not at the device; ib_core adds them up for
 * who asks for the port's.
 *
 * Some kernels take a counter or a queue pair off their list after it is gone here, as
 * restrack.c says. So both are looked up each time, and a counter's number may be
 * another's by then.
 */
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/xarray.h>
#include <rdma/rdma_counter.h>

#include "../engine/engine.h"
#include "counters.h"
#include "dev.h"
#include "qp.h"

/**
 * struct mic_qp_counter - what an &rdma_counter counts
 * @counter: ib_core's part
 * @counters: events counted per CPU
 * @direct: requests that processes executed by themselves, of QPs that were bound
 * @qps: QPs that are, &mic_qp.counter_entry; under &mic_dev.direct_lock like @direct
 */
struct mic_qp_counter {
	const struct rdma_counter *counter;
	struct mic_counters __percpu *counters;
	u64 direct[MIC_DIRECT_COUNTS];
	struct list_head qps;
};

/* NULL if it is gone. */
static struct mic_qp_counter *mic_counter_of(const struct rdma_counter *counter)
{
	struct mic_dev *dev = to_mic_dev(counter->device);
	struct mic_qp_counter *own;

	lockdep_assert_held(&dev->direct_lock);
	own = xa_load(&dev->qp_counters, counter->id);
	return own && own->counter == counter ? own : NULL;
}

static int mic_counter_create(struct rdma_counter *counter)
{
	struct mic_dev *dev = to_mic_dev(counter->device);
	struct mic_qp_counter *own;
	int err = -ENOMEM;

	own = kzalloc(sizeof(*own), GFP_KERNEL);
	if (!own)
		return err;
	own->counter = counter;
	INIT_LIST_HEAD(&own->qps);
	own->counters = alloc_percpu(struct mic_counters);
	if (!own->counters)
		goto err_own;
	err = xa_alloc(&dev->qp_counters, &counter->id, own, xa_limit_31b, GFP_KERNEL);
	if (err)
		goto err_counters;
	return 0;

err_counters:
	free_percpu(own->counters);
err_own:
	kfree(own);
	return err;
}

/* ib_core forgets a counter that it could not bind the first queue pair to. */
static void mic_counter_undo(struct rdma_counter *counter)
{
	struct mic_dev *dev = to_mic_dev(counter->device);
	struct mic_qp_counter *own;

	mutex_lock(&dev->direct_lock);
	own = xa_erase(&dev->qp_counters, counter->id);
	mutex_unlock(&dev->direct_lock);
	counter->id = 0;
	free_percpu(own->counters);
	kfree(own);
}

/*
 * ib_core may be binding the queue pair to another counter, or to this, at once, and one
 * that is being destroyed it will not unbind any more.
 */
static int mic_counter_link(struct rdma_counter *counter, struct mic_qp *qp)
{
	struct mic_qp_counter *own = mic_counter_of(counter);
	struct mic_dev *dev = qp->dev;

	if (!own || !list_empty(&qp->counter_entry) ||
	    xa_load(&dev->qps, qp->qpn) != qp)
		return -EINVAL;
	mic_count_take_direct(dev->direct, qp);
	list_add(&qp->counter_entry, &own->qps);
	qp->counters = own->counters;
	qp->ibqp->counter = counter;
	return 0;
}

/**
 * mic_counter_bind_qp - count what a QP does from now on with others
 * @counter: counter; one without a number has nothing of ours yet
 * @ibqp: queue pair that was bound to none when ib_core looked
 *
 * Context: process context; ib_core holds the counter's lock.
 * Return: 0, -EINVAL if it is bound by now, or either of them is gone, or an error if
 * there is no memory or number for the counter.
 */
int mic_counter_bind_qp(struct rdma_counter *counter, struct ib_qp *ibqp)
{
	struct mic_dev *dev = to_mic_dev(counter->device);
	struct mic_qp *qp = mic_qp_get_listed(ibqp);
	bool created = !counter->id;
	int err = 0;

	if (!qp)
		return -EINVAL;
	if (created)
		err = mic_counter_create(counter);
	if (err)
		goto out;
	mic_qp_lock(qp);
	mutex_lock(&dev->direct_lock);
	err = mic_counter_link(counter, qp);
	mutex_unlock(&dev->direct_lock);
	mic_qp_unlock(qp, false);
	if (err && created)
		mic_counter_undo(counter);
out:
	mic_qp_put(qp);
	return err;
}

static int mic_counter_unlink(struct mic_qp_counter *own, struct mic_qp *qp)
{
	lockdep_assert_held(&qp->dev->direct_lock);
	if (!own || list_empty(&qp->counter_entry))
		return -EINVAL;
	mic_count_take_direct(own->direct, qp);
	list_del_init(&qp->counter_entry);
	qp->counters = qp->dev->counters;
	qp->ibqp->counter = NULL;
	return 0;
}

/**
 * mic_counter_unbind_qp - count what a QP does with its device's again
 * @ibqp: queue pair that was bound when ib_core looked
 *
 * Context: process context; ib_core holds the counter's lock.
 * Return: 0, or -EINVAL if it is bound to none by now, or gone.
 */
int mic_counter_unbind_qp(struct ib_qp *ibqp)
{
	struct mic_qp *qp = mic_qp_get_listed(ibqp);
	struct mic_dev *dev;
	int err;

	if (!qp)
		return -EINVAL;
	dev = qp->dev;
	mic_qp_lock(qp);
	mutex_lock(&dev->direct_lock);
	err = mic_counter_unlink(ibqp->counter ? mic_counter_of(ibqp->counter) : NULL,
				 qp);
	mutex_unlock(&dev->direct_lock);
	mic_qp_unlock(qp, false);
	mic_qp_put(qp);
	return err;
}

/**
 * mic_counter_forget_qp - a queue pair that goes is on no counter's list
 * @qp: queue pair that nobody finds any more, nor binds or unbinds, and that does nothing
 *
 * ib_core has unbound it, unless somebody has bound it since.
 *
 * Context: process context, without locks.
 */
void mic_counter_forget_qp(struct mic_qp *qp)
{
	mutex_lock(&qp->dev->direct_lock);
	list_del_init(&qp->counter_entry);
	mutex_unlock(&qp->dev->direct_lock);
}

static void mic_counter_sum(struct mic_dev *dev, const struct mic_qp_counter *own,
			    u64 *value)
{
	const struct mic_qp *qp;
	int i;

	lockdep_assert_held(&dev->direct_lock);
	mic_count_add_cpus(value, own->counters);
	for (i = 0; i < MIC_DIRECT_COUNTS; i++)
		value[MIC_CNT_DIRECT + i] += own->direct[i];
	list_for_each_entry(qp, &own->qps, counter_entry)
		mic_count_add_direct(&value[MIC_CNT_DIRECT], qp);
}

/* One that is bound, with a reference, or NULL; those that go by themselves are not. */
static struct mic_qp *mic_counter_get_qp(struct mic_dev *dev,
					 const struct mic_qp_counter *own)
{
	struct mic_qp *qp, *found = NULL;

	mutex_lock(&dev->direct_lock);
	list_for_each_entry(qp, &own->qps, counter_entry) {
		if (!refcount_inc_not_zero(&qp->ref))
			continue;
		found = qp;
		break;
	}
	mutex_unlock(&dev->direct_lock);
	return found;
}

/*
 * Of ib_core's users the one that destroys a queue pair and one that unbinds it may both
 * give back the reference it had to its counter: then others are bound to that still.
 */
static void mic_counter_turn_out(struct mic_dev *dev, struct mic_qp_counter *own)
{
	struct mic_qp *qp;

	while ((qp = mic_counter_get_qp(dev, own))) {
		mic_qp_lock(qp);
		mutex_lock(&dev->direct_lock);
		if (qp->counters == own->counters)
			mic_counter_unlink(own, qp);
		mutex_unlock(&dev->direct_lock);
		mic_qp_unlock(qp, false);
		mic_qp_put(qp);
	}
}

/**
 * mic_counter_dealloc - a counter goes
 * @counter: counter; ib_core has its sum, for the port's, and binds nothing to it any more
 *
 * Context: process context, without locks.
 * Return: 0.
 */
int mic_counter_dealloc(struct rdma_counter *counter)
{
	struct mic_dev *dev = to_mic_dev(counter->device);
	struct mic_qp_counter *own = xa_load(&dev->qp_counters, counter->id);
	struct mic_qp *qp, *next;

	mic_counter_turn_out(dev, own);
	mutex_lock(&dev->direct_lock);
	xa_erase(&dev->qp_counters, counter->id);
	mic_counter_sum(dev, own, dev->counted_before);
	list_for_each_entry_safe(qp, next, &own->qps, counter_entry) {
		list_del_init(&qp->counter_entry);
		qp->counters = dev->counters;
	}
	mutex_unlock(&dev->direct_lock);
	free_percpu(own->counters);
	kfree(own);
	return 0;
}

struct rdma_hw_stats *mic_counter_alloc_stats(struct rdma_counter *counter)
{
	return mic_alloc_stats();
}

/**
 * mic_counter_update_stats - what a counter has counted
 * @counter: counter, whose @stats it goes to
 *
 * One that is gone has nothing, as what it had is the port's.
 *
 * Context: process context; ib_core holds the counter's lock.
 * Return: 0.
 */
int mic_counter_update_stats(struct rdma_counter *counter)
{
	struct mic_dev *dev = to_mic_dev(counter->device);
	struct mic_qp_counter *own;

	memset(counter->stats->value, 0, MIC_CNT_MAX * sizeof(u64));
	mutex_lock(&dev->direct_lock);
	own = mic_counter_of(counter);
	if (own)
		mic_counter_sum(dev, own, counter->stats->value);
	mutex_unlock(&dev->direct_lock);
	return 0;
}

/**
 * mic_count_add_bound - what counters of queue pairs have, and those had that are gone
 * @dev: device
 * @value: MIC_CNT_MAX sums
 *
 * Context: process context, without locks.
 */
void mic_count_add_bound(struct mic_dev *dev, u64 *value)
{
	struct mic_qp_counter *own;
	unsigned long id;
	int i;

	mutex_lock(&dev->direct_lock);
	for (i = 0; i < MIC_CNT_MAX; i++)
		value[i] += dev->counted_before[i];
	xa_for_each(&dev->qp_counters, id, own)
		mic_counter_sum(dev, own, value);
	mutex_unlock(&dev->direct_lock);
}
