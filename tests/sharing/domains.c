// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * XRC domains: both processes open that of one file. The second one has the target
 * and sends to it; each has a receive queue in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "event.h"
#include "sharing.h"
#include "srq.h"
#include "tap.h"
#include "work.h"

enum { ENTRIES = 32, MESSAGES = 10, MESSAGE_BYTES = 64, LAST_ID = 90 };

#define TARGET_OFFSET 8192U

/* What the other one has to know of a receive queue and its memory. */
struct inbox {
	uint32_t srqn;
	uint32_t rkey;
	uint64_t addr;
};

struct stage {
	struct side *side;
	struct xrc xrc;
	int file;
	struct inbox mine;
	struct inbox theirs;
};

/* The file has a name until both have opened it. */
static int open_file(struct side *side)
{
	char name[64] = "/tmp/mic-sharing-XXXXXX", theirs[64];
	int fd = -1;

	if (!side->second)
		fd = mkstemp(name);
	exchange(side, name, theirs, sizeof(name));
	if (side->second)
		fd = open(theirs, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		bail("no file: %s", strerror(errno));
	meet(side, true);
	if (!side->second)
		unlink(name);
	return fd;
}

static void stage_open(struct stage *stage, struct side *side)
{
	memset(stage, 0, sizeof(*stage));
	stage->side = side;
	stage->file = open_file(side);
	/* the first one makes the domain, the second one finds it */
	if (side->second)
		meet(side, true);
	xrc_open_domain_of(&stage->xrc, &side->setup, stage->file,
			   side->second ? 0 : O_CREAT);
	if (!side->second)
		meet(side, true);
	stage->xrc.srq[0] = xrc_create_srq(&stage->xrc, ENTRIES, 1);
	if (ibv_get_srq_num(stage->xrc.srq[0], &stage->mine.srqn))
		bail("ibv_get_srq_num fails");
	stage->mine.rkey = side->setup.b_mem.mr->rkey;
	stage->mine.addr = side->setup.b_mem.rdma_addr;
	exchange(side, &stage->mine, &stage->theirs, sizeof(stage->mine));
	if (side->second)
		xrc_connect(&stage->xrc);
}

static void stage_close(struct stage *stage)
{
	xrc_close(&stage->xrc);
	close(stage->file);
}

static void post_receives(struct stage *stage)
{
	struct ibv_sge sge;
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	for (wr.wr_id = 0; wr.wr_id < MESSAGES; wr.wr_id++) {
		sge = region_sge(&stage->side->setup.b_mem,
				 wr.wr_id * MESSAGE_BYTES, MESSAGE_BYTES);
		if (ibv_post_srq_recv(stage->xrc.srq[0], &wr, &bad))
			bail("ibv_post_srq_recv fails");
	}
}

/* The second one's: @wr goes to that queue. */
static bool send_to(struct stage *stage, struct ibv_send_wr wr, uint32_t srqn,
		    enum ibv_wc_status status)
{
	wr.qp_type.xrc.remote_srqn = srqn;
	post_send(&stage->xrc.a, &wr);
	return cq_expect(stage->xrc.a.send_cq, wr.wr_id, status);
}

static bool send_message(struct stage *stage, uint64_t id,
			 const struct inbox *to)
{
	const struct region *memory = &stage->side->setup.a_mem;
	struct ibv_sge sge = region_sge(memory, 0, MESSAGE_BYTES);

	memset(memory->addr, (int)(id + to->srqn), MESSAGE_BYTES);
	return send_to(stage, send_wr(id, IBV_WR_SEND, &sge, 1), to->srqn,
		       IBV_WC_SUCCESS);
}

/* Message @id has come into the receive of that number, and to no other process. */
static bool has_message(struct stage *stage, uint64_t id)
{
	struct ibv_wc wc;

	return cq_success(stage->xrc.cq, id, &wc) &&
	       check(wc.byte_len == MESSAGE_BYTES, "%u bytes", wc.byte_len) &&
	       all_are(stage->side->setup.b_mem.addr + id * MESSAGE_BYTES,
		       MESSAGE_BYTES, (uint8_t)(id + stage->mine.srqn));
}

/* To the one and to the other, in turn. */
static bool reaches_both(struct stage *stage)
{
	struct side *side = stage->side;
	bool ok = true;
	uint64_t id;

	post_receives(stage);
	if (!meet(side, stage->mine.srqn != stage->theirs.srqn))
		return check(false, "both queues have one number");
	for (id = 0; id < MESSAGES; id++) {
		if (side->second)
			ok = send_message(stage, id, &stage->theirs) &&
			     send_message(stage, id, &stage->mine) && ok;
		ok = has_message(stage, id) && ok;
	}
	return cq_stays_empty(stage->xrc.cq, 0) && ok;
}

static bool write_to(struct stage *stage, const struct inbox *queue,
		     const struct inbox *memory, enum ibv_wc_status status)
{
	struct ibv_sge sge = region_sge(&stage->side->setup.a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);

	wr.wr.rdma.remote_addr = memory->addr + TARGET_OFFSET;
	wr.wr.rdma.rkey = memory->rkey;
	return send_to(stage, wr, queue->srqn, status);
}

/* The keys are those of the queue's domain, whoever has the target. */
static bool keys_are_the_queues(struct stage *stage)
{
	uint8_t *target = stage->side->setup.b_mem.addr + TARGET_OFFSET;
	bool ok = true;

	memset(target, 0x11, 8);
	memset(stage->side->setup.a_mem.addr, 0x66, 8);
	if (!meet(stage->side, true))
		return false;
	if (stage->side->second)
		ok = write_to(stage, &stage->theirs, &stage->theirs,
			      IBV_WC_SUCCESS) &&
		     write_to(stage, &stage->theirs, &stage->mine,
			      IBV_WC_REM_ACCESS_ERR) &&
		     event_expect(stage->side->setup.b_dev.ctx,
				  IBV_EVENT_QP_ACCESS_ERR, stage->xrc.b.qp);
	ok = meet(stage->side, ok);
	return all_are(target, 8, stage->side->second ? 0x11 : 0x66) && ok;
}

/* A queue that its owner destroys is gone for the other. */
static bool queue_goes(struct stage *stage)
{
	struct ibv_send_wr wr = send_wr(LAST_ID, IBV_WR_SEND, NULL, 0);
	struct side *side = stage->side;
	bool ok = true;

	post_receives(stage);
	if (!side->second) {
		ok = check(!ibv_destroy_srq(stage->xrc.srq[0]),
			   "ibv_destroy_srq fails");
		stage->xrc.srq[0] = NULL;
	}
	if (!meet(side, ok))
		return false;
	if (side->second)
		ok = send_message(stage, 0, &stage->mine) &&
		     has_message(stage, 0) &&
		     send_to(stage, wr, stage->theirs.srqn,
			     IBV_WC_REM_INV_REQ_ERR) &&
		     event_expect(side->setup.b_dev.ctx, IBV_EVENT_QP_REQ_ERR,
				  stage->xrc.b.qp);
	return cq_stays_empty(stage->xrc.cq, 0) && ok;
}

/* Who made the domain closes it; it is there as long as the other has it open. */
static bool maker_closes(struct stage *stage)
{
	struct side *side = stage->side;
	bool ok = true;

	post_receives(stage);
	if (!side->second) {
		xrc_close(&stage->xrc);
		memset(&stage->xrc, 0, sizeof(stage->xrc));
	}
	if (!meet(side, true))
		return false;
	if (side->second)
		ok = send_message(stage, 0, &stage->mine) &&
		     has_message(stage, 0);
	ok = meet(side, ok);
	/* found again, though it is not asked for a new one */
	if (!side->second) {
		xrc_open_domain_of(&stage->xrc, &side->setup, stage->file, 0);
		stage->xrc.srq[0] = xrc_create_srq(&stage->xrc, ENTRIES, 1);
	}
	return ok;
}

/* A handle of the other process's target, or NULL. */
static struct ibv_qp *open_target(struct stage *stage, uint32_t qpn)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = qpn,
		.xrcd = stage->xrc.xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	errno = 0;
	return ibv_open_qp(stage->side->setup.b_dev.ctx, &attr);
}

static bool is_in_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init))
		return check(false, "ibv_query_qp fails");
	return check(attr.qp_state == state, "its state is %d, not %d",
		     attr.qp_state, state);
}

static bool goes_to_reset(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	return check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE),
		     "ibv_modify_qp fails") &&
	       is_in_state(qp, IBV_QPS_RESET);
}

/* The second one's: it has no target any more, but there is one. */
static bool leaves_its_target(struct stage *stage)
{
	bool ok = check(!ibv_destroy_qp(stage->xrc.b.qp),
			"ibv_destroy_qp fails");

	stage->xrc.b.qp = NULL;
	return ok && send_message(stage, 0, &stage->mine) &&
	       has_message(stage, 0) && send_message(stage, 0, &stage->theirs);
}

/* Who opens the other's target has it, too, and alone when the other leaves it. */
static bool target_is_opened(struct stage *stage)
{
	struct ibv_qp *qp = stage->xrc.b.qp, *none;
	struct side *side = stage->side;
	uint32_t mine = 0, theirs;
	bool ok = true;

	if (qp)
		mine = qp->qp_num;
	post_receives(stage);
	exchange(side, &mine, &theirs, sizeof(mine));
	if (!side->second) {
		none = open_target(stage, theirs + 1);
		ok = check(!none && errno == EINVAL, "another number: %s",
			   none ? "opened" : strerror(errno));
		qp = open_target(stage, theirs);
		ok = check(qp && qp->qp_num == theirs, "ibv_open_qp: %s",
			   strerror(errno)) &&
		     is_in_state(qp, IBV_QPS_RTS) && ok;
	}
	if (!meet(side, ok))
		return false;
	if (side->second)
		ok = leaves_its_target(stage);
	ok = meet(side, ok);
	if (side->second)
		ok = write_to(stage, &stage->theirs, &stage->mine,
			      IBV_WC_REM_ACCESS_ERR) &&
		     ok;
	else
		ok = has_message(stage, 0) && ok;
	ok = meet(side, ok);
	/* ib_core has no events for who has opened a target */
	if (!side->second)
		ok = is_in_state(qp, IBV_QPS_ERR) && goes_to_reset(qp) &&
		     check(!ibv_destroy_qp(qp), "ibv_destroy_qp fails") &&
		     check(!open_target(stage, theirs),
			   "it is there after its last handle") &&
		     ok;
	return ok;
}

static bool is_refused(struct stage *stage, int fd, int oflags, int error)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = oflags,
	};
	struct ibv_xrcd *xrcd;

	errno = 0;
	xrcd = ibv_open_xrcd(stage->side->setup.b_dev.ctx, &attr);
	if (xrcd)
		ibv_close_xrcd(xrcd);
	return check(!xrcd && errno == error, "flags 0%o: %s instead of %s",
		     oflags, xrcd ? "a domain" : strerror(errno),
		     strerror(error));
}

/* That of a file which has none, a new one where there is one, of no file. */
static bool flags(struct stage *stage)
{
	char name[] = "/tmp/mic-sharing-XXXXXX";
	int other = mkstemp(name);
	bool ok;

	unlink(name);
	ok = is_refused(stage, stage->file, O_CREAT | O_EXCL, EINVAL) &&
	     is_refused(stage, other, 0, EAGAIN) &&
	     is_refused(stage, 1000, O_CREAT, EBADF);
	close(other);
	return ok;
}

static const struct {
	bool (*run)(struct stage *stage);
	const char *name;
} cases[] = {
	{ reaches_both, "XRC: one target, receive queues of two processes" },
	{ keys_are_the_queues, "XRC: keys are those of the queue's process" },
	{ queue_goes, "XRC: the other process destroys its queue" },
	{ maker_closes, "XRC: who made the domain closes it" },
	{ target_is_opened, "XRC: the other process's target is opened" },
	{ flags, "XRC: domains that are refused" },
};

void run_domains(struct side *side)
{
	struct stage stage;
	unsigned int i;
	bool ok;

	events_prepare(side->setup.b_dev.ctx);
	for (i = 0; i < COUNT(cases); i++) {
		stage_open(&stage, side);
		ok = meet(side, cases[i].run(&stage));
		stage_close(&stage);
		report(side, events_none(side->setup.b_dev.ctx) && ok,
		       cases[i].name);
	}
}

/* --- death ------------------------------------------------------------------ */

/* The first one's initiator @a and the second one's target. */
static void connect_across(struct stage *stage, struct endpoint *a)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_XRC_SEND);
	struct endpoint *mine = stage->side->second ? &stage->xrc.b : a;
	struct endpoint_address address, theirs;

	options.timeout = 1;
	options.retry_count = 2;
	if (stage->side->second)
		endpoint_go(mine, IBV_QPS_RESET);
	else
		endpoint_create(a, &stage->side->setup.a_dev, &options);
	address = endpoint_address(mine);
	exchange(stage->side, &address, &theirs, sizeof(address));
	endpoint_connect(mine, &theirs);
	meet(stage->side, true);
}

/* What the other one may have taken before it ended is fine. */
static bool fails_in_the_end(struct stage *stage, struct endpoint *a)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);
	struct ibv_wc wc;

	wr.qp_type.xrc.remote_srqn = stage->theirs.srqn;
	do {
		post_send(a, &wr);
		if (!cq_wait(a->send_cq, &wc))
			return false;
	} while (!wc.status);
	return check(wc.status == IBV_WC_RETRY_EXC_ERR, "it ends with %s",
		     ibv_wc_status_str(wc.status));
}

/* The domain is the first one's now, and its queue has another target. */
static bool goes_on(struct stage *stage)
{
	post_receives(stage);
	xrc_connect(&stage->xrc);
	return send_message(stage, 0, &stage->mine) && has_message(stage, 0);
}

void run_death(struct side *side)
{
	struct endpoint a;
	struct stage stage;
	char byte;
	bool ok;

	stage_open(&stage, side);
	connect_across(&stage, &a);
	if (side->second) {
		post_receives(&stage);
		meet(side, true);
		_exit(0);
	}
	ok = meet(side, true) &&
	     check(becomes_readable(side->socket) &&
			   read(side->socket, &byte, 1) <= 0,
		   "the second process goes on");
	ok = fails_in_the_end(&stage, &a) && goes_on(&stage) && ok;
	endpoint_destroy(&a);
	stage_close(&stage);
	tap_ok(ok, "XRC: the other process dies with the target");
}
