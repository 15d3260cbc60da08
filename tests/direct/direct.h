/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef DIRECT_TEST_H
#define DIRECT_TEST_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/micdv.h>

#include "setup.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum {
	WORD = 8,
	MOST_BYTES = 1 << 20,
	MOST_SGES = 32,
	MOST_INLINE = 512,
};

struct mode {
	const char *name;
	const char *value; /* of MIC_DIRECT; NULL: there is none */
	enum micdv_path path;
};

struct operation {
	enum ibv_wr_opcode opcode;
	bool direct; /* the process may execute it */
	bool uc;     /* UC has it */
	bool word;   /* of 8 bytes, and no others */
};

/* A connection from a to b. */
struct session {
	struct setup setup;
	const struct mode *mode;
	enum ibv_qp_type type;
	bool extended; /* post by ibv_wr_start() and its like */
	struct endpoint a;
	struct endpoint b;
	size_t from; /* where the data is in a's memory, and in b's */
	size_t to;
	uint32_t id;
	bool given; /* the last request was the kernel's */
	struct micdv_qp_attr before;
	uint64_t direct; /* of those that the process might execute */
	uint64_t engine;
};

struct request {
	const struct operation *op;
	uint32_t size;
	unsigned int count; /* of scatter/gather elements */
	bool is_inline;
	struct ibv_sge sges[MOST_SGES];
};

/* session.c */
void session_connect(struct session *session);
void session_disconnect(struct session *session);
struct micdv_qp_attr session_query(const struct session *session);

/* How many requests were executed by whom since @before? */
bool session_took(struct session *session, uint64_t direct, uint64_t engine);
/* One was; by the process if it might, and if the mode says so. */
bool session_took_one(struct session *session, bool direct);
/*
 * Behind a request of the kernel's all others are the kernel's until it sleeps,
 * which may be a moment after the completion.
 */
bool session_is_idle(struct session *session);

/* request.c: one request, and what it has to do to the memory */
void request_post(struct session *session, struct request *request);
bool request_complete(struct session *session, struct request *request);

/* others.c: what the process leaves to the kernel, whatever the operation */
void run_others(struct session *session);

#endif /* DIRECT_TEST_H */
