// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A process that spoils the indices of its own queues: what ends is that queue,
 * with the event that says so, and nothing else. And one that spoils a receive
 * says nothing of those behind it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <rdma/mic-abi.h>

#include "event.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES 4096UL
#define NONSENSE 0x40000000U

enum { MAX_MAPS = 64, MAX_FD = 64, RECEIVES = 37, CTL_WORDS = 32 };

struct stage {
	struct setup *setup;
	struct endpoint a;
	struct endpoint b;
	struct ibv_cq *cq; /* b's */
	struct ibv_srq *srq;
};

/* --- queue memory: what was mapped since ------------------------------------- */

struct map {
	uint32_t *start;
	size_t words;
};

static struct map known[MAX_MAPS];
static unsigned int known_count;

static bool is_known(const uint32_t *start)
{
	unsigned int i;

	for (i = 0; i < known_count; i++)
		if (known[i].start == start)
			return true;
	return false;
}

/* The queue memory that is not known yet; all of it is known afterwards. */
static struct map new_map(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	struct map all[MAX_MAPS] = { 0 };
	struct map found = { NULL, 0 };
	char line[512], *rest;
	unsigned int n = 0;

	while (file && n < MAX_MAPS && fgets(line, sizeof(line), file)) {
		if (!strstr(line, "[mic_doorbell]"))
			continue;
		all[n].start = (uint32_t *)strtoul(line, &rest, 16);
		all[n].words = (strtoul(rest + 1, NULL, 16) -
				(uintptr_t)all[n].start) /
			       sizeof(uint32_t);
		if (!is_known(all[n].start))
			found = all[n];
		n++;
	}
	if (file)
		fclose(file);
	memcpy(known, all, n * sizeof(all[0]));
	known_count = n;
	return found;
}

static void spoil(uint32_t *index)
{
	*(volatile uint32_t *)index = NONSENSE;
}

/*
 * Ring every doorbell file: those of other contexts have no such queue pair, or
 * one that has nothing to do.
 */
static void ring(const struct ibv_qp *qp)
{
	char path[64], target[64] = "";
	unsigned int rung = 0;
	int fd;

	for (fd = 3; fd < MAX_FD; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof(target) - 1) > 0 &&
		    strstr(target, "[mic_doorbell]") &&
		    !ioctl(fd, MIC_IOC_DOORBELL, (unsigned long)qp->qp_num))
			rung++;
	}
	if (!rung)
		bail("no doorbell for QP %u", qp->qp_num);
}

/* --- cases -------------------------------------------------------------------- */

/* b's queues, each mapped on its own. */
struct maps {
	struct map cq;
	struct map srq;
	struct map qp;
};

static void stage_open(struct stage *stage, struct setup *setup, bool with_srq,
		       struct maps *maps)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = 64, .max_sge = 1 },
	};

	memset(maps, 0, sizeof(*maps));
	stage->setup = setup;
	stage->srq = NULL;
	options.timeout = 1;
	options.retry_count = 2;
	endpoint_create(&stage->a, &setup->a_dev, &options);
	new_map();
	stage->cq = ibv_create_cq(setup->b_dev.ctx, 128, NULL, NULL, 0);
	maps->cq = new_map();
	if (with_srq)
		stage->srq = ibv_create_srq(setup->b_dev.pd, &attr);
	if (!stage->cq || (with_srq && !stage->srq))
		bail("no queues: %s", strerror(errno));
	maps->srq = new_map();
	options.srq = stage->srq;
	options.send_cq = stage->cq;
	options.recv_cq = stage->cq;
	endpoint_create(&stage->b, &setup->b_dev, &options);
	maps->qp = new_map();
	if (!maps->cq.start || !maps->qp.start)
		bail("the queues are not mapped");
	pair_connect(&stage->a, &stage->b);
}

static void stage_close(struct stage *stage)
{
	pair_destroy(&stage->a, &stage->b);
	if (stage->srq)
		check(!ibv_destroy_srq(stage->srq), "ibv_destroy_srq fails");
	check(!ibv_destroy_cq(stage->cq), "ibv_destroy_cq fails");
	new_map();
}

static bool is_in(const struct endpoint *ep, enum ibv_qp_state state)
{
	enum ibv_qp_state found = endpoint_state(ep);

	return check(found == state, "the state is %s", state_name(found));
}

/* The send queue's control block comes first. */
static bool spoiled_send_queue(struct stage *stage, struct maps *maps)
{
	struct ibv_context *ctx = stage->setup->b_dev.ctx;

	spoil(maps->qp.start);
	ring(stage->b.qp);
	return event_expect(ctx, IBV_EVENT_QP_FATAL, stage->b.qp) &&
	       is_in(&stage->b, IBV_QPS_ERR) && is_in(&stage->a, IBV_QPS_RTS) &&
	       cq_stays_empty(stage->cq, 20);
}

/* That of the receive queue has the number of receives for its index. */
static uint32_t *find_index(const struct map *map, uint32_t value)
{
	size_t i;

	for (i = 0; i < map->words; i += CTL_WORDS)
		if (map->start[i] == value && !map->start[i + CTL_WORDS / 2])
			return &map->start[i];
	return NULL;
}

static bool spoiled_receive_queue(struct stage *stage, struct maps *maps)
{
	struct ibv_context *ctx = stage->setup->b_dev.ctx;
	uint32_t *index;
	uint64_t id;

	for (id = 0; id < RECEIVES; id++)
		post_recv(&stage->b, id, NULL, 0);
	index = find_index(&maps->qp, RECEIVES);
	if (!check(index, "the receive queue's index is not found"))
		return false;
	spoil(index);
	post_empty_send(&stage->a, 1, IBV_SEND_SIGNALED);
	return cq_expect(stage->a.send_cq, 1, IBV_WC_RETRY_EXC_ERR) &&
	       event_expect(ctx, IBV_EVENT_QP_FATAL, stage->b.qp) &&
	       is_in(&stage->b, IBV_QPS_ERR);
}

static bool spoiled_shared_queue(struct stage *stage, struct maps *maps)
{
	struct ibv_context *ctx = stage->setup->b_dev.ctx;

	spoil(maps->srq.start);
	post_empty_send(&stage->a, 1, IBV_SEND_SIGNALED);
	return cq_expect(stage->a.send_cq, 1, IBV_WC_RETRY_EXC_ERR) &&
	       event_expect(ctx, IBV_EVENT_SRQ_ERR, stage->srq) &&
	       is_in(&stage->b, IBV_QPS_RTS);
}

/* A consumer that says it is ahead leaves no room. */
static bool spoiled_completion_queue(struct stage *stage, struct maps *maps)
{
	struct ibv_context *ctx = stage->setup->b_dev.ctx;

	spoil(maps->cq.start);
	post_recv(&stage->b, 1, NULL, 0);
	post_empty_send(&stage->a, 1, IBV_SEND_SIGNALED);
	return cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) &&
	       event_expect(ctx, IBV_EVENT_CQ_ERR, stage->cq);
}

/* --- elements of a queue that XRC targets use --------------------------------- */

enum {
	XRC_RECEIVES = 32,
	XRC_SGES = 6,
	XRC_SGE_BYTES = 8,
	XRC_FIRST_ID = 0x12345600,
	XRC_LIST = 32, /* as many as the target itself has room for */
};

struct xrc {
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct map map; /* the queue's */
	struct endpoint a;
	struct endpoint b;
};

static void xrc_queues(struct xrc *xrc, struct setup *setup)
{
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = XRC_RECEIVES, .max_sge = XRC_SGES },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.pd = setup->b_dev.pd,
	};

	xrc->xrcd = ibv_open_xrcd(setup->b_dev.ctx, &domain);
	xrc->cq = ibv_create_cq(setup->b_dev.ctx, 64, NULL, NULL, 0);
	new_map();
	attr.xrcd = xrc->xrcd;
	attr.cq = xrc->cq;
	xrc->srq = ibv_create_srq_ex(setup->b_dev.ctx, &attr);
	xrc->map = new_map();
	if (!xrc->xrcd || !xrc->cq || !xrc->srq || !xrc->map.start)
		bail("no XRC queues: %s", strerror(errno));
}

static void xrc_open(struct xrc *xrc, struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_XRC_SEND);

	xrc_queues(xrc, setup);
	endpoint_create(&xrc->a, &setup->a_dev, &options);
	options.type = IBV_QPT_XRC_RECV;
	options.xrcd = xrc->xrcd;
	endpoint_create(&xrc->b, &setup->b_dev, &options);
	pair_connect(&xrc->a, &xrc->b);
}

static void xrc_close(struct xrc *xrc)
{
	pair_destroy(&xrc->a, &xrc->b);
	check(!ibv_destroy_srq(xrc->srq), "ibv_destroy_srq fails");
	check(!ibv_destroy_cq(xrc->cq), "ibv_destroy_cq fails");
	check(!ibv_close_xrcd(xrc->xrcd), "ibv_close_xrcd fails");
	new_map();
}

static bool xrc_post_all(struct xrc *xrc, const struct region *memory)
{
	struct ibv_sge sges[XRC_SGES];
	struct ibv_recv_wr *bad, wr = {
		.sg_list = sges,
		.num_sge = XRC_SGES,
	};
	unsigned int i, j;

	for (i = 0; i < XRC_RECEIVES; i++) {
		for (j = 0; j < XRC_SGES; j++)
			sges[j] = region_sge(memory, j * XRC_SGE_BYTES,
					     XRC_SGE_BYTES);
		wr.wr_id = XRC_FIRST_ID + i;
		if (!check(!ibv_post_srq_recv(xrc->srq, &wr, &bad),
			   "receive %u is refused", i))
			return false;
	}
	return true;
}

static bool xrc_send(struct xrc *xrc, struct setup *setup, uint32_t length,
		     enum ibv_wc_status status)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, length);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge, 1);

	ibv_get_srq_num(xrc->srq, &wr.qp_type.xrc.remote_srqn);
	post_send(&xrc->a, &wr);
	return cq_expect(xrc->a.send_cq, 1, status);
}

/* The receive says that it has more elements than one of this queue can. */
static bool xrc_spoil(struct xrc *xrc, unsigned int which)
{
	uint32_t id = XRC_FIRST_ID + which;
	size_t i;

	for (i = 0; i + 2 < xrc->map.words; i += 2)
		if (xrc->map.start[i] == id &&
		    xrc->map.start[i + 2] == XRC_SGES)
			break;
	if (!check(i + 2 < xrc->map.words, "the receive is not found"))
		return false;
	*(volatile uint32_t *)&xrc->map.start[i + 2] = XRC_LIST;
	return true;
}

static bool spoiled_receive(struct setup *setup, unsigned int which)
{
	const uint32_t whole = XRC_SGES * XRC_SGE_BYTES;
	struct xrc xrc;
	unsigned int i;
	bool ok;

	xrc_open(&xrc, setup);
	ok = xrc_post_all(&xrc, &setup->b_mem) && xrc_spoil(&xrc, which);
	for (i = 0; ok && i < which; i++)
		ok = xrc_send(&xrc, setup, whole, IBV_WC_SUCCESS) &&
		     cq_expect(xrc.cq, XRC_FIRST_ID + i, IBV_WC_SUCCESS);
	ok = ok && xrc_send(&xrc, setup, whole + 1, IBV_WC_REM_INV_REQ_ERR) &&
	     cq_expect(xrc.cq, XRC_FIRST_ID + which, IBV_WC_LOC_LEN_ERR);
	xrc_close(&xrc);
	return ok;
}

/* ---------------------------------------------------------------------------- */

static const struct {
	bool (*run)(struct stage *stage, struct maps *maps);
	const char *name;
	bool with_srq;
} cases[] = {
	{ spoiled_send_queue, "the index of a send queue", false },
	{ spoiled_receive_queue, "the index of a receive queue", false },
	{ spoiled_shared_queue, "the index of a shared receive queue", true },
	{ spoiled_completion_queue, "the index of a completion queue", false },
};

int main(int argc, char **argv)
{
	struct neighbours neighbours;
	struct setup setup;
	struct stage stage;
	struct maps maps;
	unsigned int i;
	bool ok;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	events_prepare(setup.a_dev.ctx);
	events_prepare(setup.b_dev.ctx);
	neighbours_open(&neighbours, &setup);
	for (i = 0; i < COUNT(cases); i++) {
		stage_open(&stage, &setup, cases[i].with_srq, &maps);
		ok = cases[i].run(&stage, &maps);
		stage_close(&stage);
		ok = events_none(setup.b_dev.ctx) &&
		     events_none(setup.a_dev.ctx) && ok;
		tap_ok(neighbours_work(&neighbours) && ok, "%s", cases[i].name);
	}
	/* behind the last there is nothing */
	for (i = 0; i < 2; i++) {
		ok = spoiled_receive(&setup, i ? XRC_RECEIVES - 1 : 5);
		ok = events_none(setup.b_dev.ctx) && ok;
		tap_ok(neighbours_work(&neighbours) && ok,
		       "XRC: the length of %s receive's list",
		       i ? "the last" : "a");
	}
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
