/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What goes wrong, and what has to come of it.
 */
#ifndef TESTS_FAULTS_H
#define TESTS_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "setup.h"

#define REGION_BYTES (1UL << 16)
/* Where things are in both regions; the target is aligned for atomics. */
#define TARGET_OFFSET (PAGE_BYTES - 77)
#define RECEIVE_BYTES 512U
#define BAD_BYTES 64U
/* What memory holds that a fault has made for itself. */
#define EXTRA_BYTE 0x3e

/* One fault: a connection, and the request to go wrong. */
struct scene {
	struct setup *setup;
	enum ibv_wr_opcode opcode;
	struct endpoint a;
	struct endpoint b;
	struct ibv_sge local;
	uint64_t remote_addr;
	uint32_t rkey;
	struct ibv_sge receive;
	int receives;
	/* what a case made for itself */
	struct region extra;
	struct ibv_pd *extra_pd;
	struct ibv_context *extra_ctx;
};

/* What the first receive of the responder ends with. */
enum receive_end {
	RECEIVE_STAYS, /* still posted, queue pair unharmed */
	RECEIVE_FLUSHED,
	RECEIVE_FAILS,	   /* any error */
	RECEIVE_TOO_SHORT, /* local length error */
	RECEIVE_PROTECTED, /* local protection error */
	RECEIVE_UNKNOWN,   /* the case destroyed or changed the QP */
};

struct outcome {
	enum ibv_wc_status status;
	enum receive_end receive;
	int event; /* at the responder, -1: none */
};

struct fault {
	const char *name;
	unsigned int opcodes; /* a bit for each */
	void (*arrange)(struct scene *scene);
	struct outcome outcome;
	void (*options)(struct endpoint_options *options);
};

#define BIT(opcode) (1U << (opcode))

extern const struct fault faults[];
extern const unsigned int fault_count;

/* Bytes that the request moves. */
uint32_t request_bytes(const struct scene *scene);

#endif /* TESTS_FAULTS_H */
