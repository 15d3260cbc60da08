// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Faults of messages of several segments, from the first one on and from a later one
 * on: what is in order when the message begins is not when it goes on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "faults.h"
#include "tap.h"
#include "withhold.h"
#include "work.h"

/* What moves at a time, and a message of several of these. */
#define SEGMENT_BYTES (256UL << 10)
#define LONG_BYTES (3 * SEGMENT_BYTES)
/* What the memories hold at first. */
#define FROM_BYTE 0x5a
#define TO_BYTE 0x5b

/* On a's side memory on demand, of which a page is missing; and on b's. */
struct message {
	uint8_t *from;
	struct ibv_mr *mr;
	int withheld;
	struct region to;
};

static void open_from(struct message *message, struct ibv_pd *pd)
{
	const size_t hole = SEGMENT_BYTES + PAGE_BYTES;

	message->from = mmap(NULL, LONG_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (message->from == MAP_FAILED)
		bail("no memory: %s", strerror(errno));
	memset(message->from, FROM_BYTE, hole);
	memset(message->from + hole + PAGE_BYTES, FROM_BYTE,
	       LONG_BYTES - hole - PAGE_BYTES);
	message->withheld = withhold(message->from + hole, PAGE_BYTES);
	message->mr = ibv_reg_mr(pd, message->from, LONG_BYTES,
				 ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	if (!message->mr || message->withheld < 0)
		bail("no region on demand: %s", strerror(errno));
}

void message_open(struct scene *scene)
{
	struct message *message = calloc(1, sizeof(*message));

	if (!message)
		bail("no memory");
	scene->message = message;
	open_from(message, scene->setup->a_dev.pd);
	region_create(&message->to, scene->setup->b_dev.pd, LONG_BYTES);
	memset(message->to.addr, TO_BYTE, LONG_BYTES);
	scene->local[0] = (struct ibv_sge){
		.addr = (uintptr_t)message->from,
		.length = LONG_BYTES,
		.lkey = message->mr->lkey,
	};
	scene->remote_addr = message->to.rdma_addr;
	scene->rkey = message->to.mr->rkey;
	if (SENDS & BIT(scene->opcode))
		scene->receive[0] = region_sge(&message->to, 0, LONG_BYTES);
}

void message_close(struct scene *scene)
{
	struct message *message = scene->message;

	message_goes_on(scene);
	if (message->mr)
		tap_must(!ibv_dereg_mr(message->mr), "ibv_dereg_mr fails");
	munmap(message->from, LONG_BYTES);
	region_destroy(&message->to);
	free(message);
}

bool message_begins(struct scene *scene)
{
	struct message *message = scene->message;
	bool inward = INWARD & BIT(scene->opcode);
	const volatile uint8_t *first = inward ? message->from :
						 message->to.addr;
	uint8_t expected = inward ? TO_BYTE : FROM_BYTE;
	uint64_t end = deadline();

	while (*first != expected)
		if (now_ms() > end || !cq_stays_empty(scene->recv_cq, 1))
			return check(false, "the message does not begin");
	return cq_stays_empty(scene->a.send_cq, 1);
}

void message_goes_on(struct scene *scene)
{
	if (scene->message->withheld >= 0)
		close(scene->message->withheld);
	scene->message->withheld = -1;
}

/* --- faults ------------------------------------------------------------------ */

static void wrong_rkey_no_receives(struct scene *scene)
{
	wrong_rkey(scene);
	no_receives(scene);
}

static void local_gone(struct scene *scene)
{
	tap_must(!ibv_dereg_mr(scene->message->mr), "ibv_dereg_mr fails");
	scene->message->mr = NULL;
}

static void remote_gone(struct scene *scene)
{
	tap_must(!ibv_dereg_mr(scene->message->to.mr), "ibv_dereg_mr fails");
	scene->message->to.mr = NULL;
}

/* The peer's queue pair has this right no more. */
static void withdraw(struct scene *scene, unsigned int access)
{
	struct ibv_qp_attr attr = {
		.qp_access_flags = scene->b.options.access & ~access,
	};

	tap_must(!ibv_modify_qp(scene->b.qp, &attr, IBV_QP_ACCESS_FLAGS),
		 "ibv_modify_qp fails");
	scene->b.options.access = attr.qp_access_flags;
}

static void write_withdrawn(struct scene *scene)
{
	withdraw(scene, IBV_ACCESS_REMOTE_WRITE);
}

static void read_withdrawn(struct scene *scene)
{
	withdraw(scene, IBV_ACCESS_REMOTE_READ);
}

#define ALL_LONG (WRITES | READS | SENDS)

static const struct fault rows[] = {
	{ "wrong rkey", WRITES | READS, wrong_rkey, REMOTE_ACCESS, LOST, NULL },
	{ "wrong rkey, no receive", BIT(IBV_WR_RDMA_WRITE_WITH_IMM),
	  wrong_rkey_no_receives, REMOTE_ACCESS, LOST, NULL },
	/* what has arrived before the last segment is no progress the next time */
	{ "no receive, one retry", BIT(IBV_WR_RDMA_WRITE_WITH_IMM), no_receives,
	  NOT_READY, LOST, rnr_retry_1 },
	{ "no receive, six retries", BIT(IBV_WR_RDMA_WRITE_WITH_IMM),
	  no_receives, NOT_READY, LOST, rnr_retry_6 },
};

static const struct fault midway_rows[] = {
	{ "local MR deregistered midway", ALL_LONG, local_gone,
	  LOCAL_PROTECTION, LOCAL_PROTECTION, NULL },
	{ "remote MR deregistered midway", WRITES | READS, remote_gone,
	  REMOTE_ACCESS, LOST, NULL },
	{ "MR of the receive deregistered midway", SENDS, remote_gone,
	  RECEIVE_FAILS, NULL },
	{ "QP without remote write midway", WRITES, write_withdrawn,
	  REMOTE_INVALID, LOST, NULL },
	{ "QP without remote read midway", READS, read_withdrawn,
	  REMOTE_INVALID, LOST, NULL },
	{ "peer destroyed midway", ALL_LONG, peer_destroyed, NO_ANSWER, SILENCE,
	  few_retries },
	{ "peer in RESET midway", ALL_LONG, peer_reset, NO_ANSWER, SILENCE,
	  few_retries },
	{ "peer in ERR midway", ALL_LONG, peer_error, NO_ANSWER, SILENCE,
	  few_retries },
};

const struct fault_table long_faults = {
	.faults = rows,
	.count = COUNT(rows),
	.services = BIT(SERVICES) - 1,
	.where = ", a long message",
	.is_long = true,
};

const struct fault_table midway_faults = {
	.faults = midway_rows,
	.count = COUNT(midway_rows),
	.services = BIT(SERVICES) - 1,
	.where = ", a long message",
	.is_long = true,
	.midway = true,
};
