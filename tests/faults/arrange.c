// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Faults of keys, addresses, receives and peers: how each is arranged, and for
 * which operations.
 */
#include <errno.h>
#include <string.h>

#include "faults.h"
#include "tap.h"
#include "work.h"

static bool is_of_word(const struct scene *scene)
{
	return WORDS & BIT(scene->opcode);
}

static void aim_at_extra(struct scene *scene)
{
	scene->remote_addr = scene->extra.rdma_addr + TARGET_OFFSET;
	scene->rkey = scene->extra.mr->rkey;
}

static void remote_without(struct scene *scene, int access)
{
	extra_region(scene, scene->setup->b_dev.pd, ACCESS_ALL & ~access);
	aim_at_extra(scene);
}

void wrong_rkey(struct scene *scene)
{
	scene->rkey ^= 0x00a5a500;
}

static void next_rkey(struct scene *scene)
{
	scene->rkey++;
}

static void zero_rkey(struct scene *scene)
{
	scene->rkey = 0;
}

static void stale_rkey(struct scene *scene)
{
	remote_without(scene, 0);
	tap_must(!ibv_dereg_mr(scene->extra.mr), "ibv_dereg_mr fails");
	scene->extra.mr = NULL;
}

static void rkey_of_other_pd(struct scene *scene)
{
	scene->extra_pd = ibv_alloc_pd(scene->setup->b_dev.ctx);
	if (!scene->extra_pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	extra_region(scene, scene->extra_pd, ACCESS_ALL);
	aim_at_extra(scene);
}

/* The same memory, registered through another open of the device. */
static void rkey_of_other_context(struct scene *scene)
{
	scene->extra_ctx = device_open_context(scene->setup->b_dev.name);
	if (!scene->extra_ctx)
		bail("cannot open the device again");
	scene->extra_pd = ibv_alloc_pd(scene->extra_ctx);
	if (!scene->extra_pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	extra_region(scene, scene->extra_pd, ACCESS_ALL);
	aim_at_extra(scene);
}

static void no_remote_write(struct scene *scene)
{
	remote_without(scene, IBV_ACCESS_REMOTE_WRITE);
}

static void no_remote_read(struct scene *scene)
{
	remote_without(scene, IBV_ACCESS_REMOTE_READ);
}

static void no_remote_atomic(struct scene *scene)
{
	remote_without(scene, IBV_ACCESS_REMOTE_ATOMIC);
}

static void below_remote(struct scene *scene)
{
	remote_without(scene, 0);
	scene->remote_addr = scene->extra.rdma_addr - 8;
	/* Atomics ask for alignment first: the last word before the start. */
	if (is_of_word(scene))
		scene->remote_addr &= ~7ULL;
}

static void across_remote_end(struct scene *scene)
{
	uint64_t end;

	remote_without(scene, 0);
	end = scene->extra.rdma_addr + REGION_BYTES;
	scene->remote_addr = end - request_bytes(scene) + 1;
	if (is_of_word(scene))
		scene->remote_addr = end & ~7ULL;
}

static void wrap_remote(struct scene *scene)
{
	scene->remote_addr = UINT64_MAX - 7;
}

static void misaligned_remote(struct scene *scene)
{
	scene->remote_addr += 4;
}

static void qp_without_write(struct endpoint_options *options)
{
	options->access &= ~IBV_ACCESS_REMOTE_WRITE;
}

static void qp_without_read(struct endpoint_options *options)
{
	options->access &= ~IBV_ACCESS_REMOTE_READ;
}

static void qp_without_atomic(struct endpoint_options *options)
{
	options->access &= ~IBV_ACCESS_REMOTE_ATOMIC;
}

static void wrong_lkey(struct scene *scene)
{
	scene->local[0].lkey ^= 0x00a5a500;
}

static void stale_lkey(struct scene *scene)
{
	extra_region(scene, scene->setup->a_dev.pd, ACCESS_ALL);
	scene->local[0] = region_sge(&scene->extra, 0, request_bytes(scene));
	tap_must(!ibv_dereg_mr(scene->extra.mr), "ibv_dereg_mr fails");
	scene->extra.mr = NULL;
}

static void lkey_of_other_pd(struct scene *scene)
{
	scene->extra_pd = ibv_alloc_pd(scene->setup->a_dev.ctx);
	if (!scene->extra_pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	extra_region(scene, scene->extra_pd, ACCESS_ALL);
	scene->local[0] = region_sge(&scene->extra, 0, request_bytes(scene));
}

static void lkey_read_only(struct scene *scene)
{
	extra_region(scene, scene->setup->a_dev.pd, IBV_ACCESS_REMOTE_READ);
	scene->local[0] = region_sge(&scene->extra, 0, request_bytes(scene));
}

static void below_local(struct scene *scene)
{
	extra_region(scene, scene->setup->a_dev.pd, ACCESS_ALL);
	scene->local[0] = region_sge(&scene->extra, -1, request_bytes(scene));
}

static void across_local_end(struct scene *scene)
{
	uint32_t length = request_bytes(scene);

	extra_region(scene, scene->setup->a_dev.pd, ACCESS_ALL);
	scene->local[0] = region_sge(&scene->extra, REGION_BYTES - length + 1,
				     length);
}

static void wrap_local(struct scene *scene)
{
	scene->local[0].addr = UINT64_MAX - 3;
}

static void short_receive(struct scene *scene)
{
	scene->receive[0].length = BAD_BYTES - 1;
}

static void wrong_receive_lkey(struct scene *scene)
{
	scene->receive[0].lkey ^= 0x00a5a500;
}

static void receive_lkey_of_other_pd(struct scene *scene)
{
	scene->extra_pd = ibv_alloc_pd(scene->setup->b_dev.ctx);
	if (!scene->extra_pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	extra_region(scene, scene->extra_pd, ACCESS_ALL);
	scene->receive[0] = region_sge(&scene->extra, 0, RECEIVE_BYTES);
}

static void receive_read_only(struct scene *scene)
{
	extra_region(scene, scene->setup->b_dev.pd, IBV_ACCESS_REMOTE_READ);
	scene->receive[0] = region_sge(&scene->extra, 0, RECEIVE_BYTES);
}

static void receive_outside(struct scene *scene)
{
	extra_region(scene, scene->setup->b_dev.pd, ACCESS_ALL);
	scene->receive[0] = region_sge(&scene->extra, REGION_BYTES - 8,
				       RECEIVE_BYTES);
}

static void receive_below(struct scene *scene)
{
	extra_region(scene, scene->setup->b_dev.pd, ACCESS_ALL);
	scene->receive[0] = region_sge(&scene->extra, -1, RECEIVE_BYTES);
}

static void receive_wraps(struct scene *scene)
{
	scene->receive[0].addr = UINT64_MAX - 3;
}

static void receive_stale_lkey(struct scene *scene)
{
	extra_region(scene, scene->setup->b_dev.pd, ACCESS_ALL);
	scene->receive[0] = region_sge(&scene->extra, 0, RECEIVE_BYTES);
	tap_must(!ibv_dereg_mr(scene->extra.mr), "ibv_dereg_mr fails");
	scene->extra.mr = NULL;
}

void no_receives(struct scene *scene)
{
	scene->receives = 0;
}

/* The key comes first: the request does not wait for a receive. */
static void wrong_rkey_no_receives(struct scene *scene)
{
	wrong_rkey(scene);
	no_receives(scene);
}

static void rnr_retry_0(struct endpoint_options *options)
{
	options->rnr_retry = 0;
}

void rnr_retry_1(struct endpoint_options *options)
{
	options->rnr_retry = 1;
}

void rnr_retry_6(struct endpoint_options *options)
{
	options->rnr_retry = 6;
}

void peer_destroyed(struct scene *scene)
{
	tap_must(!ibv_destroy_qp(scene->b.qp), "ibv_destroy_qp fails");
	scene->b.qp = NULL;
}

static void set_peer_state(struct scene *scene, enum ibv_qp_state state)
{
	if (endpoint_set_state(&scene->b, state))
		bail("cannot go to %s", state_name(state));
}

void peer_reset(struct scene *scene)
{
	set_peer_state(scene, IBV_QPS_RESET);
}

void peer_init(struct scene *scene)
{
	set_peer_state(scene, IBV_QPS_RESET);
	endpoint_to_init(&scene->b);
}

void peer_error(struct scene *scene)
{
	set_peer_state(scene, IBV_QPS_ERR);
}

/* The peer is connected again, but with somebody else. */
static void peer_elsewhere(struct scene *scene)
{
	struct endpoint_address address = endpoint_address(&scene->a);

	address.qp_num ^= 1;
	set_peer_state(scene, IBV_QPS_RESET);
	endpoint_connect(&scene->b, &address);
}

/* The peer is connected again, with a PSN that is @ahead of the next request's. */
static void connect_again(struct scene *scene, int ahead)
{
	struct endpoint_address address = endpoint_address(&scene->a);

	/* one message has gone */
	address.psn = (address.psn + 1 + ahead) & 0xffffff;
	set_peer_state(scene, IBV_QPS_RESET);
	endpoint_connect(&scene->b, &address);
}

static void psn_agrees(struct scene *scene)
{
	connect_again(scene, 0);
}

static void psn_ahead(struct scene *scene)
{
	connect_again(scene, 1);
}

static void psn_behind(struct scene *scene)
{
	connect_again(scene, -1);
}

static void short_word(struct scene *scene)
{
	scene->local[0].length = 4;
}

static void long_word(struct scene *scene)
{
	scene->local[0].length = 16;
}

static void no_reads_here(struct endpoint_options *options)
{
	options->reads = 0;
}

void few_retries(struct endpoint_options *options)
{
	options->timeout = 1;
	options->retry_count = 2;
}

static void no_retries(struct endpoint_options *options)
{
	options->timeout = 1;
	options->retry_count = 0;
}

/* Not a fault: without bytes to move, the key does not matter. */
static void zero_length(struct scene *scene)
{
	scene->local[0].length = 0;
	wrong_rkey(scene);
}

static const struct fault rows[] = {
	{ "wrong rkey", REMOTE, wrong_rkey, REMOTE_ACCESS, LOST, NULL },
	{ "wrong rkey, no receive", BIT(IBV_WR_RDMA_WRITE_WITH_IMM),
	  wrong_rkey_no_receives, REMOTE_ACCESS, LOST, NULL },
	{ "rkey plus one", REMOTE, next_rkey, REMOTE_ACCESS, LOST, NULL },
	{ "rkey zero", REMOTE, zero_rkey, REMOTE_ACCESS, LOST, NULL },
	{ "rkey of a deregistered MR", REMOTE, stale_rkey, REMOTE_ACCESS, LOST,
	  NULL },
	{ "rkey of another PD", REMOTE, rkey_of_other_pd, REMOTE_ACCESS, LOST,
	  NULL },
	{ "rkey of another context", REMOTE, rkey_of_other_context,
	  REMOTE_ACCESS, LOST, NULL },
	{ "MR without remote write", WRITES | WORD_WRITE, no_remote_write,
	  REMOTE_ACCESS, LOST, NULL },
	{ "MR without remote read", READS, no_remote_read, REMOTE_ACCESS, LOST,
	  NULL },
	{ "MR without remote atomic", ATOMICS, no_remote_atomic, REMOTE_ACCESS,
	  LOST, NULL },
	{ "remote address below the MR", REMOTE, below_remote, REMOTE_ACCESS,
	  LOST, NULL },
	{ "across the MR's end", REMOTE, across_remote_end, REMOTE_ACCESS, LOST,
	  NULL },
	{ "remote address that wraps around", REMOTE, wrap_remote,
	  REMOTE_ACCESS, LOST, NULL },
	{ "QP without remote write", WRITES | WORD_WRITE, NULL, REMOTE_INVALID,
	  LOST, qp_without_write },
	{ "QP without remote read", READS, NULL, REMOTE_INVALID, LOST,
	  qp_without_read },
	{ "QP without remote atomic", ATOMICS, NULL, REMOTE_INVALID, LOST,
	  qp_without_atomic },
	{ "misaligned word", WORDS, misaligned_remote, REMOTE_INVALID, LOST,
	  NULL },
	{ "QP that answers no READs", INWARD, NULL, REMOTE_INVALID, LOST,
	  no_reads_here },
	{ "word of 4 bytes", WORDS, short_word, LOCAL_LENGTH, LOCAL_LENGTH,
	  NULL },
	{ "word of 16 bytes", WORDS, long_word, LOCAL_LENGTH, LOCAL_LENGTH,
	  NULL },
	{ "wrong lkey", ALL, wrong_lkey, LOCAL_PROTECTION, LOCAL_PROTECTION,
	  NULL },
	{ "lkey of a deregistered MR", ALL, stale_lkey, LOCAL_PROTECTION,
	  LOCAL_PROTECTION, NULL },
	{ "lkey of another PD", ALL, lkey_of_other_pd, LOCAL_PROTECTION,
	  LOCAL_PROTECTION, NULL },
	{ "MR without local write", INWARD, lkey_read_only, LOCAL_PROTECTION,
	  LOCAL_PROTECTION, NULL },
	{ "local address below the MR", ALL, below_local, LOCAL_PROTECTION,
	  LOCAL_PROTECTION, NULL },
	{ "across the local MR's end", ALL, across_local_end, LOCAL_PROTECTION,
	  LOCAL_PROTECTION, NULL },
	{ "local address that wraps around", ALL, wrap_local, LOCAL_PROTECTION,
	  LOCAL_PROTECTION, NULL },
	{ "receive too short", SENDS, short_receive,
	  RECEIVE_SHORT(IBV_WC_REM_INV_REQ_ERR), RECEIVE_SHORT(IBV_WC_SUCCESS),
	  NULL },
	{ "receive with a wrong lkey", SENDS, wrong_receive_lkey, RECEIVE_FAILS,
	  NULL },
	{ "receive with the lkey of another PD", SENDS,
	  receive_lkey_of_other_pd, RECEIVE_FAILS, NULL },
	{ "receive into an MR without local write", SENDS, receive_read_only,
	  RECEIVE_FAILS, NULL },
	{ "receive outside its MR", SENDS, receive_outside, RECEIVE_FAILS,
	  NULL },
	{ "receive below its MR", SENDS, receive_below, RECEIVE_FAILS, NULL },
	{ "receive at an address that wraps around", SENDS, receive_wraps,
	  RECEIVE_FAILS, NULL },
	{ "receive with the lkey of a deregistered MR", SENDS,
	  receive_stale_lkey, RECEIVE_FAILS, NULL },
	{ "no receive, no retry", RECEIVED, no_receives, NOT_READY, LOST,
	  rnr_retry_0 },
	{ "no receive, one retry", RECEIVED, no_receives, NOT_READY, LOST,
	  rnr_retry_1 },
	{ "no receive, six retries", RECEIVED, no_receives, NOT_READY, LOST,
	  rnr_retry_6 },
	{ "peer destroyed", ALL, peer_destroyed, NO_ANSWER, SILENCE,
	  few_retries },
	{ "peer destroyed, no retries", ALL, peer_destroyed, NO_ANSWER, SILENCE,
	  no_retries },
	{ "peer in RESET", ALL, peer_reset, NO_ANSWER, SILENCE, few_retries },
	{ "peer in INIT", ALL, peer_init, NO_ANSWER, SILENCE, few_retries },
	{ "peer in ERR", ALL, peer_error, NO_ANSWER, SILENCE, few_retries },
	{ "peer connected with another", ALL, peer_elsewhere, NO_ANSWER,
	  SILENCE, few_retries },
	{ "PSN ahead of the requester's", ALL, psn_ahead, NO_ANSWER, FINE,
	  few_retries },
	{ "PSN behind the requester's", ALL, psn_behind, NO_ANSWER, FINE,
	  few_retries },
	{ "peer connected again, PSNs that agree", ALL, psn_agrees, FINE, FINE,
	  few_retries },
	{ "wrong rkey for no bytes", WRITES | READS, zero_length, FINE, FINE,
	  NULL },
};

const struct fault_table path_faults = {
	.faults = rows,
	.count = COUNT(rows),
	.services = BIT(SERVICES) - 1,
};
