// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What an 8-byte RDMA WRITE costs, from post to completion, with many queue
 * pairs or many memory regions. Each write goes to the next of them, so what
 * it needs is not in the cache because it was just used.
 *
 * usage: bench-scale qps|mrs NAME DEVICE GID-INDEX PEER GID-INDEX COUNT...
 *
 * NAME is what the results call the device. DEVICE and PEER are both used by
 * this one process, the peer only passively.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

#include "common.h"

enum {
	BYTES = 8,
	PAGE = 4096,
	BATCH_MSEC = 20,
	BATCHES = 15,
	DEPTH = 4,
};

/* One of the two ends. */
struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	union ibv_gid gid;
	uint8_t gid_index;
	enum ibv_mtu mtu;
	char *buffer;
	struct ibv_mr *mr;
};

/* What is written to: pair i uses qp[i], region i is mr[i]. */
struct bench {
	struct end local, remote;
	struct ibv_qp **qp, **peer;
	size_t nqps;
	struct ibv_mr **mr;
	size_t nmrs;
};

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int i;

	for (i = 0; list && list[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	if (!context)
		fail(name);
	ibv_free_device_list(list);
	return context;
}

static void open_end(struct end *end, const char *name, const char *index)
{
	struct ibv_port_attr port;

	end->context = open_device(name);
	end->gid_index = atoi(index);
	if (ibv_query_gid(end->context, 1, end->gid_index, &end->gid) ||
	    ibv_query_port(end->context, 1, &port))
		fail("query");
	end->mtu = port.active_mtu;
	end->pd = ibv_alloc_pd(end->context);
	end->cq = ibv_create_cq(end->context, 2 * DEPTH, NULL, NULL, 0);
	end->buffer = aligned_alloc(PAGE, PAGE);
	if (!end->pd || !end->cq || !end->buffer)
		fail("open");
	memset(end->buffer, 0, PAGE);
	end->mr = ibv_reg_mr(end->pd, end->buffer, PAGE,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!end->mr)
		fail("ibv_reg_mr");
}

static struct ibv_qp *create_qp(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(end->pd, &init);

	if (!qp)
		fail("ibv_create_qp");
	return qp;
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	errno = ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
	if (errno)
		fail("ibv_modify_qp");
}

static void connect_qp(struct ibv_qp *qp, const struct end *end,
		       const struct ibv_qp *peer, const struct end *other)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	modify(qp, &attr,
	       IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = end->mtu,
		.dest_qp_num = peer->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = {
				.dgid = other->gid,
				.sgid_index = end->gid_index,
				.hop_limit = 64,
			},
		},
	};
	modify(qp, &attr,
	       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	modify(qp, &attr,
	       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void *grow(void *array, size_t count)
{
	array = reallocarray(array, count, sizeof(void *));
	if (!array)
		fail("reallocarray");
	return array;
}

static void grow_qps(struct bench *bench, size_t count)
{
	bench->qp = grow(bench->qp, count);
	bench->peer = grow(bench->peer, count);
	for (; bench->nqps < count; bench->nqps++) {
		struct ibv_qp *qp = create_qp(&bench->local);
		struct ibv_qp *peer = create_qp(&bench->remote);

		connect_qp(qp, &bench->local, peer, &bench->remote);
		connect_qp(peer, &bench->remote, qp, &bench->local);
		bench->qp[bench->nqps] = qp;
		bench->peer[bench->nqps] = peer;
	}
}

/* All of them show the same page: it is the keys that are many. */
static void grow_mrs(struct bench *bench, size_t count)
{
	struct end *end = &bench->remote;

	bench->mr = grow(bench->mr, count);
	for (; bench->nmrs < count; bench->nmrs++) {
		bench->mr[bench->nmrs] = ibv_reg_mr(
			end->pd, end->buffer, PAGE,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		if (!bench->mr[bench->nmrs])
			fail("ibv_reg_mr");
	}
}

/* One write over queue pair and to region number @i, and its completion. */
static void write_once(const struct bench *bench, size_t i)
{
	const struct ibv_mr *mr = bench->mr[i % bench->nmrs];
	const struct end *local = &bench->local;
	struct ibv_sge sge = {
		.addr = (uintptr_t)local->buffer,
		.length = BYTES,
		.lkey = local->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = (uintptr_t)bench->remote.buffer,
			.rkey = mr->rkey,
		},
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	errno = ibv_post_send(bench->qp[i % bench->nqps], &wr, &bad);
	if (errno)
		fail("ibv_post_send");
	do {
		n = ibv_poll_cq(local->cq, 1, &wc);
	} while (!n);
	if (n < 0 || wc.status) {
		errno = EIO;
		fail(n < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status));
	}
}

/* Nanoseconds per write; a batch goes on where the one before has stopped. */
static double measure_batch(const struct bench *bench, size_t *next)
{
	uint64_t start = now_ns(), now;
	size_t first = *next;
	int i;

	do {
		for (i = 0; i < 16; i++)
			write_once(bench, (*next)++);
		now = now_ns();
	} while (now - start < BATCH_MSEC * NSEC_PER_MSEC);
	return (double)(now - start) / (*next - first);
}

static double measure(const struct bench *bench, size_t count)
{
	double batch[BATCHES];
	size_t next;
	int i;

	for (next = 0; next < count;)
		write_once(bench, next++);
	for (i = 0; i < BATCHES; i++)
		batch[i] = measure_batch(bench, &next);
	return median(batch, BATCHES);
}

int main(int argc, char **argv)
{
	struct bench bench = {};
	int is_qps, i;

	if (argc < 8 || (strcmp(argv[1], "qps") && strcmp(argv[1], "mrs"))) {
		fprintf(stderr,
			"usage: bench-scale qps|mrs NAME DEVICE GID-INDEX PEER GID-INDEX COUNT...\n");
		return 2;
	}
	is_qps = !strcmp(argv[1], "qps");
	pin(CLIENT_CPU);
	open_end(&bench.local, argv[3], argv[4]);
	open_end(&bench.remote, argv[5], argv[6]);
	grow_qps(&bench, 1);
	grow_mrs(&bench, 1);
	for (i = 7; i < argc; i++) {
		size_t count = parse_size(argv[i]);

		if (is_qps)
			grow_qps(&bench, count);
		else
			grow_mrs(&bench, count);
		report(is_qps ? "write_qps" : "write_mrs", argv[2], count,
		       measure(&bench, count) / 1000, "us");
	}
	return 0;
}
