// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A device in another network namespace with the address of a client and queue pairs
 * with the client's numbers is not the client: what it asks is not carried out.
 *
 * usage: impostor SERVER CLIENT IMPOSTOR: devices
 */
#include <string.h>

#include "device.h"
#include "endpoint.h"
#include "memory.h"
#include "tap.h"
#include "work.h"

enum {
	MOST = 4096, /* numbers that are tried */
	BYTES = 64,
	TRUE = 0x11,
	FALSE = 0x22,
};

static struct device server_dev, client_dev, impostor_dev;
static struct region server_mem, client_mem, impostor_mem;

struct scene {
	struct endpoint server, client, impostor;
};

/* One with the client's number; those before it are in the way. */
static bool take_number(struct endpoint *impostor, uint32_t number,
			const struct endpoint_options *options)
{
	unsigned int i;

	for (i = 0; i < MOST; i++) {
		endpoint_create(impostor, &impostor_dev, options);
		if (impostor->qp->qp_num == number)
			return true;
		endpoint_destroy(impostor);
	}
	return false;
}

static bool scene_open(struct scene *scene, enum ibv_qp_type type)
{
	struct endpoint_options options = endpoint_options(type);
	struct endpoint_address to;

	options.timeout = 8; /* a millisecond */
	options.retry_count = 1;
	pair_create(&scene->server, &server_dev, &scene->client, &client_dev,
		    &options);
	if (!take_number(&scene->impostor, scene->client.qp->qp_num,
			 &options)) {
		pair_destroy(&scene->server, &scene->client);
		return false;
	}
	to = endpoint_address(&scene->server);
	endpoint_connect(&scene->impostor, &to);
	return true;
}

static void scene_close(struct scene *scene)
{
	endpoint_destroy(&scene->impostor);
	pair_destroy(&scene->server, &scene->client);
}

static void ask(struct endpoint *ep, const struct region *mem, bool write)
{
	struct ibv_sge sge = region_sge(mem, 0, BYTES);
	struct ibv_send_wr wr =
		send_wr(1, write ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, &sge, 1);

	if (write)
		send_wr_aim(&wr, server_mem.rdma_addr, server_mem.mr->rkey);
	post_send(ep, &wr);
}

/* An unreliable one does not hear of it. */
static bool is_not_heard(struct scene *scene, enum ibv_qp_type type, bool write)
{
	ask(&scene->impostor, &impostor_mem, write);
	return cq_expect(scene->impostor.send_cq, 1,
			 type == IBV_QPT_RC ? IBV_WC_RETRY_EXC_ERR :
					      IBV_WC_SUCCESS) &&
	       check(all_are(server_mem.addr, BYTES, 0),
		     "the memory has changed") &&
	       check(cq_stays_empty(scene->server.recv_cq, 0),
		     "the receive is complete") &&
	       check(endpoint_state(&scene->server) == IBV_QPS_RTS,
		     "the connection is over");
}

static bool client_is_heard(struct scene *scene, bool write)
{
	ask(&scene->client, &client_mem, write);
	return cq_expect(scene->client.send_cq, 1, IBV_WC_SUCCESS) &&
	       (write || cq_expect(scene->server.recv_cq, 1, IBV_WC_SUCCESS)) &&
	       check(all_are(server_mem.addr, BYTES, TRUE),
		     "the client's data is not there");
}

/* Before the client has said anything, or after that. */
static void in_vain(enum ibv_qp_type type, bool write, bool known)
{
	struct ibv_sge sge = region_sge(&server_mem, 0, BYTES);
	struct scene scene;
	bool ok = scene_open(&scene, type);

	if (ok) {
		memset(server_mem.addr, 0, BYTES);
		post_recv(&scene.server, 1, &sge, 1);
		if (known)
			ok = exchange_empty(&scene.server, &scene.client, 7) &&
			     client_is_heard(&scene, true);
		memset(server_mem.addr, 0, BYTES);
		ok = ok && is_not_heard(&scene, type, write) &&
		     client_is_heard(&scene, write);
		scene_close(&scene);
	}
	tap_ok(ok, "%s, %s, %s the client has asked for something",
	       type == IBV_QPT_RC ? "RC" : "UC", write ? "WRITE" : "SEND",
	       known ? "after" : "before");
}

static void open_with(struct device *dev, struct region *mem, const char *name,
		      int value)
{
	device_open(dev, name);
	region_create(mem, dev->pd, PAGE_BYTES);
	memset(mem->addr, value, PAGE_BYTES);
}

static void close_with(struct device *dev, struct region *mem)
{
	region_destroy(mem);
	device_close(dev);
}

int main(int argc, char **argv)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC };
	unsigned int i;

	if (argc != 4)
		bail("usage: impostor SERVER CLIENT IMPOSTOR");
	open_with(&server_dev, &server_mem, argv[1], 0);
	open_with(&client_dev, &client_mem, argv[2], TRUE);
	open_with(&impostor_dev, &impostor_mem, argv[3], FALSE);
	tap_must(!memcmp(&client_dev.gid, &impostor_dev.gid,
			 sizeof(union ibv_gid)),
		 "the impostor has another address");
	for (i = 0; i < 2; i++) {
		in_vain(types[i], false, false);
		in_vain(types[i], true, false);
		in_vain(types[i], false, true);
		in_vain(types[i], true, true);
	}
	close_with(&impostor_dev, &impostor_mem);
	close_with(&client_dev, &client_mem);
	close_with(&server_dev, &server_mem);
	return tap_end();
}
