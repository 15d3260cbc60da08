/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What goes wrong, and what has to come of it.
 */
#ifndef TESTS_FAULTS_H
#define TESTS_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "setup.h"
#include "srq.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define REGION_BYTES (1UL << 16)
/* Where things are in both regions; the target is aligned for atomics. */
#define TARGET_OFFSET (PAGE_BYTES - 77)
#define LATE_OFFSET 20000U
#define RECEIVE_OFFSET 30000U
#define GOOD_OFFSET 60000U
#define RECEIVE_BYTES 512U
#define BAD_BYTES 64U
/* What the memories hold where nothing was written. */
#define A_BYTE 0x3a
#define B_BYTE 0x3b
/* What memory holds that a fault has made for itself. */
#define EXTRA_BYTE 0x3e

enum {
	RECEIVES = 3,
	ELEMENTS = 3,
	FIRST_RECEIVE_ID = 100,
	GOOD_ID = 0,
	BAD_ID = 1,
	LATE_WRITE_ID = 2,
	LATE_SEND_ID = 3,
};

/* What a request travels by, and where its receives are. */
enum service {
	OVER_RC,
	OVER_UC,
	OVER_XRC,    /* receives in an XRC shared receive queue */
	OVER_SRQ,    /* RC, receives in a shared receive queue */
	OVER_UC_SRQ, /* UC, the same */
	SERVICES
};

/* One fault: a connection, and the request to go wrong. */
struct scene {
	struct setup *setup;
	struct neighbours *neighbours;
	enum service service;
	enum ibv_wr_opcode opcode;
	struct endpoint a;
	struct endpoint b;
	struct xrc xrc;
	struct ibv_srq *srq;
	struct ibv_cq *recv_cq; /* of b's receives */
	struct ibv_sge local[ELEMENTS];
	int local_count;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t invalidate_rkey;
	uint32_t srqn;
	struct ibv_mw_bind_info bind;
	struct ibv_sge receive[ELEMENTS]; /* the first one's */
	int receive_count;
	int receives;
	int element;		      /* the one that is at fault */
	enum ibv_qp_state peer_state; /* when the fault is arranged */
	/* what a case made for itself */
	struct region extra;
	struct ibv_pd *extra_pd;
	struct ibv_context *extra_ctx;
	struct ibv_mw *mw;
	struct ibv_mw other_mw; /* what @mw is if there is no such window */
	struct ibv_mr other_mr; /* a region that there is not */
	uint32_t wrong_bits;	/* of the key that a bind asks for */
	struct xrc other_xrc;
	bool (*afterwards)(struct scene *scene); /* looks at it, or NULL */
	/* of the peer, for this connection; its key is the one to invalidate */
	struct region window_mem;
	struct ibv_mw *window;
	struct message *message; /* of several segments, or NULL */
	/* what a's port had counted before, if it counts */
	bool counted;
	uint64_t rnr_retries;
	uint64_t retries;
};

/* What the first receive of the responder ends with. */
enum receive_end {
	RECEIVE_STAYS, /* for what arrives; queue pair unharmed */
	RECEIVE_NEXT,  /* the message is lost, those behind it are not */
	RECEIVE_FLUSHED,
	RECEIVE_TOO_SHORT, /* local length error */
	RECEIVE_PROTECTED, /* local protection error */
	RECEIVE_REFUSED,   /* local access error */
	RECEIVE_UNTOUCHED, /* the responder is as the case left it */
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
	struct outcome reliable;
	struct outcome unreliable;
	void (*options)(struct endpoint_options *options);
};

struct fault_table {
	const struct fault *faults;
	unsigned int count;
	unsigned int services; /* a bit for each */
	const char *where; /* what the names of its cases end with, or NULL */
	int element;	   /* the one that is at fault (elements.c) */
	bool is_long;	   /* messages of several segments (long.c) */
	bool midway;	   /* when part of the message has arrived */
};

/*
 * What a request completes with, what its receive does, and which event; on
 * reliable services, and on unreliable ones.
 */
#define LOST                                                                   \
	{                                                                      \
		IBV_WC_SUCCESS, RECEIVE_NEXT, -1                               \
	}
#define SILENCE                                                                \
	{                                                                      \
		IBV_WC_SUCCESS, RECEIVE_UNTOUCHED, -1                          \
	}
#define FINE                                                                   \
	{                                                                      \
		IBV_WC_SUCCESS, RECEIVE_STAYS, -1                              \
	}
#define REMOTE_ACCESS                                                          \
	{                                                                      \
		IBV_WC_REM_ACCESS_ERR, RECEIVE_FLUSHED,                        \
			IBV_EVENT_QP_ACCESS_ERR                                \
	}
#define REMOTE_INVALID                                                         \
	{                                                                      \
		IBV_WC_REM_INV_REQ_ERR, RECEIVE_FLUSHED, IBV_EVENT_QP_REQ_ERR  \
	}
#define LOCAL_PROTECTION                                                       \
	{                                                                      \
		IBV_WC_LOC_PROT_ERR, RECEIVE_STAYS, -1                         \
	}
#define LOCAL_LENGTH                                                           \
	{                                                                      \
		IBV_WC_LOC_LEN_ERR, RECEIVE_STAYS, -1                          \
	}
#define RECEIVE_SHORT(status)                                                  \
	{                                                                      \
		status, RECEIVE_TOO_SHORT, -1                                  \
	}
#define RECEIVE_PROTECTION(status)                                             \
	{                                                                      \
		status, RECEIVE_PROTECTED, -1                                  \
	}
#define NO_ANSWER                                                              \
	{                                                                      \
		IBV_WC_RETRY_EXC_ERR, RECEIVE_UNTOUCHED, -1                    \
	}
#define NOT_READY                                                              \
	{                                                                      \
		IBV_WC_RNR_RETRY_EXC_ERR, RECEIVE_STAYS, -1                    \
	}

/* Of a reliable service, and of one that is not, where the receive is at fault. */
#define RECEIVE_FAILS                                                          \
	RECEIVE_PROTECTION(IBV_WC_REM_OP_ERR),                                 \
		RECEIVE_PROTECTION(IBV_WC_SUCCESS)

#define BIT(number) (1U << (number))

/* Some opcodes. */
#define WRITES (BIT(IBV_WR_RDMA_WRITE) | BIT(IBV_WR_RDMA_WRITE_WITH_IMM))
#define SENDS                                                                  \
	(BIT(IBV_WR_SEND) | BIT(IBV_WR_SEND_WITH_IMM) |                        \
	 BIT(IBV_WR_SEND_WITH_INV))
#define READS BIT(IBV_WR_RDMA_READ)
#define ATOMICS                                                                \
	(BIT(IBV_WR_ATOMIC_CMP_AND_SWP) | BIT(IBV_WR_ATOMIC_FETCH_AND_ADD))
/* An aligned word at the peer, but no bytes come back. */
#define WORD_WRITE BIT(IBV_WR_ATOMIC_WRITE)
#define WORDS (ATOMICS | WORD_WRITE)
#define REMOTE (WRITES | READS | WORDS)
#define INWARD (READS | ATOMICS)
#define ALL (REMOTE | SENDS)
#define RECEIVED (SENDS | BIT(IBV_WR_RDMA_WRITE_WITH_IMM))
#define OWN (BIT(IBV_WR_LOCAL_INV) | BIT(IBV_WR_BIND_MW))
/* Those of UC. */
#define UNRELIABLE (SENDS | WRITES | OWN)

extern const struct fault_table path_faults;
extern const struct fault_table key_faults;
extern const struct fault_table xrc_faults;
extern const struct fault_table second_element_faults;
extern const struct fault_table last_element_faults;
extern const struct fault_table long_faults;
extern const struct fault_table midway_faults;

/* Those that an opcode may be tried with. */
extern const enum ibv_wr_opcode opcodes[];
extern const unsigned int opcode_count;

const char *service_name(enum service service);
bool service_is_reliable(enum service service);
bool service_is_shared(enum service service);
bool service_has(enum service service, enum ibv_wr_opcode opcode);

/* A connection with @options of a type that @service tells. */
void scene_open(struct scene *scene, struct setup *setup, enum service service,
		enum ibv_wr_opcode opcode,
		const struct endpoint_options *options);
void scene_close(struct scene *scene);
/* Receives go where the service has them. */
void scene_post_receive(struct scene *scene, uint64_t id, struct ibv_sge *sge);
/* All that it has; the first one is that of the request. */
void scene_post_receives(struct scene *scene);
/* A SEND without data arrives. */
bool scene_works(struct scene *scene, uint64_t id);
/* The request of the scene, and another one, both with its keys. */
struct ibv_send_wr scene_request(struct scene *scene, uint64_t id);
struct ibv_send_wr scene_send(struct scene *scene, uint64_t id,
			      enum ibv_wr_opcode opcode, struct ibv_sge *sge);

/* A message of several segments takes the place of the short one. */
void message_open(struct scene *scene);
void message_close(struct scene *scene);
/* Wait until part of it has arrived; the rest waits for a page of its data. */
bool message_begins(struct scene *scene);
/* Let that page come. */
void message_goes_on(struct scene *scene);

/* Faults that are those of short and long messages. */
void wrong_rkey(struct scene *scene);
void no_receives(struct scene *scene);
void peer_destroyed(struct scene *scene);
void peer_reset(struct scene *scene);
void peer_init(struct scene *scene);
void peer_error(struct scene *scene);
void few_retries(struct endpoint_options *options);
void rnr_retry_1(struct endpoint_options *options);
void rnr_retry_6(struct endpoint_options *options);

/* A completion queue of one entry, or the end of the test. */
struct ibv_cq *small_cq(const struct device *dev);
/* There are completions of the first requests, @most of them, and no others. */
bool holds_first(struct ibv_cq *cq, enum ibv_wc_status status, int most);

/* Bytes that the request moves. */
uint32_t request_bytes(const struct scene *scene);
/* Memory of its own for a fault. */
void extra_region(struct scene *scene, struct ibv_pd *pd, int access);

/* A window that the peer binds, and which is the one to invalidate. */
void window_open(struct scene *scene);
void window_close(struct scene *scene);
/*
 * Has the request invalidated it, if it is one of success, and else not? The connection
 * is made anew.
 */
bool window_check(struct scene *scene, const struct outcome *outcome);

/* Has the request come to the end that @fault has for it? */
bool check_outcome(struct scene *scene, const struct fault *fault);
const struct outcome *fault_outcome(const struct fault *fault,
				    enum service service);

/* Was the request repeated as often as a's options say, and no more, in between? */
void retries_begin(struct scene *scene, const struct fault *fault);
bool retries_end(const struct scene *scene, const struct fault *fault);

/*
 * Datagrams; completion queues without room; opcodes that a type lacks; requests that
 * need no peer; messages that are broken off; early ends.
 */
void run_datagrams(struct setup *setup, struct neighbours *neighbours);
void run_full(struct setup *setup, struct neighbours *neighbours);
void run_full_flushes(struct setup *setup, struct neighbours *neighbours);
void run_full_datagrams(struct setup *setup, struct neighbours *neighbours);
void run_refused(struct setup *setup, struct neighbours *neighbours);
void run_alone(struct setup *setup, struct neighbours *neighbours);
void run_broken(struct setup *setup, struct neighbours *neighbours);
void run_ends(struct setup *setup, struct neighbours *neighbours);

#endif /* TESTS_FAULTS_H */
