/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * A peer that speaks the library's protocol with verbs, and may lie. The port of its
 * victim is LIAR_PORT.
 */
#ifndef SCIF_TESTS_LIAR_H
#define SCIF_TESTS_LIAR_H

#include <stdbool.h>
#include <stdint.h>
#include <rdma/rdma_cma.h>

#include "../src/wire.h"

enum {
	LIAR_PORT = 2700,
	STRANGER_PORT = 2701, /* of one that accepts, in its turn */
	LIAR_PAGE = 4096,
	LIAR_NODE = 7, /* that there is not */
};

struct liar {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *copies; /* or NULL: that leads nowhere */
	struct ibv_mr *mr;
	struct scif_hello theirs;
	uint8_t *mem;  /* a shared block, and more to show as directory */
	uint8_t *said; /* of that: where the next request is from, or goes */
	struct scif_message *heard; /* and the last message that came */
	bool deaf; /* takes no messages, and lets others try for ever */
};

/* Find the way to the victim. */
bool reach(struct liar *liar, const char *address);
bool wait_event(struct liar *liar, enum rdma_cm_event_type type);
bool greet(struct liar *liar, struct scif_hello *hello, uint8_t patience);

/* A connection to the victim; @copies: with a queue pair for copies. */
bool connect_liar(struct liar *liar, const char *address, bool copies);
/* The same, without a queue pair for copies, of one that is deaf. */
bool connect_deaf(struct liar *liar, const char *address);
/*
 * No queue pair is there, with a number that no other attempt has; and the victim
 * shall wait for it for hours.
 */
bool connect_silent(struct liar *liar, const char *address,
		    unsigned int number);
void close_liar(struct liar *liar);
/* Wait for the victim, accept what is none of its protocol, and see it end. */
bool accept_strangely(int tell);

/* A request for the victim's shared block; false when the victim has had enough. */
bool post(struct liar *liar, enum ibv_wr_opcode opcode, uint32_t length,
	  uint64_t place);
/* The same for any memory, on one of the two queue pairs. */
bool post_on(struct liar *liar, struct ibv_qp *qp, enum ibv_wr_opcode opcode,
	     uint32_t length, uint64_t addr, uint32_t rkey);
/* A control message; and the number that tells of a new directory. */
bool say(struct liar *liar, const struct scif_message *message);
bool say_directory(struct liar *liar, uint32_t gen);

/* By the victim: the liar says this, by the pipe @told. */
bool is_told(int told, char what);

#endif /* SCIF_TESTS_LIAR_H */
