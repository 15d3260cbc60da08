/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Connections between kernel consumers of two devices.
 */
#ifndef TESTS_KERNEL_SIDE_H
#define TESTS_KERNEL_SIDE_H

#include <rdma/ib_verbs.h>

/**
 * struct side - one end of a connection
 * @dev: device, held
 * @pd: protection domain
 * @shared: @pd is another side's
 * @type: of @qp, RC unless it is changed before that is made
 * @xrcd: domain of @qp if it is a target of XRC
 * @access: rights that @qp gives
 * @timeout: of @qp
 * @rnr_retry: of @qp; 7: for ever
 * @cq: completions of @qp
 * @qp: queue pair
 * @events: how often each event of @qp has come, up to the last one known
 * @gid: the device's address
 * @gid_index: its place in the table
 */
struct side {
	struct ib_device *dev;
	struct ib_pd *pd;
	bool shared;
	enum ib_qp_type type;
	struct ib_xrcd *xrcd;
	int access;
	u8 timeout;
	u8 rnr_retry;
	struct ib_cq *cq;
	struct ib_qp *qp;
	atomic_t events[IB_EVENT_WQ_FATAL + 1];
	union ib_gid gid;
	int gid_index;
};

int side_open(struct side *side, const char *name);
/* In the protection domain of @other. */
int side_open_beside(struct side *side, const struct side *other);
/* Also after one of the others has failed. */
void side_close(struct side *side);
/* @srq may be NULL. */
int side_create_qp(struct side *side, struct ib_srq *srq);
void side_destroy_qp(struct side *side);
int side_connect(struct side *side, const struct side *other);
int side_set_state(struct side *side, enum ib_qp_state state);
/* Of the queue pair, or an error. */
int side_state(struct side *side);

/* The next completion, or -ETIMEDOUT. */
int side_wait(struct side *side, struct ib_wc *wc);
/* Post a request; its status, or an error. */
int side_execute(struct side *side, const struct ib_send_wr *wr);

#endif /* TESTS_KERNEL_SIDE_H */
