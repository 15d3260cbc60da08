/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A process that holds objects of every kind, with work in their queues, and
 * another one like it that they are connected with.
 */
#ifndef TESTS_HOLDER_H
#define TESTS_HOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "dmabuf.h"
#include "endpoint.h"
#include "memory.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum {
	MAX_HELD = 256,
	REGION_BYTES = 1 << 16,
	DM_BYTES = 4 * 4096,
	QUEUED = 8, /* requests that wait in a queue */
};

/* Connections with the other process, by what they do. */
enum link {
	LINK_BUSY,	 /* requests are carried out all the time */
	LINK_WAITING,	 /* for a receive of the other's */
	LINK_SHARED,	 /* what receives is shared */
	LINK_PAGE,	 /* for a page of the other's that never comes */
	LINK_OWN_PAGE,	 /* for one of its own */
	LINK_LOST,	 /* nobody answers */
	LINK_DRAINED,	 /* in SQD */
	LINK_FAILED,	 /* in ERR */
	LINK_UNRELIABLE, /* UC */
	LINK_SEND_ERROR, /* UC in SQE */
	LINK_OVERFLOW,	 /* UC whose completion queue is too small */
	LINK_DATAGRAM,
	LINK_XRC_OUT,
	LINK_XRC_IN,
	LINKS
};

/* Memory of each kind that the other process may access. */
enum target {
	TARGET_ORDINARY,
	TARGET_ON_DEMAND,
	TARGET_DM,
	TARGET_DMABUF,
	TARGET_MW1,
	TARGET_MW2,
	TARGET_NEVER, /* a page that never comes */
	TARGETS
};

struct place {
	uint64_t addr;
	uint32_t rkey;
};

/* What the other process is told. */
struct offer {
	struct endpoint_address links[LINKS];
	struct place targets[TARGETS];
	uint32_t srqn;
};

/* What names this process's objects in its context. */
struct handles {
	uint32_t pd;
	uint32_t mr;
	uint32_t dm;
	uint32_t gid_index;
};

struct held {
	const char *what;
	void *object;
	int (*let_go)(void *object);
};

struct holder {
	const char *name;
	bool second;
	int socket;
	struct device dev;
	struct held held[MAX_HELD]; /* the newest last */
	unsigned int count;

	struct ibv_pd *domain; /* a parent domain with a thread domain */
	struct ibv_xrcd *xrcd; /* of a file */
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;
	struct ibv_srq *xrc_srq;
	struct region region; /* ordinary */
	struct region on_demand;
	struct dmabuf buf;
	struct ibv_dm *dm;
	struct ibv_mr *dm_mr;
	struct ibv_mr *buf_mr;
	struct ibv_mr *never;
	struct ibv_mw *mw[2]; /* type 1, type 2 */
	uint32_t mw2_rkey;
	struct endpoint links[LINKS];
	struct ibv_ah *group_ah;
	struct offer mine;
	struct offer theirs;
	volatile uint8_t *window;
	uint32_t round;
};

/* Have @object, which is NULL if it is not to be had: then the program ends. */
void *keep(struct holder *holder, const char *what, void *object,
	   int (*let_go)(void *object));
/* Let go of everything, the newest first; false if that can't be done. */
bool let_go_of_all(struct holder *holder);

/* The other process is gone, or should be: let go of everything, and end. */
void end_alone(struct holder *holder) __attribute__((noreturn));
bool is_alone(const struct holder *holder);
/* Wait until @fd is readable, or end. */
void await(struct holder *holder, int fd);
void exchange(struct holder *holder, const void *mine, void *theirs,
	      size_t length);
void meet(struct holder *holder);

/* The steps, in this order. */
void hold_domains(struct holder *holder);
void hold_memory(struct holder *holder);
void hold_queues(struct holder *holder);
void hold_links(struct holder *holder);
void hold_connections(struct holder *holder);
void hold_imports(struct holder *holder);

/* A page on demand that never comes, and a region of it. */
struct ibv_mr *hold_missing_page(struct holder *holder, struct ibv_pd *pd);
void post_shared_receives(struct ibv_srq *srq, unsigned int count);

/* What the links do meanwhile, once. */
void use_links(struct holder *holder);

int let_go_of_cq(void *cq);
int let_go_of_endpoint(void *ep);
int let_go_of_mr(void *mr);
int let_go_of_pd(void *pd);
int let_go_of_srq(void *srq);
int let_go_of_xrcd(void *xrcd);

#endif /* TESTS_HOLDER_H */
