// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The extended interfaces for posting and polling.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "bind.h"
#include "proxy.h"
#include "setup.h"
#include "tap.h"
#include "work.h"
#include "writer.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 16)
#define EX_OPS                                                                 \
	(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |                  \
	 IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |                \
	 IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV |             \
	 IBV_QP_EX_WITH_BIND_MW)
#define WINDOW_BYTES 1000U

/* --- extended posting ------------------------------------------------------ */

static struct ibv_qp_ex *to_extended(struct pair *pair)
{
	struct endpoint *a = &pair->a;
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = a->send_cq,
		.recv_cq = a->recv_cq,
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 2,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_BYTES,
		},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = a->dev->pd,
		.send_ops_flags = EX_OPS,
	};

	if (ibv_destroy_qp(a->qp))
		bail("ibv_destroy_qp fails");
	a->qp = ibv_create_qp_ex(a->dev->ctx, &attr);
	if (!a->qp)
		bail("no extended queue pair: %s", strerror(errno));
	a->max_inline = attr.cap.max_inline_data;
	return ibv_qp_to_qp_ex(a->qp);
}

static struct ibv_qp_ex *extended_open(struct pair *pair, struct setup *setup)
{
	struct endpoint_options options;
	struct ibv_qp_ex *qp;

	pair->setup = setup;
	pair->cq = new_cq(setup, 64);
	options = pair_options(pair->cq);
	endpoint_create(&pair->a, &setup->a_dev, &options);
	options.send_cq = NULL;
	endpoint_create(&pair->b, &setup->b_dev, &options);
	qp = to_extended(pair);
	if (!qp)
		bail("the queue pair has no extended interface");
	pair_connect(&pair->a, &pair->b);
	return qp;
}

static void build_write(struct pair *pair, struct ibv_qp_ex *qp, uint64_t id)
{
	const struct region *from = &pair->setup->a_mem;
	const struct region *to = &pair->setup->b_mem;

	qp->wr_id = id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, to->mr->rkey, to->rdma_addr + 8 * id);
	ibv_wr_set_sge(qp, from->mr->lkey, from->rdma_addr + 8 * id, 8);
}

static bool ex_batch(struct setup *setup)
{
	struct pair pair;
	struct ibv_qp_ex *qp = extended_open(&pair, setup);
	bool ok = true;
	uint64_t id;

	memset(setup->b_mem.addr, 0, 100 * 8);
	for (id = 1; id < 100; id++)
		memcpy(setup->a_mem.addr + 8 * id, &id, 8);
	proxy_sync();
	for (id = 1; ok && id < 97; id += 8) {
		ibv_wr_start(qp);
		for (uint64_t i = id; i < id + 8; i++)
			build_write(&pair, qp, i);
		ok = check(!ibv_wr_complete(qp), "a batch is refused") &&
		     expect_ids(pair.cq, id, 8);
	}
	ok = ok && check(!memcmp(setup->a_mem.addr + 8, setup->b_mem.addr + 8,
				 96 * 8),
			 "data");
	pair_close(&pair);
	return ok;
}

static bool ex_abort(struct setup *setup)
{
	struct pair pair;
	struct ibv_qp_ex *qp = extended_open(&pair, setup);
	bool ok;

	ibv_wr_start(qp);
	build_write(&pair, qp, 1);
	build_write(&pair, qp, 2);
	ibv_wr_abort(qp);
	ibv_wr_start(qp);
	build_write(&pair, qp, 3);
	ok = check(!ibv_wr_complete(qp), "refused after an abort") &&
	     expect_ids(pair.cq, 3, 1) && cq_stays_empty(pair.cq, 20);
	pair_close(&pair);
	return ok;
}

/* Complete a batch that has to fail with @error; the next one works. */
static bool fails_whole(struct pair *pair, struct ibv_qp_ex *qp, int error)
{
	int ret = ibv_wr_complete(qp);

	if (!check(ret == error, "ibv_wr_complete returns %d", ret))
		return false;
	ibv_wr_start(qp);
	build_write(pair, qp, 9);
	return check(!ibv_wr_complete(qp), "refused after a failure") &&
	       expect_ids(pair->cq, 9, 1) && cq_stays_empty(pair->cq, 20);
}

static bool ex_too_many(struct setup *setup)
{
	struct pair pair;
	struct ibv_qp_ex *qp = extended_open(&pair, setup);
	unsigned int i;
	bool ok;

	ibv_wr_start(qp);
	for (i = 0; i < DEPTH + 1; i++)
		build_write(&pair, qp, i);
	ok = fails_whole(&pair, qp, ENOMEM);
	pair_close(&pair);
	return ok;
}

static bool ex_bad_request(struct setup *setup)
{
	struct pair pair;
	struct ibv_qp_ex *qp = extended_open(&pair, setup);
	uint8_t data[1024] = { 0 };
	struct ibv_sge sges[3] = { { 0 } };
	bool ok;

	ibv_wr_start(qp);
	build_write(&pair, qp, 1);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, data, pair.a.max_inline + 1);
	build_write(&pair, qp, 2);
	ok = fails_whole(&pair, qp, EINVAL);

	ibv_wr_start(qp);
	build_write(&pair, qp, 1);
	ibv_wr_send(qp);
	ibv_wr_set_sge_list(qp, COUNT(sges), sges);
	ok = fails_whole(&pair, qp, EINVAL) && ok;
	pair_close(&pair);
	return ok;
}

static bool ex_inline_list(struct setup *setup)
{
	struct pair pair;
	struct ibv_qp_ex *qp = extended_open(&pair, setup);
	struct ibv_sge sge = region_sge(&setup->b_mem, 0, 64);
	char first[] = "one,", second[] = "two";
	const struct ibv_data_buf bufs[] = {
		{ .addr = first, .length = 4 },
		{ .addr = NULL, .length = 0 },
		{ .addr = second, .length = 4 },
	};
	struct ibv_wc wc;
	bool ok;

	post_recv(&pair.b, 7, &sge, 1);
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qp, htobe32(0x1234));
	ibv_wr_set_inline_data_list(qp, COUNT(bufs), bufs);
	ok = check(!ibv_wr_complete(qp), "refused") &&
	     expect_ids(pair.cq, 1, 1) && cq_success(pair.b.recv_cq, 7, &wc) &&
	     check(wc.byte_len == 8, "%u bytes", wc.byte_len) &&
	     check(wc.imm_data == htobe32(0x1234), "immediate data") &&
	     check(!strcmp((char *)setup->b_mem.addr, "one,two"), "data");
	pair_close(&pair);
	return ok;
}

/* --- windows ---------------------------------------------------------------- */

/* A window of a region of either side's. */
struct window {
	struct region memory;
	struct ibv_mw *mw;
	struct ibv_mw_bind_info info;
	uint32_t key; /* the next one */
};

static void window_open(struct window *window, struct ibv_pd *pd)
{
	if (!region_map(&window->memory, MEMORY_ANON, REGION_BYTES))
		bail("cannot map memory");
	region_register(&window->memory, pd, ACCESS_ALL | IBV_ACCESS_MW_BIND);
	window->mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	if (!window->mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	window->info = bind_info(&window->memory, 0, WINDOW_BYTES,
				 IBV_ACCESS_REMOTE_WRITE);
	window->key = ibv_inc_rkey(window->mw->rkey);
}

static bool window_close(struct window *window)
{
	bool ok = check(!ibv_dealloc_mw(window->mw), "ibv_dealloc_mw fails");

	region_destroy(&window->memory);
	return ok;
}

/* b writes to a's window. */
static bool peer_writes(struct pair *pair, const struct window *window,
			uint32_t key, enum ibv_wc_status status)
{
	struct ibv_sge sge = region_sge(&pair->setup->b_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);

	wr.wr.rdma.remote_addr = window->memory.rdma_addr;
	wr.wr.rdma.rkey = key;
	post_send(&pair->b, &wr);
	return cq_expect(pair->b.send_cq, 1, status);
}

/* Bound, invalidated and bound again in one batch; the last key opens it. */
static bool ex_local_inv(struct setup *setup)
{
	struct pair pair;
	struct ibv_qp_ex *qp = extended_open(&pair, setup);
	struct window window;
	uint32_t first, second;
	bool ok;

	window_open(&window, setup->a_dev.pd);
	first = window.key;
	second = ibv_inc_rkey(first);
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_start(qp);
	qp->wr_id = 1;
	ibv_wr_bind_mw(qp, window.mw, first, &window.info);
	qp->wr_id = 2;
	ibv_wr_local_inv(qp, first);
	qp->wr_id = 3;
	ibv_wr_bind_mw(qp, window.mw, second, &window.info);
	ok = check(!ibv_wr_complete(qp), "refused") &&
	     expect_ids(pair.cq, 1, 3) &&
	     peer_writes(&pair, &window, second, IBV_WC_SUCCESS);
	ibv_wr_start(qp);
	qp->wr_id = 4;
	ibv_wr_local_inv(qp, second);
	ok = ok && check(!ibv_wr_complete(qp), "refused") &&
	     expect_ids(pair.cq, 4, 1) &&
	     peer_writes(&pair, &window, second, IBV_WC_REM_ACCESS_ERR);
	pair_close(&pair);
	return window_close(&window) && ok;
}

/* What the completion says of it. */
static bool ex_local_inv_fails(struct setup *setup)
{
	struct pair pair;
	struct ibv_qp_ex *qp = extended_open(&pair, setup);
	struct ibv_wc wc;
	bool ok;

	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	qp->wr_id = 1;
	ibv_wr_local_inv(qp, setup->a_mem.mr->rkey);
	build_write(&pair, qp, 2);
	ok = check(!ibv_wr_complete(qp), "refused") && cq_wait(pair.cq, &wc) &&
	     check(wc.wr_id == 1 && wc.status == IBV_WC_LOC_QP_OP_ERR,
		   "wr_id %" PRIu64 ", %s", wc.wr_id,
		   ibv_wc_status_str(wc.status)) &&
	     cq_expect(pair.cq, 2, IBV_WC_WR_FLUSH_ERR);
	pair_close(&pair);
	return ok;
}

/* With data; the peer hears of the key, and can bind the window again. */
static bool ex_send_inv(struct setup *setup)
{
	struct pair pair;
	struct ibv_qp_ex *qp = extended_open(&pair, setup);
	struct ibv_sge sge = region_sge(&setup->b_mem, 0, 64);
	struct window window;
	struct ibv_wc wc;
	bool ok;

	window_open(&window, setup->b_dev.pd);
	memset(setup->a_mem.addr, 0x5b, 8);
	ok = bind_type2(&pair.b, window.mw, window.key, &window.info,
			IBV_WC_SUCCESS);
	post_recv(&pair.b, 7, &sge, 1);
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_inv(qp, window.key);
	ibv_wr_set_sge(qp, setup->a_mem.mr->lkey, setup->a_mem.rdma_addr, 8);
	ok = check(!ibv_wr_complete(qp), "refused") && ok &&
	     expect_ids(pair.cq, 1, 1) && cq_success(pair.b.recv_cq, 7, &wc) &&
	     check(wc.wc_flags == IBV_WC_WITH_INV &&
			   wc.invalidated_rkey == window.key,
		   "flags 0x%x, key 0x%x", wc.wc_flags, wc.invalidated_rkey) &&
	     check(wc.byte_len == 8, "%u bytes", wc.byte_len) &&
	     all_are(setup->b_mem.addr, 8, 0x5b) &&
	     bind_type2(&pair.b, window.mw, ibv_inc_rkey(window.key),
			&window.info, IBV_WC_SUCCESS);
	pair_close(&pair);
	return window_close(&window) && ok;
}

/* -------------------------------------------------------------------------- */

static bool ex_unknown_operation(struct setup *setup)
{
	struct ibv_qp_init_attr_ex attr = {
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = setup->a_dev.pd,
		.send_ops_flags = IBV_QP_EX_WITH_TSO,
	};
	struct ibv_cq *cq = new_cq(setup, 1);
	bool ok;

	attr.send_cq = cq;
	attr.recv_cq = cq;
	ok = check(!ibv_create_qp_ex(setup->a_dev.ctx, &attr) &&
			   errno == EOPNOTSUPP,
		   "TSO is accepted");
	attr.qp_type = IBV_QPT_UD;
	attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
	ok = check(!ibv_create_qp_ex(setup->a_dev.ctx, &attr) &&
			   errno == EOPNOTSUPP,
		   "READ is accepted on UD") &&
	     ok;
	ibv_destroy_cq(cq);
	return ok;
}

/* --- extended polling ------------------------------------------------------ */

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * NSEC + ts.tv_nsec;
}

/* The element at hand, between two times of each clock. */
static bool ex_element(struct ibv_cq_ex *cq, uint64_t id, uint32_t qp_num,
		       uint64_t raw, uint64_t real)
{
	uint64_t ts = ibv_wc_read_completion_ts(cq);
	uint64_t wall = ibv_wc_read_completion_wallclock_ns(cq);

	return check(cq->wr_id == id && cq->status == IBV_WC_SUCCESS,
		     "id %" PRIu64 ", status %d", cq->wr_id, cq->status) &&
	       check(ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE, "opcode") &&
	       check(ibv_wc_read_qp_num(cq) == qp_num, "QP number") &&
	       check(!ibv_wc_read_wc_flags(cq), "flags") &&
	       check(!ibv_wc_read_vendor_err(cq), "vendor error") &&
	       check(ts >= raw && ts <= clock_ns(CLOCK_MONOTONIC_RAW),
		     "timestamp") &&
	       check(wall + NSEC >= real &&
			     wall <= clock_ns(CLOCK_REALTIME) + NSEC,
		     "wall clock");
}

static bool ex_poll(struct setup *setup)
{
	struct ibv_cq_init_attr_ex attr = { .comp_mask = 0 };
	struct ibv_cq_ex *cq = new_cq_ex(setup, &attr);
	struct ibv_poll_cq_attr poll = { .comp_mask = 0 };
	uint64_t raw = clock_ns(CLOCK_MONOTONIC_RAW);
	uint64_t real = clock_ns(CLOCK_REALTIME), id;
	struct pair pair;
	bool ok;

	pair_open_on(&pair, setup, ibv_cq_ex_to_cq(cq));
	ok = check(ibv_start_poll(cq, &poll) == ENOENT, "not empty");
	for (id = 0; ok && id < 200; id += 10) {
		post_writes(&pair, id, 10);
		ok = settle(&pair) && expect_ids(pair.cq, id, 4) &&
		     check(!ibv_start_poll(cq, &poll), "empty");
		for (uint64_t i = id + 4; ok && i < id + 10; i++)
			ok = ex_element(cq, i, pair.a.qp->qp_num, raw, real) &&
			     check(ibv_next_poll(cq) ==
					   (i == id + 9 ? ENOENT : 0),
				   "next");
		ibv_end_poll(cq);
	}
	pair_close(&pair);
	return ok;
}

/* Nanoseconds of the device's clock; it is a count, all of it in tv_nsec. */
static bool device_clock(struct setup *setup, uint64_t *ns)
{
	struct ibv_values_ex values = {
		.comp_mask = IBV_VALUES_MASK_RAW_CLOCK,
		.raw_clock = { .tv_sec = 77 },
	};

	if (!check(!ibv_query_rt_values_ex(setup->a_dev.ctx, &values),
		   "ibv_query_rt_values_ex fails"))
		return false;
	*ns = values.raw_clock.tv_nsec;
	return check(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK &&
			     !values.raw_clock.tv_sec,
		     "mask 0x%x, %ld s", values.comp_mask,
		     (long)values.raw_clock.tv_sec);
}

/* The time of a completion lies between two readings, and so it goes on. */
static bool ex_device_clock(struct setup *setup)
{
	struct ibv_cq_init_attr_ex attr = { .comp_mask = 0 };
	struct ibv_cq_ex *cq = new_cq_ex(setup, &attr);
	struct ibv_poll_cq_attr poll = { .comp_mask = 0 };
	struct ibv_values_ex values = { .comp_mask = 1U << 31 };
	uint64_t before, after = 0, ts = 0, id;
	struct pair pair;
	bool ok = true;

	pair_open_on(&pair, setup, ibv_cq_ex_to_cq(cq));
	for (id = 0; ok && id < 20; id++) {
		ok = device_clock(setup, &before);
		post_writes(&pair, id, 1);
		ok = ok && settle(&pair) && device_clock(setup, &after) &&
		     check(!ibv_start_poll(cq, &poll), "no completion");
		if (!ok)
			break;
		ts = ibv_wc_read_completion_ts(cq);
		ibv_end_poll(cq);
		ok = check(before <= ts && ts <= after,
			   "%" PRIu64 " is not between %" PRIu64
			   " and %" PRIu64,
			   ts, before, after);
	}
	ok = check(ibv_query_rt_values_ex(setup->a_dev.ctx, &values),
		   "it has something unknown") &&
	     ok;
	pair_close(&pair);
	return ok;
}

static bool ex_destroy_with_completions(struct setup *setup)
{
	struct ibv_cq_init_attr_ex attr = { .comp_mask = 0 };
	struct ibv_cq_ex *cq = new_cq_ex(setup, &attr);
	struct ibv_poll_cq_attr poll = { .comp_mask = 0 };
	struct pair first, second;
	bool ok;

	pair_open_on(&first, setup, ibv_cq_ex_to_cq(cq));
	pair_open_on(&second, setup, first.cq);
	post_writes(&first, 1, 3);
	ok = settle(&first);
	post_writes(&second, 4, 1);
	ok = settle(&second) && ok;
	post_writes(&first, 5, 3);
	ok = settle(&first) && ok;
	pair_destroy(&first.a, &first.b);
	ok = check(!ibv_start_poll(cq, &poll), "empty") && ok;
	ok = ok && check(cq->wr_id == 4, "id %" PRIu64, cq->wr_id) &&
	     check(ibv_next_poll(cq) == ENOENT, "more than one");
	ibv_end_poll(cq);
	ok = ok && check(ibv_start_poll(cq, &poll) == ENOENT, "not empty");
	pair_close(&second);
	return ok;
}

/* Asked for without the other clock. What has no data the kernel executes. */
static bool ex_wall_clock(struct setup *setup)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 64,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(setup->a_dev.ctx, &attr);
	struct ibv_send_wr wr = send_wr(2, IBV_WR_RDMA_WRITE, NULL, 0);
	struct ibv_poll_cq_attr poll = { .comp_mask = 0 };
	uint64_t real = clock_ns(CLOCK_REALTIME), wall, id;
	struct pair pair;
	bool ok;

	if (!cq)
		bail("no extended completion queue: %s", strerror(errno));
	pair_open_on(&pair, setup, ibv_cq_ex_to_cq(cq));
	post_writes(&pair, 1, 1);
	post_send(&pair.a, &wr);
	ok = settle(&pair) && check(!ibv_start_poll(cq, &poll), "empty");
	for (id = 1; ok && id <= 2; id++) {
		wall = ibv_wc_read_completion_wallclock_ns(cq);
		ok = check(cq->wr_id == id && wall + NSEC >= real &&
				   wall <= clock_ns(CLOCK_REALTIME) + NSEC,
			   "request %" PRIu64 ": %" PRIu64 " after %" PRIu64,
			   id, wall, real) &&
		     check(ibv_next_poll(cq) == (id == 2 ? ENOENT : 0), "next");
	}
	ibv_end_poll(cq);
	pair_close(&pair);
	return ok;
}

static const struct {
	bool (*run)(struct setup *setup);
	const char *name;
} cases[] = {
	{ ex_batch, "extended posting: batches" },
	{ ex_abort, "extended posting: an aborted batch" },
	{ ex_too_many, "extended posting: a batch that does not fit" },
	{ ex_bad_request, "extended posting: a batch with a bad request" },
	{ ex_inline_list, "extended posting: a list of inline data" },
	{ ex_local_inv, "extended posting: bind and invalidate" },
	{ ex_local_inv_fails, "extended posting: an invalidation that fails" },
	{ ex_send_inv, "extended posting: a SEND that invalidates" },
	{ ex_unknown_operation, "extended posting: operations not offered" },
	{ ex_poll, "extended polling: fields and clocks" },
	{ ex_wall_clock, "extended polling: the wall clock alone" },
	{ ex_device_clock, "extended polling: the device's clock" },
	{ ex_destroy_with_completions, "extended polling: a destroyed QP" },
};

int main(int argc, char **argv)
{
	struct setup setup;
	unsigned int i;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	for (i = 0; i < COUNT(cases); i++)
		tap_ok(cases[i].run(&setup), "%s", cases[i].name);
	setup_close(&setup);
	return tap_end();
}
