// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A process that spoils the indices of its own queues: what ends is that queue,
 * with the event that says so, and nothing else. And one that spoils requests,
 * which fail, or a receive, which says nothing of those behind it; and one that has
 * events raised and reads none.
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
#include "srq.h"
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
 * one that has nothing to do. Returns one that has it.
 */
static int ring(const struct ibv_qp *qp)
{
	char path[64], target[64] = "";
	int fd, rung = -1;

	for (fd = 3; fd < MAX_FD; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof(target) - 1) > 0 &&
		    strstr(target, "[mic_doorbell]") &&
		    !ioctl(fd, MIC_IOC_DOORBELL, (unsigned long)qp->qp_num))
			rung = fd;
	}
	if (rung < 0)
		bail("no doorbell for QP %u", qp->qp_num);
	return rung;
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
		tap_must(!ibv_destroy_srq(stage->srq), "ibv_destroy_srq fails");
	tap_must(!ibv_destroy_cq(stage->cq), "ibv_destroy_cq fails");
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

/* --- requests that nobody can post --------------------------------------------- */

enum { SPOILED_ID = 0x6543210 };

static struct mic_send_wqe *find_request(const struct map *map)
{
	size_t i;

	for (i = 0; i + MIC_SEND_WQE_HDR / 4 <= map->words;
	     i += MIC_SEND_WQE_HDR / 4)
		if (map->start[i] == SPOILED_ID && !map->start[i + 1])
			return (struct mic_send_wqe *)&map->start[i];
	return NULL;
}

/*
 * Two requests wait for a receive of the peer; the second is changed before
 * its turn comes.
 */
static bool fails_as(struct stage *stage, const struct maps *maps,
		     void (*change)(volatile struct mic_send_wqe *wqe),
		     enum ibv_wc_status status)
{
	struct mic_send_wqe *wqe;

	post_empty_send(&stage->b, 1, IBV_SEND_SIGNALED);
	post_empty_send(&stage->b, SPOILED_ID, IBV_SEND_SIGNALED);
	wqe = find_request(&maps->qp);
	if (!check(wqe, "the request is not found"))
		return false;
	change(wqe);
	post_recv(&stage->a, 2, NULL, 0);
	post_recv(&stage->a, 3, NULL, 0);
	return cq_expect(stage->cq, 1, IBV_WC_SUCCESS) &&
	       cq_expect(stage->a.recv_cq, 2, IBV_WC_SUCCESS) &&
	       cq_expect(stage->cq, SPOILED_ID, status) &&
	       is_in(&stage->b, IBV_QPS_ERR) && is_in(&stage->a, IBV_QPS_RTS) &&
	       cq_stays_empty(stage->a.recv_cq, 20);
}

static void no_such_opcode(volatile struct mic_send_wqe *wqe)
{
	wqe->opcode = 99;
}

static void opcode_of_the_kernel(volatile struct mic_send_wqe *wqe)
{
	wqe->opcode = MIC_WR_REG_MR;
}

static void no_such_flag(volatile struct mic_send_wqe *wqe)
{
	wqe->flags = MIC_WQE_FLAGS_ALL + 1;
}

static void too_much_inline(volatile struct mic_send_wqe *wqe)
{
	wqe->flags |= MIC_WQE_INLINE;
	wqe->inline_len = 0x10000;
}

static void read_to_inline(volatile struct mic_send_wqe *wqe)
{
	wqe->opcode = MIC_WR_RDMA_READ;
	wqe->flags |= MIC_WQE_INLINE;
	wqe->inline_len = 0;
}

static void atomic_to_inline(volatile struct mic_send_wqe *wqe)
{
	wqe->opcode = MIC_WR_ATOMIC_FETCH_AND_ADD;
	wqe->flags |= MIC_WQE_INLINE;
	wqe->inline_len = 8;
}

/* More than an element has room for. */
static void too_long_a_list(volatile struct mic_send_wqe *wqe)
{
	wqe->num_sge = UINT8_MAX;
}

static bool unknown_opcode(struct stage *stage, struct maps *maps)
{
	return fails_as(stage, maps, no_such_opcode, IBV_WC_LOC_QP_OP_ERR);
}

static bool kernel_opcode(struct stage *stage, struct maps *maps)
{
	return fails_as(stage, maps, opcode_of_the_kernel,
			IBV_WC_LOC_QP_OP_ERR);
}

static bool unknown_flag(struct stage *stage, struct maps *maps)
{
	return fails_as(stage, maps, no_such_flag, IBV_WC_LOC_QP_OP_ERR);
}

static bool long_inline(struct stage *stage, struct maps *maps)
{
	return fails_as(stage, maps, too_much_inline, IBV_WC_LOC_LEN_ERR);
}

static bool inline_read(struct stage *stage, struct maps *maps)
{
	return fails_as(stage, maps, read_to_inline, IBV_WC_LOC_QP_OP_ERR);
}

static bool long_list(struct stage *stage, struct maps *maps)
{
	return fails_as(stage, maps, too_long_a_list, IBV_WC_LOC_QP_OP_ERR);
}

static bool inline_atomic(struct stage *stage, struct maps *maps)
{
	return fails_as(stage, maps, atomic_to_inline, IBV_WC_LOC_QP_OP_ERR);
}

/* --- elements of a queue that XRC targets use --------------------------------- */

enum {
	XRC_RECEIVES = 32,
	XRC_SGES = 6,
	XRC_SGE_BYTES = 8,
	XRC_FIRST_ID = 0x12345600,
	XRC_LIST = 32, /* as many as the target itself has room for */
};

/* The queue, and where this process has it mapped. */
static struct map xrc_open(struct xrc *xrc, struct setup *setup)
{
	struct map map;

	xrc_open_domain(xrc, setup);
	new_map();
	xrc->srq[0] = xrc_create_srq(xrc, XRC_RECEIVES, XRC_SGES);
	map = new_map();
	if (!map.start)
		bail("the XRC queue is not mapped");
	xrc_connect(xrc);
	return map;
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
		if (!check(!ibv_post_srq_recv(xrc->srq[0], &wr, &bad),
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

	xrc_aim(xrc, 0, &wr);
	post_send(&xrc->a, &wr);
	return cq_expect(xrc->a.send_cq, 1, status);
}

/* The receive says that it has more elements than one of this queue can. */
static bool xrc_spoil(const struct map *map, unsigned int which)
{
	uint32_t id = XRC_FIRST_ID + which;
	size_t i;

	for (i = 0; i + 2 < map->words; i += 2)
		if (map->start[i] == id && map->start[i + 2] == XRC_SGES)
			break;
	if (!check(i + 2 < map->words, "the receive is not found"))
		return false;
	*(volatile uint32_t *)&map->start[i + 2] = XRC_LIST;
	return true;
}

static bool spoiled_receive(struct setup *setup, unsigned int which)
{
	const uint32_t whole = XRC_SGES * XRC_SGE_BYTES;
	struct xrc xrc;
	struct map map;
	unsigned int i;
	bool ok;

	map = xrc_open(&xrc, setup);
	ok = xrc_post_all(&xrc, &setup->b_mem) && xrc_spoil(&map, which);
	for (i = 0; ok && i < which; i++)
		ok = xrc_send(&xrc, setup, whole, IBV_WC_SUCCESS) &&
		     cq_expect(xrc.cq, XRC_FIRST_ID + i, IBV_WC_SUCCESS);
	ok = ok && xrc_send(&xrc, setup, whole + 1, IBV_WC_REM_INV_REQ_ERR) &&
	     cq_expect(xrc.cq, XRC_FIRST_ID + which, IBV_WC_LOC_LEN_ERR);
	xrc_close(&xrc);
	new_map();
	return ok;
}

/* --- events that nobody reads --------------------------------------------------- */

enum {
	EVENTS = 100000,
	UNREAD = 64,	  /* as many are kept for a queue */
	UNREAD_KB = 2048, /* less than a third of what all would take */
};

/* A queue with a channel that does not block, and a queue pair that completes in it. */
struct armed {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct endpoint ep;
	struct mic_cq_ctl *ctl;
	unsigned int events;
};

static void armed_open(struct armed *armed, struct device *dev)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	int fd;

	armed->events = 0;
	armed->channel = ibv_create_comp_channel(dev->ctx);
	if (!armed->channel)
		bail("ibv_create_comp_channel: %s", strerror(errno));
	fd = armed->channel->fd;
	if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK))
		bail("fcntl: %s", strerror(errno));
	new_map();
	armed->cq = ibv_create_cq(dev->ctx, 16, NULL, armed->channel, 0);
	if (!armed->cq)
		bail("no completion queue: %s", strerror(errno));
	armed->ctl = (struct mic_cq_ctl *)new_map().start;
	options.send_cq = armed->cq;
	endpoint_create(&armed->ep, dev, &options);
	if (!armed->ctl)
		bail("the queue is not mapped");
}

static void armed_close(struct armed *armed)
{
	ibv_ack_cq_events(armed->cq, armed->events);
	endpoint_destroy(&armed->ep);
	tap_must(!ibv_destroy_cq(armed->cq), "ibv_destroy_cq fails");
	tap_must(!ibv_destroy_comp_channel(armed->channel),
		 "ibv_destroy_comp_channel fails");
	new_map();
}

/* As if there were a completion each time, and somebody waited for it. */
static void raise_events(struct armed *armed, int fd, unsigned int count)
{
	while (count--) {
		*(volatile __u32 *)&armed->ctl->arm = MIC_CQ_ARM_NEXT;
		if (ioctl(fd, MIC_IOC_CQ_EVENT,
			  (unsigned long)armed->ep.qp->qp_num))
			bail("MIC_IOC_CQ_EVENT: %s", strerror(errno));
	}
}

static unsigned int read_events(struct armed *armed)
{
	unsigned int before = armed->events;
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(armed->channel, &cq, &context))
		armed->events++;
	return armed->events - before;
}

/* Kernel memory that can't be reclaimed. */
static long slab_kb(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[128];
	long kb = -1;

	while (file && kb < 0 && fgets(line, sizeof(line), file))
		sscanf(line, "SUnreclaim: %ld", &kb);
	if (file)
		fclose(file);
	if (kb < 0)
		bail("/proc/meminfo does not say SUnreclaim");
	return kb;
}

/* However many are raised; and when they have been read, there are others. */
static bool unread_events(struct setup *setup)
{
	struct armed armed;
	unsigned int count;
	long before, grown;
	bool ok;
	int fd;

	armed_open(&armed, &setup->a_dev);
	fd = ring(armed.ep.qp);
	raise_events(&armed, fd, UNREAD);
	before = slab_kb();
	raise_events(&armed, fd, EVENTS);
	grown = slab_kb() - before;
	count = read_events(&armed);
	ok = check(grown < UNREAD_KB, "the kernel's memory grew by %ld KiB",
		   grown) &&
	     check(count == UNREAD, "%u events were kept", count);
	raise_events(&armed, fd, 1);
	ok = check(read_events(&armed) == 1, "no event comes any more") && ok;
	armed_close(&armed);
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
	{ unknown_opcode, "an opcode that there is not", false },
	{ kernel_opcode, "an opcode that only the kernel has", false },
	{ unknown_flag, "a flag that there is not", false },
	{ long_inline, "more inline data than the queue has room for", false },
	{ inline_read, "a READ with the flag of inline data", false },
	{ inline_atomic, "an atomic with the flag of inline data", false },
	{ long_list, "a request with more elements than the queue has", false },
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
	tap_ok(unread_events(&setup) && neighbours_work(&neighbours),
	       "events that nobody reads");
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
