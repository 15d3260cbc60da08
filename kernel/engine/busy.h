/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Busy polling: programs that find a completion queue empty look for what other
 * machines have sent.
 */
#ifndef MIC_BUSY_H
#define MIC_BUSY_H

#include <linux/list.h>
#include <linux/spinlock.h>

struct mic_qp;

/**
 * struct mic_busy - who of a user context polls
 * @lock: protects what follows
 * @pollers: how many threads do
 * @answered: QPs that have got answers meanwhile, with a reference each; empty if
 *	nobody polls
 */
struct mic_busy {
	spinlock_t lock;
	u32 pollers;
	struct list_head answered;
};

void mic_busy_init(struct mic_busy *busy);
int mic_busy_poll(struct mic_busy *busy);
void mic_qp_answered(struct mic_qp *qp);

#endif /* MIC_BUSY_H */
