/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Queue pairs with their completion queues, connected through the queue
 * pair's states, and waiting for completions.
 */
#ifndef TESTS_ENDPOINT_H
#define TESTS_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "device.h"

/* How to make and connect an endpoint; endpoint_options() has defaults. */
struct endpoint_options {
	enum ibv_qp_type type;
	uint32_t depth; /* send and receive requests */
	uint32_t sges;
	uint32_t inline_bytes;
	bool signal_all;
	struct ibv_pd *pd;	/* NULL: the device's */
	struct ibv_cq *send_cq; /* NULL: one of its own */
	struct ibv_cq *recv_cq;
	struct ibv_comp_channel *channel; /* of its own queues */
	struct ibv_srq *srq;		  /* NULL: a receive queue */
	struct ibv_xrcd *xrcd;		  /* of an XRC_RECV queue pair */
	unsigned int access;
	uint8_t timeout;
	uint8_t retry_count;
	uint8_t rnr_retry;
	uint8_t rnr_timer;
	uint8_t reads; /* outstanding READs and atomics */
	uint32_t psn;  /* of the first packet */
};

struct endpoint {
	struct device *dev;
	struct ibv_qp *qp;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct endpoint_options options;
	uint32_t max_inline;
	bool owns_send_cq;
	bool owns_recv_cq;
};

/* What the other side has to know. */
struct endpoint_address {
	union ibv_gid gid;
	uint32_t qp_num;
	uint32_t psn;
	uint32_t mtu;
};

#define ENDPOINT_QKEY 0x11223344U
/* What no queue pair has; for datagrams: all of a group. */
#define MULTICAST_QPN 0xffffffU
/* What comes before each datagram. */
#define GRH_BYTES 40U

struct endpoint_options endpoint_options(enum ibv_qp_type type);

/* False with errno if the device has no such queue pairs. */
bool endpoint_try_create(struct endpoint *ep, struct device *dev,
			 const struct endpoint_options *options);
void endpoint_create(struct endpoint *ep, struct device *dev,
		     const struct endpoint_options *options);
/*
 * Make the queue pair anew, before it is connected: with flags, or with functions of the
 * extended interface; 0 is none.
 */
void endpoint_extend(struct endpoint *ep, uint32_t create_flags,
		     uint64_t send_ops);
void endpoint_destroy(struct endpoint *ep);

struct endpoint_address endpoint_address(const struct endpoint *ep);

/*
 * The steps of a connection; each ends the test if it fails. Datagram queue
 * pairs need no @peer.
 */
void endpoint_to_init(struct endpoint *ep);
void endpoint_to_rtr(struct endpoint *ep, const struct endpoint_address *peer);
void endpoint_to_rts(struct endpoint *ep);
void endpoint_connect(struct endpoint *ep, const struct endpoint_address *peer);
/* Returns what ibv_modify_qp returns. */
int endpoint_set_state(struct endpoint *ep, enum ibv_qp_state state);
/* The same, but if it fails the test ends. */
void endpoint_go(struct endpoint *ep, enum ibv_qp_state state);
enum ibv_qp_state endpoint_state(const struct endpoint *ep);
const char *state_name(enum ibv_qp_state state);

/* Two endpoints with the same options, connected with each other. */
void pair_connect(struct endpoint *a, struct endpoint *b);
void pair_create(struct endpoint *a, struct device *dev_a, struct endpoint *b,
		 struct device *dev_b, const struct endpoint_options *options);
void pair_destroy(struct endpoint *a, struct endpoint *b);

/* An address handle of @dev for what has @gid, or the end of the test. */
struct ibv_ah *address_handle(struct device *dev, const union ibv_gid *gid);

#endif /* TESTS_ENDPOINT_H */
