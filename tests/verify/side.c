// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What each side of a transfer does: prepare its memory, post, and check every
 * byte in and around its buffer.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"
#include "pattern.h"
#include "tap.h"
#include "verify.h"
#include "work.h"

static size_t window_length(const struct transfer *transfer)
{
	return transfer->size + MAX_SGES * GAP_BYTES + 2 * GUARD_BYTES;
}

/* No page of the region is there before somebody wants it. */
static void forget_region(struct side *side)
{
	if (madvise(side->region.map, side->region.map_length, MADV_DONTNEED))
		bail("madvise: %s", strerror(errno));
}

/*
 * All bytes in and around a buffer: in memory, and as they should be. On demand half of
 * the transfers find no pages there.
 */
static void clear_window(struct side *side, uint32_t offset,
			 const struct transfer *transfer)
{
	size_t length = window_length(transfer);
	bool absent = side->on_demand && transfer->seed / 2 % 2;

	if (absent)
		forget_region(side);
	else
		memset(side->region.addr + offset - GUARD_BYTES, GUARD_BYTE,
		       length);
	memset(side->expected + offset - GUARD_BYTES, absent ? 0 : GUARD_BYTE,
	       length);
}

static bool window_matches(const struct side *side, uint32_t offset,
			   const struct transfer *transfer)
{
	return !memcmp(side->region.addr + offset - GUARD_BYTES,
		       side->expected + offset - GUARD_BYTES,
		       window_length(transfer));
}

static bool check_window(const struct side *side, uint32_t offset,
			 const struct transfer *transfer, const char *who)
{
	size_t start = offset - GUARD_BYTES;
	size_t i = 0;

	if (window_matches(side, offset, transfer))
		return true;
	while (side->region.addr[start + i] == side->expected[start + i])
		i++;
	return check(false,
		     "%s: byte %zd of the buffer is 0x%02x, should be 0x%02x",
		     who, (ssize_t)i - GUARD_BYTES,
		     side->region.addr[start + i], side->expected[start + i]);
}

/* The operands of an atomic and the word it meets. */
struct atomic_values {
	uint64_t before;
	uint64_t compare_add;
	uint64_t swap;
	uint64_t after;
};

static struct atomic_values atomic_values(const struct transfer *transfer)
{
	struct atomic_values values;
	struct random_state random;

	random_seed(&random, transfer->seed);
	values.before = random_next(&random);
	values.compare_add = random_next(&random);
	values.swap = random_next(&random);
	if (transfer->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		values.after = values.before + values.compare_add;
	} else if (transfer->seed % 2) {
		values.compare_add = values.before;
		values.after = values.swap;
	} else {
		values.after = values.before;
	}
	return values;
}

static void peer_layout(const struct side *side, struct layout *layout,
			const struct transfer *transfer)
{
	if (opcode_has_remote(transfer->opcode))
		make_contiguous(layout, transfer->peer_offset, transfer->size);
	else
		make_layout(layout, transfer->shape, transfer->peer_offset,
			    transfer->size, side->max_sges);
}

static void post_shared_receive(struct side *side, uint64_t id,
				struct ibv_sge *sges, int count)
{
	struct ibv_recv_wr wr = {
		.wr_id = id,
		.sg_list = sges,
		.num_sge = count,
	};
	struct ibv_recv_wr *bad;

	if (ibv_post_srq_recv(side->srq, &wr, &bad))
		bail("the shared receive queue takes no receive");
}

static void peer_post_receive(struct side *side, const struct layout *layout,
			      const struct transfer *transfer)
{
	struct ibv_sge sges[MAX_SGES];
	int count = 0;

	if (transfer->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
		count = layout_sges(layout, &side->region, sges);
	if (side->srq)
		post_shared_receive(side, transfer->seed, sges, count);
	else
		post_recv(&side->ep, transfer->seed, sges, count);
}

void peer_prepare(struct side *side, const struct transfer *transfer)
{
	const uint8_t *bytes = pattern_bytes(transfer->seed, MAX_SIZE);
	struct atomic_values values = atomic_values(transfer);
	struct layout layout;

	peer_layout(side, &layout, transfer);
	clear_window(side, transfer->peer_offset, transfer);
	if (opcode_is_atomic(transfer->opcode)) {
		write_layout(side->region.addr, &layout,
			     (uint8_t *)&values.before);
		write_layout(side->expected, &layout, (uint8_t *)&values.after);
	} else {
		write_layout(side->expected, &layout, bytes);
	}
	if (transfer->opcode == IBV_WR_RDMA_READ)
		write_layout(side->region.addr, &layout, bytes);
	if (opcode_takes_recv(transfer->opcode))
		peer_post_receive(side, &layout, transfer);
}

static bool check_receive(struct side *side, const struct transfer *transfer)
{
	bool is_write = transfer->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool has_imm = opcode_has_imm(transfer->opcode);
	struct ibv_wc wc;

	return cq_success(side->ep.recv_cq, transfer->seed, &wc) &&
	       check(wc.opcode == (is_write ? IBV_WC_RECV_RDMA_WITH_IMM :
					      IBV_WC_RECV),
		     "opcode of the receive is %d", wc.opcode) &&
	       check(wc.byte_len == transfer->size,
		     "byte_len of the receive is %u", wc.byte_len) &&
	       check(wc.qp_num == side->ep.qp->qp_num,
		     "qp_num of the receive is %u", wc.qp_num) &&
	       check(!!(wc.wc_flags & IBV_WC_WITH_IMM) == has_imm,
		     "wc_flags of the receive are 0x%x", wc.wc_flags) &&
	       check(!has_imm || wc.imm_data == htobe32(~transfer->seed),
		     "immediate data is 0x%x", be32toh(wc.imm_data));
}

/* An unreliable WRITE may arrive after its completion. */
static void await_window(const struct side *side,
			 const struct transfer *transfer)
{
	uint64_t end = deadline();
	unsigned int round = 0;

	while (!window_matches(side, transfer->peer_offset, transfer) &&
	       now_ms() < end)
		relax(round++);
}

bool peer_check(struct side *side, const struct transfer *transfer)
{
	if (opcode_takes_recv(transfer->opcode)) {
		if (!check_receive(side, transfer))
			return false;
	} else if (side->ep.options.type == IBV_QPT_UC) {
		await_window(side, transfer);
	}
	return check_window(side, transfer->peer_offset, transfer, "peer");
}

void local_prepare(struct side *side, const struct transfer *transfer,
		   const struct layout *layout)
{
	const uint8_t *bytes = pattern_bytes(transfer->seed, MAX_SIZE);
	struct atomic_values values = atomic_values(transfer);

	clear_window(side, transfer->local_offset, transfer);
	if (opcode_is_atomic(transfer->opcode))
		bytes = (uint8_t *)&values.before;
	write_layout(side->expected, layout, bytes);
	if (!opcode_writes_local(transfer->opcode))
		write_layout(side->region.addr, layout, bytes);
}

void local_post(struct side *side, const struct transfer *transfer,
		const struct layout *layout, const struct remote *remote)
{
	struct atomic_values values = atomic_values(transfer);
	uint64_t addr = remote->addr + transfer->peer_offset;
	struct ibv_sge sges[MAX_SGES];
	struct ibv_send_wr wr =
		send_wr(transfer->seed, transfer->opcode, sges,
			layout_sges(layout, &side->region, sges));
	int i;

	wr.imm_data = htobe32(~transfer->seed);
	if (side->ep.options.type == IBV_QPT_XRC_SEND)
		wr.qp_type.xrc.remote_srqn = remote->srq_num;
	if (opcode_is_atomic(transfer->opcode)) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = remote->rkey;
		wr.wr.atomic.compare_add = values.compare_add;
		wr.wr.atomic.swap = values.swap;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = remote->rkey;
	}
	if (transfer->is_inline) {
		wr.send_flags |= IBV_SEND_INLINE;
		/* Inline data comes from plain addresses, without keys. */
		for (i = 0; i < wr.num_sge; i++) {
			sges[i].addr = (uintptr_t)side->region.addr +
				       layout->part[i].offset;
			sges[i].lkey = 0xdeadbeef;
		}
	}
	post_send(&side->ep, &wr);
	/* Inline data is taken before the post returns. */
	if (transfer->is_inline)
		clear_window(side, transfer->local_offset, transfer);
}

bool local_check(struct side *side, const struct transfer *transfer)
{
	struct ibv_wc wc;

	return cq_success(side->ep.send_cq, transfer->seed, &wc) &&
	       check(wc.opcode == completion_of(transfer->opcode),
		     "opcode of the completion is %d", wc.opcode) &&
	       check(wc.qp_num == side->ep.qp->qp_num,
		     "qp_num of the completion is %u", wc.qp_num) &&
	       check_window(side, transfer->local_offset, transfer,
			    "requester");
}

struct remote remote_of(const struct side *side)
{
	struct remote remote = { side->region.rdma_addr, side->region.mr->rkey,
				 0 };

	if (side->srq && ibv_get_srq_num(side->srq, &remote.srq_num))
		bail("ibv_get_srq_num fails");
	return remote;
}

static void open_xrc_target(struct side *side, struct endpoint_options *options)
{
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex queue = {
		.attr = { .max_wr = options->depth, .max_sge = options->sges },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.pd = side->dev.pd,
	};

	side->xrcd = ibv_open_xrcd(side->dev.ctx, &domain);
	side->srq_cq = ibv_create_cq(side->dev.ctx, (int)options->depth, NULL,
				     NULL, 0);
	if (!side->xrcd || !side->srq_cq)
		bail("no XRC domain: %s", strerror(errno));
	queue.xrcd = side->xrcd;
	queue.cq = side->srq_cq;
	side->srq = ibv_create_srq_ex(side->dev.ctx, &queue);
	if (!side->srq)
		bail("no XRC shared receive queue: %s", strerror(errno));
	options->type = IBV_QPT_XRC_RECV;
	options->xrcd = side->xrcd;
	options->recv_cq = side->srq_cq;
}

static void close_xrc_target(struct side *side)
{
	tap_must(!ibv_destroy_srq(side->srq), "ibv_destroy_srq fails");
	tap_must(!ibv_destroy_cq(side->srq_cq), "ibv_destroy_cq fails");
	tap_must(!ibv_close_xrcd(side->xrcd), "ibv_close_xrcd fails");
}

void side_open(struct side *side, const char *name,
	       const struct setting *setting, bool peer)
{
	struct endpoint_options options = endpoint_options(setting->type);

	memset(side, 0, sizeof(*side));
	device_open(&side->dev, name);
	side->on_demand = setting->on_demand;
	side->max_sges = side->dev.attr.max_sge < MAX_SGES ?
				 side->dev.attr.max_sge :
				 MAX_SGES;
	options.sges = side->max_sges;
	options.inline_bytes = MAX_INLINE;
	options.depth = 4;
	if (peer && setting->type == IBV_QPT_XRC_SEND)
		open_xrc_target(side, &options);
	if (!endpoint_try_create(&side->ep, &side->dev, &options)) {
		/* Not every device has that much inline data. */
		options.inline_bytes = 64;
		endpoint_create(&side->ep, &side->dev, &options);
	}
	if (!region_map(&side->region, setting->kind, REGION_BYTES))
		bail("no memory of kind %s", memory_name(setting->kind));
	region_register(&side->region, side->dev.pd,
			setting->on_demand ? ACCESS_ALL | IBV_ACCESS_ON_DEMAND :
					     ACCESS_ALL);
	side->expected = malloc(REGION_BYTES);
	if (!side->expected)
		bail("out of memory");
}

void side_close(struct side *side)
{
	endpoint_destroy(&side->ep);
	if (side->srq)
		close_xrc_target(side);
	region_destroy(&side->region);
	device_close(&side->dev);
	free(side->expected);
}
