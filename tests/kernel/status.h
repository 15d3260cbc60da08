/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What goes wrong with a kernel consumer's request, and what has to come of it.
 */
#ifndef TESTS_KERNEL_STATUS_H
#define TESTS_KERNEL_STATUS_H

#include <rdma/ib_verbs.h>

#include "memory.h"
#include "side.h"

/**
 * struct bench - what a case works with
 * @near: sends
 * @far: receives, and has the memory
 * @beside: connection that nothing may happen to
 * @third: in the domains of @near and @far
 * @from: of @near
 * @to: of @far
 * @strange: of @beside, in other protection domains
 * @rdma: the request that goes wrong
 * @request: the same if it is an atomic
 * @reg: the same if it is a registration
 * @sge: its memory
 * @receive: memory of the first receive
 * @receives: how many there are
 * @kept: what has to grant afterwards what it does before; NULL: nothing
 * @word: where it is read to
 */
struct bench {
	struct side near;
	struct side far;
	struct side beside[2];
	struct side third[2];
	struct memory from;
	struct memory to;
	struct memory strange[2];
	struct ib_rdma_wr rdma;
	struct ib_atomic_wr request;
	struct ib_reg_wr reg;
	struct ib_sge sge;
	struct ib_sge receive;
	int receives;
	struct memory *kept;
	u64 word;
};

/* What the receives end with. */
enum far_end {
	FAR_UNTOUCHED,	/* none has completed, the queue pair is in RTS */
	FAR_NEXT,	/* the message behind takes the first one */
	FAR_BOTH,	/* both messages arrive */
	FAR_FLUSHED,	/* all are flushed, in error */
	FAR_FAILED,	/* the first one with a status, the others are flushed */
	FAR_GONE,	/* so is the queue pair, or it is in RESET: none completes */
};

struct outcome {
	enum ib_wc_status status;
	enum far_end end;
	enum ib_wc_status received;
	int event;		/* at the far side; 0: none (IB_EVENT_CQ_ERR) */
};

/**
 * struct fault - a row of the table
 * @name: what is wrong
 * @opcodes: with these requests, a bit for each
 * @arrange: makes it so
 * @rc: what comes of it over RC
 * @uc: over UC, of the requests it has
 */
struct fault {
	const char *name;
	u64 opcodes;
	int (*arrange)(struct bench *bench);
	struct outcome rc;
	struct outcome uc;
};

/* faults.c */
extern const struct fault faults[];
extern const unsigned int fault_count;

/* status.c */
int post_receives(struct bench *bench);

#endif /* TESTS_KERNEL_STATUS_H */
