/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Completion queues.
 */
#ifndef MIC_CQ_H
#define MIC_CQ_H

#include <linux/hrtimer.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>

#include <mic/compat.h>

#include "ring.h"

/**
 * struct mic_cq - completion queue
 * @ibcq: ib_core's part
 * @resize_lock: one resize at a time, taken before @lock
 * @lock: serialises everything below; irq-safe, the innermost lock
 * @buf: memory
 * @ctl: control block in shared memory; NULL once the queue is destroyed
 * @ring: elements in shared memory
 * @entries: number of elements, a power of two
 * @producer: index of the next element to write
 * @consumer: kernel consumers: index of the next element to poll
 * @overflow: an element was lost; the queue takes no more
 * @ignore_overrun: an element without room is dropped, and that is all
 * @remote: it has completions that other machines bring about; set, and never
 *	cleared, under @lock
 * @timestamps: elements carry the time
 * @moderate_count: completions an event stands for, 0 for no moderation
 * @moderate_us: microseconds an event may be held back
 * @moderated: completions held back
 * @timer: ends the period
 * @unread_list: its events that the process has not read, as ib_core has them;
 *	NULL if they are not known
 * @unread: events raised since that list was empty
 */
struct mic_cq {
	struct ib_cq ibcq;
	struct mutex resize_lock;
	spinlock_t lock;
	struct mic_buf *buf;
	struct mic_cq_ctl *ctl;
	struct mic_cqe *ring;
	u32 entries;
	u32 producer;
	u32 consumer;
	bool overflow;
	bool ignore_overrun;
	bool remote;
	bool timestamps;
	u16 moderate_count;
	u16 moderate_us;
	u32 moderated;
	struct hrtimer timer;
	const struct list_head *unread_list;
	u32 unread;
};

static inline struct mic_cq *to_mic_cq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct mic_cq, ibcq);
}

/* cq.c */
int mic_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		  struct MIC_CREATE_CQ_ARG *arg);
int mic_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int mic_resize_cq(struct ib_cq *ibcq, int cqe, struct ib_udata *udata);

/* moderation.c */
bool mic_cq_fire(struct mic_cq *cq, bool solicited);
void mic_cq_event(struct mic_cq *cq);
void mic_cq_settle(struct mic_cq *cq);
void mic_cq_events_init(struct mic_cq *cq);
int mic_modify_cq(struct ib_cq *ibcq, u16 count, u16 period);

/* cqe.c */
void mic_cq_post(struct mic_cq *cq, struct mic_cqe *cqe, bool solicited);
void mic_cq_set_remote(struct mic_cq *cq);
void mic_cq_forget(struct mic_cq *cq, const struct ib_qp *ibqp);
void mic_cq_forget_srq(struct mic_cq *cq, u32 srqn);
void mic_cq_notify(struct mic_cq *cq);
void mic_cq_overrun(struct mic_cq *cq);
int mic_poll_cq(struct ib_cq *ibcq, int n, struct ib_wc *wc);
int mic_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);

#endif /* MIC_CQ_H */
