// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A connection of some service, whose next request goes wrong.
 */
#include <errno.h>
#include <string.h>

#include "faults.h"
#include "tap.h"
#include "work.h"

enum { QUEUE_ENTRIES = 64 };

const enum ibv_wr_opcode opcodes[] = {
	IBV_WR_SEND,
	IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
	IBV_WR_SEND_WITH_INV,
	IBV_WR_ATOMIC_WRITE,
	IBV_WR_LOCAL_INV,
	IBV_WR_BIND_MW,
};

const unsigned int opcode_count = COUNT(opcodes);

const char *service_name(enum service service)
{
	static const char *const names[SERVICES] = {
		[OVER_RC] = "RC",
		[OVER_UC] = "UC",
		[OVER_XRC] = "XRC",
		[OVER_SRQ] = "RC with an SRQ",
		[OVER_UC_SRQ] = "UC with an SRQ",
	};

	return names[service];
}

bool service_is_reliable(enum service service)
{
	return service != OVER_UC && service != OVER_UC_SRQ;
}

bool service_is_shared(enum service service)
{
	return service != OVER_RC && service != OVER_UC;
}

bool service_has(enum service service, enum ibv_wr_opcode opcode)
{
	return service_is_reliable(service) || UNRELIABLE & BIT(opcode);
}

uint32_t request_bytes(const struct scene *scene)
{
	return WORDS & BIT(scene->opcode) ? 8 : BAD_BYTES;
}

void extra_region(struct scene *scene, struct ibv_pd *pd, int access)
{
	if (!region_map(&scene->extra, MEMORY_ANON, REGION_BYTES))
		bail("cannot map memory");
	region_register(&scene->extra, pd, access);
	memset(scene->extra.addr, EXTRA_BYTE, REGION_BYTES);
}

static void open_xrc(struct scene *scene, struct endpoint_options options)
{
	struct xrc *xrc = &scene->xrc;
	struct ibv_cq *own;

	xrc_open_domain(xrc, scene->setup);
	own = xrc->cq;
	if (options.recv_cq)
		xrc->cq = options.recv_cq;
	xrc->srq[0] = xrc_create_srq(xrc, QUEUE_ENTRIES, ELEMENTS);
	scene->srq = xrc->srq[0];
	scene->recv_cq = xrc->cq;
	xrc->cq = own;
	if (ibv_get_srq_num(scene->srq, &scene->srqn))
		bail("ibv_get_srq_num fails");
	options.recv_cq = NULL;
	options.type = IBV_QPT_XRC_SEND;
	endpoint_create(&scene->a, &scene->setup->a_dev, &options);
	options.send_cq = NULL;
	options.type = IBV_QPT_XRC_RECV;
	options.xrcd = xrc->xrcd;
	endpoint_create(&scene->b, &scene->setup->b_dev, &options);
}

static void open_connection(struct scene *scene,
			    struct endpoint_options options)
{
	struct ibv_cq *recv_cq = options.recv_cq;

	options.type = service_is_reliable(scene->service) ? IBV_QPT_RC :
							     IBV_QPT_UC;
	options.recv_cq = NULL;
	endpoint_create(&scene->a, &scene->setup->a_dev, &options);
	options.send_cq = NULL;
	options.recv_cq = recv_cq;
	if (service_is_shared(scene->service))
		scene->srq = srq_create(scene->setup->b_dev.pd, QUEUE_ENTRIES,
					ELEMENTS);
	options.srq = scene->srq;
	endpoint_create(&scene->b, &scene->setup->b_dev, &options);
	scene->recv_cq = scene->b.recv_cq;
}

void scene_open(struct scene *scene, struct setup *setup, enum service service,
		enum ibv_wr_opcode opcode,
		const struct endpoint_options *options)
{
	memset(scene, 0, sizeof(*scene));
	scene->setup = setup;
	scene->service = service;
	scene->opcode = opcode;
	if (service == OVER_XRC)
		open_xrc(scene, *options);
	else
		open_connection(scene, *options);
	pair_connect(&scene->a, &scene->b);
	memset(setup->a_mem.addr, A_BYTE, REGION_BYTES);
	memset(setup->b_mem.addr, B_BYTE, REGION_BYTES);
	scene->local[0] = region_sge(&setup->a_mem, TARGET_OFFSET,
				     request_bytes(scene));
	scene->local_count = 1;
	scene->remote_addr = setup->b_mem.rdma_addr + TARGET_OFFSET;
	scene->rkey = setup->b_mem.mr->rkey;
	scene->receive[0] = region_sge(&setup->b_mem, RECEIVE_OFFSET,
				       RECEIVE_BYTES);
	scene->receive_count = 1;
	scene->receives = RECEIVES;
}

void scene_close(struct scene *scene)
{
	pair_destroy(&scene->a, &scene->b);
	if (scene->xrc.xrcd)
		xrc_close(&scene->xrc);
	else if (scene->srq)
		tap_must(!ibv_destroy_srq(scene->srq), "ibv_destroy_srq fails");
	if (scene->other_xrc.xrcd)
		xrc_close(&scene->other_xrc);
	if (scene->mw && scene->mw != &scene->other_mw)
		tap_must(!ibv_dealloc_mw(scene->mw), "ibv_dealloc_mw fails");
	if (scene->window)
		window_close(scene);
	if (scene->message)
		message_close(scene);
	if (scene->extra.map)
		region_destroy(&scene->extra);
	if (scene->extra_pd)
		tap_must(!ibv_dealloc_pd(scene->extra_pd),
			 "ibv_dealloc_pd fails");
	if (scene->extra_ctx)
		tap_must(!ibv_close_device(scene->extra_ctx),
			 "ibv_close_device fails");
}

static void post_receive(struct scene *scene, uint64_t id, struct ibv_sge *sges,
			 int count)
{
	struct ibv_recv_wr wr = {
		.wr_id = id,
		.sg_list = sges,
		.num_sge = count,
	};
	struct ibv_recv_wr *bad;
	int error;

	error = scene->srq ? ibv_post_srq_recv(scene->srq, &wr, &bad) :
			     ibv_post_recv(scene->b.qp, &wr, &bad);
	if (error)
		bail("posting a receive fails: %s", strerror(error));
}

void scene_post_receive(struct scene *scene, uint64_t id, struct ibv_sge *sge)
{
	post_receive(scene, id, sge, sge ? 1 : 0);
}

void scene_post_receives(struct scene *scene)
{
	struct ibv_sge sge;
	int i;

	if (scene->receives)
		post_receive(scene, FIRST_RECEIVE_ID, scene->receive,
			     scene->receive_count);
	for (i = 1; i < scene->receives; i++) {
		sge = region_sge(&scene->setup->b_mem,
				 RECEIVE_OFFSET + i * RECEIVE_BYTES,
				 RECEIVE_BYTES);
		scene_post_receive(scene, FIRST_RECEIVE_ID + i, &sge);
	}
}

struct ibv_send_wr scene_send(struct scene *scene, uint64_t id,
			      enum ibv_wr_opcode opcode, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = send_wr(id, opcode, sge, sge ? 1 : 0);

	if (scene->service == OVER_XRC &&
	    ibv_get_srq_num(scene->srq, &wr.qp_type.xrc.remote_srqn))
		bail("ibv_get_srq_num fails");
	return wr;
}

struct ibv_send_wr scene_request(struct scene *scene, uint64_t id)
{
	struct ibv_send_wr wr = scene_send(scene, id, scene->opcode,
					   scene->local);

	wr.num_sge = scene->local_count;
	if (opcode_is_atomic(scene->opcode)) {
		wr.wr.atomic.remote_addr = scene->remote_addr;
		wr.wr.atomic.rkey = scene->rkey;
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.swap = 2;
	} else {
		wr.wr.rdma.remote_addr = scene->remote_addr;
		wr.wr.rdma.rkey = scene->rkey;
	}
	if (scene->opcode == IBV_WR_SEND_WITH_INV ||
	    scene->opcode == IBV_WR_LOCAL_INV)
		wr.invalidate_rkey = scene->invalidate_rkey;
	if (scene->opcode == IBV_WR_BIND_MW) {
		wr.bind_mw.mw = scene->mw;
		wr.bind_mw.rkey = ibv_inc_rkey(scene->mw->rkey) ^
				  scene->wrong_bits;
		wr.bind_mw.bind_info = scene->bind;
	}
	if (scene->service == OVER_XRC)
		wr.qp_type.xrc.remote_srqn = scene->srqn;
	return wr;
}

bool scene_works(struct scene *scene, uint64_t id)
{
	struct ibv_send_wr wr = scene_send(scene, id, IBV_WR_SEND, NULL);

	scene_post_receive(scene, id, NULL);
	post_send(&scene->a, &wr);
	return cq_expect(scene->a.send_cq, id, IBV_WC_SUCCESS) &&
	       cq_expect(scene->recv_cq, id, IBV_WC_SUCCESS);
}
