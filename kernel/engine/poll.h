/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A thread that looks for requests, so that who posts them need not call.
 */
#ifndef MIC_POLL_H
#define MIC_POLL_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>

struct mic_dev;
struct mic_qp;
struct task_struct;

/**
 * struct mic_poller - the thread of a device that polls send queues
 * @task: thread; it sleeps while there is nothing to poll
 * @wait: where it sleeps
 * @lock: protects @qps, @count, and of a QP @polled and @poll_*; innermost
 * @qps: queue pairs that are polled; a reference to each is held
 * @count: length of @qps
 */
struct mic_poller {
	struct task_struct *task;
	wait_queue_head_t wait;
	spinlock_t lock;
	struct list_head qps;
	u32 count;
};

int mic_poller_start(struct mic_dev *dev);
void mic_poller_stop(struct mic_dev *dev);
void mic_poll_add(struct mic_qp *qp);
bool mic_poll_del(struct mic_qp *qp);

#endif /* MIC_POLL_H */
