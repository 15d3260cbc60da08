/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the two sides of a proxied device tell each other. Objects are known by
 * numbers, 0 is none; a pointer within a structure stands for such a number.
 */
#ifndef TESTS_PROXY_CALL_H
#define TESTS_PROXY_CALL_H

#include <stdint.h>
#include <infiniband/verbs.h>

#include "mirror.h"

enum proxy_op {
	PROXY_SYNC,
	PROXY_OPEN,
	PROXY_CLOSE,
	PROXY_ALLOC_PD,
	PROXY_DEALLOC_PD,
	PROXY_REG_MR,
	PROXY_REREG_MR,
	PROXY_DEREG_MR,
	PROXY_ALLOC_MW,
	PROXY_BIND_MW,
	PROXY_DEALLOC_MW,
	PROXY_CREATE_CQ,
	PROXY_POLL_CQ,
	PROXY_DESTROY_CQ,
	PROXY_OPEN_XRCD,
	PROXY_CLOSE_XRCD,
	PROXY_CREATE_SRQ,
	PROXY_SRQ_NUM,
	PROXY_MODIFY_SRQ,
	PROXY_QUERY_SRQ,
	PROXY_DESTROY_SRQ,
	PROXY_CREATE_QP,
	PROXY_MODIFY_QP,
	PROXY_QUERY_QP,
	PROXY_DESTROY_QP,
	PROXY_POST_SEND,
	PROXY_POST_RECV,
	PROXY_POST_SRQ_RECV,
	PROXY_CREATE_AH,
	PROXY_CREATE_AH_FROM_WC,
	PROXY_DESTROY_AH,
	PROXY_QUERY_GID,
	PROXY_ATTACH_MCAST,
	PROXY_DETACH_MCAST,
	PROXY_GET_EVENT,
	PROXY_SHARE,
	PROXY_UNMAP,
	PROXY_ADVISE,
	PROXY_PROTECT,
	PROXY_WITHHOLD,
	PROXY_PROVIDE,
	PROXY_RUN,
	PROXY_OPS
};

enum {
	PROXY_WRS = 64,
	PROXY_SGES = 128,
	PROXY_WCS = 64,
	PROXY_COMMAND = 256,
};

/* A list of requests, and the SGEs of all of them one after the other. */
struct proxy_list {
	union {
		struct ibv_send_wr send[PROXY_WRS];
		struct ibv_recv_wr recv[PROXY_WRS];
	};
	struct ibv_sge sges[PROXY_SGES];
};

struct proxy_memory {
	uint64_t addr;
	uint64_t length;
	uint64_t iova;
	int access; /* or the advice, or the protection */
	uint32_t lkey;
	uint32_t rkey;
};

struct proxy_call {
	uint32_t bytes; /* that are sent: those behind them are zero */
	enum proxy_op op;
	uint32_t object;  /* it is about this one; its answer: what was made */
	uint32_t parent;  /* what an object is made of, or a second one */
	uint32_t count;	  /* of requests, completions, elements; a number */
	uint32_t mask;	  /* of attributes */
	int ret;	  /* what the verb returns */
	int error;	  /* and errno */
	uint32_t patches; /* behind it, of memory */
	union {
		struct {
			struct ibv_device_attr attr;
			struct ibv_port_attr port;
			union ibv_gid gid;
			uint32_t gid_index;
		} device;
		struct proxy_memory memory;
		struct {
			enum ibv_mw_type type;
			uint32_t rkey;
			struct ibv_mw_bind bind;
		} mw;
		struct ibv_wc wc[PROXY_WCS];
		struct ibv_xrcd_init_attr xrcd;
		struct ibv_srq_init_attr_ex srq;
		struct ibv_srq_attr srq_attr;
		struct ibv_qp_init_attr_ex qp;
		struct ibv_qp_attr qp_attr;
		struct ibv_ah_attr ah;
		struct {
			struct ibv_wc wc;
			struct ibv_grh grh;
			uint8_t port;
		} from;
		struct {
			uint32_t port;
			uint32_t index;
			struct ibv_gid_entry entry;
		} gid;
		struct {
			union ibv_gid gid;
			uint16_t lid;
		} group;
		struct proxy_list list;
		enum ibv_event_type event;
		char command[PROXY_COMMAND];
	};
};

/* Each sends or takes a call and what has changed of the memory; false: it's over. */
bool proxy_send(int socket, struct proxy_call *call);
bool proxy_receive(int socket, struct proxy_call *call);

#endif /* TESTS_PROXY_CALL_H */
